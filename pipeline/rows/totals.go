package rows

// This file sums the inputs of features over the requests of a step, or approximates the sums from
// totals. The suffix 11 stands for version 1.1 of the features, whose inputs later versions share.

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// sum11 returns the sums over the members of a step (spec#step-sums). reaches are the distances
// over which the model's attention layers attend, if they differ (spec#model-reach); the sums
// within each are added too.
func sum11(members []trace.Member, reaches []model.Reach) features.StepInput {
	var in features.StepInput
	if len(reaches) > 0 {
		in.Reached = &features.Reached{}
	}
	for i := range members {
		c := members[i].Chunk
		in.Add(features.V11, c)
		if in.Reached != nil {
			in.Reached.Add(reaches, c.IsDecode(), c.Computed, c.New, 1)
		}
	}
	return in
}

// summary11 approximates the sums of a step from its totals (spec#summary-steps). That is possible
// for pure-decode steps, and for prefill of whole prompts: with chunked prefill off, or where the
// steps around show that prompts are whole. Otherwise it returns the reason.
func summary11(s *trace.Step, d *deploy.Deployment, cv2 float64, whole bool) (features.StepInput, reconstruct.Reason) {
	if s.PrefillTokens > 0 && d.Engine.ChunkedPrefill && !whole {
		return features.StepInput{}, reconstruct.ChunkedTotals
	}
	if s.DecodeTokens != s.NumDecodeReqs {
		return features.StepInput{}, reconstruct.RecomputedTotals
	}
	reqs := int64(s.NumPrefillReqs) + int64(s.NumDecodeReqs)
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
	return in, reconstruct.Known
}

// unknownStarts marks a step whose totals do not determine how many prompts began in it.
const unknownStarts = -1

// promptStarts returns, from totals alone, the number of prompts that begin and end their prefill
// in each recorded step (spec#summary-steps). Prompts are cut into chunks only in a step that fills
// its token budget. An asynchronous engine counts the first decode of each prompt as a prefill of
// one token, so a step after one in which prompts began has as many of those.
func promptStarts(steps []trace.Step, d *deploy.Deployment) []int32 {
	starts := make([]int32, len(steps))
	full := func(step *trace.Step) bool {
		return int64(step.ScheduledTokens) >= d.Engine.MaxNumBatchedTokens || step.NumPreempted > 0
	}
	var step, before *trace.Step
	for i := range starts {
		before, step = step, &steps[i]
		if step.NumPrefillReqs == 0 {
			continue
		}
		starts[i] = unknownStarts
		if i == 0 || before.ID+1 != step.ID || full(step) || full(before) || d.Engine.LongPrefillThreshold > 0 {
			continue
		}
		firstDecodes := int64(0)
		if d.Engine.IsAsync() {
			firstDecodes = int64(starts[i-1])
		}
		// What is left after the first decodes are prompts. Their tokens must suffice for one each.
		begun := int64(step.NumPrefillReqs) - firstDecodes
		hasTokens := begun > 0 && int64(step.PrefillTokens)-firstDecodes >= begun || begun == 0 && int64(step.PrefillTokens) == firstDecodes
		if firstDecodes >= 0 && hasTokens {
			starts[i] = int32(begun)
		}
	}
	return starts
}

// relabelled returns the step with the first decodes of requests counted as decodes, given how many
// prompts began in it: all other prefills of the summary are first decodes (promptStarts).
func relabelled(s trace.Step, starts int32) trace.Step {
	c := reconstruct.Counts{
		Prefills:      int64(s.NumPrefillReqs),
		PrefillTokens: int64(s.PrefillTokens),
		Decodes:       int64(s.NumDecodeReqs),
		DecodeTokens:  int64(s.DecodeTokens),
	}
	c = c.Relabel(int64(s.NumPrefillReqs) - int64(starts))
	s.NumPrefillReqs = int32(c.Prefills)
	s.PrefillTokens = int32(c.PrefillTokens)
	s.NumDecodeReqs = int32(c.Decodes)
	s.DecodeTokens = int32(c.DecodeTokens)
	return s
}

// contextFromBlocks returns an estimate of the tokens in KV of a step's decodes from the used
// blocks: max(nd, max(0, used*block_size - (np+nd)(block_size-1)/2) - prefill_tokens) for nd > 0
// decodes and np prompts. Half a block of every sequence is empty on average.
func contextFromBlocks(s *trace.Step, blockSize int64) float64 {
	if s.NumDecodeReqs == 0 {
		return 0
	}
	used := float64((s.BlocksTotal - s.BlocksFree) * blockSize)
	held := used - float64((int64(s.NumPrefillReqs)+int64(s.NumDecodeReqs))*(blockSize-1))/2
	return math.Max(float64(s.NumDecodeReqs), math.Max(0, held)-float64(s.PrefillTokens))
}

// squaredVariation returns the population variance divided by the squared mean; 0 for no values or
// a zero mean.
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

// prefixHit11 returns the share of a prompt that was cached (spec#prefix-hits): 1 -
// effective_prompt_len/num_prompt_tokens, or where that key is absent, as for a full hit, min(1,
// computed/prompt).
func prefixHit11(s *trace.Snapshot) float64 {
	if s.PromptTokens < 1 {
		return 0
	}
	if s.EffectivePromptLen.OK {
		return 1 - float64(s.EffectivePromptLen.V)/float64(s.PromptTokens)
	}
	return math.Min(1, float64(s.ComputedTokens)/float64(s.PromptTokens))
}
