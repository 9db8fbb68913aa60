package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/result/folder"
	"github.com/blis-train/blis-train/trace"
	rows "github.com/blis-train/blis-train/trace/table"
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
	con.put(func() string { return t.Terminal(con.outWidth) })
}

// put prints text for people; nothing with --json or --quiet.
func (con *console) put(text func() string) {
	if con.json || con.quiet || con.summary {
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	fmt.Fprintln(con.text, text())
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

// longNumber is a cell whose thousands are set apart.
var longNumber = regexp.MustCompile(`^(-?)(\d{4,11})((?:\.\d+)?)$`)

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

// briefWidth is how wide the short form is where nothing tells the terminal's width.
const briefWidth = 80

// fewWarnings are still printed in full in the short form; of more, the codes are.
const fewWarnings = 3

// table prints a table of the long form: of every command that has no short one.
func (con *console) table(title string, header cells, rows []cells) {
	if !con.brief {
		con.show(title, header, rows)
	}
}

// lines prints text for people, wrapped, further lines indented; nothing
// with --json or --quiet.
func (con *console) lines(s string) {
	con.put(func() string { return wrapped(s, min(cmp.Or(con.outWidth, briefWidth), briefWidth)) })
}

// wrapped breaks a line at spaces; the rest is indented by two more than the line.
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

// noBreak stands for a space that is no place to break a line.
const noBreak = "\u2060"

// hold keeps findings of documents for the end, where the short form sums them up;
// the long form and a log for machines have each at once.
func (con *console) hold(findings []trace.Finding) {
	if !con.brief || con.log != nil {
		con.warn(findings)
		return
	}
	con.mu.Lock()
	defer con.mu.Unlock()
	for _, f := range findings {
		if !con.told[f] {
			con.held = append(con.held, f)
		}
	}
}

// release says what hold kept: few in full, else how many of which code.
func (con *console) release() {
	held := con.held
	con.held = nil
	if len(held) <= fewWarnings {
		con.warn(held)
		return
	}
	count := map[trace.Code]int{}
	var codes []string
	for _, f := range held {
		con.told[f] = true
		if count[f.Code]++; count[f.Code] == 1 {
			codes = append(codes, string(f.Code))
		}
	}
	sort.Strings(codes)
	for i, c := range codes {
		if n := count[trace.Code(c)]; n > 1 {
			codes[i] = fmt.Sprintf("%s (%d)", c, n)
		}
	}
	con.talk(fmt.Sprintf("%d warnings, in full with -v: %s", len(held), strings.Join(codes, ", ")))
}

// talk prints a wrapped line on stderr, also with --quiet.
func (con *console) talk(s string) {
	con.mu.Lock()
	defer con.mu.Unlock()
	con.clearBar()
	fmt.Fprintln(con.err, wrapped(s, min(con.width, briefWidth)))
}

// extractedLine is the account of an extraction in a line.
func (con *console) extractedLine(doc *result.Extract) {
	t := &doc.Totals
	dropped := "none of " + trace.Thousands(t.Records.Read) + " records dropped"
	if n := t.Records.Read - t.Records.Kept; n > 0 {
		dropped = fmt.Sprintf("%s of %s records dropped (%s)", trace.Thousands(n), trace.Thousands(t.Records.Read),
			report.Reasons(t.Records.Dropped))
	}
	// What clients saw stands for what the engine did not tell.
	requests := max(t.Requests.Engine+t.Requests.APIOnly+t.Requests.Stock, t.Tables[rows.ObservedRequests])
	steps := trace.Thousands(t.Steps.Summaries) + " steps"
	if passes := passesText(doc); passes != "" {
		if steps += ", " + passes; t.Steps.Summaries == 0 {
			steps = passes
		}
	}
	s := fmt.Sprintf("extracted %d %s: %s requests, %s; %s", len(doc.Runs), plural(len(doc.Runs), "run", "runs"),
		trace.Thousands(requests), steps, dropped)
	con.aside(s)
	if sentence := report.CachedTokens(doc); sentence != "" {
		con.aside(sentence)
	}
}

// passesText counts the engine's passes by where they were read; empty without.
func passesText(doc *result.Extract) string {
	var parts []string
	sources := []struct{ kind, words string }{{"iterations", "logged iterations"}, {"passes", "traced passes"},
		{"", "steps told by the chunks of clients"}}
	counts := make([]int64, len(sources))
	for _, r := range doc.Runs {
		for k, s := range sources {
			isTold := slices.ContainsFunc(r.Warnings, func(f trace.Finding) bool { return f.Code == "chunk_steps" })
			if s.kind == "" || !isTold && slices.ContainsFunc(r.Files, func(f result.ExtractFile) bool { return f.Kind == s.kind }) {
				counts[k] += r.Tables[rows.Iterations]
				break
			}
		}
	}
	for k, n := range counts {
		if n > 0 {
			parts = append(parts, trace.Thousands(n)+" "+sources[k].words)
		}
	}
	return strings.Join(parts, ", ")
}

// aside is a line of talk, wrapped where people read it; nothing with --quiet.
func (con *console) aside(s string) {
	switch {
	case con.quiet:
	case con.log != nil:
		con.sayf("%s", s)
	default:
		con.talk(s)
	}
}

// configurations prints one entry a configuration: usable for what, up to where, and
// the error to expect.
func (con *console) configurations(in report.Input) {
	for _, l := range report.Lines(in) {
		con.lines(l.Scope + ": " + l.Uses)
		if l.Region != "" {
			con.lines("  " + l.Region)
		}
		if l.Error != "" {
			con.lines("  expected error: " + l.Error)
		}
	}
}

// mostChanges are the changes that the short form prints.
const mostChanges = 12

// changed prints what a validation says other than an older one, after its verdict.
func (con *console) changed(c *result.Changes) { con.changes = c }

// sinceBaseline prints the changes, when there is something to compare with.
func (con *console) sinceBaseline() {
	c := con.changes
	if c == nil {
		return
	}
	if t := report.ChangesTable(c); len(t.Rows) > 0 {
		more := 0
		if con.brief {
			more = t.First(mostChanges)
		}
		t.Caption = "changed since " + c.Against
		con.print(t)
		if more > 0 {
			con.aside(fmt.Sprintf("and %d more changes: -v, or the report", more))
		}
	}
	con.aside(fmt.Sprintf("since %s: %s, %d figures as they were", c.Against, report.Plural(len(c.Rows), "change"), c.Same))
	for _, n := range c.Notes {
		con.aside("since " + c.Against + ": " + n)
	}
}

// judged prints a validation, of results in out.
func (con *console) judged(val *result.Validation, f *result.Fit, out string) {
	in := report.Input{Fit: f, Validation: val}
	con.page(in, "verdict", "replay")
	con.hold(val.Warnings)
	con.configurations(in)
	con.release()
	con.sinceBaseline()
	for _, s := range report.Failed(report.Decisive(val)) {
		con.aside("failed: " + plainSigns.Replace(s))
	}
	for _, s := range diagnosisLines(val) {
		con.aside("why: " + s)
	}
	for i, s := range report.Next(in) {
		if i == 2 {
			break
		}
		con.aside("next: " + strings.ReplaceAll(s, "`", ""))
	}
	con.sayf("report: %s", filepath.Join(out, folder.ReportFile))
}

// checkSummary refuses unknown formats before any work, and keeps stdout for the summary.
func (con *console) checkSummary(c *cli.Context) error {
	switch format := c.String("summary"); {
	case format == "":
	case format != "markdown":
		return usagef("--summary: got %q, want markdown", format)
	case con.json:
		return usagef("--summary: got --json too, want one of them: both print on stdout")
	default:
		con.summary = true
	}
	return nil
}

// tellCI writes the summary and the JUnit report that were asked for.
func (con *console) tellCI(c *cli.Context, val *result.Validation, fit *result.Fit) error {
	if con.summary {
		fmt.Fprint(con.out, report.SummaryMarkdown(report.Input{Fit: fit, Validation: val, Changes: con.changes}))
	}
	if path := c.String("junit"); path != "" {
		text, err := report.JUnit(val, c.Bool("allow-insufficient"))
		if err != nil {
			return err
		}
		if con.special {
			return files.WriteSpecial(path, text)
		}
		return files.Write(path, text)
	}
	return nil
}
