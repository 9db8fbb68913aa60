package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

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
	t := tableOf("gates")
	for _, g := range failed {
		t.Rows = append(t.Rows, gateRow(g))
	}
	n := t.First(maxSummaryGates)
	b.WriteString(t.Markdown(marked))
	if n > 0 {
		fmt.Fprintf(&b, "\nAnd %d more in validation.json.\n", n)
	}
	b.WriteString("\n")
	return b.String()
}

func changesMarkdown(c *result.Changes) string {
	var b strings.Builder
	fmt.Fprintf(&b, "**Since %s:** %s, %s as they were\n\n", marked(c.Against), Plural(len(c.Rows), "change"),
		Plural(c.Same, "figure"))
	t := ChangesTable(c)
	if len(t.Rows) == 0 {
		return b.String()
	}
	n := t.First(maxSummaryChanges)
	b.WriteString(t.Markdown(marked))
	if n > 0 {
		fmt.Fprintf(&b, "\nAnd %d more in the report.\n", n)
	}
	b.WriteString("\n")
	return b.String()
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
		s, c := &out.Suites[i], junitCaseOf(v, &g, allowInsufficient)
		s.Tests, out.Tests = s.Tests+1, out.Tests+1
		if c.Failure != nil {
			s.Failures, out.Failures = s.Failures+1, out.Failures+1
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
		c.Failure = &junitWords{Message: printable(g.Note), Text: Gates()[g.Name].Failing() + "\n" + result.GateClause(g.Name)}
	case g.Pass == nil:
		c.Skipped = &junitWords{Message: printable(g.Note)}
	case *g.Pass:
	case !isDecisive(v, g):
		c.Skipped = &junitWords{Message: "failed, but decides nothing for " + v.For + ": " + says}
	default:
		c.Failure = &junitWords{Message: says, Text: Gates()[g.Name].Failing() + "\n" + result.GateClause(g.Name)}
	}
	return c
}

// ChangesTable are the changes since an older validation, what matters most first. The report, the summary of a job and
// the terminal show it.
func ChangesTable(c *result.Changes) *Table {
	t := tableOf("changes-table")
	for i := range c.Rows {
		t.Rows = append(t.Rows, changeRow(&c.Rows[i]))
	}
	return t
}

func changeRow(c *result.Change) Row {
	what, old, now, change := c.Name, "", "", relativeChange(c)
	switch c.Kind {
	case result.ChangeVerdict:
		what, old, now, change = "verdict for "+c.Name, c.Was, c.Is, ""
	case result.ChangeGate:
		old, now = GateValue(c.Name, c.Old), GateValue(c.Name, c.New)
		if c.Was != c.Is {
			old, now = old+" "+c.Was, now+" "+c.Is
		}
	case result.ChangeTerm:
		was, unit := Milli(*c.Old, c.Unit)
		is, _ := Milli(*c.New, c.Unit)
		old, now = FourDigits(was)+" "+unit, FourDigits(is)+" "+unit
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
