package report

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

func coefficientSection(in Input, figs []*figure) section {
	s := section{ID: "coefficients", Nav: "Coefficients", Title: "Coefficients",
		Lead: "Each number with its unit, its 95 % interval, and whether these data know it."}
	if in.Fit == nil {
		s.Missing = "No fit.json: run `blis-train fit OUT` to make coefficients."
		return s
	}
	f := in.Fit
	s.Blocks = append(s.Blocks, modelBlocks("Step time (beta)", f.Beta)...)
	s.Blocks = append(s.Blocks, figureBlocks(figs)...)
	s.Blocks = append(s.Blocks, alternativeBlocks(f)...)
	for _, m := range f.Alpha {
		title := "Wait or overhead: " + m.Name + " (alpha)"
		if !m.Replay {
			title += ", not to be added as a delay"
		}
		s.Blocks = append(s.Blocks, modelBlocks(title, m)...)
	}
	if in.Inspect != nil && in.Inspect.Identify != nil {
		s.Blocks = append(s.Blocks, identifyBlocks(in.Inspect.Identify)...)
	}
	s.Blocks = append(s.Blocks, findingBlocks("Findings of the fit", f.Warnings, f.Beta.Warnings)...)
	return s
}

func modelBlocks(title string, m result.Model) []block {
	out := []block{{Heading: title}}
	facts := knownFacts(
		fact{"Target", m.Target}, fact{"Penalty λ", shortOr(m.Lambda)}, fact{"Preemption memory γ", shortOr(m.GammaEMA)},
		fact{"Effective degrees of freedom", freedom(m)}, fact{"Condition number", shortOr(m.ConditionNumber)},
		fact{"Optimality certificate", certificate(m.Certificate)}, fact{"Folds", folds(m.FoldFingerprints)})
	if r := m.Reweighting; r != nil {
		kept := "kept"
		if !r.Kept {
			kept = "not kept"
		}
		facts = append(facts, fact{"Reweighting", fmt.Sprintf("%d passes, %s; bias %s before, %s after", r.Passes, kept, signed(r.BiasBefore), signed(r.BiasAfter))})
	}
	out = append(out, block{Facts: facts})
	out = append(out, tables(coefficientTable(m))...)
	if len(m.NullDirections) > 0 {
		out = append(out, block{Text: "What these data cannot tell apart:"}, block{List: m.NullDirections[:min(len(m.NullDirections), 40)]})
	}
	if t := boundTable(m); t != nil {
		out = append(out, block{Table: t})
	}
	return out
}

func freedom(m result.Model) string {
	if m.DFEff == nil {
		return unknown
	}
	return fmt.Sprintf("%s of %d terms", short(*m.DFEff), len(m.Coefficients))
}

// knownFacts leaves out what is unknown or does not apply.
func knownFacts(fs ...fact) []fact {
	return slices.DeleteFunc(fs, func(f fact) bool { return f.Value == unknown || f.Value == "" })
}

func certificate(c *result.Certificate) string {
	if c == nil {
		return unknown
	}
	verdict := "holds"
	if !c.OK {
		verdict = "BROKEN"
	}
	return fmt.Sprintf("%s (largest active gradient %s)", verdict, short(c.MaxActiveGradient))
}

func folds(prints []string) string {
	if len(prints) == 0 {
		return unknown
	}
	var distinct []string
	for _, p := range prints {
		distinct = appendNew(distinct, p)
	}
	if len(distinct) == len(prints) {
		return fmt.Sprintf("%d, all with coefficients of their own", len(prints))
	}
	return fmt.Sprintf("%d, but only %d distinct: NOT a cross-validation", len(prints), len(distinct))
}

// coefficientTable lists the terms of a model. Only the step time's
// time-like terms have a utilisation: waits are not work of the hardware.
func coefficientTable(m result.Model) *table {
	t := &table{ID: "coef-" + slug(m.Name), Caption: "Coefficients of " + m.Name,
		Cols: []column{
			{Head: "#", Num: true}, {Head: "Term"}, {Head: "Value", Num: true}, {Head: "Unit"},
			{Head: "95 % interval"}, {Head: "Spread", Help: "from 0 to twice the value; the tick is the value, the bar its 95 % interval"},
			{Head: "Share", Num: true, Help: "mean share of the prediction on training rows"},
		}}
	beta := m.Name == "beta"
	if beta {
		t.Cols = append(t.Cols, column{Head: "Utilisation", Num: true, Help: "implied utilisation: 1e6 over a time-like coefficient; 1 is the roofline"})
	}
	t.Cols = append(t.Cols, column{Head: "Identified"},
		column{Head: "Prior share", Num: true, Help: "how much of the value is the penalty's"}, column{Head: "df", Num: true},
		column{Head: "VIF", Num: true, Help: "variance inflation: how much its neighbours blur it"},
		column{Head: "Training range", Help: "smallest and largest value of the feature in training"})
	for i, c := range m.Coefficients {
		cells := []cell{
			count(i + 1), name(c.Name), num(c.Value), {Text: c.Unit, Class: "nb"}, intervalCell(c),
			{Mini: template.HTML(intervalBar(c))}, percent(c.Share),
		}
		if beta {
			cells = append(cells, utilisationCell(c.ImpliedUtilisation))
		}
		r := row{Cells: append(cells, identifiedCell(c), percent(c.PriorShare), number(c.DF), number(c.VIF),
			rangeCell(c.Range))}
		if c.Value == 0 {
			r.Class = "dim"
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

func intervalCell(c result.Coefficient) cell {
	if c.CI95 == nil {
		return cell{Text: unknown, Class: "dim"}
	}
	return cell{Text: "[" + short(c.CI95[0]) + ", " + short(c.CI95[1]) + "]", Class: "nb", Key: sortKey(c.CI95[1] - c.CI95[0])}
}

func utilisationCell(u *float64) cell {
	c := number(u)
	if u != nil && *u > 1 {
		c.Class, c.Text = "n ko", "▲ "+c.Text
	}
	return c
}

func identifiedCell(c result.Coefficient) cell {
	out := cell{Text: c.Identified, Class: "nb"}
	if c.Identified != "within" {
		out.Class = "nb na"
	}
	if c.NotLearned {
		out.Sub = "not learned"
	}
	return out
}

// intervalBar draws the interval on the scale of the value itself, -2 to +2
// times when it is negative or its interval crosses zero, else 0 to 2 times.
func intervalBar(c result.Coefficient) string {
	if c.CI95 == nil || c.Value == 0 {
		return ""
	}
	size := math.Abs(c.Value)
	a := axis{lo: 0, hi: 2 * size, p0: 4, p1: barW - 4}
	if c.CI95[0] < 0 || c.Value < 0 {
		a.lo = -2 * size
	}
	d := drawing{w: barW, h: 14}
	d.seg(point{a.p0, 7}, point{a.p1, 7}, gridLine, 1, solid)
	if a.lo < 0 {
		d.seg(point{a.px(0), 1}, point{a.px(0), 13}, axisLine, 1, solid)
	}
	d.rect(point{a.px(c.CI95[0]), 2.5}, point{math.Max(a.px(c.CI95[1]), a.px(c.CI95[0])+1), 11.5}, decode, 0.4, "")
	d.seg(point{a.px(c.Value), 1}, point{a.px(c.Value), 13}, decode, 2, solid)
	return inlineSVG(&d, fmt.Sprintf("%s in [%s, %s]", short(c.Value), short(c.CI95[0]), short(c.CI95[1])))
}

func boundTable(m result.Model) *table {
	t := &table{ID: "bounds-" + slug(m.Name), Caption: "Features at their bound, " + m.Name, Closed: true,
		Cols: []column{{Head: "Feature"}, {Head: "Rows", Num: true}, {Head: "Share", Num: true}}}
	for _, b := range m.BoundHits {
		if b.Rows > 0 {
			t.Rows = append(t.Rows, row{Cells: []cell{name(b.Name), count(b.Rows), percentOf(b.Share)}})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return capped(t, "in the order of the file", "fit.json, bound_hits")
}

// alternativeBlocks compare the other parameterisations on the same rows.
func alternativeBlocks(f *result.Fit) []block {
	if len(f.Models) == 0 {
		return nil
	}
	t := &table{ID: "models", Caption: "Other models on the same rows, held out",
		Cols: []column{{Head: "Model"}, {Head: "Terms", Num: true}, {Head: "MAPE", Num: true}, {Head: "WAPE", Num: true}, {Head: "Bias", Num: true}, {Head: "P95 error", Num: true}, {Head: "Unseen configuration, median", Num: true}, {Head: "worst", Num: true}},
		Note: "blackbox and trained-physics are fitted on the training rows; roofline has nothing to fit."}
	for _, m := range append([]result.Model{f.Beta}, f.Models...) {
		h := m.Holdout
		if h == nil {
			h = &result.Errors{}
		}
		n := m.Name
		if m.Name == "beta" {
			n = "physics (this artifact)"
		}
		t.Rows = append(t.Rows, row{Cells: []cell{
			name(n), count(len(m.Coefficients)), percent(h.MAPE), percent(h.WAPE), percent(h.Bias), percent(h.P95APE), percent(m.LocoMedian), percent(m.LocoWorst)}})
	}
	return tables(t)
}

func identifyBlocks(i *result.Identify) []block {
	out := []block{}
	if len(i.MissingRegimes) > 0 {
		out = append(out, block{Text: "Regimes these data do not contain:"}, block{List: i.MissingRegimes})
	}
	t := &table{ID: "experiments", Caption: "What to measure next", Note: "Half-widths are those of the 95 % interval relative to the value.",
		Cols: []column{{Head: "Experiment"}, {Head: "Term it pins down"}, {Head: "Half-width now", Num: true}, {Head: "after", Num: true}, {Head: "Information gained", Unit: "log det", Num: true}}}
	for _, e := range i.Experiments {
		t.Rows = append(t.Rows, row{Cells: []cell{words(e.Description), name(e.Term), percent(e.HalfWidth), percent(e.After), num(e.GainLogDet)}})
	}
	out = append(out, tables(capped(t, "in the order of the file", "inspect.json, identify"))...)
	return headed("What these data can identify", out)
}

// slug makes an id of a name.
func slug(s string) string {
	keep := func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}
	return strings.Map(keep, s[:min(len(s), 60)])
}

// rangeCell is what a feature was in training.
func rangeCell(r *[2]float64) cell {
	if r == nil {
		return cell{Text: unknown, Class: "dim"}
	}
	return cell{Text: short(r[0]) + " to " + short(r[1]), Class: "nb"}
}
