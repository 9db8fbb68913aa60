package predictor

import "github.com/blis-train/blis-train/trace"

// Reason is why a request is no row. docs/predictor.md says what to do about each.
type Reason string

// Reasons in the order they are tried.
const (
	noArrival          Reason = "no_arrival"
	noEngineStamps     Reason = "no_engine_stamps"
	noPromptLength     Reason = "no_prompt_length"
	aborted            Reason = "request_aborted"
	failed             Reason = "request_failed"
	noFirstToken       Reason = "no_first_token"
	noDeparture        Reason = "no_departure"
	negativeLatency    Reason = "negative_latency"
	warmUp             Reason = "request_in_warm_up"
	saturated          Reason = "request_while_saturated"
	incompleteJourneys Reason = "incomplete_journeys"
	noState            Reason = "no_state_before"
	staleState         Reason = "stale_state"
	noKVState          Reason = "no_kv_state"
	noPace             Reason = "no_pace_yet"
	noBlockHashes      Reason = "no_block_hashes"
	noCachedTokens     Reason = "no_cached_tokens"
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
	{Code: twoClocks, Kind: "warning", Meaning: "arrivals and engine stamps are on two clocks; the smallest pick-up wait of the run was " +
		"taken as 0",
		Action: "record both on one clock"},
	{Code: LeakingScore, Kind: "finding", Meaning: "the share of the prompt in the cache was measured after the decision, so no router " +
		"can know it",
		Action: "use --prefix-score index for what is to be exported"},
	{Code: OtherColumns, Kind: "finding", Meaning: "the exported trees read columns that llm-d's server does not feed",
		Action: "make the rows with --features llmd"},
}
