package requestfit

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

// Harness is how a benchmark is taken to have sent its requests, where its points do not state it.
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

// mostRequests is how many requests of a benchmark are simulated at most.
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

// openRequests is how many requests of open arrivals are simulated where their number is not stated.
const openRequests = 300
