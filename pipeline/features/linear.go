package features

// linearCompute11 is step slot 1: the time all linear layers would take at peak arithmetic rate,
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
var linearCompute11 = Feature{
	Name: "prefill_linear_compute", Kind: Time, Penalty: 1, Prompt: true, Bound: boundS,
	Formula: "scheduled_tokens*flops_body_per_token/group_peak_linear_flops + num_sampled_seqs*flops_lm_head_per_seq/group_peak_flops",
	Doc:     "time of all linear layers and the LM head at peak arithmetic rate",
	beta:    linearCompute,
}

func linearCompute(s *Space, in *StepInput) float64 {
	return s.linearS(in.ScheduledTokens, in.NumSampledSeqs)
}

// linearCompute10 charges prefill tokens only, with the head on every token and the peak divided by
// tp (spec#err-tp, spec#err-head, spec#err-decode-linear).
var linearCompute10 = linearCompute11.
	frozen("prefill_tokens*flops_linear_per_token/max(1e-6, hw_peak_flops)").
	withBeta(func(s *Space, in *StepInput) float64 {
		return in.PrefillTokens * s.linearFLOPs / over(s.peak)
	})
