package features

// clamp10 is the one bound of spec 1.0 (spec#frozen-guards).
const clamp10 = 100

// lists10 are the slots of spec 1.0, frozen with its known errors. A released list never changes: a
// coefficient file names its version and means the same in every later build.
var lists10 = lists{
	beta: []Feature{
		{
			Name: PrefillLinearCompute, Kind: Time, Penalty: 1, Bound: clamp10, Prompt: true,
			Formula: "prefill_tokens*flops_linear_per_token/max(1e-6, hw_peak_flops)",
			Doc:     "time of all linear layers and the LM head at peak arithmetic rate",
			beta:    linearCompute10,
		},
		{
			Name: PrefillAttention, Kind: Time, Penalty: 1, Bound: clamp10, Prompt: true,
			Formula: "sum_prefill_attn_work*num_hidden_layers*2*hidden_size/max(1e-6, hw_peak_flops)",
			Doc:     "time of prefill attention scores at peak arithmetic rate",
			beta:    prefillAttention10,
		},
		{
			Name: DecodeWeightLoad, Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "pos(decode_tokens)*weight_bytes(scheduled_tokens, 0)/max(1e-6, hw_peak_bandwidth)",
			Doc:     "time to read the weights in a step with decodes, hidden by nothing",
			beta:    weightLoad10,
		},
		{
			Name: "decode_attention", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "decode_context_tokens*2*num_hidden_layers*hidden_size/max(1e-6, hw_peak_flops)",
			Doc:     "time of decode attention scores at peak arithmetic rate",
			beta:    decodeAttention10,
		},
		{
			Name: "kv_cache_read", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "sum_decode_kv_blocks*block_size_bytes/max(1e-6, hw_peak_bandwidth)",
			Doc:     "time to read the scheduled requests' KV cache once",
			beta:    kvCacheRead10,
		},
		{
			Name: "batch_utilization", Kind: Ratio, Penalty: 1, Bound: clamp10,
			Formula: "scheduled_tokens/max(1e-6, max_num_batched_tokens)",
			Doc:     "tokens of the step, relative to max_num_batched_tokens",
			beta:    batchUtilization10,
		},
		{
			Name: "prefill_decode_mix", Kind: Ratio, Penalty: 10, Bound: clamp10, Prompt: true,
			Formula: "prefill_tokens/max(1e-6, prefill_tokens + decode_tokens)",
			Doc:     "share of prefill tokens in the step",
			beta:    prefillDecodeMix,
		},
		{
			Name: "moe_activation", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "expert_share(scheduled_tokens)",
			Doc:     "share of experts touched by the step",
			beta:    moeActivation10,
		},
		{
			Name: "tp_communication", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "comm_bytes_per_token*scheduled_tokens/max(1e-6, hw_interconnect_bw)",
			Doc:     "time of the bytes of tensor-parallel collectives over the link, without their latency",
			beta:    tpCommunication10,
		},
		{
			Name: "gqa_efficiency", Kind: Constant, Penalty: 100, Bound: clamp10,
			Formula: "num_key_value_heads/max(1e-6, num_attention_heads)",
			Doc:     "KV heads per query head; constant per configuration",
			beta:    gqaEfficiency,
		},
		{
			Name: FixedStepOverhead, Kind: Ratio, Penalty: 1, Bound: clamp10,
			Formula: "1/max(1, scheduled_tokens)",
			Doc:     "one over the tokens of the step",
			beta:    fixedStepOverhead10,
		},
		{
			Name: PreemptionOverhead, Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "preemption_ema",
			Doc:     "moving average of preemptions per running request",
			beta:    preemptionOverhead,
		},
		{
			Name: "cpu_offload_transfer", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "cpu_offloading*transfer_blocks*block_size_bytes/max(1e-6, hw_pcie_bandwidth_eff)",
			Doc:     "time of KV blocks written to the CPU tier",
			beta:    cpuOffloadTransfer,
		},
		{
			Name: "cpu_offload_kv_read", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "cpu_offloading*cpu_resident_read_blocks*block_size_bytes/max(1e-6, hw_pcie_bandwidth_eff)",
			Doc:     "time of KV blocks read from the CPU tier",
			beta:    cpuOffloadKVRead,
		},
		{
			Name: "chunked_prefill_mixed", Kind: Indicator, Penalty: 10, Bound: clamp10, Prompt: true,
			Formula: "chunked_prefill*pos(num_prefill_reqs)*pos(num_decode_reqs)",
			Doc:     "1 when a chunked batch mixes prefill and decode",
			beta:    chunkedPrefillMixed,
		},
		{
			Name: "bias", Kind: Constant, Penalty: 100, PenaltyOne: 1, Bound: clamp10,
			Formula: "1",
			Doc:     "constant per step",
			beta:    bias11,
		},
	},
	alpha: []Feature{
		{
			Name: "batch_saturation", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "running_depth/max(1e-6, max_num_seqs)",
			Doc:     "running requests, relative to max_num_seqs",
			alpha:   batchSaturation,
		},
		{
			Name: "kv_pressure", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "kv_usage_ratio",
			Doc:     "share of KV blocks in use",
			alpha:   kvPressure,
		},
		{
			Name: "admission_compute", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "prompt_tokens*flops_linear_per_token/max(1e-6, hw_peak_flops)",
			Doc:     "time of the whole prompt at peak arithmetic rate",
			alpha:   admissionCompute10,
		},
		{
			Name: "base_bias", Kind: Constant, Penalty: 1, Bound: clamp10,
			Formula: "1",
			Doc:     "constant per request",
			alpha:   baseBias11,
		},
		{
			Name: "queue_drain", Kind: Time, Penalty: 1, Bound: clamp10,
			Formula: "gate(running_depth, kv_usage_ratio)*ln(1 + waiting_depth)*roofline_step_time",
			Doc:     "log of the waiting requests times the roofline of a full step",
			alpha:   queueDrain,
		},
		{
			Name: "queue_memory_interaction", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "gate(running_depth, kv_usage_ratio)*kv_usage_ratio*waiting_depth/max(1e-6, max_num_seqs)",
			Doc:     "waiting requests, relative to max_num_seqs, while the cache is full",
			alpha:   queueMemoryInteraction,
		},
		{
			Name: "prefix_cache_benefit", Kind: Ratio, Penalty: 10, Bound: clamp10, Free: true,
			Formula: "gate(running_depth, kv_usage_ratio)*prefix_hit_ratio*prompt_tokens/max(1e-6, max_num_batched_tokens)",
			Doc:     "prompt tokens served from the prefix cache, per token budget",
			alpha:   prefixCacheBenefit,
		},
		{
			Name: "memory_admission_gap", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "gate(running_depth, kv_usage_ratio)*prompt_tokens*kv_bytes_per_token/max(1e-6, kv_free_bytes)",
			Doc:     "KV bytes that the prompt needs, relative to the free ones, while the server is busy",
			alpha:   memoryAdmissionGap10,
		},
		{
			Name: "preemption_disruption", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "gate(running_depth, kv_usage_ratio)*preemption_ema",
			Doc:     "preemption average while the server is busy",
			alpha:   preemptionDisruption,
		},
		{
			Name: "cpu_offload_expansion", Kind: Ratio, Penalty: 10, Bound: clamp10, Free: true,
			Formula: "gate(running_depth, kv_usage_ratio)*cpu_kv_capacity_bytes/max(1e-6, gpu_kv_capacity_bytes)",
			Doc:     "CPU tier relative to the GPU cache while the server is busy",
			alpha:   cpuOffloadExpansion10,
		},
		{
			Name: "queued_regime_bias", Kind: Ratio, Penalty: 10, Bound: clamp10,
			Formula: "gate(running_depth, kv_usage_ratio)",
			Doc:     "the gate: 0 idle, 1 when max_num_seqs requests run or all KV blocks are used",
			alpha:   queuedRegimeBias11,
		},
	},
}
