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
func batchUtilization11(_ *Space, in *StepInput) float64 {
	return (in.NumPrefillReqs + in.NumDecodeReqs) / seqRef
}

// batchUtilization10 is the used share of the token budget.
func batchUtilization10(s *Space, in *StepInput) float64 {
	return in.ScheduledTokens / over(s.maxTokens)
}

// prefillDecodeMix is step slot 7: the share of prefill in the step's tokens.
//
//	f7 = prefill/(prefill + decode), 0 for an empty step
//
// Unit:   tokens / tokens = 1
// Source: spec#beta-prefill-decode-mix
// Bounds: 0..1; 0 for an empty step; 1 for a pure prefill
// Omits:  how prefill is spread over requests
func prefillDecodeMix(_ *Space, in *StepInput) float64 {
	return in.PrefillTokens / atLeast(epsilon10, in.PrefillTokens+in.DecodeTokens)
}

// chunkedPrefillMixed is step slot 15: a chunked batch of both phases.
//
//	f15 = chunked * (prefill requests > 0) * (decode requests > 0)
//
// Unit:   1
// Source: spec#beta-chunked-prefill-mixed
// Bounds: 0 or 1; 0 with chunked prefill off, for an empty step and for a pure step
// Omits:  the ratio of the phases, which is f7
func chunkedPrefillMixed(s *Space, in *StepInput) float64 {
	if in.NumPrefillReqs > 0 && in.NumDecodeReqs > 0 {
		return s.chunked
	}
	return 0
}
