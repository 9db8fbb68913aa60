package model

// This file computes what the layers of a model cache, and how vLLM divides the memory of the cache
// into blocks (vllm/v1/core/kv_cache_utils.py).

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/vllm"

	"github.com/blis-train/blis-train/internal/stat"
)

// states returns what the mixer caches on one of tp GPUs, with bytesPerValue for each cached value
// (spec#model-cache).
func (m *Mixer) states(bytesPerValue float64, tp int64) []State {
	var out []State
	if m.Index != nil && !m.Index.Shared && m.Kind != Compressed {
		bytes := indexBytes(m.Index.Dim)
		if m.Index.Unit > 1 { // MiniMax-M3 stores index keys in the cache's type
			bytes = float64(m.Index.Dim) * min(bytesPerValue, 2)
		}
		out = append(out, State{Kind: TokenState, Bytes: bytes})
	}
	share := func(heads int64) float64 { return float64(max(heads, tp)) / float64(tp) } // at least one head on each GPU
	switch m.Kind {
	case GQA:
		if m.SharesKV {
			return nil
		}
		s := State{Kind: TokenState, Bytes: share(m.KVHeads) * float64(m.DimK+m.DimV) * bytesPerValue}
		if s.Window = m.Window + m.Chunk; s.Window > 0 {
			s.Kind = WindowState
		}
		return append(out, s)
	case MLA:
		return append(out, State{Kind: TokenState, Bytes: float64(m.KVRank+m.Rope) * bytesPerValue})
	case Compressed:
		return m.compressedStates(bytesPerValue)
	case Delta, Mamba1, Mamba2, Lightning:
		return []State{{Kind: RecurrentState, Bytes: m.RecurrentBytes(float64(tp))}}
	}
	return nil
}

// indexBytes returns the bytes of a token's key in an index. They do not depend on the cache's
// type: the key is fp8 with a scale of 4 B for 128 values.
func indexBytes(dim int64) float64 { return float64(dim) + 4*float64(dim)/128 }

// compressedStates returns the caches of DeepSeek-V4: a window in every layer, an entry for Ratio
// tokens, and the tokens that the compressor has not yet turned into an entry, as fp32 values and
// gates of Overlap x Ratio tokens.
func (m *Mixer) compressedStates(bytesPerValue float64) []State {
	entry := m.entryBytes(bytesPerValue)
	out := []State{{Kind: WindowState, Bytes: entry, Window: m.Window}}
	if m.Ratio == 0 {
		return out
	}
	pending := func(dim int64) float64 { // bytes of pending values of width dim
		const valueAndGate, fp32 = 2, 4
		return float64(valueAndGate*m.Overlap()*dim*fp32) * float64(m.Overlap()*m.Ratio)
	}
	held := pending(m.DimK)
	if m.Index != nil {
		entry += indexBytes(m.Index.Dim)
		held += pending(m.Index.Dim)
	}
	return append(out, State{Kind: CompressedState, Bytes: entry, Ratio: m.Ratio}, State{Kind: RecurrentState, Bytes: held})
}

// entryBytes returns the bytes of an entry of DeepSeek-V4's cache, whose keys are also the values.
func (m *Mixer) entryBytes(bytesPerValue float64) float64 {
	if bytesPerValue < 2 { // fp8_ds_mla: the positional part (Rope) in 16 bit, and 8 bytes of scales
		return float64(m.DimK + m.Rope + 8)
	}
	return float64(m.DimK) * bytesPerValue
}

// RecurrentBytes returns the bytes of one request's recurrent state on one of t GPUs, with the last
// inputs of the convolution.
func (m *Mixer) RecurrentBytes(t float64) float64 {
	values := float64(m.Heads * m.DimV * m.DimK)
	switch m.Kind {
	case Mamba1, Mamba2:
		values = float64(m.Heads * m.DimV * m.StateSize)
	}
	conv := 0.0
	if m.Conv > 0 {
		conv = float64(m.convWidth()) * float64(m.Conv-1) * m.ConvBytes
	}
	return (values*m.StateBytes + conv) / t
}

// Cache is the memory of one request's caches on one GPU, in bytes.
type Cache struct {
	BytesPerToken  float64 // per token, in the caches that keep all tokens
	WindowPerToken float64 // per token, in the caches that keep the last tokens
	WindowBytes    float64 // of the caches that keep the last tokens, when full
	StateBytes     float64 // of the states whose size does not depend on the tokens
}

// Cache returns the sums of the caches of all layers on one of t tensor-parallel GPUs, with b bytes
// for each cached value.
func (d *Decoder) Cache(b float64, t int64) Cache {
	var c Cache
	for i := range d.Layers {
		if d.Layers[i].Mixer == nil {
			continue
		}
		for _, s := range d.Layers[i].Mixer.states(b, t) {
			switch s.Kind {
			case TokenState:
				c.BytesPerToken += s.Bytes
			case CompressedState:
				c.BytesPerToken += s.Bytes / float64(s.Ratio)
			case WindowState:
				c.WindowPerToken += s.Bytes
				c.WindowBytes += s.Bytes * float64(s.Window)
			case RecurrentState:
				c.StateBytes += s.Bytes
			}
		}
	}
	return c
}

// KVGroup is a set of layers with one block table. Every group allocates its own blocks from one
// pool (spec#kv-groups).
type KVGroup struct {
	Kind   StateKind `json:"kind"`
	Window int64     `json:"window,omitempty"` // tokens; 0: all
	Chunk  bool      `json:"chunk,omitempty"`  // Window is a chunk
	Layers int64     `json:"layers"`           // of the group; the last of a kind may have fewer
	Block  int64     `json:"block"`            // tokens of a block
	States int64     `json:"states,omitempty"` // recurrent: blocks of a request
}

// KVPool is the cache of one GPU as vLLM lays it out.
type KVPool struct {
	Groups     []KVGroup `json:"groups"`
	BlockBytes float64   `json:"block_bytes"` // of a block of the pool, in all layers that share it
}

// layerCache describes the cache of one layer; layers with equal caches can share a group.
type layerCache struct {
	kind   StateKind
	window int64
	chunk  bool
	bytes  float64 // of a token, or of a request
}

// KVPool returns the layout of the cache as vLLM's manager makes it
// (vllm/v1/core/kv_cache_utils.py). Layers with equal caches form groups. All groups have the same
// number of layers: that of the rarest cache, or of the most frequent one if it has less than 1.5
// times as many. Pages of all groups are made equally large, by blocks of more tokens and then by
// padding.
//
// blockSize is --block-size. ok is false for models that cache nothing, and for DeepSeek-V4 under
// releases whose layout is not known.
func (d *Decoder) KVPool(p Parallel, blockSize int64) (pool KVPool, ok bool) {
	count := map[layerCache]int64{}
	layers := d.Layers
	if p.MTP {
		layers = slices.Concat(layers, d.MTP)
	}
	states := 2 + p.Drafts // recurrent states of a request: its own, the last cached one, one for each draft
	if p.NoPrefixes {
		states--
	}
	// What does each layer cache?
	for i := range layers {
		mixer := layers[i].Mixer
		if mixer == nil || mixer.SharesKV {
			continue
		}
		if mixer.Kind == Compressed {
			return d.packedPool(layers, p, blockSize)
		}
		var cache layerCache
		for _, s := range mixer.states(d.KVBytes, p.TP) { // an index lies in the page of its layer
			cache.kind = s.Kind
			cache.window = max(cache.window, s.Window)
			cache.chunk = mixer.Chunk > 0
			cache.bytes += s.Bytes
			if mixer.Conv > 0 {
				cache.bytes += float64(mixer.convWidth()) * float64(p.Drafts) * mixer.ConvBytes / float64(p.TP) // a tap for each draft
			}
		}
		if p.OneGroup && cache.kind == WindowState {
			cache.kind = TokenState
			cache.window = 0
			cache.chunk = false
		}
		if cache.kind != "" {
			count[cache]++
		}
	}
	// The layers of a group: the rarest cache decides.
	kinds := slices.Collect(maps.Keys(count))
	stat.SortStable(kinds, func(a, b layerCache) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.window, b.window), cmp.Compare(a.bytes, b.bytes))
	})
	if len(kinds) == 0 {
		return pool, false
	}
	least, most := count[kinds[0]], count[kinds[0]]
	for _, cache := range kinds {
		least = min(least, count[cache])
		most = max(most, count[cache])
	}
	size := least
	if float64(most) < 1.5*float64(least) {
		size = most
	}
	// Groups of that many layers, each with its own block table.
	page, blockSize := d.pageSize(kinds, blockSize)
	for _, cache := range kinds {
		for left := count[cache]; left > 0; left -= size {
			group := KVGroup{Kind: cache.kind, Window: cache.window, Chunk: cache.chunk, Layers: min(size, left), Block: blockSize}
			if cache.kind == RecurrentState {
				group.States = states
			} else {
				group.Block = max(blockSize, int64(page/cache.bytes)/blockSize*blockSize)
			}
			pool.Groups = append(pool.Groups, group)
		}
	}
	pool.BlockBytes = float64(size) * page
	return pool, true
}

// WidestPagesSince is the first release in which a block of DeepSeek-V4's cache has the size of the
// widest table. Before, pages of each size have their own slots (vllm/v1/core/kv_cache_utils.py;
// models/deepseek_v4).
var WidestPagesSince = vllm.Release{0, 27}

// packedPool returns the layout of DeepSeek-V4's cache (vllm/models/deepseek_v4). There is one
// block table for the entries and index keys of all layers, and others for their windows and for
// the pending tokens of the compressors of ratio 4 and 128. A table of many layers is split into
// tables of size layers each, with the size for which the least is padded. A block of the pool has
// the size of the widest table.
func (d *Decoder) packedPool(layers []Layer, p Parallel, blockSize int64) (pool KVPool, ok bool) {
	whole := d.whole // the layers of all pipeline stages
	if whole == nil {
		whole = layers
	}
	// Every layer has a window. Some also have entries of 4 tokens, others of 128.
	const (
		windows = iota
		entriesOf4
		entriesOf128
		tables
	)
	// count returns the number of layers in each table.
	count := func(layers []Layer) (inTable [tables]int64) {
		for _, l := range layers {
			if l.Mixer == nil {
				continue
			}
			switch l.Mixer.Ratio {
			case 0:
				inTable[windows]++
			case 4:
				inTable[windows]++
				inTable[entriesOf4]++
			case 128:
				inTable[windows]++
				inTable[entriesOf128]++
			}
		}
		return inTable
	}
	before := func(release vllm.Release) bool {
		return p.Release != vllm.Release{} && p.Release.Before(release)
	}
	i := slices.IndexFunc(whole, func(l Layer) bool { return l.Mixer != nil && l.Mixer.Index != nil })
	if i < 0 || before(vllm.Release{0, 20}) {
		return pool, false
	}
	indexed := whole[i].Mixer
	ofStage := count(layers)
	ofModel := count(whole)
	// Pages, of entries and of index keys, are whole multiples of so many bytes.
	pageUnit, indexUnit := int64(512), int64(512)
	if d.KVBytes < 2 { // fp8_ds_mla
		pageUnit, indexUnit = 576, 576
	} else if before(vllm.Release{0, 25}) {
		indexUnit = 576
	}
	roundUp := func(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
	blockSize = roundUp(blockSize, 256)
	entry := int64(indexed.entryBytes(d.KVBytes))
	entriesPerBlock := blockSize / 4
	page := roundUp(entriesPerBlock*entry, pageUnit)
	indexPage := roundUp(entriesPerBlock*int64(indexBytes(indexed.Index.Dim)), indexUnit)
	pageOf128 := roundUp(blockSize/128*entry, pageUnit)
	// size is the number of layers of a table for which the least is padded, when tables are split: of
	// equal ones the largest.
	split, least := ofModel[:], ofModel[entriesOf4] // numbers of layers that are split, and the least size
	// Since 0.29 entries count in the split only where layers of both ratios pair.
	if before(vllm.Release{0, 29}) || ofModel[entriesOf128] == 0 || ofModel[entriesOf4] == ofModel[entriesOf128] {
		least = max(ofModel[entriesOf4], ofModel[entriesOf128])
		split = append(split, least)
	}
	size, padding := least, int64(math.MaxInt64)
	for candidate := least; candidate <= slices.Max(split); candidate++ {
		padded := int64(0)
		for _, n := range split {
			padded += (candidate - n%candidate) % candidate
		}
		if padded <= padding {
			size = candidate
			padding = padded
		}
	}
	// The window of attention, and the pending tokens of the compressors: as windows of two entries of 4 and
	// of one entry of 128.
	groups := [tables]KVGroup{
		windows:      {Window: indexed.Window, Block: 64},
		entriesOf4:   {Window: 8, Block: 4},
		entriesOf128: {Window: 128, Block: 8},
	}
	var layersPerTable [tables]int64 // on this stage, of each of the tables into which one is split
	for table, group := range groups {
		parts := max(1, roundUp(ofModel[table], size)/size)
		layersPerTable[table] = roundUp(ofStage[table], parts) / parts
		group.Kind = WindowState
		group.Layers = layersPerTable[table]
		if ofModel[table] > 0 {
			pool.Groups = append(pool.Groups, slices.Repeat([]KVGroup{group}, int(parts))...)
		}
	}
	pool.Groups = append(pool.Groups, KVGroup{Kind: TokenState, Layers: ofStage[entriesOf4] + ofStage[entriesOf128], Block: blockSize})
	pendingBytes := roundUp(64*indexed.DimK, pageUnit) // fp32 values and gates: 8 tokens', or 4 tokens' in two entries
	pendingIndexBytes := roundUp(64*indexed.Index.Dim, pageUnit)
	blockBytes := max(
		ofStage[entriesOf4]*(page+indexPage)+ofStage[entriesOf128]*pageOf128,
		layersPerTable[windows]*roundUp(64*entry, pageUnit),
		layersPerTable[entriesOf4]*(pendingBytes+pendingIndexBytes),
		layersPerTable[entriesOf128]*pendingBytes,
	)
	if before(WidestPagesSince) {
		most := max(ofStage[entriesOf4], layersPerTable[windows], layersPerTable[entriesOf4], layersPerTable[entriesOf128])
		blockBytes = most*page + max(ofStage[entriesOf4], layersPerTable[entriesOf4])*indexPage + ofStage[entriesOf128]*pageOf128
		if before(vllm.Release{0, 23}) { // the pool has equally many pages of each size
			blockBytes = max(most, ofStage[entriesOf128]) * (page + indexPage + pageOf128)
		}
	}
	pool.BlockBytes = float64(blockBytes)
	return pool, true
}

// pageSize returns the bytes of one layer's block, and the tokens of a block in the layer with the
// widest entries. With recurrent states a block has as many tokens as fill the bytes of a state, in
// whole kernel blocks (of 128 tokens for MLA), as vLLM aligns attention pages with Mamba pages.
func (d *Decoder) pageSize(kinds []layerCache, blockSize int64) (page float64, block int64) {
	token, state := 0.0, 0.0 // bytes of the widest entry of a token, and of the largest recurrent state
	for _, c := range kinds {
		if c.kind == RecurrentState {
			state = max(state, c.bytes)
		} else {
			token = max(token, c.bytes)
		}
	}
	if state > 0 && token > 0 {
		if slices.ContainsFunc(d.Layers, func(l Layer) bool { return l.Mixer != nil && l.Mixer.Kind == MLA }) {
			blockSize = max(blockSize, 128)
		}
		blockSize *= int64(math.Ceil(state / (float64(blockSize) * token)))
	}
	return max(state, token*float64(blockSize)), blockSize
}

// Blocks returns how many blocks fit into so many bytes, including the null block.
func (k KVPool) Blocks(bytes float64) int64 { return int64(bytes / k.BlockBytes) }

// RequestBlocks returns the number of blocks that a request of n tokens needs while up to inFlight
// tokens are computed in a step. A group with full attention needs blocks for all n tokens. A group
// with a window or chunks needs those of the window and of inFlight, at most of n, and one more,
// because a window may begin within a block. A group of recurrent states needs a block for the
// state, one for each draft and one for the last cached state (mamba_cache_mode align).
func (k KVPool) RequestBlocks(n, inFlight int64) int64 {
	var blocks int64
	for _, g := range k.Groups {
		up := func(tokens int64) int64 { return (tokens + g.Block - 1) / g.Block }
		switch {
		case g.Kind == RecurrentState:
			blocks += g.States
		case g.Chunk:
			blocks += up(min(g.Window+inFlight, n)) + 1
		case g.Window > 0:
			blocks += up(min(g.Window-1+inFlight, n)) + 1
		default:
			blocks += up(n)
		}
	}
	return blocks
}

// KVUnits is the pool in the form that the simulator uses. A unit is one block of every group with full
// attention and has Block tokens. The blocks of windows, chunks and states of a request are counted in
// additional units (Side). Prefix hits are those of the full groups.
type KVUnits struct {
	Block  int64  // tokens
	Blocks int64  // blocks of the pool in a unit
	rest   KVPool // the groups without full attention
}

// KVUnits returns the units of the model's pool for blocks of blockSize tokens. Where all layers
// are alike a unit is a block.
func (m *Model) KVUnits(p Parallel, blockSize int64) KVUnits {
	u := KVUnits{Block: blockSize, Blocks: 1}
	if m.Layered == nil {
		return u
	}
	pool, _ := m.Layered.KVPool(p, u.Block)
	full := int64(0)
	for _, g := range pool.Groups {
		if g.Kind == TokenState {
			full++
			u.Block = g.Block
		} else {
			u.rest.Groups = append(u.rest.Groups, g)
		}
	}
	u.Blocks = max(1, full)
	if full == 0 && len(u.rest.Groups) > 0 {
		u.Block = vllm.MaxTokens // nothing grows with a request
	}
	return u
}

// Side returns the number of KV units that a request of n tokens takes for sliding windows, attention
// chunks and recurrent states, in addition to the units of its tokens.
func (u *KVUnits) Side(n int64) int64 { return (u.rest.RequestBlocks(n, 1) + u.Blocks - 1) / u.Blocks }

// BlocksOf returns the pool's blocks, including the null block, from the tokens that vLLM logs ("GPU KV
// cache size"). Up to 0.19 vLLM logs the tokens of one group with the smallest blocks, so the result is
// short by less than a block for each group; later releases log the tokens of the requests of maxLen
// tokens that fit.
func (k KVPool) BlocksOf(tokens, maxLen, inFlight int64, version string) int64 {
	if v, known := vllm.ParseRelease(version); maxLen == 0 || known && v.Before(requestTokensSince) {
		smallest := slices.MinFunc(k.Groups, func(a, b KVGroup) int { return cmp.Compare(a.Block, b.Block) }).Block
		return tokens / smallest * int64(len(k.Groups))
	}
	return (tokens*k.RequestBlocks(maxLen, inFlight) + maxLen - 1) / maxLen
}

// requestTokensSince is the first release whose log counts requests of max_model_len tokens (0.20 to 0.22 were not read).
var requestTokensSince = vllm.Release{0, 20}
