package report

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/result"
)

// auditsOf are the target audits of the fit, or of the inspection without one.
func auditsOf(in Input) []result.TargetAudit {
	if in.Fit != nil && len(in.Fit.Beta.TargetAudit) > 0 {
		return in.Fit.Beta.TargetAudit
	}
	var out []result.TargetAudit
	if in.Inspect != nil {
		for _, r := range in.Inspect.Runs {
			if r.Audit != nil {
				out = append(out, *r.Audit)
			}
		}
	}
	return out
}

// lagsOf is the lag evidence of the fit, or of the inspection without one.
func lagsOf(in Input) (evidence []result.LagEvidence, used map[string]result.RunLag) {
	if in.Fit != nil && len(in.Fit.Beta.LagEvidence) > 0 {
		return in.Fit.Beta.LagEvidence, in.Fit.Beta.PipelineLag
	}
	used = map[string]result.RunLag{}
	if in.Inspect != nil {
		for _, r := range in.Inspect.Runs {
			evidence = append(evidence, r.LagEvidence...)
			if r.Lag != nil {
				used[r.ID] = *r.Lag
			}
		}
	}
	return evidence, used
}

// targetFigure shows what step.duration_us and the cadence are beside the
// physical floor.
func targetFigure(in Input) *figure {
	audits := auditsOf(in)
	fig := &figure{
		id: "target-audit", title: "What the candidate targets measure",
		note: "The cadence (time between the starts of two steps) is the step time. Look for the duration far left of it: step.duration_us is scheduler CPU time and no target. Bad: a target left of the tick, which is the time the hardware needs just to read the weights.",
		legend: []key{
			{p: decode, area: true, text: "cadence, median"}, {p: prefill, area: true, text: "step.duration_us, median"}, {p: ink, area: true, text: "physical floor (tick)"},
		},
	}
	var s span
	var rows []chartRow
	for _, a := range audits {
		r := chartRow{name: a.Run}
		add := func(v *float64, p paint, bar bool, what string) {
			if v != nil && *v > 0 {
				s.take(*v / 1000)
				r.marks = append(r.marks, rowMark{v: *v / 1000, p: p, bar: bar, tip: fmt.Sprintf("%s: %s %s ms", a.Run, what, short(*v/1000))})
			}
		}
		add(a.PhysicalFloorUs, ink, true, "floor")
		add(a.DurationUsP50, prefill, false, "duration")
		add(a.CadenceUsP50, decode, false, "cadence")
		r.join = true
		rows = append(rows, r)
	}
	return rowFigure(fig, rows, s, "median (ms, logarithmic)", len(audits))
}

// pickupFigure shows where the wait for the running step hides.
func pickupFigure(in Input) *figure {
	fig := &figure{
		id: "pickup-audit", title: "Arrived, picked up, scheduled",
		note: "QUEUED is stamped when the engine loop picks a request up between two steps. Look for ARRIVED to QUEUED near one step time and QUEUED to SCHEDULED near zero: then the wait for the running step hides in what looks like API overhead, and a replay must start from ARRIVED.",
		legend: []key{
			{p: decode, area: true, text: "ARRIVED to QUEUED, median"}, {p: mixed, area: true, text: "ARRIVED to QUEUED, P90"},
			{p: prefill, area: true, text: "QUEUED to SCHEDULED, median"}, {p: other, area: true, text: "QUEUED to SCHEDULED, P90"},
		},
	}
	var s span
	var rows []chartRow
	for _, a := range auditsOf(in) {
		r := chartRow{name: a.Run}
		add := func(v *float64, p paint, what string) {
			if v != nil && *v > 0 {
				s.take(*v / 1000)
				r.marks = append(r.marks, rowMark{v: *v / 1000, p: p, tip: fmt.Sprintf("%s: %s %s ms", a.Run, what, short(*v/1000))})
			}
		}
		add(a.ArrivedToQueuedUs.P50, decode, "arrived to queued, median")
		add(a.ArrivedToQueuedUs.P90, mixed, "arrived to queued, P90")
		add(a.QueuedToScheduledUs.P50, prefill, "queued to scheduled, median")
		add(a.QueuedToScheduledUs.P90, other, "queued to scheduled, P90")
		if len(r.marks) > 0 {
			rows = append(rows, r)
		}
	}
	return rowFigure(fig, rows, s, "wait (ms, logarithmic)", len(rows))
}

// lagFigure shows the hold-out error of each candidate lag.
func lagFigure(in Input) *figure {
	evidence, used := lagsOf(in)
	fig := &figure{
		id: "lag-audit", title: "Which step an interval times: error by lag",
		note: "Error on held-out intervals that contain prefill, per candidate lag; the ring is the lag used (none: the run was left out of the fit). Good: the ringed dot clearly left of the others. Bad: three dots together (the data cannot tell, the lag was assumed) or a ring that is not leftmost.",
		legend: []key{
			{p: decode, area: true, text: "lag 0"}, {p: prefill, area: true, text: "lag 1"}, {p: mixed, area: true, text: "lag 2"},
		},
	}
	lagPaints := []paint{decode, prefill, mixed}
	var s span
	var rows []chartRow
	index := map[string]int{}
	for _, e := range evidence {
		if e.HoldoutMAPEPrefill == nil || !(*e.HoldoutMAPEPrefill > 0) || e.Lag < 0 || e.Lag >= len(lagPaints) {
			continue
		}
		i, ok := index[e.Run]
		if !ok {
			i = len(rows)
			index[e.Run] = i
			rows = append(rows, chartRow{name: e.Run, join: true})
		}
		v := *e.HoldoutMAPEPrefill * 100
		s.take(v)
		tip := fmt.Sprintf("%s: lag %d %s, %d intervals", e.Run, e.Lag, pct(v/100), e.N)
		rows[i].marks = append(rows[i].marks, rowMark{v: v, p: lagPaints[e.Lag], tip: tip})
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			rows[i].marks = append(rows[i].marks, rowMark{v: v, p: ink, ring: true, tip: tip + ", used"})
		}
	}
	return rowFigure(fig, rows, s, "MAPE on intervals with prefill (%, logarithmic)", len(rows))
}

// rowFigure finishes a figure of named rows on a log axis.
func rowFigure(fig *figure, rows []chartRow, s span, label string, total int) *figure {
	if len(rows) == 0 || !s.ok {
		return nil
	}
	if len(rows) > maxChartRows {
		fig.more = fmt.Sprintf("The first %d of %d runs; the table holds more.", maxChartRows, total)
		rows = rows[:maxChartRows]
	}
	lo, hi := widened(s.lo, s.hi)
	fig.panels = bothWidths(fig.title+", one row per run", func(w float64) *drawing {
		return rowChart(w, rows, logarithmic(label, lo, hi))
	})
	return fig
}

// utilisationFigure shows what the time-like coefficients say about the hardware.
func utilisationFigure(in Input) *figure {
	if in.Fit == nil {
		return nil
	}
	fig := &figure{
		id: "utilisation", title: "Implied utilisation of the hardware",
		note:   "A time-like coefficient of 1e6 us/s is exactly the roofline. Look for dots between 0.1 and 1. Bad: right of 1 (faster than the data sheet allows: a wrong peak, a wrong model, or a term that carries another's cost) or far left (a term that absorbs overhead).",
		legend: []key{{p: decode, area: true, text: "identified within configurations"}, {p: other, area: true, text: "only between configurations, or by the prior"}},
	}
	var s span
	s.take(0.1, 1.2)
	var rows []chartRow
	for _, c := range in.Fit.Beta.Coefficients {
		u := c.ImpliedUtilisation
		if u == nil || !(*u > 0) {
			continue
		}
		p := decode
		if c.Identified != "within" {
			p = other
		}
		s.take(*u)
		rows = append(rows, chartRow{name: c.Name, marks: []rowMark{{v: *u, p: p, tip: fmt.Sprintf("%s: %s, identified %s", c.Name, short(*u), c.Identified)}}})
	}
	if len(rows) == 0 {
		return nil
	}
	lo, hi := widened(s.lo, s.hi)
	fig.panels = bothWidths("implied utilisation per time-like coefficient", func(w float64) *drawing {
		return rowChart(w, rows, logarithmic("implied utilisation (1 = roofline, logarithmic)", lo, hi), rowMark{v: 1, p: bad, tip: "roofline"})
	})
	return fig
}

// surfaceFigure is the cross-validation score over lambda and gamma.
func surfaceFigure(in Input) *figure {
	if in.Fit == nil || len(in.Fit.Beta.Grid) == 0 {
		return nil
	}
	fig := &figure{
		id: "cv-surface", title: "Cross-validation surface of the step-time model",
		note: "Held-out weighted squared relative error (1e-4 is an error of 1 %) per penalty λ (columns) and memory γ of the preemption average (rows); the orange frame is the choice. Good: a frame among the lowest values, on a flat plain. Bad: a frame on the edge of the grid, or a surface so flat that the penalty decides nothing.",
	}
	if l, g := gridAxes(in.Fit.Beta.Grid); len(l) > maxGrid || len(g) > maxGrid {
		fig.more = fmt.Sprintf("The smallest %d values of %d penalties and %d memories; fit.json holds all.", maxGrid, len(l), len(g))
	}
	for _, kind := range []struct {
		name  string
		score func(result.GridPoint) *float64
	}{
		{"forward folds in time, within configurations", func(g result.GridPoint) *float64 { return g.Within }},
		{"leave one configuration out", func(g result.GridPoint) *float64 { return g.Cross }},
	} {
		fig.panels = append(fig.panels, bothWidths("score by lambda and gamma, "+kind.name, func(w float64) *drawing {
			d := cvSurface(w, in.Fit.Beta, kind.score)
			if d == nil {
				return nil
			}
			titled := &drawing{w: d.w, h: d.h + 20}
			titled.heading(point{0, 13}, clip(kind.name, headSize, w), headSize, ink, anchorStart)
			titled.place(d, 0, 20)
			return titled
		})...)
	}
	return fig
}

// maxGrid is the most values of one grid axis that are drawn.
const maxGrid = 60

// gridAxes are the distinct penalties and memories of a grid, in order.
func gridAxes(grid []result.GridPoint) (lambdas, gammas []float64) {
	for _, g := range grid {
		lambdas, gammas = insert(lambdas, g.Lambda), insert(gammas, g.GammaEMA)
	}
	return lambdas, gammas
}

func cvSurface(w float64, m result.Model, score func(result.GridPoint) *float64) *drawing {
	if !slices.ContainsFunc(m.Grid, func(g result.GridPoint) bool { return score(g) != nil }) {
		return nil
	}
	lambdas, gammas := gridAxes(m.Grid)
	lambdas, gammas = lambdas[:min(len(lambdas), maxGrid)], gammas[:min(len(gammas), maxGrid)]
	h := heat{xLabel: "penalty λ", print: brief, log: true, mark: [2]int{-1, -1}}
	for _, l := range lambdas {
		h.cols = append(h.cols, short(l))
	}
	for _, g := range gammas {
		h.rows = append(h.rows, "γ = "+short(g))
		h.value = append(h.value, make([]*float64, len(lambdas)))
		h.tip = append(h.tip, make([]string, len(lambdas)))
	}
	for _, g := range m.Grid {
		i, drawnRow := slices.BinarySearch(gammas, g.GammaEMA)
		j, drawnCol := slices.BinarySearch(lambdas, g.Lambda)
		if !drawnRow || !drawnCol {
			continue
		}
		h.value[i][j] = score(g)
		h.tip[i][j] = fmt.Sprintf("λ %s, γ %s: within %s ± %s, cross %s", short(g.Lambda), short(g.GammaEMA), shortOr(g.Within), shortOr(g.SE), shortOr(g.Cross))
		if m.Lambda != nil && m.GammaEMA != nil && g.Lambda == *m.Lambda && g.GammaEMA == *m.GammaEMA {
			h.mark = [2]int{i, j}
		}
	}
	return h.drawing(w)
}

// insert keeps a sorted list of distinct values.
func insert(list []float64, v float64) []float64 {
	i, found := slices.BinarySearchFunc(list, v, cmp.Compare[float64])
	if found {
		return list
	}
	return slices.Insert(list, i, v)
}
