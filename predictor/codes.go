package predictor

import "github.com/blis-train/blis-train/trace"

// reason is why a request is no row. docs/predictor.md says what to do about each.
type reason string

// Reasons in the order they are tried.
const (
	noArrival          reason = "no_arrival"
	noEngineStamps     reason = "no_engine_stamps"
	noPromptLength     reason = "no_prompt_length"
	aborted            reason = "request_aborted"
	failed             reason = "request_failed"
	noFirstToken       reason = "no_first_token"
	noDeparture        reason = "no_departure"
	negativeLatency    reason = "negative_latency"
	warmUp             reason = "request_in_warm_up"
	saturated          reason = "request_while_saturated"
	incompleteJourneys reason = "incomplete_journeys"
	noState            reason = "no_state_before"
	staleState         reason = "stale_state"
	noKVState          reason = "no_kv_state"
	noPace             reason = "no_pace_yet"
	noBlockHashes      reason = "no_block_hashes"
	noCachedTokens     reason = "no_cached_tokens"
)

// codeTwoClocks says that arrivals were moved to the engine's clock.
const codeTwoClocks trace.Code = "decision_two_clocks"

// codeLeakingScore says that a column was measured after the decision.
const codeLeakingScore trace.Code = "prefix_score_leaks"

// codeJudgedOnTraining says that a predictor is judged on what it was trained on.
const codeJudgedOnTraining trace.Code = "judged_on_training"

// codeOtherColumns says that an export has columns its reader does not feed.
const codeOtherColumns trace.Code = "other_columns"

// Codes describes the codes of this package.
var Codes = []trace.CodeEntry{
	{Code: codeJudgedOnTraining, Kind: "warning", Meaning: "a predictor was judged on a recording that it was trained on",
		Action: "evaluate it on other runs; predictor fit holds rows out by itself"},
	{Code: codeTwoClocks, Kind: "warning", Meaning: "arrivals and engine stamps are on two clocks; the smallest pick-up wait of the run was " +
		"taken as 0",
		Action: "record both on one clock"},
	{Code: codeLeakingScore, Kind: "finding", Meaning: "the share of the prompt in the cache was measured after the decision, so no router " +
		"can know it",
		Action: "use --prefix-score index for what is to be exported"},
	{Code: codeOtherColumns, Kind: "finding", Meaning: "the exported trees read columns that llm-d's server does not feed",
		Action: "make the rows with --features llmd"},
}
