package features

// seqRef is the fixed width that f6 counts sequences against (spec#beta-batch-utilization): no
// knob, so that the coefficient transfers between deployments.
const seqRef = 256

// batchUtilization11 is step slot 6: the work per sequence.
//
//	f6 = (prefill requests + decode requests)/256
//
// Unit:   requests / requests = 1
// Source: spec#beta-batch-utilization: sampling, metadata and launch work grow with the
//
//	sequences of a batch
//
// Bounds: 0..64; 0 for an empty step; linear in sequences
// Omits:  CUDA-graph padding
var batchUtilization11 = Feature{
	Name: "batch_utilization", Kind: Count, Penalty: 1, Bound: 64,
	Formula: "(num_prefill_reqs + num_decode_reqs)/256",
	Doc:     "sequences in the batch, in units of 256",
	beta: func(_ *Space, in *StepInput) float64 {
		return (in.NumPrefillReqs + in.NumDecodeReqs) / seqRef
	},
}

// batchUtilization10 is the used share of the token budget.
var batchUtilization10 = batchUtilization11.
	frozen("scheduled_tokens/max(1e-6, max_num_batched_tokens)").withKind(Ratio).
	withBeta(func(s *Space, in *StepInput) float64 {
		return in.ScheduledTokens / over(s.maxTokens)
	})

// prefillDecodeMix11 is step slot 7: the share of prefill in the step's tokens.
//
//	f7 = prefill/(prefill + decode), 0 for an empty step
//
// Unit:   tokens / tokens = 1
// Source: spec#beta-prefill-decode-mix
// Bounds: 0..1; 0 for an empty step; 1 for a pure prefill
// Omits:  how prefill is spread over requests
var prefillDecodeMix11 = Feature{
	Name: "prefill_decode_mix", Kind: Ratio, Penalty: 10, Prompt: true, Bound: 1,
	Formula: "prefill_tokens/max(1e-6, prefill_tokens + decode_tokens)",
	Doc:     "share of prefill tokens in the step",
	beta:    prefillDecodeMix,
}

func prefillDecodeMix(_ *Space, in *StepInput) float64 {
	return in.PrefillTokens / atLeast(epsilon10, in.PrefillTokens+in.DecodeTokens)
}

var prefillDecodeMix10 = prefillDecodeMix11.frozen(prefillDecodeMix11.Formula).withBeta(prefillDecodeMix)

// chunkedPrefillMixed11 is step slot 15: a chunked batch of both phases.
//
//	f15 = chunked * (prefill requests > 0) * (decode requests > 0)
//
// Unit:   1
// Source: spec#beta-chunked-prefill-mixed
// Bounds: 0 or 1; 0 with chunked prefill off, for an empty step and for a pure step
// Omits:  the ratio of the phases, which is f7
var chunkedPrefillMixed11 = Feature{
	Name: "chunked_prefill_mixed", Kind: Indicator, Penalty: 10, Prompt: true, Bound: 1,
	Formula: "chunked_prefill*pos(num_prefill_reqs)*pos(num_decode_reqs)",
	Doc:     "1 when a chunked batch mixes prefill and decode",
	beta:    chunkedPrefillMixed,
}

func chunkedPrefillMixed(s *Space, in *StepInput) float64 {
	if in.NumPrefillReqs > 0 && in.NumDecodeReqs > 0 {
		return s.chunked
	}
	return 0
}

var chunkedPrefillMixed10 = chunkedPrefillMixed11.frozen(chunkedPrefillMixed11.Formula).withBeta(chunkedPrefillMixed)
