package extract

import "github.com/blis-train/blis-train/trace"

// Warnings and errors.
const (
	CodeNoSpans         trace.Code = "no_spans"
	CodeInvalidText     trace.Code = "invalid_unicode"
	CodeLostEvents      trace.Code = "lost_events"
	CodeOrphanSnapshots trace.Code = "orphan_snapshots"
	CodeMissingSteps    trace.Code = "missing_steps"
	CodeSplitRuns       trace.Code = "split_runs"
	CodeUnlinked        trace.Code = "unlinked_requests"
	CodeStopString      trace.Code = "stop_string_finish"
	CodeNotRebuilt      trace.Code = "batches_not_counted"
	CodeTooManyBad      trace.Code = "too_many_bad_records"
	CodeDuplicateRunID  trace.Code = "duplicate_run_id"
	CodeNoRuns          trace.Code = "no_runs"
	CodeNoInput         trace.Code = "no_input_files"
	CodeNotOurs         trace.Code = "not_our_file"
	CodeInputEmpty      trace.Code = "input_gives_nothing"
	CodeFileEmpty       trace.Code = "file_gives_nothing"
	CodeNoSpanIDs       trace.Code = "spans_without_ids"
	CodeTableMissing    trace.Code = "table_missing"
	CodeTableForeign    trace.Code = "table_foreign"
	CodeTableRows       trace.Code = "table_rows"
	CodeTableRewritten  trace.Code = "table_rewritten"
	CodeClockOffset     trace.Code = "clock_offset_spread"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeNoSpans, Kind: "error", Meaning: "no input of the run holds a vLLM span or a client request",
		Action: "check the path and that journey or step tracing was on"},
	{Code: CodeInvalidText, Kind: "warning", Meaning: "invalid Unicode in a string was replaced by U+FFFD",
		Action: "nothing: times and counts are not affected"},
	{Code: CodeLostEvents, Kind: "warning", Meaning: "the SDK dropped span events (droppedEventsCount > 0): the oldest events of those " +
		"spans are gone",
		Action: "set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 on the server when recording"},
	{Code: CodeOrphanSnapshots, Kind: "warning", Meaning: "snapshots whose BATCH_SUMMARY was lost",
		Action: "set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 on the server when recording"},
	{Code: CodeMissingSteps, Kind: "warning", Meaning: "step ids are missing between the first and the last recorded step",
		Action: "record with --step-tracing-sample-rate 1.0, or expect fewer rows"},
	{Code: CodeSplitRuns, Kind: "warning", Meaning: "the dump holds several engine runs; each became a run of its own",
		Action: "nothing: <id>.1, <id>.2 share one run.yaml"},
	{Code: CodeUnlinked, Kind: "warning", Meaning: "core spans without their API span: success and overhead are unknown for them",
		Action: "export the API process too, and wait ten idle seconds before stopping the server"},
	{Code: CodeStopString, Kind: "warning", Meaning: "requests ended by a stop string: their core span says aborted, their API span " +
		"DEPARTED; they count as successes",
		Action: "nothing"},
	{Code: CodeNotRebuilt, Kind: "warning", Meaning: "steps.reconstructed, unknown and contradictions of extract.json are null: the run " +
		"is too large to rebuild its batches in extract's memory, or they cannot be rebuilt",
		Action: "read fit.json's runs[].steps; fit rebuilds the batches of every run"},
	{Code: CodeTooManyBad, Kind: "error", Meaning: "the share of unreadable input is above --max-bad-frac",
		Action: "look at the first examples, or raise --max-bad-frac"},
	{Code: CodeDuplicateRunID, Kind: "error", Meaning: "two run folders have the same id",
		Action: "change `name` in one run.yaml, or use --exclude"},
	{Code: CodeNoRuns, Kind: "error", Meaning: "no folder with a run.yaml was found",
		Action: "write one: blis-train init"},
	{Code: CodeNoInput, Kind: "error", Meaning: "a file that run.yaml names does not exist",
		Action: "correct `files` in run.yaml"},
	{Code: CodeNotOurs, Kind: "error", Meaning: "a file or link of somebody else stands among the tables; as a warning: it was left alone",
		Action: "choose another output folder; --force replaces a file, never a link"},
	{Code: CodeInputEmpty, Kind: "error", Meaning: "an input that run.yaml or the command line names holds no record of its kind",
		Action: "correct the name, or leave it out of `files` in run.yaml"},
	{Code: CodeFileEmpty, Kind: "warning", Meaning: "a file of a set, or one found by its name, holds no record of its kind",
		Action: "nothing for the fresh file of a rotated set; else look at what the file is"},
	{Code: CodeNoSpanIDs, Kind: "warning", Meaning: "spans have no span id: they are told apart by content, and requests linked by the " +
		"prefix of their ids",
		Action: "export spans with their ids; a repeated export with another content counts twice"},
	{Code: CodeTableMissing, Kind: "error", Meaning: "a table that extract.json counts rows of is not there",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeTableForeign, Kind: "error", Meaning: "a table stands in the folder of another run, or extract.json knows no such table",
		Action: "remove it, or run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeTableRows, Kind: "error", Meaning: "a table has another number of rows than extract.json counts",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeTableRewritten, Kind: "warning", Meaning: "a table is not the file that extract wrote: another program wrote it anew, or " +
		"its bytes changed",
		Action: "nothing when it was meant; else run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: CodeClockOffset, Kind: "warning", Meaning: "the offset between wall and monotonic clock moved by more than 10 ms within the run",
		Action: "do not mix wall-clock and monotonic stamps of this run"},
}
