package forms

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	BadSweep   trace.Code = "bad_sweep"
	incomplete trace.Code = "incomplete_benchmark"
	remark     trace.Code = "benchmark_remark"

	CodeUnknownFile trace.Code = "unknown_client_file"
	CodeForeign     trace.Code = "foreign_export" // refuses a file of another tool

	// Of what files of clients are known to get wrong (spec#client-traps).
	clientFile      trace.Code = "client_file"
	runContradicted trace.Code = "run_contradicted"
	CodeCapped      trace.Code = "capped_client" // arrivals followed the server: a replay of them informs only
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: BadSweep, Kind: "error", Meaning: "A benchmark's summary is of no form that is read, or a table of load levels lacks a column, " +
		"or a value in it is none.",
		Action: "Give the summary of GuideLLM, vllm bench serve, AIPerf, genai-perf or inference-perf, or a table with the columns the " +
			"message names, in tokens, clients or requests/s, and milliseconds."},
	{Code: incomplete, Kind: "drop", Meaning: "A benchmark has no rate, length or latency of successful requests, a row of GuideLLM's CSV " +
		"has another number of columns than its header and fits no arrangement of them, or a counter of /metrics fell between two " +
		"answers.",
		Action: "Look at the benchmark; it probably finished no request, or the server started again. benchmarks.json of " +
			"GuideLLM needs no repair."},
	{Code: remark, Kind: "finding", Meaning: "Something in a benchmark is not used as written: columns of a GuideLLM CSV put right by the " +
		"identities their numbers obey, a time per output token that contradicts the latencies, a unit that nobody here knows, " +
		"columns that are not read, or a mean TTFT that is no latency (GuideLLM v0.3 counts requests without a first token from the epoch).",
		Action: "Nothing, unless the benchmark is then dropped for lack of it; medians are the default."},
	{Code: CodeUnknownFile, Kind: "error", Meaning: "a client file is of none of the forms that are read",
		Action: "write client_requests.jsonl (docs/spec.md#wire-client), or measure with vllm bench serve or GuideLLM"},
	{Code: CodeForeign, Kind: "error", Meaning: "a file is an export of another tool, whose form is not read",
		Action: "take the way out that the message names"},
	{Code: clientFile, Kind: "finding", Meaning: "what a client's file leaves out or counts in its own way: order, columns, token counts, " +
		"chunks, warm-up, clock, prefixes, the server's limits, levels in place of requests",
		Action: "Nothing, unless the message names what to record or to state in run.yaml."},
	{Code: runContradicted, Kind: "warning", Meaning: "a client's file contradicts run.yaml: the header's limits, more tokens at once than " +
		"the KV blocks hold, or times of another unit",
		Action: "Correct run.yaml, or the unit: TraceV2 is in us, points are in ms, stamps in ns."},
	{Code: CodeCapped, Kind: "finding", Meaning: "the number of requests in flight has a flat maximum: the client waited for " +
		"answers, so arrivals followed the server",
		Action: "Raise the client's limit to measure open arrivals; recorded sends are replayed, and the verdict informs only."},
}
