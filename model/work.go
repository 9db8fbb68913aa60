package model

// This file computes the work of a step: operations and bytes, as sums over the layers.

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// Work is the work of a step on the GPUs of one engine, added up over the layers (spec#layer-work). A
// multiply-add is two FLOP. A matrix that is replicated on every GPU counts once for each of them.
// Biases, norms and other vectors are neglected.
type Work struct {
	Mixers float64 `json:"mixers"` // blocks, each with an all-reduce behind it where t > 1
	FFNs   float64 `json:"ffns"`
	// LinearFLOPs are those of a token in all matrices but the head, by the bits of activations: 16, 8, 4.
	LinearFLOPs [3]float64      `json:"linear_flops"`
	FixedBytes  float64         `json:"fixed_bytes"`       // of weights that every step reads: all but experts and head
	Experts     []ExpertWork    `json:"experts,omitempty"` // by kind
	HeadFLOPs   float64         `json:"head_flops"`        // of a sampled sequence
	HeadBytes   float64         `json:"head_bytes"`
	Attention   []AttentionWork `json:"attention,omitempty"` // by reach, the full one first
	// StatePrefillFLOPs and StateDecodeFLOPs are those of a token in recurrences; StateBytes are read and written for each
	// sequence in a step.
	StatePrefillFLOPs float64 `json:"state_prefill_flops"`
	StateDecodeFLOPs  float64 `json:"state_decode_flops"`
	StateBytes        float64 `json:"state_bytes"`
	// Widths is the values that a token's activations take inside mixers and ffns, on all GPUs.
	Widths float64 `json:"activation_widths"`
	// CacheBytes is what a token adds to the caches of all GPUs, windows included.
	CacheBytes float64 `json:"cache_bytes"`
	// HeadShare is the mean share of key heads in query heads, over mixers that cache (1/heads for a latent).
	HeadShare float64 `json:"kv_head_share"`
}

// ExpertWork is the work of a group of equal FFNs with experts.
type ExpertWork struct {
	Experts float64    `json:"experts"`
	TopK    float64    `json:"top_k"`
	Layers  float64    `json:"layers"`
	Bytes   float64    `json:"bytes"`        // of all experts in all these layers, on the engine's GPUs
	FLOPs   [3]float64 `json:"linear_flops"` // of LinearFLOPs the experts'
}

// AttentionWork is the cost of everything that scores pairs of tokens within one reach.
type AttentionWork struct {
	Reach        Reach   `json:"reach"`
	PrefillFLOPs float64 `json:"prefill_flops"` // of a pair, in chunks of prompts
	DecodeFLOPs  float64 `json:"decode_flops"`  // of a pair, in decodes
	Bytes        float64 `json:"bytes"`         // of an entry read, on all GPUs
	ContextFLOPs float64 `json:"context_flops"` // of a token in the cache before a chunk: keys and values made again from a latent (mla)
}

// Work returns the sums over the layers for one engine of p.TP GPUs.
func (d *Decoder) Work(p Parallel) Work {
	var w Work
	tp := float64(p.TP)
	caching := 0.0 // mixers that cache, and the sum of their shares of key heads in query heads
	shares := 0.0
	kinds, order := d.kinds()
	for k, layer := range kinds {
		count := float64(countOfKind(order, k))
		layer.everyLinear(func(matrix *Linear) { w.addLinear(matrix, layer, p, count) })
		if mixer := layer.Mixer; mixer != nil {
			w.Mixers += count
			w.addMixer(mixer, d.KVBytes, tp, count)
			for _, state := range mixer.states(d.KVBytes, p.TP) {
				if state.Kind != RecurrentState {
					w.CacheBytes += count * state.Bytes * tp / float64(max(1, state.Ratio))
				}
			}
			if mixer.caches() {
				share := float64(mixer.KVHeads) / float64(mixer.Heads)
				shares += count * share
				if caching == 0 {
					w.HeadShare = share
				}
				caching += count
				if share != w.HeadShare { // equal shares stay exact, without a division
					w.HeadShare = shares / caching
				}
			}
		}
		if ffn := layer.FFN; ffn != nil {
			w.FFNs += count
			w.Widths += count * ffn.Widths()
			if ffn.Kind == Experts {
				w.expertKind(ffn).Layers += count
			}
		}
	}
	for i := range d.PerLayer[min(1, len(d.PerLayer)):] { // the table is looked up, its projection multiplied
		w.addLinear(&d.PerLayer[1+i], &Layer{}, p, 1)
	}
	values := float64(d.Hidden * d.Vocab)
	w.HeadFLOPs = 2 * values
	w.HeadBytes = values * d.Head.Quant.BytesPerWeight
	stat.SortStable(w.Attention, func(a, b AttentionWork) int { return a.Reach.compare(b.Reach) })
	return w
}

// caches reports whether the mixer is attention, with a cache that grows with the tokens.
func (m *Mixer) caches() bool { return m.Kind == GQA || m.Kind == MLA || m.Kind == Compressed }

// compare returns the order of two reaches, the full one first.
func (r Reach) compare(o Reach) int {
	return slices.Compare([]int64{r.Window, r.Chunk, r.Ratio, r.TopK}, []int64{o.Window, o.Chunk, o.Ratio, o.TopK})
}

// addLinear adds a matrix of n layers that are like the given one.
func (w *Work) addLinear(matrix *Linear, layer *Layer, p Parallel, n float64) {
	values := float64(matrix.Rows * matrix.Columns)
	kv := int64(1)
	if layer.Mixer != nil {
		kv = max(1, layer.Mixer.KVHeads)
	}
	held := p.share(matrix, kv) * float64(p.TP) // of the GPUs together
	bytes := n * values * float64(matrix.Count) * matrix.Quant.BytesPerWeight * held
	active := float64(matrix.Count) // matrices that a token passes
	if matrix.Active > 0 {
		active = float64(matrix.Active)
	}
	if matrix.Placement == ByExpert {
		held = 1 // tokens of all engines, over the GPUs of all engines
	}
	byBits := 0 // index in LinearFLOPs
	switch matrix.Quant.ActivationBits {
	case 8:
		byBits = 1
	case 4:
		byBits = 2
	}
	flops := 2 * n * values * active * held
	w.LinearFLOPs[byBits] += flops
	if matrix.Placement != ByExpert {
		w.FixedBytes += bytes
		return
	}
	kind := w.expertKind(layer.FFN)
	kind.Bytes += bytes
	kind.FLOPs[byBits] += flops
}

// expertKind returns the entry of FFNs with as many experts and as many per token as f, added if
// new.
func (w *Work) expertKind(f *FFN) *ExpertWork {
	for i := range w.Experts {
		if e := &w.Experts[i]; e.Experts == float64(f.Experts) && e.TopK == float64(f.TopK) {
			return e
		}
	}
	w.Experts = append(w.Experts, ExpertWork{Experts: float64(f.Experts), TopK: float64(f.TopK)})
	return &w.Experts[len(w.Experts)-1]
}

// addAttention adds the attention of n mixers within a reach. prefill and decode are FLOP per pair,
// bytes per entry, context the FLOP per token in the cache before a chunk.
func (w *Work) addAttention(r Reach, n, prefill, decode, bytes, context float64) {
	i := slices.IndexFunc(w.Attention, func(a AttentionWork) bool { return a.Reach == r })
	if i < 0 {
		i = len(w.Attention)
		w.Attention = append(w.Attention, AttentionWork{Reach: r})
	}
	a := &w.Attention[i]
	a.PrefillFLOPs += n * prefill
	a.DecodeFLOPs += n * decode
	a.Bytes += n * bytes
	a.ContextFLOPs += n * context
}

// stateChunk is how many tokens of a prompt the kernels of recurrent layers process at a time
// (flash-linear-attention: 64).
const stateChunk = 64

// addMixer adds n equal mixers on tp GPUs, at bytesPerValue of a cached value. Operations are of a
// token, or of a pair of query and key: 2 for each multiply-add.
func (w *Work) addMixer(m *Mixer, bytesPerValue, tp, n float64) {
	heads := float64(m.Heads)
	dimK := float64(m.DimK)
	dimV := float64(m.DimV)
	pairFLOPs := 2 * heads * (dimK + dimV)
	kvHeads := max(float64(m.KVHeads), tp)
	switch m.Kind {
	case GQA:
		// A pair costs the score and its part of the weighted sum; an entry is the key and value of each
		// KV head.
		r := Reach{Window: m.Window, Chunk: m.Chunk}
		if index := m.Index; index != nil {
			r = Reach{TopK: index.TopK * index.Unit}
		}
		w.addAttention(r, n, pairFLOPs, pairFLOPs, kvHeads*(dimK+dimV)*bytesPerValue, 0)
		w.addIndex(m.Index, Reach{}, n, tp*float64(indexOfMixer(m).Dim)*min(bytesPerValue, 2))
		w.Widths += n * (heads + kvHeads + kvHeads) * (dimK + dimV)
	case MLA:
		// Decodes work on the latents. Prefills make keys and values of all heads from them first, unless
		// an index chooses the tokens.
		rank, rope := float64(m.KVRank), float64(m.Rope)
		latent := 2 * heads * (rank + rank + rope) // of a pair, on latents
		r := Reach{}
		inPrefill := pairFLOPs
		remake := 2 * rank * heads * (dimK - rope + dimV) // keys and values of a token of the context
		if index := m.Index; index != nil {
			r = Reach{TopK: index.TopK}
			inPrefill = latent
			remake = 0
		}
		w.addAttention(r, n, inPrefill, latent, tp*(rank+rope)*bytesPerValue, remake)
		w.addIndex(m.Index, Reach{}, n, tp*indexBytes(indexOfMixer(m).Dim))
		w.Widths += n * (heads*(dimK+dimV) + 2*tp*(rank+rope))
	case Compressed:
		entry := m.entryBytes(bytesPerValue) * tp
		w.addAttention(Reach{Window: m.Window}, n, pairFLOPs, pairFLOPs, entry, 0)
		if m.Ratio > 0 {
			w.addAttention(Reach{Ratio: m.Ratio, TopK: indexOfMixer(m).TopK}, n, pairFLOPs, pairFLOPs, entry, 0)
			w.addIndex(m.Index, Reach{Ratio: m.Ratio}, n, tp*indexBytes(indexOfMixer(m).Dim))
		}
		w.Widths += n * (heads + tp + tp) * (dimK + dimV)
	case Delta, Lightning, Mamba1, Mamba2:
		// A decode updates each value of the state (decay, add, read: 2 FLOP each). A prompt is computed in
		// chunks of stateChunk tokens: a token adds to the state and reads it once (2 FLOP each), and is
		// paired with the tokens of its chunk.
		if m.Kind == Mamba1 || m.Kind == Mamba2 {
			dimK = float64(m.StateSize)
		}
		w.StateDecodeFLOPs += n * 6 * heads * dimK * dimV
		chunked := heads * (4*dimK*dimV + 2*stateChunk*(dimK+dimV))
		if m.Kind == Mamba1 {
			chunked = 6 * heads * dimK * dimV // a scan, token by token
		}
		w.StatePrefillFLOPs += n * chunked
		w.StateBytes += n * 2 * tp * m.RecurrentBytes(tp)
		w.Widths += n * 2 * (float64(m.convWidth()) + heads*dimV)
	}
}

// indexOfMixer returns the mixer's index, the zero Index without one.
func indexOfMixer(m *Mixer) Index {
	if m.Index == nil {
		return Index{}
	}
	return *m.Index
}

// addIndex adds n indexes, which score every entry of r. An index that uses another layer's
// selection costs nothing.
func (w *Work) addIndex(x *Index, r Reach, n, bytes float64) {
	if x != nil && !x.Shared {
		flops := float64(2 * x.Heads * x.Dim)
		w.addAttention(r, n, flops, flops, bytes, 0)
	}
}

// Widths returns the number of activation values of a token inside the FFN.
func (f *FFN) Widths() float64 {
	active := f.Width
	switch f.Kind {
	case Experts:
		active = f.TopK*f.Width + f.SharedWidth + f.BesideWidth
	case LinearFFN:
		return 0
	}
	return float64(f.Projections * active)
}

// Reaches returns the reaches of attention that is not full, in order.
func (w *Work) Reaches() []Reach {
	var limited []Reach
	for _, a := range w.Attention {
		if a.Reach != (Reach{}) {
			limited = append(limited, a.Reach)
		}
	}
	return limited
}

// Reach is the set of cache entries that a query reads (spec#model-reach). The zero value is all tokens
// up to and including the query's own.
type Reach struct {
	Window int64 `json:"window,omitempty"` // the last so many tokens, itself included
	Chunk  int64 `json:"chunk,omitempty"`  // those of its own chunk of so many tokens
	TopK   int64 `json:"topk,omitempty"`   // so many entries at most, as an index chooses
	Ratio  int64 `json:"ratio,omitempty"`  // tokens of an entry, which exists once they are complete; 0: one
}

// Pairs returns the number of (query, KV entry) pairs of attention with this reach: the entries that
// each query reads, summed over n new tokens of a request that has c tokens in the KV cache.
func (r Reach) Pairs(c, n int64) int64 {
	switch {
	case r.Chunk > 0:
		return chunkPairs(c+n, r.Chunk) - chunkPairs(c, r.Chunk)
	case r.Ratio > 0:
		return r.ratioPairs(c+n) - r.ratioPairs(c)
	}
	if most := r.Window + r.TopK; most > 0 {
		below := max(0, min(n, most-c)) // queries that read all before them
		return below*c + below*(below+1)/2 + (n-below)*most
	}
	return n*c + n*(n+1)/2
}

// chunkPairs returns the pairs of the first n tokens when they attend in chunks of size.
func chunkPairs(n, size int64) int64 {
	rest := n % size
	return n/size*(size*(size+1)/2) + rest*(rest+1)/2
}

// ratioPairs returns the sum of min(floor(j/ratio), TopK) over the first n tokens j; TopK 0 is no
// limit.
func (r Reach) ratioPairs(n int64) int64 {
	full := n / r.Ratio // entries that token n reads
	if r.TopK > 0 && full > r.TopK {
		return r.ratioPairs1(r.TopK*r.Ratio-1) + (n-r.TopK*r.Ratio+1)*r.TopK
	}
	return r.ratioPairs1(n)
}

// ratioPairs1 returns the sum of floor(j/ratio) over the first n tokens j: so many tokens as the
// ratio read k entries, for each k below the last, and the rest read the last.
func (r Reach) ratioPairs1(n int64) int64 {
	full := n / r.Ratio // entries that token n reads
	return r.Ratio*(full*(full-1)/2) + (n-full*r.Ratio+1)*full
}

// Read returns the number of entries that n new tokens read together. An entry that several tokens
// read counts once.
func (r Reach) Read(c, n int64) int64 {
	entries := c + n
	switch {
	case r.Chunk > 0:
		return min(entries, c%r.Chunk+n)
	case r.Window > 0:
		return min(entries, r.Window-1+n)
	case r.Ratio > 0:
		entries /= r.Ratio
	}
	if r.TopK > 0 {
		return min(entries, r.TopK*n)
	}
	return entries
}

// Near returns the size of a window or of a top-k without Ratio: a token reads that many entries, or
// all if there are fewer. It returns 0 for every other reach.
func (r *Reach) Near() int64 {
	if r.Chunk+r.Ratio > 0 {
		return 0
	}
	return r.Window + r.TopK
}

// Approximate returns estimates of the pairs and of the entries read within the reach for several
// requests of which only sums are known: their queries, and the pairs and tokens under full
// attention. It is exact if all requests are shorter than the reach, or all longer.
func (r Reach) Approximate(requests, queries, pairs, tokens float64) (p, read float64) {
	if r.Ratio > 0 {
		pairs = pairs / float64(r.Ratio)
		tokens = tokens / float64(r.Ratio)
	}
	p, read = pairs, tokens
	if most := float64(r.Window + r.TopK + r.Chunk); most > 0 {
		p = min(pairs, most*queries)
		if read = min(tokens, most*queries); r.TopK == 0 {
			read = min(tokens, (most-1)*requests+queries)
		}
	}
	return p, read
}

// MaxReaches is the largest number of reaches of a model, without the full one: DeepSeek-V4 has
// four.
const MaxReaches = 4
