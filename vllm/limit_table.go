package vllm

// This file lists the settings of vLLM whose effect on a step is not modelled.

// atMost returns a value for [Limit.Most].
func atMost(n float64) *float64 { return &n }

// limits lists the settings of vLLM whose effect on a step is not modelled
// (spec#unmodelled-knobs). fit and simulate refuse the first ones and warn of the rest.
var limits = []Limit{
	{
		Key:       "pipeline_parallel_size",
		Refused:   true,
		What:      "pipeline parallelism",
		Next:      "trace a server with pipeline_parallel_size 1",
		Simulated: true,
		Most:      atMost(1),
	},
	{
		Key:       "enable_expert_parallel",
		Refused:   true,
		What:      "expert parallelism",
		Next:      "fit takes 1.3 by itself; do not ask for an older one",
		Simulated: true,
		Layered:   true,
		On:        true,
	},
	{
		Key:       "speculative_config",
		Refused:   true,
		What:      "speculative decoding",
		Next:      "trace a server without --speculative-config",
		Simulated: true,
		Given: []string{
			"speculative_config", "speculative_model", "num_speculative_tokens",
			"speculative_decoding", "spec_method", "spec_model", "spec_tokens",
		},
	},
	{
		Key:     "data_parallel_size",
		Refused: true,
		What: "data parallelism of a model with experts, whose engines wait for each other in " +
			"every step,",
		Next: "fit takes 1.3 by itself, whose steps take all engines for equally busy; do not ask " +
			"for an older one",
		Simulated: true,
		Layered:   true,
		Experts:   true,
		Most:      atMost(1),
	},
	{
		Key:     "decode_context_parallel_size",
		Refused: true,
		What:    "context parallelism: KV caches split over devices",
		Next:    "trace a server with decode_context_parallel_size 1",
		Most:    atMost(1),
	},
	{
		Key:     "prefill_context_parallel_size",
		Refused: true,
		What:    "context parallelism: prompts split over devices",
		Next:    "trace a server with prefill_context_parallel_size 1",
		Most:    atMost(1),
	},
	{
		Key:     "kv_transfer_config",
		Refused: true,
		What:    "prefill apart from decode",
		Next: "trace a server without --kv-transfer-config; simulate takes it with --cluster FILE " +
			"of prefill and decode instances",
		Simulated: true,
		Given:     []string{"kv_transfer_config"},
	},
	{
		Key:     "kv_transfer_config",
		Refused: true,
		What:    "KV caches of other servers (prefill apart from decode, remote caches)",
		Next: "trace a server without --kv-transfer-config; OffloadingConnector and LMCache, CPU " +
			"tiers, are modelled, and simulate plays NixlConnector",
		Given: []string{"kv_transfer_config"},
	},
	{
		Key:     "ec_transfer_config",
		Refused: true,
		What:    "encoder outputs of other servers",
		Next:    "trace a server without --ec-transfer-config",
		Given:   []string{"ec_transfer_config"},
	},
	{
		Key:     "cpu_offload_gb",
		Refused: true,
		What:    "weights kept in CPU memory",
		Next:    "trace a server without --cpu-offload-gb",
		Most:    atMost(0),
	},
	{
		Key:     "offload_group_size",
		Refused: true,
		What:    "weights fetched from CPU memory by layer",
		Next:    "trace a server without --offload-group-size",
		Most:    atMost(0),
	},
	{
		Key:     "enable_dbo",
		Refused: true,
		What:    "dual-batch overlap",
		Next:    "trace a server without --enable-dbo",
		On:      true,
	},
	{
		Key:     "ubatch_size",
		Refused: true,
		What:    "steps cut into micro-batches",
		Next:    "trace a server without --ubatch-size",
		Most:    atMost(0),
	},
	{
		Key:     "runner",
		Refused: true,
		What:    "models that pool instead of generating",
		Next:    "trace a server that generates",
		Words:   []string{"pooling", "draft"},
	},
	{
		Key:     "task",
		Refused: true,
		What:    "models that pool instead of generating",
		Next:    "trace a server that generates",
		Words: []string{
			"embed", "embedding", "classify", "score", "reward", "pooling", "transcription",
		},
	},
	{
		Key:     "convert",
		Refused: true,
		What:    "models that pool instead of generating",
		Next:    "trace a server that generates",
		Words:   []string{"embed", "classify", "reward", "mm_encoder_only"},
	},
	{
		Key:     "mm_encoder_only",
		Refused: true,
		What:    "a server of encoders alone",
		Next:    "trace a server that generates",
		On:      true,
	},
	{
		Key:     "diffusion_config",
		Refused: true,
		What:    "models that generate by diffusion",
		Next:    "trace a server that generates token by token",
		Given:   []string{"diffusion_config"},
	},
	{
		Key:     "engram_config",
		Refused: true,
		What:    "tables of n-grams beside the layers (Engram)",
		Next:    "trace a server without --engram-config",
		Given:   []string{"engram_config"},
	},
	{
		Key:     "quantization_config",
		Refused: true,
		What:    "weights quantized at load as the command line states",
		Next:    "serve a checkpoint that holds its quantization, or give --quantization fp8",
		Given:   []string{"quantization_config"},
	},
	{
		Key:     "kv_sharing_fast_prefill",
		Refused: true,
		What:    "prompts that skip the layers without a cache of their own",
		Next:    "trace a server without --kv-sharing-fast-prefill",
		On:      true,
	},
	{
		Key:     "mamba_cache_mode",
		Refused: true,
		What:    "recurrent states kept for every block",
		Next:    "trace a server with mamba_cache_mode align or none",
		Words:   []string{"all"},
	},
	{
		Key:  "data_parallel_size",
		What: "data parallelism: everything here is one engine of them, and its own trace",
		Next: "give the trace of one engine, or one log of all, which is split (from vLLM 0.26 on " +
			"it holds passes with --api-server-count 1 alone); capacity is that of one, times " +
			"their number",
		Most: atMost(1),
	},
	{
		Key:  "enable_lora",
		What: "LoRA adapters: their part of a step goes into the other terms",
		Next: "expect other step times with another mix of adapters",
		On:   true,
	},
	{
		Key:   "lora_modules",
		What:  "LoRA adapters: their part of a step goes into the other terms",
		Next:  "expect other step times with another mix of adapters",
		Given: []string{"lora_modules"},
	},
	{
		Key:   "limit_mm_per_prompt",
		What:  "images, video and audio: the encoder's time is a part of the other terms",
		Next:  "use recordings of text requests alone",
		Given: []string{"limit_mm_per_prompt"},
	},
	{
		Key:   "scheduler_cls",
		What:  "a scheduler other than vLLM's own",
		Next:  "do not simulate it: the replay takes vLLM's own rules",
		Given: []string{"scheduler_cls"},
	},
	{
		Key:  "max_num_partial_prefills",
		What: "several prompts in chunks at a time",
		Next: "trace and simulate with one",
		Most: atMost(1),
	},
	{
		Key:  "num_scheduler_steps",
		What: "several steps to a schedule (V0 engine)",
		Next: "trace a V1 engine",
		Most: atMost(1),
	},
	{
		Key:  "hf_overrides",
		What: "a model that differs from its config.json",
		Next: "write the overridden values into the config.json beside run.yaml",
		Given: []string{
			"hf_overrides", "hf_config_path", "model_class_overrides", "rope_scaling",
			"qlora_adapter_name_or_path",
		},
	},
	{
		Key:  "disable_sliding_window",
		What: "windows that are switched off, with a max_model_len of one window",
		Next: "give max_model_len as the server printed it at start",
		On:   true,
	},
	{
		Key:   "kv_cache_dtype_skip_layers",
		What:  "caches of another type in some layers",
		Next:  "give kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)",
		Given: []string{"kv_cache_dtype_skip_layers"},
	},
	{
		Key:   "use_replayssm",
		What:  "recurrent states that are computed again from buffered tokens",
		Next:  "give kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)",
		Given: []string{"use_replayssm", "replayssm_buffer_len"},
	},
	{
		Key:  "mamba_block_size",
		What: "blocks of recurrent states of another size than those of attention",
		Next: "give kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)",
		Given: []string{
			"mamba_block_size", "enable_mamba_shared_prefix_checkpoint",
			"enable_mamba_fine_grained_prefix_cache",
		},
	},
	{
		Key: "prefix_match_unit",
		What: "cached prefixes that are matched or dropped by another rule than whole blocks, " +
			"least recently used first out",
		Next:  "expect other hits than those of a simulation",
		Given: []string{"prefix_match_unit", "prefix_cache_retention_interval", "swa_bounded_replay"},
	},
	{
		Key:  "max_num_scheduled_tokens",
		What: "a step's token budget below the buffers of max_num_batched_tokens",
		Next: "give it as max_num_batched_tokens too, and kv_blocks_total_gpu as the server " +
			"printed it",
		Given: []string{"max_num_scheduled_tokens"},
	},
	{
		Key:  "enable_elastic_ep",
		What: "ranks that come and go while the server runs",
		Next: "trace and simulate a fixed data_parallel_size",
		On:   true,
	},
	{
		Key: "nnodes",
		What: "several nodes: collectives go over the network, not over the datasheet's " +
			"interconnect",
		Next: "give hardware.interconnect_bandwidth_gb_s and interconnect_latency_us as measured " +
			"between them",
		Most: atMost(1),
	},
	{
		Key: "device_memory_utilization",
		What: "a share of the device's memory beside gpu_memory_utilization, which was not read " +
			"from vLLM's source",
		Next:  "give kv_blocks_total_gpu as the server printed it (num_gpu_blocks - 1)",
		Given: []string{"device_memory_utilization"},
	},
}
