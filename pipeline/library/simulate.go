package library

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
	"github.com/blis-train/blis-train/sim/replay"
	"github.com/blis-train/blis-train/sim/workload"
)

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
	spreadHarness   = Harness{0.8, 1, 0.8, 1, 10, 0}
	constantHarness = Harness{1, 1, 0.98, 1, 10, 0}
)

// Harness is what the point's benchmark is taken to have done. Rows that state
// their engine's release come from a benchmark with constant lengths, the others
// from one that draws them.
func (p *Point) Harness() Harness {
	if p.version != "" {
		return constantHarness
	}
	return spreadHarness
}

// mostRequests of a benchmark that says how many it sent are simulated.
const mostRequests = 2000

// Requests are those of a benchmark of the point: a closed loop of its clients, or
// Poisson arrivals at its rate. Stated spreads of lengths are even ones.
func (p *Point) Requests(h Harness) ([]sim.Request, error) {
	rng := rand.New(rand.NewPCG(1, 0x51c0))
	length := func(n int64, least, most, sd float64) int64 {
		if mean := float64(n); sd > 0 {
			half := min(math.Sqrt(3)*sd/mean, 1)
			least, most = 1-half, 1+half
		}
		lo, hi := int64(math.Round(least*float64(n))), int64(math.Round(most*float64(n)))
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
			w.Requests[i].ArrivalUs = int64(1e6 * at)
		}
	}
	if p.rateRPS > 0 {
		return w.Requests, nil
	}
	return w.Requests, w.Close(workload.Loop{Clients: p.Concurrency, RampUs: int64(h.RampS * 1e6)})
}

// openRequests are simulated of open arrivals where nobody says how many there were.
const openRequests = 300

// load is the point under the harness; its group counts ttftCount points of TTFT.
func (p *Point) load(h Harness, groupSize int) (*load, error) {
	reqs, err := p.Requests(h)
	return &load{name: p.ID, group: p.Group(), dep: p.Deployment, reqs: reqs, ttftMs: p.TTFTMs, tpotMs: p.TPOTMs,
		tpotWeight: 1, ttftWeight: min(1, ttftCount/float64(groupSize))}, err
}

// loads are the points, each under the harness of its group.
func loads(points []Point, harness func(p *Point) Harness) ([]*load, error) {
	size := map[string]int{}
	for i := range points {
		size[points[i].Group()]++
	}
	out := make([]*load, len(points))
	for i := range points {
		p := &points[i]
		var err error
		if out[i], err = p.load(harness(p), size[p.Group()]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// simulate runs one load with a coefficient set.
func (l *load) simulate(set *coeff.Set, gradient bool) (*replay.Means, error) {
	step, err := latency.NewPhysics(set, l.dep)
	if err != nil {
		return nil, err
	}
	cfg := sim.DefaultConfig(l.dep, step)
	if cfg.Overhead, err = latency.NewAlphaDelay(set, coeff.Overhead, l.dep); err != nil {
		return nil, err
	}
	cfg.Gradient = gradient
	return replay.MeansOf(cfg, l.reqs)
}
