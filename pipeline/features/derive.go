package features

// This file derives the constants of versions 1.0 and 1.1 from a deployment. constants.go has the
// formula of each as text, and a test compares both.

import (
	"math"
)

// setDimensions copies the dimensions and settings that several versions need from the deployment.
func (s *Space) setDimensions() {
	m, e := &s.dep.Model, &s.dep.Engine
	s.layers = float64(m.NumLayers)
	s.hidden = float64(m.HiddenSize)
	s.heads = float64(m.NumHeads)
	s.kvHeads = float64(m.NumKVHeads)
	s.tp = float64(s.dep.TP)
	s.maxSeqs = float64(e.MaxNumSeqs)
	s.maxTokens = float64(e.MaxNumBatchedTokens)
	s.blockTokens = float64(e.BlockSize)
	s.chunked, s.offload = oneIf(e.ChunkedPrefill), oneIf(e.CPUOffloading)
	if m.IsMoE() {
		s.experts = float64(m.NumExperts)
		s.topK = float64(m.TopK)
	}
}

// derive10 sets the constants of 1.0, known errors included (spec#constants-frozen).
func (s *Space) derive10() {
	m, h := &s.dep.Model, &s.dep.Hardware
	b := m.BytesPerParam
	s.setMLP10()
	topK := 1.0
	if m.IsMoE() {
		topK = s.topK
	}
	proj := float64(m.NumMLPProj)
	vocab := float64(m.VocabSize)

	s.kvDim = s.hidden * s.kvHeads / s.heads
	s.attnFLOPs = 4 * s.hidden * (s.hidden + s.kvDim) // four projections, 2 FLOP for each weight
	s.mlpFLOPs = 2 * proj * s.hidden * s.mlpWidth * s.activeExperts
	s.headFLOPs = 2 * s.hidden * vocab
	s.linearFLOPs = s.layers*(s.attnFLOPs+s.mlpFLOPs) + s.headFLOPs
	s.kvBytes = 4 * s.layers * s.kvDim * b // twice those of keys and values (spec#err-kv-bytes)
	s.blockBytes = s.blockTokens * s.kvBytes
	s.peak = h.TFlopsPeak * 1e12 / s.tp // divided although the work is not (spec#err-tp)
	s.linearPeak = s.peak
	s.bandwidth = h.BwPeakTBs * 1e12 / s.tp
	s.attnBytes = (2*s.hidden*s.hidden + 2*s.hidden*s.kvDim) * b
	s.expertBytes = proj * s.hidden * s.mlpWidth * b
	s.mlpBytes = s.expertBytes * topK
	s.totalBytes = s.layers * (s.attnBytes + s.mlpBytes)
	s.pcie = h.PCIeBandwidthGBs * 1e9 * h.PCIeEfficiency
	s.link = h.InterconnectBandwidthGBs * 1e9
	if s.tp > 1 {
		s.commBytes = 4 * s.layers * s.hidden * b * (s.tp - 1) / s.tp
	}
	s.gqa = s.kvHeads / s.heads
	s.gpuKVBytes = float64(s.dep.Engine.KVBlocksGPU.Or(0)) * s.blockBytes
	s.cpuKVBytes = s.offload * float64(s.dep.Engine.KVBlocksCPU) * s.blockBytes
	s.rooflineS = math.Max(s.maxTokens*s.linearFLOPs/over(s.peak), s.totalBytes/over(s.bandwidth))
}

// setMLP10 sets 1.0's MLP width (spec#model-frozen) and the share k/E of active experts.
func (s *Space) setMLP10() {
	m := &s.dep.Model
	s.mlpWidth = float64(m.IntermediateSize)
	s.activeExperts = 1
	if m.IsMoE() {
		s.activeExperts = s.topK / s.experts
		if m.MoEIntermediateSize > 0 {
			s.mlpWidth = float64(m.MoEIntermediateSize)
		}
	}
}

// derive11 sets the constants of 1.1; each is a clause of docs/spec.md.
func (s *Space) derive11() {
	m := &s.dep.Model
	h := &s.dep.Hardware
	e := &s.dep.Engine
	proj := float64(m.NumMLPProj)
	vocab := float64(m.VocabSize)
	headDim := float64(m.HeadDim)
	denseWidth := float64(m.IntermediateSize)
	expertWidth := float64(m.MoEIntermediateSize)
	sharedWidth := float64(m.SharedExpertSize)

	s.qDim = s.heads * headDim
	s.kvDim = math.Max(s.kvHeads, s.tp) * headDim   // KV heads are replicated when tp exceeds them
	s.attnFLOPs = 4 * s.hidden * (s.qDim + s.kvDim) // projections of q, k, v and output, 2 FLOP for each weight
	s.mlpFLOPs = 2 * proj * s.hidden * denseWidth
	s.attnBytes = 2 * s.hidden * (s.qDim + s.kvDim) * m.BytesPerWeight
	s.mlpBytes = proj * s.hidden * denseWidth * m.BytesPerWeight
	if m.IsMoE() {
		router := s.hidden * s.experts * s.tp // replicated on every device
		s.moeLayers = float64(m.NumMoELayers)
		s.moeFLOPs = 2*proj*s.hidden*(s.topK*expertWidth+sharedWidth) + 2*router
		s.expertBytes = proj * s.hidden * expertWidth * m.BytesPerWeight
		s.moeFixedBytes = proj*s.hidden*sharedWidth*m.BytesPerWeight + router*m.BytesPerActivation
	}
	s.headFLOPs = 2 * s.hidden * vocab
	s.headBytes = s.hidden * vocab * m.BytesPerLMHead
	s.linearFLOPs = s.layers*s.attnFLOPs + (s.layers-s.moeLayers)*s.mlpFLOPs + s.moeLayers*s.moeFLOPs
	s.totalBytes = s.fixedBytes() + s.moeLayers*s.experts*s.expertBytes + s.headBytes
	s.kvBytes = 2 * s.layers * s.kvDim * m.BytesPerKV // keys and values
	s.blockBytes = s.blockTokens * s.kvBytes
	s.peak = h.TFlopsPeak * 1e12 * s.tp
	s.linearPeak = s.peak
	if m.LinearCompute == "fp8" && h.TFlopsFP8 > 0 {
		s.linearPeak = h.TFlopsFP8 * 1e12 * s.tp
	}
	s.linearTFlops = s.linearPeak / s.tp / 1e12
	s.bandwidth = h.BwPeakTBs * 1e12 * s.tp
	s.pcie = h.PCIeBandwidthGBs * 1e9 * h.PCIeEfficiency * s.tp
	s.links(2*s.layers+1, vocab) // two all-reduces a layer, and one after the embedding
	s.divide11()
	if e.CPUOffloading {
		s.cpuGPURatio = float64(e.KVBlocksCPU) / float64(e.KVBlocksGPU.Or(0))
	}
	seqs := math.Min(s.maxSeqs, s.maxTokens)
	s.rooflineS = math.Max(s.linearS(s.maxTokens, seqs), s.weightBytes(s.maxTokens, seqs)/s.bandwidth)
}

// divide11 sets the quotients that every vector needs, so that Beta and Alpha only multiply.
func (s *Space) divide11() {
	s.bodyS = s.linearFLOPs / s.linearPeak
	s.headS = s.headFLOPs / s.peak
	s.attnS = 4 * s.qDim * s.layers / s.peak
	s.kvReadS = s.kvBytes / s.bandwidth
	s.fixedWeights = s.fixedBytes()
	s.expertWeights = s.moeLayers * s.experts * s.expertBytes
	s.moeLayerShare = s.moeLayers / s.layers
	s.gqa = s.kvHeads / s.heads
	s.stepOverheadS = s.layers * layerRefS
	if s.experts > 0 {
		s.lnIdleExpert = math.Log1p(-s.topK / s.experts)
	}
}

// links sets the constants of collectives for a step with the given number of all-reduces, and logits
// of vocab values a sequence.
func (s *Space) links(allreduces, vocab float64) {
	m, h := &s.dep.Model, &s.dep.Hardware
	s.link = h.InterconnectBandwidthGBs * 1e9 / 2 // one direction
	s.allreduceS = h.InterconnectLatencyUs * 1e-6
	if s.tp > 1 {
		share := (s.tp - 1) / s.tp // of a buffer that a device gets from the others
		s.allreduces = allreduces
		s.commBytes = s.allreduces * 2 * share * s.hidden * m.BytesPerActivation // a ring moves it twice: reduce, then gather
		s.gatherBytes = share * vocab * m.BytesPerActivation
		s.commLatencyS = s.allreduces * s.allreduceS
		s.commS = s.commBytes / s.link
		s.gatherS = s.gatherBytes / s.link
	}
}

// fixedBytes returns the bytes of weights that every non-empty step reads: attention, dense MLPs,
// shared experts and routers, without experts and LM head.
func (s *Space) fixedBytes() float64 {
	return s.layers*s.attnBytes + (s.layers-s.moeLayers)*s.mlpBytes + s.moeLayers*s.moeFixedBytes
}

// over returns a denominator of 1.0, at least 1e-6 (spec#frozen-guards).
func over(d float64) float64 { return math.Max(epsilon10, d) }

// oneIf returns 1 for true and 0 for false, to multiply with.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
