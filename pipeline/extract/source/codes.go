package source

import "github.com/blis-train/blis-train/trace"

// Drops: every record that is read and not kept has one of these reasons; the
// last one also refuses a file.
const (
	CodeUnreadable    trace.Code = "unreadable"
	CodeOverLimit     trace.Code = "over_limit"
	CodeBadRecord     trace.Code = "bad_record"
	CodeNotUsed       trace.Code = "not_used"
	CodeDuplicate     trace.Code = "duplicate"
	CodeConflict      trace.Code = "duplicate_conflict"
	CodeIgnoredSignal trace.Code = "ignored_signal"
	CodeNulPadding    trace.Code = "nul_padding"
	CodeNotOTLP       trace.Code = "not_otlp"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: CodeUnreadable, Kind: "drop", Meaning: "a line, message or compressed frame could not be decoded",
		Action: "look at file:line:col in --why-rejected; a cut last line is normal after a killed collector"},
	{Code: CodeOverLimit, Kind: "drop", Meaning: "a line or message is longer than --max-line, or a compressed file expands beyond " +
		"--max-expansion times its size",
		Action: "raise the option that the message names when the file is trusted"},
	{Code: CodeBadRecord, Kind: "drop", Meaning: "an event lacks an attribute the tables need or has one of another type, a core span has " +
		"no gen_ai.request.id, or a KV-cache event is not the positional array its class wants",
		Action: "check the producer's version; a KV file is the JSONL subscriber's output"},
	{Code: CodeNotUsed, Kind: "drop", Meaning: "a span of an instrumentation scope that is not vLLM's tracing, or an event that is not " +
		"part of the schema",
		Action: "nothing: web-framework spans are expected; a new fork version may have added events"},
	{Code: CodeDuplicate, Kind: "drop", Meaning: "the same content was recorded before: a repeated export, an event in two spans, a " +
		"KV event of another tensor-parallel worker, a stock span beside the API and core spans of its trace",
		Action: "nothing: export retries and workers repeat records"},
	{Code: CodeConflict, Kind: "drop", Meaning: "a span has the ids of an earlier one but another content, or a step id has other stamps; " +
		"the first one is kept",
		Action: "look for two producers that share ids, or a second engine in the dump"},
	{Code: CodeIgnoredSignal, Kind: "drop", Meaning: "a metrics or logs object in a trace file",
		Action: "nothing"},
	{Code: CodeNulPadding, Kind: "drop", Meaning: "a block of NUL bytes, as a host crash leaves at the end of a file",
		Action: "nothing, but expect the last lines to be missing"},
	{Code: CodeNotOTLP, Kind: "error", Meaning: "a file is neither OTLP JSON nor length-prefixed protobuf, or is UTF-16",
		Action: "point at the collector file exporter's output; convert text with iconv -f UTF-16 -t UTF-8"},
}
