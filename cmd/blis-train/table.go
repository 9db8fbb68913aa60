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

// page prints the tables of the report, those of the sections named, in the long form.
func (con *console) page(in report.Input, ids ...string) {
	if !con.brief {
		con.tables(report.Sections(in), ids...)
	}
}

// tables prints the tables of a page's sections, all or those named by themselves or by their section.
func (con *console) tables(sections []report.Section, ids ...string) {
	var visit func(blocks []report.Block, all bool)
	visit = func(blocks []report.Block, all bool) {
		for _, b := range blocks {
			if b.Fold != nil {
				visit(b.Fold.Blocks, all)
			}
			if b.Table != nil && (all || slices.Contains(ids, b.Table.ID)) {
				con.print(b.Table)
			}
		}
	}
	for _, s := range sections {
		visit(s.Blocks, len(ids) == 0 || slices.Contains(ids, s.ID))
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

// number, percent and micros print unknown as a dash.
func number(v *float64) string  { return optional(v, 1, "%.3g") }
func percent(v *float64) string { return optional(v, 100, "%.1f %%") }
func micros(v *float64) string  { return optional(v, 1, "%.0f") }

func optional(v *float64, factor float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*factor)
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
