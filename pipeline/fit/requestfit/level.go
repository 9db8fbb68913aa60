package requestfit

// This file makes the requests of a load level from the means that a benchmark printed: how many, how
// long, and when they are sent.

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// Level is one measured load level of a real server: a closed loop of clients or open
// arrivals, with its mean TTFT and TPOT. Clients, rate and requests are those of one data-parallel
// rank.
type Level struct {
	Version                   string // of vLLM; empty if not known
	InputTokens, OutputTokens int64  // nominal
	Concurrency               int    // clients of a closed loop
	TTFTMs, TPOTMs            float64
	Deployment                *deploy.Deployment

	// CachedTokens are the prompt tokens that the prefix cache had, in the mean of the requests; unknown
	// where nothing states it and prefix caching is on.
	CachedTokens trace.Opt[float64]

	promptSD, outputSD float64 // standard deviation of lengths; 0: the harness decides
	rateRPS            float64 // of open arrivals; 0: a closed loop
	count              int     // requests; 0: the harness decides
}

// LevelOf returns the level with the figures that a benchmark printed for a deployment. If they
// state neither clients nor a rate, the mean number of requests in flight is used as the clients of
// a closed loop. Code: bad_points.
func LevelOf(point *trace.LoadPoint, d *deploy.Deployment) (*Level, error) {
	d, err := deploymentOf(point, d)
	if err != nil {
		return nil, err
	}
	// The least lengths are those of a request that has both measured times.
	level := &Level{
		Version:      d.Engine.VLLMVersion,
		InputTokens:  max(1, trace.Int(point.PromptTokens)),
		OutputTokens: max(2, trace.Int(point.OutputTokens)), // TPOT is the time after the first token
		Concurrency:  int(point.Clients.V),
		TTFTMs:       point.TTFTMs.Or(math.NaN()),
		TPOTMs:       point.TPOTMs,
		Deployment:   d,
		CachedTokens: point.CachedTokens,
		promptSD:     point.PromptSD.V,
		outputSD:     point.OutputSD.V,
		count:        int(point.Requests.V),
	}
	switch { // what the file states of the level comes before what run.yaml states of all
	case !d.Engine.PrefixCaching:
		level.CachedTokens = trace.Some(0.0)
	case !level.CachedTokens.OK && d.Client.SharedPrefixTokens.OK:
		level.CachedTokens = trace.Some(min(float64(d.Client.SharedPrefixTokens.V), point.PromptTokens))
	}
	tokens := point.PromptTokens + point.OutputTokens
	if longest := d.MaxModelLen(); longest.OK && tokens > float64(longest.V) {
		return nil, &trace.SyntaxError{
			File: point.File,
			Line: point.Line,
			Code: BadPoints,
			Msg: fmt.Sprintf("measured points: got prompts and outputs of %g tokens together, "+
				"want at most max_model_len %d", tokens, longest.V),
			Hint: "max_model_len is that of run.yaml, or of the model's config",
		}
	}
	e2eMs := point.E2EMs.Or(point.TTFTMs.V + point.TPOTMs*(point.OutputTokens-1))
	// The mean number of requests in flight, by Little's law from the measured throughput.
	inFlight := point.RateRPS.V * e2eMs / 1e3
	areClientsIdle := point.OfferedRPS.V > 0 && inFlight < busyClients*float64(level.Concurrency)
	ranks := max(1, int(d.DP))
	// What limits the load: the clients of a closed loop, a stated rate, or, if neither is known, as
	// many clients as requests were in flight.
	switch {
	case level.Concurrency > 0 && !areClientsIdle:
		// the load is a closed loop of the stated clients
	case point.OfferedRPS.V > 0:
		level.rateRPS = point.OfferedRPS.V
	case inFlight > 0:
		level.Concurrency = max(1, int(min(trace.Int(inFlight), (mostClients+1)*int64(ranks))))
	default:
		return nil, badPoint(point, "measured points: %s: got neither clients nor a rate nor a latency "+
			"together with the throughput, want one of them", point.Name)
	}
	// The load of a benchmark is spread over the data-parallel ranks, each with the
	// engine's limits. Numbers of clients and requests are rounded up.
	level.Concurrency = (level.Concurrency + ranks - 1) / ranks
	level.rateRPS /= float64(ranks)
	level.count = (level.count + ranks - 1) / ranks
	if level.Concurrency > mostClients {
		return nil, badPoint(point, "measured points: %s: got %d clients or more, want at most %d",
			point.Name, level.Concurrency, mostClients)
	}
	return level, level.CheckUnit(point.File, point.Line)
}

// badPoint returns an error at the line of a measured point.
func badPoint(l *trace.LoadPoint, format string, args ...any) *trace.SyntaxError {
	return &trace.SyntaxError{
		File: l.File,
		Line: l.Line,
		Col:  1,
		Code: BadPoints,
		Msg:  fmt.Sprintf(format, args...),
	}
}

// deploymentOf returns the deployment at the parallel sizes that a level states. The KV cache
// of run.yaml does not apply to other sizes; an estimate replaces it. Code: bad_points.
func deploymentOf(l *trace.LoadPoint, d *deploy.Deployment) (*deploy.Deployment, error) {
	own := *d
	own.TP = l.TP.Or(d.TP)
	own.DP = l.DP.Or(d.DP)
	if l.EP.OK {
		own.Engine.ExpertParallel = l.EP.V > 1 && own.Model.IsMoE() // vLLM ignores it without experts
	}
	if own.TP == d.TP && own.DP == d.DP && own.Engine.ExpertParallel == d.Engine.ExpertParallel {
		return d, nil
	}
	own.Engine.KVBlocksGPU = trace.Opt[int64]{}
	_, _, err := own.KVBlocks()
	if err = errors.Join(own.Check(), err); err != nil {
		bad := badPoint(l, "measured points: tp %d, ep %d, dp %d: %v", own.TP, l.EP.V, own.DP, err)
		bad.Hint = "tp, ep and dp are those that the level was measured at"
		return nil, bad
	}
	return &own, nil
}

// busyClients is the share of a benchmark's clients above which they limit the load. If
// fewer are busy on average, a stated rate is the load, and clients are only its limit.
const busyClients = 0.9

// CheckUnit returns an error for a TPOT that cannot be in milliseconds, because a token takes about the time of reading
// the weights once, or longer. It is refused below half of that time: the datasheet's bandwidth and the weights' format may be
// stated too low. Only TPOT is checked, as prompts differ.
func (p *Level) CheckUnit(path string, line int64) error {
	bounds, ok := p.Deployment.TokenTimes() // of a TPOT; not ok: unknown hardware
	us := 1e3 * p.TPOTMs
	if !ok || us >= bounds.LeastUs && us <= bounds.MostUs {
		return nil
	}
	return &trace.SyntaxError{
		File: path,
		Line: line,
		Col:  1,
		Code: BadPoints,
		Msg: fmt.Sprintf("measured points: tpot_ms: got %g, want %.3g to %.3g: the weights alone take %.3g ms",
			p.TPOTMs, bounds.LeastUs/1e3, bounds.MostUs/1e3, bounds.ReadUs/1e3),
		Hint: "times are milliseconds",
	}
}

// Harness describes how a benchmark sends requests, for what measured points do not state. Lengths
// are uniform between the given shares of the nominal length.
type Harness struct {
	PromptLeast, PromptMost float64
	OutputLeast, OutputMost float64
	Rounds                  int     // requests per client
	RampS                   float64 // the clients start evenly over this time; 0: together
}

// The two harnesses that public benchmarks of this kind use: lengths drawn over
// 80 to 100 % of the nominal, or constant prompts whose answers stop within 2 %
// of the nominal. Clients start together and send ten requests each.
var (
	SpreadHarness = Harness{
		PromptLeast: 0.8,
		PromptMost:  1,
		OutputLeast: 0.8,
		OutputMost:  1,
		Rounds:      10,
	}
	ConstantHarness = Harness{
		PromptLeast: 1,
		PromptMost:  1,
		OutputLeast: 0.98,
		OutputMost:  1,
		Rounds:      10,
	}
)

// Harness returns the assumed harness of a level. Public benchmarks that state the engine's release use
// constant lengths, the others draw them.
func (p *Level) Harness() Harness {
	if p.Version != "" {
		return ConstantHarness
	}
	return SpreadHarness
}

// cachedOf returns the cached tokens of one prompt: the level's share of it, less than the whole
// prompt.
func (p *Level) cachedOf(prompt int64) trace.Opt[int64] {
	if !p.CachedTokens.OK {
		return trace.Opt[int64]{}
	}
	share := p.CachedTokens.V / float64(max(1, p.InputTokens))
	return trace.Some(max(0, min(prompt-1, trace.Int(share*float64(prompt)))))
}

const (
	// mostRequests bounds a stated number of requests, unless there are more clients: each sends one at least.
	mostRequests = 2000
	// openRequests is the number of requests of open arrivals if it is not stated.
	openRequests = 300
	// mostClients is far above max_num_seqs of any engine. It bounds the memory of a
	// level, because each client sends several requests.
	mostClients = 1 << 14
)

// Requests returns the requests that a benchmark of the level sends: a closed loop of its clients,
// or Poisson arrivals at its rate. Where a standard deviation of lengths is stated, they are drawn uniformly with it.
func (p *Level) Requests(h Harness) ([]sim.Request, error) {
	rng := rand.New(rand.NewPCG(1, 0x51c0))
	drawLength := func(nominal int64, least, most, sd float64) int64 {
		if sd > 0 {
			half := min(math.Sqrt(3)*sd/float64(nominal), 1) // a uniform distribution's half width
			least = 1 - half
			most = 1 + half
		}
		lo := trace.Int(least * float64(nominal))
		hi := trace.Int(most * float64(nominal))
		return lo + rng.Int64N(hi-lo+1)
	}
	isOpen := p.rateRPS > 0
	n := h.Rounds * p.Concurrency
	if p.count > 0 {
		n = max(p.Concurrency, min(p.count, mostRequests))
	} else if isOpen {
		n = openRequests
	}
	w := &workload.Workload{Requests: make([]sim.Request, n)}
	arrivalS := 0.0
	for i := range w.Requests {
		r := &w.Requests[i]
		r.PromptTokens = max(1, drawLength(p.InputTokens, h.PromptLeast, h.PromptMost, p.promptSD))
		r.CachedTokens = p.cachedOf(r.PromptTokens)
		r.OutputTokens = max(2, drawLength(p.OutputTokens, h.OutputLeast, h.OutputMost, p.outputSD))
		if isOpen {
			arrivalS += rng.ExpFloat64() / p.rateRPS
			r.ArrivalUs = sim.ToUs(math.Floor(1e6 * arrivalS))
		}
	}
	if isOpen {
		return w.Requests, nil
	}
	return w.Requests, w.Close(workload.Loop{Clients: p.Concurrency, RampUs: int64(h.RampS * 1e6)})
}
