package report

// This file shows gates: comparisons of a figure with a threshold, which together make the verdict
// of a validation (package pipeline/validate/gate). A gate is decisive if it belongs to the purpose
// for which the user asked.

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

// gateClass returns the CSS class of a gate's value: good, bad, or warn for a gate without a
// result.
func gateClass(g result.Gate) string {
	if g.Pass == nil {
		return "warn"
	}
	if *g.Pass {
		return "good"
	}
	return "bad"
}

// maxJudged is the largest number of evaluated gates in one table. With more, those that passed are folded
// away.
const maxJudged = 40

// gateTables returns the gates with a result, those that lack data and, folded, those that are not
// required.
func gateTables(v *result.Validation) []Block {
	judged := gatesLayout.blank()
	open := gatesOpenLayout.blank()
	rest := gatesRestLayout.blank()
	others := gatesOthersLayout.blank()
	// Gates that passed share the table of the failed ones, unless there are too many for one table.
	passed := judged
	withResult := 0
	for _, g := range v.Gates {
		if g.Pass != nil {
			withResult++
		}
	}
	if withResult > maxJudged {
		passed = gatesPassedLayout.blank()
		judged.Caption = "Gates that failed"
	}
	for _, g := range sortedGates(v.Gates) {
		t := judged
		switch gateRank(g) {
		case rankFailed:
			if !isDecisive(v, &g) {
				t = others
			}
		case rankUndecided:
			t = open
		case rankPassed:
			t = passed
		case rankNotRequired:
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

// gateRow returns the row of a gate, in the order of gateColumns.
func gateRow(g result.Gate) Row {
	verdict := Cell{Text: "pass", Class: "ok nb", Key: "2"}
	switch gateRank(g) {
	case rankFailed:
		verdict = Cell{Text: "FAIL", Class: "ko nb", Key: "0"}
	case rankUndecided:
		verdict = Cell{Text: "no data", Class: "na nb", Key: "1"}
	case rankNotRequired:
		verdict = Cell{Text: "not required", Class: "dim nb", Key: "3"}
	}
	value := Cell{Text: GateFigure(&g), Class: "n"}
	if g.Value != nil {
		value.Key = sortKey(*g.Value)
	}
	name := Cell{Text: g.Name, Sub: gate.Named(g.Name).What, Class: "id"}
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
		{Text: strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op) + "\u00a0" + GateThreshold(g), Sub: g.Source, Class: "m"},
		{Mini: template.HTML(gateBar(g)), Key: gateBarKey(g)},
		scope,
	}}
}

// gateBar draws the value as a bar on a track that ends at twice the threshold; "" without a value.
func gateBar(g result.Gate) string {
	if g.Value == nil || !(g.Threshold > 0) {
		return ""
	}
	d := Drawing{W: barW, H: barH}
	d.Rect(At(0, 3), At(barW, barH-3), gridLine, 0, "")
	frac := max(0, *g.Value) / (2 * g.Threshold)
	p := good
	if gateRank(g) == rankFailed {
		p = bad
	} else if g.Pass == nil {
		p = AxisLine
	}
	d.Rect(At(0, 3), At(min(frac, 1)*barW, barH-3), p, 0, "")
	d.Seg(At(barW/2, 0), At(barW/2, barH), ink, 1.5, Solid)
	return inline(&d, fmt.Sprintf("%s, threshold %s", GateFigure(&g), GateThreshold(g)))
}

// gateBarKey returns the key by which the column of bars sorts: value over threshold.
func gateBarKey(g result.Gate) string {
	if g.Value == nil || g.Threshold == 0 {
		return ""
	}
	return sortKey(*g.Value / g.Threshold)
}

// GateValue returns the value of the named gate in the form in which every output prints it.
func GateValue(name string, v *float64) string {
	if v == nil {
		return Unknown
	}
	switch gate.Named(name).Prints {
	case gate.Percent:
		return Pct(*v)
	case gate.Statistic:
		return threeDecimals(*v)
	default:
		return Short(*v)
	}
}

// GateFigure returns the value of a gate with enough digits to differ from a threshold that it is
// not equal to.
func GateFigure(g *result.Gate) string {
	text := GateValue(g.Name, g.Value)
	if g.Value == nil || *g.Value == g.Threshold || text != GateValue(g.Name, &g.Threshold) {
		return text
	}
	// Both round to the same text: print further digits until they differ, at most 12.
	scale, unit := 1.0, ""
	if gate.Named(g.Name).Prints == gate.Percent {
		scale, unit = 100, percentSign
	}
	_, decimals, _ := strings.Cut(strings.TrimSuffix(text, unit), ".")
	for digits := len(decimals) + 1; ; digits++ {
		text := strconv.FormatFloat(scale**g.Value, 'f', digits, 64)
		if text != strconv.FormatFloat(scale*g.Threshold, 'f', digits, 64) || digits == 12 {
			return minus(text) + unit
		}
	}
}

// GateThreshold returns the threshold of a gate in the unit in which its value is printed.
func GateThreshold(g result.Gate) string {
	if gate.Named(g.Name).Prints == gate.Percent {
		return percentThreshold(g.Threshold)
	}
	return Short(g.Threshold)
}

// Ranks of gates, in the order in which they need attention.
const (
	rankFailed = iota
	rankUndecided
	rankPassed
	rankNotRequired // no result, and none is needed
)

// gateRank returns the rank of a gate by its result.
func gateRank(g result.Gate) int {
	switch {
	case g.Pass != nil && !*g.Pass:
		return rankFailed
	case g.Pass == nil && g.Required:
		return rankUndecided
	case g.Pass == nil:
		return rankNotRequired
	}
	return rankPassed
}

// sortedGates returns the gates by rank, within a rank in the order of the file.
func sortedGates(gs []result.Gate) []result.Gate {
	out := slices.Clone(gs)
	stat.SortStable(out, func(a, b result.Gate) int { return cmp.Compare(gateRank(a), gateRank(b)) })
	return out
}

// Failed returns explanations of the failed gates: one sentence for all gates that mean the same,
// with the worst value of each and what to do.
func Failed(gates []result.Gate) (out []string) {
	worst := map[string]result.Gate{} // by name, the gate farthest from its threshold
	names := map[string][]string{}    // of the gates, by the sentence that explains them
	var sentences []string            // in the order of the gates
	for _, g := range gates {
		if gateRank(g) != rankFailed {
			continue
		}
		sentence := gate.Named(g.Name).Failing()
		if names[sentence] == nil {
			sentences = append(sentences, sentence)
		}
		if w, known := worst[g.Name]; !known {
			names[sentence] = append(names[sentence], g.Name)
		} else if math.Abs(*w.Value-w.Threshold) > math.Abs(*g.Value-g.Threshold) {
			continue
		}
		worst[g.Name] = g
	}
	for _, sentence := range sentences {
		var values []string
		for _, name := range names[sentence] {
			values = append(values, name+" "+GateFigure(new(worst[name])))
		}
		first := worst[names[sentence][0]]
		out = append(out, fmt.Sprintf("%s, want %s %s: %s", strings.Join(values, ", "), first.Op, GateThreshold(first), sentence))
	}
	return out
}

// Undecided returns why required gates have no result, one sentence for each reason.
func Undecided(gates []result.Gate) []string {
	type group struct{ names, scopes []string } // of gates
	groups := map[string]*group{}               // by the reason
	var reasons []string                        // in the order of the gates
	for _, g := range gates {
		if gateRank(g) != rankUndecided {
			continue
		}
		if groups[g.Note] == nil {
			groups[g.Note] = &group{}
			reasons = append(reasons, g.Note)
		}
		groups[g.Note].names = appendNew(groups[g.Note].names, g.Name)
		groups[g.Note].scopes = appendNew(groups[g.Note].scopes, g.Scope)
	}
	var sentences []string
	for _, why := range reasons {
		g := groups[why]
		sentences = append(sentences, fmt.Sprintf("%s of %s: %s", listOf(g.names, 3), listOf(g.scopes, 2), why))
	}
	return sentences
}

// worstGate returns the gate with this name and a result that has the largest value; false if there
// is none.
func worstGate(gs []result.Gate, name string) (worst result.Gate, ok bool) {
	for _, g := range gs {
		if g.Name == name && g.Pass != nil && g.Value != nil && (!ok || *g.Value > *worst.Value) {
			worst, ok = g, true
		}
	}
	return worst, ok
}
