package sweep

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	BadSweep   trace.Code = "bad_sweep"
	incomplete trace.Code = "incomplete_benchmark"
	crooked    trace.Code = "misaligned_benchmark"
	realigned  trace.Code = "realigned_benchmarks"
	NoMean     trace.Code = "no_mean_ttft"

	metricsReset trace.Code = "metrics_reset"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: BadSweep, Kind: "error", Meaning: "A benchmark sweep is neither GuideLLM's JSON or CSV nor a table with our columns.",
		Action: "Give guidellm's benchmarks.json or benchmarks.csv, or a CSV with the columns the message names."},
	{Code: metricsReset, Kind: "drop", Meaning: "A counter of /metrics fell between two answers.",
		Action: "Nothing: the server started again."},
	{Code: incomplete, Kind: "drop", Meaning: "A benchmark has no rate, length or latency of successful requests.",
		Action: "Look at the benchmark; it probably finished no request."},
	{Code: crooked, Kind: "drop", Meaning: "A row of GuideLLM's CSV has another number of columns than its header, and its numbers fit " +
		"no arrangement of them.", Action: "Use benchmarks.json of the same run, or GuideLLM v0.7.0 or later."},
	{Code: realigned, Kind: "finding", Meaning: "Rows of a GuideLLM CSV had more columns than their header (a fault before v0.7.0) and " +
		"were put right by the identities their numbers obey.", Action: "Nothing; benchmarks.json of the same run needs no repair."},
	{Code: NoMean, Kind: "finding", Meaning: "A benchmark's mean TTFT is no latency (GuideLLM v0.3 counts requests without a first token " +
		"from the epoch).", Action: "Use the medians, which is the default."},
}
