package vllm

// This file lists the keys of run.yaml's section vllm, with the flags and log lines that state them
// too.

import (
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// Setting is one key of run.yaml with its names on vLLM's command line and in vLLM's log, and its
// legal values. The readers of run.yaml, command lines and logs use it, and so do init and the
// documentation.
type Setting struct {
	files.Key
	Flag     string   // of `vllm serve`; "": no flag sets it
	Log      []string // names in the configuration line that the engine logs at start
	Required string   // of a key that run.yaml must have: what to write there
	// Least and Most are the limits of a count for [Setting.Check]; Most 0: none. Most is far above any
	// server, and low enough that products of blocks, tokens and sequences stay exact.
	Least, Most int64
}

// Stated has the settings of a server as run.yaml states them: an [Engine], and settings that are
// merged into other fields once the whole description is read.
type Stated struct {
	Engine
	KVBlocksOverride   trace.Opt[int64] // with the null block, which [Engine.KVBlocksGPU] excludes
	Quantization       string
	MambaCacheDType    string // of the convolution's state of recurrent layers
	MambaSSMCacheDType string // of their recurrent state
	SpeculativeConfig  any    // a mapping, or its JSON
	SpeculativeModel   any    // a flag of releases before speculative_config
	SpeculativeTokens  any    // likewise
}

// Settings returns the keys of the section `vllm`, in the order in which they are written.
func (s *Stated) Settings() []Setting {
	key := func(name string, into any) files.Key { return files.Key{Name: name, Into: into} }
	count := func(name string, least int64, unit string, into any) files.Key {
		return files.Key{Name: name, Into: into, Unit: unit, Range: files.AtLeast(least)}
	}
	// The errors of required counts name the flag, so Setting.Check has their range.
	required := func(name, unit string, into *int64) files.Key { return files.Key{Name: name, Into: into, Unit: unit} }
	const atStart = "as the server printed it at start"
	return []Setting{
		{Key: key("version", &s.VLLMVersion), Required: "as `vllm --version` prints it"},
		{Key: count("max_model_len", 1, "tokens", &s.MaxModelLen), Flag: "max_model_len", Log: []string{"max_seq_len"}, Most: MaxTokens},
		{Key: required("max_num_seqs", "requests", &s.MaxNumSeqs), Flag: "max_num_seqs", Required: atStart, Least: 1, Most: maxSeqs},
		{Key: required("max_num_batched_tokens", "tokens", &s.MaxNumBatchedTokens), Flag: "max_num_batched_tokens", Required: atStart,
			Least: 1, Most: MaxTokens},
		{Key: key("enable_chunked_prefill", &s.ChunkedPrefill), Flag: "enable_chunked_prefill",
			Log: []string{"chunked_prefill_enabled", "enable_chunked_prefill"}},
		{Key: key("enable_prefix_caching", &s.PrefixCaching), Flag: "enable_prefix_caching", Log: []string{"enable_prefix_caching"}},
		{Key: count("block_size", 1, "tokens", &s.BlockSize), Flag: "block_size", Least: 1, Most: maxBlockSize},
		{Key: files.Key{Name: "gpu_memory_utilization", Into: &s.GPUMemoryUtilization, Unit: "share of device memory", Range: files.Within(0, 1)},
			Flag: "gpu_memory_utilization"},
		{Key: count("num_gpu_blocks_override", 1, "blocks", &s.KVBlocksOverride), Flag: "num_gpu_blocks_override"},
		{Key: count("kv_blocks_total_gpu", 1, "blocks", &s.KVBlocksGPU), Most: MaxKVBlocks},
		{Key: key("cpu_offloading", &s.CPUOffloading)},
		{Key: count("kv_blocks_total_cpu", 0, "blocks", &s.KVBlocksCPU), Most: MaxKVBlocks},
		{Key: key("async_scheduling", &s.AsyncScheduling), Flag: "async_scheduling"},
		{Key: files.Key{Name: "scheduling_policy", Into: &s.SchedulingPolicy, OneOf: []string{"fcfs", "priority"}}, Flag: "scheduling_policy"},
		{Key: count("long_prefill_token_threshold", 0, "tokens", &s.LongPrefillThreshold), Flag: "long_prefill_token_threshold", Most: MaxTokens},
		{Key: key("quantization", &s.Quantization), Flag: "quantization", Log: []string{"quantization"}},
		{Key: key("enable_expert_parallel", &s.ExpertParallel), Flag: "enable_expert_parallel"},
		{Key: key("speculative_config", &s.SpeculativeConfig), Flag: "speculative_config", Log: []string{"speculative_config"}},
		{Key: key("speculative_model", &s.SpeculativeModel), Flag: "speculative_model"},
		{Key: key("num_speculative_tokens", &s.SpeculativeTokens), Flag: "num_speculative_tokens"},
		{Key: key("speculative_decoding", &s.SpeculativeDecoding)},
		// Flags that Extra keeps too, and whose values are checked.
		{Key: key("mamba_cache_dtype", &s.MambaCacheDType)},
		{Key: key("mamba_ssm_cache_dtype", &s.MambaSSMCacheDType)},
	}
}

// Check returns an error for settings that no server runs with. Code: bad_knobs.
func (e *Engine) Check() error {
	for _, setting := range (&Stated{Engine: *e}).Settings() {
		if err := setting.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Check returns an error for a count outside Least and Most. Code: bad_knobs.
func (s *Setting) Check() error {
	var value int64
	switch v := s.Into.(type) {
	case *int64:
		value = *v
	case *trace.Opt[int64]:
		if !v.OK {
			return nil
		}
		value = v.V
	default:
		return nil
	}
	switch {
	case value < s.Least && s.Flag != "":
		flag := "--" + strings.ReplaceAll(s.Flag, "_", "-")
		return trace.Errorf(BadKnobs, "%s: got %d, want >= %d %s", s.Name, value, s.Least, s.Unit).
			WithHint(strings.TrimSpace("give " + flag + " " + s.Required))
	case value < s.Least:
		return trace.Errorf(BadKnobs, "%s: got %d, want >= %d %s", s.Name, value, s.Least, s.Unit)
	case s.Most > 0 && value > s.Most:
		return trace.Errorf(BadKnobs, "%s: got %d, want at most %d", s.Name, value, s.Most)
	}
	return nil
}
