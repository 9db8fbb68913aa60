package features

// This file has the queue features of 1.0 and 1.1 that depend on a request and the load it meets.

import "math"

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
// Bounds: >= 0; 0 without a prompt; equals beta f1 + f2 of an unchunked prefill; grows with the prompt; scales with 1/tp for a dense model
// Omits:  prefix-cache hits, which are queue slot 7
func admissionCompute11(s *Space, in *QueueInput) float64 {
	p := in.PromptTokens
	if p == 0 {
		return 0
	}
	return p*s.bodyS + s.headS + s.attnS*p*(p+1)/2
}

// admissionCompute10 returns the feature admission compute as spec 1.0 defines it: without attention,
// and with the head on every token.
func admissionCompute10(s *Space, in *QueueInput) float64 {
	return in.PromptTokens * s.linearFLOPs / over(s.peak)
}

// gate returns g (spec#load-gate), the degree to which a request must queue: s is the share of
// max_num_seqs that run, m the share of KV blocks in use. g is 1 when either is full.
//
//	g = s + m - s*m,   s = min(1, running/max_num_seqs),   m = min(1, max(0, kv_usage))
func (s *Space) gate(in *QueueInput) float64 { return s.gateAt(in.RunningDepth, in.KVUsageRatio) }

// gateAt returns the gate at so many running requests and a KV usage.
func (s *Space) gateAt(running, usage float64) float64 {
	seats := atMost(1, running/s.maxSeqs)
	memory := atMost(1, atLeast(0, usage))
	return seats + memory - seats*memory
}

// batchSaturation is queue slot 1: running requests relative to max_num_seqs, not limited to 1 as in the gate.
//
//	f1 = running/max_num_seqs
//
// Unit:   requests / requests = 1
// Source: spec#alpha-batch-saturation
// Bounds: 0..4; linear in running requests
// Omits:  how much work the running requests have left
func batchSaturation(s *Space, in *QueueInput) float64 {
	return in.RunningDepth / s.maxSeqs
}

// kvPressure is queue slot 2: the share of KV blocks in use.
//
//	f2 = kv_usage
//
// Unit:   blocks / blocks = 1
// Source: spec#alpha-kv-pressure
// Bounds: 0..1
// Omits:  cached blocks that could be reclaimed
func kvPressure(_ *Space, in *QueueInput) float64 { return in.KVUsageRatio }

// queuedRegimeBias11 is queue slot 11: the load gate g alone, so that its coefficient is a constant
// delay of requests that must queue.
//
//	f11 = g = s + m - s*m,   s = min(1, running/max_num_seqs),   m = min(1, max(0, kv_usage))
//
// Unit:   1
// Source: spec#alpha-queued-regime-bias
// Bounds: 0..1; 0 on an idle server; 1 when seats or blocks are full
// Omits:  the queue's length, which is queue slot 5 and 6
func queuedRegimeBias11(s *Space, in *QueueInput) float64 { return s.gate(in) }

// queueDrain is queue slot 5: the logarithm of the waiting requests, times that of a full step.
//
//	f5 = g * ln(1 + waiting) * roofline     [s]
//
// g the gate, roofline the time of the largest legal step at the roofline
// (spec#roofline-step-time).
//
// Unit:   s
// Source: spec#alpha-queue-drain, spec#roofline-step-time
// Bounds: >= 0; 0 on an idle server and with an empty queue; grows with the queue
// Omits:  lengths of the waiting prompts
func queueDrain(s *Space, in *QueueInput) float64 {
	return s.gate(in) * math.Log1p(in.WaitingDepth) * s.rooflineS
}

// queueMemoryInteraction is queue slot 6: waiting requests relative to max_num_seqs, times KV usage.
//
//	f6 = g * kv_usage * waiting/max_num_seqs
//
// Unit:   1
// Source: spec#alpha-queue-memory-interaction
// Bounds: >= 0; 0 on an idle server and with an empty queue
// Omits:  how fast blocks come free
func queueMemoryInteraction(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.KVUsageRatio * in.WaitingDepth / s.maxSeqs
}

// prefixCacheBenefit is queue slot 7: cached prompt tokens relative to the token budget of a step.
//
//	f7 = g * hit * prompt / max_num_batched_tokens
//
// Unit:   tokens / tokens = 1
// Source: spec#alpha-prefix-cache-benefit, spec#prefix-hits
// Bounds: >= 0; 0 without hits and on an idle server
// Omits:  which blocks were hit
func prefixCacheBenefit(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.PrefixHitRatio * in.PromptTokens / s.maxTokens
}

// memoryAdmissionGap11 is queue slot 8: the logarithm of the prompt's KV blocks relative to the free ones.
//
//	f8 = g * ln(1 + p/(block_size*max(1, free)))
//
// p prompt tokens, free the free KV blocks. The raw ratio legally reaches 1e5 near a full cache;
// the log keeps the order, "exactly fits" is 0.69 (spec#alpha-memory-admission-gap).
//
// Unit:   1
// Source: spec#alpha-memory-admission-gap
// Bounds: 0..32; 0 on an idle server; falls as blocks come free
// Omits:  blocks reclaimable from the prefix cache
func memoryAdmissionGap11(s *Space, in *QueueInput) float64 {
	return s.gate(in) * math.Log1p(in.PromptTokens/(s.blockTokens*atLeast(1, in.KVFreeBlocks)))
}

// memoryAdmissionGap10 returns the ratio in bytes, without the logarithm.
func memoryAdmissionGap10(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.PromptTokens * s.kvBytes / over(in.KVFreeBytes)
}
