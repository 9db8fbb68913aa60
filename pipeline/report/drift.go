package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// biasFigure is the signed hold-out error of consecutive time blocks.
func biasFigure(f *result.Fit) *Figure {
	var runs []string
	var ys, xs Span
	ys.Take(-0.05, 0.05)
	for _, b := range f.Beta.Drift {
		runs = AppendNew(runs, b.Run)
		ys.Take(b.Bias)
		xs.Take(float64(b.Block))
	}
	if len(runs) == 0 {
		return nil
	}
	fig := &Figure{
		ID: "bias-blocks", Title: "Signed step-time error by time block",
		Note: "One line per run, sum of predictions against sum of measurements in each block of its held-out rows. Good: lines around " +
			"zero. Bad: a line that walks away, which is a machine that changed speed, not noise; the farthest runs are named.",
		Legend: []Key{{P: Decode, Text: "run within ±10 %"}, {P: bad, Dash: Dashed, Text: "run that leaves ±10 %"},
			{P: AxisLine, Dash: Dashed, Text: "±10 %"}},
	}
	const most = 60
	if len(runs) > most {
		fig.More = fmt.Sprintf("%d of %d runs shown.", most, len(runs))
		runs = runs[:most]
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
		for _, b := range farthestBlocks(f.Beta.Drift) {
			nameBlock(p, b)
		}
		return &p.Drawing
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
	at, anchor := p.At(float64(b.Block), b.Bias*100), anchorMiddle
	switch {
	case float64(b.Block) <= p.X.Lo:
		anchor = anchorStart
	case float64(b.Block) >= p.X.Hi:
		anchor = anchorEnd
	}
	at.Y -= 7
	p.Label(at, b.Run, 10, bad, anchor)
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
	colour, dash := Decode, Solid
	if out {
		colour, dash = bad, Dashed
	}
	p.Curve(xy, colour, 1.4, dash)
	for _, v := range sparse(xy) {
		p.Dot(p.At(v[0], v[1]), 2.6, colour, 0, fmt.Sprintf("%s, block %s: %s", run, Short(v[0]), Signed(v[1]/100)))
	}
}

// maxDriftRuns is how many runs get a drift panel.
const maxDriftRuns = 24

// driftFigure shows how the machine's speed moved under the model.
func driftFigure(in Input) *Figure {
	if in.Validation == nil {
		return nil
	}
	fig := &Figure{
		ID: "drift", Title: "Did the machine change speed?",
		Note: "Measured over predicted step time, medians over blocks of 5 to 20 s; the band is 0.9 to 1.1. Good: a flat line inside " +
			"the band. Bad: a line that leaves it: the machine drifted, and plain replay errors of that run are the machine's " +
			"as much as the model's. A flat line off 1 is the model's.",
		Legend: []Key{
			{P: Decode, Text: "inside 0.9–1.1"}, {P: bad, Text: "leaves 0.9–1.1"}, {P: gridLine, Area: true, Text: "0.9–1.1"},
		},
	}
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
		slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(farthest(b), farthest(a)) })
		runs = runs[:maxDriftRuns]
	}
	for _, r := range runs {
		fig.Panels = append(fig.Panels, Panel{D: driftPanel(r), Desc: "measured over predicted step time of " + r.ID + " over time"})
	}
	return fig
}

func farthest(r result.ValidationRun) float64 {
	worst := 0.0
	for _, d := range r.Drift {
		worst = max(worst, math.Abs(d.Factor-1))
	}
	return worst
}

// blockLengthS is the length of the curve's blocks, seconds: the smallest
// distance of two starts, as blocks without rows are left out.
func blockLengthS(curve []result.DriftPoint) float64 {
	s := math.Inf(1)
	for i := 1; i < len(curve); i++ {
		s = min(s, curve[i].StartS-curve[i-1].StartS)
	}
	if math.IsInf(s, 1) {
		return 20 // a single block: the longest there is
	}
	return s
}

func driftPanel(r result.ValidationRun) *Drawing {
	var xs, ys Span
	ys.Take(0.85, 1.15)
	leaves, length := false, blockLengthS(r.Drift)
	for _, d := range r.Drift {
		xs.Take(d.StartS, d.StartS+length)
		ys.Take(d.Factor)
		leaves = leaves || d.Factor < 0.9 || d.Factor > 1.1
	}
	p := NewFrame(PanelW, 200, r.ID, Linear("time since the first row (s)", xs.Lo, xs.Hi, 5),
		Linear("measured / predicted", ys.Lo, ys.Hi, 4))
	p.Rect(p.At(p.X.Lo, 0.9), p.At(p.X.Hi, 1.1), gridLine, 0.8, "")
	p.Level(1, AxisLine, Solid, "")
	colour := Decode
	if leaves {
		colour = bad
	}
	var pts [][2]float64
	for _, d := range r.Drift {
		pts = append(pts, [2]float64{d.StartS, d.Factor}, [2]float64{d.StartS + length, d.Factor})
	}
	p.Curve(pts, colour, 2, Solid)
	return &p.Drawing
}
