package source

import "github.com/blis-train/blis-train/trace"

// Codes that the readers of several forms share.
const (
	// CodeUnknownFile is the error of a client's file, a benchmark's load levels or a copy of vLLM's
	// /metrics that has none of the forms that are read; of the last two also for an invalid value.
	CodeUnknownFile trace.Code = "unknown_client_file"
	// CodeRunContradicted is the warning that a recording or a client's file contradicts run.yaml.
	CodeRunContradicted trace.Code = "run_contradicted"
)
