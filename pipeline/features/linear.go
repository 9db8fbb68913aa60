package features

// linearCompute is step slot 1: the time all linear layers would take at peak arithmetic rate,
// prefill and decode tokens alike.
//
//	f1 = B*body/Fl + S*head/F     [s]
//
// B scheduled tokens, body the FLOP of one token through attention projections and MLPs of all
// layers (spec#flops-attn-linear, spec#flops-mlp-moe, spec#flops-body-per-token), S sampled
// sequences, head = 2*h*V the FLOP of one sequence's logits, Fl and F the group's peak for linear
// layers (fp8 or 16-bit) and for everything else.
//
// Unit:   FLOP / (FLOP/s) = s
// Source: spec#beta-prefill-linear-compute; a multiply-add counts 2; vLLM computes logits for scheduled
//
//	sequences only, not for prompt tokens
//
// Bounds: >= 0; 0 for an empty step; linear in tokens; halves when a dense
//
//	model's tp doubles; never falls when a token is added
//
// Omits:  norms, rotary embedding, activation functions
func linearCompute(s *Space, in *StepInput) float64 {
	return s.linearS(in.ScheduledTokens, in.NumSampledSeqs)
}

// linearCompute10 charges prefill tokens only, with the head on every token and the peak divided by
// tp (spec#err-tp, spec#err-head, spec#err-decode-linear).
func linearCompute10(s *Space, in *StepInput) float64 {
	return in.PrefillTokens * s.linearFLOPs / over(s.peak)
}
