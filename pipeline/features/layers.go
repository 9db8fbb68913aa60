package features

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/model"
)

// This file has what version 1.3 of the features (V13) adds: every slot as a sum over the layers of a
// model (spec#layer-work). For models of equal layers each slot equals that of version 1.2.

// ReachSums are the attention sums of a step within one reach (spec#model-reach). A reach is how
// far back a layer's attention reaches: all tokens, a window, a chunk or an index.
type ReachSums struct {
	PrefillPairs float64 // queries times entries, in chunks of prompts
	DecodePairs  float64
	Entries      float64 // read by all chunks, each once
}

// Reached are the counts for each limited reach of a model's attention, in the order of
// [model.Work.Reaches].
type Reached [model.MaxReaches]struct{ PrefillPairs, DecodePairs, Entries int64 }

// Add adds a chunk of n tokens of a request that has c tokens in the cache; sign -1 removes it
// again.
func (r *Reached) Add(reaches []model.Reach, isDecode bool, c, n, sign int64) {
	if n == 0 {
		return
	}
	for i := range reaches {
		if near := reaches[i].Near(); near > 0 && isDecode && n == 1 { // faster, and true of most requests
			r.AddDecodes(i, sign*min(c+1, near))
			continue
		}
		pairs := sign * reaches[i].Pairs(c, n)
		if isDecode {
			r[i].DecodePairs += pairs
		} else {
			r[i].PrefillPairs += pairs
		}
		r[i].Entries += sign * reaches[i].Read(c, n)
	}
}

// AddDecodes adds decodes of one token that read so many entries within a reach. Each entry is read
// once and scored once.
func (r *Reached) AddDecodes(reach int, entries int64) {
	r[reach].DecodePairs += entries
	r[reach].Entries += entries
}

// reachSums returns the sums within reach i (-1: full attention). Where they were not counted they
// are approximated from the sums over full attention (spec#window-sums-approximate).
func (s *Space) reachSums(in *StepInput, i int) ReachSums {
	switch {
	case i < 0:
		return ReachSums{
			PrefillPairs: in.PrefillCausalWork,
			DecodePairs:  in.DecodeContextTokens,
			Entries:      in.KVReadTokens,
		}
	case in.Reached != nil:
		x := &in.Reached[i]
		return ReachSums{
			PrefillPairs: float64(x.PrefillPairs),
			DecodePairs:  float64(x.DecodePairs),
			Entries:      float64(x.Entries),
		}
	}
	// Entries that prefills read are their contexts and their new tokens; the rest is read by decodes.
	prefillRead := in.PrefillContext + in.PrefillTokens
	reach := s.reaches[i]
	prefillPairs, prefillEntries := reach.Approximate(in.NumPrefillReqs, in.PrefillTokens, in.PrefillCausalWork, prefillRead)
	decodePairs, decodeEntries := reach.Approximate(in.NumDecodeReqs, in.DecodeTokens, in.DecodeContextTokens,
		in.KVReadTokens-in.PrefillContext-in.PrefillTokens)
	return ReachSums{PrefillPairs: prefillPairs, DecodePairs: decodePairs, Entries: decodeEntries + prefillEntries}
}

// attention has the costs of all layers that attend within one reach.
type attention struct {
	reach int // index into the space's reaches, -1: full

	prefillFLOPs float64 // per token pair of a prefill
	decodeFLOPs  float64 // per token pair of a decode
	againFLOPs   float64 // per token of context before a chunk, whose keys and values are recomputed (MLA)
	bytesRead    float64 // per cached entry

	// The same at peak rates, in s.
	prefillS, decodeS, againS, readS float64
}

// experts is a group of equal FFNs with experts.
type experts struct {
	model.ExpertWork
	lnIdle float64   // ln(1 - k/E): of the probability that a token does not use an expert
	shares []float64 // share of 0, 1, 2 ... tokens, computed once
}

// knownShares is the number of tokens below which the share of experts is computed in advance, so that
// most steps look it up in place of an exponential.
const knownShares = 512

// share returns the expected share of the experts that so many tokens use.
func (e *experts) share(tokens float64) float64 {
	if n := int(tokens); n >= 0 && n < len(e.shares) && float64(n) == tokens {
		return e.shares[n]
	}
	if tokens <= 0 {
		return 0 // lnIdle is infinite where every token uses all experts
	}
	return -math.Expm1(tokens * e.lnIdle)
}

// derive13 sets the constants of 1.3: sums over layers, under the names that 1.1 and 1.2 have for
// models of equal layers.
func (s *Space) derive13() {
	d := s.dep
	m := &d.Model
	h := &d.Hardware
	layers := d.Model.Layers()
	w := layers.Work(d.Parallel())
	s.blocks = w.Mixers + w.FFNs
	s.engines = float64(max(1, d.DP))
	s.layers = s.blocks / 2
	s.hidden = float64(layers.Hidden)
	s.headFLOPs = w.HeadFLOPs
	s.headBytes = w.HeadBytes
	s.peak = h.TFlopsPeak * 1e12 * s.tp
	fast := s.peak
	if h.TFlopsFP8 > 0 {
		fast = h.TFlopsFP8 * 1e12 * s.tp
	}
	s.bandwidth = h.BwPeakTBs * 1e12 * s.tp
	for k, flops := range w.LinearFLOPs { // activations of 16, 8 and 4 bits
		peak := s.peak
		if k > 0 {
			peak = fast // 4 bits count as 8: no datasheet here has their rate
		}
		s.linearFLOPs += flops
		if flops > 0 {
			s.bodyS += flops / peak
		}
	}
	s.linearPeak = s.linearFLOPs / s.bodyS
	s.headS = s.headFLOPs / s.peak
	s.fixedWeights = w.FixedBytes
	s.totalBytes = w.FixedBytes + w.HeadBytes
	for _, e := range w.Experts {
		s.expertS += e.FLOPs[0]/s.peak + (e.FLOPs[1]+e.FLOPs[2])/fast
		kind := experts{ExpertWork: e, lnIdle: math.Log1p(-e.TopK / e.Experts)}
		for n := range knownShares {
			kind.shares = append(kind.shares, kind.share(float64(n)))
		}
		s.expertKinds = append(s.expertKinds, kind)
		s.totalBytes += e.Bytes
		s.expertWeights += e.Bytes
	}
	s.reaches = w.Reaches()
	for _, a := range w.Attention {
		s.attends = append(s.attends, attention{
			reach:        slices.Index(s.reaches, a.Reach),
			prefillFLOPs: a.PrefillFLOPs,
			decodeFLOPs:  a.DecodeFLOPs,
			againFLOPs:   a.ContextFLOPs,
			bytesRead:    a.Bytes,
			prefillS:     a.PrefillFLOPs / s.peak,
			decodeS:      a.DecodeFLOPs / s.peak,
			againS:       a.ContextFLOPs / s.peak,
			readS:        a.Bytes / s.bandwidth,
		})
	}
	s.statePrefillFLOPs = w.StatePrefillFLOPs
	s.stateDecodeFLOPs = w.StateDecodeFLOPs
	s.stateBytes = w.StateBytes
	s.kvBytes = w.CacheBytes
	s.gqa = w.HeadShare
	s.stepOverheadS = s.blocks / 2 * layerRefS
	s.blockBytes = s.blockTokens * s.kvBytes
	s.links(s.blocks+1, float64(layers.Vocab))
	s.pcie = h.PCIeBandwidthGBs * 1e9 * h.PCIeEfficiency * s.tp
	if d.Engine.CPUOffloading {
		s.cpuGPURatio = float64(d.Engine.KVBlocksCPU) / float64(d.Engine.KVBlocksGPU.Or(0))
	}
	seqs := min(s.maxSeqs, s.maxTokens)
	s.rooflineS = max(s.linearS(s.maxTokens, seqs), s.weightBytes(s.maxTokens, seqs)/s.bandwidth)
	s.activationBytes = m.BytesPerActivation * (s.blocks*4*s.hidden*s.tp + w.Widths)
	s.activate(float64(layers.Vocab))
	if d.Engine.Extra["enforce_eager"] == true { // no CUDA graphs are captured
		s.graphs = nil
	}
}

// prefillAttention13 is step slot 2 of 1.3: the time of attention within prefill chunks at peak
// arithmetic rate.
//
//	f2 = (sum over layers of FLOP per pair*pairs + again*context + state*prefill tokens)/F     [s]
//
// Pairs are those within a layer's reach. again is the FLOP with which multi-head latent attention
// recomputes the keys and values of a token in the context before a chunk, state the FLOP of a
// token in recurrent layers, F the peak rate of the tensor-parallel group, FLOP/s. The scores of a
// sparse-attention index count as pairs of their own.
//
//	Unit:   FLOP / (FLOP/s) = s
//	Source: spec#beta-prefill-attention, spec#layer-work
//	Bounds: >= 0; 0 without prefill
//	Omits:  softmax and kernel launch; whether one coefficient fits pairs, indexes and states is not measured
func prefillAttention13(s *Space, in *StepInput) float64 {
	out := 0.0
	for i := range s.attends {
		a := &s.attends[i]
		out += a.prefillS * s.reachSums(in, a.reach).PrefillPairs
		if a.againS > 0 {
			out += a.againS * in.PrefillContext
		}
	}
	if s.statePrefillFLOPs > 0 {
		out += s.statePrefillFLOPs / s.peak * in.PrefillTokens
	}
	return out
}

// decodeAttention13 is step slot 4 of 1.3: the time of attention of decodes at peak arithmetic
// rate.
//
//		f4 = (sum over layers of FLOP per pair*pairs + state*decode tokens)/F     [s]
//
//	  Unit:   FLOP / (FLOP/s) = s
//	  Source: spec#beta-decode-attention, spec#layer-work
//	  Bounds: >= 0; 0 without decodes
//	  Omits:  softmax; the cache's traffic, which is f5
func decodeAttention13(s *Space, in *StepInput) float64 {
	out := 0.0
	for i := range s.attends {
		a := &s.attends[i]
		out += a.decodeS * s.reachSums(in, a.reach).DecodePairs
	}
	if s.stateDecodeFLOPs > 0 {
		out += s.stateDecodeFLOPs / s.peak * in.DecodeTokens
	}
	return out
}

// kvCacheRead13 is step slot 5 of 1.3: the time to read the cached entries of all layers once, and
// to read and write recurrent states.
//
//		f5 = (sum over layers of bytes per entry*entries + state bytes*sequences)/Bw     [s]
//
//	  Unit:   B / (B/s) = s
//	  Source: spec#beta-kv-cache-read, spec#layer-work
//	  Bounds: >= 0; 0 for an empty step
//	  Omits:  writes of entries; the reuse of a prefill's entries between query tiles
func kvCacheRead13(s *Space, in *StepInput) float64 {
	out := 0.0
	for i := range s.attends {
		a := &s.attends[i]
		out += s.reachSums(in, a.reach).Entries * a.readS
	}
	if s.stateBytes > 0 {
		out += (in.NumPrefillReqs + in.NumDecodeReqs) * (s.stateBytes / s.bandwidth)
	}
	return out
}

// moeActivation13 is step slot 8 of 1.3: the share of experts that the step uses, summed over FFNs
// with experts and divided by half the number of mixers and FFNs, which is the number of layers
// where each has one of both.
//
//	f8 = sum over ffns with experts of (1 - (1-k/E)^(B*D)) / (blocks/2)
//
// B scheduled tokens, D data-parallel engines whose tokens meet at the experts, all assumed equally
// busy.
//
//	Unit:   1
//	Source: spec#beta-moe-activation, spec#expert-share
//	Bounds: 0..2; 0 for a dense model and an empty step; grows with tokens
//	Omits:  skew (uniform routing assumed)
func moeActivation13(s *Space, in *StepInput) float64 {
	return s.moeShare(in.ScheduledTokens * s.engines)
}

// expertLoad13 is step slot 20 of 1.3: a nominal microsecond for each expert that a step uses on
// this engine.
//
//	f20 = sum over ffns with experts of E/D*share*1e-6     [s]
//
// E experts, spread over D data-parallel engines.
//
//	Unit:   s, nominal
//	Source: spec#beta-expert-load, spec#expert-share
//	Bounds: >= 0; 0 for a dense model and an empty step
//	Omits:  skew (uniform routing assumed)
func expertLoad13(s *Space, in *StepInput) float64 {
	return s.expertsTouched(in.ScheduledTokens*s.engines) * expertRefS
}

// moeShare returns the share of experts that so many tokens of all engines use, summed over FFNs
// with experts and divided by half the mixers and FFNs.
func (s *Space) moeShare(tokens float64) float64 {
	return s.overExperts(tokens, func(e *experts, share float64) float64 { return e.Layers / s.layers * share })
}

// expertsTouched returns how many experts of this engine so many tokens of all engines use, over
// all layers.
func (s *Space) expertsTouched(tokens float64) float64 {
	return s.overExperts(tokens, func(e *experts, share float64) float64 { return e.Layers * e.Experts / s.engines * share })
}

// touchedBytes returns the bytes of the weights of the experts that so many tokens use, over all
// layers.
func (s *Space) touchedBytes(tokens float64) float64 {
	return s.overExperts(tokens, func(e *experts, share float64) float64 { return e.Bytes * share })
}

// overExperts returns the sum of each over the groups of FFNs with experts. share is the share of
// experts that so many tokens use.
func (s *Space) overExperts(tokens float64, each func(e *experts, share float64) float64) float64 {
	out := 0.0
	for i := range s.expertKinds {
		e := &s.expertKinds[i]
		out += each(e, e.share(tokens))
	}
	return out
}

// admissionCompute13 is queue slot 3 of 1.3: beta f1 + f2 of an unchunked prefill.
//
//	f3 = p*body/Fl + head/F + attention of p tokens/F     [s]
//
// Unit:   s
// Source: spec#alpha-admission-compute, spec#layer-work
// Bounds: >= 0; 0 without a prompt; grows with the prompt
// Omits:  prefix-cache hits, which are queue slot 7
func admissionCompute13(s *Space, in *QueueInput) float64 {
	if in.PromptTokens == 0 {
		return 0
	}
	return in.PromptTokens*s.bodyS + s.headS + prefillAttention13(s, s.promptStep(in.PromptTokens))
}

// promptStep returns the step that computes the attention of a whole prompt of p tokens.
func (s *Space) promptStep(p float64) *StepInput {
	in := &StepInput{PrefillTokens: p, NumPrefillReqs: 1, PrefillCausalWork: p * (p + 1) / 2, KVReadTokens: p}
	if len(s.reaches) > 0 {
		in.Reached = &Reached{}
		in.Reached.Add(s.reaches, false, 0, int64(p), 1)
	}
	return in
}

// Reaches returns the limited reaches whose sums [StepInput.Reached] counts; none for full
// attention alone, and before 1.3.
func (s *Space) Reaches() []model.Reach { return s.reaches }

// layerSums returns the quantities that the formulas of 1.3 name in addition to a step's inputs:
// sums over reaches, then over layers.
func (s *Space) layerSums(in *StepInput) []Quantity {
	out := []Quantity{given("prefill_context_tokens", in.PrefillContext, "tokens")}
	var prefill, decode, bytes float64
	for i := range s.attends {
		a := &s.attends[i]
		sums := s.reachSums(in, a.reach)
		if a.reach >= 0 {
			name := reachName(s.reaches[a.reach])
			out = append(out, given("prefill_pairs_"+name, sums.PrefillPairs, "token pairs"),
				given("decode_pairs_"+name, sums.DecodePairs, "token pairs"), given("entries_read_"+name, sums.Entries, "entries"))
		}
		prefill += a.prefillFLOPs*sums.PrefillPairs + a.againFLOPs*in.PrefillContext
		decode += a.decodeFLOPs * sums.DecodePairs
		bytes += a.bytesRead * sums.Entries
	}
	return append(out, given("prefill_attention_flops", prefill+s.statePrefillFLOPs*in.PrefillTokens, "FLOP"),
		given("decode_attention_flops", decode+s.stateDecodeFLOPs*in.DecodeTokens, "FLOP"),
		given("cache_read_bytes", bytes+s.stateBytes*(in.NumPrefillReqs+in.NumDecodeReqs), "B"))
}

// reachName returns a reach as part of a name: window_128, topk_2048, ratio_4_topk_512.
func reachName(r model.Reach) string {
	out := ""
	for _, p := range []struct {
		word string
		n    int64
	}{{"window", r.Window}, {"chunk", r.Chunk}, {"ratio", r.Ratio}, {"topk", r.TopK}} {
		if p.n > 0 {
			out += fmt.Sprintf("_%s_%d", p.word, p.n)
		}
	}
	return out[min(1, len(out)):]
}

// attentionConstants returns the cost of a pair, an entry and a token of context within each reach.
func (s *Space) attentionConstants() (out []Quantity) {
	for i := range s.attends {
		a, name := &s.attends[i], "full"
		if a.reach >= 0 {
			name = reachName(s.reaches[a.reach])
		}
		out = append(out, given("flops_per_prefill_pair_"+name, a.prefillFLOPs, "FLOP/pair"),
			given("flops_per_decode_pair_"+name, a.decodeFLOPs, "FLOP/pair"), given("bytes_per_entry_"+name, a.bytesRead, "B/entry"),
			given("flops_per_context_token_"+name, a.againFLOPs, "FLOP/token"))
	}
	return out
}
