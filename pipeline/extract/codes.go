package extract

import "github.com/blis-train/blis-train/trace"

// Drops: every record that is read and not kept has one of these reasons.
const (
	CodeUnreadable       trace.Code = "unreadable"
	CodeLineTooLong      trace.Code = "line_too_long"
	CodeExpansion        trace.Code = "expansion_limit"
	CodeBadAttribute     trace.Code = "bad_attribute"
	CodeMissingAttribute trace.Code = "missing_attribute"
	CodeMissingID        trace.Code = "missing_id"
	CodeBadEvent         trace.Code = "bad_kv_event"
	CodeForeignScope     trace.Code = "foreign_scope"
	CodeUnknownEvent     trace.Code = "unknown_event"
	CodeDuplicate        trace.Code = "duplicate"
	CodeConflict         trace.Code = "duplicate_conflict"
	CodeRepeatedEvent    trace.Code = "repeated_event"
	CodeWorkerCopy       trace.Code = "worker_copy"
	CodeSuperseded       trace.Code = "superseded"
	CodeIgnoredSignal    trace.Code = "ignored_signal"
	CodeNulPadding       trace.Code = "nul_padding"
)

// Warnings and errors.
const (
	CodeNoSpans          trace.Code = "no_spans"
	CodeNotOTLP          trace.Code = "not_otlp"
	CodeNotUTF8          trace.Code = "not_utf8"
	CodeInvalidText      trace.Code = "invalid_unicode"
	CodeLostEvents       trace.Code = "lost_events"
	CodeOrphanSnapshots  trace.Code = "orphan_snapshots"
	CodeMissingSteps     trace.Code = "missing_steps"
	CodeSeveralEngines   trace.Code = "several_engines"
	CodeSplitRuns        trace.Code = "split_runs"
	CodeUnlinked         trace.Code = "unlinked_requests"
	CodeStopString       trace.Code = "stop_string_finish"
	CodeNotRebuilt       trace.Code = "batches_not_counted"
	CodeTooManyBad       trace.Code = "too_many_bad_records"
	CodeDuplicateRunID   trace.Code = "duplicate_run_id"
	CodeNoRuns           trace.Code = "no_runs"
	CodeNoInput          trace.Code = "no_input_files"
	CodeClockOffset      trace.Code = "clock_offset_spread"
	CodeStepConflict     trace.Code = "step_conflict"
	CodeUnjoinedObserved trace.Code = "unjoined_client_requests"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeUnreadable, Kind: "drop", Meaning: "a line, message or compressed frame could not be decoded", Action: "look at file:line:col in --why-rejected; a cut last line is normal after a killed collector"},
	{Code: CodeLineTooLong, Kind: "drop", Meaning: "a line or message is longer than --max-line", Action: "raise --max-line when the file is trusted"},
	{Code: CodeExpansion, Kind: "drop", Meaning: "a compressed file expands beyond --max-expansion times its size", Action: "raise --max-expansion when the file is trusted"},
	{Code: CodeBadAttribute, Kind: "drop", Meaning: "an event carries an attribute of another type than the tracing fork writes", Action: "check the producer's version"},
	{Code: CodeMissingAttribute, Kind: "drop", Meaning: "an event lacks an attribute the tables need", Action: "check the producer's version"},
	{Code: CodeMissingID, Kind: "drop", Meaning: "a core span has no gen_ai.request.id", Action: "check the producer's version"},
	{Code: CodeBadEvent, Kind: "drop", Meaning: "a KV-cache event is not the positional array its class wants", Action: "check that the file is the JSONL subscriber's output"},
	{Code: CodeForeignScope, Kind: "drop", Meaning: "a span (with its events) of an instrumentation scope that is not vLLM's tracing", Action: "nothing: web-framework spans are expected"},
	{Code: CodeUnknownEvent, Kind: "drop", Meaning: "a span event whose name is not part of the schema", Action: "nothing, unless a new fork version added events"},
	{Code: CodeDuplicate, Kind: "drop", Meaning: "the same span (trace id and span id) with the same content was exported before", Action: "nothing: export retries repeat spans"},
	{Code: CodeConflict, Kind: "drop", Meaning: "a span with the ids of an earlier one but another content; the first one is kept", Action: "look for two producers that share ids"},
	{Code: CodeRepeatedEvent, Kind: "drop", Meaning: "the same journey event, summary or snapshot was recorded in two spans", Action: "nothing"},
	{Code: CodeWorkerCopy, Kind: "drop", Meaning: "a KV transfer event repeated by another tensor-parallel worker, merged into the first copy", Action: "nothing: one copy per worker is expected"},
	{Code: CodeSuperseded, Kind: "drop", Meaning: "a stock request span beside the API and core spans of the same trace", Action: "nothing: fork v0.3.0 writes both"},
	{Code: CodeIgnoredSignal, Kind: "drop", Meaning: "a metrics or logs object in a trace file", Action: "nothing"},
	{Code: CodeNulPadding, Kind: "drop", Meaning: "a block of NUL bytes, as a host crash leaves at the end of a file", Action: "nothing, but expect the last lines to be missing"},
	{Code: CodeNoSpans, Kind: "error", Meaning: "no input of the run holds a vLLM span or a client request", Action: "check the path and that journey or step tracing was on"},
	{Code: CodeNotOTLP, Kind: "error", Meaning: "a file is neither OTLP JSON nor length-prefixed protobuf", Action: "point at the collector file exporter's output"},
	{Code: CodeNotUTF8, Kind: "error", Meaning: "a file is UTF-16, OTLP JSON is UTF-8", Action: "convert it: iconv -f UTF-16 -t UTF-8"},
	{Code: CodeInvalidText, Kind: "warning", Meaning: "invalid Unicode in a string was replaced by U+FFFD", Action: "nothing: times and counts are not affected"},
	{Code: CodeLostEvents, Kind: "warning", Meaning: "the SDK dropped span events (droppedEventsCount > 0): the oldest events of those spans are gone", Action: "set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 on the server when recording"},
	{Code: CodeOrphanSnapshots, Kind: "warning", Meaning: "snapshots whose BATCH_SUMMARY was lost", Action: "set OTEL_SPAN_EVENT_COUNT_LIMIT=100000 on the server when recording"},
	{Code: CodeMissingSteps, Kind: "warning", Meaning: "step ids are missing between the first and the last recorded step", Action: "record with --step-tracing-sample-rate 1.0, or expect fewer rows"},
	{Code: CodeSeveralEngines, Kind: "error", Meaning: "one dump holds several engines or restarts whose stamps overlap", Action: "rerun with --split-engines, or give each engine its own file and run.yaml"},
	{Code: CodeSplitRuns, Kind: "warning", Meaning: "the dump holds several engine runs; each became a run of its own", Action: "nothing: <id>.1, <id>.2 share one run.yaml"},
	{Code: CodeUnlinked, Kind: "warning", Meaning: "core spans without their API span: success and overhead are unknown for them", Action: "export the API process too, and wait ten idle seconds before stopping the server"},
	{Code: CodeStopString, Kind: "warning", Meaning: "requests ended by a stop string: their core span says aborted, their API span DEPARTED; they count as successes", Action: "nothing"},
	{Code: CodeNotRebuilt, Kind: "warning", Meaning: "steps.reconstructed, unknown and contradictions of extract.json are null: the run is too large to rebuild its batches in extract's memory, or they cannot be rebuilt", Action: "read fit.json's runs[].steps; fit rebuilds the batches of every run"},
	{Code: CodeTooManyBad, Kind: "error", Meaning: "the share of unreadable input is above --max-bad-frac", Action: "look at the first examples, or raise --max-bad-frac"},
	{Code: CodeDuplicateRunID, Kind: "error", Meaning: "two run folders have the same id", Action: "change `name` in one run.yaml, or use --exclude"},
	{Code: CodeNoRuns, Kind: "error", Meaning: "no folder with a run.yaml was found", Action: "write one: blis-train init"},
	{Code: CodeNoInput, Kind: "error", Meaning: "a file that run.yaml names does not exist", Action: "correct `files` in run.yaml"},
	{Code: CodeClockOffset, Kind: "warning", Meaning: "the offset between wall and monotonic clock moved by more than 10 ms within the run", Action: "do not mix wall-clock and monotonic stamps of this run"},
	{Code: CodeStepConflict, Kind: "warning", Meaning: "one step id was recorded twice with different stamps; the first record is kept", Action: "look for a second engine in the dump"},
	{Code: CodeUnjoinedObserved, Kind: "warning", Meaning: "client requests without a core span", Action: "nothing when they failed before the engine or journeys were sampled"},
}
