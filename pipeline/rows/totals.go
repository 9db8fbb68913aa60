package rows

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// sum11 adds up the members of a step (spec#step-sums), and within the reaches of unlike layers (spec#model-reach).
func sum11(members []trace.Member, reaches []model.Reach) features.StepInput {
	var in features.StepInput
	if len(reaches) > 0 {
		in.Reached = &features.Reached{}
	}
	for i := range members {
		c := members[i].Chunk
		if in.Add(features.V11, c); in.Reached != nil {
			in.Reached.Add(reaches, c.IsDecode(), c.Computed, c.New, 1)
		}
	}
	return in
}

// summary11 approximates a step from its totals (spec#summary-steps): pure-decode steps,
// or prefill of prompts that are whole: with chunked prefill off, or where the steps
// around show it. The code says why it cannot.
func summary11(s *trace.Step, d *deploy.Deployment, cv2 float64, whole bool) (features.StepInput, reconstruct.Reason) {
	if s.PrefillTokens > 0 && d.Engine.ChunkedPrefill && !whole {
		return features.StepInput{}, chunkedTotals
	}
	if s.DecodeTokens != s.NumDecodeReqs {
		return features.StepInput{}, recomputedTotals
	}
	reqs := s.NumPrefillReqs + s.NumDecodeReqs
	in := features.StepInput{
		PrefillTokens:       float64(s.PrefillTokens),
		DecodeTokens:        float64(s.DecodeTokens),
		ScheduledTokens:     float64(s.ScheduledTokens),
		NumPrefillReqs:      float64(s.NumPrefillReqs),
		NumDecodeReqs:       float64(s.NumDecodeReqs),
		NumSampledSeqs:      float64(reqs),
		PrefillCausalWork:   features.CausalFromTotals(float64(s.PrefillTokens), float64(s.NumPrefillReqs), cv2),
		DecodeContextTokens: contextFromBlocks(s, d.Engine.BlockSize),
	}
	in.KVReadTokens = in.DecodeContextTokens + in.PrefillTokens
	return in, ""
}

// unknownStarts marks a step whose totals do not determine how many prompts began in it.
const unknownStarts = -1

// promptStarts counts, from totals alone, the prompts that begin and end their prefill in
// each recorded step (spec#summary-steps). A prompt is in pieces only where a step fills
// its token budget. An asynchronous engine counts the first decode of each as a prefill of
// one token, so a step after one that began some holds as many of those.
func promptStarts(steps []trace.Step, d *deploy.Deployment) []int32 {
	starts := make([]int32, len(steps))
	full := func(s *trace.Step) bool {
		return s.ScheduledTokens >= d.Engine.MaxNumBatchedTokens || s.NumPreempted > 0
	}
	var s, before *trace.Step
	for i := range starts {
		before, s = s, &steps[i]
		if s.NumPrefillReqs == 0 {
			continue
		}
		starts[i] = unknownStarts
		if i == 0 || before.ID+1 != s.ID || full(s) || full(before) || d.Engine.LongPrefillThreshold > 0 {
			continue
		}
		first := int64(0)
		if d.Engine.IsAsync() {
			first = int64(starts[i-1])
		}
		if n := s.NumPrefillReqs - first; first >= 0 && (n > 0 && s.PrefillTokens-first >= n || n == 0 && s.PrefillTokens == first) {
			starts[i] = int32(n)
		}
	}
	return starts
}

// relabelled is a step with its first decodes counted as decodes, when so many prompts began in it.
func relabelled(s trace.Step, starts int32) trace.Step {
	c := reconstruct.Counts{
		Prefills:      s.NumPrefillReqs,
		PrefillTokens: s.PrefillTokens,
		Decodes:       s.NumDecodeReqs,
		DecodeTokens:  s.DecodeTokens,
	}
	c = c.Relabel(s.NumPrefillReqs - int64(starts))
	s.NumPrefillReqs = c.Prefills
	s.PrefillTokens = c.PrefillTokens
	s.NumDecodeReqs = c.Decodes
	s.DecodeTokens = c.DecodeTokens
	return s
}

// contextFromBlocks is max(nd, max(0, used*block_size - (np+nd)(block_size-1)/2)
// - prefill_tokens) for nd > 0: half a block of every sequence is empty on
// average.
func contextFromBlocks(s *trace.Step, blockSize int64) float64 {
	if s.NumDecodeReqs == 0 {
		return 0
	}
	used := float64((s.BlocksTotal - s.BlocksFree) * blockSize)
	held := used - float64((s.NumPrefillReqs+s.NumDecodeReqs)*(blockSize-1))/2
	return math.Max(float64(s.NumDecodeReqs), math.Max(0, held)-float64(s.PrefillTokens))
}

// squaredVariation is the population variance over the squared mean; 0 for no
// values or a zero mean.
func squaredVariation(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	total := 0.0
	for _, x := range v {
		total += x
	}
	mean := total / float64(len(v))
	if mean == 0 {
		return 0
	}
	squares := 0.0
	for _, x := range v {
		squares += (x - mean) * (x - mean)
	}
	return squares / float64(len(v)) / (mean * mean)
}

// prefixHit11 is 1 - effective_prompt_len/num_prompt_tokens, or where the key is
// absent (full hit) min(1, computed/prompt) (spec#prefix-hits).
func prefixHit11(s *trace.Snapshot) float64 {
	if s.PromptTokens < 1 {
		return 0
	}
	if s.EffectivePromptLen.OK {
		return 1 - float64(s.EffectivePromptLen.V)/float64(s.PromptTokens)
	}
	return math.Min(1, float64(s.ComputedTokens)/float64(s.PromptTokens))
}
