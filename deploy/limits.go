package deploy

// This file warns of settings whose effect is not modelled, or is only estimated.

import (
	"errors"
	"slices"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

// Assumed returns warnings about what a fit or a simulation assumes: that settings which are not
// modelled ([Deployment.NotModelled]) have no effect on step times, and that asynchronous
// scheduling is on and the rules are those of the newest release if the version is not a release
// number (async_assumed).
func (d *Deployment) Assumed() []trace.Finding {
	e := &d.Engine
	out := d.NotModelled()
	if _, known := e.Release(); known {
		return out
	}
	async := ""
	if !e.AsyncScheduling.OK && e.AsyncExcluded() == "" {
		async = "asynchronous scheduling is taken as on, the default since vLLM " + vllm.AsyncSchedulingSince.String() + ", and "
	}
	return append(out, trace.Findingf(asyncAssumed, "vllm.version: got %q, which is no release number; %sthe scheduler's rules are those of "+
		"the newest release", e.VLLMVersion, async))
}

// newestCompared is the newest release whose scheduler the simulator was compared with.
var newestCompared = vllm.Release{0, 33}

// AssumedInSimulation returns the warnings of [Deployment.Assumed] and those about what only a
// simulation assumes: estimated times, a scheduler newer than those that were compared, and an
// estimated KV cache (kv_blocks_assumed).
func (d *Deployment) AssumedInSimulation() []trace.Finding {
	// Pipelines, drafts and ranks are simulated, so that their limits do not apply.
	one := *d.Plain(false)
	one.DP = 1
	out := append(one.Assumed(), d.Estimates()...)
	if v, known := d.Engine.Release(); known && newestCompared.Before(v) {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: vllm.version %s is newer than %s, the newest whose scheduler was compared; its "+
			"rules are taken", d.Name, d.Engine.VLLMVersion, newestCompared))
	}
	if n, estimated, err := d.KVBlocks(); err == nil && estimated {
		out = append(out, trace.Findingf(kvBlocksAssumed, "%s: %s KV blocks estimated from memory (vllm.kv_blocks_total_gpu is not stated)", d.Name, trace.Thousands(n)))
	}
	return out
}

// HoldsRequest reports whether a KV cache of so many blocks, without the null block, is large enough for vLLM to start with
// a max_model_len whose request needs so many. vLLM compares with the null block included
// (vllm/v1/core/kv_cache_utils.py: _check_enough_kv_cache_memory()).
func HoldsRequest(blocks, needed int64) bool { return needed <= blocks+1 }

// DoubtsKVCache returns warnings about a KV cache with which vLLM would not start: more blocks than the device has memory for,
// or, if it is estimated, too few for one request of max_model_len. It is for servers that may not exist: what a recording
// states did run.
func (d *Deployment) DoubtsKVCache() (out []trace.Finding) {
	blocks, isEstimated, err := d.KVBlocks()
	if err != nil {
		return nil // the simulation reports it
	}
	if err := d.CheckKVBlocks(blocks); err != nil {
		if e, ok := errors.AsType[*trace.Error](err); ok {
			out = append(out, trace.Findingf(noSuchKVCache, "%s: vLLM would not start: %s", d.Name, e.Msg))
		}
	}
	longest := d.MaxModelLen()
	pool, ok := d.Model.Layers().KVPool(d.Parallel(), d.Engine.BlockSize)
	if !isEstimated || !ok || !longest.OK {
		return out
	}
	if needed := pool.RequestBlocks(longest.V, d.Engine.MaxNumBatchedTokens); !HoldsRequest(blocks, needed) {
		out = append(out, trace.Findingf(noSuchKVCache, "%s: vLLM would not start: the KV cache has room for %s blocks, and one request of "+
			"max_model_len %s needs %s: lower vllm.max_model_len, or raise tensor_parallel_size", d.Name, trace.Thousands(blocks), trace.Thousands(longest.V),
			trace.Thousands(needed)))
	}
	return out
}

// setting returns the value of a flag, for [vllm.Reached].
func (d *Deployment) setting(key string) any {
	switch key {
	case "pipeline_parallel_size":
		return d.PP
	case "data_parallel_size":
		return d.DP
	case "enable_expert_parallel":
		return d.Engine.ExpertParallel
	case "speculative_decoding":
		return d.Engine.SpeculativeDecoding
	}
	return d.Engine.Extra[key]
}

// NotModelled returns warnings about settings of the engine, inputs and parts of the model that
// modelled step times do not cover. Those that fit and simulate refuse come first.
func (d *Deployment) NotModelled() []trace.Finding {
	out := vllm.Findings(d.setting, d.Model.IsMoE())
	if n, most := d.Engine.MaxModelLen.V, d.Model.MaxPositionEmbeddings; most > 0 && n > most && d.Engine.Extra["hf_overrides"] == nil {
		out = append(out, trace.Findingf(vllm.NotModelled, "max_model_len: got %d, want at most the %d positions of config.json: vLLM refuses it "+
			"without VLLM_ALLOW_LONG_MAX_MODEL_LEN", n, most))
	}
	return append(append(out, unmeasuredDevice(d.Hardware.Name)...), d.Model.NotModelled()...)
}

// otherVendors are the built-in devices that do not run CUDA: no kernel or server on them was measured, and
// vLLM's defaults for CUDA may not hold on them.
var otherVendors = []string{"MI300X-192GB", "MI325X-256GB", "MI355X-288GB", "TPU-v6e-32GB", "Gaudi3-128GB"}

// unmeasuredDevice returns a warning for a built-in device on which no kernel or server was
// measured, or that computes in another type.
func unmeasuredDevice(device string) []trace.Finding {
	switch {
	case slices.Contains(otherVendors, device):
		return []trace.Finding{trace.Findingf(vllm.NotModelled, "%s: only its vendor's rates are known: no kernel or server on it was measured for the "+
			"features and the library, and vLLM's defaults are those for CUDA", device)}
	case device == turing:
		return []trace.Finding{trace.Findingf(vllm.NotModelled, "%s: vLLM computes in float16 there: the device has no bfloat16", device)}
	}
	return nil
}

// turing is the built-in device of a generation before bfloat16.
const turing = "T4-16GB"

// refuseLimits returns an error for the first setting whose effect on step times is not modelled.
// layered is set if step times are sums over layers (spec 1.3), which model some settings that
// others do not.
func (d *Deployment) refuseLimits(layered bool) error {
	for _, h := range vllm.Reached(d.setting, d.Model.IsMoE()) {
		if h.Refused && !(layered && h.Layered) {
			return trace.Errorf(h.Code(), "%s: %s is not modelled", h.Got, h.What).WithHint(h.Next)
		}
	}
	return d.Model.CheckKnown()
}

// Estimates returns warnings about parts of a simulation that no measurement supports.
func (d *Deployment) Estimates() (out []trace.Finding) {
	if us, passes := d.DrafterUs(); us > 0 {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: the drafter's time is an estimate: %d times %.0f us a step, its weights read "+
			"from memory, one layer and the LM head where it is no model of its own", d.Name, passes, us))
	}
	if d.PP > 1 {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: the %d pipeline stages are taken as equal parts of a step, what they send each "+
			"other as free", d.Name, d.PP))
	}
	if d.Engine.Transfers() != "" {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: not validated: no server with prefill apart from decode was compared, and what "+
			"transfers take is as cluster.yaml says", d.Name))
	}
	if d.Engine.Offload().LMCache {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: not validated: no server with LMCache was compared; it is taken as 0.5.6 with "+
			"the settings of kv_connector_extra_config: its configuration file and environment (LMCACHE_*) are not seen", d.Name))
	}
	if d.DP > 1 && d.SpreadsExperts() && !d.Sums {
		out = append(out, trace.Findingf(vllm.NotModelled, "%s: not validated: no public measurement of data-parallel attention with expert "+
			"parallelism supports these times; the experts' part of a step is computed from one engine's coefficients, and the "+
			"exchange between ranks (%.0f us for 1000 tokens) from the datasheet's link", d.Name, d.ExchangeUs(1000)))
	}
	return out
}
