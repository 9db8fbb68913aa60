package decision

import "github.com/blis-train/blis-train/trace"

// Reasons for which a request is no row, in the order they are tried.
const (
	noArrival          trace.Code = "no_arrival"
	noEngineStamps     trace.Code = "no_engine_stamps"
	noPromptLength     trace.Code = "no_prompt_length"
	aborted            trace.Code = "request_aborted"
	failed             trace.Code = "request_failed"
	warmUp             trace.Code = "request_in_warm_up"
	saturated          trace.Code = "request_while_saturated"
	noFirstToken       trace.Code = "no_first_token"
	negativeLatency    trace.Code = "negative_latency"
	incompleteJourneys trace.Code = "incomplete_journeys"
	noState            trace.Code = "no_state_before"
	staleState         trace.Code = "stale_state"
	noKVState          trace.Code = "no_kv_state"
	noPace             trace.Code = "no_pace_yet"
	noBlockHashes      trace.Code = "no_block_hashes"
	noCachedTokens     trace.Code = "no_cached_tokens"
)

// twoClocks says that arrivals were moved to the engine's clock.
const twoClocks trace.Code = "decision_two_clocks"

// LeakingScore says that a column was measured after the decision.
const LeakingScore trace.Code = "prefix_score_leaks"

// JudgedOnTraining says that a predictor is judged on what it was trained on.
const JudgedOnTraining trace.Code = "judged_on_training"

// OtherColumns says that an export has columns its reader does not feed.
const OtherColumns trace.Code = "other_columns"

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: JudgedOnTraining, Kind: "warning", Meaning: "a predictor was judged on a recording that it was trained on",
		Action: "evaluate it on other runs; predictor fit holds rows out by itself"},
	{Code: noArrival, Kind: "drop", Meaning: "the request has no arrival stamp, so its decision time is unknown",
		Action: "record API spans (--enable-journey-tracing) for every request"},
	{Code: noEngineStamps, Kind: "drop", Meaning: "nothing says when the engine scheduled the request: no core span, no stock span, or a " +
		"client file alone",
		Action: "trace the engine; a client file alone cannot show the engine's state"},
	{Code: noPromptLength, Kind: "drop", Meaning: "the prompt's length is unknown", Action: "record usage or journey events of the request"},
	{Code: aborted, Kind: "drop", Meaning: "the client gave the request up", Action: "nothing to do; it still counts as load for the others"},
	{Code: failed, Kind: "drop", Meaning: "the request failed or its end is not recorded",
		Action: "nothing to do; it still counts as load for the others"},
	{Code: warmUp, Kind: "drop", Meaning: "the request arrived in the warmup phase, or without one before the 10th recorded step ended",
		Action: "nothing to do; a phase called warmup in run.yaml decides what counts"},
	{Code: saturated, Kind: "drop", Meaning: "the request arrived while the run was saturated",
		Action: "give --keep-saturated to learn from overload"},
	{Code: noFirstToken, Kind: "drop", Meaning: "the request's first token is not recorded", Action: "raise OTEL_SPAN_EVENT_COUNT_LIMIT"},
	{Code: negativeLatency, Kind: "drop", Meaning: "the first token is stamped before the arrival",
		Action: "look at the clocks of API and engine"},
	{Code: incompleteJourneys, Kind: "drop", Meaning: "requests in flight cannot be counted, because journeys were sampled or lost",
		Action: "record with --journey-tracing-sample-rate 1.0"},
	{Code: noState, Kind: "drop", Meaning: "no step was recorded before the decision",
		Action: "nothing to do for the first requests of a run"},
	{Code: staleState, Kind: "drop", Meaning: "the last recorded step is older than 250 ms and steps are missing in between",
		Action: "record with --step-tracing-sample-rate 1.0"},
	{Code: noKVState, Kind: "drop", Meaning: "the use of the KV cache is unknown: no step is recorded and the number of KV blocks " +
		"neither given nor derivable",
		Action: "set vllm.kv_blocks_total_gpu in run.yaml"},
	{Code: noPace, Kind: "drop", Meaning: "tokens in the KV cache cannot be counted yet: no step numbers are recorded and no request " +
		"has finished",
		Action: "nothing to do for the first requests of a run"},
	{Code: noBlockHashes, Kind: "drop", Meaning: "prefix caching is on and nothing says which blocks the prompt has, so the match in an " +
		"index is unknown",
		Action: "record KV events or prefix groups, or give --prefix-score actual (known only after the decision)"},
	{Code: noCachedTokens, Kind: "drop", Meaning: "prefix caching is on and the hit found at admission is not recorded",
		Action: "record snapshots (--step-tracing-rich-subsample-rate 1.0)"},
	{Code: twoClocks, Kind: "warning", Meaning: "arrivals and engine stamps are on two clocks; the smallest pick-up wait of the run was " +
		"taken as 0",
		Action: "record both on one clock"},
	{Code: LeakingScore, Kind: "finding", Meaning: "the share of the prompt in the cache was measured after the decision, so no router " +
		"can know it",
		Action: "use --prefix-score index for what is to be exported"},
	{Code: OtherColumns, Kind: "finding", Meaning: "the exported trees read columns that llm-d's server does not feed",
		Action: "make the rows with --features llmd"},
}
