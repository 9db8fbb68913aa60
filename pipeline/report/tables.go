package report

import (
	"fmt"
	"slices"
	"strings"
)

// maxRows is the most rows of one table on the page; the JSON files hold all.
const maxRows = 150

// Grow adds a row while there is room and counts it in any case, so that a
// table of thousands costs no more than the rows it shows.
func (t *Table) Grow(fill func() Row) {
	t.Total++
	if len(t.Rows) < maxRows {
		t.Rows = append(t.Rows, fill())
	}
}

// Capped cuts a table to maxRows and says so. where names the file and key
// that hold every row; how says which rows came first.
func Capped(t *Table, how, where string) *Table {
	t.dropEmpty()
	t.Total = max(t.Total, len(t.Rows))
	if t.Total > maxRows {
		t.More = fmt.Sprintf("%d of %d rows shown, %s; all of them are in %s.", maxRows, t.Total, how, where)
		t.Rows = t.Rows[:maxRows]
	}
	return t
}

// dropEmpty removes columns in which no row says anything, not even that a
// value is unknown.
func (t *Table) dropEmpty() {
	for j := len(t.Cols) - 1; j >= 0; j-- {
		empty := len(t.Rows) > 0
		for _, r := range t.Rows {
			c := r.Cells[j]
			empty = empty && c.Text == "" && c.Sub == "" && c.Mini == ""
		}
		if !empty {
			continue
		}
		t.Cols = slices.Delete(t.Cols, j, j+1)
		for i := range t.Rows {
			t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, j, j+1)
		}
	}
}

// Tables returns the block of a table, or nothing for one without rows.
func Tables(t *Table) []Block {
	if t == nil || len(t.Rows) == 0 {
		return nil
	}
	return []Block{{Table: t}}
}

// slug makes an id of a name.
func slug(s string) string {
	keep := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}
	return strings.Map(keep, s[:min(len(s), 60)])
}
