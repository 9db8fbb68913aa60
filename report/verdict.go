package report

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
)

func section(in Input, figs set) Section {
	s := Section{ID: "verdict", Nav: "Verdict", Title: "Verdict and gates",
		Lead: "What was promised, what was measured, and what to do about the difference."}
	s.Blocks = append(s.Blocks, FigureBlocks(figs.First)...)
	s.Blocks = append(s.Blocks, cards(in)...)
	if in.Validation == nil {
		s.Missing = "No validation.json: run `blis-train validate --fit fit.json OUT` to test the coefficients on held-out rows and by replay."
		return s
	}
	s.Blocks = append(s.Blocks, causes(in, figs.All())...)
	if m := in.Validation.Missing; len(m) > 0 && in.Validation.Verdict == coeff.VerdictFail {
		s.Blocks = append(s.Blocks, Block{Heading: "What could not be judged"},
			Block{List: FirstOf(Undecided(in.Validation.Gates), 4, "the gates without enough data below")})
	}
	s.Blocks = append(s.Blocks, gateTables(in.Validation)...)
	s.Blocks = append(s.Blocks, FindingBlocks("Findings of the validation", in.Validation.Warnings)...)
	return s
}

// cards are the figures a reader quotes.
func cards(in Input) []Block {
	var cs []card
	if f := in.Fit; f != nil && f.Beta.Holdout != nil {
		h := f.Beta.Holdout
		cs = append(cs, card{Name: "Step time, held-out rows", Value: pctOr(h.MAPE), Class: worstClass(in.Validation, gate.BetaMAPE),
			Sub: fmt.Sprintf("MAPE; best constant %s, noise floor %s", pctOr(h.MAPEConst), pctOr(h.MAPEFloor))})
		cs = append(cs, card{Name: "Skill", Value: ShortOr(h.Skill), Class: worstClass(in.Validation, gate.BetaSkill),
			Sub: "0 = best constant, 1 = noise floor"})
		if f.Beta.LocoWorst != nil {
			cs = append(cs, card{Name: "Unseen configuration, worst", Value: pctOr(f.Beta.LocoWorst),
				Sub: "MAPE; median " + pctOr(f.Beta.LocoMedian)})
		}
	}
	if v := in.Validation; v != nil {
		for _, name := range []string{gate.Bias, gate.BetaMaxError} {
			if g, ok := worstGate(v.Gates, name); ok && !*g.Pass {
				what := gate.Named(name).What
				cs = append(cs, card{Name: strings.ToUpper(what[:1]) + what[1:], Value: GateValue(name, g.Value), Class: "bad",
					Sub: fmt.Sprintf("%s; must be %s %s", g.Scope, g.Op, GateThreshold(g))})
			}
		}
		for _, m := range []string{"ttft", "itl", "e2e"} {
			g, ok := worstGate(v.Gates, "ks_"+m)
			name := "Replay, worst KS of "
			if !ok {
				g, ok = worstGate(v.Gates, "median_rel_err_"+m)
				name = "Replay, median error of "
			}
			if ok {
				cs = append(cs, card{Name: name + strings.ToUpper(m), Value: GateValue(g.Name, g.Value), Class: gateClass(g),
					Sub: fmt.Sprintf("%s; must be %s %s", g.Scope, g.Op, GateThreshold(g))})
			}
		}
	}
	if len(cs) == 0 {
		return nil
	}
	return []Block{{Cards: cs}}
}

// worstClass is the class of a gate's worst scope; "" where nothing was judged.
func worstClass(v *result.Validation, name string) string {
	if v == nil {
		return ""
	}
	if i := slices.IndexFunc(sortedGates(v.Gates), func(g result.Gate) bool { return g.Name == name }); i >= 0 {
		return gateClass(sortedGates(v.Gates)[i])
	}
	return ""
}

func gateClass(g result.Gate) string {
	if g.Pass == nil {
		return "warn"
	}
	if *g.Pass {
		return "good"
	}
	return "bad"
}

// maxCauses is how many diagnoses the page spells out.
const maxCauses = 8

func causes(in Input, figs []*Figure) []Block {
	ds := in.Validation.Diagnoses
	if len(ds) == 0 {
		return nil
	}
	ds = joined(ds)
	// maps figure ids to titles
	anchors := stat.Keyed(figs, func(f *Figure) (string, string) { return f.ID, f.Title })
	var out []cause
	for _, d := range ds[:min(len(ds), maxCauses)] {
		label := Explanations[d.Cause].What
		if label == "" {
			label = d.Cause
		}
		if d.Term != "" {
			label += ": term " + d.Term
		}
		if d.Regime != "" {
			label += ", regime " + d.Regime
		}
		c := cause{Label: label, Scope: d.Scope, Sentence: sentence(strings.TrimPrefix(d.Sentence, d.Scope+": ")),
			Gates: strings.Join(d.Gates, ", ")}
		if id := shownIn(d.Figure, anchors); id != "" {
			c.Anchor, c.FigureTitle = "fig-"+id, anchors[id]
		} else if d.Figure == "saturation" && in.Inspect != nil {
			c.Anchor = "saturation"
			c.FigureTitle = "the saturation checks"
		}
		out = append(out, c)
	}
	blocks := []Block{{Heading: "Why gates failed"}, {Causes: out}}
	if more := len(ds) - maxCauses; more > 0 {
		blocks = append(blocks, Block{Text: fmt.Sprintf("And %d more in validation.json, diagnoses.", more)})
	}
	return blocks
}

// joined gives diagnoses that say the same one entry: with a single
// configuration, "all" is that configuration again.
func joined(ds []result.Diagnosis) []result.Diagnosis {
	var out []result.Diagnosis
	for _, d := range ds {
		i := slices.IndexFunc(out, func(o result.Diagnosis) bool { return o.Sentence == d.Sentence && o.Cause == d.Cause })
		if i < 0 {
			out = append(out, d)
			continue
		}
		out[i].Scope += ", " + d.Scope
		out[i].Gates = slices.Clone(out[i].Gates)
		for _, g := range d.Gates {
			out[i].Gates = appendNew(out[i].Gates, g)
		}
	}
	return out
}

// shownIn is the id of the figure a diagnosis points at, the validation's own
// before that of the fit; empty when the page has none.
func shownIn(kind string, anchors map[string]string) string {
	id := strings.ReplaceAll(kind, "_", "-")
	for _, id := range []string{"test-" + id, id} {
		if anchors[id] != "" {
			return id
		}
	}
	return ""
}

// maxJudged is how many judged gates stand in one table; beyond, those that
// passed are folded away.
const maxJudged = 40

// gateTables are the judged gates, those that lack data, and, folded, those
// that are not required.
func gateTables(v *result.Validation) []Block {
	judged := gatesLayout.blank()
	open := gatesOpenLayout.blank()
	rest := gatesRestLayout.blank()
	others := gatesOthersLayout.blank()
	passed := judged
	if stat.Count(v.Gates, func(g result.Gate) bool { return g.Pass != nil }) > maxJudged {
		passed = gatesPassedLayout.blank()
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
		{Text: strings.NewReplacer("<=", "≤", ">=", "≥").Replace(g.Op) + "\u00a0" + GateThreshold(g), Sub: g.Source},
		{Mini: template.HTML(gateBar(g)), Key: gateBarKey(g)},
		scope,
	}}
}

// gateBar is the value as a bar on a track that ends at twice the threshold.
func gateBar(g result.Gate) string {
	if g.Value == nil || !(g.Threshold > 0) {
		return ""
	}
	d := Drawing{W: barW, H: barH}
	d.Rect(At(0, 3), At(barW, barH-3), gridLine, 0, "")
	frac := max(0, *g.Value) / (2 * g.Threshold)
	p := good
	if gateRank(g) == 0 {
		p = bad
	} else if g.Pass == nil {
		p = AxisLine
	}
	d.Rect(At(0, 3), At(min(frac, 1)*barW, barH-3), p, 0, "")
	d.Seg(At(barW/2, 0), At(barW/2, barH), ink, 1.5, Solid)
	return inline(&d, fmt.Sprintf("%s, threshold %s", GateValue(g.Name, g.Value), GateThreshold(g)))
}

func gateBarKey(g result.Gate) string {
	if g.Value == nil || g.Threshold == 0 {
		return ""
	}
	return sortKey(*g.Value / g.Threshold)
}

// GateValue is the value of the named gate as every output prints it.
func GateValue(name string, v *float64) string {
	if v == nil {
		return Unknown
	}
	switch gate.Named(name).Prints {
	case gate.Percent:
		return Pct(*v)
	case gate.Statistic:
		return statistic(*v)
	default:
		return Short(*v)
	}
}

// GateThreshold is the threshold of a gate in the unit in which its value is printed.
func GateThreshold(g result.Gate) string {
	if gate.Named(g.Name).Prints == gate.Percent {
		return threshold(g.Threshold)
	}
	return Short(g.Threshold)
}

// gateRank orders gates by what needs a decision: failed, then undecided, then passed.
func gateRank(g result.Gate) int {
	switch {
	case g.Pass != nil && !*g.Pass:
		return 0
	case g.Pass == nil && g.Required:
		return 1
	case g.Pass == nil:
		return 3
	}
	return 2
}

// sortedGates keeps the file's order inside a rank.
func sortedGates(gs []result.Gate) []result.Gate {
	out := slices.Clone(gs)
	stat.SortStable(out, func(a, b result.Gate) int { return cmp.Compare(gateRank(a), gateRank(b)) })
	return out
}

// Failed say what the failed gates mean: those that mean the same in one sentence, each gate
// with its worst value.
func Failed(gates []result.Gate) (out []string) {
	worst := map[string]result.Gate{}
	names := map[string][]string{}
	var sentences []string
	for _, g := range gates {
		if gateRank(g) != 0 {
			continue
		}
		s := gate.Named(g.Name).Failing()
		if names[s] == nil {
			sentences = append(sentences, s)
		}
		if w, known := worst[g.Name]; !known {
			names[s] = append(names[s], g.Name)
		} else if math.Abs(*w.Value-w.Threshold) > math.Abs(*g.Value-g.Threshold) {
			continue
		}
		worst[g.Name] = g
	}
	for _, s := range sentences {
		values := stat.Map(names[s], func(name string) string { return name + " " + GateValue(name, worst[name].Value) })
		g := worst[names[s][0]]
		out = append(out, fmt.Sprintf("%s, want %s %s: %s", strings.Join(values, ", "), g.Op, GateThreshold(g), s))
	}
	return out
}

// Undecided says which required gates have no verdict, and why: one sentence a reason.
func Undecided(gates []result.Gate) []string {
	type group struct{ names, scopes []string }
	groups := map[string]*group{}
	var reasons []string
	for _, g := range gates {
		if gateRank(g) != 1 {
			continue
		}
		if groups[g.Note] == nil {
			groups[g.Note] = &group{}
			reasons = append(reasons, g.Note)
		}
		groups[g.Note].names = appendNew(groups[g.Note].names, g.Name)
		groups[g.Note].scopes = appendNew(groups[g.Note].scopes, g.Scope)
	}
	return stat.Map(reasons, func(why string) string {
		return fmt.Sprintf("%s of %s: %s", listOf(groups[why].names, 3), listOf(groups[why].scopes, 2), why)
	})
}

// worstGate is the judged gate of that name with the largest value.
func worstGate(gs []result.Gate, name string) (worst result.Gate, ok bool) {
	for _, g := range gs {
		if g.Name == name && g.Pass != nil && g.Value != nil && (!ok || *g.Value > *worst.Value) {
			worst, ok = g, true
		}
	}
	return worst, ok
}
