package report

import (
	"html/template"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// maxJudged is how many judged gates stand in one table; beyond, those that
// passed are folded away.
const maxJudged = 40

// gateTables are the judged gates, those that lack data, and, folded, those
// that are not required.
func gateTables(v *result.Validation) []Block {
	judged := &Table{ID: "gates", Caption: "Gates", Cols: gateCols(), Note: "A failed gate makes the command exit with 3. Under " +
		"each threshold stands why; a gate's name leads to its clause in the specification, and `blis-train validate --gate list` prints " +
		"them all."}
	open := &Table{ID: "gates-open", Caption: "Gates without enough data", Cols: gateCols(),
		Note: "A gate without a verdict is never a pass."}
	rest := &Table{ID: "gates-rest", Caption: "Gates that are not required here", Cols: gateCols(), Closed: true}
	others := &Table{ID: "gates-others", Caption: "Gates that failed for other purposes", Cols: gateCols(), Closed: true}
	passed := judged
	if judgedGates(v.Gates) > maxJudged {
		passed = &Table{ID: "gates-passed", Caption: "Gates that passed", Cols: gateCols(), Closed: true}
		judged.Caption = "Gates that failed"
	}
	for _, g := range sortedGates(v.Gates) {
		t := judged
		switch gateRank(g) {
		case 0:
			if !isDecisive(v, &g) {
				t = others
			}
		case 1:
			t = open
		case 2:
			t = passed
		case 3:
			t = rest
		}
		t.Grow(func() Row { return gateRow(g) })
	}
	open.Closed = v.Verdict != coeff.VerdictInsufficient
	out := Tables(Capped(judged, "failed ones first", "validation.json, gates"))
	out = append(out, Tables(Capped(others, "in the order of the file", "validation.json, gates"))...)
	out = append(out, Tables(Capped(open, "in the order of the file", "validation.json, gates"))...)
	if passed != judged {
		out = append(out, Tables(Capped(passed, "in the order of the file", "validation.json, gates"))...)
	}
	return append(out, Tables(Capped(rest, "in the order of the file", "validation.json, gates"))...)
}

// isDecisive reports whether a gate belongs to the purpose that decides.
func isDecisive(v *result.Validation, g *result.Gate) bool {
	return v.For == "" || v.For == coeff.PurposeAll || len(g.Purposes) == 0 || slices.Contains(g.Purposes, v.For)
}

func judgedGates(gs []result.Gate) int {
	n := 0
	for _, g := range gs {
		if g.Pass != nil {
			n++
		}
	}
	return n
}

func gateCols() []Column {
	return []Column{
		{Head: "Result"}, {Head: "Gate"}, {Head: "Value", Num: true}, {Head: "Must be"},
		{Head: "Against threshold", Help: "the tick is the threshold; the bar ends at twice the threshold"}, {Head: "Scope"},
	}
}

func gateRow(g result.Gate) Row {
	verdict := Cell{Text: "pass", Class: "ok nb", Key: "2"}
	switch gateRank(g) {
	case 0:
		verdict = Cell{Text: "FAIL", Class: "ko nb", Key: "0"}
	case 1:
		verdict = Cell{Text: "no data", Class: "na nb", Key: "1"}
	case 3:
		verdict = Cell{Text: "not judged", Class: "dim nb", Key: "3"}
	}
	value := Cell{Text: GateValue(g.Name, g.Value), Class: "n"}
	if g.Value != nil {
		value.Key = sortKey(*g.Value)
	}
	name := Cell{Text: g.Name, Sub: gateWords[g.Name], Class: "id"}
	if name.Sub != "" { // a gate we know has a clause
		name.Href = result.GateClause(g.Name)
	}
	scope := Cell{Text: g.Scope, Class: "w"}
	if g.Pass == nil {
		scope.Sub = g.Note
	}
	return Row{Cells: []Cell{
		verdict,
		name,
		value,
		{Text: strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op) + "\u00a0" + GateThreshold(g), Sub: g.Source},
		{Mini: template.HTML(gateBar(g)), Key: gateBarKey(g)},
		scope,
	}}
}
