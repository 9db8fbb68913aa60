package features

// prefillAttention is step slot 2: the time prefill attention would take at peak arithmetic rate.
//
//	f2 = 4*q*L*P/F     [s],   P = sum of n*c + n(n+1)/2 over prefill chunks
//
// q query heads x head dim, L layers, n new tokens of a chunk, c tokens of the
// same request already in KV, F the group's 16-bit peak. QK' and PV cost 2 FLOP
// per multiply-add each; the causal mask halves the chunk's own square.
//
// Unit:   FLOP / (FLOP/s) = s
// Source: spec#beta-prefill-attention, spec#step-sums; FLOP count as in FlashAttention-2 (arXiv 2307.08691)
// Bounds: >= 0; 0 without prefill; linear in L and 1/tp; the sum over a prompt
//
//	does not depend on how it is chunked
//
// Omits:  softmax and kernel launch
func prefillAttention(s *Space, in *StepInput) float64 {
	return s.attnS * in.PrefillCausalWork
}

// prefillAttention10 counts half the work of a late chunk (spec#err-attention).
func prefillAttention10(s *Space, in *StepInput) float64 {
	return 2 * in.SumPrefillAttnWork * s.layers * s.hidden / over(s.peak)
}

// decodeAttention is step slot 4: the time decode attention would take at peak arithmetic rate.
//
//	f4 = 4*q*L*C/F     [s],   C = sum of c + 1 over decodes
//
// q query heads x head dim, L layers, c tokens of the request already in KV; a
// decode attends to them and to itself.
//
// Unit:   FLOP / (FLOP/s) = s
// Source: spec#beta-decode-attention, spec#step-sums
// Bounds: >= 0; 0 without decodes; linear in context, L and 1/tp
// Omits:  softmax; the KV traffic, which is f5
func decodeAttention(s *Space, in *StepInput) float64 {
	return s.attnS * in.DecodeContextTokens
}

// decodeAttention10 counts half the work (spec#err-attention).
func decodeAttention10(s *Space, in *StepInput) float64 {
	return in.DecodeContextTokens * 2 * s.layers * s.hidden / over(s.peak)
}
