package sweep

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	BadSweep   trace.Code = "bad_sweep"
	incomplete trace.Code = "incomplete_benchmark"
	crooked    trace.Code = "misaligned_benchmark"
	realigned  trace.Code = "realigned_benchmarks"
	NoMean     trace.Code = "no_mean_ttft"
	BadLevels  trace.Code = "bad_levels"
	ownTPOT    trace.Code = "tpot_recomputed"
	otherUnit  trace.Code = "unknown_unit"

	metricsReset  trace.Code = "metrics_reset"
	unusedColumns trace.Code = "unused_columns"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: BadSweep, Kind: "error", Meaning: "A benchmark's summary is of no form that is read.",
		Action: "Give the summary of GuideLLM, vllm bench serve, AIPerf, genai-perf or inference-perf, or a CSV with the " +
			"columns the message names."},
	{Code: BadLevels, Kind: "error", Meaning: "A table of load levels lacks a column, or a value in it is none.",
		Action: "Correct the table: tokens, clients or requests/s, milliseconds."},
	{Code: unusedColumns, Kind: "finding", Meaning: "A table of load levels has columns that are not read.",
		Action: "Take other models, devices and degrees of parallelism out of the table; lengths, loads and times have names of their own."},
	{Code: ownTPOT, Kind: "finding", Meaning: "A benchmark's time per output token contradicts its latency, TTFT and tokens: " +
		"it divides by chunks of the stream, of which a token may have two.",
		Action: "Nothing; what the latencies say is used."},
	{Code: otherUnit, Kind: "finding", Meaning: "A metric of a benchmark has a unit that nobody here knows.",
		Action: "Nothing, unless the benchmark is then dropped for lack of it."},
	{Code: metricsReset, Kind: "drop", Meaning: "A counter of /metrics fell between two answers.",
		Action: "Nothing: the server started again."},
	{Code: incomplete, Kind: "drop", Meaning: "A benchmark has no rate, length or latency of successful requests.",
		Action: "Look at the benchmark; it probably finished no request."},
	{Code: crooked, Kind: "drop", Meaning: "A row of GuideLLM's CSV has another number of columns than its header, and its " +
		"numbers fit no arrangement of them.",
		Action: "Use benchmarks.json of the same run, or GuideLLM v0.7.0 or later."},
	{Code: realigned, Kind: "finding", Meaning: "Rows of a GuideLLM CSV had more columns than their header (a fault before " +
		"v0.7.0) and were put right by the identities their numbers obey.",
		Action: "Nothing; benchmarks.json of the same run needs no repair."},
	{Code: NoMean, Kind: "finding", Meaning: "A benchmark's mean TTFT is no latency (GuideLLM v0.3 counts requests without a " +
		"first token from the epoch).",
		Action: "Use the medians, which is the default."},
}
