package library

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/portable"
	"github.com/blis-train/blis-train/trace"
)

// Family is one coefficient file of the library: a GPU, a kind of weights, and
// dense models or mixtures of experts, whose experts take terms of their own.
type Family struct {
	GPU     string // the tables' name: h100_sxm
	Weights string // BF16 | FP8
	MoE     bool
}

// regimes of a design point, as ridge balances them.
const (
	decodeOnly int32 = iota
	mixedBatch
	prefillOnly
	numRegimes
)

// regimeNames are the regimes in words.
var regimeNames = [numRegimes]string{"decode", "mixed", "prefill"}

// memoryShare of a group's memory may hold weights in a design point.
const memoryShare = 0.85

// deployments are the design's deployments of a family that fit the memory.
func (f Family) deployments(h deploy.Hardware, without *deploy.Model) []*deploy.Deployment {
	var out []*deploy.Deployment
	for i := range shapes {
		s := &shapes[i]
		if (s.experts > 0) != f.MoE || without != nil && s.same(without) {
			continue
		}
		caches := []float64{2}
		if f.Weights == fp8 {
			caches = append(caches, 1)
		}
		for _, kvBytes := range caches {
			for _, tp := range []int64{1, 2, 4, 8} {
				d := &deploy.Deployment{Model: s.model(f.Weights, kvBytes), Hardware: h, TP: tp, PP: 1, DP: 1, Engine: designEngine}
				if d.CheckSupported() != nil || d.Model.WeightBytes() > memoryShare*h.MemoryGB*1e9*float64(tp) {
					continue
				}
				out = append(out, d)
			}
		}
	}
	return out
}

// designEngine has vLLM's defaults for servers.
var designEngine = deploy.Engine{MaxNumSeqs: 1024, MaxNumBatchedTokens: 8192, ChunkedPrefill: true, BlockSize: deploy.DefaultBlockSize,
	GPUMemoryUtilization: deploy.DefaultGPUMemoryUtilization, SchedulingPolicy: deploy.DefaultSchedulingPolicy}

// Bounds of the design's batches.
const (
	maxDecodes = 512
	maxContext = 32768 // tokens of one request
	maxCached  = 1 << 20
)

// draws are a low-discrepancy sequence of d numbers in [0, 1): Kronecker's with
// the generalised golden ratio, shifted by the seed (M. Roberts, "The
// unreasonable effectiveness of quasirandom sequences", 2018).
type draws struct {
	step, at []float64
}

func newDraws(d int, seed uint64) *draws {
	g := 1.5
	for range 60 { // g^(d+1) = g + 1
		g = portable.Pow(1+g, 1/float64(d+1))
	}
	rng := rand.New(rand.NewPCG(seed, 0x11b))
	q := &draws{}
	for i := range d {
		q.step = append(q.step, portable.Pow(1/g, float64(i+1)))
		q.at = append(q.at, rng.Float64())
	}
	return q
}

func (q *draws) next() []float64 {
	for i := range q.at {
		_, q.at[i] = math.Modf(q.at[i] + q.step[i])
	}
	return q.at
}

// logBetween is log-uniform over whole numbers.
func logBetween(lo, hi, u float64) int64 {
	return int64(math.Floor(portable.Exp(portable.Log(lo) + float64(u*(portable.Log(hi+1)-portable.Log(lo))))))
}

// batch draws one batch of a regime into buf.
func (q *draws) batch(regime int32, buf []trace.Chunk) []trace.Chunk {
	u, buf := q.next(), buf[:0]
	if regime != prefillOnly {
		n := logBetween(1, maxDecodes, u[0])
		context := min(logBetween(16, maxContext, u[1]), maxCached/n)
		for range n {
			buf = append(buf, trace.Chunk{Computed: context, Prompt: 1, New: 1})
		}
	}
	if regime != decodeOnly {
		tokens := logBetween(16, 8192, u[2])
		prompts := min(logBetween(1, 16, u[3]), tokens)
		cached := int64(0)
		if u[4] < 0.3 { // behind an earlier chunk or a cached prefix
			cached = logBetween(64, maxContext/2, u[4]/0.3)
		}
		for i := range prompts {
			c := trace.Chunk{New: tokens / prompts}
			if i == 0 {
				c.New, c.Computed = c.New+tokens%prompts, cached
			}
			c.Prompt = c.Computed + c.New
			buf = append(buf, c)
		}
	}
	return buf
}
