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

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: missingRunYAML, Kind: "error", Meaning: "The run directory has no run.yaml and the flags do not supply what it would say.",
		Action: "Write one with `blis-train init`, or give every missing field with --set."},
	{Code: badRunYAML, Kind: "error", Meaning: "A value in run.yaml has the wrong type or is impossible.",
		Action: "Fix the named line; docs/run-yaml.md lists keys, units and bounds."},
	{Code: unknownKey, Kind: "error", Meaning: "run.yaml holds a key that is neither ours nor a `vllm serve` flag of the stated version.",
		Action: "Correct the spelling, or move the key to the section the hint names."},
	{Code: BadSetting, Kind: "error", Meaning: "A --set override is not key=value with a key of run.yaml.",
		Action: "Write it as section.key=value, such as vllm.max_num_seqs=128."},
	{Code: missingConfig, Kind: "error", Meaning: "The model's config.json named by model.config cannot be read.",
		Action: "Copy the model's Hugging Face config.json beside run.yaml and name it there."},
	{Code: unknownHardware, Kind: "error", Meaning: "hardware.name is no built-in datasheet and no peak rates stand beside it.",
		Action: "Use a name the hint lists, or give TFlopsPeak and BwPeakTBs."},
	{Code: badCommandLine, Kind: "error", Meaning: "What init was given is no command that runs `vllm serve`, or no log of its start.",
		Action: "Paste the whole command, quoted as one argument, or give the server's log from its first line on."},
	{Code: unknownFlag, Kind: "warning", Meaning: "init leaves something out: a flag that is not known for that vLLM, or the file that " +
		"--config names and that cannot be read here.",
		Action: "Correct the spelling (docs/run-yaml.md lists the flags), or run init where the file is."},
	{Code: asyncAssumed, Kind: "warning", Meaning: "vllm.version is no release number, so asynchronous scheduling was taken as on, the " +
		"newest default.",
		Action: "Set vllm.async_scheduling as the server printed it at start, or give the version's number."},
	{Code: kvBlocksAssumed, Kind: "finding", Meaning: "The number of KV blocks is not recorded and was estimated from memory.",
		Action: "Set vllm.kv_blocks_total_gpu in run.yaml: the server's num_gpu_blocks less the null block."},

	{Code: BadModel, Kind: "error", Meaning: "A field that describes the model is absent, of the wrong type, out of range, or contradicts " +
		"another.",
		Action: "Compare config.json with the published one; the message names the field."},
	{Code: unsupportedModel, Kind: "error", Meaning: "The model's architecture, number type or quantisation is not modelled, or not known.",
		Action: "The message says what and whether a key of run.yaml helps (model.n_mlp_proj, vllm.max_model_len, model.assume_full_attention)."},
	{Code: fullAttentionAssumed, Kind: "warning", Meaning: "Windowed attention was taken for full attention, as run.yaml asks.",
		Action: "Expect attention and KV terms that are too large beyond the window."},
	{Code: differsFrom10, Kind: "warning", Meaning: "Spec 1.0 takes another head dimension, other experts or other byte widths " +
		"than the model has.",
		Action: "Use spec 1.1, which reads them."},

	{Code: BadHardware, Kind: "error", Meaning: "A rate of the hardware is missing or impossible for this deployment.",
		Action: "Fill in the datasheet value in the unit docs/run-yaml.md names."},
	{Code: BadKnobs, Kind: "error", Meaning: "An engine knob is missing or impossible, alone or with this model.",
		Action: "Give the flag the message names as the server printed it at start."},
	{Code: UnsupportedEngine, Kind: "error", Meaning: "The server ran in a way that fit and simulate do not model; docs/run-yaml.md " +
		"lists the flags.",
		Action: "Trace a server without the flag that the message names."},
	{Code: notModelled, Kind: "warning", Meaning: "Something of the server or the model that no step time covers: several engines or nodes, " +
		"adapters, images, another scheduler, keys of config.json that are not known, a device nobody measured.",
		Action: "Read what the message says of it; results hold as far as it does not matter."},
}

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
