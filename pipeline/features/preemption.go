package features

// preemptionOverhead11 is step slot 12: recent preemptions per running request.
//
//	f12 = preemption_ema
//
// Unit:   preemptions / requests = 1
// Source: spec#beta-preemption-overhead, spec#preemption-average
// Bounds: >= 0; may exceed 1; not zero in an empty step
// Omits:  the recomputation itself, which is prefill work of later steps
var preemptionOverhead11 = Feature{
	Name: "preemption_overhead", Kind: Ratio, Penalty: 10, Bound: 1e4,
	Formula: "preemption_ema",
	Doc:     "moving average of preemptions per running request",
	beta:    preemptionOverhead,
}

func preemptionOverhead(_ *Space, in *StepInput) float64 { return in.PreemptionEMA }

var preemptionOverhead10 = preemptionOverhead11.frozen("preemption_ema").withBeta(preemptionOverhead)

// preemptionDisruption11 is queue slot 9: recent preemptions while the server is busy.
//
//	f9 = g * preemption_ema
//
// g the gate (spec#load-gate).
//
// Unit:   1
// Source: spec#alpha-preemption-disruption, spec#preemption-average
// Bounds: >= 0; 0 on an idle server
// Omits:  who is preempted
var preemptionDisruption11 = Feature{
	Name: "preemption_disruption", Kind: Ratio, Penalty: 10, Bound: 1e4,
	Formula: "gate(running_depth, kv_usage_ratio)*preemption_ema",
	Doc:     "preemption average while the server is busy",
	alpha:   preemptionDisruption,
}

func preemptionDisruption(s *Space, in *QueueInput) float64 { return s.gate(in) * in.PreemptionEMA }

var preemptionDisruption10 = preemptionDisruption11.frozen(preemptionDisruption11.Formula).withAlpha(preemptionDisruption)
