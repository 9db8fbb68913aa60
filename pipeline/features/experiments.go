package features

// This file names the recording that would let a fit tell two features apart.

// separates names, for step-time terms ([0]), the recording ([1]) that would separate the term from those
// correlated with it, the most informative recordings first.
var separates = [][2]string{
	{"tp_communication", "a run with another tensor_parallel_size"},
	{FixedStepOverhead, "a model with another depth"},
	{"gqa_efficiency", "a model with another ratio of KV heads to heads"},
	{"moe_activation", "batches of very different size on the MoE model"},
	{PrefillAttention, "prompts of very different length"},
	{PrefillLinearCompute, "prompts of very different length at the same batch"},
	{"decode_attention", "contexts of very different length at the same batch"},
	{"kv_cache_read", "contexts of very different length at the same batch"},
	{DecodeWeightLoad, "another model or GPU, or batches from 1 to max_num_seqs"},
	{"batch_utilization", "batches from 1 to max_num_seqs at short contexts"},
	{"chunked_prefill_mixed", "steps that mix prefill and decode, and steps that do not"},
	{"prefill_decode_mix", "steps that mix prefill and decode, and steps that do not"},
	{"cpu_offload_transfer", "load with CPU offloading active"},
	{"bias", "another model or GPU"},
}

// shows maps STAGE/NAME of a term to what requests or load levels would have to show for a fit from
// them to determine the term (spec#request-directions).
var shows = map[string]string{
	"step/prefill_linear_compute": "prompts whose lengths vary fourfold, into a quiet server",
	"step/prefill_attention":      "prompts of more than 4,000 tokens, some of them into a quiet server",
	"step/decode_weight_load":     "another depth or precision of the model: one configuration cannot tell it from the rest of a step's constant",
	"step/fixed_step_overhead":    "another depth or precision of the model: one configuration cannot tell it from the rest of a step's constant",
	"step/bias":                   "another depth or precision of the model: one configuration cannot tell it from the rest of a step's constant",
	"step/weight_load_hidden":     "another depth or precision of the model: one configuration cannot tell it from the rest of a step's constant",
	"step/activation_traffic":     "another depth or precision of the model: one configuration cannot tell it from the rest of a step's constant",
	"step/decode_attention":       "contexts that vary threefold at one concurrency",
	"step/kv_cache_read":          "contexts that vary threefold at one concurrency",
	"step/batch_utilization":      "a concurrency that varies threefold, 1 to 4 included",
	"step/prefill_decode_mix":     "long prompts while many others decode",
	"step/chunked_prefill_mixed":  "long prompts while many others decode",
	"step/tp_communication":       "another number of GPUs: one configuration cannot tell it from the rest of a step",
	"step/collective_time":        "another number of GPUs: one configuration cannot tell it from the rest of a step",
	"overhead/base_bias":          "164 requests or more into a quiet server",
	"overhead/admission_compute":  "prompts whose lengths vary fourfold, into a quiet server",
	"egress/base_bias":            "the end of the response beside its last token",
}

// Experiments returns the experiments that would separate terms from each other, and those by which
// requests would determine a term. The caller must not modify them.
func Experiments() (separatesTerms [][2]string, showsTerms map[string]string) {
	return separates, shows
}
