package features

// tpCommunication11 is step slot 9: the time of tensor-parallel collectives.
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
var tpCommunication11 = Feature{
	Name: "tp_communication", Kind: Time, Penalty: 1, Bound: boundS,
	Formula: "pos(scheduled_tokens)*(allreduces_per_step*allreduce_latency + (comm_bytes_per_token*scheduled_tokens + " +
		"comm_bytes_per_seq*num_sampled_seqs)/max(1, link_bandwidth))",
	Doc:  "time of tensor-parallel collectives: latency and bytes over the link",
	beta: tpCommunication,
}

func tpCommunication(s *Space, in *StepInput) float64 {
	if s.tp <= 1 || in.ScheduledTokens <= 0 {
		return 0
	}
	return s.commLatencyS + float64(s.commS*in.ScheduledTokens) + float64(s.gatherS*in.NumSampledSeqs)
}

// tpCommunication10 has bytes only, over both directions of the link (spec#err-sharding).
var tpCommunication10 = tpCommunication11.
	frozen("comm_bytes_per_token*scheduled_tokens/max(1e-6, hw_interconnect_bw)").
	withBeta(func(s *Space, in *StepInput) float64 {
		return s.commBytes * in.ScheduledTokens / over(s.link)
	})
