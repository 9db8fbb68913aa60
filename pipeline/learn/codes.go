package learn

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	ReplayUnlike    trace.Code = "replay_unlike"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: ReplayUnlike, Kind: "warning",
		Meaning: "the replay of a load is unlike the measured server: TTFT is three times the measured one or a third of it, or the simulated " +
			"server runs out of KV blocks where the measured one did not and the level is left out",
		Action: "say what prompts share (--shared-prefix-tokens, or a client that records cached tokens); state the real KV cache " +
			"(kv_cache_dtype, or the engine's number of GPU blocks); compare run.yaml with the server"},
	{Code: NothingMeasured, Kind: "error", Meaning: "no request of a load has a measured time",
		Action: "save the benchmark with per-request times"},
}
