package features

import "github.com/blis-train/blis-train/internal/stat"

// queueDrain11 is queue slot 5: the time the queue in front needs, compressed.
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
var queueDrain11 = Feature{
	Name: "queue_drain", Kind: Time, Penalty: 1, Bound: boundS,
	Formula: "gate(running_depth, kv_usage_ratio)*ln(1 + waiting_depth)*roofline_step_time",
	Doc:     "log of the queue in front times the roofline of a full step",
	alpha:   queueDrain,
}

func queueDrain(s *Space, in *QueueInput) float64 {
	return s.gate(in) * stat.Log1p(in.WaitingDepth) * s.rooflineS
}

var queueDrain10 = queueDrain11.frozen(queueDrain11.Formula).withAlpha(queueDrain)

// queueMemoryInteraction11 is queue slot 6: a long queue before a full cache.
//
//	f6 = g * kv_usage * waiting/max_num_seqs
//
// Unit:   1
// Source: spec#alpha-queue-memory-interaction
// Bounds: >= 0; 0 on an idle server and with an empty queue
// Omits:  how fast blocks come free
var queueMemoryInteraction11 = Feature{
	Name: "queue_memory_interaction", Kind: Ratio, Penalty: 10, Bound: 1e6,
	Formula: "gate(running_depth, kv_usage_ratio)*kv_usage_ratio*waiting_depth/max_num_seqs",
	Doc:     "queue per seat while the cache is full",
	alpha:   queueMemoryInteraction,
}

func queueMemoryInteraction(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.KVUsageRatio * in.WaitingDepth / s.maxSeqs
}

var queueMemoryInteraction10 = queueMemoryInteraction11.
	frozen("gate(running_depth, kv_usage_ratio)*kv_usage_ratio*waiting_depth/max(1e-6, max_num_seqs)").
	withAlpha(queueMemoryInteraction)

// prefixCacheBenefit11 is queue slot 7: cached prompt tokens per token budget.
//
//	f7 = g * hit * prompt / max_num_batched_tokens
//
// Unit:   tokens / tokens = 1
// Source: spec#alpha-prefix-cache-benefit, spec#prefix-hits
// Bounds: >= 0; 0 without hits and on an idle server
// Omits:  which blocks were hit
var prefixCacheBenefit11 = Feature{
	Name: "prefix_cache_benefit", Kind: Ratio, Penalty: 10, Free: true, Bound: 1e6,
	Formula: "gate(running_depth, kv_usage_ratio)*prefix_hit_ratio*prompt_tokens/max_num_batched_tokens",
	Doc:     "prompt tokens served from the prefix cache, per token budget",
	alpha:   prefixCacheBenefit,
}

func prefixCacheBenefit(s *Space, in *QueueInput) float64 {
	return s.gate(in) * in.PrefixHitRatio * in.PromptTokens / s.maxTokens
}

var prefixCacheBenefit10 = prefixCacheBenefit11.
	frozen("gate(running_depth, kv_usage_ratio)*prefix_hit_ratio*prompt_tokens/max(1e-6, max_num_batched_tokens)").
	withAlpha(prefixCacheBenefit)

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
var memoryAdmissionGap11 = Feature{
	Name: "memory_admission_gap", Kind: Ratio, Penalty: 10, Bound: 32,
	Formula: "gate(running_depth, kv_usage_ratio)*ln(1 + prompt_tokens/(block_size*max(1, kv_free_blocks)))",
	Doc:     "log of the prompt's KV need relative to the free blocks",
	alpha: func(s *Space, in *QueueInput) float64 {
		return s.gate(in) * stat.Log1p(in.PromptTokens/(s.blockTokens*atLeast(1, in.KVFreeBlocks)))
	},
}

// memoryAdmissionGap10 is the raw ratio in bytes, clamped at 100.
var memoryAdmissionGap10 = memoryAdmissionGap11.
	frozen("gate(running_depth, kv_usage_ratio)*prompt_tokens*kv_bytes_per_token/max(1e-6, kv_free_bytes)").
	withAlpha(func(s *Space, in *QueueInput) float64 {
		return s.gate(in) * in.PromptTokens * s.kvBytes / over(in.KVFreeBytes)
	})
