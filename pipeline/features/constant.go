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
func fixedStepOverhead11(s *Space, in *StepInput) float64 {
	if in.ScheduledTokens > 0 {
		return s.stepOverheadS
	}
	return 0
}

// fixedStepOverhead10 is not a fixed overhead (spec#err-fixed-overhead); it is 1 in an empty step.
func fixedStepOverhead10(_ *Space, in *StepInput) float64 { return 1 / max(1, in.ScheduledTokens) }

// gqaEfficiency is step slot 10: KV heads per query head.
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
func gqaEfficiency(s *Space, _ *StepInput) float64 { return s.gqa }

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
func bias11(*Space, *StepInput) float64 { return 1 }

// baseBias11 is queue slot 4: the constant per request.
//
//	f4 = 1
//
// Unit:   1
// Source: spec#alpha-base-bias
// Bounds: 1 for every request
func baseBias11(*Space, *QueueInput) float64 { return 1 }
