package features

// preemptionOverhead is step slot 12: recent preemptions per running request.
//
//	f12 = preemption_ema
//
// Unit:   preemptions / requests = 1
// Source: spec#beta-preemption-overhead, spec#preemption-average
// Bounds: >= 0; may exceed 1; not zero in an empty step
// Omits:  the recomputation itself, which is prefill work of later steps
func preemptionOverhead(_ *Space, in *StepInput) float64 { return in.PreemptionEMA }

// preemptionDisruption is queue slot 9: recent preemptions while the server is busy.
//
//	f9 = g * preemption_ema
//
// g the gate (spec#load-gate).
//
// Unit:   1
// Source: spec#alpha-preemption-disruption, spec#preemption-average
// Bounds: >= 0; 0 on an idle server
// Omits:  who is preempted
func preemptionDisruption(s *Space, in *QueueInput) float64 { return s.gate(in) * in.PreemptionEMA }
