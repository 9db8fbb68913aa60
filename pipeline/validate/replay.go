package validate

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// This file sends recorded arrivals through the simulator and compares what
// requests experienced there with what was recorded.

// engine is how the replay's clock runs: step times, the delays outside the
// engine, and the residuals for the two replays that are noisy.
type engine struct {
	sim.Config            // of the plain replay
	residuals  *sim.Noise // ratios of the artifact; nil = no noise replay
	Spreads    *spreads   // residual ratios relative to the drift curve; nil = no corrected replay
	Drift      *drift
	// Constants in place of the artifact's delays; nil: those.
	overheadUs, egressUs *float64
}

// noiseReplications is how often a noisy replay is repeated with other seeds; the
// simulated requests of all of them are compared with the recorded ones. With
// manyRequests one replay is enough.
const (
	noiseReplications = 5
	manyRequests      = 20_000
)

// Phase is one phase of a run, replayed from its first arrival with an
// empty engine.
type Phase struct {
	obs       []Request                // of the phase, in order of arrival
	originNs  int64                    // first arrival
	requests  []sim.Request            // one per recorded request
	results   map[string][]*sim.Result // one per replication
	findings  []trace.Finding
	gaps      *gapLog    // of the plain replay
	recorded  []stepMark // steps of the phase
	lag       int
	undecided string // why it cannot be judged
	load      string // deploy.LoadOpen or deploy.LoadClosed, as replayed
}

// Run replays the requests of all that arrive in the phase of a run.
func replayRun(marks []stepMark, all []Request, phase *deploy.Phase, content Content, e engine) *Phase {
	p := newPhase(all, phase, content)
	for _, s := range marks {
		if s.startNs >= phase.StartNs && s.startNs < phase.EndNs {
			p.recorded = append(p.recorded, s)
		}
	}
	if e.Async {
		p.lag = 1
	}
	if len(p.obs) == 0 {
		return p
	}
	p.run(result.VariantPlain, e.Config, nil)
	if e.residuals != nil {
		p.run(result.VariantNoise, e.Config, func(c *sim.Config) { c.Noise = e.residuals })
	}
	if e.Spreads != nil && e.Drift != nil && len(e.Drift.Points) > 0 {
		p.run(result.VariantDrift, e.Config, func(c *sim.Config) {
			c.Latency = &recorded{
				Model: e.Latency, Drift: e.Drift, OriginNs: p.originNs, Spreads: e.Spreads,
				Rng: rand.New(rand.NewPCG(uint64(c.Seed), spreadStream)),
			}
		})
	}
	return p
}

// newPhase are the requests of all that arrive in the phase, as the simulator takes
// them.
func newPhase(all []Request, phase *deploy.Phase, content Content) *Phase {
	p := &Phase{results: map[string][]*sim.Result{}}
	for _, o := range all {
		if o.ArrivalNs >= phase.StartNs && o.ArrivalNs < phase.EndNs {
			p.obs = append(p.obs, o)
		}
	}
	if len(p.obs) == 0 {
		p.findings = append(p.findings, trace.Findingf(NoReplay, "no request arrives in the phase"))
		return p
	}
	p.originNs = p.obs[0].ArrivalNs
	for _, o := range p.obs {
		p.requests = append(p.requests, p.simRequest(o, content))
	}
	p.close(phase.Load)
	return p
}

// Workload is a phase as a replay sends it, and what was recorded of each request;
// a closed loop's clients send when they are answered.
func Workload(all []Request, phase *deploy.Phase, content Content) ([]sim.Request, []Request, []trace.Finding) {
	p := newPhase(all, phase, content)
	return p.requests, p.obs, p.findings
}

// spreadStream separates the spread's random numbers from others of a seed.
const spreadStream = 0x5eed

// run replays once, or noiseReplications times with other seeds when draw makes
// the step times random: one draw of the noise moves D by several hundredths.
func (p *Phase) run(variant string, c sim.Config, draw func(*sim.Config)) {
	times := 1
	if draw != nil && len(p.requests) < manyRequests {
		times = noiseReplications
	}
	first := c.Seed
	for k := range times {
		c.Seed = first + int64(k)
		var obs sim.Observer
		if draw != nil {
			draw(&c)
		} else {
			p.gaps = &gapLog{originNs: p.originNs}
			obs = p.gaps
		}
		res, err := sim.Run(c, p.requests, obs)
		if err != nil {
			p.findings = append(p.findings, trace.Findingf(NoReplay, "%s replay: %v", variant, err))
			return
		}
		p.results[variant] = append(p.results[variant], res)
	}
}

// plain is the result of the plain replay; nil: none.
func (p *Phase) plain() *sim.Result {
	if r := p.results[result.VariantPlain]; len(r) > 0 {
		return r[0]
	}
	return nil
}

// simRequest is one recorded request as the simulator takes it. A request that
// did not succeed asks for all it was allowed to and leaves at its recorded end.
func (p *Phase) simRequest(o Request, content Content) sim.Request {
	r := sim.Request{
		ID: o.ID, ArrivalUs: p.us(o.ArrivalNs), PromptTokens: o.Prompt,
		OutputTokens: max(1, o.Output), MaxTokens: max(1, o.Output, o.MaxTokens),
	}
	if o.Excluded != "" && o.EndNs.OK {
		r.OutputTokens = r.MaxTokens
		r.AbortAtUs = trace.Some(p.us(o.EndNs.V))
		r.AbortKind = sim.OutcomeAborted
	}
	if content != nil {
		content(&o, &r)
	}
	return r
}

// us is a stamp on the replay's clock, rounded to the nearest microsecond.
func (p *Phase) us(ns int64) int64 {
	return int64(math.Floor(float64(ns-p.originNs)/1e3 + 0.5))
}

// sample is what one replay and the recording say about the compared requests.
type sample struct {
	real, sim map[string][]float64 // ms by metric, in order of arrival
	compared  int
	excluded  map[string]int
}

// metricNames in report order.
var metricNames = []string{"ttft", "itl", "e2e"}

// sample pairs the requests arriving at or after splitNs, replication by
// replication: the recorded values stand once, the simulated ones of every
// replication follow each other.
func (p *Phase) sample(variant string, splitNs int64) *sample {
	replications := p.results[variant]
	if len(replications) == 0 {
		return nil
	}
	s := &sample{real: map[string][]float64{}, sim: map[string][]float64{}, excluded: map[string]int{}}
	for k, res := range replications {
		departed := lastDeparture(p.obs, res)
		for i := range p.obs {
			s.pair(&p.obs[i], &res.Requests[i], splitNs, departed, k == 0)
		}
	}
	return s
}

// pair takes one request in or says why not; the recorded side counts once.
func (s *sample) pair(o *Request, r *sim.RequestResult, splitNs int64, departed map[string]int64, once bool) {
	reason := ""
	switch {
	case o.ArrivalNs < splitNs:
		reason = excludedTraining
	case o.Excluded != "":
		reason = o.Excluded
	case r.Outcome != sim.OutcomeFinished:
		reason = excludedRejected
	}
	if reason != "" {
		if once {
			s.excluded[reason]++
		}
		return
	}
	if once {
		s.compared++
	}
	s.add("ttft", o.TTFTMs, optOf(r.TTFTUs()), once)
	s.add("itl", o.ITLMs, optOf(r.ITLUs()), once)
	s.add("e2e", o.E2EMs, simE2E(o, r, departed), once)
}

func (s *sample) add(metric string, realMs, simUs trace.Opt[float64], once bool) {
	if !realMs.OK || !simUs.OK {
		return
	}
	if once {
		s.real[metric] = append(s.real[metric], realMs.V)
	}
	s.sim[metric] = append(s.sim[metric], simUs.V/1e3)
}

// lastDeparture is when the last sample of each API request leaves the simulator.
func lastDeparture(obs []Request, res *sim.Result) map[string]int64 {
	last := map[string]int64{}
	for i := range obs {
		if g := obs[i].Group; g != "" {
			last[g] = max(last[g], res.Requests[i].DepartedUs.V)
		}
	}
	return last
}

func simE2E(o *Request, r *sim.RequestResult, departed map[string]int64) trace.Opt[float64] {
	if o.Group == "" {
		return optOf(r.E2EUs())
	}
	return trace.Some(float64(departed[o.Group] - r.ArrivalUs))
}

// metrics compares every metric of one replay; nil when it was not run.
func (s *sample) metrics(paired bool) *result.Metrics {
	if s == nil {
		return nil
	}
	of := func(name string) *result.Metric {
		return Compare(s.real[name], s.sim[name], paired)
	}
	return &result.Metrics{TTFT: of("ttft"), ITL: of("itl"), E2E: of("e2e")}
}

// figures are the curves of the three replays beside the recording.
func figures(byVariant map[string]*sample) *result.RunFigures {
	f := &result.RunFigures{ECDF: []result.Curve{}, QQ: []result.Curve{}}
	for _, metric := range metricNames {
		drawn := false
		for _, variant := range []string{result.VariantPlain, result.VariantNoise, result.VariantDrift} {
			s := byVariant[variant]
			if s == nil || len(s.real[metric]) == 0 {
				continue
			}
			if !drawn {
				f.ECDF = append(f.ECDF, result.Curve{Metric: metric, Variant: result.VariantReal, Points: ecdf(s.real[metric])})
				drawn = true
			}
			f.ECDF = append(f.ECDF, result.Curve{Metric: metric, Variant: variant, Points: ecdf(s.sim[metric])})
			f.QQ = append(f.QQ, result.Curve{Metric: metric, Variant: variant, Points: quantilePairs(s.real[metric], s.sim[metric])})
		}
	}
	return f
}

// Entry is one ValidationRun of the phase: the requests arriving from splitNs on.
func (p *Phase) Entry(splitNs int64) result.ValidationRun {
	by := map[string]*sample{}
	for _, variant := range []string{result.VariantPlain, result.VariantNoise, result.VariantDrift} {
		by[variant] = p.sample(variant, splitNs)
	}
	v := result.ValidationRun{
		Load: p.load, Replayed: len(p.obs), Excluded: map[string]int{},
		Metrics:      by[result.VariantPlain].metrics(true),
		MetricsNoise: by[result.VariantNoise].metrics(false),
		MetricsDrift: by[result.VariantDrift].metrics(false),
		Figures:      figures(by),
		Replay:       p.quality(),
		Undecided:    p.undecided,
		Findings:     slices.Clone(p.findings),
	}
	if plain := by[result.VariantPlain]; plain != nil {
		v.Requests = plain.compared
		v.Excluded = plain.excluded
		v.Metrics.ITLGap = Compare(tokenGaps(p.recorded, p.lag, splitNs), tokenGaps(p.gaps.marks, p.lag, splitNs), false) // never gates
	}
	for i := range p.obs {
		if p.obs[i].Excluded == excludedUnrecorded {
			v.Rebuilt++
		}
	}
	return v
}

// starved are the compared requests that waited for KV blocks in the plain replay, or
// were preempted for want of them.
type starved struct {
	Requests, Of            int
	ErrorShare              float64 // of the sum of |log(simulated/recorded)| of all TTFT, or E2E where there is none
	RecordedMs, SimulatedMs float64 // the median of theirs
}

// Starved compares those that arrive from splitNs on.
func (p *Phase) Starved(splitNs int64) (s starved) {
	plain := p.plain()
	if plain == nil {
		return s
	}
	var recorded, simulated []float64
	their, all := 0.0, 0.0
	for i := range p.obs {
		o, r := &p.obs[i], &plain.Requests[i]
		real, sim := o.TTFTMs, optOf(r.TTFTUs())
		if !real.OK {
			real, sim = o.E2EMs, optOf(r.E2EUs())
		}
		if o.ArrivalNs < splitNs || o.Excluded != "" || !(real.V > 0 && sim.V > 0) {
			continue
		}
		s.Of++
		off := math.Abs(math.Log(sim.V / 1e3 / real.V))
		if all += off; r.Starved {
			their += off
			recorded = append(recorded, real.V)
			simulated = append(simulated, sim.V/1e3)
		}
	}
	if s.Requests = len(recorded); s.Requests > 0 && all > 0 {
		s.ErrorShare, s.RecordedMs, s.SimulatedMs = their/all, stat.Median(recorded), stat.Median(simulated)
	}
	return s
}

func (p *Phase) quality() *result.ReplayQuality {
	q := &result.ReplayQuality{Notes: []string{}}
	if res := p.plain(); res != nil {
		q.Steps = int(res.Steps)
		q.ClippedPredictions = int(res.ClippedSteps + res.ClippedDelays)
		for _, f := range res.Findings {
			q.Notes = append(q.Notes, fmt.Sprintf("%s: %s", f.Code, f.Message))
		}
	}
	return q
}

// leastCalls is how many requests a load needs before its shape is read off.
const leastCalls = 20

// close gives a closed loop its clients back (spec#closed-loops): as many as were in
// flight at once send their first request when they did; every later one follows an
// answer of the simulator, after the time its client took in the recording. A phase
// is a closed loop when run.yaml says so, or when what was in flight and the sends
// look like one.
func (p *Phase) close(load string) {
	p.load = load
	calls := callsOf(p.obs)
	c := workload.ConcurrencyOf(calls)
	switch {
	case load == deploy.LoadClosed:
	case len(calls) >= leastCalls && c.Clients > 1 && c.IsClosed():
		p.load = deploy.LoadClosed
		p.findings = append(p.findings, trace.Findingf(ReplayAssumes,
			"run.yaml calls the load %s, but %d requests are always in flight and every answer is followed by the next: replayed as a closed loop",
			load, c.Clients))
	default:
		return
	}
	if _, err := workload.RecloseCalls(p.requests, calls, c.Clients); err != nil {
		p.load = deploy.LoadOpen
		p.findings = append(p.findings, trace.Findingf(NoReplay, "closed loop: %v", err))
	}
}

// callsOf are the calls of a client behind the requests, by the time they were sent.
func callsOf(obs []Request) []workload.Call {
	var calls []workload.Call
	byGroup := map[string]int{}
	for i := range obs {
		o := &obs[i]
		end := o.EndNs.Or(1 << 62) // no end: it stays in flight
		if o.E2EMs.OK {
			end = o.ArrivalNs + trace.Int(math.Trunc(o.E2EMs.V*1e3))*1000 // whole us: never after the request that followed it
		}
		k, known := byGroup[o.Group]
		if !known || o.Group == "" {
			byGroup[o.Group] = len(calls)
			calls = append(calls, workload.Call{Samples: []int{i}, SentNs: o.ArrivalNs, EndNs: end})
			continue
		}
		c := &calls[k]
		c.Samples = append(c.Samples, i)
		c.SentNs = min(c.SentNs, o.ArrivalNs)
		c.EndNs = max(c.EndNs, end)
	}
	stat.SortStable(calls, func(a, b workload.Call) int { return cmp.Compare(a.SentNs, b.SentNs) })
	return calls
}

// maxGaps bounds the token gaps that are compared; more are evenly thinned.
const maxGaps = 200_000

// stepMark is what a token gap needs to know of a step, recorded or simulated.
type stepMark struct {
	id, startNs     int64
	running, decode int64 // requests, as the producer labels them
}

// marksOf are the recorded steps of a run, for the phases that are replayed.
func marksOf(run *trace.Run) []stepMark {
	out := make([]stepMark, len(run.Steps))
	for i := range run.Steps {
		s := &run.Steps[i]
		out[i] = stepMark{s.ID, s.TsStartNs, s.RunningDepth, s.NumDecodeReqs}
	}
	return out
}

// tokenGaps are the gaps between tokens in ms, read the same way on both sides:
// the time between the starts of adjacent busy steps i and i+1, once for every
// decode of step i-lag, whose execution that interval holds. Steps that start
// before fromNs are left out.
func tokenGaps(steps []stepMark, lag int, fromNs int64) []float64 {
	all := 0
	eachGap(steps, lag, fromNs, func(_ float64, times int) { all += times })
	kept := min(all, maxGaps)
	gaps := make([]float64, 0, kept)
	seen := 0 // of all, the first of which no thinned one is left
	eachGap(steps, lag, fromNs, func(ms float64, times int) {
		seen += times
		for len(gaps) < kept && stat.ThinAt(len(gaps), all, maxGaps) < seen {
			gaps = append(gaps, ms)
		}
	})
	return gaps
}

// eachGap visits the gaps between steps, each with the number of decodes it holds.
func eachGap(steps []stepMark, lag int, fromNs int64, visit func(ms float64, times int)) {
	for i := lag; i+1 < len(steps); i++ {
		done := steps[i-lag]
		s := steps[i]
		next := steps[i+1]
		if s.startNs >= fromNs && s.running != 0 && next.id == s.id+1 && done.id == s.id-int64(lag) {
			visit(float64(next.startNs-s.startNs)/1e6, int(max(0, done.decode)))
		}
	}
}

// gapLog keeps the marks of a replay on the recording's clock.
type gapLog struct {
	originNs int64
	marks    []stepMark
}

// Step notes the step.
func (l *gapLog) Step(v *sim.StepView) {
	l.marks = append(l.marks, stepMark{v.StepID, l.originNs + v.StartUs*1000, v.Running, v.LabelledDecodeReqs})
}

// Event is not needed.
func (l *gapLog) Event(*sim.Event) {}

// engine is how a run is replayed: the coefficients' step times (or the latency
// model of the options), delays from the artifact or the options.
func (j *job) engine(t *judgedRun, run *trace.Run, dep *deploy.Deployment) (engine, []trace.Finding, error) {
	e := engine{Config: sim.DefaultConfig(dep, nil), Drift: t.drift, overheadUs: j.o.OverheadUs, egressUs: j.o.EgressUs}
	e.Seed, e.Done = j.o.Seed, j.done
	if t.beta != nil {
		e.Async = t.Lag > 0
	}
	if j.set.Gamma > 0 {
		e.GammaEMA = j.set.Gamma
	}
	findings := j.idleDelays(&e, run)
	if err := j.models(&e, dep); err != nil {
		return e, nil, err
	}
	if j.o.Noise == "residual" {
		e.residuals = sim.SetNoise(j.set)
	}
	for _, f := range dep.AssumedInSimulation() {
		findings = append(findings, trace.Findingf(f.Code, "run %s: %s", run.ID, f.Message))
	}
	return e, findings, nil
}

// idleDelays takes the delays of requests that met an idle server, where asked for.
func (j *job) idleDelays(e *engine, run *trace.Run) []trace.Finding {
	if !j.o.IdleDelays {
		return nil
	}
	if idle, ok := measureIdle(run); ok {
		e.overheadUs = &idle.OverheadUs
		e.egressUs = &idle.EgressUs
		return nil
	}
	if run.Aggregate != nil && j.set.AlphaModel(coeff.Overhead) == nil {
		e.overheadUs = new(float64) // nothing of the run tells it, as the finding says
	}
	return []trace.Finding{trace.Findingf(ReplayAssumes, "run %s: no request met an idle server", run.ID)}
}

// models makes the step times and the delays outside the engine: a constant, or the
// artifact's alphas. They have scratch space of their own.
func (j *job) models(e *engine, dep *deploy.Deployment) (err error) {
	if j.o.Latency == "roofline" {
		e.Latency, err = sim.NewRoofline(dep)
	} else {
		e.Latency, err = sim.NewPhysics(j.set, dep)
	}
	if err != nil {
		return err
	}
	if e.overheadUs != nil {
		e.Overhead = sim.Const(*e.overheadUs)
	} else if e.Overhead, err = sim.NewAlphaDelay(j.set, coeff.Overhead, dep); err != nil {
		return trace.Errorf(NoReplay, "replay: %v", err).WithHint("give --overhead-us")
	}
	if e.egressUs != nil {
		e.Egress = sim.Const(*e.egressUs)
	} else if j.set.AlphaModel(coeff.Egress) != nil {
		e.Egress, err = sim.NewAlphaDelay(j.set, coeff.Egress, dep)
	}
	return err
}

// identicalBatches replays the whole run with the recorded step times and the
// recorded pick-ups (by step where step times are missing) and returns the share
// of known recorded batches that the simulator's scheduler reproduces: same step
// id, same requests, same computed and new tokens. It separates a wrong scheduler
// from wrong step times. Nil when the run cannot be forced (f is nil); an error when
// its snapshots cannot be read.
func identicalBatches(f *workload.Forced, dep *deploy.Deployment, steps *rows.Steps, async bool) (*float64, error) {
	if f == nil {
		return nil, nil
	}
	f.Under(async)
	c := sim.DefaultConfig(dep, f.Timeline)
	c.Async = f.Async
	seen := &batchLog{requests: f.Requests}
	if _, err := sim.Run(c, f.Requests, seen); err != nil {
		return nil, nil
	}
	known, same := 0, 0
	err := steps.Each(func(st *rows.Step, members []trace.Member) {
		if members == nil || st.Recorded < 0 {
			return
		}
		known++
		sum := uint64(0)
		for _, m := range members {
			sum += memberSum(m.CoreID, m.Computed, m.Prompt, m.New)
		}
		if st.ID >= 1 && st.ID <= int64(len(seen.sums)) && seen.sums[st.ID-1] == sum {
			same++
		}
	})
	return result.Share(same, known), err
}

// batchLog keeps one number per simulated step: the sum of its members' hashes,
// which does not depend on their order and costs 8 bytes a step.
type batchLog struct {
	requests []sim.Request
	sums     []uint64
}

// Step adds the members that were scheduled.
func (l *batchLog) Step(v *sim.StepView) {
	sum := uint64(0)
	for _, m := range v.Members {
		sum += memberSum(l.requests[m.Request].ID, m.Computed, m.Prompt, m.New)
	}
	for int64(len(l.sums)) < v.StepID {
		l.sums = append(l.sums, 0)
	}
	l.sums[v.StepID-1] = sum
}

// Event is not needed.
func (l *batchLog) Event(*sim.Event) {}

var memberSeed = maphash.MakeSeed()

// memberSum is 0 for a member that did nothing, so that it does not count.
func memberSum(id string, computed, prompt, scheduled int64) uint64 {
	if scheduled == 0 {
		return 0
	}
	return maphash.Comparable(memberSeed, struct {
		id     string
		counts [3]int64
	}{id, [3]int64{computed, prompt, scheduled}})
}
