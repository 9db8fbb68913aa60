package queue

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/track"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
)

// SteadyPoint is a load of a simulated deployment and what the fitted model says of it.
type SteadyPoint struct {
	Load, RateRPS     float64 // share of the capacity; requests per second
	TTFTMs, ITLMs     float64 // simulated means
	TTFTPred, ITLPred float64 // of the queueing model, ms; NaN where it has none
}

// Steady are the parameters of a queueing model that give a deployment's simulated steady state.
type Steady struct {
	X      []float64 // in the flavour's order
	Points []SteadyPoint
}

// steadyLoads are the shares of the capacity that are simulated.
var steadyLoads = []float64{0.1, 0.2, 0.35, 0.5, 0.65, 0.8}

const (
	steadyRequests = 1500 // at each load
	steadyBurst    = 600  // at once, to measure the capacity
	steadySeed     = 1
	steadyRoom     = 10 // waiting room per seat, as workload-variant-autoscaler allocates
	chatPromptCV2  = 1
	chatOutputCV2  = 0.5
)

// SteadyState simulates a deployment at six loads, Poisson arrivals and log-normal lengths about
// the means, and fits a queueing model to mean TTFT and ITL there: what an autoscaler that solves
// this model needs in order to see what the deployment does, waits and prefills beside decodes
// included.
func SteadyState(d *deploy.Deployment, step latency.Model, overheadMs float64, f queueing.Flavour, prompt, output float64) (*Steady,
	error) {
	seats := int(d.Seats(prompt + output))
	v := queueing.Server{MaxBatch: seats, Queue: steadyRoom * seats, MaxBatchedTokens: int(d.Engine.MaxNumBatchedTokens),
		OverheadMs: overheadMs}
	t := chatTraffic(d, prompt, output)
	capacity, err := t.capacity(d, step)
	if err != nil {
		return nil, err
	}
	out := &Steady{}
	var windows []track.Window
	for _, load := range steadyLoads {
		t.Requests, t.RateRPS = steadyRequests, load*capacity
		cfg := sim.DefaultConfig(d, step)
		cfg.Overhead = latency.Const(1000 * overheadMs)
		reqs, shape := t.requests()
		got, err := play(cfg, reqs)
		if err != nil {
			return nil, err
		}
		rate := t.drawnRate()
		windows = append(windows, track.Window{Requests: got.Requests, RateRPS: rate, Shape: shape, Server: v, TTFTMs: got.TTFTMs,
			ITLMs: got.ITLMs, TTFTSeMs: got.TTFTSeMs, ITLSeMs: got.ITLSeMs})
		out.Points = append(out.Points, SteadyPoint{Load: load, RateRPS: rate, TTFTMs: got.TTFTMs, ITLMs: got.ITLMs})
	}
	o := track.DefaultFit(f)
	o.Physical = startOf(windows)
	fit, err := track.Fit(windows, o)
	if err != nil {
		return nil, err
	}
	out.X = fit.X
	for i := range windows {
		p := &out.Points[i]
		var ok bool
		if p.TTFTPred, p.ITLPred, ok = track.PredictWindow(f, &windows[i], fit.X, track.AsSized); !ok {
			p.TTFTPred, p.ITLPred = math.NaN(), math.NaN()
		}
	}
	return out, nil
}

// startOf reads the four-parameter form off the lightest and the heaviest load: what stands where
// the loads show no more.
func startOf(w []track.Window) []float64 {
	lo, hi := &w[0], &w[len(w)-1]
	busy := math.Max(1, hi.RateRPS/1000*hi.ITLMs*hi.Shape.Output) // requests in service, about
	slope := func(a, b float64) float64 { return math.Max(b-a, 1e-3*a) / busy }
	return []float64{lo.ITLMs, slope(lo.ITLMs, hi.ITLMs), lo.TTFTMs, slope(lo.TTFTMs, hi.TTFTMs) / hi.Shape.Prompt}
}

// capacity is the throughput of requests that all come at once, requests per second.
func (t *Traffic) capacity(d *deploy.Deployment, step latency.Model) (float64, error) {
	reqs, _ := t.requests()
	last := 0.0
	_, err := sim.Stream(sim.DefaultConfig(d, step), reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		last = math.Max(last, float64(r.FinishedUs.V))
		return true
	}))
	if err != nil {
		return 0, err
	}
	if last == 0 {
		return 0, errNothingFinished
	}
	return float64(len(reqs)) / last * 1e6, nil
}
