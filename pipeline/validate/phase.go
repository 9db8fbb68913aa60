package validate

// This file replays one phase of a run in the simulator, several times with different noise, and
// compares its requests with the recorded ones.

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// noiseReplications is how often a noisy replay is repeated with other seeds, because one draw of the
// noise moves the Kolmogorov-Smirnov distance by several hundredths. With manyRequests one is enough.
const (
	noiseReplications = 5
	manyRequests      = 20_000
)

// scatterStream separates the random numbers of the drift-corrected replay from others of the same seed.
const scatterStream = 0x5eed

// replayedPhase is one phase of a run, replayed from its first arrival with an empty engine.
type replayedPhase struct {
	recorded []Request                  // requests of the phase, in order of arrival
	requests []sim.Request              // the same, as the simulator takes them
	results  map[string][]*simulatedRun // by variant (result.VariantPlain, ...), one per replication
	engine   engine
	// blocks are those of a cross-fitted replay; nil: one engine replays all requests.
	blocks  *result.CrossBlocks
	blockOf []int // of each request; nil without blocks
	// newEngines has one function, or one for each block. Each makes an engine that shares no scratch
	// space with another, so that replays can run at the same time.
	newEngines []func() (engine, error)
	originNs   int64 // first arrival, simulated time 0
	gaps       []*phaseGaps
	// recordedSteps is the number of recorded steps of the phase.
	recordedSteps int
	clients       int    // of a closed loop
	load          string // deploy.LoadOpen or deploy.LoadClosed, as replayed
	undecided     string // why it cannot be judged
	priorities    *priorities
	findings      []trace.Finding
}

// replication is one replay of a phase.
type replication struct {
	variant  string
	number   int               // within the variant, from 0: added to the seed
	addNoise func(*sim.Config) // makes the step times random; nil: they are not
	// afterRows: the replay runs once the rows of the run are made, because its noise is theirs, or because it lists its
	// steps, which take memory that the making of rows needs.
	afterRows bool
}

// replications returns the replays of a phase: the plain one and, where their noise is known, the noisy
// ones, each noiseReplications times with other seeds. One variant multiplies step times by residual
// ratios, the other by the drift curve of the machine and the ratios relative to it
// (spec#replay-variants).
func (p *replayedPhase) replications() []replication {
	if len(p.recorded) == 0 {
		return nil
	}
	list := []replication{{variant: result.VariantPlain, afterRows: p.blocks == nil}}
	add := func(variant string, afterRows bool, noise func(*sim.Config)) {
		n := noiseReplications
		if len(p.requests) >= manyRequests {
			n = 1
		}
		for k := range n {
			list = append(list, replication{variant: variant, number: k, addNoise: noise, afterRows: afterRows})
		}
	}
	e := &p.engine
	if e.residuals != nil {
		add(result.VariantNoise, false, func(c *sim.Config) { c.Noise = e.residuals })
	}
	if e.scatter != nil && e.drift != nil && len(e.drift.Points) > 0 {
		add(result.VariantDrift, true, func(c *sim.Config) {
			c.Latency = &recordedMachine{
				Model:    c.Latency,
				drift:    e.drift,
				originNs: p.originNs,
				scatter:  e.scatter,
				rng:      rand.New(rand.NewPCG(uint64(c.Seed), scatterStream)),
			}
		})
	}
	return list
}

// replay is one replay of a phase. It has several parts where blocks have engines of their own.
type replay struct {
	replication
	phase    *replayedPhase
	parts    []*replayPart
	requests []simulatedRequest // as in replayedPhase.recorded; each part sets its own
}

// replayPart is the part of a replay that one engine makes.
type replayPart struct {
	replay *replay
	block  int // in replayedPhase.blocks; wholePhase: all requests
	got    *sim.Result
	err    error
}

// wholePhase is the block of a replay that is not divided.
const wholePhase = -1

// replaysOf returns the replays of some phases that run after the rows are made, or those that need not.
func replaysOf(afterRows bool, phases ...*replayedPhase) (list []*replay) {
	for _, p := range phases {
		for _, r := range p.replications() {
			if r.afterRows != afterRows {
				continue
			}
			made := &replay{replication: r, phase: p, requests: make([]simulatedRequest, len(p.requests))}
			blocks := []int{wholePhase}
			if p.blocks != nil {
				blocks = p.blocksWithRequests()
			}
			for _, b := range blocks {
				made.parts = append(made.parts, &replayPart{replay: made, block: b})
			}
			list = append(list, made)
		}
	}
	return list
}

// partsOf returns the parts of some replays. The last come first: a later block takes longer, because its replay
// begins with the requests of all before it.
func partsOf(replays []*replay) (parts []*replayPart) {
	for _, r := range replays {
		parts = append(parts, r.parts...)
	}
	slices.Reverse(parts)
	return parts
}

// runAll makes replays, several parts at a time.
func runAll(ctx context.Context, workers int, replays []*replay) error {
	parts := partsOf(replays)
	return par.Try(ctx, workers, len(parts), func(i int) error {
		parts[i].run()
		return nil
	}, nil)
}

// run makes the part, and stores its result or its error.
func (t *replayPart) run() {
	p := t.replay.phase
	e, err := t.newEngine()
	if err != nil {
		t.err = err
		return
	}
	c := e.Config
	c.Seed += int64(t.replay.number)
	if t.replay.addNoise != nil {
		t.replay.addNoise(&c)
	}
	if t.block != wholePhase {
		t.got, t.err = p.runBlock(t.block, c, t.replay.requests)
		return
	}
	if t.replay.addNoise != nil {
		t.got, t.err = p.simulate(c, nil, t.replay.requests)
		return
	}
	log := newMarkLog(p.originNs, p.recordedSteps)
	t.got, t.err = p.simulate(c, log, t.replay.requests)
	p.simulateGaps(log.marks)
}

// newEngine returns a new engine for the part.
func (t *replayPart) newEngine() (engine, error) {
	engines := t.replay.phase.newEngines
	if t.block == wholePhase {
		return engines[0]()
	}
	return engines[t.block]()
}

// simulate replays all requests of the phase on an engine and sets what it gave of each. obs may be nil.
func (p *replayedPhase) simulate(c sim.Config, obs sim.Observer, requests []simulatedRequest) (*sim.Result, error) {
	return sim.Stream(c, p.requests, obs, func(i int, r *sim.RequestResult) bool {
		requests[i] = timesOf(r)
		return true
	})
}

// keepAll keeps the results of replays whose parts have run, by variant, in whatever order they ran.
func keepAll(replays []*replay) {
	place := map[string]int{result.VariantPlain: 0, result.VariantNoise: 1, result.VariantDrift: 2}
	slices.SortStableFunc(replays, func(a, b *replay) int { return cmp.Compare(place[a.variant], place[b.variant]) })
	for _, r := range replays {
		got, err := r.result()
		r.phase.keep(r.replication, got, err)
	}
}

// result returns the result of the parts together, or the error of the first that failed.
func (r *replay) result() (*simulatedRun, error) {
	out := &simulatedRun{requests: r.requests}
	for _, t := range r.parts {
		if t.err != nil {
			return nil, t.err
		}
		out.steps += t.got.Steps
		out.clipped += t.got.ClippedSteps + t.got.ClippedDelays
		for _, f := range t.got.Findings {
			if t.block == wholePhase || !slices.Contains(out.findings, f) {
				out.findings = append(out.findings, f)
			}
		}
	}
	return out, nil
}

// keep adds the result of a replay. A variant ends with its first replay that failed, which becomes a
// finding.
func (p *replayedPhase) keep(r replication, got *simulatedRun, err error) {
	kept := len(p.results[r.variant])
	if kept < r.number { // an earlier one failed and ended the variant
		return
	}
	if err != nil {
		p.findings = append(p.findings, trace.Findingf(NoReplay, "%s replay: %v", r.variant, err))
		return
	}
	p.results[r.variant] = append(p.results[r.variant], got)
}

// newPhase returns the requests of all that arrive in the phase, before any replay. It has no engine and
// no marks yet.
func newPhase(all []Request, phase *deploy.Phase, content Content) *replayedPhase {
	p := &replayedPhase{results: map[string][]*simulatedRun{}}
	p.recorded = make([]Request, 0, len(all))
	for _, o := range all {
		if o.ArrivalNs >= phase.StartNs && o.ArrivalNs < phase.EndNs {
			p.recorded = append(p.recorded, o)
		}
	}
	if len(p.recorded) == 0 {
		p.findings = append(p.findings, trace.Findingf(NoReplay, "no request arrives in the phase"))
		return p
	}
	p.originNs = p.recorded[0].ArrivalNs
	p.requests = make([]sim.Request, 0, len(p.recorded))
	for _, o := range p.recorded {
		p.requests = append(p.requests, p.simRequest(o, content))
	}
	p.closeLoop(phase.Load)
	return p
}

// Workload returns a phase as a replay sends it, and what was recorded of each request. The clients
// of a closed loop send when they are answered.
func Workload(all []Request, phase *deploy.Phase, content Content) ([]sim.Request, []Request, []trace.Finding) {
	p := newPhase(all, phase, content)
	return p.requests, p.recorded, p.findings
}

// simRequest returns one recorded request in the form of the simulator. A request that did not
// succeed asks for all tokens that it was allowed, and leaves at its recorded end.
func (p *replayedPhase) simRequest(o Request, content Content) sim.Request {
	r := sim.Request{
		ID:           o.ID,
		ArrivalUs:    p.replayUs(o.ArrivalNs),
		PromptTokens: o.Prompt,
		OutputTokens: max(1, o.Output),
		MaxTokens:    max(1, o.Output, o.MaxTokens),
	}
	if o.Excluded != "" && o.EndNs.OK {
		r.OutputTokens = r.MaxTokens
		r.AbortAtUs = trace.Some(p.replayUs(o.EndNs.V))
		r.AbortKind = sim.OutcomeAborted
	}
	if o.Row != nil {
		r.Priority = o.Row.Priority.V
	}
	if content != nil {
		content(&o, &r)
	}
	return r
}

// replayUs returns a stamp on the replay's clock, rounded to the nearest microsecond.
func (p *replayedPhase) replayUs(ns int64) int64 {
	return int64(math.Floor(float64(ns-p.originNs)/1e3 + 0.5))
}

// plain returns the result of the plain replay; nil: there is none.
func (p *replayedPhase) plain() *simulatedRun {
	if r := p.results[result.VariantPlain]; len(r) > 0 {
		return r[0]
	}
	return nil
}

// entry returns the comparison of the requests that arrive from splitNs on.
func (p *replayedPhase) entry(splitNs int64) result.ValidationRun {
	samples := map[string]*sample{}
	for _, variant := range []string{result.VariantPlain, result.VariantNoise, result.VariantDrift} {
		samples[variant] = p.sample(variant, splitNs)
	}
	v := result.ValidationRun{
		Load:         p.load,
		Replayed:     len(p.recorded),
		Excluded:     map[string]int{},
		Metrics:      samples[result.VariantPlain].metrics(true),
		MetricsNoise: samples[result.VariantNoise].metrics(false),
		MetricsDrift: samples[result.VariantDrift].metrics(false),
		Figures:      replayFigures(samples),
		Replay:       p.quality(),
		Undecided:    cmp.Or(p.undecided, p.priorities.whyUndecided(p.plain())),
		Findings:     slices.Clone(p.findings),
	}
	if plain := samples[result.VariantPlain]; plain != nil {
		v.Requests = plain.compared
		v.Metrics.Capacity = p.capacity(plain)
		v.Excluded = plain.excluded
		v.Metrics.ITLGap = p.compareGaps(splitNs) // printed, never gated
	}
	for i := range p.recorded {
		if p.recorded[i].Excluded == excludedUnrecorded {
			v.Rebuilt++
		}
	}
	return v
}

// quality returns a description of how the plain replay ran.
func (p *replayedPhase) quality() *result.ReplayQuality {
	q := &result.ReplayQuality{Notes: []string{}}
	res := p.plain()
	if res == nil {
		return q
	}
	q.Steps = int(res.steps)
	q.ClippedPredictions = int(res.clipped)
	for _, f := range res.findings {
		q.Notes = append(q.Notes, fmt.Sprintf("%s: %s", f.Code, f.Message))
	}
	return q
}

// timeKind is one of the times of a request that a replay is compared by, in the order of the report.
type timeKind int

const (
	kindTTFT timeKind = iota
	kindITL
	kindE2E
	numKinds
)

// String returns the name of the kind in documents.
func (k timeKind) String() string { return byKind[string]{"ttft", "itl", "e2e"}[k] }

// byKind has a value for each kind of time.
type byKind[T any] [numKinds]T

// sample is the recorded and the simulated times of the compared requests.
type sample struct {
	real, sim byKind[[]float64] // ms, in order of arrival; sim has those of all replications
	request   byKind[[]int]     // positions in replayedPhase.recorded of the values of real
	compared  int               // number of requests
	excluded  map[string]int    // requests that are not compared, by reason
}

// sample returns the pairs of recorded and simulated requests that arrive at or after splitNs: the
// recorded values are listed once, the simulated ones of all replications follow each other; nil if
// the variant was not run.
func (p *replayedPhase) sample(variant string, splitNs int64) *sample {
	return p.sampleOf(p.results[variant], splitNs)
}

// sampleOf returns the sample of some replications; nil without any.
func (p *replayedPhase) sampleOf(replications []*simulatedRun, splitNs int64) *sample {
	if len(replications) == 0 {
		return nil
	}
	s := &sample{excluded: map[string]int{}}
	most := 0 // of requests to compare
	for i := range p.recorded {
		if p.recorded[i].ArrivalNs >= splitNs && p.recorded[i].Excluded == "" {
			most++
		}
	}
	for kind := range numKinds {
		s.real[kind] = make([]float64, 0, most)
		s.request[kind] = make([]int, 0, most)
		s.sim[kind] = make([]float64, 0, most*len(replications))
	}
	s.addRecorded(p.recorded, replications[0].requests, splitNs)
	for _, run := range replications {
		s.addSimulated(p.recorded, run.requests, splitNs)
	}
	return s
}

// addRecorded adds the recorded times of the requests that are compared, by the first replication, and counts why the
// others are not.
func (s *sample) addRecorded(recorded []Request, simulated []simulatedRequest, splitNs int64) {
	departedUs := lastDepartureUs(recorded, simulated)
	for i := range recorded {
		if why := whyNotCompared(&recorded[i], &simulated[i], splitNs); why != "" {
			s.excluded[why]++
			continue
		}
		s.compared++
		for kind, both := range pairedTimes(&recorded[i], &simulated[i], departedUs) {
			if both.isKnown() {
				s.real[kind] = append(s.real[kind], both.realMs.V)
				s.request[kind] = append(s.request[kind], i)
			}
		}
	}
}

// addSimulated adds the times of a replication.
func (s *sample) addSimulated(recorded []Request, simulated []simulatedRequest, splitNs int64) {
	departedUs := lastDepartureUs(recorded, simulated)
	for i := range recorded {
		if whyNotCompared(&recorded[i], &simulated[i], splitNs) != "" {
			continue
		}
		for kind, both := range pairedTimes(&recorded[i], &simulated[i], departedUs) {
			if both.isKnown() {
				s.sim[kind] = append(s.sim[kind], both.simUs.V/1e3)
			}
		}
	}
}

// whyNotCompared returns the reason why a request is not compared; "" if it is.
func whyNotCompared(recorded *Request, simulated *simulatedRequest, splitNs int64) string {
	switch {
	case recorded.ArrivalNs < splitNs:
		return excludedTraining
	case recorded.Excluded != "":
		return recorded.Excluded
	case !simulated.isFinished:
		return excludedRejected
	}
	return ""
}

// pairedTime is one time of a request as it was recorded and as it was simulated.
type pairedTime struct{ realMs, simUs trace.Opt[float64] }

// isKnown reports whether both sides know the time.
func (t *pairedTime) isKnown() bool { return t.realMs.OK && t.simUs.OK }

// pairedTimes returns the times of a request. departedUs are the departures of API requests with several samples.
func pairedTimes(recorded *Request, simulated *simulatedRequest, departedUs map[string]int64) byKind[pairedTime] {
	return byKind[pairedTime]{
		kindTTFT: {realMs: recorded.TTFTMs, simUs: simulated.ttftUs},
		kindITL:  {realMs: recorded.ITLMs, simUs: simulated.itlUs},
		kindE2E:  {realMs: recorded.E2EMs, simUs: simulatedE2EUs(recorded, simulated, departedUs)},
	}
}

// lastDepartureUs returns when the last sample of each API request leaves the simulator, us by group.
func lastDepartureUs(recorded []Request, simulated []simulatedRequest) map[string]int64 {
	last := map[string]int64{}
	for i := range recorded {
		if group := recorded[i].Group; group != "" {
			last[group] = max(last[group], simulated[i].departedUs)
		}
	}
	return last
}

// simulatedE2EUs returns the E2E of the API request, which ends with the last of its samples.
func simulatedE2EUs(o *Request, r *simulatedRequest, departedUs map[string]int64) trace.Opt[float64] {
	if o.Group == "" {
		return r.e2eUs
	}
	return trace.Some(float64(departedUs[o.Group] - r.arrivalUs))
}

// metrics returns the comparison of every metric of one replay; nil if it was not run.
func (s *sample) metrics(paired bool) *result.Metrics {
	if s == nil {
		return nil
	}
	return &result.Metrics{
		TTFT: Compare(s.real[kindTTFT], s.sim[kindTTFT], paired),
		ITL:  Compare(s.real[kindITL], s.sim[kindITL], paired),
		E2E:  Compare(s.real[kindE2E], s.sim[kindE2E], paired),
	}
}

// replayFigures returns the curves of the recording and of the replays.
func replayFigures(samples map[string]*sample) *result.RunFigures {
	figures := &result.RunFigures{ECDF: []result.Curve{}, QQ: []result.Curve{}}
	for kind := range numKinds {
		name := kind.String()
		drawn := false
		for _, variant := range []string{result.VariantPlain, result.VariantNoise, result.VariantDrift} {
			ofVariant := samples[variant]
			if ofVariant == nil || len(ofVariant.real[kind]) == 0 {
				continue
			}
			real, simulated := ofVariant.real[kind], ofVariant.sim[kind]
			if !drawn {
				figures.ECDF = append(figures.ECDF, result.Curve{Metric: name, Variant: result.VariantReal, Points: ecdf(real)})
				drawn = true
			}
			figures.ECDF = append(figures.ECDF, result.Curve{Metric: name, Variant: variant, Points: ecdf(simulated)})
			figures.QQ = append(figures.QQ, result.Curve{Metric: name, Variant: variant, Points: quantilePairs(real, simulated)})
		}
	}
	return figures
}

// starvedRequests are the compared requests that waited for KV blocks in the plain replay, or were
// preempted because there were too few.
type starvedRequests struct {
	Requests, Of int // their number, and that of all compared requests
	// ErrorShare is what these requests add to the sum of |log(simulated/recorded)| over all requests,
	// as a share; of TTFT, or of E2E for requests without a TTFT.
	ErrorShare              float64
	RecordedMs, SimulatedMs float64 // medians of theirs
}

// starvedFrom finds the starved requests among those that arrive from splitNs on, and how much of the
// error of the replay is theirs.
func (p *replayedPhase) starvedFrom(splitNs int64) starvedRequests {
	var starved starvedRequests
	plain := p.plain()
	if plain == nil {
		return starved
	}
	var recordedMs, simulatedMs []float64
	starvedError, totalError := 0.0, 0.0
	for i := range p.recorded {
		recorded := &p.recorded[i]
		simulated := &plain.requests[i]
		realMs := recorded.TTFTMs
		simUs := simulated.ttftUs
		if !realMs.OK {
			realMs = recorded.E2EMs
			simUs = simulated.e2eUs
		}
		if recorded.ArrivalNs < splitNs || recorded.Excluded != "" || !(realMs.V > 0 && simUs.V > 0) {
			continue
		}
		starved.Of++
		logError := math.Abs(math.Log(simUs.V / 1e3 / realMs.V))
		totalError += logError
		if simulated.isStarved {
			starvedError += logError
			recordedMs = append(recordedMs, realMs.V)
			simulatedMs = append(simulatedMs, simUs.V/1e3)
		}
	}
	starved.Requests = len(recordedMs)
	if starved.Requests > 0 && totalError > 0 {
		starved.ErrorShare = starvedError / totalError
		starved.RecordedMs = stat.Median(recordedMs)
		starved.SimulatedMs = stat.Median(simulatedMs)
	}
	return starved
}
