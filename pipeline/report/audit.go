package report

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

func targetAudit(in Input, figs []*Figure) PageSection {
	s := PageSection{ID: "audit", Nav: "Audit", Title: "Target and lag audit",
		Lead: "Whether the numbers that were fitted are what they are called."}
	audits := auditsOf(in)
	evidence, used := lagsOf(in)
	if len(audits) == 0 && len(evidence) == 0 {
		s.Missing = "No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		return s
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	t := &Table{ID: "audit-table", Caption: "Medians of what the stamps measure",
		Cols: []Column{{Head: "Run"}, {Head: "step.duration", Unit: "ms", Num: true}, {Head: "Cadence", Unit: "ms", Num: true},
			{Head: "Floor", Unit: "ms", Num: true, Help: "weight bytes over memory bandwidth"},
			{Head: "ARRIVED to QUEUED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true},
			{Head: "QUEUED to SCHEDULED", Unit: "ms, P50", Num: true}, {Head: "same", Unit: "ms, P90", Num: true}, {Head: "Verdict"}}}
	for _, a := range audits {
		t.Rows = append(t.Rows, Row{Cells: []Cell{
			Name(a.Run), millis(a.DurationUsP50), millis(a.CadenceUsP50), millis(a.PhysicalFloorUs),
			millis(a.ArrivedToQueuedUs.P50), millis(a.ArrivedToQueuedUs.P90),
			millis(a.QueuedToScheduledUs.P50), millis(a.QueuedToScheduledUs.P90), Prose(a.Verdict),
		}})
	}
	lt := &Table{ID: "lag-table", Caption: "Lag evidence", Closed: true,
		Cols: []Column{{Head: "Run"}, {Head: "Lag", Num: true}, {Head: "MAPE on intervals with prefill", Num: true},
			{Head: "Intervals", Num: true}, {Head: "Verdict"}, {Head: "Used"}}}
	for _, e := range evidence {
		mark := Cell{}
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			mark.Text = "used, assumed"
			if u.Measured {
				mark.Text = "used, measured"
			}
		}
		lt.Rows = append(lt.Rows, Row{Cells: []Cell{Name(e.Run), Count(e.Lag), Percent(e.HoldoutMAPEPrefill),
			Count(e.N), Plain(e.Verdict), mark}})
	}
	s.Blocks = append(s.Blocks, folded("For experts: medians of the stamps and evidence of the lag, run by run",
		Tables(Capped(t, "in the order of the file", "fit.json, beta.target_audit")),
		Tables(Capped(lt, "in the order of the file", "fit.json, beta.lag_evidence")))...)
	if len(evidence) == 0 {
		s.Blocks = append(s.Blocks, Block{Text: fmt.Sprintf("No lag evidence was recorded for %s: it needs intervals with more than 64 "+
			"prefill tokens.", Plural(len(audits), "run"))})
	}
	return s
}

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
func targetFigure(in Input) *Figure {
	audits := auditsOf(in)
	fig := &Figure{
		ID: "target-audit", Title: "What the candidate targets measure",
		Note: "The cadence (time between the starts of two steps) is the step time. Look for the duration far left of it: step.duration_us " +
			"is scheduler CPU time and no target. Bad: a target left of the tick, which is the time the hardware needs just to read the weights.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "cadence, median"}, {P: Prefill, Area: true, Text: "step.duration_us, median"},
			{P: ink, Area: true, Text: "physical floor (tick)"},
		},
	}
	var s Span
	var rows []ChartRow
	for _, a := range audits {
		r := ChartRow{Name: a.Run}
		add := func(v *float64, p Paint, bar bool, what string) {
			if v != nil && *v > 0 {
				s.Take(*v / 1000)
				r.Marks = append(r.Marks, RowMark{V: *v / 1000, P: p, Bar: bar,
					Tip: fmt.Sprintf("%s: %s %s ms", a.Run, what, Short(*v/1000))})
			}
		}
		add(a.PhysicalFloorUs, ink, true, "floor")
		add(a.DurationUsP50, Prefill, false, "duration")
		add(a.CadenceUsP50, Decode, false, "cadence")
		r.Join = true
		rows = append(rows, r)
	}
	return rowFigure(fig, rows, s, "median (ms, logarithmic)", len(audits))
}

// pickupFigure shows where the wait for the running step hides.
func pickupFigure(in Input) *Figure {
	fig := &Figure{
		ID: "pickup-audit", Title: "Arrived, picked up, scheduled",
		Note: "QUEUED is stamped when the engine loop picks a request up between two steps. Look for ARRIVED to QUEUED near one step time " +
			"and QUEUED to SCHEDULED near zero: then the wait for the running step hides in what looks like API overhead, and a replay must " +
			"start from ARRIVED.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "ARRIVED to QUEUED, median"}, {P: Mixed, Area: true, Text: "ARRIVED to QUEUED, P90"},
			{P: Prefill, Area: true, Text: "QUEUED to SCHEDULED, median"}, {P: Other, Area: true, Text: "QUEUED to SCHEDULED, P90"},
		},
	}
	var s Span
	var rows []ChartRow
	for _, a := range auditsOf(in) {
		r := ChartRow{Name: a.Run}
		add := func(v *float64, p Paint, what string) {
			if v != nil && *v > 0 {
				s.Take(*v / 1000)
				r.Marks = append(r.Marks, RowMark{V: *v / 1000, P: p, Tip: fmt.Sprintf("%s: %s %s ms", a.Run, what, Short(*v/1000))})
			}
		}
		add(a.ArrivedToQueuedUs.P50, Decode, "arrived to queued, median")
		add(a.ArrivedToQueuedUs.P90, Mixed, "arrived to queued, P90")
		add(a.QueuedToScheduledUs.P50, Prefill, "queued to scheduled, median")
		add(a.QueuedToScheduledUs.P90, Other, "queued to scheduled, P90")
		if len(r.Marks) > 0 {
			rows = append(rows, r)
		}
	}
	return rowFigure(fig, rows, s, "wait (ms, logarithmic)", len(rows))
}

// lagFigure shows the hold-out error of each candidate lag.
func lagFigure(in Input) *Figure {
	evidence, used := lagsOf(in)
	fig := &Figure{
		ID: "lag-audit", Title: "Which step an interval times: error by lag",
		Note: "Error on held-out intervals that contain prefill, per candidate lag; the ring is the lag used (none: the run was left out of " +
			"the fit). Good: the ringed dot clearly left of the others. Bad: three dots together (the data cannot tell, the lag was assumed) " +
			"or a ring that is not leftmost.",
		Legend: []Key{
			{P: Decode, Area: true, Text: "lag 0"}, {P: Prefill, Area: true, Text: "lag 1"}, {P: Mixed, Area: true, Text: "lag 2"},
		},
	}
	lagPaints := []Paint{Decode, Prefill, Mixed}
	var s Span
	var rows []ChartRow
	index := map[string]int{}
	for _, e := range evidence {
		if e.HoldoutMAPEPrefill == nil || !(*e.HoldoutMAPEPrefill > 0) || e.Lag < 0 || e.Lag >= len(lagPaints) {
			continue
		}
		i, ok := index[e.Run]
		if !ok {
			i = len(rows)
			index[e.Run] = i
			rows = append(rows, ChartRow{Name: e.Run, Join: true})
		}
		v := *e.HoldoutMAPEPrefill * 100
		s.Take(v)
		tip := fmt.Sprintf("%s: lag %d %s, %d intervals", e.Run, e.Lag, Pct(v/100), e.N)
		rows[i].Marks = append(rows[i].Marks, RowMark{V: v, P: lagPaints[e.Lag], Tip: tip})
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			rows[i].Marks = append(rows[i].Marks, RowMark{V: v, P: ink, Ring: true, Tip: tip + ", used"})
		}
	}
	return rowFigure(fig, rows, s, "MAPE on intervals with prefill (%, logarithmic)", len(rows))
}
