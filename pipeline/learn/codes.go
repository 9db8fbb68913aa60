package learn

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	ReplayUnlike    trace.Code = "replay_unlike"
	BadPoints       trace.Code = "bad_points"
	pointUnit       trace.Code = "bad_point_unit"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: BadPoints, Kind: "error", Meaning: "a file of measured points lacks a column, or a row has no valid number in one",
		Action: "add the column or mend the row; a point needs its concurrency, lengths, TTFT and TPOT"},
	{Code: pointUnit, Kind: "error", Meaning: "times of a measured point cannot be milliseconds: they lie below what reading the weights " +
		"takes, or far above",
		Action: "convert ttft_ms and tpot_ms to milliseconds"},
	{Code: ReplayUnlike, Kind: "warning",
		Meaning: "the replay of a load is unlike the measured server: TTFT is three times the measured one or a third of it, or the simulated " +
			"server runs out of KV blocks where the measured one did not and the level is left out",
		Action: "say what prompts share (--shared-prefix-tokens, or a client that records cached tokens); state the real KV cache " +
			"(kv_cache_dtype, or the engine's number of GPU blocks); compare run.yaml with the server"},
	{Code: NothingMeasured, Kind: "error", Meaning: "no request of a load has a measured time",
		Action: "save the benchmark with per-request times"},
}
