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
	UnknownFlag     trace.Code = "unknown_flag"
	asyncAssumed    trace.Code = "async_assumed"
	kvBlocksAssumed trace.Code = "kv_blocks_assumed"

	BadModel             trace.Code = "bad_model"
	unsupportedModel     trace.Code = "unsupported_model"
	fullAttentionAssumed trace.Code = "full_attention_assumed"

	BadHardware       trace.Code = "bad_hardware"
	BadKnobs          trace.Code = "bad_knobs"
	UnsupportedEngine trace.Code = "unsupported_engine"
	notModelled       trace.Code = "not_modelled"
)

// optInt prints an optional count for a message.
func optInt(o trace.Opt[int64]) string {
	if !o.OK {
		return "none"
	}
	return strconv.FormatInt(o.V, 10)
}
