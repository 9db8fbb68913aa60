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

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: codeNoInput, Kind: "error", Meaning: "a file that is named does not exist or holds no record of its kind, or no input of the run " +
		"holds a vLLM span or a client request; as a warning: a file of a set, or one found by its name, is such a file",
		Action: "correct the path or `files` in run.yaml, and check that journey or step tracing was on"},
	{Code: codeInvalidText, Kind: "warning", Meaning: "invalid Unicode in a string was replaced by U+FFFD",
		Action: "nothing: times and counts are not affected"},
	{Code: codeStopString, Kind: "warning", Meaning: "requests ended by a stop string: their core span says aborted, their API span " +
		"DEPARTED; they count as successes",
		Action: "nothing"},
	{Code: codeNotRebuilt, Kind: "warning", Meaning: "steps.reconstructed, unknown and contradictions of extract.json are null: the run " +
		"is too large to rebuild its batches in extract's memory, or they cannot be rebuilt",
		Action: "read fit.json's runs[].steps; fit rebuilds the batches of every run"},
	{Code: codeTooManyBad, Kind: "error", Meaning: "the share of unreadable input is above --max-bad-frac",
		Action: "look at the first examples, or raise --max-bad-frac"},
	{Code: codeInputsChanged, Kind: "error", Meaning: "a run folder is not what it was when the work was planned",
		Action: "plan again into another folder, once nothing writes to the recordings any more"},
	{Code: codeDuplicateRunID, Kind: "error", Meaning: "two run folders have the same id",
		Action: "change `name` in one run.yaml, or use --exclude"},
	{Code: CodeNoRuns, Kind: "error", Meaning: "no folder with a run.yaml was found; as a warning: a glob of --only or --exclude fits no run",
		Action: "write run.yaml: blis-train init; globs are of the names of runs, not of paths"},
	{Code: CodeNotOurs, Kind: "error", Meaning: "a file or link of somebody else stands among the tables; as a warning: it was left alone",
		Action: "choose another output folder; --force replaces a file, never a link"},
	{Code: codeChunkSteps, Kind: "finding", Meaning: "whether the times of the chunks that clients received tell the engine's steps; where " +
		"they do not, requests are fitted as a whole",
		Action: "record the chunks of all clients of one engine, near to it, one token a chunk"},
	{Code: codeClockOffset, Kind: "warning", Meaning: "the offset between wall and monotonic clock moved by more than 10 ms within the run",
		Action: "do not mix wall-clock and monotonic stamps of this run"},
	{Code: codeSeveralEngines, Kind: "error", Meaning: "one dump holds several engines or restarts whose stamps overlap; as a warning: each " +
		"became a run of its own, <id>.1, <id>.2, with one run.yaml",
		Action: "rerun with --split-engines, or give each engine its own file and run.yaml"},
	{Code: codeIncomplete, Kind: "warning", Meaning: "records of the run are missing: span events the SDK dropped, snapshots without their " +
		"summary, step ids, API spans of core spans, span ids, or core spans of client requests",
		Action: "record with OTEL_SPAN_EVENT_COUNT_LIMIT=100000 and --step-tracing-sample-rate 1.0, export the API process too, and wait " +
			"ten idle seconds before stopping the server"},
}
