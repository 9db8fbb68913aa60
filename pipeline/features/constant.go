package features

// layerRefS is the nominal time of one layer in f11 (spec#beta-fixed-step-overhead): a coefficient
// of 1e6 is exactly 10 us per layer.
const layerRefS = 1e-5

// fixedStepOverhead11 is step slot 11: launch work per layer.
//
//	f11 = (B > 0) * L * 1e-5     [s]
//
// Unit:   s, nominal
// Source: spec#beta-fixed-step-overhead, spec#err-fixed-overhead
// Bounds: >= 0; 0 for an empty step; linear in L; independent of tp and tokens
// Omits:  CUDA graphs, which flatten it
var fixedStepOverhead11 = Feature{
	Name: "fixed_step_overhead", Kind: Time, Penalty: 1, Bound: boundS,
	Formula: "pos(scheduled_tokens)*num_hidden_layers*1e-5",
	Doc:     "nominal 10 us per layer of every non-empty step",
	beta: func(s *Space, in *StepInput) float64 {
		if in.ScheduledTokens > 0 {
			return s.stepOverheadS
		}
		return 0
	},
}

// fixedStepOverhead10 is not a fixed overhead (spec#err-fixed-overhead); it is 1 in an empty step.
var fixedStepOverhead10 = fixedStepOverhead11.
	frozen("1/max(1, scheduled_tokens)").withKind(Ratio).
	withBeta(func(_ *Space, in *StepInput) float64 { return 1 / max(1, in.ScheduledTokens) })

// gqaEfficiency11 is step slot 10: KV heads per query head.
//
//	f10 = KV heads / heads
//
// Unit:   heads / heads = 1
// Source: spec#beta-gqa-efficiency: constant inside one configuration, so it can only be
//
//	identified between configurations
//
// Bounds: above 0, at most 1; the same in every step
// Omits:  everything dynamic
var gqaEfficiency11 = Feature{
	Name: "gqa_efficiency", Kind: Constant, Penalty: 100, Bound: 1,
	Formula: "num_key_value_heads/num_attention_heads",
	Doc:     "KV heads per query head; constant per configuration",
	beta:    gqaEfficiency,
}

func gqaEfficiency(s *Space, _ *StepInput) float64 { return s.gqa }

var gqaEfficiency10 = gqaEfficiency11.frozen("num_key_value_heads/max(1e-6, num_attention_heads)").withBeta(gqaEfficiency)

// bias11 is step slot 16: the constant of a step, independent of model and tp.
//
//	f16 = 1
//
// Unit:   1
// Source: spec#beta-bias; penalised hard in fits over several configurations,
//
//	where a free bias would not transfer to an unseen model
//
// Bounds: 1 in every step, the empty one too
var bias11 = Feature{
	Name: "bias", Kind: Constant, Penalty: 100, PenaltyOne: 1, Bound: 1,
	Formula: "1",
	Doc:     "constant per step",
	beta:    func(*Space, *StepInput) float64 { return 1 },
}

var bias10 = bias11.frozen("1").withBeta(bias11.beta)

// baseBias11 is queue slot 4: the constant per request.
//
//	f4 = 1
//
// Unit:   1
// Source: spec#alpha-base-bias
// Bounds: 1 for every request
var baseBias11 = Feature{
	Name: "base_bias", Kind: Constant, Penalty: 1, Bound: 1,
	Formula: "1",
	Doc:     "constant per request",
	alpha:   func(*Space, *QueueInput) float64 { return 1 },
}

var baseBias10 = baseBias11.frozen("1").withAlpha(baseBias11.alpha)
