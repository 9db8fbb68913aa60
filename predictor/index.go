package predictor

// This file replays a router's prefix index, from which it expects how much of a prompt is cached.

import (
	"container/list"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/reconstruct"
	"github.com/blis-train/blis-train/trace"
)

// blockIndex is a list of cached KV blocks in the order of their last use (LRU), replayed from the
// requests that were scheduled. It models the index of a router that the engine's KV events keep up
// to date.
type blockIndex struct {
	blockSize, capacity int64
	order               *list.List // of blockID, most recent first
	at                  map[blockID]*list.Element
	learned             map[string]int64 // by group: most blocks found in the cache by one of its requests
	groups              map[string]int64 // by group: the owner of its blocks, a number below 0 (blockID)
}

// blockID names one block of prompt tokens: the k-th of a group's shared prefix
// (owner below 0), or of one request's own tokens (owner is its place).
type blockID struct{ owner, k int64 }

// newBlockIndex returns an empty index with room for the KV blocks of the deployment.
func newBlockIndex(d *deploy.Deployment) *blockIndex {
	blocks, _, err := d.KVBlocks()
	if err != nil {
		blocks = 1 << 40 // nothing is ever evicted
	}
	return &blockIndex{
		blockSize: d.Engine.BlockSize,
		capacity:  blocks,
		order:     list.New(),
		at:        map[blockID]*list.Element{},
		learned:   map[string]int64{},
		groups:    map[string]int64{},
	}
}

// blocksOf returns the blocks of the prompt of the i-th request, the shared ones first.
func (x *blockIndex) blocksOf(i int, l *requestLife) []blockID {
	n := l.prompt.V / x.blockSize
	shared := int64(0) // blocks of the group's prefix; the whole prompt if its length is unknown
	group := int64(0)  // owner of these
	if l.group != "" {
		if x.groups[l.group] == 0 {
			x.groups[l.group] = -int64(len(x.groups)) - 1
		}
		shared = n
		group = x.groups[l.group]
		if l.groupTokens.OK {
			shared = min(n, l.groupTokens.V/x.blockSize)
		}
	}
	out := make([]blockID, n)
	for k := range n {
		out[k] = blockID{owner: int64(i), k: k}
		if k < shared {
			out[k] = blockID{owner: group, k: k}
		}
	}
	return out
}

// cachedShare returns the share of the i-th request's prompt that is in the index as a prefix of
// whole blocks. If the length that a group shares is unknown, the longest hit of its earlier
// requests bounds it.
func (x *blockIndex) cachedShare(i int, l *requestLife) float64 {
	limit := reconstruct.MaxCachedBlocks(l.prompt.V, x.blockSize) // vLLM computes the last token of every prompt
	if l.group != "" && !l.groupTokens.OK {
		limit = min(limit, x.learned[l.group])
	}
	found := int64(0)
	for _, b := range x.blocksOf(i, l) {
		if found == limit || x.at[b] == nil {
			break
		}
		found++
	}
	return float64(found*x.blockSize) / float64(l.prompt.V)
}

// insertPrompt makes the blocks of the i-th request's prompt the most recent ones, and evicts the
// oldest. hitTokens is the recorded prefix hit at the request's first admission.
func (x *blockIndex) insertPrompt(i int, l *requestLife, hitTokens trace.Opt[int64]) {
	if hitTokens.OK && l.group != "" {
		x.learned[l.group] = max(x.learned[l.group], hitTokens.V/x.blockSize)
	}
	blocks := x.blocksOf(i, l)
	slices.Reverse(blocks) // the end of a chain is evicted first
	for _, b := range blocks {
		if e := x.at[b]; e != nil {
			x.order.MoveToFront(e)
			continue
		}
		x.at[b] = x.order.PushFront(b)
		if int64(x.order.Len()) > x.capacity {
			delete(x.at, x.order.Remove(x.order.Back()).(blockID))
		}
	}
}

// actualScore returns the share of the prompt that was cached at first admission, in whole blocks;
// unknown if it was not recorded.
func actualScore(l *requestLife, blockSize int64, caching bool) trace.Opt[float64] {
	if !caching {
		return trace.Some(0.0)
	}
	if !l.cached.OK || !l.prompt.OK || l.prompt.V < 1 {
		return trace.Opt[float64]{}
	}
	cachedBlocks := l.cached.V / blockSize
	return trace.Some(float64(cachedBlocks*blockSize) / float64(l.prompt.V))
}
