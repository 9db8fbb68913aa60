package features

// This file has the features of 1.0 and 1.1: of steps, and a few of the queue that share their constants.
// A function with 10 in its name is the feature as spec 1.0 defines it, known errors included.

// linearCompute is step slot 1: the time all linear layers would take at peak arithmetic rate,
// prefill and decode tokens alike.
//
//	f1 = B*body/Fl + S*head/F     [s]
//
// B scheduled tokens, body the FLOP of one token through attention projections and MLPs of all
// layers (spec#flops-attn-linear, spec#flops-mlp-moe, spec#flops-body-per-token), S sampled
// sequences, head = 2*h*V the FLOP of one sequence's logits, Fl and F the group's peak for linear
// layers (fp8 or 16-bit) and for everything else.
//
// Unit:   FLOP / (FLOP/s) = s
// Source: spec#beta-prefill-linear-compute; a multiply-add counts 2; vLLM computes logits for scheduled sequences only, not for prompt tokens
// Bounds: >= 0; 0 for an empty step; linear in tokens; halves when a dense model's tp doubles; never falls when a token is added
// Omits:  norms, rotary embedding, activation functions
func linearCompute(s *Space, in *StepInput) float64 {
	return s.linearS(in.ScheduledTokens, in.NumSampledSeqs)
}

// linearCompute10 returns the feature linear compute as spec 1.0 defines it: for prefill tokens only,
// with the head on every token and the peak divided by tp (spec#err-tp, spec#err-head,
// spec#err-decode-linear).
func linearCompute10(s *Space, in *StepInput) float64 {
	return in.PrefillTokens * s.linearFLOPs / over(s.peak)
}

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
// Bounds: >= 0; 0 without prefill; linear in L and 1/tp; the sum over a prompt does not depend on how it is chunked
// Omits:  softmax and kernel launch
func prefillAttention(s *Space, in *StepInput) float64 {
	return s.attnS * in.PrefillCausalWork
}

// prefillAttention10 returns the feature prefill attention as spec 1.0 defines it, with half the work
// of a late chunk (spec#err-attention).
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

// decodeAttention10 returns the feature decode attention as spec 1.0 defines it, with half the work
// (spec#err-attention).
func decodeAttention10(s *Space, in *StepInput) float64 {
	return in.DecodeContextTokens * 2 * s.layers * s.hidden / over(s.peak)
}

// kvCacheRead11 is step slot 5: the time to read the KV cache once.
//
//	f5 = K*kv/Bw     [s],   K = sum of c + n over all chunks
//
// c tokens already in KV, n new tokens, kv the KV bytes of one token over all layers and devices
// (spec#kv-bytes-per-token), Bw the group's memory bandwidth.
//
// Unit:   B / (B/s) = s
// Source: spec#beta-kv-cache-read, spec#step-sums
// Bounds: >= 0; 0 for an empty step; linear in context; scales with 1/tp until KV heads are replicated (tp > KV heads)
// Omits:  KV writes; the reuse of a prefill's KV between query tiles
func kvCacheRead11(s *Space, in *StepInput) float64 {
	return in.KVReadTokens * s.kvReadS
}

// kvCacheRead10 returns the feature of KV cache reads as spec 1.0 defines it: whole blocks of decodes,
// at twice their size (spec#err-kv-bytes).
func kvCacheRead10(s *Space, in *StepInput) float64 {
	return in.SumDecodeKVBlocks * s.blockBytes / over(s.bandwidth)
}

// weightLoad is step slot 3: the time of weight streaming that linear compute does not hide.
//
//	f3 = max(0, W(B, S)/Bw - f1)     [s]
//
// W the bytes of every weight the step reads (attention, dense MLPs, the experts that B tokens
// touch, shared experts and routers, the head when a sequence is sampled; spec#weight-bytes), Bw
// the group's memory bandwidth, f1 the unbounded slot 1.
//
// Unit:   B / (B/s) = s
// Source: spec#beta-decode-weight-load, spec#expert-share, spec#weight-bytes
// Bounds: >= 0; 0 for an empty step; f1 + f3 = max(f1, W/Bw), so that equal coefficients give the roofline; scales with 1/tp for a dense model
// Omits:  quantisation scales; skew of the expert choice (uniform routing)
func weightLoad(s *Space, in *StepInput) float64 {
	unhidden := s.weightBytes(in.ScheduledTokens, in.NumSampledSeqs)/s.bandwidth - linearCompute(s, in)
	return atLeast(0, unhidden)
}

// weightLoad10 returns the feature of weight loads as spec 1.0 defines it: the weights in full, in
// steps with decodes only.
func weightLoad10(s *Space, in *StepInput) float64 {
	if in.DecodeTokens <= 0 {
		return 0
	}
	return s.stepBytes10(in.ScheduledTokens) / over(s.bandwidth)
}

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
	return s.commLatencyS + s.commS*in.ScheduledTokens + s.gatherS*in.NumSampledSeqs
}

// tpCommunication10 returns the feature of communication between tensor-parallel ranks as spec 1.0
// defines it: bytes only, over both directions of the link (spec#err-sharding).
func tpCommunication10(s *Space, in *StepInput) float64 {
	return s.commBytes * in.ScheduledTokens / over(s.link)
}

// moeActivation11 is step slot 8: the share of experts that the step touches, weighted with the
// share of MoE layers.
//
//	f8 = (Lm/L) * (1 - (1-k/E)^B)
//
// B scheduled tokens, k of E experts per token, Lm of L layers with experts.
//
// Unit:   1
// Source: spec#beta-moe-activation, spec#expert-share
// Bounds: 0..1; 0 for a dense model and an empty step; grows with tokens
// Omits:  skew (uniform routing assumed)
func moeActivation11(s *Space, in *StepInput) float64 {
	if s.moeLayers == 0 {
		return 0
	}
	return s.moeLayerShare * s.expertShare(in.ScheduledTokens)
}

// moeActivation10 returns the feature of activated experts as spec 1.0 defines it, in which every
// layer is an MoE layer.
func moeActivation10(s *Space, in *StepInput) float64 { return s.expertShare(in.ScheduledTokens) }

// seqRef is the number of sequences that f6 is relative to (spec#beta-batch-utilization). It is a
// constant and not max_num_seqs, so that the coefficient transfers between deployments.
const seqRef = 256

// batchUtilization11 is step slot 6: the number of sequences, whose coefficient is work per sequence.
//
//	f6 = (prefill requests + decode requests)/256
//
// Unit:   requests / requests = 1
// Source: spec#beta-batch-utilization: sampling, metadata and launch work grow with the sequences of a batch
// Bounds: 0..64; 0 for an empty step; linear in sequences
// Omits:  CUDA-graph padding
func batchUtilization11(_ *Space, in *StepInput) float64 {
	return (in.NumPrefillReqs + in.NumDecodeReqs) / seqRef
}

// batchUtilization10 returns the used share of the token budget.
func batchUtilization10(s *Space, in *StepInput) float64 {
	return in.ScheduledTokens / over(s.maxTokens)
}

// prefillDecodeMix is step slot 7: the share of prefill in the step's tokens.
//
//	f7 = prefill/(prefill + decode), 0 for an empty step
//
// Unit:   tokens / tokens = 1
// Source: spec#beta-prefill-decode-mix
// Bounds: 0..1; 0 for an empty step; 1 for a pure prefill
// Omits:  how prefill is spread over requests
func prefillDecodeMix(_ *Space, in *StepInput) float64 {
	return in.PrefillTokens / atLeast(epsilon10, in.PrefillTokens+in.DecodeTokens)
}

// chunkedPrefillMixed is step slot 15: 1 for a step with prefill and decode requests, with chunked prefill on.
//
//	f15 = chunked * (prefill requests > 0) * (decode requests > 0)
//
// Unit:   1
// Source: spec#beta-chunked-prefill-mixed
// Bounds: 0 or 1; 0 with chunked prefill off, for an empty step and for a pure step
// Omits:  the ratio of the phases, which is f7
func chunkedPrefillMixed(s *Space, in *StepInput) float64 {
	if in.NumPrefillReqs > 0 && in.NumDecodeReqs > 0 {
		return s.chunked
	}
	return 0
}

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

// fixedStepOverhead10 returns the feature of the same name as spec 1.0 defines it. It is no fixed
// overhead (spec#err-fixed-overhead): it is 1 in an empty step and falls with the tokens.
func fixedStepOverhead10(_ *Space, in *StepInput) float64 { return 1 / max(1, in.ScheduledTokens) }

// gqaEfficiency is step slot 10: KV heads per query head.
//
//	f10 = KV heads / heads
//
// Unit:   heads / heads = 1
// Source: spec#beta-gqa-efficiency: constant inside one configuration, so it can only be identified between configurations
// Bounds: above 0, at most 1; the same in every step
// Omits:  everything dynamic
func gqaEfficiency(s *Space, _ *StepInput) float64 { return s.gqa }

// bias11 is step slot 16: the constant of a step, independent of model and tp.
//
//	f16 = 1
//
// Unit:   1
// Source: spec#beta-bias; penalised hard in fits over several configurations, where a free bias would not transfer to an unseen model
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
//	Unit:   1
//	Source: spec#alpha-preemption-disruption, spec#preemption-average
//	Bounds: >= 0; 0 on an idle server
//	Omits:  which requests are preempted
func preemptionDisruption(s *Space, in *QueueInput) float64 { return s.gate(in) * in.PreemptionEMA }

// cpuOffloadTransfer is step slot 13: the time of GPU-to-CPU block transfers.
//
//	f13 = offload * blocks * block_bytes / pcie     [s]
//
// pcie the group's achievable host bandwidth: every device moves its shard over its own link
// (spec#group-pcie-bandwidth).
//
// Unit:   B / (B/s) = s
// Source: spec#beta-cpu-offload-transfer, spec#transfers
// Bounds: >= 0; 0 without offloading; linear in blocks; not zero in an empty step that moved blocks
// Omits:  overlap with compute
func cpuOffloadTransfer(s *Space, in *StepInput) float64 {
	return s.pcieS(in.TransferBlocks)
}

// cpuOffloadKVRead is step slot 14: the time of CPU-to-GPU block transfers.
//
//	f14 = offload * blocks * block_bytes / pcie     [s]
//
// Unit:   B / (B/s) = s
// Source: spec#beta-cpu-offload-kv-read, spec#transfers
// Bounds: >= 0; 0 without offloading; linear in blocks
// Omits:  overlap with compute
func cpuOffloadKVRead(s *Space, in *StepInput) float64 {
	return s.pcieS(in.CPUResidentReadBlocks)
}

// pcieS returns the time in s to move blocks over the host link, 0 without offloading.
func (s *Space) pcieS(blocks float64) float64 {
	if s.offload == 0 {
		return 0
	}
	return blocks * s.blockBytes / over(s.pcie)
}

// cpuOffloadExpansion11 is queue slot 10: CPU blocks per GPU block while busy.
//
//	f10 = g * offload * CPU blocks / GPU blocks
//
// Unit:   blocks / blocks = 1
// Source: spec#alpha-cpu-offload-expansion
// Bounds: >= 0; 0 without offloading and on an idle server
// Omits:  how full the CPU tier is
func cpuOffloadExpansion11(s *Space, in *QueueInput) float64 { return s.gate(in) * s.cpuGPURatio }

// cpuOffloadExpansion10 returns the ratio in bytes (spec#frozen-guards).
func cpuOffloadExpansion10(s *Space, in *QueueInput) float64 {
	return s.gate(in) * s.cpuKVBytes / over(s.gpuKVBytes)
}
