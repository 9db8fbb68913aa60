package prepare

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeSaturatedRun   trace.Code = "saturated_run"
	codeLagAssumed     trace.Code = "lag_assumed"
	codeLagContradicts trace.Code = "lag_contradicts_config"
	CodeModelSkipped   trace.Code = "model_skipped"
	codeNoSpec10       trace.Code = "frozen_comparison_unavailable"
	codeRunLeftOut     trace.Code = "run_left_out"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeSaturatedRun, Kind: "finding", Meaning: "two or more of the five saturation checks hit; the run is left out of the fit",
		Action: "record at lower load, or keep it with --keep-saturated if you know why"},
	{Code: codeLagAssumed, Kind: "warning",
		Meaning: "the run holds too little prefill to measure the schedule-to-execution lag, so it follows async_scheduling",
		Action:  "record prompts above 64 tokens in the last fifth of the run"},
	{Code: codeLagContradicts, Kind: "warning", Meaning: "the measured lag differs from what async_scheduling in run.yaml implies",
		Action: "check run.yaml against the server's command line; the measured lag is used"},
	{Code: CodeModelSkipped, Kind: "warning", Meaning: "another parameterisation could not be fitted on these rows",
		Action: "the message says why"},
	{Code: codeNoSpec10, Kind: "warning", Meaning: "the 1.0 comparison could not be made for a run",
		Action: "1.0 needs snapshots for chunked prefill: --step-tracing-rich-subsample-rate"},
	{Code: codeRunLeftOut, Kind: "finding", Meaning: "a run gave no rows and takes no part in the fit", Action: "the message says why"},
}
