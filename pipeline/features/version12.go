package features

import "slices"

// lists12 are the slots of spec 1.2: those of 1.1 and four more of a step, which the library's
// kernel tables need to be expressed as coefficients. A released list never changes.
var lists12 = lists{
	beta: slices.Concat(lists11.beta, []Feature{
		{
			Name: "weight_load_hidden", Kind: Time, Penalty: 1, Bound: hourS, Prompt: true,
			Formula: "min(prefill_linear_compute, weight_bytes(scheduled_tokens, num_sampled_seqs)/group_peak_bandwidth)",
			Doc:     "time of weight streaming hidden by linear compute",
			beta:    weightLoadHidden12,
		},
		{
			Name: "activation_traffic", Kind: Time, Penalty: 1, Bound: hourS, Prompt: true,
			Formula: "scheduled_tokens*activation_bytes_per_token/group_peak_bandwidth",
			Doc:     "time to move activations between the kernels",
			beta:    activationTraffic12,
		},
		{
			Name: "collective_time", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "pos(scheduled_tokens)*pos(tp - 1)*(allreduces_per_step*all_reduce_s(scheduled_tokens) + " +
				"logits_gather_s(num_sampled_seqs))",
			Doc:  "time of all collectives as published for the device",
			beta: collectiveTime12,
		},
		{
			Name: "expert_load", Kind: Time, Penalty: 1, Bound: hourS,
			Formula: "num_moe_layers*num_experts*expert_share(scheduled_tokens)*1e-6",
			Doc:     "experts touched in all layers, 1 us each",
			beta:    expertLoad12,
		},
	}),
	alpha: lists11.alpha,
}
