package predictor

// This file lists the columns of a row: the inputs of a predictor and its targets.

import (
	"math"
	"reflect"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/trace"
)

// Table is the name of the table of rows in a run's folder.
const Table = "predictor_rows"

// Row is one request at its decision time. The fields from is_queued to num_tokens_generated have the names and the
// order of llm-d's latency predictor; docs/predictor.md compares the two
// definitions.
type Row struct {
	RequestID  string             `col:"request_id" doc:"internal request id (API id of a stock span, the client's id of a client file)"`
	DecisionNs int64              `col:"decision_ns" unit:"ns" doc:"decision time: arrival at the API"`
	Phase      trace.Opt[string]  `col:"phase" doc:"phase of run.yaml that holds the arrival"`
	Stage      trace.Opt[int64]   `col:"stage" doc:"load stage of the run, counted from 0 in time; null when it cannot be told"`
	State      string             `col:"state" doc:"step or journey: where waiting and running come from"`
	StateAgeUs trace.Opt[float64] `col:"state_age_us" unit:"us" doc:"decision minus start of the last recorded step; null without one"`

	IsQueued              int64   `col:"is_queued" doc:"1 when requests wait, else 0"`
	KVCachePercentage     float64 `col:"kv_cache_percentage" doc:"KV cache in use, 0..1 (a ratio despite the name)"`
	InputTokenLength      int64   `col:"input_token_length" unit:"tokens" doc:"prompt, cached tokens included"`
	NumRequestWaiting     int64   `col:"num_request_waiting" unit:"requests" doc:"requests in the engine's waiting queue"`
	NumRequestRunning     int64   `col:"num_request_running" unit:"requests" doc:"running_engine, or running_inflight with --features llmd"`
	PrefillTokensInFlight int64   `col:"prefill_tokens_in_flight" unit:"tokens" doc:"uncached prompt tokens of other requests that arrived and have no first token"`
	DecodeTokensInFlight  int64   `col:"decode_tokens_in_flight" unit:"tokens" doc:"decode_tokens_resident, or 0 with --features llmd"`
	EncoderMatchedSize    int64   `col:"encoder_matched_size" doc:"0: text only"`
	EncoderInputSize      int64   `col:"encoder_input_size" doc:"0: text only"`
	PrefixCacheScore      float64 `col:"prefix_cache_score" doc:"prefix_score_index or prefix_score_actual, as asked for"`
	EffectiveInputTokens  float64 `col:"effective_input_tokens" unit:"tokens" doc:"(1 - prefix_cache_score) * input_token_length"`
	PrefillScoreBucket    int64   `col:"prefill_score_bucket" doc:"min(3, floor(4 * prefix_cache_score))"`
	PodTypeCat            string  `col:"pod_type_cat" doc:"empty: one engine does prefill and decode"`
	NumTokensGenerated    int64   `col:"num_tokens_generated" unit:"tokens" doc:"0 at the decision"`

	RunningEngine          int64              `col:"running_engine" unit:"requests" doc:"requests in the engine's running batch"`
	RunningInflight        int64              `col:"running_inflight" unit:"requests" doc:"other requests that arrived and have not departed"`
	OwnUncachedTokens      int64              `col:"own_uncached_tokens" unit:"tokens" doc:"prompt tokens expected to be computed, at least 1"`
	TokensWaitingAhead     int64              `col:"tokens_waiting_ahead" unit:"tokens" doc:"prompt tokens to compute before the request's own, beyond the running step"`
	RequestsAhead          int64              `col:"requests_ahead" unit:"requests" doc:"requests those belong to"`
	StepPrefillTokens      int64              `col:"step_prefill_tokens" unit:"tokens" doc:"prompt tokens of the running step"`
	StepPrefillRequests    int64              `col:"step_prefill_requests" unit:"requests" doc:"requests whose prompt ends in the running step"`
	NextPrefillTokens      int64              `col:"next_step_prefill_tokens" unit:"tokens" doc:"asynchronous scheduling: prompt tokens of the step formed behind the running one"`
	NextPrefillRequests    int64              `col:"next_step_prefill_requests" unit:"requests" doc:"requests whose prompt ends in that step"`
	DecodeBatch            int64              `col:"decode_batch" unit:"requests" doc:"requests past their first token"`
	DecodeTokensResident   int64              `col:"decode_tokens_resident" unit:"tokens" doc:"prompt and output so far of those"`
	MeanContext            float64            `col:"mean_context" unit:"tokens" doc:"decode_tokens_resident / decode_batch, 0 without one"`
	FreeBlocks             int64              `col:"free_blocks" unit:"blocks" doc:"free KV blocks"`
	SinceStepUs            trace.Opt[float64] `col:"since_step_us" unit:"us" doc:"since the last step started; null unless every step is recorded"`
	BetterClassTokensAhead int64              `col:"better_class_tokens_ahead" unit:"tokens" doc:"of prefill_tokens_in_flight, those of better priority"`
	RecentTokensPerS       float64            `col:"recent_prompt_tokens_per_s" unit:"tokens/s" doc:"uncached prompt tokens of other requests that arrived in the last 20 s"`
	RecentPromptsPerS      float64            `col:"recent_prompts_per_s" unit:"1/s" doc:"other requests that arrived in the last 20 s"`
	MeanOutputTokens       trace.Opt[float64] `col:"mean_output_tokens" unit:"tokens" doc:"mean output of the last 512 finished requests; null before the first"`

	PrefixScoreIndex  trace.Opt[float64] `col:"prefix_score_index" doc:"share of the prompt found in an index of cached blocks at the decision, in whole blocks"`
	PrefixScoreActual trace.Opt[float64] `col:"prefix_score_actual" doc:"share of the prompt cached at first admission, in whole blocks; known only after the decision"`

	TTFTMs       float64            `col:"ttft_ms" unit:"ms" doc:"first token - arrival; 0 where --target e2e knows none"`
	TPOTMs       trace.Opt[float64] `col:"tpot_ms" unit:"ms" doc:"(last token - first token) / (output tokens - 1); null below two"`
	E2EMs        trace.Opt[float64] `col:"e2e_ms" unit:"ms" doc:"departure - arrival; null when the departure is not recorded"`
	OutputTokens trace.Opt[int64]   `col:"output_tokens" unit:"tokens" doc:"tokens produced"`
	DepartedNs   trace.Opt[int64]   `col:"departed_ns" unit:"ns" doc:"departure; the last recorded stamp without one"`
	EndWaiting   trace.Opt[int64]   `col:"end_num_request_waiting" unit:"requests" doc:"waiting requests when the last token came: what llm-d pairs with TPOT"`
	EndRunning   trace.Opt[int64]   `col:"end_num_request_running" unit:"requests" doc:"running requests then"`
	EndKV        trace.Opt[float64] `col:"end_kv_cache_percentage" doc:"KV cache in use then"`
}

// Feature is one column of a row as models use it.
type Feature struct {
	forest.Column // Min and Max are set after training (columnsFor)
	Integer       bool
	of            func(*Row) float64 // the column's value; NaN when unknown
}

// The columns of llm-d's models, in their order (llm-d-latency-predictor 04e44cd,
// training/training_server.py). Extra columns are those that only traces have (--features full).
var (
	llmdTTFT = []string{
		"is_queued",
		"kv_cache_percentage",
		"input_token_length",
		"num_request_waiting",
		"num_request_running",
		"prefill_tokens_in_flight",
		"decode_tokens_in_flight",
		"encoder_matched_size",
		"encoder_input_size",
		"prefix_cache_score",
		"effective_input_tokens",
		"prefill_score_bucket",
		"pod_type_cat",
	}
	llmdTPOT = []string{
		"is_queued",
		"kv_cache_percentage",
		"input_token_length",
		"num_request_waiting",
		"num_request_running",
		"prefill_tokens_in_flight",
		"decode_tokens_in_flight",
		"num_tokens_generated",
		"pod_type_cat",
	}
	extra = []string{
		"own_uncached_tokens",
		"tokens_waiting_ahead",
		"requests_ahead",
		"step_prefill_tokens",
		"step_prefill_requests",
		"next_step_prefill_tokens",
		"next_step_prefill_requests",
		"decode_batch",
		"mean_context",
		"free_blocks",
		"since_step_us",
		"better_class_tokens_ahead",
		"recent_prompt_tokens_per_s",
		"recent_prompts_per_s",
		"mean_output_tokens",
	}
)

// categories are the columns that llm-d's models have as pandas categories, which are not numbers. Our
// trees never split on one (newTrainingColumns leaves it 0).
var categories = map[string]bool{"prefill_score_bucket": true, "pod_type_cat": true}

// featuresOf returns the columns of the models for TPOT (or else for TTFT and E2E), with --features
// llmd or full.
func featuresOf(tpot bool, features string) []Feature {
	names := llmdTTFT
	if tpot {
		names = llmdTPOT
	}
	if features == featuresFull {
		names = slices.Concat(names, extra)
	}
	out := make([]Feature, len(names))
	for i, name := range names {
		out[i] = featureNamed(name)
	}
	return out
}

// featureNamed returns the feature for the field of Row with that column name: the description from
// its tags, the value by reflection.
func featureNamed(name string) Feature {
	t := reflect.TypeFor[Row]()
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if tag.Get("col") != name {
			continue
		}
		f := Feature{
			Column: forest.Column{
				Name:       name,
				Unit:       tag.Get("unit"),
				Definition: tag.Get("doc"),
				IsCategory: categories[name],
			},
			Integer: t.Field(i).Type.Kind() == reflect.Int64,
		}
		switch reflect.Zero(t.Field(i).Type).Interface().(type) {
		case int64:
			f.of = func(r *Row) float64 { return float64(reflect.ValueOf(r).Elem().Field(i).Int()) }
		case float64:
			f.of = func(r *Row) float64 { return reflect.ValueOf(r).Elem().Field(i).Float() }
		case trace.Opt[float64]:
			f.of = func(r *Row) float64 {
				return reflect.ValueOf(r).Elem().Field(i).Interface().(trace.Opt[float64]).Or(math.NaN())
			}
		case string: // pod_type_cat has one value: one engine does both prefill and decode
			f.of = func(*Row) float64 { return 0 }
		default:
			panic("predictor: column " + name + " is no feature")
		}
		return f
	}
	panic("predictor: no column " + name)
}
