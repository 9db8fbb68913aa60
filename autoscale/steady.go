package autoscale

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
)

// steady are the parameters of a queueing model that give a deployment's simulated steady state.
type steady struct {
	Params params
	Points []export.SteadyPoint // simulated, and what the fitted model says of it
}

// steadyLoads are the shares of the capacity that are simulated.
var steadyLoads = []float64{0.1, 0.2, 0.35, 0.5, 0.65, 0.8}

const (
	steadyRequests = 1500 // at each load
	steadyRoom     = 10   // waiting room per seat, as workload-variant-autoscaler allocates
)

// SteadyState simulates a deployment at six loads, Poisson arrivals and log-normal lengths about
// the means, and fits a queueing model to mean TTFT and ITL there: what an autoscaler that solves
// this model needs in order to see what the deployment does, waits and prefills beside decodes
// included.
func SteadyState(d *deploy.Deployment, step sim.Model, overheadMs float64, f Flavour, prompt, output float64) (*steady,
	error) {
	seats := int(d.Seats(prompt + output))
	v := Limits{MaxBatch: seats, Queue: steadyRoom * seats, MaxBatchedTokens: int(d.Engine.MaxNumBatchedTokens),
		OverheadMs: overheadMs}
	t := workload.ChatTraffic(d, prompt, output)
	capacity, err := t.Capacity(d, step)
	if err != nil {
		return nil, err
	}
	out := &steady{}
	var windows []window
	for _, load := range steadyLoads {
		t.Requests, t.RateRPS = steadyRequests, load*capacity
		cfg := sim.DefaultConfig(d, step)
		cfg.Overhead = sim.Const(1000 * overheadMs)
		reqs, drawn := t.Draw()
		got, err := play(cfg, reqs)
		if err != nil {
			return nil, err
		}
		rate := t.DrawnRate()
		windows = append(windows, window{Requests: got.Requests, RateRPS: rate, Shape: drawn, Limits: v,
			TTFTMs: got.TTFTMs,
			ITLMs:  got.ITLMs, TTFTSeMs: got.TTFTSeMs, ITLSeMs: got.ITLSeMs})
		out.Points = append(out.Points, export.SteadyPoint{LoadFrac: load, RateRPS: rate, TTFTMs: got.TTFTMs, ITLMs: got.ITLMs})
	}
	o := defaultFit(f)
	o.Physical = startOf(windows)
	fit, err := Fit(windows, o)
	if err != nil {
		return nil, err
	}
	out.Params = fromVector(fit.X)
	for i := range windows {
		p := &out.Points[i]
		if ttft, itl, ok := predictWindow(f, &windows[i], fit.X, asSized); ok {
			p.TTFTErr, p.ITLErr = result.OrNull(ttft/p.TTFTMs-1), result.OrNull(itl/p.ITLMs-1)
		}
	}
	return out, nil
}

// startOf reads the four-parameter form off the lightest and the heaviest load: what stands where
// the loads show no more.
func startOf(w []window) []float64 {
	lo, hi := &w[0], &w[len(w)-1]
	busy := math.Max(1, hi.RateRPS/1000*hi.ITLMs*hi.Shape.Output) // requests in service, about
	slope := func(a, b float64) float64 { return math.Max(b-a, 1e-3*a) / busy }
	return []float64{lo.ITLMs, slope(lo.ITLMs, hi.ITLMs), lo.TTFTMs, slope(lo.TTFTMs, hi.TTFTMs) / hi.Shape.Prompt}
}
