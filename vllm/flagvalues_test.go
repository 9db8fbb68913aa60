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
