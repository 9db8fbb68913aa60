package fit

// This file draws batches at random within an engine's limits, evenly over regimes and sizes. Models
// are fitted to the predictions of such batches when there is no recording.

import (
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Regimes of a drawn batch, as ridge balances them.
const (
	decodeOnly int32 = iota
	mixedBatch
	prefillOnly
	NumRegimes // how many there are
)

// Limits of drawn batches. Within cuts them to those of an engine.
const (
	maxDecodes = 512     // requests
	maxContext = 32768   // tokens of one request in the KV cache
	maxCached  = 1 << 20 // tokens of all decodes in the KV cache
)

// Draws is a low-discrepancy sequence of points with d coordinates in [0, 1): Kronecker's sequence
// with the generalised golden ratio, shifted by the seed (M. Roberts, "The unreasonable
// effectiveness of quasirandom sequences", 2018).
type Draws struct {
	step []float64 // what each coordinate advances by, modulo 1
	at   []float64 // the current point
}

// BatchCoordinates is the number of coordinates that Batch needs of a point: decodes, context, prompt tokens, prompts,
// cached tokens.
const BatchCoordinates = 5

// NewDraws returns the start of a sequence of points in d dimensions; the same seed gives the same
// points.
func NewDraws(d int, seed uint64) *Draws {
	// The generalised golden ratio g solves g^(d+1) = g + 1. This fixed-point iteration converges long
	// before its 60th step.
	g := 1.5
	for range 60 {
		g = math.Pow(1+g, 1/float64(d+1))
	}
	rng := rand.New(rand.NewPCG(seed, 0x11b)) // 0x11b: any number; it separates this stream from others of the seed
	q := &Draws{}
	for i := range d {
		q.step = append(q.step, math.Pow(1/g, float64(i+1)))
		q.at = append(q.at, rng.Float64())
	}
	return q
}

// next returns the next point. The slice is valid until the following call.
func (q *Draws) next() []float64 {
	for i := range q.at {
		_, q.at[i] = math.Modf(q.at[i] + q.step[i])
	}
	return q.at
}

// logBetween returns the whole number from lo to hi at the share u in [0, 1), uniformly in its
// logarithm.
func logBetween(lo, hi, u float64) int64 {
	return int64(math.Floor(math.Exp(math.Log(lo) + u*(math.Log(hi+1)-math.Log(lo)))))
}

// Batch returns one random batch of a regime, in buf: 1 to 512 decodes at one context, and up to 16
// prompts of 16 to 8,192 tokens together, the first of which may continue after an earlier chunk or
// a cached prefix. The points of the sequence need BatchCoordinates coordinates.
func (q *Draws) Batch(regime int32, buf []trace.Chunk) []trace.Chunk {
	u, buf := q.next(), buf[:0]
	if regime != prefillOnly {
		n := logBetween(1, maxDecodes, u[0])
		context := min(logBetween(16, maxContext, u[1]), maxCached/n)
		for range n {
			buf = append(buf, trace.Chunk{Computed: context, Prompt: 1, New: 1}) // a decode: its prompt is computed
		}
	}
	if regime != decodeOnly {
		tokens := logBetween(16, 8192, u[2])
		prompts := min(logBetween(1, 16, u[3]), tokens)
		cached := int64(0)
		const continuing = 0.3 // share of batches whose first prompt continues; below it u[4]/continuing is uniform
		if u[4] < continuing {
			cached = logBetween(64, maxContext/2, u[4]/continuing)
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

// Within returns the part of a batch that an engine would run in one step: at most max_num_seqs
// requests and max_num_batched_tokens tokens.
func Within(batch []trace.Chunk, e *vllm.Engine) []trace.Chunk {
	tokens := int64(0)
	for i := range batch {
		c := &batch[i]
		if int64(i) >= e.MaxNumSeqs || tokens >= e.MaxNumBatchedTokens {
			return batch[:i]
		}
		if left := e.MaxNumBatchedTokens - tokens; c.New > left {
			c.New = left
		}
		tokens += c.New
	}
	return batch
}
