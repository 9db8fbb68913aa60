package features

// admissionCompute11 is queue slot 3: the time of the request's whole prompt at peak arithmetic
// rate, that is beta f1 + f2 of an unchunked prefill.
//
//	f3 = p*body/Fl + (head + 4*q*L*p(p+1)/2)/F, 0 when p = 0     [s]
//
// p prompt tokens, body and head the FLOP per token and per sequence, q query
// heads x head dim, L layers, Fl and F the group's peaks.
//
// Unit:   FLOP / (FLOP/s) = s
// Source: spec#alpha-admission-compute
// Bounds: >= 0; 0 without a prompt; equals beta f1 + f2 of an unchunked
//
//	prefill; grows with the prompt; scales with 1/tp for a dense model
//
// Omits:  prefix-cache hits, which are queue slot 7
func admissionCompute11(s *Space, in *QueueInput) float64 {
	p := in.PromptTokens
	if p == 0 {
		return 0
	}
	return float64(p*s.bodyS) + s.headS + float64(s.attnS*p*(p+1)/2)
}

// admissionCompute10 has no attention and the head on every token.
func admissionCompute10(s *Space, in *QueueInput) float64 {
	return in.PromptTokens * s.linearFLOPs / over(s.peak)
}
