// Package vllm describes vLLM's settings: the flags of `vllm serve` by release, their defaults and
// bounds, and how the scheduler of a release uses them.
//
// [Engine] has the settings of one server. Its methods return what depends on the release:
// [Engine.Rules] (scheduler rules), [Engine.IsAsync], [Engine.GraphSizes], [Engine.Speculation],
// [Engine.Offload]. [Flags] lists the flags that a release accepts, [Reached] the settings whose
// effect on a step is not modelled.
package vllm

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// Engine has the settings of one server under vLLM's own names (spec#engine-knobs). The JSON keys
// are those of run.yaml.
type Engine struct {
	VLLMVersion          string           `json:"version"`       // as `vllm --version` prints it; it need not be a release
	MaxModelLen          trace.Opt[int64] `json:"max_model_len"` // tokens of a sequence, prompt and output
	MaxNumSeqs           int64            `json:"max_num_seqs"`
	MaxNumBatchedTokens  int64            `json:"max_num_batched_tokens"`
	ChunkedPrefill       bool             `json:"enable_chunked_prefill"`
	PrefixCaching        bool             `json:"enable_prefix_caching"`
	BlockSize            int64            `json:"block_size"`                     // tokens
	GPUMemoryUtilization float64          `json:"gpu_memory_utilization"`         // 0..1
	KVBlocksGPU          trace.Opt[int64] `json:"kv_blocks_total_gpu"`            // without the null block
	CPUOffloading        bool             `json:"cpu_offloading"`                 // a tier of KV blocks in CPU memory
	KVBlocksCPU          int64            `json:"kv_blocks_total_cpu"`            // its size
	AsyncScheduling      trace.Opt[bool]  `json:"async_scheduling"`               // unknown: by version (spec#async-scheduling)
	SchedulingPolicy     string           `json:"scheduling_policy"`              // fcfs | priority
	LongPrefillThreshold int64            `json:"long_prefill_token_threshold"`   // 0 = off
	SpeculativeDecoding  bool             `json:"speculative_decoding,omitempty"` // speculative_config or a flag like it is given
	ExpertParallel       bool             `json:"enable_expert_parallel,omitempty"`
	Extra                Values           `json:"extra,omitempty"` // other flags of `vllm serve`, by name
}

// Values are settings of any type, as YAML or JSON has them. Whole numbers stay integers when they
// are read back from JSON, because a time stamp in nanoseconds has more digits than a float64.
type Values map[string]any

// UnmarshalJSON reads an object.
func (v *Values) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return err
	}
	for key, value := range all {
		all[key] = withIntegers(value)
	}
	*v = all
	return nil
}

// withIntegers returns a JSON value with its numbers replaced by the types to which YAML decodes
// them.
func withIntegers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = withIntegers(value)
		}
	case []any:
		for i, value := range v {
			v[i] = withIntegers(value)
		}
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return v
}

// vLLM's own defaults (V1 engine, 0.8 and later) for what run.yaml does not state.
// max_num_batched_tokens and max_num_seqs have none here, because vLLM's depend on the GPU and the
// entry point: init fills them in and notes that it did.
const (
	DefaultBlockSize            = 16  // tokens; CUDA
	CPUBlockSize                = 128 // tokens; vLLM's CPU back end
	DefaultGPUMemoryUtilization = 0.9 // share of device memory, before memoryShareSince
	DefaultSchedulingPolicy     = "fcfs"
	DefaultChunkedPrefill       = true
	DefaultPrefixCaching        = true
)

// memoryShareSince is the first release whose default is 0.92 of the memory (vllm/config/cache.py).
var memoryShareSince = Release{0, 23}

// DefaultMemoryShare returns the default gpu_memory_utilization of a version.
func DefaultMemoryShare(version string) float64 {
	if v, known := ParseRelease(version); known && !v.Before(memoryShareSince) {
		return 0.92
	}
	return DefaultGPUMemoryUtilization
}

// Keep stores a flag that has no field in Extra.
func (e *Engine) Keep(key string, value any) {
	if e.Extra == nil {
		e.Extra = map[string]any{}
	}
	e.Extra[key] = value
}

// WithDefaults returns the engine with vLLM's default block size, share of memory and policy.
func (e Engine) WithDefaults() Engine {
	e.BlockSize = DefaultBlockSize
	e.GPUMemoryUtilization = DefaultGPUMemoryUtilization
	e.SchedulingPolicy = DefaultSchedulingPolicy
	return e
}

// Number returns the value of a setting as a number; ok is false for anything else.
func Number(v any) (n float64, ok bool) {
	switch v := v.(type) {
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}

// Upper bounds of settings: far above any server, and low enough that products of them stay exact.
const (
	MaxDevices   = 1 << 16
	maxSeqs      = 1 << 20
	MaxTokens    = 1 << 31 // of a sequence or a step
	maxBlockSize = 1 << 16 // tokens
	MaxKVBlocks  = 1 << 24 // five times what eight B200 hold of a model of 100 M parameters in blocks of one token
)

// Codes of settings.
const (
	BadKnobs          trace.Code = "bad_knobs"          // a value, or a combination of values, with which vLLM does not start
	UnsupportedEngine trace.Code = "unsupported_engine" // a setting that fit and simulate refuse
	NotModelled       trace.Code = "not_modelled"       // a setting that they warn of
)

// OptInt returns an optional count for a message.
func OptInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}

// Object returns the value of a flag that takes JSON, nil where it is not given.
func (e *Engine) Object(key string) map[string]any {
	m, _ := e.Extra[key].(map[string]any)
	return m
}
