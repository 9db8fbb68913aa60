package features

// This file has the quantities of a step that several features share: weights read, experts used,
// times at peak rates.

import (
	"math"
)

// expertShare returns the expected share of experts that B tokens touch under uniform routing
// (spec#expert-share): 1 - (1 - k/E)^B. 0 when dense or B = 0; 1.0 takes at least one token when
// there is any.
func (s *Space) expertShare(tokens float64) float64 {
	if s.experts == 0 || tokens <= 0 {
		return 0
	}
	if s.version == V10 {
		return 1 - math.Pow(1-s.topK/s.experts, math.Max(1, tokens))
	}
	return -math.Expm1(tokens * s.lnIdleExpert)
}

// weightBytes returns W(B, S) in bytes: the weights that a step of B tokens and S sampled sequences
// reads, on all devices (spec#weight-bytes).
func (s *Space) weightBytes(tokens, seqs float64) float64 {
	if s.version == V10 {
		return s.stepBytes10(tokens)
	}
	if tokens == 0 {
		return 0
	}
	w := s.fixedWeights
	if s.expertKinds != nil {
		w += s.touchedBytes(tokens * s.engines)
	} else if s.expertWeights > 0 {
		w += s.expertWeights * s.expertShare(tokens)
	}
	if seqs > 0 {
		w += s.headBytes
	}
	return w
}

// stepBytes10 returns 1.0's weights of a step in bytes: no head, experts by their share.
func (s *Space) stepBytes10(tokens float64) float64 {
	used := 1.0
	if s.experts > 0 {
		used = s.experts * s.expertShare(tokens)
	}
	return s.layers * (s.attnBytes + s.expertBytes*used)
}

// linearS returns the time in s of all linear layers at their peak
// (spec#beta-prefill-linear-compute): the body per token at the linear peak, the head per sampled
// sequence at the 16-bit peak.
func (s *Space) linearS(tokens, seqs float64) float64 {
	return tokens*s.bodyS + seqs*s.headS
}

// FloorUs returns the physical floor of a step in us, W/Bw: no step can end before the weights it
// needs are read once (spec#physical-floor). A 1.0 space divides the bandwidth by tp although the
// weights are those of the whole model, so use one of 1.1 for audits.
func (s *Space) FloorUs(in *StepInput) float64 {
	return s.weightBytes(in.ScheduledTokens, in.NumSampledSeqs) / s.bandwidth * 1e6
}

// KVFreeBytes returns 1.0's kv_free_bytes (spec#kv-free-bytes), from the same doubled block size as
// the features so that the doubling cancels.
func (s *Space) KVFreeBytes(totalBlocks, usage float64) float64 {
	return totalBlocks * s.blockBytes * math.Max(epsilon10, 1-usage)
}

// Roofline has the times of a step's parts at peak rates, for the whole tensor-parallel group.
type Roofline struct {
	LinearS float64 // linear layers and head at their peaks
	WeightS float64 // weights over bandwidth
	KVS     float64 // KV reads over bandwidth
}

// kvS returns the time in s to read the KV caches of a step.
func (s *Space) kvS(in *StepInput) float64 {
	if Layered(s.version) {
		return kvCacheRead13(s, in)
	}
	return in.KVReadTokens * s.kvReadS
}

// Roofline returns the analytic parts of a step of a 1.1 space; zero for an
// empty step, and for a 1.0 space, whose constants are not physical.
func (s *Space) Roofline(in *StepInput) Roofline {
	if s.version == V10 {
		return Roofline{}
	}
	return Roofline{
		LinearS: s.linearS(in.ScheduledTokens, in.NumSampledSeqs),
		WeightS: s.weightBytes(in.ScheduledTokens, in.NumSampledSeqs) / s.bandwidth,
		KVS:     s.kvS(in),
	}
}

// atLeast returns the larger of two finite numbers. The built-in function costs more, because it
// treats NaN and signed zeros.
func atLeast(least, v float64) float64 {
	if v < least {
		return least
	}
	return v
}

// atMost returns the smaller of two finite numbers.
func atMost(most, v float64) float64 {
	if v > most {
		return most
	}
	return v
}
