package report

// This file draws what the recordings cover: histograms of the recorded steps, and the load over
// time.

import (
	"fmt"
	"strconv"

	"github.com/blis-train/blis-train/result"
)

// coverageNames are the histograms of inspect.json in the order of the panels.
var coverageNames = []struct{ Name, title string }{
	{"prefill_tokens", "prefill tokens per step"},
	{"decode_batch", "decode requests per step"},
	{"context_tokens", "context tokens per decode"},
	{"kv_usage", "KV cache usage"},
}

// coverageFigure draws which loads were recorded, one row for each run; nil without an inspection.
func coverageFigure(in Input) *Figure {
	if in.Inspect == nil {
		return nil
	}
	fig := coverageCaption.blank()
	runs := in.Inspect.Runs
	if len(runs) > maxChartRows {
		fig.More = fmt.Sprintf("The first %d of %d runs.", maxChartRows, len(runs))
		runs = runs[:maxChartRows]
	}
	for _, c := range coverageNames {
		fig.Panels = append(fig.Panels, BothWidths("histogram of "+c.title+", one row per run", func(w float64) *Drawing {
			return coveragePanel(w, runs, c.Name, c.title)
		})...)
	}
	return fig
}

// coveragePanel draws one histogram of every run as a row of coloured bins; nil if no run has it.
func coveragePanel(w float64, runs []result.InspectRun, name, title string) *Drawing {
	var rows []result.InspectRun
	var hs []result.Histogram // of each row
	for _, r := range runs {
		for _, h := range r.Coverage {
			if h.Name == name && h.Rows > 0 && len(h.Edges) >= len(h.Counts) {
				rows = append(rows, r)
				hs = append(hs, h)
			}
		}
	}
	if len(hs) == 0 {
		return nil
	}
	bins := usedBins(hs)
	const ch, top = 15.0, 24.0 // height of a row, and space above the first one
	d := &Drawing{W: w, H: top + ch*float64(len(hs)) + 42}
	d.Heading(At(0, 13), title, headSize, ink, anchorStart)
	var names []string
	for _, r := range rows {
		names = append(names, r.ID)
	}
	left, _ := nameWidth(w, names)
	cw := (w - left - 20) / float64(max(bins, 1))
	for i, h := range hs {
		y := top + ch*float64(i)
		d.Label(At(left-12, y+11), clip(rows[i].ID, labelSize, left-14), labelSize, ink, anchorEnd)
		for j, n := range h.Counts[:min(bins, len(h.Counts))] {
			x := left + cw*float64(j)
			p, tip := binPaint(n, h.Rows), ""
			if n > 0 {
				tip = fmt.Sprintf("%s: %s: %d of %d rows", rows[i].ID, binText(h, j), n, h.Rows)
			}
			if p != none {
				d.Rect(At(x, y+1), At(x+cw-1, y+ch-1), p, 0, tip)
			}
		}
	}
	edgeLabels(d, hs[0], bins, left, cw, top+ch*float64(len(hs)))
	return d
}

// usedBins returns how many bins are drawn: up to the highest one that any run reaches and, where the histogram has
// it, an empty one behind it, so that the end of the recorded range is visible.
func usedBins(hs []result.Histogram) int {
	last := 0
	for _, h := range hs {
		for j, n := range h.Counts {
			if n > 0 {
				last = max(last, j+1)
			}
		}
	}
	return min(last+1, max(last, len(hs[0].Counts)))
}

// binText returns the edges of bin j; the last bin may be open.
func binText(h result.Histogram, j int) string {
	if j+1 < len(h.Edges) {
		return Short(h.Edges[j]) + " to " + Short(h.Edges[j+1]) + " " + unitText(h.Unit)
	}
	return "from " + Short(h.Edges[j]) + " " + unitText(h.Unit)
}

// unitText returns a unit as the page shows it; numbers without one are shares.
func unitText(unit string) string {
	if unit == "" || unit == "1" {
		return "share"
	}
	return unit
}

// binPaint returns the colour of a bin with n of rows steps: the strongest from about half of the steps on, and at
// least the second weakest, so that a bin with any step is visible.
func binPaint(n, rows int) Paint {
	if n <= 0 {
		return none
	}
	return ramp(0.15 + 0.85*float64(n)/float64(rows)*2)
}

// edgeLabels writes the edges of the bins under a coverage panel, as many as fit.
func edgeLabels(d *Drawing, h result.Histogram, bins int, left, cw, y float64) {
	d.Seg(At(left, y+1), At(left+cw*float64(bins), y+1), AxisLine, 1, Solid)
	right := 0.0
	for j, e := range h.Edges[:min(bins, len(h.Edges))] {
		x := left + cw*float64(j)
		s := Short(e)
		if w := textWidth(s, tickSize); x-w/2 > right+6 {
			d.Label(At(x, y+15), s, tickSize, Mute, anchorMiddle)
			right = x + w/2
		}
	}
	axisTitle(d, axis{P0: left, P1: left + cw*float64(bins)}, "lower edge of the bin ("+unitText(h.Unit)+")")
}

// maxLoadRuns is the largest number of runs that get a panel of load over time.
const maxLoadRuns = 15

// loadFigure shows running and waiting requests over each run.
func loadFigure(in Input) *Figure {
	if in.Inspect == nil {
		return nil
	}
	fig := loadCaption.blank()
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

// loadPanel draws the running and waiting requests of one run over time.
func loadPanel(r result.InspectRun) *Drawing {
	s := r.Series
	running := seriesPoints(s.Running, s.BinS)
	waiting := seriesPoints(s.Waiting, s.BinS)
	var ys Span
	ys.Take(0, 1)
	for _, xy := range append(append([][2]float64{}, running...), waiting...) {
		ys.Take(xy[1])
	}
	title := r.ID
	if r.Saturated {
		title += " · saturated"
	}
	p := NewFrame(PanelW, 190, title, Linear("time (s)", 0, s.BinS*float64(len(s.Running)), 5), Linear("requests", 0, ys.Hi, 4))
	p.Curve(running, Decode, 1.6, Solid)
	p.Curve(waiting, Prefill, 1.6, Dashed)
	return &p.Drawing
}

// seriesPoints returns the known values with the middle of their bins, of binS seconds. An unknown
// value becomes a gap.
func seriesPoints(vs []*float64, binS float64) [][2]float64 {
	var out [][2]float64
	for i, v := range vs {
		if v != nil {
			out = append(out, [2]float64{(float64(i) + 0.5) * binS, *v})
		} else if len(out) > 0 {
			out = append(out, gap)
		}
	}
	return out
}
