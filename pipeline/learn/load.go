package learn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Load is what one engine was asked in one stretch of time, and what its clients
// measured.
type Load struct {
	Name       string
	Tier       string // what its measurement sees, in a word
	Deployment *deploy.Deployment
	KVBlocks   int64          // GPU blocks; 0: the deployment's
	Requests   []sim.Request  // in order of SentUs
	SentUs     []int64        // when each was sent, as recorded; nil: at its arrival
	Seen       []sim.Measured // one per request: what it is compared by
	Stamps     []sim.Measured // also of requests that are not compared; nil: Seen
	Point      *Point         // means in place of Seen; nil: requests
	later      int            // of the last requests, which only take part in the steps of the others
}

// Point is what a benchmark printed of a load: means over its requests, ms.
type Point struct{ TTFTMs, TPOTMs float64 }

// Relative errors that a point has beyond what coefficients can explain: TPOT as
// repeated benchmarks differ, TTFT twice that, for nobody states the harness's start and
// spread of lengths. Points of a group are off by one factor more than they scatter: a
// larger error leaves that factor unlearned (TestEvalPoints).
const (
	pointTPOTSD = 0.02
	pointTTFTSD = 0.04
)

// config is the load's engine with the latency of a candidate.
func (l *Load) config(m *model, values []float64) (sim.Config, error) {
	parts, err := m.parts(l.Deployment, values)
	if err != nil {
		return sim.Config{}, err
	}
	cfg := sim.DefaultConfig(l.Deployment, nil)
	cfg.Apply(parts)
	cfg.KVBlocks, cfg.Async = l.KVBlocks, l.Deployment.Engine.IsAsync()
	return cfg, nil
}

// Predict is what the requests of the load experience with a coefficient set.
func (l *Load) Predict(set *coeff.Set) ([]sim.Measured, error) {
	m, err := newModel(&Prior{Name: "set", Set: set}, l.Deployment)
	if err != nil {
		return nil, err
	}
	cfg, err := l.config(m, nil)
	if err != nil {
		return nil, err
	}
	res, err := sim.Run(cfg, l.Requests, nil)
	if err != nil {
		return nil, err
	}
	out := make([]sim.Measured, len(res.Requests))
	for i := range out {
		out[i] = res.Requests[i].Measured()
	}
	return out, nil
}

// Before is the load of the requests that were sent in the first part of its time. Those sent while these ran take part in
// their steps; nothing that was measured of them is used.
func (l *Load) Before(share float64) *Load {
	out, ended := *l, 0.0
	n := l.sentIn(share)
	for i := range n {
		for _, at := range [...]float64{l.first(i), l.last(i), float64(l.sent(i)) + l.stamps(i).E2EUs} {
			if at > ended { // not NaN
				ended = at
			}
		}
	}
	all := n
	for all < len(l.Requests) && float64(l.sent(all)) < ended {
		all++
	}
	out.Requests, out.Seen, out.later = l.Requests[:all], unseen(l.Seen[:all], n, all), all-n
	out.SentUs, out.Stamps = l.SentUs[:min(all, len(l.SentUs))], unseen(l.Stamps[:min(all, len(l.Stamps))], n, all)
	return &out
}

// sentIn is how many requests were sent in the first part of the load's time.
func (l *Load) sentIn(share float64) int {
	n := len(l.Requests)
	for n > 1 && l.sent(n-1) > int64(share*float64(l.sent(len(l.Requests)-1))) {
		n--
	}
	return n
}

// unseen is a copy without what was measured of requests from first until end.
func unseen(all []sim.Measured, first, end int) []sim.Measured {
	all = slices.Clone(all)
	for i := first; i < min(end, len(all)); i++ {
		all[i] = sim.Measured{TTFTUs: math.NaN(), SpanUs: math.NaN(), E2EUs: math.NaN()}
	}
	return all
}

// Later is the load with only the requests measured that were sent after that part.
func (l *Load) Later(share float64) *Load {
	out := *l
	out.Seen = unseen(l.Seen, 0, l.sentIn(share))
	return &out
}

// sent is when a request was sent, us.
func (l *Load) sent(i int) int64 {
	if l.SentUs != nil {
		return l.SentUs[i]
	}
	return l.Requests[i].ArrivalUs
}

// check refuses loads nothing can be learned from.
func (l *Load) check() error {
	if l.Point != nil {
		return nil
	}
	if len(l.Seen) != len(l.Requests) {
		return trace.Errorf(NothingMeasured, "load %s: got %d measured of %d requests, want one each", l.Name, len(l.Seen), len(l.Requests))
	}
	if l.IsMeasured() {
		return nil
	}
	return trace.Errorf(NothingMeasured, "load %s: got no time of %d requests, want TTFT, span or E2E of some", l.Name, len(l.Requests)).
		WithHint("save the benchmark with per-request times, as `vllm bench serve --save-detailed` does")
}

// farOff is the ratio of median TTFTs beyond which a replay is of another server.
const farOff = 3

// Unlike tells of a load whose replay with a set is of another server: TTFT is three times
// the measured one or a third of it in the median. So it is where prompts came from a
// prefix cache and nothing says which: the replay computes them all and is overloaded.
func (l *Load) Unlike(set *coeff.Set) ([]trace.Finding, error) {
	if l.Point != nil {
		return nil, nil
	}
	got, err := l.Predict(set)
	if err != nil {
		return nil, err
	}
	var measured, simulated []float64
	for i := range got {
		if a, b := l.Seen[i].TTFTUs, got[i].TTFTUs; a > 0 && b > 0 {
			measured = append(measured, a)
			simulated = append(simulated, b)
		}
	}
	if len(measured) == 0 {
		return nil, nil
	}
	ratio := stat.Median(simulated) / stat.Median(measured)
	if ratio < farOff && ratio > 1.0/farOff {
		return nil, nil
	}
	return []trace.Finding{trace.Findingf(ReplayUnlike, "%s: TTFT is %.3g ms in the replay and %.3g ms as measured, medians, even with what "+
		"was learned: do prompts come from a prefix cache that nothing states, or is run.yaml of another server?", l.Name,
		stat.Median(simulated)/1e3, stat.Median(measured)/1e3)}, nil
}

// IsMeasured says that some request has a time to be compared by.
func (l *Load) IsMeasured() bool {
	return slices.ContainsFunc(l.Seen, func(s sim.Measured) bool { return s.TTFTUs > 0 || s.SpanUs > 0 || s.E2EUs > 0 })
}

// stamps of a request.
func (l *Load) stamps(i int) *sim.Measured {
	if l.Stamps != nil {
		return &l.Stamps[i]
	}
	return &l.Seen[i]
}

// first and last are when a request's tokens were measured, us; NaN: unknown.
func (l *Load) first(i int) float64 { return float64(l.sent(i)) + l.stamps(i).TTFTUs }

func (l *Load) last(i int) float64 {
	if l.Requests[i].OutputTokens <= 1 {
		return l.first(i)
	}
	return l.first(i) + l.stamps(i).SpanUs
}

func isNumber(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// assess simulates the load of a point under its harness and compares means. The
// rows of its normal equations weigh as much as relative errors of pointTPOTSD
// weigh beside those of a request, and linearly (Huber) from robustAt errors on.
func (p *Point) assess(cfg sim.Config, reqs []sim.Request, theta []float64, derivatives bool) (*sim.Score, error) {
	cfg.Gradient = derivatives
	m, err := sim.MeansOf(cfg, reqs)
	if err != nil {
		return &sim.Score{}, err
	}
	s := &sim.Score{Pairs: 2, Steps: m.Steps}
	if derivatives {
		s.Blocks = []*ridge.Gram{ridge.New(len(m.TPOTBy))}
	}
	for _, v := range []struct {
		got, want, sd float64
		by            []float64
	}{{m.TPOTMs, p.TPOTMs, pointTPOTSD, m.TPOTBy}, {m.TTFTMs, p.TTFTMs, pointTTFTSD, m.TTFTBy}} {
		if !(v.want > 0) {
			continue
		}
		off := math.Log(v.got / v.want)
		weight := pointTPOTSD / v.sd
		if !isNumber(off) {
			off = math.Copysign(mostOff, off)
		}
		pull := math.Min(1, robustAt*v.sd/math.Abs(off))
		s.Objective += weight * weight * off * off * pull * (1 - pull/2)
		if derivatives {
			s.Blocks[0].AddRow(pull*weight*weight/(v.want*v.want), v.by, v.want-v.got+ridge.Dot(v.by, theta))
		}
	}
	s.Paired = s.Objective
	return s, nil
}

// mostOff is the log ratio of a load that a candidate does not finish.
const mostOff = 4.6

// PredictPoint is what a benchmark of the load would print with a coefficient set.
func (l *Load) PredictPoint(set *coeff.Set) (Point, error) {
	means, err := l.means(&Prior{Name: "set", Set: set})
	return Point{TTFTMs: means.TTFTMs, TPOTMs: means.TPOTMs}, err
}

func (l *Load) means(p *Prior) (sim.Means, error) {
	m, err := newModel(p, l.Deployment)
	if err != nil {
		return sim.Means{}, err
	}
	cfg, err := l.config(m, nil)
	if err != nil {
		return sim.Means{}, err
	}
	means, err := sim.MeansOf(cfg, l.Requests)
	if err != nil {
		return sim.Means{}, err
	}
	return *means, nil
}

// fullCache is how many times the measured TTFT a simulated one must be, where the
// simulated server ran out of KV blocks, to say that the measured one did not.
const fullCache = 2

// Full says that the prior's server runs out of KV blocks under the load, and so waits
// for seats, where the measured one, by its TTFT, did not: not the coefficients but the
// size of the cache is another. It is also the simulated TTFT; of points alone.
func (l *Load) Full(p *Prior) (ttftMs float64, full bool, err error) {
	if l.Point == nil {
		return 0, false, nil
	}
	means, err := l.means(p)
	return means.TTFTMs, means.Preemptions > 0 && l.Point.TTFTMs > 0 && means.TTFTMs > fullCache*l.Point.TTFTMs, err
}

// Level is one measured load level of a real server: a closed loop of clients or open
// arrivals, its mean TTFT and TPOT.
type Level struct {
	Version                   string // of the engine, where it is stated
	InputTokens, OutputTokens int64  // nominal
	Concurrency               int
	TTFTMs, TPOTMs            float64
	Deployment                *deploy.Deployment

	promptSD, outputSD float64 // of lengths; 0: as the harness spreads them
	rateRPS            float64 // of open arrivals; 0: a closed loop
	count              int     // requests; 0: as the harness sends
}

// LevelOf is what a benchmark printed of one load level of a deployment. Where the
// load is not stated, its clients are what was in flight. Code: bad_points.
func LevelOf(l *trace.LoadPoint, d *deploy.Deployment) (*Level, error) {
	d, err := deploymentOf(l, d)
	if err != nil {
		return nil, err
	}
	p := &Level{Version: d.Engine.VLLMVersion, Deployment: d, TTFTMs: l.TTFTMs.Or(math.NaN()),
		InputTokens: max(1, trace.Int(l.PromptTokens)), OutputTokens: max(2, trace.Int(l.OutputTokens)), TPOTMs: l.TPOTMs,
		promptSD: l.PromptSD.V, outputSD: l.OutputSD.V, count: int(l.Requests.V), Concurrency: int(l.Clients.V)}
	if longest, n := d.MaxModelLen(), l.PromptTokens+l.OutputTokens; longest.OK && n > float64(longest.V) {
		return nil, &trace.SyntaxError{File: l.File, Line: l.Line, Code: BadPoints,
			Hint: "max_model_len is that of run.yaml, or of the model's config",
			Msg:  fmt.Sprintf("measured points: got prompts and outputs of %g tokens together, want at most max_model_len %d", n, longest.V)}
	}
	inFlight := l.RateRPS.V * l.E2EMs.Or(l.TTFTMs.V+l.TPOTMs*(l.OutputTokens-1)) / 1e3 // Little's law
	switch {
	case p.Concurrency > 0 && !(l.OfferedRPS.V > 0 && inFlight < busyClients*float64(p.Concurrency)):
	case l.OfferedRPS.V > 0:
		p.rateRPS = l.OfferedRPS.V
	case inFlight > 0:
		p.Concurrency = max(1, int(min(trace.Int(inFlight), mostClients+1)))
	default:
		return nil, &trace.SyntaxError{File: l.File, Line: l.Line, Col: 1, Code: BadPoints, Msg: fmt.Sprintf(
			"measured points: %s: got neither clients nor a rate nor a latency beside the throughput, want one of them", l.Name)}
	}
	ranks := max(1, int(d.DP)) // a benchmark's load is the server's, an engine's limits are a rank's
	p.Concurrency = (p.Concurrency + ranks - 1) / ranks
	p.rateRPS = p.rateRPS / float64(ranks)
	p.count = (p.count + ranks - 1) / ranks
	if p.Concurrency > mostClients {
		return nil, &trace.SyntaxError{File: l.File, Line: l.Line, Col: 1, Code: BadPoints,
			Msg: fmt.Sprintf("measured points: %s: got %d clients or more, want at most %d", l.Name, p.Concurrency, mostClients)}
	}
	return p, p.CheckUnit(l.File, l.Line)
}

// deploymentOf is the deployment at the parallel sizes that a level states. Another size has
// another KV cache: that of run.yaml gives way to an estimate. Code: bad_points.
func deploymentOf(l *trace.LoadPoint, d *deploy.Deployment) (*deploy.Deployment, error) {
	own := *d
	own.TP, own.DP = l.TP.Or(d.TP), l.DP.Or(d.DP)
	if l.EP.OK {
		own.Engine.ExpertParallel = l.EP.V > 1 && own.Model.IsMoE() // vLLM ignores it without experts
	}
	if own.TP == d.TP && own.DP == d.DP && own.Engine.ExpertParallel == d.Engine.ExpertParallel {
		return d, nil
	}
	own.Engine.KVBlocksGPU = trace.Opt[int64]{}
	_, _, err := own.KVBlocks()
	if err = errors.Join(own.Check(), err); err != nil {
		return nil, &trace.SyntaxError{File: l.File, Line: l.Line, Col: 1, Code: BadPoints, Msg: fmt.Sprintf("measured points: tp %d, ep %d, "+
			"dp %d: %v", own.TP, l.EP.V, own.DP, err), Hint: "tp, ep and dp are those that the level was measured at"}
	}
	return &own, nil
}

// busyClients is the share of a harness's clients that must be at work for it to
// hold back a stated rate.
const busyClients = 0.9

// CheckUnit refuses times that cannot be milliseconds: no token takes less than
// reading the weights once.
func (p *Level) CheckUnit(path string, line int64) error {
	least, most, ok := p.Deployment.TokenTimesUs()
	if us := 1e3 * p.TPOTMs; !ok || us >= least && us <= most {
		return nil
	}
	return &trace.SyntaxError{File: path, Line: line, Col: 1, Code: BadPoints, Hint: "times are milliseconds",
		Msg: fmt.Sprintf("measured points: tpot_ms: got %g, want %.3g to %.3g: the weights alone take %.3g ms", p.TPOTMs, least/1e3, most/1e3,
			2*least/1e3)}
}

// Harness is what a benchmark did that its points do not say.
type Harness struct {
	PromptLeast, PromptMost float64 // prompts are even between these shares of the nominal
	OutputLeast, OutputMost float64 // and outputs between these
	Rounds                  int     // requests per client
	RampS                   float64 // the clients start evenly over this time; 0: together
}

// The two harnesses that public benchmarks of this kind use: lengths drawn over
// 80 to 100 % of the nominal, or constant prompts whose answers stop within 2 %
// of the nominal. Clients start together and send ten requests each.
var (
	SpreadHarness   = Harness{0.8, 1, 0.8, 1, 10, 0}
	ConstantHarness = Harness{1, 1, 0.98, 1, 10, 0}
)

// Harness is what the level's benchmark is taken to have done. Rows that state
// their engine's release come from a benchmark with constant lengths, the others
// from one that draws them.
func (p *Level) Harness() Harness {
	if p.Version != "" {
		return ConstantHarness
	}
	return SpreadHarness
}

// mostRequests of a benchmark that says how many it sent are simulated.
const mostRequests = 2000

// mostClients is far above the seats of an engine: each sends several requests.
const mostClients = 1 << 14

// Requests are those of a benchmark of the level: a closed loop of its clients, or
// Poisson arrivals at its rate. Stated spreads of lengths are even ones.
func (p *Level) Requests(h Harness) ([]sim.Request, error) {
	rng := rand.New(rand.NewPCG(1, 0x51c0))
	length := func(n int64, least, most, sd float64) int64 {
		if mean := float64(n); sd > 0 {
			half := min(math.Sqrt(3)*sd/mean, 1)
			least, most = 1-half, 1+half
		}
		lo := trace.Int(least * float64(n))
		hi := trace.Int(most * float64(n))
		return lo + rng.Int64N(hi-lo+1)
	}
	n := h.Rounds * p.Concurrency
	if p.count > 0 {
		n = max(p.Concurrency, min(p.count, mostRequests))
	} else if p.rateRPS > 0 {
		n = openRequests
	}
	w := &workload.Workload{Requests: make([]sim.Request, n)}
	at := 0.0
	for i := range w.Requests {
		w.Requests[i] = sim.Request{PromptTokens: max(1, length(p.InputTokens, h.PromptLeast, h.PromptMost, p.promptSD)),
			OutputTokens: max(2, length(p.OutputTokens, h.OutputLeast, h.OutputMost, p.outputSD))}
		if p.rateRPS > 0 {
			at += rng.ExpFloat64() / p.rateRPS
			w.Requests[i].ArrivalUs = sim.ToUs(math.Floor(1e6 * at))
		}
	}
	if p.rateRPS > 0 {
		return w.Requests, nil
	}
	return w.Requests, w.Close(workload.Loop{Clients: p.Concurrency, RampUs: int64(h.RampS * 1e6)})
}

// openRequests are simulated of open arrivals where nobody says how many there were.
const openRequests = 300

// Learned is what was learned from requests.
type Learned struct {
	Set        *coeff.Set           // values, covariance of the step time, intervals, evidence by term
	Level      *result.RequestLevel // how it was learned, as fit.json says it
	Names      []string             // of the free terms, target/term
	Covariance [][]float64
	directions []direction
}

// Fit learns the coefficients of one configuration from what its requests
// experienced. All loads are of that configuration. Codes: nothing_measured,
// those of the simulator and of the features.
func Fit(ctx context.Context, loads []*Load, prior *Prior, o Options) (*Learned, error) {
	if len(loads) == 0 {
		return nil, trace.Errorf(NothingMeasured, "requests: got no load, want at least one")
	}
	l := &learner{Options: o, ctx: ctx, loads: loads}
	for _, load := range loads {
		if err := load.check(); err != nil {
			return nil, err
		}
		l.twins = append(l.twins, twinsOf(load, o))
	}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	start, seen, err := l.anchored()
	if err != nil {
		return nil, err
	}
	best, e, err := l.best(start, seen)
	if err != nil {
		return nil, err
	}
	found, err := l.search(best, e)
	if err != nil {
		return nil, err
	}
	if loads[0].Point != nil { // a point's error is known beforehand
		post, err := l.posterior(e)
		if err != nil {
			return nil, err
		}
		return l.learned(found, post, nil), nil
	}
	values, post, scatter, err := l.refitted(found)
	if err != nil {
		return nil, err
	}
	answer, err := l.unbiased(found, values, scatter, found == best)
	if err != nil {
		return nil, err
	}
	if answer != found {
		return l.learned(answer, post, scatter), nil
	}
	if post, err = l.posterior(e); err != nil {
		return nil, err
	}
	return l.learned(found, widened(post, found.values, values), scatter), nil
}

const (
	manyTwins = 5    // standard deviations over twins that are no chance
	mostStep  = 0.25 // scatter of steps above which they are no longer like even noise around a mean
	farther   = 3    // times an objective that says a fit is of something else
)

// unbiased is the candidate without the bias of the equations, unless a search has led
// elsewhere, the recordings are not like the real one or the replays are clearly farther
// with it.
func (l *learner) unbiased(from *state, values []float64, u *result.RequestScatter, unsearched bool) (*state, error) {
	if !unsearched {
		return from, nil
	}
	next, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, err
	}
	took, answer := "bias taken off", next
	if u.StepFrac > mostStep || next.objective > farther*from.objective+manyTwins*from.twins {
		took, answer = "bias not taken off", from
	}
	l.passes = append(l.passes, result.RequestPass{Name: took, Objective: next.objective})
	return answer, nil
}

// widened is a covariance with the bias that was left in the answer as one more error.
func widened(covariance, answer, unbiased []float64) []float64 {
	n := len(answer)
	for k := range n {
		for i := range n {
			covariance[k*n+i] += (answer[k] - unbiased[k]) * (answer[i] - unbiased[i])
		}
	}
	return covariance
}

// leastGain is by how much a fit that does without the regression's evidence must be
// nearer to take its place.
const leastGain = 0.1

// best is where the passes lead from the regression's answer: with its evidence, or
// without, should that be clearly nearer. Preemptions and waits for KV blocks are
// seen by the simulator alone.
func (l *learner) best(values []float64, seen *evidence) (*state, evidence, error) {
	start, err := l.assess(l.loads, l.twins, values, 0, true)
	if err != nil {
		return nil, evidence{}, err
	}
	l.stamps, l.seen = seen, seen
	with, e, err := l.newton(start)
	if err != nil || seen == nil {
		return with, e, err
	}
	l.stamps = nil
	without, other, err := l.newton(start)
	if err != nil {
		return nil, e, err
	}
	if without.objective < (1-leastGain)*with.objective {
		return without, other, nil
	}
	l.stamps = seen
	return with, *seen, nil
}

// twinsOf are jittered copies of a load; a closed loop sends by itself, its copies
// are the load itself.
func twinsOf(l *Load, o Options) [][]sim.Request {
	return sim.Twins(l.Requests, max(1, o.Twins), o.JitterUs, o.Seed)
}

// learned describes the answer.
func (l *learner) learned(s *state, post []float64, u *result.RequestScatter) *Learned {
	n := len(l.m.free)
	directions := l.directions(s.values, post)
	level := &result.RequestLevel{Prior: l.m.name, Passes: append([]result.RequestPass{}, l.passes...), Objective: s.objective,
		NoiseFloor: s.twins, Evaluations: l.calls, SimulatedSteps: l.steps.Load(), Scatter: u,
		Directions: append([]result.LearnedDirection{}, stat.Map(directions, direction.document)...)}
	if l.seen != nil {
		level.SpanErrorFrac, level.TTFTErrorFrac = result.OrNull(l.seen.errors[rowSpan]), result.OrNull(l.seen.errors[rowTTFT])
	}
	for _, of := range l.loads {
		level.Loads = append(level.Loads, result.RequestLoad{Name: of.Name, Tier: of.Tier, Requests: len(of.Requests) - of.later})
	}
	out := &Learned{Set: l.m.setOf(s.values), Level: level, Names: l.m.names, directions: directions}
	for k := range n {
		out.Covariance = append(out.Covariance, post[k*n:(k+1)*n])
	}
	l.describe(out, s)
	return out
}

// posterior is the covariance of the free terms after the evidence.
func (l *learner) posterior(e evidence) ([]float64, error) {
	n := len(l.m.free)
	information := make([]float64, n*n)
	for k := range information {
		information[k] = e.sum.G[k]/(e.variance*e.design) + l.m.precision[k]
	}
	return l.m.inverse(information)
}

// inverse of an information matrix of the free terms.
func (m *model) inverse(information []float64) ([]float64, error) {
	out := stat.Inverse(information, len(m.free))
	if out == nil {
		return nil, trace.Errorf(coeff.ImpossibleCoefficient, "prior %s: got an information matrix that is singular", m.name).
			WithHint("is every request or load level of the one deployment, and its times in the unit stated?")
	}
	return out, nil
}

// normal95 is half the width of a 95 % interval in standard errors.
const normal95 = 1.959963984540054

// describe puts intervals and evidence on the terms. One that no time of any load depends
// on is the prior's, though it moves with others where the prior has them go together.
func (l *learner) describe(out *Learned, s *state) {
	n := len(s.values)
	for k, v := range s.values {
		c := l.m.at(out.Set, k)
		half := normal95 * math.Sqrt(out.Covariance[k][k])
		c.CI95 = &[2]float64{math.Max(0, v-half), v + half}
		c.CI95Given = coeff.GivenPrior
		share := 1 - out.Covariance[k][k]/(l.m.sd[k]*l.m.sd[k])
		if !slices.ContainsFunc(s.blocks, func(b *ridge.Gram) bool { return b.G[k*n+k] > 0 }) {
			share = 0
		}
		switch {
		case share > 0.9:
			c.Identified, c.Evidence = coeff.Within, "data"
		case share < 0.1:
			c.Identified = coeff.PriorOnly
			c.Evidence = "prior"
		default:
			c.Identified, c.Evidence = coeff.Within, fmt.Sprintf("data %.2f, prior %.2f", share, 1-share)
		}
	}
	out.Set.Covariance = make([][]float64, len(out.Set.Beta))
	for j := range out.Set.Covariance {
		out.Set.Covariance[j] = make([]float64, len(out.Set.Beta))
	}
	for k := range l.m.beta {
		for i := range l.m.beta {
			out.Set.Covariance[l.m.free[k]][l.m.free[i]] = out.Covariance[k][i]
		}
	}
}

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	ReplayUnlike    trace.Code = "replay_unlike"
	BadPoints       trace.Code = "bad_points"
)

// Choose picks the n loads that would tell most together, one after the other: the
// largest determinant of what is known after them, with the prior (D-optimality). Only
// what is asked of the loads counts, not what was measured. A load that runs the prior's
// server out of KV blocks is not chosen: it tells the size of the cache before it tells
// what a step costs. Errors are those of the simulator.
func Choose(ctx context.Context, loads []*Load, prior *Prior, n int, o Options) ([]int, error) {
	l := &learner{Options: o, ctx: ctx}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	grams := make([]*ridge.Gram, len(loads))
	taken := make([]bool, len(loads))
	err = par.Try(ctx, o.Workers, len(loads), func(i int) error {
		cfg, err := loads[i].config(l.m, l.m.mean)
		if err != nil {
			return err
		}
		means, err := sim.MeansOf(cfg, loads[i].Requests)
		if err != nil {
			return err
		}
		if taken[i] = means.Preemptions > 0; taken[i] {
			return nil
		}
		point := Point{TTFTMs: means.TTFTMs, TPOTMs: means.TPOTMs}
		score, err := point.assess(cfg, loads[i].Requests, l.m.theta(loads[i], l.m.mean), true)
		if err == nil {
			grams[i] = l.freeColumns(loads[i], score.Blocks[0], 1/(pointTPOTSD*pointTPOTSD))
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	known := append([]float64(nil), l.m.precision...)
	var chosen []int
	for len(chosen) < min(n, len(loads)) {
		best, most := -1, math.Inf(-1)
		for i, g := range grams {
			if taken[i] {
				continue
			}
			if d := logDet(known, g.G, len(l.m.free)); d > most {
				best, most = i, d
			}
		}
		if best < 0 {
			break
		}
		taken[best], chosen = true, append(chosen, best)
		addTo(known, grams[best].G)
	}
	return chosen, nil
}

// logDet is the log determinant of a + b; -Inf when it is not positive definite.
func logDet(a, b []float64, n int) float64 {
	sum := slices.Clone(a)
	addTo(sum, b)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, sum)) {
		return math.Inf(-1)
	}
	return chol.LogDet()
}

// Document is a set on one deployment in the form of a fit, for formats that are
// written from fits: the set's own terms, and BLIS's trained-physics terms fitted
// to what the set predicts for the design's batches on that deployment, as far as
// its token budget and seats allow them.
func Document(set *coeff.Set, d *deploy.Deployment) (*result.Fit, error) {
	on := features.On(set, d)
	doc := &result.Fit{TrainingDate: on.TrainedOn.Date, FeatureSet: features.SetOf(on.SpecVersion),
		Configs: []result.FitConfig{{Key: d.Config(), Label: d.Label(), Deployment: *d, Runs: []string{}}}}
	doc.Inputs, doc.Command = on.Inputs, on.Command
	doc.Beta = modelOf("beta", on.BetaTarget, on.Beta)
	doc.Beta.SpecVersion = string(on.SpecVersion)
	doc.Beta.Recipe = on.Recipe
	doc.Beta.Covariance = on.Covariance
	doc.Beta.GammaEMA = new(on.Gamma)
	for i := range on.Alpha {
		a := &on.Alpha[i]
		m := modelOf("alpha", a.Target, a.Coefficients)
		base := a.Coefficients[overheadBase-1].Value
		m.Replay = a.Replay
		m.Covariance = a.Covariance
		m.Interval = &result.IntervalErrors{MedianPredUs: &base}
		m.TargetErrors = &result.TargetErrors{MedianPredUs: &base}
		doc.Alpha = append(doc.Alpha, m)
	}
	if on.AlphaModel(coeff.Egress) == nil { // a library counts all time outside the engine before it
		m := modelOf("alpha", coeff.Egress, features.NewCoefficients(features.AlphaFeatures(on.SpecVersion)))
		m.Replay = true
		m.TargetErrors = &result.TargetErrors{MedianPredUs: new(0.0)}
		doc.Alpha = append(doc.Alpha, m)
	}
	m, err := trainedPhysics(on, d)
	switch {
	case err == nil:
		doc.Models = []result.Model{*m}
	case trace.CodeOf(err) != deploy.BadModel: // one that BLIS refuses, as it has fewer KV heads than GPUs
		return nil, err
	}
	return doc, nil
}

func modelOf(name, target string, cs []coeff.Coefficient) result.Model {
	m := result.Model{Name: name, Target: target}
	for _, c := range cs {
		m.Coefficients = append(m.Coefficients, result.Coefficient{Coefficient: c})
	}
	return m
}

const documentLambda = 3e-3

// overheadBase is the slot of the overhead that an idle server has.
const overheadBase = 4

// documentBatches are enough for eleven terms.
const documentBatches = 1200

// trainedPhysics fits BLIS's terms to the set's predictions.
func trainedPhysics(on *coeff.Set, d *deploy.Deployment) (*result.Model, error) {
	tp, err := features.NewTrainedPhysics(d)
	if err != nil {
		return nil, err
	}
	space, err := features.New(on.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	rows := &ridge.Data{P: len(features.TrainedPhysicsBeta())}
	x := make([]float64, len(on.Beta))
	z := make([]float64, rows.P)
	q := fit.NewDraws(5, 1)
	var buf []trace.Chunk
	for i := range documentBatches {
		regime := int32(i) % fit.NumRegimes
		buf = fit.Within(q.Batch(regime, buf), &d.Engine)
		if hits, err := space.Beta(new(space.Sum(buf)), x); err != nil || hits != 0 || len(buf) == 0 {
			continue
		}
		tp.Beta(new(features.BasisSum(buf)), z)
		rows.X, rows.Y = append(rows.X, z...), append(rows.Y, on.Predict(x))
		rows.Config = append(rows.Config, 0)
		rows.Regime = append(rows.Regime, regime)
	}
	o := ridge.DefaultOptions(rows.P)
	o.Prior = make([]float64, rows.P)
	for j, t := range features.TrainedPhysicsBeta() {
		if t.Unit == "dimensionless" { // what one deployment cannot tell apart shares at about the peak, so that no term is 0 by accident
			o.Prior[j] = 1
		}
	}
	w := ridge.Weights(rows, o)
	best, _, err := ridge.FitPublished(rows, w, documentLambda, o)
	if err != nil {
		return nil, err
	}
	cs := make([]coeff.Coefficient, rows.P)
	for j, t := range features.TrainedPhysicsBeta() {
		cs[j] = coeff.Coefficient{Name: t.Name, Unit: t.Unit, Value: best.Beta[j], Identified: coeff.Within}
	}
	m := modelOf("trained-physics", on.BetaTarget, cs)
	pred := ridge.Predict(rows, best.Beta)
	errors := make([]float64, len(pred))
	for i, y := range rows.Y {
		errors[i] = max(pred[i]/y, y/pred[i]) - 1
	}
	m.Holdout = &result.Errors{Rows: len(pred), MAPE: new(stat.Mean(errors))}
	return &m, nil
}
