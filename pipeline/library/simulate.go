package library

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
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

// load is the point under the harness; its group counts ttftCount points of TTFT.
func (p *Point) load(h Harness, groupSize int) (*load, error) {
	rng := rand.New(rand.NewPCG(1, 0x51c0))
	length := func(n int64, least, most float64) int64 {
		lo, hi := int64(math.Round(least*float64(n))), int64(math.Round(most*float64(n)))
		return lo + rng.Int64N(hi-lo+1)
	}
	w := &workload.Workload{Requests: make([]sim.Request, h.Rounds*p.Concurrency)}
	for i := range w.Requests {
		w.Requests[i] = sim.Request{PromptTokens: max(1, length(p.InputTokens, h.PromptLeast, h.PromptMost)),
			OutputTokens: max(2, length(p.OutputTokens, h.OutputLeast, h.OutputMost))}
	}
	err := w.Close(workload.Loop{Clients: p.Concurrency, RampUs: int64(h.RampS * 1e6)})
	return &load{name: p.ID, group: p.Group(), dep: p.Deployment, reqs: w.Requests, ttftMs: p.TTFTMs, tpotMs: p.TPOTMs,
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

// outcome is what a simulated load comes to: mean TTFT and TPOT over requests
// and their derivatives by the columns of the simulator.
type outcome struct {
	n              float64 // requests
	ttftMs, tpotMs float64
	ttftBy, tpotBy []float64 // ms per unit of the coefficient
}

// simulate runs one load with a coefficient set.
func (l *load) simulate(set *coeff.Set, gradient bool) (*outcome, error) {
	step, err := latency.NewPhysics(set, l.dep)
	if err != nil {
		return nil, err
	}
	cfg := sim.DefaultConfig(l.dep, step)
	if cfg.Overhead, err = latency.NewAlphaDelay(set, coeff.Overhead, l.dep); err != nil {
		return nil, err
	}
	cfg.Gradient, cfg.Restarts = gradient, true
	out := &outcome{}
	if gradient {
		c, err := sim.GradientColumns(&cfg)
		if err != nil {
			return nil, err
		}
		out.ttftBy, out.tpotBy = make([]float64, c.N()), make([]float64, c.N())
	}
	_, err = sim.Stream(cfg, l.reqs, nil, func(_ int, r *sim.RequestResult) bool { out.add(r); return true })
	out.ttftMs, out.tpotMs = out.ttftMs/out.n, out.tpotMs/out.n
	for j := range out.ttftBy {
		out.ttftBy[j] /= out.n
		out.tpotBy[j] /= out.n
	}
	return out, err
}

// add takes one request in; what did not finish has no times.
func (o *outcome) add(r *sim.RequestResult) {
	ttft, ok1 := r.TTFTUs()
	itl, ok2 := r.ITLUs()
	if !ok1 || !ok2 {
		return
	}
	o.n++
	o.ttftMs += ttft / 1e3
	o.tpotMs += itl / 1e3
	if g := r.Gradient; g != nil {
		gaps := float64(r.OutputTokens - 1)
		for j := range o.ttftBy {
			o.ttftBy[j] += g.TTFT.By[j] / 1e3
			o.tpotBy[j] += g.Span.By[j] / gaps / 1e3
		}
	}
}
