package predict

// This file runs one simulation of the server that a question is about.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/library"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Server returns the server that is asked about, bound to its step times, with no load simulated
// yet: for callers that simulate loads of their own. Of the answer only what describes the server
// is filled.
func (q *Question) Server(ctx context.Context) (*Prediction, *deploy.Deployment, error) {
	d, findings, err := q.Deployment()
	if err != nil {
		return nil, nil, err
	}
	p, err := q.prepare(ctx, d, findings)
	if err != nil {
		return nil, d, err
	}
	return p, d, q.fitCache(p, d)
}

// Engine returns the configuration of a simulation with one seed. Engines of one server share no
// scratch space.
func (p *Prediction) Engine(seed int64) (sim.Config, error) {
	o := p.options
	cfg, err := p.simulation.With(&o).Engine(seed)
	cfg.Ranks = p.DP > 1
	cfg.RequestGaps = false
	return cfg, err
}

// A warm-up lasts as long as WarmUpAnswers answers of an idle server, the mean of idleAnswers one after the other.
const (
	WarmUpAnswers = 3
	idleAnswers   = 8
)

// WarmUpS returns how long a load warms a server up before its requests are measured, in seconds.
func (p *Prediction) WarmUpS(load *Load, seed int64) (float64, error) {
	idle := *load
	idle.RateRPS = 0
	idle.Clients = 1
	stretch, err := idle.Stretch(seed, idleAnswers, 0, 1)
	if err != nil {
		return 0, err
	}
	s, _, err := p.serve(stretch, seed, nil)
	if err != nil {
		return 0, err
	}
	if len(s.E2E) == 0 {
		return 0, trace.Errorf(sim.CodeBadConfig, "no request of this length completes: the KV cache holds %s tokens", trace.Thousands(p.KVTokens)).
			WithHint("shorten --input-len and --output-len, or raise --tp")
	}
	return math.Min(mostWarmUpS, WarmUpAnswers*stat.Mean(s.E2E)/1e3), nil
}

// serve simulates a stretch on the one server, with a seed for the engine's own random numbers. breakdown, which also
// records the steps' times by kind of work, may be nil.
func (p *Prediction) serve(s *Stretch, seed int64, breakdown *stepBreakdown) (*Sample, *sim.Result, error) {
	cfg, err := p.Engine(seed)
	if err != nil {
		return nil, nil, err
	}
	if breakdown != nil {
		breakdown.Model = cfg.Latency
		cfg.Latency = breakdown
	}
	res, err := sim.Run(cfg, s.Requests, nil)
	if err != nil {
		return nil, nil, err
	}
	return NewSample(res.Requests, []*sim.Result{res}, s), res, nil
}

// StatedErrors returns the half widths, as ratios, of the intervals that nine in ten measured servers
// of this kind fall into (simulate.Trust). Where steps take the roofline nothing is stated, and the
// widest of all families counts.
//
// E2E is TTFT and the gaps after it, so its error has those of both by their shares of the samples' mean. The interval
// of E2E that was measured is of answers of 128 tokens and more, hardly any of whose time is TTFT.
func (p *Prediction) StatedErrors(samples []*Sample) Errors {
	i := p.Trust.Intervals90
	if i == nil {
		i = &library.Learned().Unseen
	}
	e := Errors{TTFT: i.TTFT, TPOT: i.ITL, E2E: math.Max(i.TTFT, i.ITL)}
	var ttftMs, e2eMs float64 // of all answers together
	for _, s := range samples {
		for i := range s.E2E {
			ttftMs += s.TTFT[i]
			e2eMs += s.E2E[i]
		}
	}
	if e2eMs > 0 {
		ttftShare := ttftMs / e2eMs
		e.E2E = ttftShare*i.TTFT + (1-ttftShare)*i.ITL
	}
	return e
}

// In returns the server as one of so many that share a load, with the trust in what its samples measured: servers
// were compared with few clients each, within their capacity.
func (p *Prediction) In(load *Load, servers int, samples []*Sample) *Prediction {
	isSaturated := Broken(samples, &Targets{}) == brokenSaturated ||
		slices.ContainsFunc(samples, func(s *Sample) bool { return s.Preempted })
	clients := (load.Clients + servers - 1) / servers // of the busiest one
	own := *p
	own.Trust = p.simulation.TrustIn(int64(clients), load.CachedShare, load.IsWorkload(), isSaturated)
	return &own
}
