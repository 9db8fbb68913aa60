package features

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Sum adds up the chunks of one batch into the sums that version v reads (spec#step-sums;
// 1.0: as a simulator does, spec#frozen-sourcing). Chunks without new tokens are
// ignored. RunningDepth, PreemptionEMA and the transfers are left 0, and so is
// 1.0's SumDecodeKVBlocks, which needs a block size: see Space.Sum.
func Sum(v Version, chunks []trace.Chunk) StepInput {
	var in StepInput
	for _, c := range chunks {
		in.Add(v, c)
	}
	return in
}

// Sum is the package's Sum with the KV blocks of decodes, ceil((c+1)/block_size) each
// (spec#input-table).
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

// EMA is one update of the preemption average (spec#preemption-average), once per recorded step in
// step order, before the features of that step:
//
//	ema = gamma * num_preempted / max(1, running_depth) + (1-gamma) * previous
func EMA(previous, gamma, numPreempted, runningDepth float64) float64 {
	return gamma*numPreempted/math.Max(1, runningDepth) + (1-gamma)*previous
}

// DefaultGamma and Gammas are the EMA's default and candidates (spec#preemption-average).
const DefaultGamma = 0.3

// Gammas returns the EMA's candidates, ascending.
func Gammas() []float64 { return []float64{0.1, 0.3, 0.5} }

// MemorySteps is how long the slowest of them remembers a preemption: ceil(5/0.1) steps.
const MemorySteps = 50

// Step is what the bases need of one step, as sums over its sequences.
// A chunk is prefill while its computed tokens are below the prompt.
type Step struct {
	PrefillTokens float64 // tokens scheduled in prefill chunks
	DecodeTokens  float64 // decodes, one token each
	Requests      float64 // sequences in the batch
	PrefillAttn   float64 // sum over prefill chunks of t*(S + t/2), t new tokens, S the full prompt
	DecodeContext float64 // sum over decodes of the tokens already in KV
}

// Add puts one chunk into the sums.
func (s *Step) Add(c trace.Chunk) {
	if c.New == 0 {
		return
	}
	s.Requests++
	if c.Computed < c.Prompt {
		t := float64(c.New)
		s.PrefillTokens += t
		s.PrefillAttn += t * (float64(c.Prompt) + t/2)
		return
	}
	s.DecodeTokens += float64(c.New)
	s.DecodeContext += float64(c.Computed)
}

// Sum is Add over a batch.
func BasisSum(batch []trace.Chunk) Step {
	var s Step
	for _, c := range batch {
		s.Add(c)
	}
	return s
}

// Term describes one basis function.
type Term struct {
	Name string // stable name; the registry's name where it has one
	Unit string // unit of the coefficient
	Doc  string
}
