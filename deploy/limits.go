package deploy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Limit is a knob of vLLM whose effect on a step is not modelled (spec#unmodelled-knobs).
type Limit struct {
	Code    trace.Code
	Key     string // the flag that turns it on, as run.yaml spells it
	Refused bool   // fit and simulate refuse it; else they warn
	What    string // what is not modelled
	Next    string // the next step
	on      func(knobs) string
}

// knobs gives the value of a flag of vllm serve in run.yaml's spelling, nil for none.
type knobs func(key string) any

// limits is every knob of its kind, refused ones first.
var limits = []Limit{
	{UnsupportedEngine, "pipeline_parallel_size", true, "pipeline parallelism", "trace a server with pipeline_parallel_size 1",
		above("pipeline_parallel_size", 1)},
	{UnsupportedEngine, "enable_expert_parallel", true, "expert parallelism", "trace a server without --enable-expert-parallel",
		isOn("enable_expert_parallel")},
	{UnsupportedEngine, "speculative_config", true, "speculative decoding", "trace a server without --speculative-config",
		isGiven("speculative_config", "speculative_model", "num_speculative_tokens", "speculative_decoding", "spec_method", "spec_model",
			"spec_tokens")},
	{UnsupportedEngine, "data_parallel_size", true,
		"data parallelism of a model with experts, whose engines wait for each other in every step",
		"trace a server with data_parallel_size 1", nil},
	{UnsupportedEngine, "decode_context_parallel_size", true, "context parallelism: KV caches split over devices",
		"trace a server with decode_context_parallel_size 1", above("decode_context_parallel_size", 1)},
	{UnsupportedEngine, "prefill_context_parallel_size", true, "context parallelism: prompts split over devices",
		"trace a server with prefill_context_parallel_size 1", above("prefill_context_parallel_size", 1)},
	{UnsupportedEngine, "kv_transfer_config", true, "KV caches of other servers (prefill apart from decode, remote caches)",
		"trace a server without --kv-transfer-config; OffloadingConnector, a CPU tier, is modelled", transfers},
	{UnsupportedEngine, "ec_transfer_config", true, "encoder outputs of other servers", "trace a server without --ec-transfer-config",
		isGiven("ec_transfer_config")},
	{UnsupportedEngine, "cpu_offload_gb", true, "weights kept in CPU memory", "trace a server without --cpu-offload-gb",
		above("cpu_offload_gb", 0)},
	{UnsupportedEngine, "offload_group_size", true, "weights fetched from CPU memory by layer", "trace a server without --offload-group-size",
		above("offload_group_size", 0)},
	{UnsupportedEngine, "enable_dbo", true, "dual-batch overlap", "trace a server without --enable-dbo", isOn("enable_dbo")},
	{UnsupportedEngine, "ubatch_size", true, "steps cut into micro-batches", "trace a server without --ubatch-size", above("ubatch_size", 0)},
	{UnsupportedEngine, "runner", true, "models that pool instead of generating", "trace a server that generates",
		isWord("runner", "pooling", "draft")},
	{UnsupportedEngine, "task", true, "models that pool instead of generating", "trace a server that generates",
		isWord("task", "embed", "embedding", "classify", "score", "reward", "pooling", "transcription")},
	{notModelled, "data_parallel_size", false, "data parallelism: everything here is one engine of them, and its own trace",
		"give the trace of one engine; capacity is that of one, times their number", above("data_parallel_size", 1)},
	{notModelled, "enable_lora", false, "LoRA adapters: their part of a step goes into the other terms",
		"expect other step times with another mix of adapters", isOn("enable_lora")},
	{notModelled, "lora_modules", false, "LoRA adapters: their part of a step goes into the other terms",
		"expect other step times with another mix of adapters", isGiven("lora_modules")},
	{notModelled, "limit_mm_per_prompt", false, "images, video and audio: the encoder's time is not told apart",
		"use recordings of text requests alone", isGiven("limit_mm_per_prompt")},
	{notModelled, "scheduler_cls", false, "a scheduler other than vLLM's own", "do not simulate it: the replay takes vLLM's own rules",
		isGiven("scheduler_cls")},
	{notModelled, "max_num_partial_prefills", false, "several prompts in chunks at a time", "trace and simulate with one",
		above("max_num_partial_prefills", 1)},
	{notModelled, "num_scheduler_steps", false, "several steps to a schedule (V0 engine)", "trace a V1 engine",
		above("num_scheduler_steps", 1)},
	{notModelled, "hf_overrides", false, "a model that is not what its config.json says",
		"write the overridden values into the config.json beside run.yaml", isGiven("hf_overrides")},
	{notModelled, "nnodes", false, "several nodes: collectives go over the network, not over the datasheet's interconnect",
		"give hardware.interconnect_bandwidth_gb_s and interconnect_latency_us as measured between them", above("nnodes", 1)},
}

func above(key string, most float64) func(knobs) string {
	return func(get knobs) string {
		var v float64
		switch n := get(key).(type) {
		case int64:
			v = float64(n)
		case int:
			v = float64(n)
		case float64:
			v = n
		}
		if v > most {
			return fmt.Sprintf("%s: got %g, want at most %g", key, v, most)
		}
		return ""
	}
}

func isOn(key string) func(knobs) string {
	return func(get knobs) string {
		if get(key) == true {
			return key + ": got true, want false"
		}
		return ""
	}
}

// isGiven reports the first of some flags that is neither absent nor off.
func isGiven(keys ...string) func(knobs) string {
	return func(get knobs) string {
		for _, key := range keys {
			if v := get(key); v != nil && v != false && v != "" {
				return key + ": got a value, want none"
			}
		}
		return ""
	}
}

func isWord(key string, words ...string) func(knobs) string {
	return func(get knobs) string {
		if v, _ := get(key).(string); slices.Contains(words, v) {
			return fmt.Sprintf("%s: got %q, want generate", key, v)
		}
		return ""
	}
}

// offloadingConnector is the connector of a CPU tier, which is modelled.
const offloadingConnector = "OffloadingConnector"

func transfers(get knobs) string {
	switch v := get("kv_transfer_config").(type) {
	case map[string]any:
		if name, _ := v["kv_connector"].(string); name != "" && name != offloadingConnector {
			return fmt.Sprintf("kv_transfer_config: got connector %q, want none or %s", name, offloadingConnector)
		}
	case string:
		if v != "" {
			return "kv_transfer_config: got a value, want none"
		}
	}
	return ""
}

// hit is a limit that is reached, and by what.
type hit struct {
	*Limit
	got string
}

// hits lists the limits that the knobs reach. isMoE makes data parallelism one that
// is refused.
func hits(get knobs, isMoE bool) []hit {
	var out []hit
	for i := range limits {
		l := &limits[i]
		on := l.on
		if on == nil { // the refusal that rests on the model too
			if on = above(l.Key, 1); !isMoE {
				continue
			}
		}
		if got := on(get); got != "" && !slices.ContainsFunc(out, func(h hit) bool { return h.What == l.What || h.Refused && h.Key == l.Key }) {
			out = append(out, hit{l, got})
		}
	}
	return out
}

// finding words a limit that is reached.
func (h *hit) finding() trace.Finding {
	what := h.What
	if h.Refused {
		what += " is not modelled; fit and simulate refuse it"
	}
	return trace.Findingf(h.Code, "%s: %s; %s", h.got, what, h.Next)
}

// knob is the value of a flag of the deployment, wherever it stands.
func (d *Deployment) knob(key string) any {
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

// RefusedModel words the error of a config.json that [LoadModel] refuses, for those
// who go on without it.
func RefusedModel(err error) []trace.Finding {
	var e *trace.SyntaxError
	if !errors.As(err, &e) {
		return []trace.Finding{{Code: BadModel, Message: err.Error()}}
	}
	hint := ""
	if e.Hint != "" {
		hint = "; " + e.Hint
	}
	return []trace.Finding{trace.Findingf(e.Code, "%s: %s; extract refuses it%s", e.File, e.Msg, hint)}
}

// NotModelled lists what of the deployment no step time covers: knobs of the engine,
// inputs and architecture of the model. What fit and simulate refuse stands first.
func (d *Deployment) NotModelled() []trace.Finding {
	var out []trace.Finding
	for _, h := range hits(d.knob, d.Model.IsMoE()) {
		out = append(out, h.finding())
	}
	return append(append(out, unmeasured(d.Hardware.Name)...), d.Model.NotModelled()...)
}

// unmeasured tells of a built-in device of another maker than those whose kernels
// and servers were measured.
func unmeasured(device string) []trace.Finding {
	if device != "MI300X-192GB" {
		return nil
	}
	return []trace.Finding{trace.Findingf(notModelled, "%s: known by its vendor's rates alone; no measured kernel or server of it stands "+
		"behind the features and the library", device)}
}

// NotModelled lists what of the model no step time covers.
func (m *Model) NotModelled() (out []trace.Finding) {
	if len(m.Encoders) > 0 {
		out = append(out, trace.Findingf(notModelled, "%s: the encoder's time for images, video and audio is not told apart; use "+
			"recordings of text requests alone", strings.Join(m.Encoders, ", ")))
	}
	if len(m.UnknownKeys) > 0 {
		const most = 6
		keys := m.UnknownKeys
		more := ""
		if n := len(keys) - most; n > 0 {
			keys, more = keys[:most], fmt.Sprintf(" and %d more", n)
		}
		out = append(out, trace.Findingf(notModelled, "%s: the model's config.json says %s%s, which this version does not know; where it "+
			"changes attention or the MLP, the features are wrong", m.ID, strings.Join(keys, ", "), more))
	}
	if slices.Contains(m.Warnings, fullAttentionAssumed) {
		out = append(out, trace.Findingf(fullAttentionAssumed, "%s: windowed attention is taken for full attention, as "+
			"model.assume_full_attention says", m.ID))
	}
	return out
}

// refused is the first limit the deployment reaches that nothing goes on with.
func (d *Deployment) refused() error {
	for _, h := range hits(d.knob, d.Model.IsMoE()) {
		if h.Refused {
			return trace.Errorf(h.Code, "%s: %s is not modelled", h.got, h.What).WithHint(h.Next)
		}
	}
	return nil
}
