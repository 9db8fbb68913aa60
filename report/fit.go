package report

// This file draws the figures of the step-time model: predictions, residuals, contributions of
// terms, and drift of the machine. A regime is the kind of a step: decode, prefill or mixed.

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// fitFigures returns the figures of the step-time model for the hold-out of the fit, and for the
// steps of the validation.
func fitFigures(in Input) []*Figure {
	var out []*Figure
	if f := in.Fit; f != nil {
		own := stepFigures(f.Beta.Figures, "", "held-out steps of the fit")
		for _, fig := range own {
			fig.Closed = in.Validation != nil && in.Validation.Figures != nil
		}
		out = append(out, own...)
		out = append(out, cellFigure(f), locoFigure(f), biasFigure(f))
	}
	if v := in.Validation; v != nil {
		out = append(out, stepFigures(v.Figures, "test-", "steps of the validation")...)
	}
	return withPanels(out...)
}

// stepFigures returns the figures of one set of steps. prefix makes their ids distinct, and rows
// names the steps in their titles.
func stepFigures(f *result.FitFigures, prefix, rows string) []*Figure {
	if f == nil {
		return nil
	}
	figs := withPanels(predictedFigure(f), residualFigure(f), contributionFigure(f))
	for _, fig := range figs {
		fig.ID = prefix + fig.ID
		fig.Title = fig.Title + ", " + rows
	}
	return figs
}

// predictedFigure draws predicted against measured step time, one panel for each regime on the same
// axes.
func predictedFigure(f *result.FitFigures) *Figure {
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
	regimes := regimesIn(bins, func(b result.Bin2D) string { return b.Regime })
	fig := predVsMeasuredCaption.blank()
	fig.Legend = regimeKeys(regimes)

	lo, hi := Widened(s.Lo, s.Hi)
	for _, regime := range regimes {
		p := NewFrame(PanelW, PanelH+40, regime, Logarithmic("measured (ms per step)", lo, hi), Logarithmic("predicted (ms per step)", lo, hi))
		p.Diagonal(1.2, AxisLine, Dashed)
		p.Diagonal(1/1.2, AxisLine, Dashed)
		p.Diagonal(1, ink, Solid)
		for _, b := range bins {
			if b.Regime == regime {
				// The area of a dot grows with the logarithm of the steps in its bin.
				r := 1.6 + 4.4*math.Sqrt(math.Log1p(float64(b.N))/math.Log1p(float64(most)))
				p.Dot(p.At(b.X/1000, b.Y/1000), r, regimePaint(b.Regime), 0.55, "")
			}
		}
		fig.Panels = append(fig.Panels, Panel{D: &p.Drawing, Desc: regime + ": predicted against measured step time in ms, logarithmic axes"})
	}
	return fig
}

// maxBins is the largest number of bins in one panel of predicted against measured time.
const maxBins = 1500

// positiveBins returns the bins that a logarithmic plot can show, at most maxBins, those with most
// steps.
func positiveBins(in []result.Bin2D) []result.Bin2D {
	var out []result.Bin2D
	for _, b := range in {
		if b.X > 0 && b.Y > 0 && b.N > 0 {
			out = append(out, b)
		}
	}
	if len(out) > maxBins {
		stat.SortStable(out, func(a, b result.Bin2D) int { return b.N - a.N })
		out = out[:maxBins]
	}
	return out
}

// againstLabels are the axis labels of the quantities against which residuals are drawn.
var againstLabels = map[string]string{
	"batch":   "batch (requests)",
	"context": "context (tokens per decode)",
	"time":    "time since the first row (s)",
}

// residualFigure draws bands of relative error against batch, context and time, by regime.
func residualFigure(f *result.FitFigures) *Figure {
	if len(f.Residuals) == 0 {
		return nil
	}
	regimes := regimesIn(f.Residuals, func(b result.ResidualBand) string { return b.Regime })
	fig := residualsCaption.blank()
	fig.Legend = regimeKeys(regimes)

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

// residualPanel draws the bands of one regime against one quantity; nil without any. Axes are the
// same for all regimes, so that panels can be compared.
func residualPanel(bands []result.ResidualBand, against, regime string) *Drawing {
	// Ranges of the axes: the quantity over the bands against it, the error over all bands.
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
	// At least -10 to +10 % are shown, so that small errors look small, and at most -100 to +150 %.
	lo := math.Max(math.Min(ys.Lo, -0.1), -1)
	hi := math.Min(math.Max(ys.Hi, 0.1), 1.5)
	y := Linear("prediction/measured − 1 (%)", lo*100, hi*100, 4)
	p := NewFrame(PanelW, 200, regime+", against "+against, Linear(againstLabels[against], xs.Lo, xs.Hi, 5), y)
	p.Level(0, ink, Solid, "")
	// Curves over time are broken where the machine was idle.
	var breaks []int
	if against == "time" {
		breaks = idleSplits(x, 5)
	}
	from := 0
	for _, to := range append(breaks, len(mid)) {
		p.Area(x[from:to], p10[from:to], p90[from:to], regimePaint(regime), 0.2)
		p.Curve(mid[from:to], regimePaint(regime), 2, Solid)
		from = to
	}
	for i := range mid {
		if len(mid) <= 30 {
			p.Dot(p.At(mid[i][0], mid[i][1]), 2.2, regimePaint(regime), 0, "")
		}
	}
	return &p.Drawing
}

// thinBands returns the bands of one panel, at most as many as a line shows.
func thinBands(bands []result.ResidualBand, against, regime string) []result.ResidualBand {
	var out []result.ResidualBand
	for _, b := range bands {
		if b.Against == against && b.Regime == regime {
			out = append(out, b)
		}
	}
	stat.SortStable(out, func(a, b result.ResidualBand) int { return cmp.Compare(a.X, b.X) })
	return sparse(out)
}

// contributionFigure draws the mean step of each regime as a waterfall of the model's terms.
func contributionFigure(f *result.FitFigures) *Figure {
	regimes := regimesIn(f.Contributions, func(c result.Contribution) string { return c.Regime })
	fig := contributionsCaption.blank()

	for _, r := range regimes {
		if d := waterfallPanel(f.Contributions, r); d != nil {
			fig.Panels = append(fig.Panels, Panel{D: d, Desc: "mean contribution of each term to a " + r + " step, ms"})
		}
	}
	if len(fig.Panels) > maxPanels {
		fig.More = fmt.Sprintf("%d of %d regimes shown.", maxPanels, len(fig.Panels))
		fig.Panels = fig.Panels[:maxPanels]
	}
	return fig
}

// maxTerms is the largest number of bars in one waterfall.
const maxTerms = 40

// waterfallPanel draws the terms of a mean step of one regime as bars end to end, and their sum.
func waterfallPanel(cs []result.Contribution, regime string) *Drawing {
	// The terms that are drawn, and the range of the ends of their bars: one may take time off, so the sum
	// need not be the largest.
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
	d := &Drawing{W: PanelW, H: top + barH*float64(len(terms)+1) + 44}
	x.P0, x.P1 = names, PanelW-40
	d.Heading(At(0, 13), clip(regime, headSize, PanelW), headSize, ink, anchorStart)
	bottom := d.H - 40
	for _, t := range x.Ticks {
		d.Seg(At(x.Px(t.V), top-4), At(x.Px(t.V), bottom), gridLine, 1, Solid)
		d.Label(At(x.Px(t.V), bottom+14), t.Label, tickSize, Mute, anchorMiddle)
	}
	d.Label(At((x.P0+x.P1)/2, d.H-6), x.Label, labelSize, Mute, anchorMiddle)
	// Each bar begins where the one above it ends; the last is the sum from 0.
	from := 0.0
	bar := func(i int, name string, a, b float64, p Paint) { // the i-th, from a to b ms
		y := top + barH*float64(i)
		d.Label(At(names-8, y+11), clip(name, tickSize, names-10), tickSize, ink, anchorEnd)
		left, right := math.Min(x.Px(a), x.Px(b)), math.Max(x.Px(a), x.Px(b))
		d.Rect(At(left, y+2), At(math.Max(right, left+1), y+barH-3), p, 0, fmt.Sprintf("%s: %s ms", name, Short(b-a)))
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

// biasFigure draws the signed error on the hold-out in consecutive blocks of time, one line for
// each run.
func biasFigure(f *result.Fit) *Figure {
	var runs []string
	var ys, xs Span
	ys.Take(-0.05, 0.05)
	for _, b := range f.Beta.Drift {
		runs = appendNew(runs, b.Run)
		ys.Take(b.Bias)
		xs.Take(float64(b.Block))
	}
	if len(runs) == 0 {
		return nil
	}
	fig := biasBlocksCaption.blank()
	const most = 60
	if len(runs) > most {
		fig.More = fmt.Sprintf("%d of %d runs shown.", most, len(runs))
		runs = runs[:most]
	}
	var shown []result.DriftBlock // those of runs that are drawn
	for _, b := range f.Beta.Drift {
		if slices.Contains(runs, b.Run) {
			shown = append(shown, b)
		}
	}
	fig.Panels = BothWidths("signed step-time error per time block, one line per run", func(w float64) *Drawing {
		y := Linear("sum(prediction)/sum(measured) − 1 (%)", max(ys.Lo, -1)*100, min(ys.Hi, 2)*100, 6)
		p := NewFrame(w, 280, "", integers("time block of the held-out rows, in order", xs.Lo, xs.Hi, 8), y)
		p.Level(0, ink, Solid, "")
		p.Level(10, AxisLine, Dashed, "")
		p.Level(-10, AxisLine, Dashed, "")
		for _, run := range runs {
			biasLine(p, f.Beta.Drift, run)
		}
		for _, b := range farthestBlocks(shown) {
			nameBlock(p, b)
		}
		return &p.Drawing
	})
	return fig
}

// maxNamed is the largest number of runs whose names the bias figure shows.
const maxNamed = 4

// farthestBlocks returns the blocks that get a name in the bias figure: the worst block of each run
// that leaves ±10 %, without those whose names would overlap, at most maxNamed.
func farthestBlocks(blocks []result.DriftBlock) []result.DriftBlock {
	sorted := slices.Clone(blocks)
	stat.SortStable(sorted, func(a, b result.DriftBlock) int { return cmp.Compare(math.Abs(b.Bias), math.Abs(a.Bias)) })
	var out []result.DriftBlock
	for _, b := range sorted {
		taken := slices.ContainsFunc(out, func(o result.DriftBlock) bool {
			return o.Run == b.Run || o.Block == b.Block && math.Abs(o.Bias-b.Bias) < 0.05
		})
		if !taken && math.Abs(b.Bias) > 0.1 && len(out) < maxNamed {
			out = append(out, b)
		}
	}
	return out
}

// nameBlock writes the run's name at its dot, on the side with free space.
func nameBlock(p *frame, b result.DriftBlock) {
	at := p.At(float64(b.Block), b.Bias*100)
	anchor := anchorMiddle
	switch {
	case float64(b.Block) <= p.X.Lo:
		anchor = anchorStart
	case float64(b.Block) >= p.X.Hi:
		anchor = anchorEnd
	}
	at.Y -= 7
	p.Label(at, b.Run, 10, bad, anchor)
}

// biasLine draws the signed error of one run over its blocks, dashed if it leaves ±10 %.
func biasLine(p *frame, blocks []result.DriftBlock, run string) {
	var xy [][2]float64
	leaves := false
	for _, b := range blocks {
		if b.Run == run {
			xy = append(xy, [2]float64{float64(b.Block), b.Bias * 100})
			leaves = leaves || b.Bias > 0.1 || b.Bias < -0.1
		}
	}
	colour, dash := Decode, Solid
	if leaves {
		colour, dash = bad, Dashed
	}
	p.Curve(xy, colour, 1.4, dash)
	for _, v := range sparse(xy) {
		p.Dot(p.At(v[0], v[1]), 2.6, colour, 0, fmt.Sprintf("%s, block %s: %s", run, Short(v[0]), Signed(v[1]/100)))
	}
}

// maxDriftRuns is the largest number of runs that get a panel of drift.
const maxDriftRuns = 24

// driftFigure draws measured over predicted step time over time, which shows whether the machine
// changed its speed.
func driftFigure(in Input) *Figure {
	if in.Validation == nil {
		return nil
	}
	fig := driftCaption.blank()
	var seen []string
	var runs []result.ValidationRun
	for _, r := range in.Validation.Runs {
		if len(r.Drift) > 0 && !slices.Contains(seen, r.ID) {
			seen = append(seen, r.ID)
			runs = append(runs, r)
		}
	}
	if len(runs) > maxDriftRuns {
		fig.More = fmt.Sprintf("The %d runs that drift most, of %d.", maxDriftRuns, len(runs))
		stat.SortStable(runs, func(a, b result.ValidationRun) int { return cmp.Compare(farthestDrift(b), farthestDrift(a)) })
		runs = runs[:maxDriftRuns]
	}
	for _, r := range runs {
		fig.Panels = append(fig.Panels, Panel{D: driftPanel(r), Desc: "measured over predicted step time of " + r.ID + " over time"})
	}
	return fig
}

// farthestDrift returns the largest distance of a run's drift curve from 1.
func farthestDrift(r result.ValidationRun) float64 {
	worst := 0.0
	for _, d := range r.Drift {
		worst = max(worst, math.Abs(d.Factor-1))
	}
	return worst
}

// blockLengthS returns the length of a drift curve's blocks in seconds: the smallest distance
// between two starts, because blocks without rows are missing.
func blockLengthS(curve []result.DriftPoint) float64 {
	s := math.Inf(1)
	for i := 1; i < len(curve); i++ {
		s = min(s, curve[i].StartS-curve[i-1].StartS)
	}
	if math.IsInf(s, 1) {
		return 20 // a single block has no neighbour; 20 s is the longest that blocks can be
	}
	return s
}

// driftPanel draws measured over predicted step time of one run over time.
func driftPanel(r result.ValidationRun) *Drawing {
	var xs, ys Span
	ys.Take(0.85, 1.15)
	leaves := false // whether the curve leaves the band
	length := blockLengthS(r.Drift)
	var starts []float64
	for _, d := range r.Drift {
		starts = append(starts, d.StartS)
		xs.Take(d.StartS, d.StartS+length)
		ys.Take(d.Factor)
		leaves = leaves || d.Factor < 0.9 || d.Factor > 1.1
	}
	p := NewFrame(PanelW, 200, r.ID, Linear("time since the first row (s)", xs.Lo, xs.Hi, 5), Linear("measured / predicted", ys.Lo, ys.Hi, 4))
	// The band of +-10 % within which a drift is harmless; a run that leaves it is drawn in red.
	p.Rect(p.At(p.X.Lo, 0.9), p.At(p.X.Hi, 1.1), gridLine, 0.8, "")
	p.Level(1, AxisLine, Solid, "")
	colour := Decode
	if leaves {
		colour = bad
	}
	// Each block of time is a level piece of the curve.
	var pts [][2]float64
	breaks := idleSplits(starts, 1.5) // where blocks without rows are missing
	for i, d := range r.Drift {
		if slices.Contains(breaks, i) {
			pts = append(pts, gap)
		}
		pts = append(pts, [2]float64{d.StartS, d.Factor}, [2]float64{d.StartS + length, d.Factor})
	}
	p.Curve(pts, colour, 2, Solid)
	return &p.Drawing
}

// regimeOrder is the order in which regimes are drawn and listed.
var regimeOrder = []string{"decode", "mixed", "prefill", "idle", "waiting"}

// regimesIn returns the regimes that occur in the list, in regimeOrder; unknown ones are last.
func regimesIn[T any](list []T, regime func(T) string) []string {
	var seen []string
	for _, x := range list {
		seen = appendNew(seen, regime(x))
	}
	stat.SortStable(seen, func(a, b string) int { return regimeIndex(a) - regimeIndex(b) })
	return seen
}

// regimeIndex returns the position of a regime in regimeOrder; unknown ones come after all others.
func regimeIndex(r string) int {
	if i := slices.Index(regimeOrder, r); i >= 0 {
		return i
	}
	return len(regimeOrder)
}

// regimeKeys returns the legend of regimes.
func regimeKeys(regimes []string) []Key {
	keys := make([]Key, len(regimes))
	for i, r := range regimes {
		keys[i] = Key{P: regimePaint(r), Area: true, Text: r}
	}
	return keys
}

// maxPanels is the largest number of panels in a figure with one panel for each regime or run.
const maxPanels = 12

// withPanels returns the figures that have panels.
func withPanels(fs ...*Figure) []*Figure {
	var some []*Figure
	for _, f := range fs {
		if f != nil && len(f.Panels) > 0 {
			some = append(some, f)
		}
	}
	return some
}
