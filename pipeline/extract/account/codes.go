package account

import "github.com/blis-train/blis-train/trace"

// Drops: every record that is read and not kept has one of these reasons; the
// last two also refuse a file.
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
	CodeNotOTLP          trace.Code = "not_otlp"
	CodeNotUTF8          trace.Code = "not_utf8"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeUnreadable, Kind: "drop", Meaning: "a line, message or compressed frame could not be decoded",
		Action: "look at file:line:col in --why-rejected; a cut last line is normal after a killed collector"},
	{Code: CodeLineTooLong, Kind: "drop", Meaning: "a line or message is longer than --max-line",
		Action: "raise --max-line when the file is trusted"},
	{Code: CodeExpansion, Kind: "drop", Meaning: "a compressed file expands beyond --max-expansion times its size",
		Action: "raise --max-expansion when the file is trusted"},
	{Code: CodeBadAttribute, Kind: "drop", Meaning: "an event carries an attribute of another type than the tracing fork writes",
		Action: "check the producer's version"},
	{Code: CodeMissingAttribute, Kind: "drop", Meaning: "an event lacks an attribute the tables need",
		Action: "check the producer's version"},
	{Code: CodeMissingID, Kind: "drop", Meaning: "a core span has no gen_ai.request.id",
		Action: "check the producer's version"},
	{Code: CodeBadEvent, Kind: "drop", Meaning: "a KV-cache event is not the positional array its class wants",
		Action: "check that the file is the JSONL subscriber's output"},
	{Code: CodeForeignScope, Kind: "drop", Meaning: "a span (with its events) of an instrumentation scope that is not vLLM's tracing",
		Action: "nothing: web-framework spans are expected"},
	{Code: CodeUnknownEvent, Kind: "drop", Meaning: "a span event whose name is not part of the schema",
		Action: "nothing, unless a new fork version added events"},
	{Code: CodeDuplicate, Kind: "drop", Meaning: "the same span (trace id and span id) with the same content was exported before",
		Action: "nothing: export retries repeat spans"},
	{Code: CodeConflict, Kind: "drop", Meaning: "a span with the ids of an earlier one but another content; the first one is kept",
		Action: "look for two producers that share ids"},
	{Code: CodeRepeatedEvent, Kind: "drop", Meaning: "the same journey event, summary or snapshot was recorded in two spans",
		Action: "nothing"},
	{Code: CodeWorkerCopy, Kind: "drop", Meaning: "a KV transfer event repeated by another tensor-parallel worker, merged into the first copy",
		Action: "nothing: one copy per worker is expected"},
	{Code: CodeSuperseded, Kind: "drop", Meaning: "a stock request span beside the API and core spans of the same trace",
		Action: "nothing: fork v0.3.0 writes both"},
	{Code: CodeIgnoredSignal, Kind: "drop", Meaning: "a metrics or logs object in a trace file",
		Action: "nothing"},
	{Code: CodeNulPadding, Kind: "drop", Meaning: "a block of NUL bytes, as a host crash leaves at the end of a file",
		Action: "nothing, but expect the last lines to be missing"},
	{Code: CodeNotOTLP, Kind: "error", Meaning: "a file is neither OTLP JSON nor length-prefixed protobuf",
		Action: "point at the collector file exporter's output"},
	{Code: CodeNotUTF8, Kind: "error", Meaning: "a file is UTF-16, OTLP JSON is UTF-8",
		Action: "convert it: iconv -f UTF-16 -t UTF-8"},
}
