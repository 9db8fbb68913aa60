package report

import (
	"strconv"

	"github.com/blis-train/blis-train/result"
)

// maxLoadRuns is how many runs get a panel of load over time.
const maxLoadRuns = 15

// loadFigure shows running and waiting requests over each run.
func loadFigure(in Input) *Figure {
	if in.Inspect == nil {
		return nil
	}
	fig := &Figure{
		ID: "load", Title: "Load over time",
		Note: "Mean requests running and waiting. Good: waiting stays near zero or comes back to it. Bad: waiting that climbs to the end " +
			"of the run; such a run is saturated, and its latencies say how long it was recorded, not how fast the engine is.",
		Legend: []Key{{P: Decode, Text: "running"}, {P: Prefill, Dash: Dashed, Text: "waiting"}},
	}
	n := 0
	for _, r := range in.Inspect.Runs {
		if r.Series == nil || len(r.Series.Running) == 0 {
			continue
		}
		if n++; n <= maxLoadRuns {
			fig.Panels = append(fig.Panels, Panel{D: loadPanel(r), Desc: "running and waiting requests of " + r.ID + " over time"})
		}
	}
	if n > maxLoadRuns {
		fig.More = "The first " + strconv.Itoa(maxLoadRuns) + " of " + strconv.Itoa(n) + " runs."
	}
	return fig
}

func loadPanel(r result.InspectRun) *Drawing {
	s := r.Series
	running, waiting := seriesPoints(s.Running, s.BinS), seriesPoints(s.Waiting, s.BinS)
	var ys Span
	ys.Take(0, 1)
	for _, xy := range append(append([][2]float64{}, running...), waiting...) {
		ys.Take(xy[1])
	}
	title := r.ID
	if r.Saturated {
		title += " · saturated"
	}
	p := NewFrame(PanelW, 190, title, Linear("time (s)", 0, s.BinS*float64(len(s.Running)), 5),
		Linear("requests", 0, ys.Hi, 4))
	p.Curve(running, Decode, 1.6, Solid)
	p.Curve(waiting, Prefill, 1.6, Dashed)
	return &p.Drawing
}

// seriesPoints places known bins at their middle.
func seriesPoints(vs []*float64, binS float64) [][2]float64 {
	var out [][2]float64
	for i, v := range vs {
		if v != nil {
			out = append(out, [2]float64{(float64(i) + 0.5) * binS, *v})
		}
	}
	return out
}
