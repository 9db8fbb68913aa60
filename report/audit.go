package report

// This file makes the section on what the recorded stamps measure. The cadence is the time between
// the starts of two steps; the physical floor is the time that the hardware needs to read the
// weights once; the lag is the number of steps between a schedule() call and the interval that its
// execution fills.

import (
	"fmt"

	"github.com/blis-train/blis-train/result"
)

// auditSection returns the section on whether the fitted times measure what their names state, and
// on the lag (spec#target-audit, spec#lag).
func auditSection(in Input, figs []*Figure) Section {
	s := Section{ID: "audit", Nav: "Audit", Title: "Target and lag audit", Lead: "Whether the fitted times are the times of steps, and which step each interval measures."}
	audits := auditsOf(in)
	evidence, used := lagsOf(in)
	if len(audits) == 0 && len(evidence) == 0 {
		s.Missing = "No target audit: it is made by `blis-train fit OUT` and by `blis-train inspect OUT`."
		if in.Fit != nil && in.Fit.Requests != nil {
			s.Missing = "No steps were recorded: the coefficients were fitted to requests or load levels, and there is no step time to audit."
		}
		return s
	}
	s.Blocks = append(s.Blocks, FigureBlocks(figs)...)
	t := auditLayout.blank()
	for _, a := range audits {
		t.Put(Name(a.Run), millis(a.DurationUsP50), millis(a.CadenceUsP50), millis(a.PhysicalFloorUs), millis(a.ArrivedToQueuedUs.P50),
			millis(a.ArrivedToQueuedUs.P90), millis(a.QueuedToScheduledUs.P50), millis(a.QueuedToScheduledUs.P90), Prose(a.Verdict))
	}
	lt := lagLayout.blank()
	for _, e := range evidence {
		mark := Cell{}
		if u, ok := used[e.Run]; ok && u.Lag == e.Lag {
			mark.Text = "used, assumed"
			if u.Measured {
				mark.Text = "used, measured"
			}
		}
		lt.Put(Name(e.Run), Count(e.Lag), Percent(e.HoldoutMAPEPrefill), Count(e.N), Plain(e.Verdict), mark)
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

// auditsOf returns the target audits of the fit or, without one, of the inspection.
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

// lagsOf returns the evidence for each lag, and the lag that was used for each run, of the fit or,
// without one, of the inspection.
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

// auditMark is one median of an audit and how it is drawn.
type auditMark struct {
	us   func(*result.TargetAudit) *float64
	p    Paint
	what string // in the tooltip
}

// auditFigure draws a row of medians for each run, connected by a line if isJoined, on the axis
// label; nil without medians.
func auditFigure(in Input, caption Figure, label string, isJoined bool, marks ...auditMark) *Figure {
	var s Span
	var rows []ChartRow
	for _, a := range auditsOf(in) {
		r := ChartRow{Name: a.Run, Join: isJoined}
		for _, m := range marks {
			if us := m.us(&a); us != nil && *us > 0 {
				s.Take(*us / 1000)
				r.Marks = append(r.Marks, RowMark{V: *us / 1000, P: m.p, Bar: m.p == ink,
					Tip: fmt.Sprintf("%s: %s %s ms", a.Run, m.what, Short(*us/1000))})
			}
		}
		if len(r.Marks) > 0 {
			rows = append(rows, r)
		}
	}
	return rowFigure(caption.blank(), rows, s, label, len(rows))
}

// targetFigure compares step.duration_us and the cadence with the physical floor of each run.
func targetFigure(in Input) *Figure {
	return auditFigure(in, targetAuditCaption, "median (ms, logarithmic)", true,
		auditMark{func(a *result.TargetAudit) *float64 { return a.PhysicalFloorUs }, ink, "floor"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.DurationUsP50 }, Prefill, "duration"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.CadenceUsP50 }, Decode, "cadence"})
}

// pickupFigure draws the times from ARRIVED to QUEUED and from QUEUED to SCHEDULED of each run,
// which show between which stamps a request waits for the running step.
func pickupFigure(in Input) *Figure {
	return auditFigure(in, pickupAuditCaption, "wait (ms, logarithmic)", false,
		auditMark{func(a *result.TargetAudit) *float64 { return a.ArrivedToQueuedUs.P50 }, Decode, "arrived to queued, median"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.ArrivedToQueuedUs.P90 }, Mixed, "arrived to queued, P90"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.QueuedToScheduledUs.P50 }, Prefill, "queued to scheduled, median"},
		auditMark{func(a *result.TargetAudit) *float64 { return a.QueuedToScheduledUs.P90 }, Other, "queued to scheduled, P90"})
}

// lagFigure draws the error of each candidate lag on held-out intervals that contain prefill, and
// marks the lag that was used.
func lagFigure(in Input) *Figure {
	evidence, used := lagsOf(in)
	fig := lagAuditCaption.blank()
	lagPaints := []Paint{Decode, Prefill, Mixed}
	var s Span
	var rows []ChartRow
	index := map[string]int{} // of a run's row
	for _, e := range evidence {
		// A logarithmic axis shows no 0, and there is a colour for each lag of 0 to 2.
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
