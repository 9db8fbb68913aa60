package features

// tpCommunication is step slot 9: the time of tensor-parallel collectives.
//
//	f9 = (tp > 1)*(B > 0) * [(2L+1)*latency + (a*B + g*S)/link]     [s]
//
// B scheduled tokens, S sampled sequences, two all-reduces per layer and one of the embedding, a
// ring all-reduce's bytes per token (spec#comm-bytes-per-token), g the logits gather's bytes per
// sequence (spec#comm-bytes-per-seq), link one direction of the interconnect.
//
// Unit:   s + B / (B/s) = s
// Source: spec#beta-tp-communication, spec#link-bandwidth, spec#comm-bytes-per-token; a ring all-reduce moves 2(tp-1)/tp of the buffer
// Bounds: >= 0; 0 at tp = 1 and for an empty step; linear in tokens beyond the latency
// Omits:  overlap with compute; one-shot and two-shot kernels for small buffers
func tpCommunication(s *Space, in *StepInput) float64 {
	if s.tp <= 1 || in.ScheduledTokens <= 0 {
		return 0
	}
	return s.commLatencyS + float64(s.commS*in.ScheduledTokens) + float64(s.gatherS*in.NumSampledSeqs)
}

// tpCommunication10 has bytes only, over both directions of the link (spec#err-sharding).
func tpCommunication10(s *Space, in *StepInput) float64 {
	return s.commBytes * in.ScheduledTokens / over(s.link)
}
