package extract

import "github.com/blis-train/blis-train/trace"

// Warnings and errors.
const (
	codeNoSpans         trace.Code = "no_spans"
	codeInvalidText     trace.Code = "invalid_unicode"
	codeLostEvents      trace.Code = "lost_events"
	codeOrphanSnapshots trace.Code = "orphan_snapshots"
	codeMissingSteps    trace.Code = "missing_steps"
	codeSplitRuns       trace.Code = "split_runs"
	codeUnlinked        trace.Code = "unlinked_requests"
	codeStopString      trace.Code = "stop_string_finish"
	codeNotRebuilt      trace.Code = "batches_not_counted"
	codeTooManyBad      trace.Code = "too_many_bad_records"
	codeDuplicateRunID  trace.Code = "duplicate_run_id"
	CodeNoRuns          trace.Code = "no_runs"
	CodeIdleGlob        trace.Code = "glob_without_run"
	codeNoInput         trace.Code = "no_input_files"
	CodeNotOurs         trace.Code = "not_our_file"
	codeInputEmpty      trace.Code = "input_gives_nothing"
	codeFileEmpty       trace.Code = "file_gives_nothing"
	codeNoSpanIDs       trace.Code = "spans_without_ids"
	codeTableMissing    trace.Code = "table_missing"
	codeTableForeign    trace.Code = "table_foreign"
	codeTableRows       trace.Code = "table_rows"
	codeTableRewritten  trace.Code = "table_rewritten"
	codeClockOffset     trace.Code = "clock_offset_spread"
	codeChunkSteps      trace.Code = "chunk_steps"
	codeNoChunkSteps    trace.Code = "chunks_no_steps"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: codeNoSpans, Kind: "error", Meaning: "no input of the run holds a vLLM span or a client request",
		Action: "check the path and that journey or step tracing was on"},
	{Code: codeInvalidText, Kind: "warning", Meaning: "invalid Unicode in a string was replaced by U+FFFD",
		Action: "nothing: times and counts are not affected"},
	{Code: codeLostEvents, Kind: "warning", Meaning: "the SDK dropped span events (droppedEventsCount > 0): the oldest events of those " +
		"spans are gone",
		Action: "set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 on the server when recording"},
	{Code: codeOrphanSnapshots, Kind: "warning", Meaning: "snapshots whose BATCH_SUMMARY was lost",
		Action: "set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 on the server when recording"},
	{Code: codeMissingSteps, Kind: "warning", Meaning: "step ids are missing between the first and the last recorded step",
		Action: "record with --step-tracing-sample-rate 1.0, or expect fewer rows"},
	{Code: codeSplitRuns, Kind: "warning", Meaning: "the dump holds several engine runs; each became a run of its own",
		Action: "nothing: <id>.1, <id>.2 share one run.yaml"},
	{Code: codeUnlinked, Kind: "warning", Meaning: "core spans without their API span: success and overhead are unknown for them",
		Action: "export the API process too, and wait ten idle seconds before stopping the server"},
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
	{Code: CodeIdleGlob, Kind: "warning", Meaning: "a glob of --only or --exclude fits the id of no run",
		Action: "correct it; ids are the names of runs, not paths"},
	{Code: CodeNoRuns, Kind: "error", Meaning: "no folder with a run.yaml was found",
		Action: "write one: blis-train init"},
	{Code: codeNoInput, Kind: "error", Meaning: "a file that run.yaml names does not exist",
		Action: "correct `files` in run.yaml"},
	{Code: CodeNotOurs, Kind: "error", Meaning: "a file or link of somebody else stands among the tables; as a warning: it was left alone",
		Action: "choose another output folder; --force replaces a file, never a link"},
	{Code: codeInputEmpty, Kind: "error", Meaning: "an input that run.yaml or the command line names holds no record of its kind",
		Action: "correct the name, or leave it out of `files` in run.yaml"},
	{Code: codeFileEmpty, Kind: "warning", Meaning: "a file of a set, or one found by its name, holds no record of its kind",
		Action: "nothing for the fresh file of a rotated set; else look at what the file is"},
	{Code: codeNoSpanIDs, Kind: "warning", Meaning: "spans have no span id: they are told apart by content, and requests linked by the " +
		"prefix of their ids",
		Action: "export spans with their ids; a repeated export with another content counts twice"},
	{Code: codeTableMissing, Kind: "error", Meaning: "a table that extract.json counts rows of is not there",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: codeTableForeign, Kind: "error", Meaning: "a table stands in the folder of another run, or extract.json knows no such table",
		Action: "remove it, or run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: codeTableRows, Kind: "error", Meaning: "a table has another number of rows than extract.json counts",
		Action: "run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: codeTableRewritten, Kind: "warning", Meaning: "a table is not the file that extract wrote: another program wrote it anew, or " +
		"its bytes changed",
		Action: "nothing when it was meant; else run `blis-train extract RUNDIR... -o OUT --force` again"},
	{Code: codeChunkSteps, Kind: "finding", Meaning: "the engine's steps were recovered from the times of the chunks that its clients " +
		"received",
		Action: "nothing, if no other client used the engine; fit --from requests does without them"},
	{Code: codeNoChunkSteps, Kind: "finding", Meaning: "the times of chunks do not tell the engine's steps; requests are fitted as a whole",
		Action: "record the chunks of all clients of one engine, near to it, one token a chunk"},
	{Code: codeClockOffset, Kind: "warning", Meaning: "the offset between wall and monotonic clock moved by more than 10 ms within the run",
		Action: "do not mix wall-clock and monotonic stamps of this run"},
}
