package export

// This file lists the terms of BLIS's trained-physics model in its order.

// blisTerm is one position of BLIS's trained-physics coefficients.
type blisTerm struct {
	Name  string // in BLIS's registry
	Units string // there
	Role  string // what BLIS multiplies the coefficient with
	Zero  string // what a value of 0 does inside BLIS
}

// blisBetaTerms are the step-time coefficients in BLIS's positional order. BLIS chooses between its
// formulas by the number of values: 11 select the one that splits prefill and decode.
var blisBetaTerms = []blisTerm{
	{
		Name: "prefill_compute", Units: "dimensionless",
		Role: "prefill arithmetic at peak rate",
		Zero: "prompts compute for free: TTFT stops growing with prompt length except by KV writes",
	},
	{
		Name: "decode_compute", Units: "dimensionless",
		Role: "decode arithmetic at peak rate",
		Zero: "decodes compute for free; with many sequences per step ITL comes out too small",
	},
	{
		Name: "weight_load", Units: "dimensionless",
		Role: "weight bytes at peak bandwidth, once per step",
		Zero: "weights load for free: small batches come out too fast, and model size hardly matters",
	},
	{
		Name: "tp_allreduce_attention", Units: "dimensionless",
		Role: "all-reduce bytes at memory bandwidth",
		Zero: "tensor parallelism communicates for free: raising tp looks better than it is",
	},
	{
		Name: "per_layer_overhead", Units: "us_per_layer",
		Role: "number of layers, every step",
		Zero: "no launch cost per layer",
	},
	{
		Name: "per_request_overhead", Units: "us_per_request",
		Role: "sequences in the batch, every step",
		Zero: "a sequence adds nothing to a step beyond its tokens",
	},
	{
		Name: "per_step_overhead", Units: "us_per_step",
		Role: "1, every step",
		Zero: "no constant cost per step",
	},
	{
		Name: "per_moe_layer_overhead", Units: "us_per_layer",
		Role: "MoE layers of interleaved models, every step",
		Zero: "models that interleave MoE and dense layers pay nothing extra; all others never use the term",
	},
	{
		Name: "prefill_kv_read", Units: "dimensionless",
		Role: "KV bytes written by prefill at peak bandwidth",
		Zero: "writing the prompt's KV is free",
	},
	{
		Name: "decode_kv_read", Units: "dimensionless",
		Role: "KV bytes read by decode at peak bandwidth",
		Zero: "reading the context is free: ITL stops growing with context length",
	},
	{
		Name: "moe_dispatch_alltoall", Units: "dimensionless",
		Role: "MoE dispatch bytes at memory bandwidth, only with data parallelism",
		Zero: "expert dispatch across data-parallel ranks is free",
	},
}

// blisAlphaTerms are the delays of a request outside the engine, in BLIS's positional order.
var blisAlphaTerms = []blisTerm{
	{
		Name: "queueing", Units: "us_per_request",
		Role: "each request once, before the queue",
		Zero: "requests reach the queue at once: TTFT lacks the API overhead",
	},
	{
		Name: "post_decode_fixed", Units: "us_per_request",
		Role: "each request once, at completion (E2E only)",
		Zero: "responses leave at once: E2E lacks the egress",
	},
	{
		Name: "output_token_processing", Units: "us_per_token",
		Role: "each output token (TTFT and every token gap)",
		Zero: "tokens leave the engine at once, which is how TTFT and ITL are measured here",
	},
}

// Positions of step-time coefficients that the exporter treats by name.
const (
	blisAllReduce   = 3
	blisMoEDispatch = 10
)
