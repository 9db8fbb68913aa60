// Package inspect reports the data quality of one run before any fit: losses, clocks,
// saturation, coverage, and whether the run is fit to be used.
package validate

import (
	"fmt"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Inspection is what Inspect is told besides the recording: what extraction and
// the fit stage know; nil where they were not asked.
type Inspection struct {
	Extract  *result.ExtractRun
	Lag      *result.RunLag
	Evidence []result.LagEvidence
}

// Inspect reports the data quality of one run before any fit. A run is unfit,
// with the reason in one sentence, when it is empty, saturated, was served in a way
// that no feature covers, has no step summaries, a step-time target below the time
// that reading the weights takes, or no usable batch. Errors: a deployment that
// contradicts itself, batches that cannot be rebuilt.
func Inspect(run *trace.Run, dep *deploy.Deployment, in Inspection) (result.InspectRun, error) {
	losses, err := countLosses(run)
	if err != nil {
		return result.InspectRun{}, err
	}
	out := result.InspectRun{
		ID: run.ID, Config: dep.Config(), Model: dep.Model.ID, Hardware: dep.Hardware.Name, TP: dep.TP,
		SpanS: spanS(run), Requests: countRequests(run, dep), Losses: losses,
		Clocks: compareClocks(run), Lag: in.Lag, LagEvidence: append([]result.LagEvidence{}, in.Evidence...),
		Series: loadSeries(run), Coverage: []result.Histogram{}, Findings: []trace.Finding{},
	}
	if in.Extract != nil {
		addExtract(&out.Losses, in.Extract)
	}
	sat := OfRun(run, dep)
	out.Saturated, out.Saturation = sat.Run.Saturated, sat.Run.Checks
	out.Phases = inspectPhases(run, sat)
	refused := refusedOf(run, dep)
	if id := run.ID; len(run.Steps) > 0 && dep.CheckSupported() == nil {
		if err := inspectSteps(&out, run, dep); err != nil {
			return out, fmt.Errorf("run %s: %w", id, err)
		}
	}
	out.Findings = append(out.Findings, inspectFindings(&out)...)
	out.Findings = append(out.Findings, engineLog(run)...)
	out.Reason = unfitReason(&out, refused, len(run.Points), MeasuredSource(run) != SourceJourneys)
	out.Unfit = out.Reason != ""
	return out, nil
}

// inspectSteps rebuilds the batches and looks at what they hold.
func inspectSteps(out *result.InspectRun, run *trace.Run, dep *deploy.Deployment) error {
	sp, err := features.New(features.V11, dep)
	if err != nil {
		return err
	}
	id := run.ID
	steps, err := rows.RebuildLean(run, dep, features.V11)
	if err != nil {
		return err
	}
	out.Steps = rows.StepQuality(steps.Quality)
	audit := rows.ScoreAudit(id, steps.Audit(sp))
	out.Audit = &audit
	c := steps.Coverage()
	out.Coverage = coverage(c)
	out.Findings = append(out.Findings, steps.Findings...)
	out.Findings = append(out.Findings, c.Findings...)
	return nil
}

// unfitReason is one sentence, or empty for a run that may be fitted.
func unfitReason(r *result.InspectRun, refused *trace.Error, points int, requests bool) string {
	switch {
	case r.Requests.Total == 0 && r.Steps.Recorded == 0 && r.Requests.Observed == 0 && points == 0:
		return fmt.Sprintf("run %s is empty: it holds neither requests nor steps", r.ID)
	case refused != nil:
		return fmt.Sprintf("run %s: %v; %s", r.ID, refused, refused.Hint)
	case r.Saturated:
		return fmt.Sprintf("run %s is saturated: %s", r.ID, HitText(r.Saturation))
	case r.Steps.Recorded == 0 && (points > 0 || requests): // a fit learns from requests and load levels too
	case r.Steps.Recorded == 0:
		return fmt.Sprintf("run %s holds no step summaries, so no step time can be fitted", r.ID)
	case r.Audit != nil && belowFloor(r.Audit):
		return fmt.Sprintf("run %s has a median step cadence of %.0f us, below the %.0f us that reading the weights once takes", r.ID,
			*r.Audit.CadenceUsP50, *r.Audit.PhysicalFloorUs)
	case r.Steps.Known == 0:
		return fmt.Sprintf("run %s has no step whose batch is known, so no row can be built", r.ID)
	}
	return ""
}

func belowFloor(a *result.TargetAudit) bool {
	return a.CadenceUsP50 != nil && a.PhysicalFloorUs != nil && *a.CadenceUsP50 < *a.PhysicalFloorUs
}

func inspectPhases(run *trace.Run, sat *Verdicts) []result.InspectPhase {
	out := []result.InspectPhase{}
	for _, p := range sat.Phases {
		ph := result.InspectPhase{
			Name: p.Name, Load: p.Load, Requests: p.Requests, Steps: p.Steps,
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

func phaseSpanS(run *trace.Run, p phaseVerdict) float64 {
	if p.Name != "" {
		return float64(p.EndNs-p.StartNs) / nsPerSecond
	}
	if s := spanS(run); s != nil {
		return *s
	}
	return 0
}

// inspectFindings turns figures that need attention into findings.
func inspectFindings(r *result.InspectRun) []trace.Finding {
	var out []trace.Finding
	add := func(code trace.Code, format string, args ...any) {
		out = append(out, trace.Findingf(code, "run "+r.ID+": "+format, args...))
	}
	if r.Saturated {
		add(rows.Saturated, "%s", HitText(r.Saturation))
	}
	if n := r.Losses.DroppedSpanEvents; n > 0 {
		add(incomplete, "%d span events were dropped while recording, %d snapshots lost their step", n, r.Losses.OrphanSnapshots)
	}
	if s := r.Losses.AdjacentShare; s != nil && *s < 0.5 {
		add(incomplete, "%.0f %% of the recorded steps have a recorded successor, want >= 50 %%", 100**s)
	}
	if r.Clocks.NegativeIntervals > 0 {
		add(clockJump, "%d requests have stamps that run backwards", r.Clocks.NegativeIntervals)
	}
	if s := r.Clocks.OffsetSpreadMs; s != nil && *s > clockJumpMs {
		add(clockJump, "wall minus monotonic clock spreads over %.0f ms, want <= %d ms", *s, clockJumpMs)
	}
	if q := r.Requests; q.Engine > 0 && float64(q.APIUnlinked) > 0.05*float64(q.Engine) {
		add(incomplete, "%d of %d core spans have no API span", q.APIUnlinked, q.Engine)
	}
	if n := r.Requests.StopStringEnds; n > 0 {
		add(stopStringEnds, "%d requests were ended by a stop string and count as successes", n)
	}
	return out
}
