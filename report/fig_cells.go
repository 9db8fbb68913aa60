package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// maxChartRows is the most named rows of one chart; tables hold more.
const maxChartRows = 30

// cellFigure is the step-time error by run and regime as a matrix.
func cellFigure(f *result.Fit) *figure {
	cells := plainCells(f.Beta.Cells)
	if len(cells) == 0 {
		return nil
	}
	regimes := regimesIn(func(yield func(string)) {
		for _, c := range cells {
			yield(c.Regime)
		}
	})
	rows, more := worstRuns(cells)
	h := heat{rows: rows, cols: regimes, xLabel: "regime of the step", print: pct, mark: [2]int{-1, -1}}
	h.value = make([][]*float64, len(rows))
	h.tip = make([][]string, len(rows))
	for i := range rows {
		h.value[i] = make([]*float64, len(regimes))
		h.tip[i] = make([]string, len(regimes))
	}
	for _, c := range cells {
		i, j := slices.Index(rows, c.Run), slices.Index(regimes, c.Regime)
		if i >= 0 && j >= 0 {
			h.value[i][j] = c.MAPE
			h.tip[i][j] = fmt.Sprintf("%s, %s: MAPE %s, constant %s, floor %s, %d rows", c.Run, c.Regime, pctOr(c.MAPE), pctOr(c.MAPEConst), pctOr(c.MAPEFloor), c.Rows)
		}
	}
	return &figure{
		id: "error-cells", title: "Step-time error by run and regime (MAPE, hold-out rows)", more: more,
		note:   "Stronger colour is worse. Look along a column: one strong regime in every run is a term the model gets wrong. Look along a row: one strong run is a machine or a deployment that differs from the rest.",
		panels: bothWidths("matrix of step-time MAPE by run and regime; the table below holds the numbers", h.drawing),
	}
}

// plainCells are the cells of a run and regime without batch bucket or stress set.
func plainCells(cs []result.Cell) []result.Cell {
	var out []result.Cell
	for _, c := range cs {
		if c.Bucket == "" && c.Set == "" && c.Regime != "" && c.MAPE != nil {
			out = append(out, c)
		}
	}
	return out
}

// worstRuns names the runs of cells, all in their order or, when there are
// too many, those with the largest errors.
func worstRuns(cells []result.Cell) (names []string, more string) {
	worst := map[string]float64{}
	for _, c := range cells {
		names = appendNew(names, c.Run)
		worst[c.Run] = max(worst[c.Run], *c.MAPE)
	}
	if len(names) <= maxChartRows {
		return names, ""
	}
	more = fmt.Sprintf("The %d worst of %d runs.", maxChartRows, len(names))
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(worst[b], worst[a]) })
	return names[:maxChartRows], more
}

// locoFigure compares the error on a configuration left out with a constant
// and with the frozen recipe.
func locoFigure(f *result.Fit) *figure {
	ls := slices.DeleteFunc(slices.Clone(f.Beta.Loco), func(l result.Loco) bool { return l.MAPE == nil })
	if len(ls) == 0 {
		return nil
	}
	slices.SortStableFunc(ls, func(a, b result.Loco) int { return cmp.Compare(*b.MAPE, *a.MAPE) })
	fig := &figure{
		id: "loco", title: "Step-time error on configurations the fit never saw",
		note:   "Each row was predicted by a fit without it. Look for dots left of the dashed 25 % gate and left of the constant; a dot right of the constant means the physics did not carry over to that configuration.",
		legend: []key{{p: decode, area: true, text: "this fit"}, {p: axisLine, area: true, text: "best constant of the other configurations' kind"}, {p: other, area: true, text: "frozen recipe, spec 1.0"}},
	}
	fig.legend[1].text = "best constant"
	if len(ls) > maxChartRows {
		fig.more = fmt.Sprintf("The %d worst of %d configurations.", maxChartRows, len(ls))
		ls = ls[:maxChartRows]
	}
	var s span
	s.take(0.25, 0.03)
	var rows []chartRow
	frozen := false
	for _, l := range ls {
		r := chartRow{name: cmp.Or(l.Label, l.Config), join: true}
		add := func(v *float64, p paint, what string) {
			if v != nil {
				s.takePositive(*v)
				r.marks = append(r.marks, rowMark{v: *v * 100, p: p, tip: fmt.Sprintf("%s: %s %s", r.name, what, pct(*v))})
			}
		}
		add(l.MAPEConst, axisLine, "constant")
		add(l.MAPEFrozen10, other, "frozen 1.0")
		add(l.MAPE, decode, "this fit")
		frozen = frozen || l.MAPEFrozen10 != nil
		rows = append(rows, r)
	}
	if !frozen {
		fig.legend = fig.legend[:2]
	}
	x := logarithmic("MAPE (%)", s.lo*100/1.1, s.hi*100*1.1)
	fig.panels = bothWidths("leave-one-configuration-out MAPE per configuration", func(w float64) *drawing {
		return rowChart(w, rows, x, rowMark{v: 25, p: mute, tip: "25 %"})
	})
	return fig
}

// biasFigure is the signed hold-out error of consecutive time blocks.
func biasFigure(f *result.Fit) *figure {
	var runs []string
	var ys, xs span
	ys.take(-0.05, 0.05)
	for _, b := range f.Beta.Drift {
		runs = appendNew(runs, b.Run)
		ys.take(b.Bias)
		xs.take(float64(b.Block))
	}
	if len(runs) == 0 {
		return nil
	}
	fig := &figure{
		id: "bias-blocks", title: "Signed step-time error by time block",
		note:   "One line per run, sum of predictions against sum of measurements in each block of its held-out rows. Good: lines around zero. Bad: a line that walks away, which is a machine that changed speed, not noise; the farthest runs are named.",
		legend: []key{{p: decode, text: "run within ±10 %"}, {p: bad, dash: dashed, text: "run that leaves ±10 %"}, {p: axisLine, dash: dashed, text: "±10 %"}},
	}
	const most = 60
	if len(runs) > most {
		fig.more = fmt.Sprintf("%d of %d runs shown.", most, len(runs))
		runs = runs[:most]
	}
	fig.panels = bothWidths("signed step-time error per time block, one line per run", func(w float64) *drawing {
		y := linear("sum(prediction)/sum(measured) − 1 (%)", max(ys.lo, -1)*100, min(ys.hi, 2)*100, 6)
		p := newFrame(w, 280, "", integers("time block of the held-out rows, in order", xs.lo, xs.hi, 8), y)
		p.level(0, ink, solid, "")
		p.level(10, axisLine, dashed, "")
		p.level(-10, axisLine, dashed, "")
		for _, run := range runs {
			biasLine(p, f.Beta.Drift, run)
		}
		for _, b := range farthestBlocks(f.Beta.Drift) {
			nameBlock(p, b)
		}
		return &p.drawing
	})
	return fig
}

// maxNamed is how many runs of the bias figure are named on it.
const maxNamed = 4

// farthestBlocks are the blocks farthest from zero of the runs that leave ±10 %,
// one a run and one a place, worst first, at most maxNamed.
func farthestBlocks(blocks []result.DriftBlock) []result.DriftBlock {
	sorted := slices.Clone(blocks)
	slices.SortStableFunc(sorted, func(a, b result.DriftBlock) int { return cmp.Compare(math.Abs(b.Bias), math.Abs(a.Bias)) })
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

// nameBlock writes the run's name beside its dot, on the side with room.
func nameBlock(p *frame, b result.DriftBlock) {
	at, anchor := p.at(float64(b.Block), b.Bias*100), anchorMiddle
	switch {
	case float64(b.Block) <= p.x.lo:
		anchor = anchorStart
	case float64(b.Block) >= p.x.hi:
		anchor = anchorEnd
	}
	at.y -= 7
	p.label(at, b.Run, 10, bad, anchor)
}

func biasLine(p *frame, blocks []result.DriftBlock, run string) {
	var xy [][2]float64
	out := false
	for _, b := range blocks {
		if b.Run == run {
			xy = append(xy, [2]float64{float64(b.Block), b.Bias * 100})
			out = out || b.Bias > 0.1 || b.Bias < -0.1
		}
	}
	colour, dash := decode, solid
	if out {
		colour, dash = bad, dashed
	}
	p.curve(xy, colour, 1.4, dash)
	for _, v := range thin(xy) {
		p.dot(p.at(v[0], v[1]), 2.6, colour, 0, fmt.Sprintf("%s, block %s: %s", run, short(v[0]), signed(v[1]/100)))
	}
}
