package forms

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	incomplete      trace.Code = "incomplete_benchmark"
	CodeUnknownFile trace.Code = "unknown_client_file"

	// Of what files of clients are known to get wrong (spec#client-traps).
	clientFile      trace.Code = "client_file"
	runContradicted trace.Code = "run_contradicted"
	CodeCapped      trace.Code = "capped_client" // arrivals followed the server: a replay of them informs only
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: incomplete, Kind: "drop", Meaning: "A benchmark has no rate, length or latency of successful requests, a row of GuideLLM's CSV " +
		"has another number of columns than its header and fits no arrangement of them, or a counter of /metrics fell between two " +
		"answers.",
		Action: "Look at the benchmark; it probably finished no request, or the server started again. benchmarks.json of " +
			"GuideLLM needs no repair."},
	{Code: CodeUnknownFile, Kind: "error", Meaning: "a file of a client or a benchmark is of none of the forms that are read, a table of " +
		"load levels lacks a column, a value in it is none, or a file is an export of another tool",
		Action: "take the way out that the message names; write client_requests.jsonl (docs/spec.md#wire-client), measure with vllm bench " +
			"serve, GuideLLM, AIPerf, genai-perf or inference-perf, or give a table of load levels in tokens, clients or requests/s, and ms"},
	{Code: clientFile, Kind: "finding", Meaning: "what a file of a client or a benchmark leaves out, counts in its own way or has to be put " +
		"right: order, columns, units, token counts, chunks, warm-up, clock, prefixes, the server's limits, levels in place of requests",
		Action: "Nothing, unless the message names what to record or to state in run.yaml, or the benchmark is then dropped for lack of it."},
	{Code: runContradicted, Kind: "warning", Meaning: "a client's file contradicts run.yaml: the header's limits, more tokens at once than " +
		"the KV blocks hold, or times of another unit",
		Action: "Correct run.yaml, or the unit: TraceV2 is in us, points are in ms, stamps in ns."},
	{Code: CodeCapped, Kind: "finding", Meaning: "the number of requests in flight has a flat maximum: the client waited for " +
		"answers, so arrivals followed the server",
		Action: "Raise the client's limit to measure open arrivals; recorded sends are replayed, and the verdict informs only."},
}
