package features

// gate is g (spec#load-gate), the degree to which a request must queue: s the share of seats taken,
// m the share of KV blocks taken, either of them full closes the gate.
//
//	g = s + m - s*m,   s = min(1, running/max_num_seqs),   m = min(1, max(0, kv_usage))
func (s *Space) gate(in *QueueInput) float64 { return s.gateAt(in.RunningDepth, in.KVUsageRatio) }

func (s *Space) gateAt(running, usage float64) float64 {
	seats := atMost(1, running/s.maxSeqs)
	memory := atMost(1, atLeast(0, usage))
	return seats + memory - float64(seats*memory)
}

// batchSaturation11 is queue slot 1: running requests per seat, not clamped like the gate's share.
//
//	f1 = running/max_num_seqs
//
// Unit:   requests / requests = 1
// Source: spec#alpha-batch-saturation
// Bounds: 0..4; linear in running requests
// Omits:  how much work the running requests have left
var batchSaturation11 = Feature{
	Name: "batch_saturation", Kind: Ratio, Penalty: 10, Bound: 4,
	Formula: "running_depth/max_num_seqs",
	Doc:     "running requests per seat",
	alpha:   batchSaturation,
}

func batchSaturation(s *Space, in *QueueInput) float64 {
	return in.RunningDepth / s.maxSeqs
}

var batchSaturation10 = batchSaturation11.frozen("running_depth/max(1e-6, max_num_seqs)").withAlpha(batchSaturation)

// kvPressure11 is queue slot 2: the share of KV blocks in use.
//
//	f2 = kv_usage
//
// Unit:   blocks / blocks = 1
// Source: spec#alpha-kv-pressure
// Bounds: 0..1
// Omits:  cached blocks that could be reclaimed
var kvPressure11 = Feature{
	Name: "kv_pressure", Kind: Ratio, Penalty: 10, Bound: 1,
	Formula: "kv_usage_ratio",
	Doc:     "share of KV blocks in use",
	alpha:   kvPressure,
}

func kvPressure(_ *Space, in *QueueInput) float64 { return in.KVUsageRatio }

var kvPressure10 = kvPressure11.frozen("kv_usage_ratio").withAlpha(kvPressure)

// queuedRegimeBias11 is queue slot 11: the gate itself.
//
//	f11 = g
//
// Unit:   1
// Source: spec#alpha-queued-regime-bias
// Bounds: 0..1; 0 on an idle server; 1 when seats or blocks are full
// Omits:  the queue's length, which is queue slot 5 and 6
var queuedRegimeBias11 = Feature{
	Name: "queued_regime_bias", Kind: Ratio, Penalty: 10, Bound: 1,
	Formula: "gate(running_depth, kv_usage_ratio)",
	Doc:     "the gate: 0 idle, 1 when seats or KV blocks are full",
	alpha:   func(s *Space, in *QueueInput) float64 { return s.gate(in) },
}

var queuedRegimeBias10 = queuedRegimeBias11.frozen(queuedRegimeBias11.Formula).withAlpha(queuedRegimeBias11.alpha)
