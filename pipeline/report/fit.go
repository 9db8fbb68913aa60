package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// fitFigures are the figures of the step-time model: on the hold-out of the
// fit, and on the rows of the validation.
func fitFigures(in Input) []*Figure {
	var out []*Figure
	if f := in.Fit; f != nil {
		own := stepFigures(f.Beta.Figures, "", "hold-out rows of the fit")
		for _, fig := range own {
			fig.Closed = in.Validation != nil && in.Validation.Figures != nil
		}
		out = append(out, own...)
		out = append(out, cellFigure(f), locoFigure(f), biasFigure(f))
	}
	if v := in.Validation; v != nil {
		out = append(out, stepFigures(v.Figures, "test-", "teacher-forced rows of the validation")...)
	}
	return keep(out...)
}

func stepFigures(f *result.FitFigures, prefix, rows string) []*Figure {
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
func predictedFigure(f *result.FitFigures, prefix, rows string) *Figure {
	bins := positiveBins(f.PredVsMeasured)
	if len(bins) == 0 {
		return nil
	}
	var s Span
	most := 0
	for _, b := range bins {
		s.TakePositive(b.X/1000, b.Y/1000)
		most = max(most, b.N)
	}
	regimes := regimesIn(func(yield func(string)) {
		for _, b := range bins {
			yield(b.Regime)
		}
	})
	fig := &Figure{
		ID: prefix + "pred-vs-measured", Title: "Predicted against measured step time, " + rows,
		Note: "Look for dots along the solid line; the dashed lines are 20 % off. Bad: a regime that leaves the band as a whole, or a " +
			"slope that differs from the line, which means a missing or mis-scaled term. Larger dots hold more rows.",
		Legend: regimeKeys(regimes),
	}
	add := func(regime string) {
		lo, hi := Widened(s.Lo, s.Hi)
		p := NewFrame(PanelW, PanelH+40, regime, Logarithmic("measured (ms per step)", lo, hi),
			Logarithmic("predicted (ms per step)", lo, hi))
		p.Diagonal(1.2, AxisLine, Dashed)
		p.Diagonal(1/1.2, AxisLine, Dashed)
		p.Diagonal(1, ink, Solid)
		for _, b := range bins {
			if b.Regime == regime {
				r := 1.6 + float64(4.4*math.Sqrt(math.Log1p(float64(b.N))/math.Log1p(float64(most))))
				p.Dot(p.At(b.X/1000, b.Y/1000), r, regimePaint(b.Regime), 0.55, "")
			}
		}
		fig.Panels = append(fig.Panels, Panel{D: &p.Drawing, Desc: regime +
			": predicted against measured step time in ms, logarithmic axes"})
	}
	for _, r := range regimes {
		add(r)
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
func residualFigure(f *result.FitFigures, prefix, rows string) *Figure {
	if len(f.Residuals) == 0 {
		return nil
	}
	regimes := regimesIn(func(yield func(string)) {
		for _, b := range f.Residuals {
			yield(b.Regime)
		}
	})
	fig := &Figure{
		ID: prefix + "residuals", Title: "Relative error against batch, context and time, " + rows,
		Note: "Lines are medians of prediction/measured − 1, bands the middle 80 %. Good: flat around zero. Bad: a trend with batch or " +
			"context (a missing or mis-scaled term) or with time (the machine or the model drifted).",
		Legend: regimeKeys(regimes),
	}
	for _, r := range regimes {
		for _, against := range []string{"batch", "context", "time"} {
			if d := residualPanel(f.Residuals, against, r); d != nil {
				fig.Panels = append(fig.Panels, Panel{D: d, Desc: "relative error of " + r + " steps against " + againstLabels[against]})
			}
		}
	}
	if len(fig.Panels) > maxPanels {
		fig.More = fmt.Sprintf("%d of %d panels shown.", maxPanels, len(fig.Panels))
		fig.Panels = fig.Panels[:maxPanels]
	}
	return fig
}

// residualPanel is one regime; the axes are those of all regimes, so that
// panels compare.
func residualPanel(bands []result.ResidualBand, against, regime string) *Drawing {
	var xs, ys Span
	for _, b := range bands {
		if b.Against == against {
			xs.Take(b.X)
		}
		ys.Take(b.P10, b.P50, b.P90)
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
	lo, hi := math.Max(math.Min(ys.Lo, -0.1), -1), math.Min(math.Max(ys.Hi, 0.1), 1.5)
	y := Linear("prediction/measured − 1 (%)", lo*100, hi*100, 4)
	p := NewFrame(PanelW, 200, regime+", against "+against, Linear(againstLabels[against], xs.Lo, xs.Hi, 5), y)
	p.Level(0, ink, Solid, "")
	p.Area(x, p10, p90, regimePaint(regime), 0.2)
	p.Curve(mid, regimePaint(regime), 2, Solid)
	for i := range mid {
		if len(mid) <= 30 {
			p.Dot(p.At(mid[i][0], mid[i][1]), 2.2, regimePaint(regime), 0, "")
		}
	}
	return &p.Drawing
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
func contributionFigure(f *result.FitFigures, prefix, rows string) *Figure {
	regimes := regimesIn(func(yield func(string)) {
		for _, c := range f.Contributions {
			yield(c.Regime)
		}
	})
	fig := &Figure{
		ID: prefix + "contributions", Title: "What a mean step is made of, " + rows,
		Note: "Each bar starts where the one above ends; the last is the mean prediction. Look for the term that dominates a regime: an " +
			"error in it moves every prediction there. Bad: a bias or fixed overhead larger than the physics, or a prefill step without " +
			"prefill compute.",
	}
	for _, r := range regimes {
		if d := waterfall(f.Contributions, r); d != nil {
			fig.Panels = append(fig.Panels, Panel{D: d, Desc: "mean contribution of each term to a " + r + " step, ms"})
		}
	}
	if len(fig.Panels) > maxPanels {
		fig.More = fmt.Sprintf("%d of %d regimes shown.", maxPanels, len(fig.Panels))
		fig.Panels = fig.Panels[:maxPanels]
	}
	return fig
}

// maxTerms is the most bars of one waterfall.
const maxTerms = 40

func waterfall(cs []result.Contribution, regime string) *Drawing {
	var terms []result.Contribution
	var s Span
	s.Take(0)
	end := 0.0
	for _, c := range cs {
		if c.Regime == regime && c.MeanUs != 0 && len(terms) < maxTerms {
			terms = append(terms, c)
			end += c.MeanUs / 1000
			s.Take(end)
		}
	}
	if len(terms) == 0 {
		return nil
	}
	const names, barH, top = 150.0, 17.0, 26.0
	x := Linear("mean per step (ms)", s.Lo, s.Hi, 4)
	d := &Drawing{W: PanelW, H: top + float64(barH*float64(len(terms)+1)) + 44}
	x.P0, x.P1 = names, PanelW-40
	d.Heading(At(0, 13), clip(regime, headSize, PanelW), headSize, ink, anchorStart)
	bottom := d.H - 40
	for _, t := range x.Ticks {
		d.Seg(At(x.Px(t.V), top-4), At(x.Px(t.V), bottom), gridLine, 1, Solid)
		d.Label(At(x.Px(t.V), bottom+14), t.Label, tickSize, Mute, anchorMiddle)
	}
	d.Label(At((x.P0+x.P1)/2, d.H-6), x.Label, labelSize, Mute, anchorMiddle)
	from := 0.0
	bar := func(i int, name string, a, b float64, p Paint) {
		y := top + float64(barH*float64(i))
		d.Label(At(names-8, y+11), clip(name, tickSize, names-10), tickSize, ink, anchorEnd)
		d.Rect(At(x.Px(a), y+2), At(math.Max(x.Px(b), x.Px(a)+1), y+barH-3), p, 0, fmt.Sprintf("%s: %s ms", name, Short(b-a)))
		d.Label(At(math.Max(x.Px(a), x.Px(b))+4, y+11), Short(b-a), tickSize, Mute, anchorStart)
	}
	for i, t := range terms {
		to := from + t.MeanUs/1000
		bar(i, t.Name, from, to, regimePaint(regime))
		from = to
	}
	bar(len(terms), "mean prediction", 0, from, ink)
	return d
}
