package figures

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/report/draw"
	"github.com/blis-train/blis-train/report/input"
	"github.com/blis-train/blis-train/report/words"
	"github.com/blis-train/blis-train/result"
)

// biasFigure is the signed hold-out error of consecutive time blocks.
func biasFigure(f *result.Fit) *draw.Figure {
	var runs []string
	var ys, xs draw.Span
	ys.Take(-0.05, 0.05)
	for _, b := range f.Beta.Drift {
		runs = words.AppendNew(runs, b.Run)
		ys.Take(b.Bias)
		xs.Take(float64(b.Block))
	}
	if len(runs) == 0 {
		return nil
	}
	fig := &draw.Figure{
		ID: "bias-blocks", Title: "Signed step-time error by time block",
		Note: "One line per run, sum of predictions against sum of measurements in each block of its held-out rows. Good: lines around " +
			"zero. Bad: a line that walks away, which is a machine that changed speed, not noise; the farthest runs are named.",
		Legend: []draw.Key{{P: draw.Decode, Text: "run within ±10 %"}, {P: draw.Bad, Dash: draw.Dashed, Text: "run that leaves ±10 %"},
			{P: draw.AxisLine, Dash: draw.Dashed, Text: "±10 %"}},
	}
	const most = 60
	if len(runs) > most {
		fig.More = fmt.Sprintf("%d of %d runs shown.", most, len(runs))
		runs = runs[:most]
	}
	fig.Panels = draw.BothWidths("signed step-time error per time block, one line per run", func(w float64) *draw.Drawing {
		y := draw.Linear("sum(prediction)/sum(measured) − 1 (%)", max(ys.Lo, -1)*100, min(ys.Hi, 2)*100, 6)
		p := draw.NewFrame(w, 280, "", draw.Integers("time block of the held-out rows, in order", xs.Lo, xs.Hi, 8), y)
		p.Level(0, draw.Ink, draw.Solid, "")
		p.Level(10, draw.AxisLine, draw.Dashed, "")
		p.Level(-10, draw.AxisLine, draw.Dashed, "")
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
func nameBlock(p *draw.Frame, b result.DriftBlock) {
	at, anchor := p.At(float64(b.Block), b.Bias*100), draw.AnchorMiddle
	switch {
	case float64(b.Block) <= p.X.Lo:
		anchor = draw.AnchorStart
	case float64(b.Block) >= p.X.Hi:
		anchor = draw.AnchorEnd
	}
	at.Y -= 7
	p.Label(at, b.Run, 10, draw.Bad, anchor)
}

func biasLine(p *draw.Frame, blocks []result.DriftBlock, run string) {
	var xy [][2]float64
	out := false
	for _, b := range blocks {
		if b.Run == run {
			xy = append(xy, [2]float64{float64(b.Block), b.Bias * 100})
			out = out || b.Bias > 0.1 || b.Bias < -0.1
		}
	}
	colour, dash := draw.Decode, draw.Solid
	if out {
		colour, dash = draw.Bad, draw.Dashed
	}
	p.Curve(xy, colour, 1.4, dash)
	for _, v := range draw.Sparse(xy) {
		p.Dot(p.At(v[0], v[1]), 2.6, colour, 0, fmt.Sprintf("%s, block %s: %s", run, words.Short(v[0]), words.Signed(v[1]/100)))
	}
}

// maxDriftRuns is how many runs get a drift panel.
const maxDriftRuns = 24

// driftFigure shows how the machine's speed moved under the model.
func driftFigure(in input.Input) *draw.Figure {
	if in.Validation == nil {
		return nil
	}
	fig := &draw.Figure{
		ID: "drift", Title: "Did the machine change speed?",
		Note: "Measured over predicted step time, medians over blocks of 5 to 20 s; the band is 0.9 to 1.1. Good: a flat line inside " +
			"the band. Bad: a line that leaves it: the machine drifted, and plain replay errors of that run are the machine's " +
			"as much as the model's. A flat line off 1 is the model's.",
		Legend: []draw.Key{
			{P: draw.Decode, Text: "inside 0.9–1.1"}, {P: draw.Bad, Text: "leaves 0.9–1.1"}, {P: draw.GridLine, Area: true, Text: "0.9–1.1"},
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
		fig.Panels = append(fig.Panels, draw.Panel{D: driftPanel(r), Desc: "measured over predicted step time of " + r.ID + " over time"})
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

func driftPanel(r result.ValidationRun) *draw.Drawing {
	var xs, ys draw.Span
	ys.Take(0.85, 1.15)
	leaves, length := false, blockLengthS(r.Drift)
	for _, d := range r.Drift {
		xs.Take(d.StartS, d.StartS+length)
		ys.Take(d.Factor)
		leaves = leaves || d.Factor < 0.9 || d.Factor > 1.1
	}
	p := draw.NewFrame(draw.PanelW, 200, r.ID, draw.Linear("time since the first row (s)", xs.Lo, xs.Hi, 5),
		draw.Linear("measured / predicted", ys.Lo, ys.Hi, 4))
	p.Rect(p.At(p.X.Lo, 0.9), p.At(p.X.Hi, 1.1), draw.GridLine, 0.8, "")
	p.Level(1, draw.AxisLine, draw.Solid, "")
	colour := draw.Decode
	if leaves {
		colour = draw.Bad
	}
	var pts [][2]float64
	for _, d := range r.Drift {
		pts = append(pts, [2]float64{d.StartS, d.Factor}, [2]float64{d.StartS + length, d.Factor})
	}
	p.Curve(pts, colour, 2, draw.Solid)
	return &p.Drawing
}
