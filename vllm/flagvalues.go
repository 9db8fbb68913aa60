package vllm

// This file has the values of single flags with which vLLM does not start. A rule is a function that
// returns the reason, "" for a legal value.

import (
	"fmt"
	"slices"
	"strings"
)

// RefusedValue returns why vLLM does not start with a value of a flag, named as in run.yaml; "" where
// it does, or where that depends on more than the value. The value is one of FlagValue, of a list of
// words, or of YAML.
func RefusedValue(key string, value any) string {
	if value == nil {
		return ""
	}
	if rule := flagRules[key]; rule != nil {
		return rule(value)
	}
	if IsSwitch(key) {
		if _, isBool := value.(bool); !isBool {
			return fmt.Sprintf("got %v, want true or false", value)
		}
	}
	return ""
}

// flagRules are the checks of single values, by flag. Each cites where vLLM makes it.
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
	return object(map[string]func(any) string{
		"level": level, "mode": level, "cudagraph_mode": mode,
		"cudagraph_capture_sizes":    captureSizes,
		"max_cudagraph_capture_size": integerFrom(0),
	})(value)
}

// modelLength is the rule of the longest sequence, --max-model-len.
func modelLength(value any) string {
	if text, ok := value.(string); ok && text == "auto" {
		return ""
	}
	if n, ok := asInteger(value); !ok || n < 1 && n != -1 {
		return fmt.Sprintf("got %v, want an integer of at least 1, or auto", value)
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

// object checks that a value is a JSON object, and the members that have a rule. A nil member, and
// members without a rule, are vLLM's matter.
func object(rules map[string]func(any) string) func(any) string {
	return func(value any) string {
		members, ok := value.(map[string]any)
		if !ok {
			return fmt.Sprintf("got %v, want a JSON object", value)
		}
		for key, rule := range rules {
			if v := members[key]; v != nil {
				if why := rule(v); why != "" {
					return key + ": " + why
				}
			}
		}
		return ""
	}
}
