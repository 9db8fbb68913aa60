package vllm

import "testing"

// TestRefusedValues: values with which vLLM does not start are refused, and those with which it does are not.
func TestRefusedValues(t *testing.T) {
	for _, c := range []struct {
		key, refused, legal string
	}{
		{"block_size", "7", "16"}, {"block_size", "17", "528"}, {"block_size", "0", "1"}, {"block_size", "-16", "64"},
		{"kv_cache_memory_bytes", "-5", "8g"}, {"num_gpu_blocks_override", "0", "100"}, {"cpu_offload_gb", "-1", "0"},
		{"cpu_offload_gb", "x", "2.5"}, {"swap_space", "-1", "4"}, {"cudagraph_capture_sizes", "0", "1"},
		{"cudagraph_capture_sizes", "4 2 -1", "4 2 1"}, {"cudagraph_capture_sizes", "4 x", "8"}, {"cudagraph_capture_sizes", "[8,0]", "[1,2]"},
		{"max_cudagraph_capture_size", "-1", "512"}, {"compilation_config", "7", "3"}, {"compilation_config", `{"level":9}`, `{"level":3}`},
		{"compilation_config", `{"cudagraph_capture_sizes":[0]}`, `{"cudagraph_capture_sizes":[1,2]}`},
		{"compilation_config", `{"cudagraph_mode":"HALF"}`, `{"cudagraph_mode":"PIECEWISE"}`}, {"compilation_config", "{", `{"mode":"VLLM_COMPILE"}`},
		{"max_num_partial_prefills", "0", "1"}, {"max_loras", "0", "4"}, {"max_lora_rank", "17", "16"}, {"max_model_len", "-7", "-1"},
		{"max_model_len", "0", "auto"}, {"seed", "x", "0"}, {"seed", "-1", "1"}, {"distributed_executor_backend", "foo", "mp"},
		{"hf_overrides", "{", `{"num_hidden_layers":2}`}, {"hf_overrides", "7", "{}"}, {"kv_transfer_config", `{"kv_connector":5}`, `{"kv_connector":"LMCacheConnectorV1"}`},
		{"enforce_eager", "maybe", "true"}, {"decode_context_parallel_size", "0", "2"}, {"stream_interval", "0", "1"},
	} {
		if RefusedValue(c.key, FlagValue(c.key, c.refused)) == "" {
			t.Errorf("%s: %s is accepted", c.key, c.refused)
		}
		if why := RefusedValue(c.key, FlagValue(c.key, c.legal)); why != "" {
			t.Errorf("%s: %s: %s", c.key, c.legal, why)
		}
	}
}

// TestValuesByType: integers, natural numbers, ports, amounts, words, switches and objects just inside their limits and just outside.
func TestValuesByType(t *testing.T) {
	for _, c := range []struct {
		key     string
		value   any
		refused bool
	}{
		{"shutdown_timeout", int64(-5), false}, {"shutdown_timeout", 1.5, true}, {"shutdown_timeout", "x", true}, {"nnodes", int64(0), false}, {"nnodes", int64(-1), true}, {"nnodes", 2, false}, {"nnodes", 2.0, false},
		{"port", int64(0), false}, {"port", int64(65535), false}, {"port", int64(65536), true}, {"port", int64(-1), true}, {"port", "http", true},
		{"rope_theta", 0.0, false}, {"rope_theta", -0.1, true}, {"rope_theta", int64(3), false}, {"rope_theta", "x", true},
		{"runner", "pooling", false}, {"runner", "x", true}, {"runner", int64(1), true}, {"runner", nil, false},
		{"enforce_eager", true, false}, {"enforce_eager", "yes", true},
		{"profiler_config", map[string]any{}, false}, {"profiler_config", "ProfilerConfig(a=1)", false}, {"profiler_config", "x", true}, {"logging_config", "x", false},
		{"compilation_config", int64(3), false}, {"compilation_config", int64(4), true}, {"compilation_config", int64(-1), true}, {"compilation_config", int64(0), false},
		{"compilation_config", map[string]any{"level": "FULL"}, false}, {"compilation_config", map[string]any{"mode": int64(4)}, true}, {"compilation_config", map[string]any{"mode": int64(3)}, false}, {"compilation_config", map[string]any{"mode": 1.5}, true},
		{"compilation_config", map[string]any{"cudagraph_mode": "full"}, false}, {"compilation_config", map[string]any{"cudagraph_mod": "full"}, true}, {"compilation_config", map[string]any{"quite_another_key": 1}, false}, {"compilation_config", map[string]any{"level": nil}, false},
		{"max_model_len", "auto", false}, {"max_model_len", int64(-1), false}, {"max_model_len", int64(-2), true}, {"max_model_len", int64(1), false}, {"max_model_len", "x", true},
		{"distributed_executor_backend", "my.Executor", false}, {"distributed_executor_backend", "uni", false}, {"distributed_executor_backend", int64(1), true},
		{"block_size", int64(8), false}, {"block_size", int64(4), true}, {"cudagraph_capture_sizes", int64(0), true}, {"cudagraph_capture_sizes", []any{int64(1), 2.0}, false}, {"cudagraph_capture_sizes", []any{1.5}, true},
		{"kv_transfer_config", map[string]any{"kv_connector": "x"}, false}, {"kv_transfer_config", map[string]any{"kv_connector": int64(1)}, true}, {"max_lora_rank", int64(512), false}, {"max_lora_rank", int64(2), true},
		{"max_logprobs", int64(-1), false}, {"max_logprobs", int64(-2), true}, {"a_flag_of_nobody", "x", false},
	} {
		if why := RefusedValue(c.key, c.value); (why != "") != c.refused {
			t.Errorf("%s %v: got %q", c.key, c.value, why)
		}
	}
	if got := UnknownMembers("compilation_config", map[string]any{"mode": 1, "zz": 2, "aa": 3}); len(got) != 2 || got[0] != "aa" || got[1] != "zz" {
		t.Errorf("got %q", got)
	}
	if UnknownMembers("other", map[string]any{"zz": 2}) != nil || UnknownMembers("compilation_config", "x") != nil {
		t.Error("another flag has unknown members")
	}
	for v, want := range map[any]int64{int64(7): 7, 8: 8, 9.0: 9} {
		if got, ok := asInteger(v); !ok || got != want {
			t.Errorf("%v: got %d, %v", v, got, ok)
		}
	}
	e := &Engine{VLLMVersion: "0.33.0"}
	if !e.FusesQuantization() {
		t.Error("the newest release does not fuse quantization")
	}
	for _, extra := range []map[string]any{{"enforce_eager": true}, {"compilation_config": map[string]any{"custom_ops": []any{"+quant_fp8"}}}, {"compilation_config": map[string]any{"custom_ops": []any{"all"}}}, {"compilation_config": map[string]any{"mode": int64(2)}}} {
		own := &Engine{VLLMVersion: "0.33.0", Extra: extra}
		if own.FusesQuantization() {
			t.Errorf("%v: fuses quantization", extra)
		}
	}
	e.VLLMVersion = "0.6.0"
	if e.FusesQuantization() {
		t.Error("an old release fuses quantization")
	}
}
