package extract

import "github.com/blis-train/blis-train/trace"

// Warnings and errors.
const (
	codeNoInput        trace.Code = "no_input"
	codeInvalidText    trace.Code = "invalid_unicode"
	codeStopString     trace.Code = "stop_string_finish"
	codeNotRebuilt     trace.Code = "batches_not_counted"
	codeTooManyBad     trace.Code = "too_many_bad_records"
	codeDuplicateRunID trace.Code = "duplicate_run_id"
	CodeNoRuns         trace.Code = "no_runs"
	CodeNotOurs        trace.Code = "not_our_file"
	codeClockOffset    trace.Code = "clock_offset_spread"
	codeChunkSteps     trace.Code = "chunk_steps"
	codeInputsChanged  trace.Code = "inputs_changed"
	codeIncomplete     trace.Code = "incomplete_trace" // which records of a run are missing
	codeSeveralEngines trace.Code = "several_engines"
)
