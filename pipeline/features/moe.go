package features

// moeActivation11 is step slot 8: the share of experts that the step touches, weighted with the
// share of MoE layers.
//
//	f8 = (Lm/L) * (1 - (1-k/E)^B)
//
// B scheduled tokens, k of E experts per token, Lm of L layers with experts.
//
// Unit:   1
// Source: spec#beta-moe-activation, spec#expert-share
// Bounds: 0..1; 0 for a dense model and an empty step; grows with tokens
// Omits:  skew (uniform routing assumed)
func moeActivation11(s *Space, in *StepInput) float64 {
	if s.moeLayers == 0 {
		return 0
	}
	return s.moeLayerShare * s.expertShare(in.ScheduledTokens)
}

// moeActivation10 takes every layer for an MoE layer.
func moeActivation10(s *Space, in *StepInput) float64 { return s.expertShare(in.ScheduledTokens) }
