package features

// BlackboxBeta lists the blackbox step-time terms:
//
//	step_us = b0 + b1 * uncached prefill tokens + b2 * decode tokens
//
// Beside it the model has a delay of a0 + a1*M before the queue (M prompt tokens)
// and of a2*N after the engine (N output tokens).
var BlackboxBeta = []Term{
	{"per_step", "us/step", "constant"},
	{"per_prefill_token", "us/token", "prefill tokens computed in the step (cache hits excluded)"},
	{"per_decode_token", "us/token", "decode tokens of the step"},
}

// Blackbox writes the three step terms into x, len(BlackboxBeta).
func Blackbox(s *Step, x []float64) {
	x[0], x[1], x[2] = 1, s.PrefillTokens, s.DecodeTokens
}
