package features

// kvCacheRead11 is step slot 5: the time to read the KV cache once.
//
//	f5 = K*kv/Bw     [s],   K = sum of c + n over all chunks
//
// c tokens already in KV, n new tokens, kv the KV bytes of one token over all layers and devices
// (spec#kv-bytes-per-token), Bw the group's memory bandwidth.
//
// Unit:   B / (B/s) = s
// Source: spec#beta-kv-cache-read, spec#step-sums
// Bounds: >= 0; 0 for an empty step; linear in context; scales with 1/tp until
//
//	KV heads are replicated (tp > KV heads)
//
// Omits:  KV writes; the reuse of a prefill's KV between query tiles
func kvCacheRead11(s *Space, in *StepInput) float64 {
	return in.KVReadTokens * s.kvReadS
}

// kvCacheRead10 reads whole blocks of decodes, at twice their size (spec#err-kv-bytes).
func kvCacheRead10(s *Space, in *StepInput) float64 {
	return in.SumDecodeKVBlocks * s.blockBytes / over(s.bandwidth)
}
