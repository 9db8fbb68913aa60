package features

import "github.com/blis-train/blis-train/deploy"

// This file has the four step slots that version 1.2 adds; docs/decisions/0015-spec-1.2.md has the gain
// from each.

// weightLoadHidden12 is step slot 17: the weight streaming that linear compute hides.
//
//	f17 = min(f1, W(B, S)/Bw) = W(B, S)/Bw - f3     [s]
//
// Slots 1 + 3 are the larger of compute and weights; this is the smaller. Kernels do not overlap
// the two perfectly where they are about equal, some 64 to 512 tokens.
//
// Unit:   B / (B/s) = s
// Source: spec#beta-weight-load-hidden, spec#weight-bytes
// Bounds: >= 0; 0 for an empty step; f1 + f3 + f17 = f1 + W/Bw
// Omits:  tile and wave quantisation
func weightLoadHidden12(s *Space, in *StepInput) float64 {
	return atMost(linearCompute(s, in), s.weightBytes(in.ScheduledTokens, in.NumSampledSeqs)/s.bandwidth)
}

// activationTraffic12 is step slot 18: the time to move activations between kernels.
//
//	f18 = B*act/Bw     [s]
//
// B scheduled tokens, act the bytes that norms, rotary embedding, KV writes and MLP activations of
// all layers read and write for one token on all devices (spec#activation-bytes-per-token), Bw the
// group's memory bandwidth. Norms run on the whole hidden state of every device.
//
// Unit:   B / (B/s) = s
// Source: spec#beta-activation-traffic
// Bounds: >= 0; 0 for an empty step; linear in tokens
// Omits:  launches, inputs and outputs of linear layers, fusion with quantisation
func activationTraffic12(s *Space, in *StepInput) float64 {
	return in.ScheduledTokens * s.activationS
}

// collectiveTime12 is step slot 19: the collectives of a step as published for the device.
//
//	f19 = (2L+1) * T(B*h*ba) + T(S*V*ba)/2     [s]
//
// T the time of one all-reduce by bytes (spec#all-reduce-s), B scheduled tokens, S sampled
// sequences; gathering the logits moves half of what reducing them would.
//
// Unit:   s
// Source: spec#beta-collective-time; published kernel times, see deploy/interconnect
// Bounds: >= 0; 0 at tp = 1 and for an empty step; never falls when a token is added
// Omits:  waiting for the slowest device
func collectiveTime12(s *Space, in *StepInput) float64 {
	if s.tp <= 1 || in.ScheduledTokens <= 0 {
		return 0
	}
	return s.allreduces*tabled(s.reduces, in.ScheduledTokens, s.reduceS) + tabled(s.gathers, in.NumSampledSeqs, s.gatheredS)
}

// tabled returns f(n), from its table if that has it.
func tabled(table []float64, n float64, f func(float64) float64) float64 {
	if i := int(n); i < len(table) && float64(i) == n {
		return table[i]
	}
	return f(n)
}

// expertLoad12 is step slot 20: a nominal microsecond for each expert a step touches.
//
//	f20 = Lm*E*share(B)*1e-6     [s]
//
// Lm MoE layers of E experts, share the expected share of experts that B tokens touch.
//
// Unit:   s, nominal
// Source: spec#beta-expert-load, spec#expert-share
// Bounds: >= 0; 0 for a dense model and an empty step; grows with tokens to Lm*E us
// Omits:  skew (uniform routing assumed)
func expertLoad12(s *Space, in *StepInput) float64 {
	return s.moeLayers * s.experts * s.expertShare(in.ScheduledTokens) * expertRefS
}

// expertRefS is the nominal time in s of one expert in f20: a coefficient of 1e6 is exactly 1 us
// per expert.
const expertRefS = 1e-6

// derive12 sets the constants that spec 1.2 adds (spec#activation-bytes-per-token).
func (s *Space) derive12() {
	m := &s.dep.Model
	widths := (s.layers - s.moeLayers) * float64(m.IntermediateSize)
	if s.moeLayers > 0 {
		widths += s.moeLayers * (s.topK*float64(m.MoEIntermediateSize) + float64(m.SharedExpertSize))
	}
	s.activationBytes = m.BytesPerActivation * (s.layers*(8*s.hidden*s.tp+2*s.qDim+4*s.kvDim) +
		float64(m.NumMLPProj)*widths)
	s.activate(float64(m.VocabSize))
}

// activate sets the constants that follow from activationBytes, and the tables of collectives. vocab is
// the number of logits of a sequence.
func (s *Space) activate(vocab float64) {
	m := &s.dep.Model
	s.activationS = s.activationBytes / s.bandwidth
	s.tokenBytes = s.hidden * m.BytesPerActivation
	s.logitBytes = vocab * m.BytesPerActivation
	s.graphs = s.dep.GraphSizes()
	if s.tp > 1 {
		s.reduce, s.reduceEager = deploy.AllReduceOf(s.dep.Hardware.Name, s.dep.TP)
		s.fused, s.fusedBytes = s.dep.FusedAllReduce()
		for n := range mostTabled + 1 {
			s.reduces = append(s.reduces, s.reduceS(float64(n)))
			s.gathers = append(s.gathers, s.gatheredS(float64(n)))
		}
	}
}

// mostTabled is the largest number of tokens for which a Space keeps the times of collectives: most simulated steps decode and
// have fewer.
const mostTabled = 256

// reduceS returns the time in s of one all-reduce of so many tokens' activations
// (spec#all-reduce-s): published for the device, or latency and a ring over the link.
func (s *Space) reduceS(tokens float64) float64 {
	tokens, captured := s.graphs.Tokens(tokens) // padded to the size of a captured graph, if one is large enough
	bytes := tokens * s.tokenBytes
	switch {
	case s.fused != nil && bytes <= s.fusedBytes:
		return s.fused.Us(bytes) * 1e-6
	case s.reduce != nil && captured:
		return s.reduce.Us(bytes) * 1e-6
	case s.reduce != nil:
		return s.reduceEager.Us(bytes) * 1e-6
	}
	return s.allreduceS + 2*(s.tp-1)/s.tp*bytes/s.link
}

// gatheredS returns the time in s to gather the logits of so many sequences (spec#logits-gather-s).
func (s *Space) gatheredS(seqs float64) float64 {
	if s.reduce == nil || seqs == 0 {
		return seqs * s.gatherS
	}
	return s.reduce.Us(seqs*s.logitBytes) / 2 * 1e-6
}
