package autoscale

// This file simulates steady states: with the parameters of a queueing model, to check it, and of a
// deployment, to find parameters of wva-4p that reproduce it.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

const (
	simBlock   = 16  // tokens of a KV block
	warmUpFrac = 0.1 // share of the requests that only warm the engine up
	simBlocks  = 20  // blocks of requests from whose means standard errors are computed
)

// simulatedEngine returns a deployment of one engine with limits v. If the size of its KV cache is
// not known, it has enough blocks for max_num_seqs requests of the longest length, tokens.
func simulatedEngine(v Limits, longest int64) *deploy.Deployment {
	var kv int64
	if v.KVTokens != nil {
		kv = trace.Int(math.Trunc(*v.KVTokens)) / simBlock
	}
	if kv == 0 {
		kv = min(vllm.MaxKVBlocks, int64(v.MaxBatch+1)*(longest/simBlock+1))
	}
	return &deploy.Deployment{
		TP: 1,
		PP: 1,
		DP: 1,
		Engine: vllm.Engine{
			MaxNumSeqs:          int64(v.MaxBatch),
			MaxNumBatchedTokens: int64(v.MaxBatchedTokens),
			ChunkedPrefill:      true,
			BlockSize:           simBlock,
			KVBlocksGPU:         trace.Some(kv),
			MaxModelLen:         trace.Some(int64(math.MaxInt32)),
			AsyncScheduling:     trace.Some(v.Async),
			SchedulingPolicy:    "fcfs",
		},
	}
}

// simulate returns the mean latencies of the traffic in a simulated engine whose steps take alpha +
// beta*computed + gamma*read. The waiting room is unlimited.
func simulate(p params, v Limits, t workload.Traffic, done <-chan struct{}) (*queueSimPoint, error) {
	reqs, _ := t.Draw()
	v.MaxBatchedTokens = cmp.Or(v.MaxBatchedTokens, defaultMaxBatchedTokens)
	step, err := sim.NewLinear3([]float64{1000 * p.AlphaMs, 1000 * p.BetaMs, 1000 * p.GammaMs})
	if err != nil {
		return nil, err
	}
	longest := slices.MaxFunc(reqs, func(a, b sim.Request) int {
		return int(a.PromptTokens + a.OutputTokens - b.PromptTokens - b.OutputTokens)
	})
	cfg := sim.DefaultConfig(simulatedEngine(v, longest.PromptTokens+longest.OutputTokens), step)
	cfg.Overhead = sim.Const(1000 * v.OverheadMs)
	cfg.Async = v.Async
	cfg.Done = done
	return simulateRequests(cfg, reqs)
}

// simulateRequests simulates requests and returns their mean latencies after the warm-up.
func simulateRequests(cfg sim.Config, reqs []sim.Request) (*queueSimPoint, error) {
	m := meter{from: int(warmUpFrac * float64(len(reqs))), n: len(reqs)}
	if _, err := sim.Stream(cfg, reqs, nil, sim.InOrder(len(reqs), m.addRequest)); err != nil {
		return nil, err
	}
	return m.meanPoint()
}

// meter records the latencies of requests, and their sums over consecutive blocks of requests.
type meter struct {
	from, n   int       // first request that counts, and number of requests
	ttft, itl []float64 // ms, per request
	sums      [simBlocks]struct{ ttft, decode, gaps, n float64 }
}

// addRequest adds the TTFT and ITL of request i, ms, to the sums of its block of arrivals, unless i is
// part of the warm-up or did not finish. It returns true, so that the simulation continues.
func (m *meter) addRequest(i int, r *sim.RequestResult) bool {
	ttft, ok := r.TTFTUs()
	if i < m.from || !ok || !r.FinishedUs.OK {
		return true
	}
	b := &m.sums[(i-m.from)*simBlocks/(m.n-m.from)]
	b.n++
	b.ttft += ttft / 1000
	m.ttft = append(m.ttft, ttft/1000)
	if itl, ok := r.ITLUs(); ok {
		b.decode += itl / 1000 * float64(r.OutputTokens-1)
		b.gaps += float64(r.OutputTokens - 1)
		m.itl = append(m.itl, itl/1000)
	}
	return true
}

// meanPoint returns the means and their standard errors.
func (m *meter) meanPoint() (*queueSimPoint, error) {
	if len(m.ttft) == 0 {
		return nil, workload.ErrNothingFinished
	}
	var ttft, itl []float64
	var sumTTFT, decode, gaps float64
	for _, b := range m.sums {
		sumTTFT += b.ttft
		decode += b.decode
		gaps += b.gaps
		if b.n > 0 && b.gaps > 0 {
			ttft = append(ttft, b.ttft/b.n)
			itl = append(itl, b.decode/b.gaps)
		}
	}
	p := &queueSimPoint{
		Requests:  len(m.ttft),
		TTFTMs:    sumTTFT / float64(len(m.ttft)),
		TTFTP95Ms: stat.Quantile(stat.Sorted(m.ttft), 0.95),
	}
	if gaps > 0 {
		p.ITLMs = decode / gaps
		p.ITLP95Ms = stat.Quantile(stat.Sorted(m.itl), 0.95)
		p.TTFTSeMs = stat.StdErr(ttft)
		p.ITLSeMs = stat.StdErr(itl)
	}
	return p, nil
}

// steady is the parameters of wva-4p that reproduce the simulated steady state of a deployment.
type steady struct {
	Params params
	Points []export.SteadyPoint // simulated latencies at each load, with the errors of the fit
}

// steadyLoads are the simulated loads, as shares of the capacity.
var steadyLoads = []float64{0.1, 0.2, 0.35, 0.5, 0.65, 0.8}

const (
	steadyRequests = 1500 // at each load
	steadyRoom     = 10   // waiting room per seat, as workload-variant-autoscaler allocates
)

// SteadyState simulates a deployment at six loads with Poisson arrivals and log-normal lengths
// around the means, and fits wva-4p to the mean TTFT and ITL. An autoscaler that solves this model
// with the result reproduces the deployment, including queueing delays and prefills that run in the
// same step as decodes.
func SteadyState(d *deploy.Deployment, step sim.Model, overheadMs, prompt, output float64) (*steady, error) {
	seats := int(d.Seats(prompt + output))
	v := Limits{
		MaxBatch:         seats,
		Queue:            steadyRoom * seats,
		MaxBatchedTokens: int(d.Engine.MaxNumBatchedTokens),
		OverheadMs:       overheadMs,
	}
	t := workload.ChatTraffic(d, prompt, output)
	capacity, err := t.Capacity(d, step)
	if err != nil {
		return nil, err
	}
	out := &steady{}
	var windows []window
	for _, load := range steadyLoads {
		t.Requests = steadyRequests
		t.RateRPS = load * capacity
		cfg := sim.DefaultConfig(d, step)
		cfg.Overhead = sim.Const(1000 * overheadMs)
		reqs, drawn := t.Draw()
		got, err := simulateRequests(cfg, reqs)
		if err != nil {
			return nil, err
		}
		rate := t.DrawnRate()
		windows = append(windows, window{
			Requests: got.Requests,
			RateRPS:  rate,
			Shape:    drawn,
			Limits:   v,
			TTFTMs:   got.TTFTMs,
			ITLMs:    got.ITLMs,
			TTFTSeMs: got.TTFTSeMs,
			ITLSeMs:  got.ITLSeMs,
		})
		out.Points = append(out.Points, export.SteadyPoint{
			LoadFrac: load,
			RateRPS:  rate,
			TTFTMs:   got.TTFTMs,
			ITLMs:    got.ITLMs,
		})
	}
	o := defaultFit(wvA4P)
	o.Physical = startOf(windows)
	fit, err := Fit(windows, o)
	if err != nil {
		return nil, err
	}
	out.Params = fromVector(fit.X)
	for i := range windows {
		p := &out.Points[i]
		if ttft, itl, ok := predictWindow(wvA4P, &windows[i], fit.X, asSized); ok {
			p.TTFTErr = result.OrNull(ttft/p.TTFTMs - 1)
			p.ITLErr = result.OrNull(itl/p.ITLMs - 1)
		}
	}
	return out, nil
}

// startOf returns starting values of the four parameters of wva-4p from the lightest and the
// heaviest of the windows w. Parameters that the loads do not determine keep these values.
func startOf(w []window) []float64 {
	lo, hi := &w[0], &w[len(w)-1]
	busy := math.Max(1, hi.RateRPS/1000*hi.ITLMs*hi.Shape.Output) // requests in service, about
	slope := func(a, b float64) float64 { return math.Max(b-a, 1e-3*a) / busy }
	return []float64{lo.ITLMs, slope(lo.ITLMs, hi.ITLMs), lo.TTFTMs, slope(lo.TTFTMs, hi.TTFTMs) / hi.Shape.Prompt}
}
