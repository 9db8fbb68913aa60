package validate

// This file checks the data quality of a run before any fit: lost records, clocks, saturation, and
// which rows a fit would have.

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Inspection is what extraction and the fit have found out about a run, besides the recording; nil
// if they did not run.
type Inspection struct {
	Extract  *result.ExtractRun   // what was read and lost
	Lag      *result.RunLag       // by how many steps execution lags behind scheduling
	Evidence []result.LagEvidence // by which the lag was chosen
}

// Inspect reports the data quality of one run before any fit: losses, clocks, saturation, coverage, and
// whether the run can be used. A run is unfit, with the reason in one sentence, when it is empty, saturated,
// was served in a way that no feature covers, has no step summaries, a step-time target below the time that
// reading the weights takes, or no usable batch. Errors: a deployment that contradicts itself, batches that
// cannot be rebuilt.
func Inspect(run *trace.Run, dep *deploy.Deployment, in Inspection) (result.InspectRun, error) {
	out, err := newInspectRun(run, dep, in)
	if err != nil {
		return result.InspectRun{}, err
	}
	_, unsupported := dep.CheckStepTimes()
	var steps *rows.Steps
	if len(run.Steps) > 0 && unsupported == nil {
		steps, err = rows.Rebuild(run, dep, features.DefaultVersion(dep))
		if err == nil {
			err = inspectSteps(out, steps)
		}
		if err != nil {
			return *out, fmt.Errorf("run %s: %w", run.ID, err)
		}
	}
	var extracted []trace.Finding
	var counted []result.ServerCount
	if in.Extract != nil {
		extracted = in.Extract.Warnings
		counted = in.Extract.Counted
	}
	identities, err := compareStreams(run, dep, steps, extracted, counted)
	if err != nil {
		return *out, fmt.Errorf("run %s: %w", run.ID, err)
	}
	concludeInspection(out, run, identities, unsupported)
	return *out, nil
}

// newInspectRun returns what the records of a run show without its batches.
func newInspectRun(run *trace.Run, dep *deploy.Deployment, in Inspection) (*result.InspectRun, error) {
	losses, err := countLosses(run)
	if err != nil {
		return nil, err
	}
	if in.Extract != nil {
		addExtractLosses(&losses, in.Extract)
	}
	saturation := rows.VerdictsOf(run, dep)
	return &result.InspectRun{
		ID:          run.ID,
		Config:      dep.Config(),
		Model:       dep.Model.ID,
		Hardware:    dep.Hardware.Name,
		TP:          dep.TP,
		SpanS:       spanS(run),
		Requests:    countRequests(run, dep),
		Losses:      losses,
		Clocks:      compareClocks(run),
		Saturated:   saturation.Run.Saturated,
		Saturation:  saturation.Run.Checks,
		Phases:      inspectPhases(run, saturation),
		Coverage:    []result.Histogram{},
		LagEvidence: append([]result.LagEvidence{}, in.Evidence...),
		Lag:         in.Lag,
		Series:      loadSeries(run),
		Findings:    []trace.Finding{},
		Sources:     sourcesOf(run, dep, in.Extract),
	}, nil
}

// inspectSteps sets what the rebuilt batches show in out.
func inspectSteps(out *result.InspectRun, steps *rows.Steps) error {
	space, err := features.New(steps.Version, steps.Dep)
	if err != nil {
		return err
	}
	out.Steps = steps.Quality.StepQuality
	audit := steps.Audit(space)
	out.Audit = &audit
	coverage := steps.Coverage()
	out.Coverage = []result.Histogram{coverage.PrefillTokens, coverage.DecodeBatch, coverage.Context, coverage.KVUsage}
	out.Findings = append(out.Findings, steps.Findings...)
	out.Findings = append(out.Findings, coverage.Findings...)
	return nil
}

// concludeInspection sets the identities of the run in out, and what follows from all figures. unsupported is the error
// of a run that was served in a way that no feature covers.
func concludeInspection(out *result.InspectRun, run *trace.Run, identities []result.Identity, unsupported error) {
	out.Identities = identities
	out.Usable = result.UsesOf(out.Identities, coeff.Purposes)
	out.Findings = append(out.Findings, identityFindings(run.ID, out.Identities)...)
	out.Findings = append(out.Findings, inspectFindings(out)...)
	out.Findings = append(out.Findings, passesFinding(run)...)
	learnsFromRequests := len(run.Points) > 0 || SourceOf(run) != result.SourceJourneys
	out.Reason = unfitReason(out, whyNoStepTimes(run, unsupported), len(run.Points), learnsFromRequests)
	out.Unfit = out.Reason != ""
}

// unfitReason returns why a run cannot be fitted, in one sentence; "" if it can. noStepTimes is the
// result of whyNoStepTimes. learnsFromRequests is set if a fit can use its requests or load levels
// too.
func unfitReason(r *result.InspectRun, noStepTimes *trace.Error, points int, learnsFromRequests bool) string {
	isEmpty := r.Requests.Total == 0 && r.Steps.Recorded == 0 && r.Requests.Observed == 0 && points == 0
	switch {
	case isEmpty:
		return fmt.Sprintf("run %s is empty: it holds neither requests nor steps", r.ID)
	case noStepTimes != nil:
		return fmt.Sprintf("run %s: %v; %s", r.ID, noStepTimes, noStepTimes.Hint)
	case r.Saturated:
		return fmt.Sprintf("run %s is saturated: %s", r.ID, rows.HitText(r.Saturation))
	case r.Steps.Recorded == 0 && learnsFromRequests:
		return contradiction(r.ID, r.Identities, coeff.PurposeReplay)
	case r.Steps.Recorded == 0:
		return fmt.Sprintf("run %s holds no step summaries, so no step time can be fitted", r.ID)
	case r.Audit != nil && r.Audit.BelowFloor():
		return fmt.Sprintf("run %s has a median step cadence of %.0f us, below the %.0f us that reading the weights once takes", r.ID,
			*r.Audit.CadenceUsP50, *r.Audit.PhysicalFloorUs)
	case r.Steps.Known == 0:
		return fmt.Sprintf("run %s has no step whose batch is known, so no row can be built", r.ID)
	}
	return contradiction(r.ID, r.Identities, coeff.PurposeSteps)
}

// inspectPhases returns the saturation and the counts of each phase.
func inspectPhases(run *trace.Run, saturation *rows.LoadVerdicts) []result.InspectPhase {
	out := []result.InspectPhase{}
	for _, p := range saturation.Phases {
		phase := result.InspectPhase{
			Name:       p.Name,
			Load:       p.Load,
			SpanS:      phaseSpanS(run, p),
			Requests:   p.Requests,
			Steps:      p.Steps,
			Saturated:  p.Saturated,
			Saturation: p.Checks,
		}
		if phase.SpanS > 0 {
			rate := float64(phase.Requests) / phase.SpanS
			phase.RateRPS = &rate
		}
		out = append(out, phase)
	}
	return out
}

// phaseSpanS returns the length of a phase; of a run without phases that of the run.
func phaseSpanS(run *trace.Run, p rows.PhaseVerdict) float64 {
	if p.Name != "" {
		return float64(p.EndNs-p.StartNs) / nsPerS
	}
	if s := spanS(run); s != nil {
		return *s
	}
	return 0
}

// inspectFindings returns findings about figures that need attention.
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
	// A step's time is that to the next step, so a step without a recorded successor has none.
	if s := r.Losses.AdjacentShare; s != nil && *s < leastAdjacent {
		add(incomplete, "%.0f %% of the recorded steps have a recorded successor, want >= %.0f %%", 100**s, 100*leastAdjacent)
	}
	if r.Clocks.NegativeIntervals > 0 {
		add(clockJump, "%d requests have stamps that run backwards", r.Clocks.NegativeIntervals)
	}
	if s := r.Clocks.OffsetSpreadMs; s != nil && *s > clockJumpMs {
		add(clockJump, "wall minus monotonic clock spreads over %.0f ms, want <= %d ms", *s, clockJumpMs)
	}
	if q := r.Requests; q.Engine > 0 && float64(q.APIUnlinked) > mostUnlinked*float64(q.Engine) {
		add(incomplete, "%d of %d core spans have no API span", q.APIUnlinked, q.Engine)
	}
	if n := r.Requests.StopStringEnds; n > 0 {
		add(stopStringEnds, "%d requests were ended by a stop string and count as successes", n)
	}
	return out
}

// Limits of the figures that are findings.
const (
	clockJumpMs   = 100  // spread of wall - monotonic clock, above which it is a finding
	leastAdjacent = 0.5  // share of the recorded steps with a recorded successor: with fewer most steps have no time
	mostUnlinked  = 0.05 // share of the core spans that may lack an API span
)

// seriesBins is the number of bins of the figures of load over time.
const seriesBins = 200

// countClientRequests counts the requests in client files, if nothing else was recorded.
func countClientRequests(seen []trace.ObservedRequest, q *result.InspectRequests) {
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

// countRequests returns the numbers of requests of a run by outcome and by what was recorded of
// them.
func countRequests(run *trace.Run, dep *deploy.Deployment) result.InspectRequests {
	q := result.InspectRequests{Total: len(run.Requests), Observed: len(run.Observed)}
	rate := dep.Tracing.JourneySampleRate
	q.JourneysSampled = rate.OK && rate.V < 1
	if len(run.Requests) == 0 {
		countClientRequests(run.Observed, &q)
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		stock := r.Source == trace.SourceStock
		if r.CoreID.OK || stock {
			q.Engine++
		} else {
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

// countLosses returns the numbers of span events, snapshots and steps that are known to be missing.
func countLosses(run *trace.Run) (result.InspectLosses, error) {
	var l result.InspectLosses
	for i := range run.Requests {
		l.DroppedSpanEvents += int(run.Requests[i].DroppedEvents)
	}
	err := run.EachSnapshot(func(s *trace.Snapshot) {
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

// addExtractLosses adds the losses that only extraction can count.
func addExtractLosses(l *result.InspectLosses, e *result.ExtractRun) {
	read := int(e.Records.Read)
	dropped := 0
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

// compareClocks returns wall minus monotonic time of the steps (of the journey events if there are
// no steps) and the number of requests whose stamps run backwards.
func compareClocks(run *trace.Run) result.InspectClocks {
	c := result.InspectClocks{Engines: min(1, len(run.Steps)+len(run.Requests))}
	var offsetS []float64
	if run.Aggregate == nil { // steps of a log have only one stamp
		offsetS = make([]float64, 0, len(run.Steps))
		for _, s := range run.Steps {
			// The stamp of the event is taken right after schedule() ends.
			offsetS = append(offsetS, float64(s.WallNs-s.TsEndNs)/nsPerS)
		}
	}
	if len(offsetS) == 0 {
		for _, e := range run.Events {
			if e.TsNs.OK {
				offsetS = append(offsetS, float64(e.WallNs-e.TsNs.V)/nsPerS)
			}
		}
	}
	if len(offsetS) > 0 {
		median := stat.MedianInPlace(offsetS)
		spreadMs := 1e3 * (stat.Quantile(offsetS, 0.95) - stat.Quantile(offsetS, 0.05))
		c.OffsetS = &median
		c.OffsetSpreadMs = &spreadMs
	}
	for i := range run.Requests {
		if run.Requests[i].RunsBackwards() {
			c.NegativeIntervals++
		}
	}
	return c
}

// runBoundsNs returns the first and last monotonic stamp of steps and requests: of the wall clock
// for stock spans, of the client's clock without either.
func runBoundsNs(run *trace.Run) (lo, hi int64, ok bool) {
	include := func(stamps ...trace.Opt[int64]) {
		for _, at := range stamps {
			switch {
			case !at.OK:
			case !ok:
				lo, hi, ok = at.V, at.V, true
			default:
				lo = min(lo, at.V)
				hi = max(hi, at.V)
			}
		}
	}
	for _, s := range run.Steps {
		include(trace.Some(s.TsStartNs))
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		if r.Source != trace.SourceStock {
			include(r.ArrivedNs, r.QueuedNs, r.FinishedNs, r.DepartedNs)
		} else if len(run.Steps) == 0 { // steps of a log are not on the wall clock of stock spans
			include(r.StartWallNs, r.EndWallNs)
		}
	}
	if ok {
		return lo, hi, ok
	}
	for i := range run.Observed {
		o := &run.Observed[i]
		include(o.SendNs, o.LastChunkNs, o.QueuedNs, o.EngineLastNs)
	}
	return lo, hi, ok
}

// spanS returns the time from the first to the last stamp; nil: there are none.
func spanS(run *trace.Run) *float64 {
	lo, hi, ok := runBoundsNs(run)
	if !ok {
		return nil
	}
	span := float64(hi-lo) / nsPerS
	return &span
}

// loadSeries returns the run in at most seriesBins equal bins of time.
func loadSeries(run *trace.Run) *result.LoadSeries {
	lo, hi, ok := runBoundsNs(run)
	if !ok || hi == lo {
		return nil
	}
	widthNs := (hi-lo)/seriesBins + 1
	binAt := func(ns int64) int { return int(max(0, min((ns-lo)/widthNs, seriesBins-1))) }
	var running, waiting, usage meanBins
	var ttft [seriesBins][]float64
	for i := range run.Steps {
		s := &run.Steps[i]
		b := binAt(s.TsStartNs)
		running[b].add(float64(s.RunningDepth))
		waiting[b].add(float64(s.WaitingDepth))
		usage[b].add(s.KVUsage)
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		at, known := r.ArrivalNs()
		if v, ok := r.TTFTMs(); ok && known {
			ttft[binAt(at)] = append(ttft[binAt(at)], v)
		}
	}
	return &result.LoadSeries{
		BinS:    float64(widthNs) / nsPerS,
		Running: running.means(),
		Waiting: waiting.means(),
		KVUsage: usage.means(),
		TTFTMs:  medians(ttft[:]),
	}
}

// meanBins has the values of each bin as what their mean needs: a long recording has millions.
type meanBins [seriesBins]meanBin

// meanBin is the sum and the number of some values.
type meanBin struct {
	sum float64
	n   int
}

// add adds a value to the bin, as stat.Mean does: NaN is no value.
func (b *meanBin) add(v float64) {
	if !math.IsNaN(v) {
		b.sum += v
		b.n++
	}
}

// means returns the mean of every bin; null for an empty one.
func (bins *meanBins) means() []*float64 {
	out := make([]*float64, len(bins))
	for i, b := range bins {
		if b.n > 0 {
			out[i] = new(b.sum / float64(b.n))
		}
	}
	return out
}

// medians returns the median of every bin; null for an empty one.
func medians(bins [][]float64) []*float64 {
	out := make([]*float64, len(bins))
	for i, bin := range bins {
		if len(bin) > 0 {
			out[i] = new(stat.Median(bin))
		}
	}
	return out
}

// whyNoStepTimes returns why step times cannot be fitted to a run: it was served in a way that no
// feature covers (spec#supported; unsupported is the error of that check), or its iterations have
// no times; nil if they can.
func whyNoStepTimes(run *trace.Run, unsupported error) *trace.Error {
	if e, ok := errors.AsType[*trace.Error](unsupported); ok {
		return e
	}
	if run.Aggregate == nil {
		return nil
	}
	return run.Aggregate.Refused
}

// passesFinding returns a finding about what the recording of an unmodified engine can be used for;
// the table of sources has the options that would add more.
func passesFinding(run *trace.Run) []trace.Finding {
	a := run.Aggregate
	if a == nil {
		return nil
	}
	n := len(run.Iterations)
	var text string
	if run.Iterations[0].Form == trace.IterationChunks {
		text = fmt.Sprintf("%s: %d steps recovered from chunks give step times from the chunks' stamps and the KV-read term by counting", run.ID, n)
	} else {
		times, contexts := timeSources(a)
		text = fmt.Sprintf("%s: %d passes of an unmodified engine give %s and %s", run.ID, n, times, contexts)
	}
	hasElapsed := slices.ContainsFunc(run.Iterations, func(it trace.Iteration) bool { return it.ElapsedUs > 0 })
	if c := a.Audit.ConstantUs; c.OK && hasElapsed {
		text += fmt.Sprintf("; %.2f ms lie between elapsed times", c.V/1000)
	}
	return []trace.Finding{trace.Findingf(EngineLog, "%s. The tracing fork would give waits and single requests", text)}
}
