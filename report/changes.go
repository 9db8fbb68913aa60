package report

// This file shows what changed since an older validation.

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// ChangesTable returns the changes since an older validation, the most important first. The report,
// the summary of a CI job and the terminal show it.
func ChangesTable(c *result.Changes) *Table {
	t := changesLayout.blank()
	for i := range c.Rows {
		t.Rows = append(t.Rows, changeRow(&c.Rows[i]))
	}
	return t
}

// changeRow returns a row for a change: the value before and after, and the relative change.
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
			old += " " + c.Was
			now += " " + c.Is
		}
	case result.ChangeTerm:
		was, unit := milli(*c.Old, c.Unit)
		is, _ := milli(*c.New, c.Unit)
		old = fourDigits(was) + " " + unit
		now = fourDigits(is) + " " + unit
		if c.P != nil {
			change += fmt.Sprintf(" (p=%s)", brief(*c.P))
		} else {
			change += " (no interval)"
		}
	}
	return Row{Cells: []Cell{Name(what), Plain(c.Scope), {Text: old, Class: "n"},
		{Text: now, Class: strings.TrimSpace("n " + turnClass(c.Was, c.Is))}, {Text: change, Class: "n"}}}
}

// turnClass returns the CSS class of a verdict that changed from was to is; "" if it did not
// change.
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

// relativeChange returns (new-old)/|old| in percent with its sign; Unknown if that is not defined.
func relativeChange(c *result.Change) string {
	if c.Old == nil || c.New == nil || *c.Old == 0 {
		return Unknown
	}
	return Signed((*c.New - *c.Old) / math.Abs(*c.Old))
}

// changesSection returns the section on changes since an older validation.
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
