package deploy

import (
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// Codes of run.yaml and what stands beside it, of loading models and of checking deployments.
const (
	missingRunYAML  trace.Code = "missing_run_yaml"
	badRunYAML      trace.Code = "bad_run_yaml"
	unknownKey      trace.Code = "unknown_key"
	BadSetting      trace.Code = "bad_setting"
	missingConfig   trace.Code = "missing_config"
	unknownHardware trace.Code = "unknown_hardware"
	badCommandLine  trace.Code = "bad_command_line"
	unknownFlag     trace.Code = "unknown_flag"
	asyncAssumed    trace.Code = "async_assumed"
	kvBlocksAssumed trace.Code = "kv_blocks_assumed"

	BadModel             trace.Code = "bad_model"
	unsupportedModel     trace.Code = "unsupported_model"
	fullAttentionAssumed trace.Code = "full_attention_assumed"
	differsFrom10        trace.Code = "v1_model_differs"

	BadHardware       trace.Code = "bad_hardware"
	BadKnobs          trace.Code = "bad_knobs"
	UnsupportedEngine trace.Code = "unsupported_engine"
	notModelled       trace.Code = "not_modelled"
)

// WarningsV1 lists what spec 1.0 ignores of the model (spec#model-frozen).
func (m *Model) WarningsV1() []trace.Finding {
	var fs []trace.Finding
	if m.HeadDim*m.NumHeads != m.HiddenSize {
		fs = append(fs, trace.Findingf(differsFrom10, "head_dim %d x %d heads: got %d, 1.0 takes hidden_size %d", m.HeadDim, m.NumHeads,
			m.HeadDim*m.NumHeads, m.HiddenSize))
	}
	if m.SharedExpertSize > 0 {
		fs = append(fs, trace.Findingf(differsFrom10, "shared experts of width %d are ignored by 1.0", m.SharedExpertSize))
	}
	if m.IsMoE() && m.NumMoELayers != m.NumLayers {
		fs = append(fs, trace.Findingf(differsFrom10, "MoE layers: got %d, 1.0 takes all %d", m.NumMoELayers, m.NumLayers))
	}
	b := m.BytesPerParam
	if m.BytesPerKV != b || m.BytesPerActivation != b || m.BytesPerLMHead != b {
		fs = append(fs, trace.Findingf(differsFrom10, "bytes per weight %g, KV %g, activation %g, LM head %g: 1.0 takes %g for all",
			m.BytesPerWeight, m.BytesPerKV, m.BytesPerActivation, m.BytesPerLMHead, b))
	}
	return fs
}

// optInt prints an optional count for a message.
func optInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}
