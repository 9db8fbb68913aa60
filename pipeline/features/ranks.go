package features

// This file has the step features of one rank of a data-parallel model whose experts are spread over
// all ranks.

// Group describes the step of all ranks of a data-parallel model with experts. The experts are
// spread over the ranks and process the tokens of all of them.
type Group struct {
	Ranks     float64 // data-parallel
	Padded    float64 // tokens that this rank computes, padding included
	Tokens    float64 // of all ranks, padding included
	Imbalance float64 // tokens of the busiest rank's experts over the mean, >= 1
}

// BetaAmong is [Space.Beta] for a step in lockstep with other ranks. Each rank has 1/Ranks of the
// experts. In the terms of linear compute and weights, the part of the experts depends on the
// tokens of all ranks; everything else depends on the rank's own. The terms of 1.0 do not separate
// experts and stay those of the rank alone. No feature describes the exchange of tokens between
// ranks.
func (s *Space) BetaAmong(in *StepInput, g *Group, x []float64) (Hits, error) {
	hits, err := s.Beta(in, x)
	if err != nil || s.version == V10 || s.experts == 0 && s.expertKinds == nil {
		return hits, err
	}
	m := &s.dep.Model
	perToken := s.expertS // s of one token in its experts, of all layers
	if !Layered(s.version) {
		perToken = s.moeLayers * 2 * float64(m.NumMLPProj) * s.hidden * s.topK * float64(m.MoEIntermediateSize) / s.linearPeak
	}
	// The experts here process their part of all ranks' tokens in place of this rank's own.
	moreTokens := g.Tokens/g.Ranks*g.Imbalance - g.Padded
	linear := s.linearS(g.Padded, in.NumSampledSeqs) + perToken*moreTokens
	touched := s.touchedBytes(g.Tokens) // bytes of the weights of this rank's experts that are read
	share := s.moeShare(g.Tokens)       // the feature moe_activation
	load := s.expertsTouched(g.Tokens)  // experts of this rank that are used
	if !Layered(s.version) {
		touchedShare := s.expertShare(g.Tokens)
		touched = s.expertWeights / g.Ranks * touchedShare
		share = s.moeLayerShare * touchedShare / g.Ranks
		load = s.moeLayers * s.experts / g.Ranks * touchedShare
	}
	weights := s.fixedWeights + touched
	if in.NumSampledSeqs > 0 {
		weights += s.headBytes
	}
	read := weights / s.bandwidth
	// Only the terms in which experts take part are replaced.
	for i := range s.beta {
		switch s.beta[i].Name {
		case PrefillLinearCompute:
			x[i] = linear
		case DecodeWeightLoad:
			x[i] = atLeast(0, read-linear)
		case "weight_load_hidden":
			x[i] = atMost(linear, read)
		case "moe_activation":
			x[i] = share
		case "expert_load":
			x[i] = load * expertRefS
		}
	}
	clipped, err := clip(s.beta, x)
	return hits | clipped, err
}
