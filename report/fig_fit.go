package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// regimeOrder is the order in which regimes are drawn and listed.
var regimeOrder = []string{"decode", "mixed", "prefill", "idle", "waiting"}

// regimesIn lists the regimes that occur, known ones first.
func regimesIn(next func(yield func(string))) []string {
	var seen []string
	next(func(r string) { seen = appendNew(seen, r) })
	slices.SortStableFunc(seen, func(a, b string) int { return regimeIndex(a) - regimeIndex(b) })
	return seen
}

func regimeIndex(r string) int {
	if i := slices.Index(regimeOrder, r); i >= 0 {
		return i
	}
	return len(regimeOrder)
}

func regimeKeys(regimes []string) []key {
	var out []key
	for _, r := range regimes {
		out = append(out, key{p: regimePaint(r), area: true, text: r})
	}
	return out
}

// fitFigures are the figures of the step-time model: on the hold-out of the
// fit, and on the rows of the validation.
func fitFigures(in Input) []*figure {
	var out []*figure
	if f := in.Fit; f != nil {
		own := stepFigures(f.Beta.Figures, "", "hold-out rows of the fit")
		for _, fig := range own {
			fig.closed = in.Validation != nil && in.Validation.Figures != nil
		}
		out = append(out, own...)
		out = append(out, cellFigure(f), locoFigure(f), biasFigure(f))
	}
	if v := in.Validation; v != nil {
		out = append(out, stepFigures(v.Figures, "test-", "teacher-forced rows of the validation")...)
	}
	return keep(out...)
}

func stepFigures(f *result.FitFigures, prefix, rows string) []*figure {
	if f == nil {
		return nil
	}
	return keep(
		predictedFigure(f, prefix, rows),
		residualFigure(f, prefix, rows),
		contributionFigure(f, prefix, rows),
	)
}

// predictedFigure is predicted against measured time per step, one panel for
// each regime on the same axes.
func predictedFigure(f *result.FitFigures, prefix, rows string) *figure {
	bins := positiveBins(f.PredVsMeasured)
	if len(bins) == 0 {
		return nil
	}
	var s span
	most := 0
	for _, b := range bins {
		s.takePositive(b.X/1000, b.Y/1000)
		most = max(most, b.N)
	}
	regimes := regimesIn(func(yield func(string)) {
		for _, b := range bins {
			yield(b.Regime)
		}
	})
	fig := &figure{
		id: prefix + "pred-vs-measured", title: "Predicted against measured step time, " + rows,
		note:   "Look for dots along the solid line; the dashed lines are 20 % off. Bad: a regime that leaves the band as a whole, or a slope that differs from the line, which means a missing or mis-scaled term. Larger dots hold more rows.",
		legend: regimeKeys(regimes),
	}
	draw := func(regime string) {
		lo, hi := widened(s.lo, s.hi)
		p := newFrame(panelW, panelH+40, regime, logarithmic("measured (ms per step)", lo, hi), logarithmic("predicted (ms per step)", lo, hi))
		p.diagonal(1.2, axisLine, dashed)
		p.diagonal(1/1.2, axisLine, dashed)
		p.diagonal(1, ink, solid)
		for _, b := range bins {
			if b.Regime == regime {
				r := 1.6 + 4.4*math.Sqrt(math.Log1p(float64(b.N))/math.Log1p(float64(most)))
				p.dot(p.at(b.X/1000, b.Y/1000), r, regimePaint(b.Regime), 0.55, "")
			}
		}
		fig.panels = append(fig.panels, panel{d: &p.drawing, desc: regime + ": predicted against measured step time in ms, logarithmic axes"})
	}
	for _, r := range regimes {
		draw(r)
	}
	return fig
}

// maxBins is how many bins one predicted-against-measured panel draws.
const maxBins = 1500

func positiveBins(in []result.Bin2D) []result.Bin2D {
	var out []result.Bin2D
	for _, b := range in {
		if b.X > 0 && b.Y > 0 && b.N > 0 {
			out = append(out, b)
		}
	}
	if len(out) > maxBins {
		slices.SortStableFunc(out, func(a, b result.Bin2D) int { return b.N - a.N })
		out = out[:maxBins]
	}
	return out
}

var againstLabels = map[string]string{
	"batch":   "batch (requests)",
	"context": "context (tokens per decode)",
	"time":    "time since the first row (s)",
}

// residualFigure shows bands of relative error against batch, context and time.
func residualFigure(f *result.FitFigures, prefix, rows string) *figure {
	if len(f.Residuals) == 0 {
		return nil
	}
	regimes := regimesIn(func(yield func(string)) {
		for _, b := range f.Residuals {
			yield(b.Regime)
		}
	})
	fig := &figure{
		id: prefix + "residuals", title: "Relative error against batch, context and time, " + rows,
		note:   "Lines are medians of prediction/measured − 1, bands the middle 80 %. Good: flat around zero. Bad: a trend with batch or context (a missing or mis-scaled term) or with time (the machine or the model drifted).",
		legend: regimeKeys(regimes),
	}
	for _, r := range regimes {
		for _, against := range []string{"batch", "context", "time"} {
			if d := residualPanel(f.Residuals, against, r); d != nil {
				fig.panels = append(fig.panels, panel{d: d, desc: "relative error of " + r + " steps against " + againstLabels[against]})
			}
		}
	}
	if len(fig.panels) > maxPanels {
		fig.more = fmt.Sprintf("%d of %d panels shown.", maxPanels, len(fig.panels))
		fig.panels = fig.panels[:maxPanels]
	}
	return fig
}

// residualPanel is one regime; the axes are those of all regimes, so that
// panels compare.
func residualPanel(bands []result.ResidualBand, against, regime string) *drawing {
	var xs, ys span
	for _, b := range bands {
		if b.Against == against {
			xs.take(b.X)
		}
		ys.take(b.P10, b.P50, b.P90)
	}
	var x, p10, p90 []float64
	var mid [][2]float64
	for _, b := range thinBands(bands, against, regime) {
		x = append(x, b.X)
		p10 = append(p10, b.P10*100)
		p90 = append(p90, b.P90*100)
		mid = append(mid, [2]float64{b.X, b.P50 * 100})
	}
	if len(mid) == 0 {
		return nil
	}
	lo, hi := math.Max(math.Min(ys.lo, -0.1), -1), math.Min(math.Max(ys.hi, 0.1), 1.5)
	y := linear("prediction/measured − 1 (%)", lo*100, hi*100, 4)
	p := newFrame(panelW, 200, regime+", against "+against, linear(againstLabels[against], xs.lo, xs.hi, 5), y)
	p.level(0, ink, solid, "")
	p.area(x, p10, p90, regimePaint(regime), 0.2)
	p.curve(mid, regimePaint(regime), 2, solid)
	for i := range mid {
		if len(mid) <= 30 {
			p.dot(p.at(mid[i][0], mid[i][1]), 2.2, regimePaint(regime), 0, "")
		}
	}
	return &p.drawing
}

func thinBands(bands []result.ResidualBand, against, regime string) []result.ResidualBand {
	var out []result.ResidualBand
	for _, b := range bands {
		if b.Against == against && b.Regime == regime {
			out = append(out, b)
		}
	}
	slices.SortStableFunc(out, func(a, b result.ResidualBand) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	if len(out) <= maxCurve {
		return out
	}
	kept := make([]result.ResidualBand, 0, maxCurve)
	for i := range maxCurve {
		kept = append(kept, out[i*(len(out)-1)/(maxCurve-1)])
	}
	return kept
}

// contributionFigure is the mean step of each regime as a waterfall of terms.
func contributionFigure(f *result.FitFigures, prefix, rows string) *figure {
	regimes := regimesIn(func(yield func(string)) {
		for _, c := range f.Contributions {
			yield(c.Regime)
		}
	})
	fig := &figure{
		id: prefix + "contributions", title: "What a mean step is made of, " + rows,
		note: "Each bar starts where the one above ends; the last is the mean prediction. Look for the term that dominates a regime: an error in it moves every prediction there. Bad: a bias or fixed overhead larger than the physics, or a prefill step without prefill compute.",
	}
	for _, r := range regimes {
		if d := waterfall(f.Contributions, r); d != nil {
			fig.panels = append(fig.panels, panel{d: d, desc: "mean contribution of each term to a " + r + " step, ms"})
		}
	}
	if len(fig.panels) > maxPanels {
		fig.more = fmt.Sprintf("%d of %d regimes shown.", maxPanels, len(fig.panels))
		fig.panels = fig.panels[:maxPanels]
	}
	return fig
}

// maxPanels is the most panels of a figure with one per regime or run.
const maxPanels = 12

// maxTerms is the most bars of one waterfall.
const maxTerms = 40

func waterfall(cs []result.Contribution, regime string) *drawing {
	var terms []result.Contribution
	var s span
	s.take(0)
	end := 0.0
	for _, c := range cs {
		if c.Regime == regime && c.MeanUs != 0 && len(terms) < maxTerms {
			terms = append(terms, c)
			end += c.MeanUs / 1000
			s.take(end)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	const names, barH, top = 150.0, 17.0, 26.0
	x := linear("mean per step (ms)", s.lo, s.hi, 4)
	d := &drawing{w: panelW, h: top + barH*float64(len(terms)+1) + 44}
	x.p0, x.p1 = names, panelW-40
	d.heading(point{0, 13}, clip(regime, headSize, panelW), headSize, ink, anchorStart)
	bottom := d.h - 40
	for _, t := range x.ticks {
		d.seg(point{x.px(t.v), top - 4}, point{x.px(t.v), bottom}, gridLine, 1, solid)
		d.label(point{x.px(t.v), bottom + 14}, t.label, tickSize, mute, anchorMiddle)
	}
	d.label(point{(x.p0 + x.p1) / 2, d.h - 6}, x.label, labelSize, mute, anchorMiddle)
	from := 0.0
	bar := func(i int, name string, a, b float64, p paint) {
		y := top + barH*float64(i)
		d.label(point{names - 8, y + 11}, clip(name, tickSize, names-10), tickSize, ink, anchorEnd)
		d.rect(point{x.px(a), y + 2}, point{math.Max(x.px(b), x.px(a)+1), y + barH - 3}, p, 0, fmt.Sprintf("%s: %s ms", name, short(b-a)))
		d.label(point{math.Max(x.px(a), x.px(b)) + 4, y + 11}, short(b-a), tickSize, mute, anchorStart)
	}
	for i, t := range terms {
		to := from + t.MeanUs/1000
		bar(i, t.Name, from, to, regimePaint(regime))
		from = to
	}
	bar(len(terms), "mean prediction", 0, from, ink)
	return d
}
