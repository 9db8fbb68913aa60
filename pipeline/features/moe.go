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
var moeActivation11 = Feature{
	Name: "moe_activation", Kind: Ratio, Penalty: 10, Bound: 1,
	Formula: "num_moe_layers/num_hidden_layers*expert_share(scheduled_tokens)",
	Doc:     "share of experts touched by the step",
	beta: func(s *Space, in *StepInput) float64 {
		if s.moeLayers == 0 {
			return 0
		}
		return s.moeLayerShare * s.expertShare(in.ScheduledTokens)
	},
}

// moeActivation10 takes every layer for an MoE layer.
var moeActivation10 = moeActivation11.
	frozen("expert_share(scheduled_tokens)").
	withBeta(func(s *Space, in *StepInput) float64 { return s.expertShare(in.ScheduledTokens) })
