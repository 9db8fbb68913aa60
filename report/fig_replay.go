package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// maxReplayRuns is how many runs get their own panels of curves, three each.
const maxReplayRuns = 8

var metricNames = []string{"ttft", "itl", "e2e"}

// metric picks one of the gated metrics by name.
func metric(m *result.Metrics, name string) *result.Metric {
	switch {
	case m == nil:
		return nil
	case name == "ttft":
		return m.TTFT
	case name == "itl":
		return m.ITL
	case name == "e2e":
		return m.E2E
	}
	return nil
}

// variants are the lines of a replay figure.
var variants = []struct {
	name string
	text string
	p    paint
	dash int
	wide float64
}{
	{result.VariantReal, "real", ink, solid, 2.2},
	{result.VariantPlain, "simulated, plain (gates)", decode, solid, 1.8},
	{result.VariantNoise, "simulated, noise", mixed, dashed, 1.5},
	{result.VariantDrift, "simulated, drift-corrected", prefill, dotted, 1.8},
}

func variantKeys(present map[string]bool, skip string) []key {
	var out []key
	for _, v := range variants {
		if v.name != skip && present[v.name] {
			out = append(out, key{p: v.p, dash: v.dash, text: v.text})
		}
	}
	return out
}

// replayRuns are the runs with curves, those that gate first, and by the
// largest plain KS when there are more than the page draws.
func replayRuns(in Input) (runs []result.ValidationRun, more string) {
	if in.Validation == nil {
		return nil, ""
	}
	for _, r := range in.Validation.Runs {
		if r.Figures != nil && len(r.Figures.ECDF) > 0 {
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(replayRank(a), replayRank(b)) })
	if len(runs) <= maxReplayRuns {
		return runs, ""
	}
	more = fmt.Sprintf("%d of %d comparisons: those that gate first, then the largest plain KS; the table holds all.", maxReplayRuns, len(runs))
	slices.SortStableFunc(runs, func(a, b result.ValidationRun) int {
		return cmp.Or(cmp.Compare(replayRank(a), replayRank(b)), cmp.Compare(largestKS(b), largestKS(a)))
	})
	return runs[:maxReplayRuns], more
}

// replayRank puts what gates first: open loops with enough requests, then
// other open loops, the longer comparison first, then closed loops and
// saturated runs.
func replayRank(r result.ValidationRun) int {
	switch {
	case r.Load == "closed" || r.Saturated:
		return 3
	case r.Sufficient:
		return 0
	case r.Split.Kind == result.SplitInSample:
		return 1
	}
	return 2
}

func largestKS(r result.ValidationRun) float64 {
	worst := -1.0
	for _, name := range metricNames {
		if m := metric(r.Metrics, name); m != nil {
			worst = max(worst, m.KSD)
		}
	}
	return worst
}

// phaseTitle names a run and its phase.
func phaseTitle(r result.ValidationRun) string {
	if r.Phase == "" {
		return r.ID
	}
	return r.ID + " · " + r.Phase
}

// runTitle also says when the comparison is in-sample.
func runTitle(r result.ValidationRun) string {
	s := phaseTitle(r)
	if r.Split.Kind == result.SplitInSample {
		s += " · in-sample"
	}
	return s
}

// ecdfFigure shows real and simulated distributions with the KS gap marked.
func ecdfFigure(in Input) *figure {
	runs, more := replayRuns(in)
	fig := &figure{
		id: "ecdf", title: "TTFT, ITL and E2E, real and simulated", more: more,
		note: "Share of requests faster than a time. The red bar is the largest vertical gap between real and plain simulation: KS D. Good: lines on top of each other. Bad: a shift (a wrong overhead or step time), a simulation that is too steep (missing noise), or lines that part only in the tail (queueing).",
	}
	present := map[string]bool{}
	for _, r := range runs {
		for _, m := range metricNames {
			if d := ecdfPanel(r, m, present); d != nil {
				fig.panels = append(fig.panels, panel{d: d, desc: fmt.Sprintf("distribution of %s of %s, real and simulated", strings.ToUpper(m), runTitle(r))})
			}
		}
	}
	fig.legend = variantKeys(present, "")
	if len(fig.legend) > 0 {
		fig.legend = append(fig.legend, key{p: bad, text: "KS gap"})
	}
	return fig
}

func ecdfPanel(r result.ValidationRun, name string, present map[string]bool) *drawing {
	var xs span
	for _, c := range r.Figures.ECDF {
		if c.Metric == name {
			for _, v := range c.Points {
				xs.take(v[0])
			}
		}
	}
	if !xs.ok {
		return nil
	}
	m := metric(r.Metrics, name)
	title := strings.ToUpper(name) + " · " + runTitle(r)
	p := newFrame(panelW, panelH, title, timeAxis(strings.ToUpper(name), xs), linear("share of requests", 0, 1, 4))
	for _, v := range variants {
		for _, c := range r.Figures.ECDF {
			if c.Metric == name && c.Variant == v.name {
				present[v.name] = true
				p.stairs(c.Points, v.p, v.wide, v.dash)
			}
		}
	}
	if m != nil {
		markGap(p, m)
	}
	return &p.drawing
}

// markGap draws the KS gap where it occurs.
func markGap(p *frame, m *result.Metric) {
	if !p.inside(m.DAtMs, 0.5) {
		return
	}
	a, b := p.at(m.DAtMs, m.DRealCDF), p.at(m.DAtMs, m.DSimCDF)
	p.seg(a, b, bad, 3, solid)
	text := "D = " + share3(m.KSD)
	at := point{a.x + 7, (a.y+b.y)/2 + 4}
	anchor := anchorStart
	if at.x+textWidth(text, labelSize) > p.x.p1 {
		at.x, anchor = a.x-7, anchorEnd
	}
	w := textWidth(text, labelSize) + 4
	left := at.x - 3
	if anchor == anchorEnd {
		left = at.x - w + 3
	}
	p.rect(point{left, at.y - 11}, point{left + w, at.y + 4}, surface, 0.8, "")
	p.heading(at, text, labelSize, bad, anchor)
}

// timeAxis is logarithmic when the values span more than a factor of 30.
func timeAxis(what string, s span) axis {
	if s.lo > 0 && s.hi/s.lo > 30 {
		lo, hi := widened(s.lo, s.hi)
		return logarithmic(what+" (ms, logarithmic)", lo, hi)
	}
	return linear(what+" (ms)", min(s.lo, s.hi), s.hi, 5)
}

// qqFigure compares quantiles.
func qqFigure(in Input) *figure {
	runs, more := replayRuns(in)
	fig := &figure{
		id: "qq", title: "Quantiles, simulated against real (QQ)", more: more, closed: true,
		note: "Each point is the same quantile of both sides. Good: on the line. Bad: a constant offset (overhead), a slope other than one (step time), or an end that bends away (queueing or stalls that the model does not have).",
	}
	present := map[string]bool{}
	for _, r := range runs {
		for _, m := range metricNames {
			if d := qqPanel(r, m, present); d != nil {
				fig.panels = append(fig.panels, panel{d: d, desc: fmt.Sprintf("quantiles of %s of %s, simulated against real", strings.ToUpper(m), runTitle(r))})
			}
		}
	}
	fig.legend = variantKeys(present, result.VariantReal)
	return fig
}

func qqPanel(r result.ValidationRun, name string, present map[string]bool) *drawing {
	var s span
	for _, c := range r.Figures.QQ {
		if c.Metric == name {
			for _, v := range c.Points {
				s.take(v[0], v[1])
			}
		}
	}
	if !s.ok {
		return nil
	}
	upper := strings.ToUpper(name)
	p := newFrame(panelW, panelH, upper+" · "+runTitle(r), timeAxis("real "+upper, s), timeAxis("simulated "+upper, s))
	p.diagonal(1, ink, solid)
	for _, v := range variants {
		for _, c := range r.Figures.QQ {
			if c.Metric == name && c.Variant == v.name {
				present[v.name] = true
				p.curve(c.Points, v.p, v.wide, v.dash)
				if v.name == result.VariantPlain {
					for i, xy := range thin(c.Points) {
						if i%4 == 0 {
							p.dot(p.at(xy[0], xy[1]), 2.2, v.p, 0, "")
						}
					}
				}
			}
		}
	}
	return &p.drawing
}

// maxDriftRuns is how many runs get a drift panel.
const maxDriftRuns = 24

// driftFigure shows how the machine's speed moved under the model.
func driftFigure(in Input) *figure {
	if in.Validation == nil {
		return nil
	}
	fig := &figure{
		id: "drift", title: "Did the machine change speed? Measured over predicted step time",
		note: "Medians over 20-second blocks; the band is 0.9 to 1.1. Good: a flat line inside the band. Bad: a line that leaves it: the machine drifted, and plain replay errors of that run are the machine's as much as the model's. A flat line off 1 is the model's.",
		legend: []key{
			{p: decode, text: "inside 0.9–1.1"}, {p: bad, text: "leaves 0.9–1.1"}, {p: gridLine, area: true, text: "0.9–1.1"},
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
		fig.more = fmt.Sprintf("The %d runs that drift most, of %d.", maxDriftRuns, len(runs))
		slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(farthest(b), farthest(a)) })
		runs = runs[:maxDriftRuns]
	}
	for _, r := range runs {
		fig.panels = append(fig.panels, panel{d: driftPanel(r), desc: "measured over predicted step time of " + r.ID + " over time"})
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

// driftBlockS is the length of one block of the drift curve, seconds.
const driftBlockS = 20

func driftPanel(r result.ValidationRun) *drawing {
	var xs, ys span
	ys.take(0.85, 1.15)
	leaves := false
	for _, d := range r.Drift {
		xs.take(d.StartS, d.StartS+driftBlockS)
		ys.take(d.Factor)
		leaves = leaves || d.Factor < 0.9 || d.Factor > 1.1
	}
	p := newFrame(panelW, 200, r.ID, linear("time since the first row (s)", xs.lo, xs.hi, 5), linear("measured / predicted", ys.lo, ys.hi, 4))
	p.rect(p.at(p.x.lo, 0.9), p.at(p.x.hi, 1.1), gridLine, 0.8, "")
	p.level(1, axisLine, solid, "")
	colour := decode
	if leaves {
		colour = bad
	}
	var pts [][2]float64
	for _, d := range r.Drift {
		pts = append(pts, [2]float64{d.StartS, d.Factor}, [2]float64{d.StartS + driftBlockS, d.Factor})
	}
	p.curve(pts, colour, 2, solid)
	return &p.drawing
}
