package report

// This file makes the section on coefficients: values, intervals, and how well the data determine
// them; and, of fits to requests without step times (spec#request-level), which directions the data decided
// and how well load levels are predicted. Beta is the step-time model, alpha the delays outside the steps;
// VIF is the variance inflation factor.

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/result"
)

// coefficientSection returns the section on the coefficients: their values, intervals and
// identifiability, other models, and what to record next.
func coefficientSection(in Input, figs []*Figure) Section {
	s := Section{ID: "coefficients", Nav: "Coefficients", Title: "Coefficients",
		Lead: "Each number with its unit, its 95 % interval, and whether the data determine it."}
	if in.Fit == nil {
		s.Missing = "No fit.json: run `blis-train fit OUT` to make coefficients."
		return s
	}
	f := in.Fit
	s.Blocks = append(s.Blocks, learnedBlocks(f)...)
	s.Blocks = append(s.Blocks, underHeading("Step time (beta)", append(recipeBlocks(f), modelBlocks(f.Beta)...))...)
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	s.Blocks = append(s.Blocks, alternativeBlocks(f)...)
	for _, m := range f.Alpha {
		title := "Delay outside the steps: " + m.Name + " (alpha)"
		if !m.Replay {
			title += ", not to be added as a delay"
		}
		s.Blocks = append(s.Blocks, folded(title, modelBlocks(m))...)
	}
	if in.Inspect != nil && in.Inspect.Identify != nil {
		s.Blocks = append(s.Blocks, identifyBlocks(in.Inspect.Identify)...)
	}
	s.Blocks = append(s.Blocks, FindingBlocks("Findings of the fit", f.Warnings, f.Beta.Warnings)...)
	return s
}

// recipeBlocks returns the cross-validated errors of the recipes of the step time that were
// compared.
func recipeBlocks(f *result.Fit) []Block {
	if len(f.Recipes) == 0 {
		return nil
	}
	var list []string
	for _, r := range f.Recipes {
		prior := "without a prior"
		if r.Prior != "zero" {
			prior = "with the " + r.Prior + "'s prior"
		}
		text := fmt.Sprintf("spec %s %s: %s relative error on %s held out", r.Spec, prior, Pct(*r.RelErr), r.HeldOut)
		if r.Chosen {
			text += ", chosen"
		}
		list = append(list, text)
		if r.Uncalibrated != nil {
			list = append(list, "uncalibrated, the library alone: "+Pct(*r.Uncalibrated)+" on the same steps, which it never saw")
		}
	}
	return []Block{{Text: "Recipes, compared by cross-validation on the training part:"}, {List: list}}
}

// formsText returns the forms of the step time that were compared with their cross-validated
// relative errors; "" without a comparison.
func formsText(candidates []result.Candidate) string {
	var list []string
	for _, c := range candidates {
		if c.Score == nil {
			continue
		}
		text := fmt.Sprintf("%s %s", c.Name, Pct(math.Sqrt(*c.Score)))
		if c.Chosen {
			text += " (chosen)"
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// modelBlocks returns a model's coefficients and, folded, the figures that experts look at.
func modelBlocks(m result.Model) []Block {
	out := Tables(coefficientTable(m))
	if len(m.NullDirections) > 0 {
		out = append(out, Block{Text: "Combinations of terms that these data do not separate:"}, Block{List: m.NullDirections[:min(len(m.NullDirections), 40)]})
	}
	title := "For experts: penalty, degrees of freedom, variance inflation, training ranges of " + m.Name
	return append(out, folded(title, expertBlocks(m))...)
}

// expertBlocks returns for experts how a model was selected and how well its terms are determined.
func expertBlocks(m result.Model) []Block {
	facts := knownFacts(
		FactOf("Target", m.Target), FactOf("Penalty λ", ShortOr(m.Lambda)),
		FactOf("Preemption memory γ", gammaText(m)),
		FactOf("Effective degrees of freedom", freedomText(m)), FactOf("Condition number", ShortOr(m.ConditionNumber)),
		FactOf("Optimality certificate", certificateText(m.Certificate)), FactOf("Folds", foldsText(m.FoldFingerprints)))
	if text := formsText(m.Candidates); text != "" {
		facts = append(facts, FactOf("Forms compared", text))
	}
	if r := m.Reweighting; r != nil {
		kept := "kept"
		if !r.Kept {
			kept = "not kept"
		}
		facts = append(facts, FactOf("Reweighting", fmt.Sprintf("%d passes, %s; bias %s before, %s after", r.Passes, kept,
			Shown(r.BiasBefore, Signed).Text, Shown(r.BiasAfter, Signed).Text)))
	}
	out := []Block{{Facts: facts}}
	out = append(out, Tables(expertTable(m))...)
	return append(out, Tables(boundTable(m))...)
}

// gammaText returns gamma, the memory of the preemption average, and whether the data determine it.
func gammaText(m result.Model) string {
	if identified := m.GammaIdentified; identified != nil && !*identified {
		return ShortOr(m.GammaEMA) + ", the default: not identified"
	}
	return ShortOr(m.GammaEMA)
}

// freedomText returns the effective degrees of freedom and the number of terms.
func freedomText(m result.Model) string {
	if m.DFEff == nil {
		return Unknown
	}
	return fmt.Sprintf("%s of %d terms", Short(*m.DFEff), len(m.Coefficients))
}

// knownFacts returns the facts without those that are unknown or do not apply.
func knownFacts(fs ...Fact) []Fact {
	return slices.DeleteFunc(fs, func(f Fact) bool { return f.Value == Unknown || f.Value == "" })
}

// certificateText states whether the solution satisfies the conditions of an optimum, which the fit
// checks after it.
func certificateText(c *result.Certificate) string {
	if c == nil {
		return Unknown
	}
	verdict := "holds"
	if !c.OK {
		verdict = "BROKEN"
	}
	return fmt.Sprintf("%s (largest active gradient %s)", verdict, Short(c.MaxActiveGradient))
}

// foldsText returns the number of folds of the cross-validation. prints are the fingerprints of
// their coefficients; equal ones mean that folds were fitted to the same rows, which is then
// stated.
func foldsText(prints []string) string {
	if len(prints) == 0 {
		return Unknown
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

// coefficientTable returns the terms of a model. Only terms of the step time have a utilisation,
// because delays outside the steps are not work of the hardware.
func coefficientTable(m result.Model) *Table {
	t := coefLayout.blankFor(m.Name)
	beta := m.Name == "beta"
	if !beta {
		t.Cols = slices.DeleteFunc(t.Cols, func(c Column) bool { return c.Head == "Utilisation" })
	}
	for i, c := range m.Coefficients {
		v, unit := milli(c.Value, c.Unit)
		cells := []Cell{
			Count(i + 1), Name(c.Name), estimateCell(c), intervalCell(c), rangeIn(c.FoldSpread, c.Unit),
			{Text: fourDigits(v), Key: sortKey(v), Class: "n"}, {Text: unit, Class: "nb"},
			{Mini: template.HTML(intervalBar(c))}, Percent(c.Share),
		}
		if beta {
			cells = append(cells, utilisationCell(c.ImpliedUtilisation))
		}
		r := Row{Cells: append(cells, identifiedCell(c))}
		if c.Value == 0 { // no part of a prediction
			r.Class = "dim"
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// expertTable returns how much the data decided each term, and the range of its feature in
// training.
func expertTable(m result.Model) *Table {
	t := expertLayout.blankFor(m.Name)
	for _, c := range m.Coefficients {
		t.Put(Name(c.Name), Percent(c.PriorShare), Number(c.DF), Number(c.VIF), rangeCell(c.Range))
	}
	return t
}

// estimateCell returns the cell of the estimate without penalty, which fits with a prior do not
// have.
func estimateCell(c result.Coefficient) Cell {
	if c.Estimate == nil {
		return Cell{Text: Unknown, Class: "n dim"}
	}
	v, _ := milli(*c.Estimate, c.Unit)
	return Cell{Text: fourDigits(v), Key: sortKey(v), Class: "n"}
}

// intervalCell returns the cell of the 95 % interval of a coefficient, with the prior on which it
// depends, if any.
func intervalCell(c result.Coefficient) Cell {
	out := rangeIn(c.Interval(), c.Unit)
	if c.CI95Given != "" && c.CI95 != nil {
		out.Sub = "given the " + c.CI95Given
	}
	return out
}

// rangeIn returns the cell of an interval in the unit in which people read it. The column sorts by
// its width.
func rangeIn(of *[2]float64, unit string) Cell {
	if of == nil {
		return Cell{Text: Unknown, Class: "dim"}
	}
	lo, _ := milli(of[0], unit)
	hi, _ := milli(of[1], unit)
	return Cell{Text: Range(lo, hi), Class: "nb", Key: sortKey(hi - lo)}
}

// utilisationCell returns the cell of an implied utilisation, marked if it is above 1.
func utilisationCell(u *float64) Cell {
	c := Number(u)
	if u != nil && *u > 1 {
		c.Class, c.Text = "n ko", "▲ "+c.Text
	}
	return c
}

// looseFactor is the ratio between the ends of a 95 % interval beyond which a coefficient is loosely known
// (spec#identified).
const looseFactor = 30

// identification returns how well the data determine a coefficient: as the document states or, if
// that is `within` and the interval contains 0 or spans more than looseFactor, "loosely known".
func identification(c *result.Coefficient) string {
	ci := c.Interval()
	if c.Identified != coeff.Within || ci == nil {
		return c.Identified
	}
	tightPositive := ci[0] > 0 && ci[1] <= looseFactor*ci[0]
	tightNegative := ci[1] < 0 && ci[0] >= looseFactor*ci[1]
	if tightPositive || tightNegative {
		return c.Identified
	}
	return "loosely known"
}

// identifiedCell returns the cell of identification, with a remark if the cost was not learned.
func identifiedCell(c result.Coefficient) Cell {
	out := Cell{Text: identification(&c), Class: "nb"}
	if out.Text != coeff.Within {
		out.Class = "nb na"
	}
	if c.NotLearned {
		out.Sub = "not learned"
	}
	return out
}

// boundTable returns the features that rows had at their bound (spec#bound-hits); nil without any.
func boundTable(m result.Model) *Table {
	t := boundsLayout.blankFor(m.Name)
	for _, b := range m.BoundHits {
		if b.Rows > 0 {
			t.Put(Name(b.Name), Count(b.Rows), PercentOf(b.Share))
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return Capped(t, "in the order of the file", "fit.json, bound_hits")
}

// alternativeBlocks returns the errors of the other models that were fitted to the same rows.
func alternativeBlocks(f *result.Fit) []Block {
	if len(f.Models) == 0 {
		return nil
	}
	t := modelsLayout.blank()
	for _, m := range append([]result.Model{f.Beta}, f.Models...) {
		h := m.Holdout
		if h == nil {
			h = &result.Errors{}
		}
		n := m.Name
		if m.Name == "beta" {
			n = "physics (this artifact)"
		}
		t.Put(Name(n), Count(len(m.Coefficients)), Percent(h.MAPE), Percent(h.WAPE), Percent(h.Bias), Percent(h.P95APE),
			Percent(m.LocoMedian), Percent(m.LocoWorst))
	}
	return Tables(t)
}

// identifyBlocks returns the kinds of steps that the recordings lack, and the experiments that
// would help most.
func identifyBlocks(i *result.Identify) []Block {
	out := []Block{}
	if len(i.MissingRegimes) > 0 {
		out = append(out, Block{Text: "Regimes these data do not contain:"}, Block{List: i.MissingRegimes})
	}
	t := experimentsLayout.blank()
	for _, e := range i.Experiments {
		t.Put(Prose(e.Description), Name(e.Term), Percent(e.HalfWidth), Percent(e.After), Num(e.GainLogDet))
	}
	out = append(out, Tables(Capped(t, "in the order of the file", "inspect.json, identify"))...)
	return underHeading("What these data can identify", out)
}

// rangeCell returns the cell of the range of a feature in training.
func rangeCell(r *[2]float64) Cell {
	if r == nil {
		return Cell{Text: Unknown, Class: "dim"}
	}
	return Cell{Text: Short(r[0]) + " .. " + Short(r[1]), Class: "nb"}
}

// intervalBar draws the interval as SVG on the scale of the value: from 0 to twice the value, or
// from -2 to +2 times if the value is negative or the interval crosses zero.
func intervalBar(c result.Coefficient) string {
	ci := c.Interval()
	if ci == nil || c.Value == 0 {
		return ""
	}
	size := math.Abs(c.Value)
	a := axis{Lo: 0, Hi: 2 * size, P0: 4, P1: barW - 4}
	if ci[0] < 0 || c.Value < 0 {
		a.Lo = -2 * size
	}
	d := Drawing{W: barW, H: 14}
	d.Seg(At(a.P0, 7), At(a.P1, 7), gridLine, 1, Solid)
	if a.Lo < 0 {
		d.Seg(At(a.Px(0), 1), At(a.Px(0), 13), AxisLine, 1, Solid)
	}
	d.Rect(At(a.Px(ci[0]), 2.5), At(math.Max(a.Px(ci[1]), a.Px(ci[0])+1), 11.5), Decode, 0.4, "")
	d.Seg(At(a.Px(c.Value), 1), At(a.Px(c.Value), 13), Decode, 2, Solid)
	v, unit := milli(c.Value, c.Unit)
	lo, _ := milli(ci[0], c.Unit)
	hi, _ := milli(ci[1], c.Unit)
	return inline(&d, fmt.Sprintf("%s; 95 %% interval %s %s", fourDigits(v), Range(lo, hi), unit))
}

// utilisationFigure draws which share of the hardware's peak the coefficients of the step time
// imply.
func utilisationFigure(in Input) *Figure {
	if in.Fit == nil {
		return nil
	}
	fig := utilisationCaption.blank()
	var s Span
	s.Take(0.1, 1.2)
	var rows []ChartRow
	for _, c := range in.Fit.Beta.Coefficients {
		u := c.ImpliedUtilisation
		if u == nil || !(*u > 0) {
			continue
		}
		p := Decode
		known := identification(&c)
		if known != coeff.Within {
			p = Other
		}
		s.Take(*u)
		rows = append(rows, ChartRow{Name: c.Name, Marks: []RowMark{
			{V: *u, P: p, Tip: fmt.Sprintf("%s: %s, identified %s", c.Name, Short(*u), known)}}})
	}
	if len(rows) == 0 {
		return nil
	}
	lo, hi := Widened(s.Lo, s.Hi) // at least 0.1 to 1.2
	fig.Panels = BothWidths("implied utilisation per time-like coefficient", func(w float64) *Drawing {
		return RowChart(w, rows, Logarithmic("implied utilisation (1 = roofline, logarithmic)", lo, hi), RowMark{V: 1, P: bad, Tip: "roofline"})
	})
	return fig
}

// surfaceFigure draws the cross-validation score over the penalty lambda and the memory gamma of
// the preemption average.
func surfaceFigure(in Input) *Figure {
	if in.Fit == nil || len(in.Fit.Beta.Grid) == 0 {
		return nil
	}
	fig := cvSurfaceCaption.blank()
	if l, g := gridAxes(in.Fit.Beta.Grid); len(l) > maxGrid || len(g) > maxGrid {
		fig.More = fmt.Sprintf("The smallest %d values of %d penalties and %d memories; fit.json holds all.", maxGrid, len(l), len(g))
	}
	for _, kind := range []struct {
		name  string
		score func(result.GridPoint) *float64
	}{
		{"blocks of time held out, within configurations", func(g result.GridPoint) *float64 { return g.Within }},
		{"leave one configuration out", func(g result.GridPoint) *float64 { return g.Cross }},
	} {
		fig.Panels = append(fig.Panels, BothWidths("score by lambda and gamma, "+kind.name, func(w float64) *Drawing {
			d := cvSurface(w, in.Fit.Beta, kind.score)
			if d == nil {
				return nil
			}
			titled := &Drawing{W: d.W, H: d.H + 20}
			titled.Heading(At(0, 13), clip(kind.name, headSize, w), headSize, ink, anchorStart)
			titled.Place(d, 0, 20)
			return titled
		})...)
	}
	return fig
}

// maxGrid is the largest number of values of one axis of that grid that are drawn.
const maxGrid = 60

// gridAxes returns the distinct penalties and memories of a grid, in increasing order.
func gridAxes(grid []result.GridPoint) (lambdas, gammas []float64) {
	for _, g := range grid {
		lambdas = insertSorted(lambdas, g.Lambda)
		gammas = insertSorted(gammas, g.GammaEMA)
	}
	return lambdas, gammas
}

// cvSurface draws one cross-validation score over lambda (columns) and gamma (rows), and marks the
// chosen point; nil without scores.
func cvSurface(w float64, m result.Model, score func(result.GridPoint) *float64) *Drawing {
	if !slices.ContainsFunc(m.Grid, func(g result.GridPoint) bool { return score(g) != nil }) {
		return nil
	}
	lambdas, gammas := gridAxes(m.Grid)
	lambdas = lambdas[:min(len(lambdas), maxGrid)]
	gammas = gammas[:min(len(gammas), maxGrid)]
	var rows, cols []string
	for _, l := range lambdas {
		cols = append(cols, Short(l))
	}
	for _, g := range gammas {
		rows = append(rows, "γ = "+Short(g))
	}
	h := HeatOf(rows, cols, "penalty λ")
	h.Print, h.Log = brief, true
	for _, g := range m.Grid {
		i, drawnRow := slices.BinarySearch(gammas, g.GammaEMA)
		j, drawnCol := slices.BinarySearch(lambdas, g.Lambda)
		if !drawnRow || !drawnCol {
			continue
		}
		h.Value[i][j] = score(g)
		h.Tip[i][j] = fmt.Sprintf("λ %s, γ %s: within %s ± %s, cross %s", Short(g.Lambda), Short(g.GammaEMA), ShortOr(g.Within),
			ShortOr(g.SE), ShortOr(g.Cross))
		if m.Lambda != nil && m.GammaEMA != nil && g.Lambda == *m.Lambda && g.GammaEMA == *m.GammaEMA {
			h.Mark = [2]int{i, j}
		}
	}
	return h.Draw(w)
}

// insertSorted returns the sorted list of distinct values with v added.
func insertSorted(list []float64, v float64) []float64 {
	i, found := slices.BinarySearchFunc(list, v, cmp.Compare[float64])
	if found {
		return list
	}
	return slices.Insert(list, i, v)
}

// learnedBlocks returns, for a fit to requests or load levels, which directions in coefficient space
// (combinations of terms) the data decided and which the prior, and how well load levels are predicted that
// were not fitted; nil for a fit to steps.
func learnedBlocks(f *result.Fit) []Block {
	r := f.Requests
	if r == nil {
		return nil
	}
	learned, requests := 0, 0
	var tiers []string
	loads := loadsLayout.blank()
	directions := directionsLayout.blank()
	for _, l := range r.Loads {
		tiers = appendNew(tiers, l.Tier)
		requests += l.Requests
		loads.Put(Name(l.Name), Plain(l.Tier), Count(l.Requests))
	}
	for _, d := range r.Directions {
		decides := Cell{Text: "prior", Class: "dim"}
		if d.Learned {
			learned++
			decides = Cell{Text: "data", Class: "ok"}
		}
		directions.Put(Prose(strings.Join(d.Terms, ", ")), PercentOf(d.LearnedFrac), decides, Prose(d.Needs))
	}
	facts := knownFacts(FactOf("Recorded", listOf(tiers, 3)), FactOf("Loads", fmt.Sprintf("%d, of %d requests", len(r.Loads), requests)),
		FactOf("Prior", r.Prior), FactOf("Decided", fmt.Sprintf("%d of %d directions", learned, len(r.Directions))),
		FactOf("Objective", Short(r.Objective)), FactOf("of which noise", Short(r.NoiseFloor)))
	if r.CachedShare != nil {
		facts = append(facts, FactOf("Prompts in the prefix cache", r.CachedShare.String()+": nothing states it"))
	}
	out := underHeading("Fitted to requests, without step times", append([]Block{{Facts: facts}}, Tables(directions)...))
	out = append(out, Tables(levelTable(r.Levels))...)
	loads.Closed = true
	return append(out, Tables(Capped(loads, "in the order of the file", "fit.json, requests"))...)
}

// levelFigure draws TTFT and TPOT of load levels, predicted against measured.
func levelFigure(f *result.Fit) *Figure {
	fig := levelMeansCaption.blank()
	if f == nil || f.Requests == nil {
		return fig
	}
	for _, name := range []string{"TTFT", "TPOT"} {
		var s Span
		var points [][2]*float64 // measured and predicted, ms
		for i := range f.Requests.Levels {
			l := &f.Requests.Levels[i]
			p := [2]*float64{l.TTFTMs, l.PredictedTTFTMs}
			if name == "TPOT" {
				p = [2]*float64{&l.TPOTMs, l.PredictedTPOTMs}
			}
			if p[0] != nil && p[1] != nil {
				s.Take(*p[0], *p[1])
				points = append(points, p)
			}
		}
		if len(points) == 0 {
			continue
		}
		p := NewFrame(PanelW, PanelH, name+" · mean of each level", timeAxis("real "+name, s), timeAxis("simulated "+name, s))
		p.Diagonal(1, ink, Solid)
		for _, xy := range points {
			p.Dot(p.At(*xy[0], *xy[1]), 3.5, Decode, 0, "")
		}
		fig.Panels = append(fig.Panels, Panel{D: &p.Drawing, Desc: "mean " + name + " of load levels, simulated against real"})
	}
	return fig
}

// levelTable returns the measured and the predicted TTFT and TPOT of load levels, with the relative errors.
func levelTable(levels []result.LevelHoldout) *Table {
	t := levelsLayout.blank()
	errorCell := func(measured, predicted *float64) Cell {
		if measured == nil || predicted == nil || *measured == 0 {
			return Percent(nil)
		}
		e := *predicted / *measured - 1
		return Cell{Text: Signed(e), Key: sortKey(e), Class: "n"}
	}
	for _, l := range levels {
		t.Put(Name(l.Name), Number(l.TTFTMs), Number(l.PredictedTTFTMs), errorCell(l.TTFTMs, l.PredictedTTFTMs), Num(l.TPOTMs),
			Number(l.PredictedTPOTMs), errorCell(&l.TPOTMs, l.PredictedTPOTMs))
	}
	return Capped(t, "in the order of the file", "fit.json, requests.levels")
}
