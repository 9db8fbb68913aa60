package deploy

import (
	_ "embed"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/vllm"
)

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

// NotModelled lists what of the deployment no step time covers: knobs of the engine,
// inputs and architecture of the model. What fit and simulate refuse stands first.
func (d *Deployment) NotModelled() []trace.Finding {
	out := vllm.Findings(d.knob, d.Model.IsMoE())
	if n, most := d.Engine.MaxModelLen.V, d.Model.MaxPositionEmbeddings; most > 0 && n > most && d.Engine.Extra["hf_overrides"] == nil {
		out = append(out, trace.Findingf(vllm.NotModelled, "max_model_len: got %d, want at most the %d positions of config.json: vLLM refuses it "+
			"without VLLM_ALLOW_LONG_MAX_MODEL_LEN", n, most))
	}
	return append(append(out, unmeasured(d.Hardware.Name)...), d.Model.NotModelled()...)
}

// unmeasured tells of a built-in device of another maker than those whose kernels
// and servers were measured.
func unmeasured(device string) []trace.Finding {
	if device != "MI300X-192GB" {
		return nil
	}
	return []trace.Finding{trace.Findingf(vllm.NotModelled, "%s: known by its vendor's rates alone; no measured kernel or server of it stands "+
		"behind the features and the library", device)}
}

// refused is the first limit the deployment reaches that nothing goes on with; layered: with sums over layers, which some
// are part of.
func (d *Deployment) refused(layered bool) error {
	for _, h := range vllm.Reached(d.knob, d.Model.IsMoE()) {
		if h.Refused && !(layered && h.Layered) {
			return trace.Errorf(h.Code, "%s: %s is not modelled", h.Got, h.What).WithHint(h.Next)
		}
	}
	return d.Model.CheckKnown()
}
