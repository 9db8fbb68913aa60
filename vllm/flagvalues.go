package vllm

// This file has rules for the value of one flag: whether vLLM starts with it. A rule is a function that returns the
// reason why not, "" for a legal value.

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
)

// RefusedValue returns why vLLM does not start with a value of a flag, named as in run.yaml; "" where
// it does, or where that depends on more than the value. The value comes from FlagValue, from a list of
// words, or from YAML.
func RefusedValue(key string, value any) string {
	if value == nil {
		return ""
	}
	if rule := flagRules[key]; rule != nil {
		return rule(value)
	}
	switch {
	case slices.Contains(integerFlags, key):
		return integerFrom(math.MinInt64)(value)
	case slices.Contains(naturalFlags, key):
		return integerFrom(0)(value)
	case slices.Contains(portFlags, key):
		return port(value)
	case slices.Contains(amountFlags, key):
		return numberFrom(0)(value)
	case wordsOfFlags[key] != nil:
		return oneOfWords(wordsOfFlags[key], value)
	case strings.HasSuffix(key, "_config") && key != "logging_config":
		return objectOrName(value)
	}
	if IsSwitch(key) {
		if _, isBool := value.(bool); !isBool {
			return fmt.Sprintf("got %v, want true or false", value)
		}
	}
	return ""
}

// flagRules are the checks of single values, by flag. Each group cites where vLLM makes them (below vllm/).
var flagRules = map[string]func(any) string{
	// v1/attention/backends: get_supported_kernel_block_sizes(); 1 and 8 are of MLA and of CPUs.
	"block_size":       blockSize,
	"mamba_block_size": integerFrom(1),
	// config/cache.py: CacheConfig
	"kv_cache_memory_bytes":   integerFrom(0),
	"num_gpu_blocks_override": integerFrom(1),
	"cpu_offload_gb":          numberFrom(0),
	"swap_space":              numberFrom(0),
	"kv_offloading_size":      numberFrom(0),
	// config/compilation.py: CompilationConfig
	"cudagraph_capture_sizes":    captureSizes,
	"cuda_graph_sizes":           captureSizes,
	"max_cudagraph_capture_size": integerFrom(0),
	"max_seq_len_to_capture":     integerFrom(1),
	"compilation_config":         compilation,
	// config/scheduler.py: SchedulerConfig
	"max_num_partial_prefills":  integerFrom(1),
	"max_long_partial_prefills": integerFrom(1),
	"num_scheduler_steps":       integerFrom(1),
	"stream_interval":           integerFrom(1),
	// config/lora.py: LoRAConfig
	"max_loras":     integerFrom(1),
	"max_lora_rank": oneOfIntegers(1, 8, 16, 32, 64, 128, 256, 320, 512),
	"max_cpu_loras": integerFrom(1),
	// config/model.py: ModelConfig; arg_utils.py: human_readable_int_or_auto()
	"max_model_len": modelLength,
	"seed":          integerFrom(0),
	"max_logprobs":  integerFrom(-1),
	// config/parallel.py: ParallelConfig
	"data_parallel_size_local":      integerFrom(0),
	"data_parallel_start_rank":      integerFrom(0),
	"prefill_context_parallel_size": integerFrom(1),
	"decode_context_parallel_size":  integerFrom(1),
	"api_server_count":              integerFrom(0),
	"distributed_executor_backend":  executor,
	// values that are JSON objects
	"hf_overrides":              object(nil),
	"speculative_config":        object(nil),
	"kv_transfer_config":        object(map[string]func(any) string{"kv_connector": text}),
	"kv_events_config":          object(nil),
	"rope_scaling":              object(nil),
	"pooler_config":             object(nil),
	"override_pooler_config":    object(nil),
	"mm_processor_kwargs":       object(nil),
	"attention_config":          object(nil),
	"additional_config":         object(nil),
	"structured_outputs_config": object(nil),
}

// Flags whose values are only checked by their type, because their limits differ by release.
var (
	integerFlags = []string{
		"dp_supervisor_probe_failure_threshold", "h11_max_header_count", "h11_max_incomplete_event_size", "mamba_cache_philox_rounds",
		"max_lora_cls_labels", "prefill_schedule_interval", "renderer_num_workers", "replayssm_buffer_len", "safetensors_prefetch_block_size",
		"safetensors_prefetch_num_threads", "shutdown_timeout", "ssl_cert_reqs",
	}
	naturalFlags = []string{ // integers of at least 0
		"cp_kv_cache_interleave_size", "data_parallel_rank", "dbo_decode_token_threshold", "dbo_prefill_token_threshold",
		"dcp_kv_cache_interleave_size", "dp_sync_interval", "elastic_ep_max_dp_size", "eplb_step_interval", "eplb_window_size",
		"lora_extra_vocab_size", "max_log_len", "max_num_active_seqs", "max_num_scheduled_tokens", "max_parallel_loading_workers", "nnodes",
		"node_rank", "num_lookahead_slots", "num_redundant_experts", "offload_group_size", "offload_num_in_group", "offload_prefetch_step",
		"tokenizer_pool_size", "ubatch_size",
	}
	portFlags   = []string{"port", "grpc_port", "master_port", "data_parallel_rpc_port", "data_parallel_supervisor_port"}
	amountFlags = []string{ // numbers of at least 0
		"device_memory_utilization", "kv_cache_metrics_sample", "mm_ipc_gpu_memory_gb", "mm_processor_cache_gb",
		"mm_shm_cache_max_object_size_mb", "rope_theta", "scheduler_delay_factor", "video_pruning_rate",
	}
)

// wordsOfFlags are the values of flags that take one of a few words.
var wordsOfFlags = map[string][]string{
	"chat_template_content_format": {"auto", "string", "openai"},
	"data_parallel_backend":        {"mp", "ray"},
	"expert_placement_strategy":    {"linear", "round_robin"},
	"logprobs_mode":                {"raw_logits", "raw_logprobs", "processed_logits", "processed_logprobs"},
	"mamba_cache_mode":             {"all", "align", "none"},
	"mm_encoder_tp_mode":           {"weights", "data"},
	"mm_processor_cache_type":      {"lru", "shm"},
	"model_impl":                   {"auto", "vllm", "transformers", "terratorch"},
	"preemption_mode":              {"recompute", "swap"},
	"runner":                       {"auto", "generate", "pooling", "draft"},
	"uvicorn_log_level":            {"debug", "info", "warning", "error", "critical", "trace"},
}

// asInteger returns a value as an integer; JSON and YAML give other types than FlagValue.
func asInteger(value any) (int64, bool) {
	switch n := value.(type) {
	case int64:
		return n, true
	case int:
		return int64(n), true
	case float64:
		return int64(n), n == float64(int64(n))
	}
	return 0, false
}

// integerFrom returns the rule of an integer that is at least least.
func integerFrom(least int64) func(any) string {
	return func(value any) string {
		if n, ok := asInteger(value); !ok || n < least {
			return fmt.Sprintf("got %v, want an integer of at least %d", value, least)
		}
		return ""
	}
}

// numberFrom returns the rule of a number that is at least least.
func numberFrom(least float64) func(any) string {
	return func(value any) string {
		x, ok := value.(float64)
		if n, isInteger := asInteger(value); isInteger {
			x, ok = float64(n), true
		}
		if !ok || x < least {
			return fmt.Sprintf("got %v, want a number of at least %v", value, least)
		}
		return ""
	}
}

// port checks the number of a TCP port.
func port(value any) string {
	if n, ok := asInteger(value); !ok || n < 0 || n > math.MaxUint16 {
		return fmt.Sprintf("got %v, want a port, 0 to %d", value, math.MaxUint16)
	}
	return ""
}

// oneOfWords checks a flag that takes one of a few words.
func oneOfWords(legal []string, value any) string {
	if word, ok := value.(string); !ok || !slices.Contains(legal, word) {
		return fmt.Sprintf("got %v, want %s", value, strings.Join(legal, ", "))
	}
	return ""
}

// objectOrName checks a flag whose value is a JSON object. A log prints it as a Python object with its class.
func objectOrName(value any) string {
	if text, ok := value.(string); ok && strings.Contains(text, "(") {
		return ""
	}
	return object(nil)(value)
}

// oneOfIntegers returns the rule of a flag whose value must be one of the legal integers.
func oneOfIntegers(legal ...int64) func(any) string {
	return func(value any) string {
		if n, ok := asInteger(value); !ok || !slices.Contains(legal, n) {
			return fmt.Sprintf("got %v, want one of %v", value, legal)
		}
		return ""
	}
}

// blockSize is the rule of the tokens in a KV block.
func blockSize(value any) string {
	n, ok := asInteger(value)
	if !ok || n < 1 || n != 1 && n != 8 && n%16 != 0 {
		return fmt.Sprintf("got %v tokens, want 1, 8 or a multiple of 16, which attention kernels have", value)
	}
	return ""
}

// captureSizes checks batch sizes of CUDA graphs, of which each captures at least one token.
func captureSizes(value any) string {
	list, isList := value.([]any)
	words, isText := value.(string)
	switch {
	case isText: // the words of a command line
		for _, word := range strings.Fields(words) {
			n, ok := ParseInt(word)
			if !ok {
				return fmt.Sprintf("got the size %q, want integers of at least 1", word)
			}
			list = append(list, n)
		}
	case !isList:
		list = []any{value}
	}
	for _, v := range list {
		if n, ok := asInteger(v); !ok || n < 1 {
			return fmt.Sprintf("got the size %v, want integers of at least 1", v)
		}
	}
	return ""
}

// compilationKeys are the fields of vllm/config/compilation.py: CompilationConfig, of all releases that were read. It
// allows no other key.
var compilationKeys = []string{
	"backend", "bs_to_padded_graph_size", "cache_dir", "compilation_time", "compile_cache_save_format", "compile_mm_encoder",
	"compile_ranges_endpoints", "compile_ranges_split_points", "compile_sizes", "cudagraph_capture_sizes", "cudagraph_copy_inputs",
	"cudagraph_mm_encoder", "cudagraph_mode", "cudagraph_num_of_warmups", "cudagraph_specialize_lora", "custom_ops", "debug_dump_path",
	"disabled_custom_ops", "dynamic_shapes_config", "enabled_custom_ops", "fast_moe_cold_start", "full_cuda_graph",
	"inductor_compile_config", "inductor_passes", "level", "local_cache_dir", "max_capture_size", "max_cudagraph_capture_size", "mode",
	"pass_config", "splitting_ops", "static_all_moe_layers", "static_forward_context", "traced_files", "use_cudagraph", "use_inductor",
	"use_inductor_graph_partition",
}

// UnknownMembers returns the keys of a flag's JSON object that none of the vLLM releases that we compared has; a
// newer one may.
func UnknownMembers(key string, value any) (unknown []string) {
	members, ok := value.(map[string]any)
	if key != "compilation_config" || !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.Contains(compilationKeys, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// compilation checks the value of --compilation-config: a level, or an object.
func compilation(value any) string {
	if n, ok := asInteger(value); ok {
		if n < 0 || n > 3 {
			return fmt.Sprintf("got the level %d, want 0 to 3", n)
		}
		return ""
	}
	level := func(value any) string {
		if _, isName := value.(string); isName {
			return ""
		}
		if n, ok := asInteger(value); !ok || n < 0 || n > 3 {
			return fmt.Sprintf("got %v, want 0 to 3", value)
		}
		return ""
	}
	mode := func(value any) string {
		modes := []string{"NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE"}
		if name, ok := value.(string); !ok || !slices.Contains(modes, strings.ToUpper(name)) {
			return fmt.Sprintf("got %v, want %s", value, strings.Join(modes, ", "))
		}
		return ""
	}
	if members, ok := value.(map[string]any); ok {
		for _, key := range slices.Sorted(maps.Keys(members)) {
			if near := files.Nearest(key, compilationKeys); near != "" && !slices.Contains(compilationKeys, key) {
				return fmt.Sprintf("%s: got no key of vLLM's CompilationConfig, did you mean %s?", key, near)
			}
		}
	}
	return object(map[string]func(any) string{
		"level": level, "mode": level, "cudagraph_mode": mode,
		"cudagraph_capture_sizes":    captureSizes,
		"max_cudagraph_capture_size": integerFrom(0),
	})(value)
}

// modelLength is the rule of the longest sequence, --max-model-len; -1 and auto are the longest that fits.
func modelLength(value any) string {
	if text, ok := value.(string); ok && text == "auto" {
		return ""
	}
	if n, ok := asInteger(value); !ok || n < 1 && n != -1 {
		return fmt.Sprintf("got %v, want an integer of at least 1, -1 or auto", value)
	}
	return ""
}

// executor is the rule of --distributed-executor-backend.
func executor(value any) string {
	name, ok := value.(string)
	if !ok || !slices.Contains([]string{"ray", "mp", "uni", "external_launcher"}, name) && !strings.Contains(name, ".") {
		return fmt.Sprintf("got %v, want ray, mp, uni, external_launcher or the path of a class", value)
	}
	return ""
}

// text is the rule of a flag whose value is a text.
func text(value any) string {
	if _, ok := value.(string); !ok {
		return fmt.Sprintf("got %v, want a text", value)
	}
	return ""
}

// object returns the rule of a JSON object whose members have rules of their own, checked by name. A nil member, and
// members without a rule, are not checked.
func object(rules map[string]func(any) string) func(any) string {
	return func(value any) string {
		members, ok := value.(map[string]any)
		if !ok {
			return fmt.Sprintf("got %v, want a JSON object", value)
		}
		for _, key := range slices.Sorted(maps.Keys(rules)) {
			if v := members[key]; v != nil {
				if why := rules[key](v); why != "" {
					return key + ": " + why
				}
			}
		}
		return ""
	}
}
