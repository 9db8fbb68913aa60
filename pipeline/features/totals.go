package features

// This file makes the input of a step from totals, where the chunks of its batch are not known.

import "github.com/blis-train/blis-train/trace"

// FromTotals returns the input of a step of which only the totals are known.
func FromTotals(t *trace.StepTotals) StepInput {
	return StepInput{
		PrefillTokens:       float64(t.Prefill),
		DecodeTokens:        float64(t.Decode),
		ScheduledTokens:     float64(t.Prefill + t.Decode),
		NumPrefillReqs:      float64(t.PrefillReqs),
		NumDecodeReqs:       float64(t.DecodeReqs),
		NumSampledSeqs:      float64(t.Sampled),
		PrefillCausalWork:   t.CausalWork,
		DecodeContextTokens: t.DecodeContext,
		KVReadTokens:        t.DecodeContext + t.PrefillContext + float64(t.Prefill),
		PrefillContext:      t.PrefillContext,
	}
}

// CausalFromTotals returns the causal attention work of prompts that begin and end in one step, in
// token pairs (spec#summary-steps); 0 without prompts:
//
//	(P^2/np*(1+cv2) + P)/2
//
// P are the tokens of np prompts, cv2 the squared variation of their lengths.
func CausalFromTotals(tokens, reqs, cv2 float64) float64 {
	if reqs == 0 {
		return 0
	}
	return (tokens*tokens/reqs*(1+cv2) + tokens) / 2
}
