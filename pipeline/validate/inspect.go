package validate

import (
	"fmt"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Inspection is what Inspect looks at. Steps and Records may be nil: the
// figures that need them are then null.
type Inspection struct {
	Run        *trace.Run
	Deployment *deploy.Deployment
	Steps      *rows.Steps         // batches rebuilt
	Audit      *result.TargetAudit // what the run's stamps measure
	Read       *int                // records of extract.json
	Dropped    *int
	Lag        *result.RunLag // from the fit stage
	Evidence   []result.LagEvidence
}

// Inspect reports the data quality of one run before any fit. A run is unfit,
// with the reason in one sentence, when it is empty, has no step summaries, is
// saturated, has no usable batch, or has a step-time target below the time that
// reading the weights takes.
func Inspect(in Inspection) result.InspectRun {
	run, dep := in.Run, in.Deployment
	out := result.InspectRun{
		ID: run.ID, Config: dep.Config(), Model: dep.Model.ID, Hardware: dep.Hardware.Name, TP: dep.TP,
		SpanS: spanS(run), Requests: countRequests(run, dep), Losses: countLosses(run),
		Clocks: compareClocks(run), Audit: in.Audit, Lag: in.Lag, LagEvidence: in.Evidence,
		Series: loadSeries(run), Findings: []trace.Finding{},
	}
	out.Losses.RecordsRead, out.Losses.RecordsDropped = in.Read, in.Dropped
	if out.LagEvidence == nil {
		out.LagEvidence = []result.LagEvidence{}
	}
	sat := Saturate(run, dep)
	out.Saturated, out.Saturation = sat.Run.Saturated, sat.Run.Checks
	out.Phases = inspectPhases(run, sat)
	if in.Steps != nil {
		out.Steps = stepQuality(in.Steps.Quality)
		out.Coverage = coverage(in.Steps)
		out.Findings = append(out.Findings, in.Steps.Findings...)
	}
	out.Findings = append(out.Findings, inspectFindings(&out)...)
	out.Reason = unfitReason(&out, in.Steps)
	out.Unfit = out.Reason != ""
	return out
}

// unfitReason is one sentence, or empty for a run that may be fitted.
func unfitReason(r *result.InspectRun, steps *rows.Steps) string {
	switch {
	case r.Requests.Total == 0 && r.Steps.Recorded == 0 && r.Requests.Observed == 0:
		return fmt.Sprintf("run %s is empty: it holds neither requests nor steps", r.ID)
	case r.Saturated:
		return fmt.Sprintf("run %s is saturated: %s", r.ID, hitText(r.Saturation))
	case steps != nil && r.Steps.Recorded == 0:
		return fmt.Sprintf("run %s holds no step summaries, so no step time can be fitted", r.ID)
	case r.Audit != nil && belowFloor(r.Audit):
		return fmt.Sprintf("run %s has a median step cadence of %.0f us, below the %.0f us that reading the weights once takes", r.ID, *r.Audit.CadenceUsP50, *r.Audit.PhysicalFloorUs)
	case steps != nil && r.Steps.Known == 0:
		return fmt.Sprintf("run %s has no step whose batch is known, so no row can be built", r.ID)
	}
	return ""
}

func belowFloor(a *result.TargetAudit) bool {
	return a.CadenceUsP50 != nil && a.PhysicalFloorUs != nil && *a.CadenceUsP50 < *a.PhysicalFloorUs
}

// hitText lists the checks that hit with value and threshold.
func hitText(checks []result.SaturationCheck) string {
	var hits []string
	for _, c := range checks {
		if c.Hit {
			hits = append(hits, fmt.Sprintf("%s %.2f > %.2f", c.Name, *c.Value, c.Threshold))
		}
	}
	return strings.Join(hits, ", ")
}

func inspectPhases(run *trace.Run, sat *Saturation) []result.InspectPhase {
	out := []result.InspectPhase{}
	for _, p := range sat.Phases {
		w := windowOf(run, deploy.Phase{StartNs: p.StartNs, EndNs: p.EndNs})
		ph := result.InspectPhase{
			Name: p.Name, Load: p.Load, Requests: len(w.requests), Steps: len(w.steps),
			Saturated: p.Saturated, Saturation: p.Checks,
		}
		ph.SpanS = phaseSpanS(run, p)
		if ph.SpanS > 0 {
			rate := float64(ph.Requests) / ph.SpanS
			ph.RateRPS = &rate
		}
		out = append(out, ph)
	}
	return out
}

func phaseSpanS(run *trace.Run, p PhaseVerdict) float64 {
	if p.Name != "" {
		return float64(p.EndNs-p.StartNs) / nsPerS
	}
	if s := spanS(run); s != nil {
		return *s
	}
	return 0
}

func stepQuality(q rows.Quality) result.StepQuality {
	known := q.Rich + q.Journey + q.Approximate
	return result.StepQuality{
		Recorded: q.Recorded, Known: known, FromSnapshots: q.Rich, Reconstructed: q.Journey,
		Approximate: q.Approximate, Contradictions: q.Contradictions, KnownShare: share(known, q.Recorded),
	}
}

// inspectFindings turns figures that need attention into findings.
func inspectFindings(r *result.InspectRun) []trace.Finding {
	var out []trace.Finding
	add := func(code trace.Code, format string, args ...any) {
		out = append(out, trace.Findingf(code, "run "+r.ID+": "+format, args...))
	}
	if r.Saturated {
		add(CodeSaturated, "%s", hitText(r.Saturation))
	}
	if n := r.Losses.DroppedSpanEvents; n > 0 {
		add(CodeLossyRun, "%d span events were dropped while recording, %d snapshots lost their step", n, r.Losses.OrphanSnapshots)
	}
	if s := r.Losses.AdjacentShare; s != nil && *s < 0.5 {
		add(CodeSparseSteps, "%.0f %% of the recorded steps have a recorded successor, want >= 50 %%", 100**s)
	}
	if r.Clocks.NegativeIntervals > 0 {
		add(CodeNegativeIntervals, "%d requests have stamps that run backwards", r.Clocks.NegativeIntervals)
	}
	if s := r.Clocks.OffsetSpreadMs; s != nil && *s > clockJumpMs {
		add(CodeClockJump, "wall minus monotonic clock spreads over %.0f ms, want <= %d ms", *s, clockJumpMs)
	}
	if q := r.Requests; q.Engine > 0 && float64(q.APIUnlinked) > 0.05*float64(q.Engine) {
		add(CodeUnlinkedRequests, "%d of %d core spans have no API span", q.APIUnlinked, q.Engine)
	}
	if n := r.Requests.StopStringEnds; n > 0 {
		add(CodeStopStringEnds, "%d requests were ended by a stop string and count as successes", n)
	}
	for _, h := range r.Coverage {
		if h.Absent != "" {
			add(rows.RegimeAbsent, "%s", h.Absent)
		}
	}
	return out
}
