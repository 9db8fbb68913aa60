package extract

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	// CodeIncomplete says which records of a run are missing.
	CodeIncomplete     trace.Code = "incomplete_trace"
	CodeSeveralEngines trace.Code = "several_engines"
)

// Codes describes every code of this package.
var TablesCodes = []trace.CodeEntry{
	{Code: CodeSeveralEngines, Kind: "error", Meaning: "one dump holds several engines or restarts whose stamps overlap; as a warning: each " +
		"became a run of its own, <id>.1, <id>.2, with one run.yaml",
		Action: "rerun with --split-engines, or give each engine its own file and run.yaml"},
	{Code: CodeIncomplete, Kind: "warning", Meaning: "records of the run are missing: span events the SDK dropped, snapshots without their " +
		"summary, step ids, API spans of core spans, span ids, or core spans of client requests",
		Action: "record with OTEL_SPAN_EVENT_COUNT_LIMIT=100000 and --step-tracing-sample-rate 1.0, export the API process too, and wait " +
			"ten idle seconds before stopping the server"},
}
