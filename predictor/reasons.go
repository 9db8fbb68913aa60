package predictor

// This file lists why requests are no rows.

import (
	"github.com/blis-train/blis-train/trace"
)

// reason is the code of why a request is not a row; docs/predictor.md explains each.
type reason string

// codeTwoClocks is the warning that arrivals were moved to the engine's clock.
const codeTwoClocks trace.Code = "decision_two_clocks"

// codeOtherColumns is the warning that rows have columns which no router can provide.
const codeOtherColumns trace.Code = "other_columns"

// Reasons why a request is not a row, in the order in which they are tried.
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
