package features

import "github.com/blis-train/blis-train/internal/stat"

// queueDrain is queue slot 5: the time the queue in front needs, compressed.
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
	return s.gate(in) * stat.Log1p(in.WaitingDepth) * s.rooflineS
}

// queueMemoryInteraction is queue slot 6: a long queue before a full cache.
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

// prefixCacheBenefit is queue slot 7: cached prompt tokens per token budget.
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

// memoryAdmissionGap11 is queue slot 8: the prompt's blocks against the free ones, compressed.
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
	return s.gate(in) * stat.Log1p(in.PromptTokens/(s.blockTokens*atLeast(1, in.KVFreeBlocks)))
}

// memoryAdmissionGap10 is the raw ratio in bytes, clamped at 100.
func memoryAdmissionGap10(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.PromptTokens * s.kvBytes / over(in.KVFreeBytes)
}
