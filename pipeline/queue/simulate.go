package queue

import (
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/queueing"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/latency"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// Law is a distribution of lengths with a given mean.
type Law string

// The laws there are. A log-normal one has the squared coefficient of variation of its Shape.
const (
	constantLaw    Law = "constant"
	exponentialLaw Law = "exponential"
	logNormalLaw   Law = "lognormal"
)

// laws lists them.
var laws = []Law{constantLaw, exponentialLaw, logNormalLaw}

// Traffic is an open stream of requests: Poisson arrivals, independent lengths.
type Traffic struct {
	Shape           queueing.Shape
	Prompts, Output Law
	RateRPS         float64
	Requests        int
	Seed            uint64
	Longest         int64 // tokens of a request at most; 0: no limit
}

// Keys of the draws. Request i draws the same numbers at any rate and under any law, so
// that cells of a comparison differ by what they compare.
const (
	drawGap uint64 = iota
	drawPrompt
	drawOutput
)

// requests draws the traffic and returns the shape it really has.
func (t *Traffic) requests() ([]sim.Request, queueing.Shape) {
	out := make([]sim.Request, t.Requests)
	var clock float64
	var prompt, prompt2, output, output2 float64
	for i := range out {
		clock -= float64(1e6 / t.RateRPS * portable.Log1p(-stat.Draw(t.Seed, uint64(i), drawGap)))
		r := &out[i]
		r.ArrivalUs = int64(clock)
		r.PromptTokens = length(t.Prompts, t.Shape.Prompt, t.Shape.PromptCV2, stat.Draw(t.Seed, uint64(i), drawPrompt))
		r.OutputTokens = length(t.Output, t.Shape.Output, t.Shape.OutputCV2, stat.Draw(t.Seed, uint64(i), drawOutput))
		if t.Longest > 0 {
			r.PromptTokens = min(r.PromptTokens, t.Longest*3/4)
			r.OutputTokens = min(r.OutputTokens, t.Longest/4)
		}
		if t.Shape.Cached > 0 {
			r.CachedTokens = trace.Some(int64(float64(r.PromptTokens) * t.Shape.Cached / t.Shape.Prompt))
		}
		p, m := float64(r.PromptTokens), float64(r.OutputTokens)
		prompt, prompt2, output, output2 = prompt+p, prompt2+float64(p*p), output+m, output2+float64(m*m)
	}
	n := float64(t.Requests)
	s := queueing.Shape{Prompt: prompt / n, Output: output / n, PromptCV2: prompt2*n/(prompt*prompt) - 1,
		OutputCV2: output2*n/(output*output) - 1}
	s.Cached = t.Shape.Cached * s.Prompt / t.Shape.Prompt
	s.PromptCV2, s.OutputCV2 = math.Max(0, s.PromptCV2), math.Max(0, s.OutputCV2)
	return out, s
}

// length is the u-quantile of the law, at least one token.
func length(law Law, mean, cv2, u float64) int64 {
	v := mean
	switch law {
	case exponentialLaw:
		v = -mean * portable.Log1p(-u)
	case logNormalLaw:
		v = stat.LogNormal(mean, cv2, u)
	}
	return max(1, int64(math.Round(v)))
}

const (
	simBlock   = 16  // tokens of a KV block
	warmUpFrac = 0.1 // of the requests, left out
	simBlocks  = 20  // of requests behind the standard errors
)

// simulatedEngine is the engine with a server's limits; without a size of the KV cache it has
// room for every seat.
func simulatedEngine(v queueing.Server, longest int64) *deploy.Deployment {
	kv := int64(v.KVTokens) / simBlock
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
func simulate(p queueing.Params, v queueing.Server, t Traffic, done <-chan struct{}) (*result.QueueSimPoint, queueing.Shape, error) {
	reqs, shape := t.requests()
	if v.MaxBatchedTokens == 0 {
		v.MaxBatchedTokens = queueing.DefaultMaxBatchedTokens
	}
	step, err := latency.NewLinear3([]float64{1000 * p.AlphaMs, 1000 * p.BetaMs, 1000 * p.GammaMs})
	if err != nil {
		return nil, shape, err
	}
	longest := slices.MaxFunc(reqs, func(a, b sim.Request) int {
		return int(a.PromptTokens + a.OutputTokens - b.PromptTokens - b.OutputTokens)
	})
	cfg := sim.DefaultConfig(simulatedEngine(v, longest.PromptTokens+longest.OutputTokens), step)
	cfg.Overhead, cfg.Async, cfg.Done = latency.Const(1000*v.OverheadMs), v.Async, done
	out, err := play(cfg, reqs)
	return out, shape, err
}

// play runs requests, and says what they experienced after the warm-up.
func play(cfg sim.Config, reqs []sim.Request) (*result.QueueSimPoint, error) {
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

// errNothingFinished cannot happen with requests that fit the engine.
var errNothingFinished = errors.New("simulation: no request finished")

func (m *meter) point() (*result.QueueSimPoint, error) {
	if len(m.ttft) == 0 {
		return nil, errNothingFinished
	}
	var ttft, itl []float64
	var sumTTFT, decode, gaps float64
	for _, b := range m.sums {
		sumTTFT, decode, gaps = sumTTFT+b.ttft, decode+b.decode, gaps+b.gaps
		if b.n > 0 && b.gaps > 0 {
			ttft, itl = append(ttft, b.ttft/b.n), append(itl, b.decode/b.gaps)
		}
	}
	p := &result.QueueSimPoint{Requests: len(m.ttft), TTFTMs: sumTTFT / float64(len(m.ttft)),
		TTFTP95Ms: stat.Quantile(stat.Sorted(m.ttft), 0.95)}
	if gaps > 0 {
		p.ITLMs, p.ITLP95Ms = decode/gaps, stat.Quantile(stat.Sorted(m.itl), 0.95)
		p.TTFTSeMs, p.ITLSeMs = stat.StdErr(ttft), stat.StdErr(itl)
	}
	return p, nil
}
