package forms

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	BadSweep   trace.Code = "bad_sweep"
	incomplete trace.Code = "incomplete_benchmark"
	remark     trace.Code = "benchmark_remark"
)

// Codes describes every code of this package.
var SweepCodes = []trace.CodeEntry{
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
}
