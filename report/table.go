package report

// This file has the tables of a page and their cells; layouts.go has their columns.

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// maxRows is the largest number of rows of one table on the page; the JSON files have all.
const maxRows = 150

// Grow adds the row that fill returns if the table is not full, and counts it in any case, so that
// a table of thousands of rows costs no more than the rows it shows.
func (t *Table) Grow(fill func() Row) {
	t.Total++
	if len(t.Rows) < maxRows {
		t.Rows = append(t.Rows, fill())
	}
}

// Capped cuts a table to maxRows rows, adds a line with the number of all rows, and returns it.
// where names the file and key with all rows; how describes which rows come first.
func Capped(t *Table, how, where string) *Table {
	t.dropEmpty()
	t.Total = max(t.Total, len(t.Rows))
	if t.Total > maxRows {
		t.More = fmt.Sprintf("%d of %d rows shown, %s; all of them are in %s.", maxRows, t.Total, how, where)
		t.Rows = t.Rows[:min(maxRows, len(t.Rows))]
	}
	return t
}

// dropEmpty removes columns in which no row has a known value.
func (t *Table) dropEmpty() {
	for j := len(t.Cols) - 1; j >= 0; j-- {
		empty := len(t.Rows) > 0
		for _, r := range t.Rows {
			c := r.Cells[j]
			empty = empty && (c.Text == "" || c.Text == Unknown) && c.Sub == "" && c.Mini == ""
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

// Wide reports whether the table has so many columns that the page sets it in smaller type, so that
// it is not cut at a width of 1,280 pixels.
func (t *Table) Wide() bool { return len(t.Cols) > 10 }

// Tables returns the tables that have rows as blocks, without their empty columns.
func Tables(ts ...*Table) []Block {
	var blocks []Block
	for _, t := range ts {
		if t != nil && len(t.Rows) > 0 {
			t.dropEmpty()
			blocks = append(blocks, Block{Table: t})
		}
	}
	return blocks
}

// slug returns a name as a part of an id.
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

// Plain returns a cell of short text.
func Plain(s string) Cell { return Cell{Text: s} }

// Prose returns a cell of text that may wrap.
func Prose(s string) Cell { return Cell{Text: s, Class: "w"} }

// Name returns a cell with a name, which does not wrap.
func Name(s string) Cell { return Cell{Text: s, Class: "id"} }

// Number returns a right-aligned cell; nil is shown as unknown and sorts last.
func Number(v *float64) Cell { return Shown(v, Short) }

// Percent returns a Number cell for a fraction, shown as percent.
func Percent(v *float64) Cell { return Shown(v, Pct) }

// millis returns a Number cell for microseconds, shown as milliseconds.
func millis(v *float64) Cell {
	return Shown(v, func(us float64) string { return Short(us / 1000) })
}

// Shown returns a right-aligned cell of a number that print formats; nil is shown as Unknown.
func Shown(v *float64, print func(float64) string) Cell {
	if v == nil {
		return Cell{Text: Unknown, Class: "n dim"}
	}
	return Cell{Text: print(*v), Key: sortKey(*v), Class: "n"}
}

// Num returns a Number cell of a known value.
func Num(v float64) Cell { return Number(&v) }

// PercentOf returns a Percent cell of a known value.
func PercentOf(v float64) Cell { return Percent(&v) }

// Count returns a cell of a count.
func Count[N int | int64](n N) Cell {
	return Cell{Text: trace.Thousands(int64(n)), Key: strconv.FormatInt(int64(n), 10), Class: "n"}
}

// ZeroDim returns a Count cell in which a zero is grey, so that other counts are easy to see.
func ZeroDim[N int | int64](n N) Cell {
	c := Count(n)
	if n == 0 {
		c.Class = "n dim"
	}
	return c
}

// underHeading returns the blocks after a sub-heading; nil without blocks.
func underHeading(title string, bs []Block) []Block {
	if len(bs) == 0 {
		return nil
	}
	return append([]Block{{Heading: title}}, bs...)
}

// NewTable returns a table without rows. A column is written in one line, "# Spread [ms] ? P95 - P5
// of the offset": # for numbers, the unit in brackets, the tooltip after the question mark.
func NewTable(id, caption string, heads ...string) *Table {
	return &Table{ID: id, Caption: caption, Cols: ColumnsOf(heads...)}
}

// ColumnsOf returns columns written as for NewTable.
func ColumnsOf(heads ...string) []Column {
	columns := make([]Column, len(heads))
	for i, head := range heads {
		columns[i] = parseColumn(head)
	}
	return columns
}

// parseColumn reads one column written as for NewTable.
func parseColumn(text string) (c Column) {
	text, c.Help, _ = strings.Cut(text, " ? ")
	text, c.Unit, _ = strings.Cut(strings.TrimSuffix(text, "]"), " [")
	c.Head, c.Num = strings.CutPrefix(text, "# ")
	return c
}

// Put appends a row.
func (t *Table) Put(cells ...Cell) { t.Rows = append(t.Rows, Row{Cells: cells}) }

// Add appends a row of plain cells.
func (t *Table) Add(cells ...string) {
	row := make([]Cell, len(cells))
	for i, text := range cells {
		row[i] = Plain(text)
	}
	t.Put(row...)
}

// First keeps the first n rows and returns how many it removed.
func (t *Table) First(n int) (others int) {
	others = max(len(t.Rows)-n, 0)
	t.Rows = t.Rows[:len(t.Rows)-others]
	return others
}
