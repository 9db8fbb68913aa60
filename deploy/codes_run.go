package deploy

import "github.com/blis-train/blis-train/trace"

// Codes of run.yaml and of what stands beside it.
const (
	MissingRunYAML  trace.Code = "missing_run_yaml"
	BadRunYAML      trace.Code = "bad_run_yaml"
	UnknownKey      trace.Code = "unknown_key"
	BadSetting      trace.Code = "bad_setting"
	MissingConfig   trace.Code = "missing_config"
	UnknownHardware trace.Code = "unknown_hardware"
	BadCommandLine  trace.Code = "bad_command_line"
	UnknownFlag     trace.Code = "unknown_flag"
	NotAVLLMLog     trace.Code = "not_a_vllm_log"
	AsyncAssumed    trace.Code = "async_assumed"
	KVBlocksAssumed trace.Code = "kv_blocks_assumed"
)
