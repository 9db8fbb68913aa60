package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// ChangeRow is one change in words. The report and the terminal show the same rows.
type ChangeRow struct{ What, Scope, Old, New, Change, Class string }

// ChangeRows are the changes since an older validation, what matters most first.
func ChangeRows(c *result.Changes) []ChangeRow {
	var out []ChangeRow
	for i := range c.Rows {
		out = append(out, changeRow(&c.Rows[i]))
	}
	return out
}

func changeRow(c *result.Change) ChangeRow {
	r := ChangeRow{What: c.Name, Scope: c.Scope, Class: turnClass(c.Was, c.Is)}
	switch c.Kind {
	case result.ChangeVerdict:
		r.What, r.Old, r.New = "verdict for "+c.Name, c.Was, c.Is
	case result.ChangeGate:
		r.Old, r.New, r.Change = GateValue(c.Name, c.Old), GateValue(c.Name, c.New), relativeChange(c)
		if c.Was != c.Is {
			r.Old, r.New = r.Old+" "+c.Was, r.New+" "+c.Is
		}
	case result.ChangeTerm:
		was, unit := Milli(*c.Old, c.Unit)
		is, _ := Milli(*c.New, c.Unit)
		r.Old, r.New, r.Change = FourDigits(was)+" "+unit, FourDigits(is)+" "+unit, relativeChange(c)+" (no interval)"
		if c.P != nil {
			r.Change = fmt.Sprintf("%s (p=%s)", relativeChange(c), brief(*c.P))
		}
	}
	return r
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
	t := tableOf("changes-table")
	for _, r := range ChangeRows(c) {
		t.Put(Name(r.What), Plain(r.Scope), Cell{Text: r.Old, Class: "n"}, Cell{Text: r.New, Class: strings.TrimSpace("n " + r.Class)},
			Cell{Text: r.Change, Class: "n"})
	}
	s.Blocks = Tables(Capped(t, "what matters most first", "the two files"))
	if len(c.Notes) > 0 {
		s.Blocks = append(s.Blocks, Block{List: c.Notes})
	}
	return s
}
