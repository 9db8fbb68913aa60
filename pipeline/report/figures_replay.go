package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/result"
)

// maxReplayRuns is how many runs get their own panels of curves, three each.
const maxReplayRuns = 8

// variants are the lines of a replay figure.
var variants = []struct {
	name string
	text string
	p    Paint
	dash int
	wide float64
}{
	{result.VariantReal, "real", ink, Solid, 2.2},
	{result.VariantPlain, "simulated, plain (gates)", Decode, Solid, 1.8},
	{result.VariantNoise, "simulated, noise", Mixed, Dashed, 1.5},
	{result.VariantDrift, "simulated, drift-corrected", Prefill, dotted, 1.8},
}

func variantKeys(present map[string]bool, skip string) []Key {
	var out []Key
	for _, v := range variants {
		if v.name != skip && present[v.name] {
			out = append(out, Key{P: v.p, Dash: v.dash, Text: v.text})
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
	slices.SortStableFunc(runs, func(a, b result.ValidationRun) int { return cmp.Compare(result.ReplayRank(&a), result.ReplayRank(&b)) })
	if len(runs) <= maxReplayRuns {
		return runs, ""
	}
	more = fmt.Sprintf("%d of %d comparisons: those that gate first, then the largest plain KS; the table holds all.", maxReplayRuns,
		len(runs))
	slices.SortStableFunc(runs, func(a, b result.ValidationRun) int {
		return result.ByReplayRank(&a, &b)
	})
	return runs[:maxReplayRuns], more
}

// ecdfFigure shows real and simulated distributions with the KS gap marked.
func ecdfFigure(in Input) *Figure {
	runs, more := replayRuns(in)
	fig := &Figure{
		ID: "ecdf", Title: "TTFT, ITL and E2E, real and simulated", More: more,
		Note: "Share of requests faster than a time. The red bar is the largest vertical gap between real and plain simulation: KS D. Good: " +
			"lines on top of each other. Bad: a shift (a wrong overhead or step time), a simulation that is too steep (missing noise), or " +
			"lines that part only in the tail (queueing).",
	}
	present := map[string]bool{}
	for _, r := range runs {
		for _, m := range metricNames {
			if d := ecdfPanel(r, m, present); d != nil {
				fig.Panels = append(fig.Panels,
					Panel{D: d, Desc: fmt.Sprintf("distribution of %s of %s, real and simulated", strings.ToUpper(m), runTitle(r))})
			}
		}
	}
	fig.Legend = variantKeys(present, "")
	if len(fig.Legend) > 0 {
		fig.Legend = append(fig.Legend, Key{P: bad, Text: "KS gap"})
	}
	return fig
}

func ecdfPanel(r result.ValidationRun, name string, present map[string]bool) *Drawing {
	var xs Span
	for _, c := range r.Figures.ECDF {
		if c.Metric == name {
			for _, v := range c.Points {
				xs.Take(v[0])
			}
		}
	}
	if !xs.Ok {
		return nil
	}
	m := metric(r.Metrics, name)
	title := strings.ToUpper(name) + " · " + runTitle(r)
	p := NewFrame(PanelW, PanelH, title, timeAxis(strings.ToUpper(name), xs), Linear("share of requests", 0, 1, 4))
	for _, v := range variants {
		for _, c := range r.Figures.ECDF {
			if c.Metric == name && c.Variant == v.name {
				present[v.name] = true
				p.Stairs(c.Points, v.p, v.wide, v.dash)
			}
		}
	}
	if m != nil {
		markGap(p, m)
	}
	return &p.Drawing
}

// markGap draws the KS gap where it occurs.
func markGap(p *frame, m *result.Metric) {
	if !p.Inside(m.DAtMs, 0.5) {
		return
	}
	a, b := p.At(m.DAtMs, m.DRealCDF), p.At(m.DAtMs, m.DSimCDF)
	p.Seg(a, b, bad, 3, Solid)
	text := "D = " + statistic(m.KSD)
	at := At(a.X+7, (a.Y+b.Y)/2+4)
	anchor := anchorStart
	if at.X+textWidth(text, labelSize) > p.X.P1 {
		at.X, anchor = a.X-7, anchorEnd
	}
	w := textWidth(text, labelSize) + 4
	left := at.X - 3
	if anchor == anchorEnd {
		left = at.X - w + 3
	}
	p.Rect(At(left, at.Y-11), At(left+w, at.Y+4), surface, 0.8, "")
	p.Heading(at, text, labelSize, bad, anchor)
}

// timeAxis is logarithmic when the values span more than a factor of 30.
func timeAxis(what string, s Span) axis {
	if s.Lo > 0 && s.Hi/s.Lo > 30 {
		lo, hi := Widened(s.Lo, s.Hi)
		return Logarithmic(what+" (ms, logarithmic)", lo, hi)
	}
	return Linear(what+" (ms)", min(s.Lo, s.Hi), s.Hi, 5)
}

// qqFigure compares quantiles.
func qqFigure(in Input) *Figure {
	runs, more := replayRuns(in)
	fig := &Figure{
		ID: "qq", Title: "Quantiles, simulated against real (QQ)", More: more, Closed: true,
		Note: "Each point is the same quantile of both sides. Good: on the line. Bad: a constant offset (overhead), a slope other than one " +
			"(step time), or an end that bends away (queueing or stalls that the model does not have).",
	}
	present := map[string]bool{}
	for _, r := range runs {
		for _, m := range metricNames {
			if d := qqPanel(r, m, present); d != nil {
				fig.Panels = append(fig.Panels,
					Panel{D: d, Desc: fmt.Sprintf("quantiles of %s of %s, simulated against real", strings.ToUpper(m), runTitle(r))})
			}
		}
	}
	fig.Legend = variantKeys(present, result.VariantReal)
	return fig
}

func qqPanel(r result.ValidationRun, name string, present map[string]bool) *Drawing {
	var s Span
	for _, c := range r.Figures.QQ {
		if c.Metric == name {
			for _, v := range c.Points {
				s.Take(v[0], v[1])
			}
		}
	}
	if !s.Ok {
		return nil
	}
	upper := strings.ToUpper(name)
	p := NewFrame(PanelW, PanelH, upper+" · "+runTitle(r), timeAxis("real "+upper, s), timeAxis("simulated "+upper, s))
	p.Diagonal(1, ink, Solid)
	for _, v := range variants {
		for _, c := range r.Figures.QQ {
			if c.Metric == name && c.Variant == v.name {
				present[v.name] = true
				p.Curve(c.Points, v.p, v.wide, v.dash)
				if v.name == result.VariantPlain {
					for i, xy := range sparse(c.Points) {
						if i%4 == 0 {
							p.Dot(p.At(xy[0], xy[1]), 2.2, v.p, 0, "")
						}
					}
				}
			}
		}
	}
	return &p.Drawing
}
