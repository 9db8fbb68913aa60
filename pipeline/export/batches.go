package export

// This file draws the batches on which a step-time model is projected (projection.go).

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Region describes how a deployment will be used: the batches at which step times matter.
type Region struct {
	Prompt, Output float64 // mean lengths, tokens, > 0
	Seats          int64   // requests that can run at once: max_num_seqs, or fewer where the KV cache is smaller
	Budget         int64   // max_num_batched_tokens
	Longest        int64   // max_model_len, tokens; 0 for no limit
	Whole          bool    // prompts are never cut (chunked prefill is off)
}

// RegionOf returns the region of a deployment with requests of the given mean lengths.
func RegionOf(d *deploy.Deployment, prompt, output float64) Region {
	return Region{Prompt: prompt, Output: output, Seats: d.Seats(prompt + output), Budget: d.Engine.MaxNumBatchedTokens,
		Longest: d.LongestSequence().Or(0), Whole: !d.Engine.ChunkedPrefill}
}

// kind is what a batch is made of.
type kind string

// The kinds of batches, and how many of each are drawn at every concurrency.
const (
	decode  kind = "decode"  // decodes alone
	mixed   kind = "mixed"   // decodes and prompts
	prefill kind = "prefill" // prompts alone
)

var kinds = []kind{decode, mixed, prefill} // in the order in which they are reported

var draws = []struct {
	kind kind
	n    int
}{
	{kind: decode, n: 24},
	{kind: mixed, n: 24},
	{kind: prefill, n: 8},
}

// Draws returns batches of a region by kind. Concurrencies are 1, 2, 4, ... up to the seats
// (max_num_seqs); the requests are at a uniform point of their lives, and their lengths are
// log-normal about the region's means. The same region always gives the same batches.
func Draws(r Region) map[kind][][]trace.Chunk {
	out := map[kind][][]trace.Chunk{}
	level := uint64(0)
	for n := int64(1); ; n = min(2*n, r.Seats) {
		for _, d := range draws {
			for k := range d.n {
				out[d.kind] = append(out[d.kind], r.batch(d.kind, n, level, uint64(k)))
			}
		}
		if n >= r.Seats {
			return out
		}
		level++
	}
}

// keyPrompt and the keys below distinguish the random draws of one batch: each number is a function
// of its key, so that a further draw does not change the others.
const (
	keyPrompt uint64 = iota
	keyOutput
	keyAge
	keyPrompts
	keyChunk
)

// Squared coefficients of variation of the lengths, as chat recordings have them.
const (
	promptCV2 = 1
	outputCV2 = 0.5
)

// promptTokens returns the u-quantile of the prompt length in tokens, at least 1. The longest
// request is three quarters prompt, as in simulated traffic.
func (r Region) promptTokens(u float64) int64 {
	return r.cut(stat.LogNormal(r.Prompt, promptCV2, u), 3)
}

// outputTokens returns the u-quantile of the output length in tokens, at least 1.
func (r Region) outputTokens(u float64) int64 {
	return r.cut(stat.LogNormal(r.Output, outputCV2, u), 1)
}

// cut returns tokens as a whole number, at least 1 and at most so many quarters of the longest
// request.
func (r Region) cut(tokens float64, quarters int64) int64 {
	n := trace.Int(tokens)
	if r.Longest > 0 {
		n = min(n, r.Longest*quarters/4)
	}
	return max(1, n)
}

// batch returns the k-th batch of a kind with n requests. level is the number of the concurrency,
// for the draws.
func (r Region) batch(kind kind, n int64, level, k uint64) []trace.Chunk {
	// draw returns the random number in [0, 1) of request i for one use. The names of the kinds differ in
	// length, so that their draws differ, too.
	draw := func(i int64, what uint64) float64 { return stat.Draw(level, k, uint64(i), what, uint64(len(kind))) }
	prompts := int64(0)
	decodes := n
	if kind != decode { // one prompt in half of them, two in a quarter, ...; at least one decode if n > 1
		prompts = min(n, 1-int64(math.Log2(1-float64(draw(0, keyPrompts)))))
		decodes = max(n-prompts, min(n-1, 1))
	}
	if kind == prefill {
		decodes = 0
	}
	// As in vLLM's scheduler, decodes take their tokens of the step's budget first, and prompts share
	// what is left.
	left := r.Budget
	batch := make([]trace.Chunk, 0, prompts+decodes)
	for i := prompts; i < prompts+decodes && left > 0; i++ {
		c := trace.Chunk{Prompt: r.promptTokens(draw(i, keyPrompt)), New: 1}
		c.Computed = c.Prompt + int64(draw(i, keyAge)*float64(r.outputTokens(draw(i, keyOutput))))
		batch = append(batch, c)
		left--
	}
	for i := int64(0); i < prompts && left > 0; i++ {
		c := trace.Chunk{Prompt: r.promptTokens(draw(i, keyPrompt))}
		if r.Whole && c.Prompt > left && len(batch) > 0 { // a whole prompt waits for a step with room
			break
		}
		if c.Prompt > r.Budget { // a chunk at a random place of a long prompt
			c.Computed = min(c.Prompt-1, int64(draw(i, keyChunk)*float64(c.Prompt)))
		}
		c.New = min(left, c.Prompt-c.Computed)
		left -= c.New
		batch = append(batch, c)
	}
	return batch
}
