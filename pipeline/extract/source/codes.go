package source

import "github.com/blis-train/blis-train/trace"

// Codes that the readers of several forms share.
const (
	// CodeUnknownFile is the error of a file that has none of the forms that are read.
	CodeUnknownFile trace.Code = "unknown_client_file"
	// CodeRunContradicted is the finding of a recording that run.yaml contradicts.
	CodeRunContradicted trace.Code = "run_contradicted"
)
