package deploy

import "github.com/blis-train/blis-train/trace"

// Codes of run.yaml and of what stands beside it.
const (
	missingRunYAML  trace.Code = "missing_run_yaml"
	badRunYAML      trace.Code = "bad_run_yaml"
	unknownKey      trace.Code = "unknown_key"
	BadSetting      trace.Code = "bad_setting"
	missingConfig   trace.Code = "missing_config"
	unknownHardware trace.Code = "unknown_hardware"
	badCommandLine  trace.Code = "bad_command_line"
	unknownFlag     trace.Code = "unknown_flag"
	notAVLLMLog     trace.Code = "not_a_vllm_log"
	asyncAssumed    trace.Code = "async_assumed"
	kvBlocksAssumed trace.Code = "kv_blocks_assumed"
	fileNotRead     trace.Code = "file_not_read"
	unknownRelease  trace.Code = "vllm_release_unknown"
)
