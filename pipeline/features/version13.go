package features

import (
	"slices"
)

// lists13 are the slots of spec 1.3: those of 1.2, with what depends on the kind of a layer computed
// as a sum over layers (spec#layer-work). A released list never changes.
var lists13 = lists{
	beta: redefined(lists12.beta, []Feature{
		{
			Name: PrefillAttention, Kind: Time, Penalty: 1, Bound: hourS, Prompt: true,
			Formula: "prefill_attention_flops/group_peak_flops",
			Doc:     "time of prefill attention, indexes and recurrences at peak arithmetic rate, summed over layers",
			beta:    prefillAttention13,
		},
		{
			Name: "decode_attention", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "decode_attention_flops/group_peak_flops",
			Doc:     "time of decode attention, indexes and recurrences at peak arithmetic rate, summed over layers",
			beta:    decodeAttention13,
		},
		{
			Name: "kv_cache_read", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "cache_read_bytes/group_peak_bandwidth",
			Doc:     "time to read what the layers keep of tokens once, and recurrent states",
			beta:    kvCacheRead13,
		},
		{
			Name: "moe_activation", Kind: Ratio, Penalty: 10, Bound: 2,
			Formula: "expert_layers(scheduled_tokens)*2/blocks",
			Doc:     "share of experts touched by the step",
			beta:    moeActivation13,
		},
		{
			Name: "gqa_efficiency", Kind: Constant, Penalty: 100, Bound: 1,
			Formula: "kv_head_share",
			Doc:     "mean share of key heads in query heads, over layers that cache",
			beta:    gqaEfficiency,
		},
		{
			Name: FixedStepOverhead, Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "pos(scheduled_tokens)*blocks*5e-6",
			Doc:     "nominal 5 us per mixer and ffn of every non-empty step",
			beta:    fixedStepOverhead11,
		},
		{
			Name: "expert_load", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "experts_touched(scheduled_tokens)*1e-6",
			Doc:     "nominal 1 us for each expert touched by the step",
			beta:    expertLoad13,
		},
	}),
	alpha: redefined(lists12.alpha, []Feature{
		{
			Name: "admission_compute", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "prompt_tokens*flops_body_per_token/group_peak_linear_flops + " +
				"pos(prompt_tokens)*(flops_lm_head_per_seq/group_peak_flops + " +
				"prompt_attention_s(prompt_tokens))",
			Doc:   "time of the whole prompt at peak arithmetic rate",
			alpha: admissionCompute13,
		},
	}),
}

// redefined returns the features, with those replaced that a feature of the same name redefines. Every name
// in newer has to be among them.
func redefined(features, newer []Feature) []Feature {
	out := slices.Clone(features)
	for _, f := range newer {
		at := slices.IndexFunc(out, func(old Feature) bool { return old.Name == f.Name })
		out[at] = f
	}
	return out
}
