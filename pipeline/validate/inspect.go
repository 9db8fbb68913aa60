package validate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// This file reports the data quality of one run before any fit: losses, clocks,
// saturation, coverage, and whether the run is fit to be used.

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
	out.Sources = sourcesOf(run, dep, in.Extract)
	sat := rows.VerdictsOf(run, dep)
	out.Saturated = sat.Run.Saturated
	out.Saturation = sat.Run.Checks
	out.Phases = inspectPhases(run, sat)
	refused := refusedOf(run, dep)
	if id := run.ID; len(run.Steps) > 0 && supported(dep) == nil {
		if err := inspectSteps(&out, run, dep); err != nil {
			return out, fmt.Errorf("run %s: %w", id, err)
		}
	}
	out.Findings = append(out.Findings, inspectFindings(&out)...)
	out.Findings = append(out.Findings, engineLog(run)...)
	out.Reason = unfitReason(&out, refused, len(run.Points), SourceOf(run) != result.SourceJourneys)
	out.Unfit = out.Reason != ""
	return out, nil
}

// inspectSteps rebuilds the batches and looks at what they hold.
func inspectSteps(out *result.InspectRun, run *trace.Run, dep *deploy.Deployment) error {
	sp, err := features.New(features.DefaultVersion(dep), dep)
	if err != nil {
		return err
	}
	steps, err := rows.Rebuild(run, dep, features.DefaultVersion(dep))
	if err != nil {
		return err
	}
	out.Steps = steps.Quality.StepQuality
	out.Audit = new(steps.Audit(sp))
	c := steps.Coverage()
	out.Coverage = []result.Histogram{c.PrefillTokens, c.DecodeBatch, c.Context, c.KVUsage}
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
		return fmt.Sprintf("run %s is saturated: %s", r.ID, rows.HitText(r.Saturation))
	case r.Steps.Recorded == 0 && (points > 0 || requests): // a fit learns from requests and load levels too
	case r.Steps.Recorded == 0:
		return fmt.Sprintf("run %s holds no step summaries, so no step time can be fitted", r.ID)
	case r.Audit != nil && r.Audit.BelowFloor():
		return fmt.Sprintf("run %s has a median step cadence of %.0f us, below the %.0f us that reading the weights once takes", r.ID,
			*r.Audit.CadenceUsP50, *r.Audit.PhysicalFloorUs)
	case r.Steps.Known == 0:
		return fmt.Sprintf("run %s has no step whose batch is known, so no row can be built", r.ID)
	}
	return ""
}

func inspectPhases(run *trace.Run, sat *rows.LoadVerdicts) []result.InspectPhase {
	out := []result.InspectPhase{}
	for _, p := range sat.Phases {
		ph := result.InspectPhase{Name: p.Name, Load: p.Load, Requests: p.Requests, Steps: p.Steps, Saturated: p.Saturated, Saturation: p.Checks}
		ph.SpanS = phaseSpanS(run, p)
		if ph.SpanS > 0 {
			ph.RateRPS = new(float64(ph.Requests) / ph.SpanS)
		}
		out = append(out, ph)
	}
	return out
}

func phaseSpanS(run *trace.Run, p rows.PhaseVerdict) float64 {
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
		add(rows.Saturated, "%s", rows.HitText(r.Saturation))
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

const (
	clockJumpMs = 100
	seriesBins  = 200
	nsPerSecond = 1e9
)

// countClients is countRequests of what clients saw, where nothing else was recorded.
func countClients(seen []trace.ObservedRequest, q *result.InspectRequests) {
	q.Total = len(seen)
	for i := range seen {
		switch r := &seen[i]; {
		case r.Success.Or(true):
			q.Finished++
		case r.Aborted.V:
			q.Aborted++
		default:
			q.Failed++
		}
	}
}

func countRequests(run *trace.Run, dep *deploy.Deployment) result.InspectRequests {
	q := result.InspectRequests{Total: len(run.Requests), Observed: len(run.Observed)}
	rate := dep.Tracing.JourneySampleRate
	q.JourneysSampled = rate.OK && rate.V < 1
	if len(run.Requests) == 0 {
		countClients(run.Observed, &q)
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		stock := r.Source == trace.SourceStock
		switch {
		case r.CoreID.OK || stock:
			q.Engine++
		default:
			q.CoreMissing++
		}
		if r.CoreID.OK && !r.APIID.OK && !stock {
			q.APIUnlinked++
		}
		switch {
		case !r.Success.OK:
			q.Unknown++
		case r.Success.V:
			q.Finished++
		case r.ClientAborted():
			q.Aborted++
		default:
			q.Failed++
		}
		if r.Success.V && r.FinishStatus.Or("") == trace.FinishAborted {
			q.StopStringEnds++
		}
		if r.Preemptions.Or(0) > 0 {
			q.Preempted++
		}
		if r.N.Or(1) > 1 {
			q.MultiSample++
		}
	}
	return q
}

func countLosses(run *trace.Run) (l result.InspectLosses, err error) {
	for i := range run.Requests {
		l.DroppedSpanEvents += int(run.Requests[i].DroppedEvents)
	}
	err = run.EachSnapshot(func(s *trace.Snapshot) {
		if s.Orphan {
			l.OrphanSnapshots++
		}
	})
	n := len(run.Steps)
	if n == 0 || err != nil {
		return l, err
	}
	ids := int(run.Steps[n-1].ID - run.Steps[0].ID + 1)
	l.MissingSteps = ids - n
	l.RecordedStepShare = result.Share(n, ids)
	adjacent := 0
	for i := 1; i < n; i++ {
		if run.Steps[i].ID == run.Steps[i-1].ID+1 {
			adjacent++
		}
	}
	l.AdjacentShare = result.Share(adjacent, max(1, n-1))
	return l, nil
}

// addExtract puts in what only extraction saw.
func addExtract(l *result.InspectLosses, e *result.ExtractRun) {
	read, dropped := int(e.Records.Read), 0
	for _, n := range e.Records.Dropped {
		dropped += int(n)
	}
	duplicates := int(e.Losses.DuplicateSpans)
	truncated := int(e.Losses.TruncatedMessages)
	l.RecordsRead = &read
	l.RecordsDropped = &dropped
	l.DuplicateSpans = &duplicates
	l.TruncatedMessages = &truncated
	l.DroppedSpanEvents = max(l.DroppedSpanEvents, int(e.Losses.DroppedSpanEvents))
}

// compareClocks looks at wall minus monotonic time of the steps (of the journey
// events without steps) and at stamps that run backwards inside a request.
func compareClocks(run *trace.Run) result.InspectClocks {
	c := result.InspectClocks{Engines: min(1, len(run.Steps)+len(run.Requests))}
	var offsetS []float64
	for _, s := range run.Steps {
		if run.Aggregate != nil { // made from lines that have one stamp
			break
		}
		// The stamp of the event is taken right after schedule() ends.
		offsetS = append(offsetS, float64(s.WallNs-s.TsEndNs)/nsPerSecond)
	}
	if len(offsetS) == 0 {
		for _, e := range run.Events {
			if e.TsNs.OK {
				offsetS = append(offsetS, float64(e.WallNs-e.TsNs.V)/nsPerSecond)
			}
		}
	}
	if len(offsetS) > 0 {
		o := stat.Sorted(offsetS)
		mid := stat.Quantile(o, 0.5)
		spread := 1e3 * (stat.Quantile(o, 0.95) - stat.Quantile(o, 0.05))
		c.OffsetS, c.OffsetSpreadMs = &mid, &spread
	}
	for i := range run.Requests {
		if run.Requests[i].RunsBackwards() {
			c.NegativeIntervals++
		}
	}
	return c
}

// bounds are the first and last monotonic stamp of steps and requests (of the
// wall clock for stock spans, of the client's clock without either).
func bounds(run *trace.Run) (lo, hi int64, ok bool) {
	see := func(stamps ...trace.Opt[int64]) {
		for _, at := range stamps {
			switch {
			case at.OK && ok:
				lo, hi = min(lo, at.V), max(hi, at.V)
			case at.OK:
				lo = at.V
				hi = at.V
				ok = true
			}
		}
	}
	for _, s := range run.Steps {
		see(trace.Some(s.TsStartNs))
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		if r.Source == trace.SourceStock { // on the wall clock, which steps of a log are not
			if len(run.Steps) == 0 {
				see(r.StartWallNs, r.EndWallNs)
			}
			continue
		}
		see(r.ArrivedNs, r.QueuedNs, r.FinishedNs, r.DepartedNs)
	}
	if ok {
		return lo, hi, ok
	}
	for i := range run.Observed {
		o := &run.Observed[i]
		see(o.SendNs, o.LastChunkNs, o.QueuedNs, o.EngineLastNs)
	}
	return lo, hi, ok
}

func spanS(run *trace.Run) *float64 {
	lo, hi, ok := bounds(run)
	if !ok {
		return nil
	}
	return new(float64(hi-lo) / nsPerSecond)
}

// loadSeries is the run in at most seriesBins equal bins of time.
func loadSeries(run *trace.Run) *result.LoadSeries {
	lo, hi, ok := bounds(run)
	if !ok || hi == lo {
		return nil
	}
	width := (hi-lo)/seriesBins + 1
	bin := func(at int64) int { return int(max(0, min((at-lo)/width, seriesBins-1))) }
	var running, waiting, usage, ttft [seriesBins][]float64
	for _, s := range run.Steps {
		b := bin(s.TsStartNs)
		running[b] = append(running[b], float64(s.RunningDepth))
		waiting[b] = append(waiting[b], float64(s.WaitingDepth))
		usage[b] = append(usage[b], s.KVUsage)
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		at, known := r.ArrivalNs()
		if v, ok := r.TTFTMs(); ok && known {
			ttft[bin(at)] = append(ttft[bin(at)], v)
		}
	}
	return &result.LoadSeries{
		BinS:    float64(width) / nsPerSecond,
		Running: each(running[:], stat.Mean), Waiting: each(waiting[:], stat.Mean),
		KVUsage: each(usage[:], stat.Mean), TTFTMs: each(ttft[:], stat.Median),
	}
}

// each applies f to every non-empty bin; empty ones are null.
func each(bins [][]float64, f func([]float64) float64) []*float64 {
	out := make([]*float64, len(bins))
	for i, b := range bins {
		if len(b) > 0 {
			out[i] = new(f(b))
		}
	}
	return out
}

// supported is nil where some specification says the deployment's steps.
func supported(dep *deploy.Deployment) error {
	_, err := dep.CheckStepTimes()
	return err
}

// refusedOf is why no step times can be had from a run: a way of serving that no
// feature covers (spec#supported), or iterations without times; nil for no reason.
func refusedOf(run *trace.Run, dep *deploy.Deployment) *trace.Error {
	if unsupported, ok := errors.AsType[*trace.Error](supported(dep)); ok {
		return unsupported
	}
	if run.Aggregate == nil {
		return nil
	}
	return run.Aggregate.Refused
}

// engineLog says what the recording of an unmodified engine can be used for; sourcesOf, which
// option would give more.
func engineLog(run *trace.Run) []trace.Finding {
	a := run.Aggregate
	if a == nil {
		return nil
	}
	times, contexts := timeSources(a)
	what := "passes of an unmodified engine give"
	if run.Iterations[0].Form == trace.IterationChunks {
		what = "steps recovered from chunks give"
		times = "step times from the chunks' stamps"
		contexts = "the KV-read term by counting"
	}
	text := fmt.Sprintf("%s: %d %s %s and %s", run.ID, len(run.Iterations), what, times, contexts)
	if c := a.Audit.ConstantUs; c.OK && slices.ContainsFunc(run.Iterations, func(it trace.Iteration) bool { return it.ElapsedUs > 0 }) {
		text += fmt.Sprintf("; %.2f ms lie between elapsed times", c.V/1000)
	}
	return []trace.Finding{trace.Findingf(EngineLog, "%s. The tracing fork would give waits and single requests", text)}
}
