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

// codeJudgedOnTraining says that a predictor is judged on what it was trained on.
const codeJudgedOnTraining trace.Code = "judged_on_training"

// codeOtherColumns says that there are columns which no router can feed.
const codeOtherColumns trace.Code = "other_columns"
