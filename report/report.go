// Package report renders what the stages found as one self-contained HTML file
// that a performance engineer can act on, and each of its figures as SVG and
// PNG. The page opens from disk, asks the network for nothing (a content
// security policy in the file forbids it), prints well, follows the reader's
// light or dark preference and stays readable on a phone.
//
// The steps, each in its own files:
//
//	Input            pointers to the result structs of the stages; a nil one becomes a sentence
//	                 that says which command would fill the section
//	sections (sec*)  result structs -> section: tables, figures, findings, words
//	charts (fig*)    result structs -> figure: panels of marks in pixels
//	drawing          marks -> inline SVG (colours by CSS class, so both schemes work),
//	                 standalone SVG
//	page             sections -> HTML through html/template, which escapes every
//	                 string that came out of a recording
//
// The package does no arithmetic of its own beyond scaling to pixels, sorting and
// counting what it shows: every number on the page stands in a result struct.
// It refuses nothing and hides nothing silently: a table or a set of panels
// that would make the file too large is cut, worst rows first, and the line
// below says how many rows were left out and which JSON file holds them.
//
// The same Input gives the same bytes. The package reads no clock, no
// environment and no file.
package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// Input is what the report shows. Any pointer may be nil: its section then says
// what is missing and which command makes it.
type Input struct {
	Extract    *result.Extract
	Fit        *result.Fit
	Validation *result.Validation
	Inspect    *result.Inspect
	Changes    *result.Changes // since an older validation; nil: there is nothing to compare with
}

// Render writes the report as one HTML file. The same Input gives the same
// bytes. The error is w's, or a template's.
func Render(w io.Writer, in Input) error {
	return Write(w, head(in), sections(in, New(in)))
}

// Sections are those of the page without its figures: what a terminal can show of them.
func Sections(in Input) []Section { return sections(in, set{}) }

func sections(in Input, figs set) []Section {
	all := []Section{section(in, figs)}
	if in.Changes != nil {
		all = append(all, changesSection(in))
	}
	return append(all,
		data(in, figs.Data),
		targetAudit(in, figs.Audit),
		coefficients(in, figs.Coeff),
		accuracy(in, figs.Fit),
		replay(in, figs.Replay),
		provenance(in),
		glossary())
}

// Figures hands every figure that the Input can fill to write, as <id>.svg, in the
// order of the page. It stops at write's first error.
func Figures(write func(name string, data []byte) error, in Input) error {
	for _, f := range New(in).All() {
		if err := write(f.ID+".svg", f.SVG()); err != nil {
			return err
		}
	}
	return nil
}

// SVG is the figure as a file of its own.
func (f *Figure) SVG() []byte { return svg(f.Sheet(), f.Title) }

// set holds every figure of a page by section, in reading order.
type set struct {
	First, Data, Audit, Coeff, Fit, Replay []*Figure
}

func New(in Input) set {
	return set{
		First:  keep(firstECDFs(in), levelFigure(in.Fit)),
		Data:   keep(coverageFigure(in), loadFigure(in)),
		Audit:  keep(targetFigure(in), pickupFigure(in), lagFigure(in)),
		Coeff:  keep(utilisationFigure(in), surfaceFigure(in)),
		Fit:    fitFigures(in),
		Replay: keep(otherECDFs(in), qqFigure(in), driftFigure(in)),
	}
}

func (s set) All() []*Figure {
	return slices.Concat(s.First, s.Data, s.Audit, s.Coeff, s.Fit, s.Replay)
}

// Bounds of what a summary lists.
const maxSummaryGates, maxSummaryChanges = 20, 20

// SummaryMarkdown is the verdict as a page of GitHub-flavoured Markdown, for the summary of a
// job: what the head of the report says, the gates that failed, what changed since a
// baseline.
func SummaryMarkdown(in Input) string {
	var b strings.Builder
	h := head(in)
	fmt.Fprintf(&b, "## blis-train: %s\n\n%s\n\n", h.Badge, marked(h.Sentence))
	if len(h.Lines) > 0 {
		t := NewTable("", "", "configuration", "usable for", "covered", "expected error")
		for _, l := range h.Lines {
			t.Add(l.Scope, l.Uses, l.Region, l.Error)
		}
		b.WriteString(t.Markdown(marked) + "\n")
	}
	if len(h.Next) > 0 {
		b.WriteString("**What to do next**\n\n")
		for i, s := range h.Next {
			fmt.Fprintf(&b, "%d. %s\n", i+1, marked(s))
		}
		b.WriteString("\n")
	}
	if in.Validation != nil {
		b.WriteString(failedMarkdown(in.Validation))
	}
	if in.Changes != nil {
		b.WriteString(changesMarkdown(in.Changes))
	}
	return b.String()
}

func failedMarkdown(v *result.Validation) string {
	failed := stat.Filter(Decisive(v), func(g result.Gate) bool { return gateRank(g) == 0 })
	if len(failed) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "**%s failed**\n\n- %s\n\n", Plural(len(failed), "gate"), strings.Join(stat.Map(Failed(failed), marked), "\n- "))
	t := gatesLayout.blank()
	for _, g := range failed {
		t.Rows = append(t.Rows, gateRow(g))
	}
	return b.String() + cutMarkdown(t, maxSummaryGates, "validation.json")
}

// cutMarkdown is the first rows of a table, and where the others are.
func cutMarkdown(t *Table, most int, where string) string {
	more := ""
	if n := t.First(most); n > 0 {
		more = fmt.Sprintf("\nAnd %d more in %s.\n", n, where)
	}
	return t.Markdown(marked) + more + "\n"
}

func changesMarkdown(c *result.Changes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**Since %s:** %s, %s as they were\n\n", marked(c.Against), Plural(len(c.Rows), "change"), Plural(c.Same, "figure"))
	t := ChangesTable(c)
	if len(t.Rows) == 0 {
		return b.String()
	}
	return b.String() + cutMarkdown(t, maxSummaryChanges, "the report")
}

// marked is text inside Markdown: names come from recordings and may hold what would
// start a table cell, a tag, a link or a mention. Code between backticks stays.
func marked(s string) string {
	return markdownEscapes.Replace(limited(s))
}

var markdownEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "|", "\\|", "[", "\\[", "]", "\\]", "*", "\\*", "_",
	"\\_", "@", "&#64;", "\\", "\\\\", "\n", " ")

// The JUnit form that CI servers read: junit-10.xsd of Jenkins' xunit plugin, which is Ant's
// without the host, the properties and the output of each suite. A gate is judged, so that
// none is ever in error.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string      `xml:"classname,attr"`
		Name    string      `xml:"name,attr"`
		Failure *junitWords `xml:"failure"`
		Skipped *junitWords `xml:"skipped"`
	}
	junitWords struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit is the gates of a validation as a JUnit report: a suite for each scope, a case
// for each gate. What the exit status does not count is skipped and says so: a gate that
// failed for another purpose than the one that decides, and one without a verdict that is
// not required, or none with allowInsufficient.
func JUnit(v *result.Validation, allowInsufficient bool) ([]byte, error) {
	out := junitSuites{Name: "blis-train gates for " + v.For}
	at := map[string]int{}
	for _, g := range v.Gates {
		i, known := at[g.Scope]
		if !known {
			i = len(out.Suites)
			at[g.Scope], out.Suites = i, append(out.Suites, junitSuite{Name: printable(g.Scope)})
		}
		s := &out.Suites[i]
		c := junitCaseOf(v, &g, allowInsufficient)
		s.Tests, out.Tests = s.Tests+1, out.Tests+1
		if c.Failure != nil {
			s.Failures += 1
			out.Failures += 1
		}
		if c.Skipped != nil {
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	text, err := xml.MarshalIndent(out, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}

func junitCaseOf(v *result.Validation, g *result.Gate, allowInsufficient bool) junitCase {
	c := junitCase{Class: "blis-train." + strings.Join(g.Purposes, "+"), Name: g.Name}
	says := fmt.Sprintf("%s is %s, must be %s %s", g.Name, GateValue(g.Name, g.Value), g.Op, GateThreshold(*g))
	switch {
	case g.Pass == nil && g.Required && isDecisive(v, g) && !allowInsufficient:
		c.Failure = &junitWords{Message: printable(g.Note), Text: gate.Named(g.Name).Failing() + "\n" + result.GateClause(g.Name)}
	case g.Pass == nil:
		c.Skipped = &junitWords{Message: printable(g.Note)}
	case *g.Pass:
	case !isDecisive(v, g):
		c.Skipped = &junitWords{Message: "failed, but decides nothing for " + v.For + ": " + says}
	default:
		c.Failure = &junitWords{Message: says, Text: gate.Named(g.Name).Failing() + "\n" + result.GateClause(g.Name)}
	}
	return c
}

// ChangesTable are the changes since an older validation, what matters most first. The report, the summary of a job and
// the terminal show it.
func ChangesTable(c *result.Changes) *Table {
	t := changesLayout.blank()
	for i := range c.Rows {
		t.Rows = append(t.Rows, changeRow(&c.Rows[i]))
	}
	return t
}

func changeRow(c *result.Change) Row {
	what := c.Name
	old := ""
	now := ""
	change := relativeChange(c)
	switch c.Kind {
	case result.ChangeVerdict:
		what = "verdict for " + c.Name
		old = c.Was
		now = c.Is
		change = ""
	case result.ChangeGate:
		old = GateValue(c.Name, c.Old)
		now = GateValue(c.Name, c.New)
		if c.Was != c.Is {
			old, now = old+" "+c.Was, now+" "+c.Is
		}
	case result.ChangeTerm:
		was, unit := Milli(*c.Old, c.Unit)
		is, _ := Milli(*c.New, c.Unit)
		old = FourDigits(was) + " " + unit
		now = FourDigits(is) + " " + unit
		if c.P != nil {
			change += fmt.Sprintf(" (p=%s)", brief(*c.P))
		} else {
			change += " (no interval)"
		}
	}
	return Row{Cells: []Cell{Name(what), Plain(c.Scope), {Text: old, Class: "n"},
		{Text: now, Class: strings.TrimSpace("n " + turnClass(c.Was, c.Is))}, {Text: change, Class: "n"}}}
}

// turnClass is the style of a verdict that turned.
func turnClass(was, is string) string {
	switch {
	case was == is:
		return ""
	case is == coeff.VerdictPass:
		return "ok"
	case is == coeff.VerdictFail:
		return "ko"
	}
	return "na"
}

func relativeChange(c *result.Change) string {
	if c.Old == nil || c.New == nil || *c.Old == 0 {
		return Unknown
	}
	return Signed((*c.New - *c.Old) / math.Abs(*c.Old))
}

// changesSection shows what changed since an older validation.
func changesSection(in Input) Section {
	c := in.Changes
	s := Section{ID: "changes", Nav: "Changes", Title: "What changed",
		Lead: fmt.Sprintf("Since %s: %s, %s as they were.", c.Against, Plural(len(c.Rows), "change"), Plural(c.Same, "figure"))}
	s.Blocks = Tables(Capped(ChangesTable(c), "what matters most first", "the two files"))
	if len(c.Notes) > 0 {
		s.Blocks = append(s.Blocks, Block{List: c.Notes})
	}
	return s
}

func accuracy(in Input, figs []*Figure) Section {
	s := Section{ID: "fit", Nav: "Accuracy", Title: "Step-time accuracy",
		Lead: "Predictions from recorded batches (teacher-forced): no simulator, no queue, only the step-time model."}
	if in.Fit == nil && in.Validation == nil {
		s.Missing = "No fit.json: run `blis-train fit OUT`."
		return s
	}
	if in.Fit != nil {
		s.Blocks = append(s.Blocks, Tables(summaryTable(in.Fit))...)
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	if f := in.Fit; f != nil {
		s.Blocks = append(s.Blocks, Tables(cellTable(cellsLayout, f.Beta.Cells, "fit.json, beta.cells"))...)
		s.Blocks = append(s.Blocks, Tables(cellTable(stressLayout, f.Beta.StressSets, "fit.json, beta.stress_sets"))...)
		s.Blocks = append(s.Blocks, Tables(locoTable(f))...)
		s.Blocks = append(s.Blocks, alphaTables(f)...)
	}
	if v := in.Validation; v != nil {
		s.Blocks = append(s.Blocks, Tables(testStepTable(v))...)
		cells := slices.Concat(stat.Map(v.Runs, func(r result.ValidationRun) []result.Cell { return r.StepCells })...)
		s.Blocks = append(s.Blocks, Tables(cellTable(testCellsLayout, cells, "validation.json, runs"))...)
	}
	return s
}

func errorCells(e result.Errors) []Cell {
	bias := Percent(e.Bias)
	if e.Bias != nil {
		bias.Text = Signed(*e.Bias)
	}
	return []Cell{Count(e.Rows), Percent(e.MAPE), Percent(e.MAPEConst), Percent(e.MAPEFloor), Number(e.Skill),
		bias, Percent(e.MedianAPE), Percent(e.P95APE), Number(e.MaxErrorRatio)}
}

func summaryTable(f *result.Fit) *Table {
	t := summaryLayout.blank()
	add := func(name string, e *result.Errors) {
		if e != nil {
			t.Rows = append(t.Rows, Row{Cells: append([]Cell{Plain(name)}, errorCells(*e)...)})
		}
	}
	add("hold-out (the last share of each phase)", f.Beta.Holdout)
	add("training", f.Beta.Train)
	return t
}

// cellTable lists cells; when they exceed the page, those with the largest
// error come first.
func cellTable(layout Table, cells []result.Cell, where string) *Table {
	cells = slices.Clone(cells)
	if len(cells) > maxRows {
		stat.SortStable(cells, func(a, b result.Cell) int { return cmp.Compare(orZero(b.MAPE), orZero(a.MAPE)) })
	}
	t := layout.blank()
	for _, c := range cells {
		t.Grow(func() Row {
			return Row{Cells: append([]Cell{Name(c.Run), Plain(c.Regime), Plain(c.Bucket), Plain(c.Set)}, errorCells(c.Errors)...)}
		})
	}
	return Capped(t, "the largest errors first", where)
}

func orZero(v *float64) float64 {
	if v == nil {
		return 0
	}
	return *v
}

func locoTable(f *result.Fit) *Table {
	t := locoLayout.blank()
	for _, l := range f.Beta.Loco {
		t.Put(Name(cmp.Or(l.Label, l.Config)), Count(l.Rows), Percent(l.MAPE), Percent(l.MAPEConst), Percent(l.MAPEFrozen10), Percent(l.Bias))
	}
	return Capped(t, "in the order of the file", "fit.json, beta.loco")
}

// alphaTables put the errors of the alpha targets side by side, all runs
// together and, folded, run by run; each target has the figures that make
// sense for it.
func alphaTables(f *result.Fit) []Block {
	all := alphaErrorsLayout.blank()
	runs := alphaRunsLayout.blank()
	for _, m := range f.Alpha {
		if cells := alphaCells(m.Name, m.Interval, m.TargetErrors); cells != nil {
			all.Grow(func() Row { return Row{Cells: cells} })
		}
		if e := m.TargetErrors; e != nil {
			for _, r := range e.Regimes {
				all.Put(alphaCells(m.Name+regimeWords[r.Regime], nil, &result.TargetErrors{Rows: r.Rows, MAPE: r.MAPE, MAPEConst: r.MAPEConst,
					WAPE: r.WAPE})...)
			}
		}
		for _, r := range m.AlphaRuns {
			if cells := alphaCells(m.Name, r.Interval, r.Errors); cells != nil {
				runs.Grow(func() Row { return Row{Cells: append([]Cell{Name(r.Run)}, cells...)} })
			}
		}
	}
	out := Tables(Capped(all, "in the order of the file", "fit.json, alpha"))
	return append(out, Tables(Capped(runs, "in the order of the file", "fit.json, alpha"))...)
}

// regimeWords stand behind the name of a wait.
var regimeWords = map[string]string{"idle": ", served at once", "waiting": ", queued"}

func alphaCells(target string, i *result.IntervalErrors, e *result.TargetErrors) []Cell {
	switch {
	case i != nil:
		return []Cell{Plain(target), Count(i.Rows), Percent(i.InsideShare), Count(i.InformativeRows),
			millis(i.MedianWidthUs), millis(i.MedianPredUs), Number(nil), Number(nil), Percent(i.ExactWAPE),
			Number(nil), Number(nil)}
	case e != nil:
		return []Cell{Plain(target), Count(e.Rows), Number(nil), Number(nil), Number(nil), Number(nil),
			Percent(e.MAPE), Percent(e.MAPEConst), Percent(e.WAPE), Percent(e.MAPEWindow10s), Percent(e.ConstWindow)}
	}
	return nil
}

func testStepTable(v *result.Validation) *Table {
	t := testStepsLayout.blank()
	for _, r := range v.Runs {
		if r.Steps != nil {
			t.Rows = append(t.Rows, Row{Cells: append([]Cell{Name(r.ID), {Text: splitWords(r.Split), Class: "nb"}}, errorCells(*r.Steps)...)})
		}
	}
	return Capped(t, "in the order of the file", "validation.json, runs")
}

// cellFigure is the step-time error by run and regime as a matrix.
func cellFigure(f *result.Fit) *Figure {
	cells := stat.Filter(f.Beta.Cells, func(c result.Cell) bool { return c.Bucket == "" && c.Set == "" && c.Regime != "" && c.MAPE != nil })
	if len(cells) == 0 {
		return nil
	}
	regimes := regimesIn(cells, func(c result.Cell) string { return c.Regime })
	rows, more := worstRuns(cells)
	h := HeatOf(rows, regimes, "regime of the step")
	for _, c := range cells {
		i := slices.Index(rows, c.Run)
		j := slices.Index(regimes, c.Regime)
		if i >= 0 && j >= 0 {
			h.Value[i][j] = c.MAPE
			h.Tip[i][j] = fmt.Sprintf("%s, %s: MAPE %s, constant %s, floor %s, %d rows", c.Run, c.Regime, pctOr(c.MAPE),
				pctOr(c.MAPEConst), pctOr(c.MAPEFloor), c.Rows)
		}
	}
	fig := errorCellsCaption.blank()
	fig.More = more
	fig.Panels = BothWidths("matrix of step-time MAPE by run and regime; the table below holds the numbers", h.Draw)
	return fig
}

// worstRuns names the runs of cells, all in their order or, when there are
// too many, those with the largest errors.
func worstRuns(cells []result.Cell) (names []string, more string) {
	worst := map[string]float64{}
	for _, c := range cells {
		names = appendNew(names, c.Run)
		worst[c.Run] = max(worst[c.Run], *c.MAPE)
	}
	if len(names) <= maxChartRows {
		return names, ""
	}
	more = fmt.Sprintf("The %d worst of %d runs.", maxChartRows, len(names))
	stat.SortStable(names, func(a, b string) int { return cmp.Compare(worst[b], worst[a]) })
	return names[:maxChartRows], more
}

// locoFigure compares the error on a configuration left out with a constant
// and with the frozen recipe.
func locoFigure(f *result.Fit) *Figure {
	ls := slices.DeleteFunc(slices.Clone(f.Beta.Loco), func(l result.Loco) bool { return l.MAPE == nil })
	if len(ls) == 0 {
		return nil
	}
	stat.SortStable(ls, func(a, b result.Loco) int { return cmp.Compare(*b.MAPE, *a.MAPE) })
	fig := locoCaption.blank()
	if len(ls) > maxChartRows {
		fig.More = fmt.Sprintf("The %d worst of %d configurations.", maxChartRows, len(ls))
		ls = ls[:maxChartRows]
	}
	var s Span
	s.Take(0.25, 0.03)
	var rows []ChartRow
	frozen := false
	for _, l := range ls {
		r := ChartRow{Name: cmp.Or(l.Label, l.Config), Join: true}
		add := func(v *float64, p Paint, what string) {
			if v != nil {
				s.TakePositive(*v)
				r.Marks = append(r.Marks, RowMark{V: *v * 100, P: p, Tip: fmt.Sprintf("%s: %s %s", r.Name, what, Pct(*v))})
			}
		}
		add(l.MAPEConst, AxisLine, "constant")
		add(l.MAPEFrozen10, Other, "frozen 1.0")
		add(l.MAPE, Decode, "this fit")
		frozen = frozen || l.MAPEFrozen10 != nil
		rows = append(rows, r)
	}
	if !frozen {
		fig.Legend = fig.Legend[:2]
	}
	x := Logarithmic("MAPE (%)", s.Lo*100/1.1, s.Hi*100*1.1)
	fig.Panels = BothWidths("leave-one-configuration-out MAPE per configuration", func(w float64) *Drawing {
		return RowChart(w, rows, x, RowMark{V: 25, P: Mute, Tip: "25 %"})
	})
	return fig
}
