package main

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/report"
)

// cells are the cells of a table's row, or its headings, as values.
type cells []any

// show prints rows for people on stdout; nothing with --json or --quiet.
func (con *console) show(title string, header cells, rows []cells) {
	if len(rows) > 0 {
		con.print(tableOf(title, header, rows))
	}
}

// tables prints the tables of a page's sections, of all or of those named.
func (con *console) tables(sections []report.Section, ids ...string) {
	for _, s := range sections {
		for _, b := range s.Blocks {
			if b.Table != nil && (len(ids) == 0 || slices.Contains(ids, s.ID)) {
				con.print(b.Table)
			}
		}
	}
}

func (con *console) print(t *report.Table) {
	if con.json || con.quiet || con.summary {
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	fmt.Fprintln(con.text, t.Terminal(con.outWidth))
}

// tableOf is the table of some values: columns of numbers alone stand at the right.
func tableOf(title string, header cells, rows []cells) *report.Table {
	t := &report.Table{Caption: files.Line(title)}
	for _, h := range header {
		t.Cols = append(t.Cols, report.Column{Head: fmt.Sprint(h), Num: true})
	}
	for _, values := range rows {
		var r report.Row
		for i, cell := range values {
			switch cell.(type) {
			case int, int32, int64, uint64, float64:
			default:
				t.Cols[i].Num = false
			}
			r.Cells = append(r.Cells, report.Plain(files.Line(fmt.Sprint(cell))))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}
