package deploy

import (
	"encoding/json"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// FromCommandLine reads the engine's knobs from the command that started the
// server: `vllm serve MODEL --flag ...`, `python -m
// vllm.entrypoints.openai.api_server ...`, or a container command whose image
// tag names the version. OTEL_SPAN_EVENT_COUNT_LIMIT=N in front, or handed to
// the container, is read too. Secrets (--api-key, --hf-token) are left out. Codes:
// bad_command_line, unknown_flag.
func FromCommandLine(line string) (*Draft, error) {
	words, err := shellWords(line)
	if err != nil {
		return nil, err
	}
	d := NewDraft()
	args, err := d.serveArgs(words)
	if err != nil {
		return nil, err
	}
	version, _ := d.Get("vllm.version").(string)
	for len(args) > 0 {
		if args, err = d.argument(args, version); err != nil {
			return nil, err
		}
	}
	return d, nil
}

var imageTag = regexp.MustCompile(`^[\w./-]*vllm[\w./-]*:v?(\d+\.\d+[\w.]*)$`)

// serveArgs returns the arguments of the server proper, and takes the version
// from an image tag on the way.
func (d *Draft) serveArgs(words []string) ([]string, error) {
	isImage := false
	for i, w := range words {
		if limit, ok := strings.CutPrefix(w, "OTEL_SPAN_EVENT_COUNT_LIMIT="); ok {
			if n, isInt := humanInt(limit); isInt {
				d.Set("tracing.otel_span_event_count_limit", n)
			}
		}
		if m := imageTag.FindStringSubmatch(w); m != nil {
			d.Set("vllm.version", m[1])
			isImage = true
			if i+1 < len(words) && strings.HasPrefix(words[i+1], "-") {
				return words[i+1:], nil
			}
		}
		switch {
		case w == "serve" && i > 0 && (path.Base(words[i-1]) == "vllm" || isImage):
			return words[i+1:], nil
		case w == "vllm.entrypoints.openai.api_server", path.Base(w) == "api_server.py":
			return words[i+1:], nil
		}
	}
	return nil, trace.Errorf(badCommandLine, "command line: got %q, want one that runs `vllm serve`", strings.Join(words, " ")).
		WithHint("blis-train init --from-cmdline 'vllm serve MODEL --max-num-seqs 256 ...'")
}

// shortFlags are the aliases that vLLM's parser knows.
var shortFlags = map[string]string{"-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-dp": "data_parallel_size",
	"-q": "quantization", "-O": "compilation_config", "-n": "nnodes", "-r": "node_rank", "-ep": "enable_expert_parallel",
	"-sc": "speculative_config", "-cc": "compilation_config", "-ac": "attention_config", "-dcp": "decode_context_parallel_size",
	"-dpl": "data_parallel_size_local", "-dpa": "data_parallel_address", "-dpp": "data_parallel_rpc_port",
	"-dpb": "data_parallel_backend", "-dpn": "data_parallel_rank", "-dpr": "data_parallel_start_rank",
	"-dph": "data_parallel_hybrid_lb", "-dpe": "data_parallel_external_lb"}

// ownFlags are flags with a field of their own: where they stand in run.yaml.
var ownFlags = map[string]string{
	"model": "model.id", "dtype": "model.dtype", "kv_cache_dtype": "model.kv_cache_dtype",
	"tensor_parallel_size": "tensor_parallel_size", "pipeline_parallel_size": "pipeline_parallel_size",
	"data_parallel_size": "data_parallel_size",
	"max_model_len":      "", "max_num_seqs": "", "max_num_batched_tokens": "", "enable_chunked_prefill": "", "enable_prefix_caching": "",
	"block_size": "", "gpu_memory_utilization": "", "num_gpu_blocks_override": "", "async_scheduling": "", "scheduling_policy": "",
	"long_prefill_token_threshold": "", "quantization": "", "enable_expert_parallel": "", "speculative_config": "", "speculative_model": "",
	"num_speculative_tokens":      "",
	"journey_tracing_sample_rate": "tracing.journey_tracing_sample_rate", "step_tracing_sample_rate": "tracing.step_tracing_sample_rate",
	"step_tracing_rich_subsample_rate": "tracing.step_tracing_rich_subsample_rate",
	"step_tracing_closure_interval":    "tracing.step_tracing_closure_interval",
}

// secrets never enter run.yaml.
var secrets = []string{"api_key", "hf_token"}

// argument reads one flag with its value, or the model tag, and returns the rest.
func (d *Draft) argument(args []string, version string) ([]string, error) {
	word, rest := args[0], args[1:]
	if !strings.HasPrefix(word, "-") {
		if d.Get("model.id") != nil {
			return nil, trace.Errorf(badCommandLine, "command line: got %q, want a flag", word)
		}
		d.Set("model.id", word)
		return rest, nil
	}
	name, value, hasValue := strings.Cut(word, "=")
	key := flagKey(name)
	negated := false
	if positive, ok := strings.CutPrefix(key, "no_"); ok && !knownFlag(key, version) {
		key, negated = positive, true
	}
	if !knownFlag(key, version) {
		e := trace.Errorf(unknownFlag, "command line: got flag %q, want a flag of `vllm serve`", name).
			WithHint("leave it out if it is new: what decides step times has a key in docs/run-yaml.md")
		if near := nearest(key, slices.Concat(ServeFlags(version), slices.Sorted(maps.Keys(ownFlags)))); near != "" {
			e.Hint = "did you mean --" + strings.ReplaceAll(near, "_", "-") + "?"
		}
		return nil, e
	}
	if !hasValue && !negated && len(rest) > 0 && !isSwitch(key) && !looksLikeFlag(rest[0]) {
		value, hasValue, rest = rest[0], true, rest[1:]
		for len(rest) > 0 && isList(key) && !looksLikeFlag(rest[0]) {
			value, rest = value+" "+rest[0], rest[1:]
		}
	}
	if _, isInt := humanInt(value); wholeFlags[key] && !isInt {
		return nil, trace.Errorf(badCommandLine, "command line: %s: got %q, want a whole number", name, value)
	}
	d.flag(key, value, hasValue, negated)
	return rest, nil
}

// wholeFlags take a whole number and nothing else; max_model_len may be "auto".
var wholeFlags = map[string]bool{"max_num_seqs": true, "max_num_batched_tokens": true, "block_size": true, "num_gpu_blocks_override": true,
	"tensor_parallel_size": true, "pipeline_parallel_size": true, "data_parallel_size": true, "step_tracing_closure_interval": true}

// flagKey is a flag's name in run.yaml's spelling.
func flagKey(flag string) string {
	if long, ok := shortFlags[flag]; ok {
		return long
	}
	return strings.ReplaceAll(strings.TrimLeft(flag, "-"), "-", "_")
}

func knownFlag(key, version string) bool {
	_, own := ownFlags[key]
	return own || isServeFlag(key, version)
}

// looksLikeFlag tells a flag from a negative number.
func looksLikeFlag(word string) bool {
	if !strings.HasPrefix(word, "-") || word == "-" {
		return false
	}
	_, err := strconv.ParseFloat(word, 64)
	return err != nil
}

// isSwitch reports whether a flag takes no value.
func isSwitch(key string) bool {
	if key == "async_scheduling" || key == "enforce_eager" || key == "headless" || key == "tokens_only" || key == "calculate_kv_scales" ||
		key == "eplb_log_balancedness" || key == "aggregate_engine_logging" || key == "log_error_stack" || key == "kv_cache_metrics" {
		return true
	}
	for _, prefix := range []string{"enable_", "disable_", "trust_", "skip_", "use_", "return_", "exclude_tools", "fully_", "interleave_",
		"allow_credentials",
		"data_parallel_hybrid", "data_parallel_external", "kv_sharing", "ray_workers", "fail_on", "multi_step", "step_tracing_enabled"} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

func isList(key string) bool {
	return slices.Contains([]string{"served_model_name", "lora_modules", "prompt_adapters", "cudagraph_capture_sizes", "cuda_graph_sizes",
		"middleware", "logits_processors"}, key)
}

// flag stores one flag.
func (d *Draft) flag(key, value string, hasValue, negated bool) {
	if isSecret(key) {
		return
	}
	target, own := ownFlags[key]
	if target == "" || !own {
		target = "vllm." + key
	}
	var v any = !negated
	if hasValue {
		v = flagValue(key, value)
	}
	d.Set(target, v)
	d.offloading(key, v)
}

// offloading notes a CPU tier that a connector flag turns on.
func (d *Draft) offloading(key string, v any) {
	switch key {
	case "kv_offloading_size":
		d.SetNoted("vllm.cpu_offloading", true, "from --kv-offloading-size; give kv_blocks_total_cpu")
	case "kv_transfer_config":
		config, _ := v.(map[string]any)
		if config["kv_connector"] != "OffloadingConnector" {
			return
		}
		d.SetNoted("vllm.cpu_offloading", true, "from --kv-transfer-config")
		extra, _ := config["kv_connector_extra_config"].(map[string]any)
		switch blocks := extra["num_cpu_blocks"].(type) {
		case float64:
			d.Set("vllm.kv_blocks_total_cpu", int64(blocks))
		case int64:
			d.Set("vllm.kv_blocks_total_cpu", blocks)
		}
	}
}

// flagValue reads a value as vLLM's parser would: integers with k, K, m, M, g,
// G, t, T, floats, booleans, JSON objects; everything else is text. Ids,
// versions and names stay text.
func flagValue(key, text string) any {
	if slices.Contains([]string{"model", "served_model_name", "tokenizer", "revision", "dtype", "kv_cache_dtype", "host"}, key) {
		return text
	}
	if n, ok := humanInt(text); ok {
		return n
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f
	}
	switch strings.ToLower(text) {
	case "true":
		return true
	case "false":
		return false
	}
	if strings.HasPrefix(text, "{") || strings.HasPrefix(text, "[") {
		var v any
		if json.Unmarshal([]byte(text), &v) == nil {
			return v
		}
	}
	return text
}

// humanInt reads "8192", "8k" (8000), "8K" (8192), "25.6k" (25600).
func humanInt(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	if len(text) < 2 {
		return 0, false
	}
	number, suffix := text[:len(text)-1], text[len(text)-1:]
	if i := strings.Index("kmgt", suffix); i >= 0 {
		f, err := strconv.ParseFloat(number, 64)
		scaled := f * math.Pow(1000, float64(i+1))
		return int64(math.Round(scaled)), err == nil && scaled < 1<<62
	}
	if i := strings.Index("KMGT", suffix); i >= 0 {
		n, err := strconv.ParseInt(number, 10, 32)
		return n << (10 * (i + 1)), err == nil
	}
	return 0, false
}
