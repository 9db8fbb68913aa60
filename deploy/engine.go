package deploy

import (
	"maps"
	"strings"

	"github.com/blis-train/blis-train/model"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// engine reads the vllm section. Keys that are not ours are kept as
// provenance when the stated version's `vllm serve` knows them.
func (d *document) engine(s *section, m *modelSection) vllm.Engine {
	e := vllm.Engine{
		VLLMVersion:          s.text("version", ""),
		MaxModelLen:          s.atLeast("max_model_len", 1, "tokens"),
		MaxNumSeqs:           s.knob("max_num_seqs", "requests"),
		MaxNumBatchedTokens:  s.knob("max_num_batched_tokens", "tokens"),
		ChunkedPrefill:       s.boolean("enable_chunked_prefill").Or(vllm.DefaultChunkedPrefill),
		PrefixCaching:        s.boolean("enable_prefix_caching").Or(vllm.DefaultPrefixCaching),
		BlockSize:            s.atLeast("block_size", 1, "tokens").Or(vllm.DefaultBlockSize),
		GPUMemoryUtilization: s.within("gpu_memory_utilization", "share of device memory", 0, 1).Or(vllm.DefaultMemoryShare(s.text("version", ""))),
		KVBlocksGPU:          d.kvBlocks(s),
		CPUOffloading:        s.boolean("cpu_offloading").Or(false),
		KVBlocksCPU:          s.atLeast("kv_blocks_total_cpu", 0, "blocks").Or(0),
		AsyncScheduling:      s.boolean("async_scheduling"),
		SchedulingPolicy:     s.oneOf("scheduling_policy", vllm.DefaultSchedulingPolicy, "fcfs", "priority"),
		LongPrefillThreshold: s.atLeast("long_prefill_token_threshold", 0, "tokens").Or(0),
		ExpertParallel:       s.boolean("enable_expert_parallel").Or(false),
	}
	s.require(s.present("max_num_seqs"), "max_num_seqs")
	s.require(s.present("max_num_batched_tokens"), "max_num_batched_tokens")
	s.require(e.VLLMVersion != "", "version")
	m.prefixesStated = s.boolean("enable_prefix_caching").OK
	o := &m.opts
	states := "auto, float32, float16 or bfloat16"
	o.Quantization = s.text("quantization", "")
	o.MambaCacheDType = s.valueType("mamba_cache_dtype", "", model.DTypeBytes, states)
	o.MambaSSMCacheDType = s.valueType("mamba_ssm_cache_dtype", "", model.DTypeBytes, states)
	for key, stated := range map[string]string{"quantization": o.Quantization, "mamba_cache_dtype": o.MambaCacheDType,
		"mamba_ssm_cache_dtype": o.MambaSSMCacheDType} {
		if stated != "" {
			e.Keep(key, stated)
		}
	}
	e.SpeculativeDecoding = s.speculative()
	if at := s.find("speculative_config"); at != nil && !isNull(at) {
		var config any
		if err := at.Decode(&config); err == nil {
			e.Keep("speculative_config", config)
		}
	}
	d.extra(s, &e)
	for short, key := range map[string]string{"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"} {
		if v := e.Extra[short]; v != nil {
			config := map[string]any{key: v}
			maps.Copy(config, e.Object("speculative_config"))
			e.Keep("speculative_config", config)
			e.SpeculativeDecoding = true
		}
	}
	return e
}

// knob is a required count. Whether it is legal is decided by [Deployment.Check],
// so that a zero carries that message.
func (s *section) knob(key, unit string) int64 {
	v := s.integer(key)
	if s.present(key) && (!v.OK || v.V <= 0) {
		s.doc.fail(s.find(key), vllm.BadKnobs, "give --"+strings.ReplaceAll(key, "_", "-")+" as the server printed it at start",
			"vllm.%s: got %s, want > 0 %s", key, vllm.OptInt(v), unit)
	}
	return v.V
}

// kvBlocks is the cache's size: as the server printed it, or the override less
// the null block, which vLLM keeps for itself.
func (d *document) kvBlocks(s *section) trace.Opt[int64] {
	total := s.atLeast("kv_blocks_total_gpu", 1, "blocks")
	override := s.atLeast("num_gpu_blocks_override", 1, "blocks")
	if !total.OK && override.OK {
		return trace.Some(max(1, override.V-1))
	}
	if override.OK && !nearBlocks(total.V, override.V) {
		d.fail(s.find("kv_blocks_total_gpu"), badRunYAML, "keep the one that the server's log prints",
			"vllm.kv_blocks_total_gpu: got %d blocks, want the %d of num_gpu_blocks_override", total.V, override.V)
	}
	return total
}

func (s *section) speculative() bool {
	on := s.boolean("speculative_decoding").Or(false)
	config := s.find("speculative_config")
	model := s.find("speculative_model")
	tokens := s.find("num_speculative_tokens")
	return on || config != nil || model != nil || tokens != nil
}

// extra keeps other flags of vllm serve, and fails on words it does not know.
func (d *document) extra(s *section, e *vllm.Engine) {
	for _, key := range s.rest() {
		if !isServeFlag(key.Value, e.VLLMVersion) {
			s.unknown(key, append(serveFlags(e.VLLMVersion), s.known...))
			return
		}
		if vllm.IsSecret(key.Value) {
			continue
		}
		var value any
		if err := s.find(key.Value).Decode(&value); err != nil {
			d.fail(key, badRunYAML, "", "vllm.%s: %v", key.Value, err)
			return
		}
		e.Keep(key.Value, value)
	}
}
