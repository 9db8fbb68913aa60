package learn

import "github.com/blis-train/blis-train/trace"

// Codes of this package.
const (
	NothingMeasured trace.Code = "nothing_measured"
	CacheNotFull    trace.Code = "cache_not_full"
	ReplayUnlike    trace.Code = "replay_unlike"
)

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: ReplayUnlike, Kind: "warning",
		Meaning: "TTFT of a load is three times the measured one in the replay of what was learned from it, or a third of it",
		Action:  "say what prompts share: --shared-prefix-tokens, or a client that records cached tokens; compare run.yaml with the server"},
	{Code: CacheNotFull, Kind: "finding",
		Meaning: "the simulated server runs out of KV blocks under a load level, the measured one did not: the level is not fitted",
		Action:  "state the real KV cache: kv_cache_dtype, or the engine's number of GPU blocks"},
	{Code: NothingMeasured, Kind: "error", Meaning: "no request of a load has a measured time",
		Action: "save the benchmark with per-request times"},
}
