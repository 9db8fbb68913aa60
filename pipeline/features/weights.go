package features

// weightLoad is step slot 3: the time of weight streaming that linear compute does not hide.
//
//	f3 = max(0, W(B, S)/Bw - f1)     [s]
//
// W the bytes of every weight the step reads (attention, dense MLPs, the experts that B tokens
// touch, shared experts and routers, the head when a sequence is sampled; spec#weight-bytes), Bw
// the group's memory bandwidth, f1 the unbounded slot 1.
//
// Unit:   B / (B/s) = s
// Source: spec#beta-decode-weight-load, spec#expert-share, spec#weight-bytes
// Bounds: >= 0; 0 for an empty step; f1 + f3 = max(f1, W/Bw), so that equal
//
//	coefficients give the roofline; scales with 1/tp for a dense model
//
// Omits:  quantisation scales; skew of the expert choice (uniform routing)
func weightLoad(s *Space, in *StepInput) float64 {
	unhidden := s.weightBytes(in.ScheduledTokens, in.NumSampledSeqs)/s.bandwidth - linearCompute(s, in)
	return atLeast(0, unhidden)
}

// weightLoad10 charges the weights in full, in steps with decodes only.
func weightLoad10(s *Space, in *StepInput) float64 {
	if in.DecodeTokens <= 0 {
		return 0
	}
	return s.stepBytes10(in.ScheduledTokens) / over(s.bandwidth)
}
