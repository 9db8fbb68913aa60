package forecast

// This file estimates the time between the tokens of a request.

import (
	"math"
)

// TPOTUs returns the estimated mean time per output token after the first, us, for a request that
// waits ttftUs for the first: the time of a step of the decodes and the request, together with the
// prompts that are computed in the same steps.
//
// Let D be the time of a step without prompts, and D+x that of a step which computes a prompt of m
// tokens. Every prompt token then costs c = x/m. Prompts that arrive at r tokens per us take the
// share r*c of all time, so a step lasts T = D/(1-r*c) on average. The r*ttft tokens that arrive
// while the request waits are computed after its first token and make its first steps longer; so do
// the tokens that arrive during those steps. No step is longer than one that fills
// max_num_batched_tokens, and where max_num_seqs or blocks do not suffice a prompt is admitted only
// when a decode leaves.
func (e *Engine) TPOTUs(s *State, r *Request, ttftUs float64) (float64, error) {
	// The decodes while the request decodes, and their tokens in KV: those of now, those whose prompts
	// end in the steps under way, and the request itself half-way through its output.
	decodes := s.Decodes + s.StepRequests + s.NextRequests + 1
	tokens := s.DecodeTokens + s.StepTokens + s.NextTokens + r.PromptTokens + int64(s.OutputTokens/2)
	admitted := e.admittedAhead(s)
	if admitted > 0 {
		decodes += admitted
		tokens += s.AheadTokens * admitted / s.AheadRequests
	}
	mostDecodes := e.maxSeqs
	decodes = min(decodes, mostDecodes)
	if admitted < s.AheadRequests { // there are no KV blocks for more
		mostDecodes = decodes
	}
	// D: a step without prompts.
	plain, err := e.stepUs(decodes, tokens)
	if err != nil || !(s.PrefillPerS > 0 && s.PromptsPerS > 0) {
		return plain, err
	}
	// D+x: a step with one prompt, and the longest step there can be.
	full := max(1, e.budget-decodes)
	promptTokens := max(1, min(full, int64(s.PrefillPerS/s.PromptsPerS)))
	if !e.chunked { // whole prompts do not fill the budget
		full = max(promptTokens, full-promptTokens/2)
	}
	withPrompt, err := e.stepWithPrompt(promptTokens, decodes, tokens)
	if err != nil {
		return 0, err
	}
	longest := withPrompt
	if full > promptTokens {
		if longest, err = e.stepWithPrompt(full, decodes, tokens); err != nil {
			return 0, err
		}
	}
	if s.OutputTokens > 0 { // in a full engine as many prompts are admitted per step as decodes leave
		longest = math.Min(longest, plain+math.Min(1, float64(mostDecodes)/s.OutputTokens)*(withPrompt-plain))
	}
	perToken := (withPrompt - plain) / float64(promptTokens) // c
	rate := s.PrefillPerS / 1e6                              // r
	share := rate * perToken                                 // r*c
	if share >= 1 {                                          // more prompts arrive than can be computed
		return longest, nil
	}
	// T, and what the prompts that arrived during the wait add to each of the request's gaps.
	us := plain / (1 - share)
	if s.OutputTokens > 1 {
		us += rate * ttftUs / (1 - share) * perToken / (s.OutputTokens - 1)
	}
	return math.Min(us, math.Max(longest, plain)), nil // with some coefficients a step with a prompt is shorter than one without
}

// stepWithPrompt returns the time of a step, us, of the decodes and n tokens of a prompt.
func (e *Engine) stepWithPrompt(n, decodes, tokens int64) (float64, error) {
	e.batch.AddPrefill(0, n, n)
	return e.stepUs(decodes, tokens)
}

// admittedAhead returns how many of the requests ahead have free blocks, so that they will decode
// together with the request.
func (e *Engine) admittedAhead(s *State) int64 {
	if s.AheadRequests < 1 || s.FreeBlocks < 0 {
		return s.AheadRequests
	}
	blocks := max(1, (s.AheadTokens/s.AheadRequests+e.blockSize-1)/e.blockSize)
	return min(s.AheadRequests, s.FreeBlocks/blocks)
}
