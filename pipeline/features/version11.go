package features

// hourS bounds a time: no step and no queueing term is longer than an hour (spec#bounds).
const hourS = 3600

// lists11 are the slots of spec 1.1, which corrects 1.0 and is the default of new training.
// A released list never changes.
var lists11 = lists{
	beta: []Feature{
		{
			Name: PrefillLinearCompute, Kind: Time, Penalty: 1, Bound: hourS, Prompt: true,
			Formula: "scheduled_tokens*flops_body_per_token/group_peak_linear_flops + " +
				"num_sampled_seqs*flops_lm_head_per_seq/group_peak_flops",
			Doc:  "time of all linear layers and the LM head at peak arithmetic rate",
			beta: linearCompute,
		},
		{
			Name: PrefillAttention, Kind: Time, Penalty: 1, Bound: hourS, Prompt: true,
			Formula: "4*q_dim*num_hidden_layers*prefill_causal_work/group_peak_flops",
			Doc:     "time of prefill attention scores at peak arithmetic rate",
			beta:    prefillAttention,
		},
		{
			Name: DecodeWeightLoad, Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "max(0, weight_bytes(scheduled_tokens, num_sampled_seqs)/group_peak_bandwidth - prefill_linear_compute)",
			Doc:     "time of weight streaming not hidden by linear compute",
			beta:    weightLoad,
		},
		{
			Name: "decode_attention", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "4*q_dim*num_hidden_layers*decode_context_tokens/group_peak_flops",
			Doc:     "time of decode attention scores at peak arithmetic rate",
			beta:    decodeAttention,
		},
		{
			Name: "kv_cache_read", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "kv_read_tokens*kv_bytes_per_token/group_peak_bandwidth",
			Doc:     "time to read the scheduled requests' KV cache once",
			beta:    kvCacheRead11,
		},
		{
			Name: "batch_utilization", Kind: Count, Penalty: 1, Bound: 64,
			Formula: "(num_prefill_reqs + num_decode_reqs)/256",
			Doc:     "sequences in the batch, in units of 256",
			beta:    batchUtilization11,
		},
		{
			Name: "prefill_decode_mix", Kind: Ratio, Penalty: 10, Bound: 1, Prompt: true,
			Formula: "prefill_tokens/max(1e-6, prefill_tokens + decode_tokens)",
			Doc:     "share of prefill tokens in the step",
			beta:    prefillDecodeMix,
		},
		{
			Name: "moe_activation", Kind: Ratio, Penalty: 10, Bound: 1,
			Formula: "num_moe_layers/num_hidden_layers*expert_share(scheduled_tokens)",
			Doc:     "share of experts touched by the step",
			beta:    moeActivation11,
		},
		{
			Name: "tp_communication", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "pos(scheduled_tokens)*(allreduces_per_step*allreduce_latency + " +
				"(comm_bytes_per_token*scheduled_tokens + " +
				"comm_bytes_per_seq*num_sampled_seqs)/max(1, link_bandwidth))",
			Doc:  "time of tensor-parallel collectives: latency and bytes over the link",
			beta: tpCommunication,
		},
		{
			Name: "gqa_efficiency", Kind: Constant, Penalty: 100, Bound: 1,
			Formula: "num_key_value_heads/num_attention_heads",
			Doc:     "KV heads per query head; constant per configuration",
			beta:    gqaEfficiency,
		},
		{
			Name: FixedStepOverhead, Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "pos(scheduled_tokens)*num_hidden_layers*1e-5",
			Doc:     "nominal 10 us per layer of every non-empty step",
			beta:    fixedStepOverhead11,
		},
		{
			Name: PreemptionOverhead, Kind: Ratio, Penalty: 10, Bound: 10000,
			Formula: "preemption_ema",
			Doc:     "moving average of preemptions per running request",
			beta:    preemptionOverhead,
		},
		{
			Name: "cpu_offload_transfer", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "cpu_offloading*transfer_blocks*block_size_bytes/max(1, group_pcie_bandwidth)",
			Doc:     "time of KV blocks written to the CPU tier",
			beta:    cpuOffloadTransfer,
		},
		{
			Name: "cpu_offload_kv_read", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "cpu_offloading*cpu_resident_read_blocks*block_size_bytes/max(1, group_pcie_bandwidth)",
			Doc:     "time of KV blocks read from the CPU tier",
			beta:    cpuOffloadKVRead,
		},
		{
			Name: "chunked_prefill_mixed", Kind: Indicator, Penalty: 10, Bound: 1, Prompt: true,
			Formula: "chunked_prefill*pos(num_prefill_reqs)*pos(num_decode_reqs)",
			Doc:     "1 when a chunked batch mixes prefill and decode",
			beta:    chunkedPrefillMixed,
		},
		{
			Name: "bias", Kind: Constant, Penalty: 100, PenaltyOne: 1, Bound: 1,
			Formula: "1",
			Doc:     "constant per step",
			beta:    bias11,
		},
	},
	alpha: []Feature{
		{
			Name: "batch_saturation", Kind: Ratio, Penalty: 10, Bound: 4,
			Formula: "running_depth/max_num_seqs",
			Doc:     "running requests, relative to max_num_seqs",
			alpha:   batchSaturation,
		},
		{
			Name: "kv_pressure", Kind: Ratio, Penalty: 10, Bound: 1,
			Formula: "kv_usage_ratio",
			Doc:     "share of KV blocks in use",
			alpha:   kvPressure,
		},
		{
			Name: "admission_compute", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "prompt_tokens*flops_body_per_token/group_peak_linear_flops + " +
				"pos(prompt_tokens)*(flops_lm_head_per_seq + " +
				"4*q_dim*num_hidden_layers*prompt_tokens*(prompt_tokens+1)/2)/group_peak_flops",
			Doc:   "time of the whole prompt at peak arithmetic rate",
			alpha: admissionCompute11,
		},
		{
			Name: "base_bias", Kind: Constant, Penalty: 1, Bound: 1,
			Formula: "1",
			Doc:     "constant per request",
			alpha:   baseBias11,
		},
		{
			Name: "queue_drain", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "gate(running_depth, kv_usage_ratio)*ln(1 + waiting_depth)*roofline_step_time",
			Doc:     "log of the waiting requests times the roofline of a full step",
			alpha:   queueDrain,
		},
		{
			Name: "queue_memory_interaction", Kind: Ratio, Penalty: 10, Bound: 1e+06,
			Formula: "gate(running_depth, kv_usage_ratio)*kv_usage_ratio*waiting_depth/max_num_seqs",
			Doc:     "waiting requests, relative to max_num_seqs, while the cache is full",
			alpha:   queueMemoryInteraction,
		},
		{
			Name: "prefix_cache_benefit", Kind: Ratio, Penalty: 10, Bound: 1e+06, Free: true,
			Formula: "gate(running_depth, kv_usage_ratio)*prefix_hit_ratio*prompt_tokens/max_num_batched_tokens",
			Doc:     "prompt tokens served from the prefix cache, per token budget",
			alpha:   prefixCacheBenefit,
		},
		{
			Name: "memory_admission_gap", Kind: Ratio, Penalty: 10, Bound: 32,
			Formula: "gate(running_depth, kv_usage_ratio)*ln(1 + " +
				"prompt_tokens/(block_size*max(1, kv_free_blocks)))",
			Doc:   "log of the prompt's KV need relative to the free blocks",
			alpha: memoryAdmissionGap11,
		},
		{
			Name: "preemption_disruption", Kind: Ratio, Penalty: 10, Bound: 10000,
			Formula: "gate(running_depth, kv_usage_ratio)*preemption_ema",
			Doc:     "preemption average while the server is busy",
			alpha:   preemptionDisruption,
		},
		{
			Name: "cpu_offload_expansion", Kind: Ratio, Penalty: 10, Bound: 10000, Free: true,
			Formula: "gate(running_depth, kv_usage_ratio)*cpu_gpu_capacity_ratio",
			Doc:     "CPU tier relative to the GPU cache while the server is busy",
			alpha:   cpuOffloadExpansion11,
		},
		{
			Name: "queued_regime_bias", Kind: Ratio, Penalty: 10, Bound: 1,
			Formula: "gate(running_depth, kv_usage_ratio)",
			Doc:     "the gate: 0 idle, 1 when max_num_seqs requests run or all KV blocks are used",
			alpha:   queuedRegimeBias11,
		},
	},
}
