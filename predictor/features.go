package predictor

import (
	"math"
	"reflect"

	"github.com/blis-train/blis-train/trace"
)

// Feature is one column of a row as models see it.
type Feature struct {
	Name       string
	Unit       string
	Definition string
	Category   bool // no number: models give it a constant
	Integer    bool
	of         func(*Row) float64
}

// Of is the column's value; NaN when unknown.
func (f *Feature) Of(r *Row) float64 { return f.of(r) }

// The columns of llm-d's models, in their order (llm-d-latency-predictor 04e44cd,
// training/training_server.py), and what the traces offer beside them.
var (
	llmdTTFT = []string{"is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting", "num_request_running",
		"prefill_tokens_in_flight", "decode_tokens_in_flight", "encoder_matched_size", "encoder_input_size", "prefix_cache_score",
		"effective_input_tokens", "prefill_score_bucket", "pod_type_cat"}
	llmdTPOT = []string{"is_queued", "kv_cache_percentage", "input_token_length", "num_request_waiting", "num_request_running",
		"prefill_tokens_in_flight", "decode_tokens_in_flight", "num_tokens_generated", "pod_type_cat"}
	extra = []string{"own_uncached_tokens", "tokens_waiting_ahead", "requests_ahead", "step_prefill_tokens", "step_prefill_requests",
		"next_step_prefill_tokens", "next_step_prefill_requests", "decode_batch",
		"mean_context", "free_blocks", "since_step_us", "better_class_tokens_ahead", "recent_prompt_tokens_per_s", "recent_prompts_per_s",
		"mean_output_tokens"}
)

// categories are the columns that llm-d's models hold as pandas categories.
var categories = map[string]bool{"prefill_score_bucket": true, "pod_type_cat": true}

// featuresOf are the columns of a target's models.
func featuresOf(tpot bool, features string) []Feature {
	names := llmdTTFT
	if tpot {
		names = llmdTPOT
	}
	var out []Feature
	for _, name := range names {
		out = append(out, feature(name))
	}
	if features == featuresFull {
		for _, name := range extra {
			out = append(out, feature(name))
		}
	}
	return out
}

// feature reads a column's description and place off the struct of a row.
func feature(name string) Feature {
	t := reflect.TypeFor[Row]()
	for i := range t.NumField() {
		tag := t.Field(i).Tag
		if tag.Get("col") != name {
			continue
		}
		f := Feature{Name: name, Unit: tag.Get("unit"), Definition: tag.Get("doc"), Category: categories[name],
			Integer: t.Field(i).Type.Kind() == reflect.Int64}
		switch reflect.Zero(t.Field(i).Type).Interface().(type) {
		case int64:
			f.of = func(r *Row) float64 { return float64(reflect.ValueOf(r).Elem().Field(i).Int()) }
		case float64:
			f.of = func(r *Row) float64 { return reflect.ValueOf(r).Elem().Field(i).Float() }
		case trace.Opt[float64]:
			f.of = func(r *Row) float64 {
				if v := reflect.ValueOf(r).Elem().Field(i).Interface().(trace.Opt[float64]); v.OK {
					return v.V
				}
				return math.NaN()
			}
		default: // pod_type_cat: one engine does everything
			f.of = func(*Row) float64 { return 0 }
		}
		return f
	}
	panic("decision: no column " + name)
}
