package autoscale

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

const (
	simBlock   = 16  // tokens of a KV block
	warmUpFrac = 0.1 // of the requests, left out
	simBlocks  = 20  // of requests behind the standard errors
)

// simulatedEngine is the engine with a server's limits; without a size of the KV cache it has
// room for every seat.
func simulatedEngine(v Limits, longest int64) *deploy.Deployment {
	var kv int64
	if v.KVTokens != nil {
		kv = int64(*v.KVTokens) / simBlock
	}
	if kv == 0 {
		kv = min(deploy.MaxKVBlocks, int64(v.MaxBatch+1)*(longest/simBlock+1))
	}
	return &deploy.Deployment{TP: 1, PP: 1, DP: 1, Engine: deploy.Engine{
		MaxNumSeqs: int64(v.MaxBatch), MaxNumBatchedTokens: int64(v.MaxBatchedTokens), ChunkedPrefill: true, BlockSize: simBlock,
		KVBlocksGPU: trace.Some(kv), MaxModelLen: trace.Some(int64(math.MaxInt32)), AsyncScheduling: trace.Some(v.Async),
		SchedulingPolicy: "fcfs",
	}}
}

// simulate runs the traffic through an engine whose steps take alpha + beta*computed +
// gamma*read. The shape is that of the requests drawn. The waiting room is as large as it
// needs to be.
func simulate(p params, v Limits, t workload.Traffic, done <-chan struct{}) (*queueSimPoint,
	shape, error) {
	reqs, shape := t.Draw()
	if v.MaxBatchedTokens == 0 {
		v.MaxBatchedTokens = defaultMaxBatchedTokens
	}
	step, err := sim.NewLinear3([]float64{1000 * p.AlphaMs, 1000 * p.BetaMs, 1000 * p.GammaMs})
	if err != nil {
		return nil, shape, err
	}
	longest := slices.MaxFunc(reqs, func(a, b sim.Request) int {
		return int(a.PromptTokens + a.OutputTokens - b.PromptTokens - b.OutputTokens)
	})
	cfg := sim.DefaultConfig(simulatedEngine(v, longest.PromptTokens+longest.OutputTokens), step)
	cfg.Overhead, cfg.Async, cfg.Done = sim.Const(1000*v.OverheadMs), v.Async, done
	out, err := play(cfg, reqs)
	return out, shape, err
}

// play runs requests, and says what they experienced after the warm-up.
func play(cfg sim.Config, reqs []sim.Request) (*queueSimPoint, error) {
	m := meter{from: int(warmUpFrac * float64(len(reqs))), n: len(reqs)}
	if _, err := sim.Stream(cfg, reqs, nil, sim.InOrder(len(reqs), m.add)); err != nil {
		return nil, err
	}
	return m.point()
}

// meter collects what requests experienced, by blocks of them.
type meter struct {
	from, n    int
	ttft, itl  []float64 // ms, per request
	sums       [simBlocks]struct{ ttft, decode, gaps, n float64 }
	unfinished int
}

func (m *meter) add(i int, r *sim.RequestResult) bool {
	if i < m.from {
		return true
	}
	ttft, ok := r.TTFTUs()
	if !ok || !r.FinishedUs.OK {
		m.unfinished++
		return true
	}
	b := &m.sums[(i-m.from)*simBlocks/(m.n-m.from)]
	b.n++
	b.ttft += ttft / 1000
	m.ttft = append(m.ttft, ttft/1000)
	if itl, ok := r.ITLUs(); ok {
		b.decode += float64(itl / 1000 * float64(r.OutputTokens-1))
		b.gaps += float64(r.OutputTokens - 1)
		m.itl = append(m.itl, itl/1000)
	}
	return true
}

func (m *meter) point() (*queueSimPoint, error) {
	if len(m.ttft) == 0 {
		return nil, workload.ErrNothingFinished
	}
	var ttft, itl []float64
	var sumTTFT, decode, gaps float64
	for _, b := range m.sums {
		sumTTFT, decode, gaps = sumTTFT+b.ttft, decode+b.decode, gaps+b.gaps
		if b.n > 0 && b.gaps > 0 {
			ttft, itl = append(ttft, b.ttft/b.n), append(itl, b.decode/b.gaps)
		}
	}
	p := &queueSimPoint{Requests: len(m.ttft), TTFTMs: sumTTFT / float64(len(m.ttft)),
		TTFTP95Ms: stat.Quantile(stat.Sorted(m.ttft), 0.95)}
	if gaps > 0 {
		p.ITLMs, p.ITLP95Ms = decode/gaps, stat.Quantile(stat.Sorted(m.itl), 0.95)
		p.TTFTSeMs, p.ITLSeMs = stat.StdErr(ttft), stat.StdErr(itl)
	}
	return p, nil
}
