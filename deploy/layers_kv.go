package deploy

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// KVGroup is layers that share a table of blocks: every group draws its own blocks of one pool (spec#kv-groups).
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

// layerCache is what one layer caches.
type layerCache struct {
	kind   StateKind
	window int64
	chunk  bool
	bytes  float64 // of a token, or of a request
}

// KVPool lays out the cache as vLLM's manager does: layers of one kind of state form groups, cut to the size of the smallest
// kind (of the largest, when that is less than 1.5 times it); pages are made equal by larger blocks, and padded. blockSize is
// --block-size. ok is false for mixed pages (DeepSeek-V4) and for models that cache nothing.
func (d *Decoder) KVPool(p Parallel, blockSize int64) (pool KVPool, ok bool) {
	count, layers := map[layerCache]int64{}, d.Layers
	if p.MTP {
		layers = slices.Concat(layers, d.MTP)
	}
	states := 2 + p.Drafts
	if p.NoPrefixes {
		states--
	}
	for i := range layers {
		m := layers[i].Mixer
		if m == nil || m.SharesKV {
			continue
		}
		if m.Kind == Compressed {
			return pool, false
		}
		var c layerCache
		for _, s := range m.states(d.KVBytes, p.TP) { // an index lies in the page of its layer
			c.kind, c.window, c.chunk, c.bytes = s.Kind, max(c.window, s.Window), m.Chunk > 0, c.bytes+s.Bytes
			if m.Conv > 0 {
				c.bytes += float64(m.convWidth()) * float64(p.Drafts) * m.ConvBytes / float64(p.TP) // a tap for each draft
			}
		}
		if p.OneGroup && c.kind == WindowState {
			c.kind, c.window, c.chunk = TokenState, 0, false
		}
		if c.kind != "" {
			count[c]++
		}
	}
	kinds := slices.SortedFunc(maps.Keys(count), func(a, b layerCache) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.window, b.window), cmp.Compare(a.bytes, b.bytes))
	})
	if len(kinds) == 0 {
		return pool, false
	}
	least, most := count[kinds[0]], count[kinds[0]]
	for _, c := range kinds {
		least, most = min(least, count[c]), max(most, count[c])
	}
	size := least
	if float64(most) < 1.5*float64(least) {
		size = most
	}
	page, blockSize := d.page(kinds, blockSize)
	for _, c := range kinds {
		for left := count[c]; left > 0; left -= size {
			g := KVGroup{Kind: c.kind, Window: c.window, Chunk: c.chunk, Layers: min(size, left), Block: blockSize}
			if g.States = states; c.kind != RecurrentState {
				g.States = 0
				g.Block = max(blockSize, int64(page/c.bytes)/blockSize*blockSize)
			}
			pool.Groups = append(pool.Groups, g)
		}
	}
	pool.BlockBytes = float64(size) * page
	return pool, true
}

// page is the bytes of a layer's block, and the tokens of the widest layer's: with recurrent states a block holds as many
// tokens as a state is long, in whole kernel blocks (of 128 tokens for mla).
func (d *Decoder) page(kinds []layerCache, blockSize int64) (page float64, block int64) {
	token, state := 0.0, 0.0
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

// Blocks is the pool's blocks in so many bytes, the null block included.
func (k KVPool) Blocks(bytes float64) int64 { return int64(bytes / k.BlockBytes) }

// RequestBlocks is the blocks that a request of n tokens needs while up to inFlight tokens are computed at once: all of them,
// those of a window or a chunk and one that it begins in, or states: for itself, each draft and its latest cached point (prefix
// caching of recurrent states: align).
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

// KVUnits is the pool as the simulator plays it: a unit is one block of every full group, and holds Block tokens; windows,
// chunks and states take units of their own beside a request's tokens. Prefix hits are those of the full groups.
type KVUnits struct {
	Block  int64 // tokens
	Blocks int64 // of the pool in a unit
	rest   KVPool
}

// KVUnits are those of the deployment; of equal layers a block is a unit.
func (d *Deployment) KVUnits() KVUnits {
	u := KVUnits{Block: d.Engine.BlockSize, Blocks: 1}
	if d.Model.Layered == nil {
		return u
	}
	pool, _ := d.Model.Layered.KVPool(d.Parallel(), u.Block)
	full := int64(0)
	for _, g := range pool.Groups {
		if g.Kind == TokenState {
			full, u.Block = full+1, g.Block
		} else {
			u.rest.Groups = append(u.rest.Groups, g)
		}
	}
	if u.Blocks = max(1, full); full == 0 && len(u.rest.Groups) > 0 {
		u.Block = maxTokens // nothing grows with a request
	}
	return u
}

// Side is the units that a request takes beside its tokens until it has n of them.
func (u *KVUnits) Side(n int64) int64 { return (u.rest.RequestBlocks(n, 1) + u.Blocks - 1) / u.Blocks }

// BlocksOf is the pool's blocks, the null block included, where vLLM logs so many tokens ("GPU KV cache size"): up to 0.19 those of the
// smallest blocks of one group, so that less than a block for each group is missing; later as many requests of maxLen tokens as fit,
// in tokens.
func (k KVPool) BlocksOf(tokens, maxLen, inFlight int64, version string) int64 {
	if v, known := parseVersion(version); maxLen == 0 || known && less(v, requestTokensSince) {
		smallest := slices.MinFunc(k.Groups, func(a, b KVGroup) int { return cmp.Compare(a.Block, b.Block) }).Block
		return tokens / smallest * int64(len(k.Groups))
	}
	return (tokens*k.RequestBlocks(maxLen, inFlight) + maxLen - 1) / maxLen
}

// requestTokensSince is the first release whose log counts requests of max_model_len tokens (0.20 to 0.22 were not read).
var requestTokensSince = [2]int{0, 20}
