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

// batchSaturation is queue slot 1: running requests per seat, not clamped like the gate's share.
//
//	f1 = running/max_num_seqs
//
// Unit:   requests / requests = 1
// Source: spec#alpha-batch-saturation
// Bounds: 0..4; linear in running requests
// Omits:  how much work the running requests have left
func batchSaturation(s *Space, in *QueueInput) float64 {
	return in.RunningDepth / s.maxSeqs
}

// kvPressure is queue slot 2: the share of KV blocks in use.
//
//	f2 = kv_usage
//
// Unit:   blocks / blocks = 1
// Source: spec#alpha-kv-pressure
// Bounds: 0..1
// Omits:  cached blocks that could be reclaimed
func kvPressure(_ *Space, in *QueueInput) float64 { return in.KVUsageRatio }

// queuedRegimeBias11 is queue slot 11: the gate itself.
//
//	f11 = g
//
// Unit:   1
// Source: spec#alpha-queued-regime-bias
// Bounds: 0..1; 0 on an idle server; 1 when seats or blocks are full
// Omits:  the queue's length, which is queue slot 5 and 6
func queuedRegimeBias11(s *Space, in *QueueInput) float64 { return s.gate(in) }
