package main

// This file prints tables in the terminal.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/trace"
)

// cells are the values in a row of a table, or its headings.
type cells []any

// twoLines is a cell with a second line below the first.
type twoLines [2]string

// show prints rows for people on stdout, also in the short form (unlike table); nothing with --json or --quiet.
func (con *console) show(title string, header cells, rows []cells) {
	if len(rows) > 0 {
		con.printTable(tableOf(title, header, rows))
	}
}

// showSections prints the tables in the named sections of the report, in the long form only.
func (con *console) showSections(in report.Input, ids ...string) {
	if !con.brief {
		con.showTables(report.Sections(in), ids...)
	}
}

// showTables prints tables in the sections of a page: all of them without ids, else those whose id
// or section is in ids.
func (con *console) showTables(sections []report.Section, ids ...string) {
	var visit func(blocks []report.Block, all bool)
	visit = func(blocks []report.Block, all bool) {
		for _, b := range blocks {
			if b.Fold != nil {
				visit(b.Fold.Blocks, all)
			}
			if b.Table != nil && b.Table.ID != con.leftOut && (all || slices.Contains(ids, b.Table.ID)) {
				con.printTable(b.Table)
			}
		}
	}
	for _, s := range sections {
		visit(s.Blocks, len(ids) == 0 || slices.Contains(ids, s.ID))
	}
}

// printTable prints a table for people; nothing with --json or --quiet.
func (con *console) printTable(t *report.Table) {
	con.printText(func() string { return t.Terminal(con.outWidth) })
}

// printText prints text for people; nothing with --json or --quiet. text is called only when it is printed.
func (con *console) printText(text func() string) {
	if con.json || con.quiet || con.summary {
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	fmt.Fprintln(con.text, text())
}

// number returns a value with three digits, or a dash if it is unknown.
func number(v *float64) string { return optional(v, 1, "%.3g") }

// percent returns a share in percent, or a dash.
func percent(v *float64) string { return optional(v, 100, "%.1f %%") }

// micros returns a time in us without decimals, or a dash.
func micros(v *float64) string { return optional(v, 1, "%.0f") }

// optional returns the value times factor in the format, or a dash if it is unknown.
func optional(v *float64, factor float64, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v*factor)
}

// longNumber matches a number of four digits or more, to which tableOf adds commas.
var longNumber = regexp.MustCompile(`^(-?)(\d{4,11})((?:\.\d+)?)$`)

// tableOf returns a table of values. Columns that have only numbers are aligned to the right.
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
			if lines, ok := cell.(twoLines); ok {
				r.Cells = append(r.Cells, report.Cell{Text: files.Line(lines[0]), Sub: files.Line(lines[1])})
				continue
			}
			text := fmt.Sprint(cell)
			if m := longNumber.FindStringSubmatch(text); m != nil {
				text = m[1] + trace.Grouped(m[2]) + m[3]
			}
			r.Cells = append(r.Cells, report.Plain(files.Line(text)))
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// briefWidth is the width of the short form, in columns, where the terminal has no known width.
const briefWidth = 80

// fewWarnings is how many warnings the short form prints in full. Of more it prints the codes.
const fewWarnings = 3

// table prints a table, unless the command prints its short form.
func (con *console) table(title string, header cells, rows []cells) {
	if !con.brief {
		con.show(title, header, rows)
	}
}

// printWrapped prints text for people, wrapped, with further lines indented; nothing with --json or
// --quiet.
func (con *console) printWrapped(s string) {
	con.printText(func() string { return wrapped(s, min(cmp.Or(con.outWidth, briefWidth), briefWidth)) })
}

// wrapped returns a text broken at spaces into lines of at most width columns. All lines after the
// first are indented by two more than it.
func wrapped(s string, width int) string {
	s = files.Line(s)
	text := strings.TrimLeft(s, " ")
	indent := s[:len(s)-len(text)]
	if text == "" {
		return indent
	}
	lines := report.Wrap(strings.ReplaceAll(text, "\u00a0", noBreak), width-len(indent), 2)
	return indent + strings.ReplaceAll(strings.Join(lines, "\n"+indent+"  "), noBreak, " ")
}

// noBreak replaces spaces at which a line must not be broken.
const noBreak = "\u2060"
