package features

// This file computes the inputs of a step from the chunks of its batch.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Sum returns the sums over the chunks of one batch that version v needs (spec#step-sums; for 1.0
// as a simulator does, spec#frozen-sourcing). Chunks without new tokens are ignored. RunningDepth,
// PreemptionEMA and the transfers stay 0, and so does 1.0's SumDecodeKVBlocks, which needs a block
// size: see Space.Sum.
func Sum(v Version, chunks []trace.Chunk) StepInput {
	var in StepInput
	for _, c := range chunks {
		in.Add(v, c)
	}
	return in
}

// Sum returns the package's Sum with what needs the deployment: the sums within limited reaches, and in
// 1.0 the KV blocks of decodes, ceil((c+1)/block_size) each (spec#input-table).
func (s *Space) Sum(chunks []trace.Chunk) StepInput {
	in := Sum(s.version, chunks)
	if len(s.reaches) > 0 {
		in.Reached = &Reached{}
		for _, c := range chunks {
			in.Reached.Add(s.reaches, c.IsDecode(), c.Computed, c.New, 1)
		}
	}
	if s.version == V10 {
		for _, c := range chunks {
			if c.IsDecode() {
				in.SumDecodeKVBlocks += math.Ceil(float64(c.Computed+1) / s.blockTokens)
			}
		}
	}
	return in
}

// Add adds one chunk to the sums. Sums stay exact integers below 2^53, so the
// order of chunks does not matter and a simulator may keep them up to date.
func (in *StepInput) Add(v Version, c trace.Chunk) {
	if c.New == 0 {
		return
	}
	n := float64(c.New)
	computed := float64(c.Computed)
	in.ScheduledTokens += n
	if c.IsDecode() {
		in.DecodeTokens += n
		in.NumDecodeReqs++
		in.DecodeContextTokens += computed + 1
	} else {
		in.PrefillTokens += n
		in.NumPrefillReqs++
	}
	if v == V10 {
		if !c.IsDecode() {
			in.SumPrefillAttnWork += (computed + n) * n
		}
		return
	}
	in.NumSampledSeqs++
	in.KVReadTokens += computed + n
	if !c.IsDecode() {
		in.PrefillContext += computed
		in.PrefillCausalWork += n*computed + n*(n+1)/2
	}
}

// EMA returns the preemption average after one more step (spec#preemption-average). It is updated
// once per recorded step in step order, before the features of that step:
//
//	ema = gamma * num_preempted / max(1, running_depth) + (1-gamma) * previous
func EMA(previous, gamma, numPreempted, runningDepth float64) float64 {
	return gamma*numPreempted/math.Max(1, runningDepth) + (1-gamma)*previous
}

// DefaultGamma is the smoothing factor of [EMA] unless another is chosen (spec#preemption-average).
const DefaultGamma = 0.3

// Gammas returns the smoothing factors that a fit chooses from, ascending.
func Gammas() []float64 { return []float64{0.1, 0.3, 0.5} }

// MemorySteps is after how many steps the slowest average has forgotten a preemption: ceil(5/0.1).
const MemorySteps = 50
