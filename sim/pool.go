package sim

import (
	"slices"
)

// none is the absent block or list end.
const none = int32(-1)

// held are the blocks of one request.
type held struct {
	N          int64   // blocks
	IDs        []int32 // their identities, with caching only
	Registered int64   // leading blocks whose content is known
}

// pool is the KV blocks of one engine (vllm/v1/core/block_pool.py: BlockPool). Without prefix
// caching it only counts; with it blocks have identities, reference counts, content hashes and an
// eviction order.
//
// Free blocks queue for eviction. Freed blocks go to the tail, the last block of a request before
// the ones in front of it; a cached block stays findable until it is taken again. With
// UnhashedFirst those without content go to the head, so that cached ones live longer.
type pool struct {
	Total, Free   int64
	Hits, Misses  int64 // blocks given to requests with content that they looked for, and empty ones
	Gains         int64 // times a block came free or content became findable
	Caching       bool
	UnhashedFirst bool // free_blocks() since 0.24

	Removed func(hash uint64)              // called when content is lost; set before the first Register; nil: no observer
	Taken   func(b int32)                  // called when a block is handed out to be filled; nil: no connector waits for its copies
	Watch   func(hash uint64, stored bool) // called when content first becomes findable and when its last block is lost

	blocks  []block
	content []content
	index   index
	queue   []int32 // a ring: free blocks, and none where one was taken out of turn
	head    uint64  // of the queue: the search for the next block to evict begins here
	tail    uint64
	spare   [][]int32 // lists of identities to use again: only running requests need one
}

// block is one block's identity, small because decodes touch little else.
type block struct {
	ref    int32
	place  int32 // in the queue while it is free
	hashed bool  // its content is known
	listed bool  // findable through the index
}

// content is what a hashed block holds.
type content struct {
	hash uint64
	dup  int32 // next block with the same hash, in the order they were registered
}

// newPool is a pool of total free blocks.
func newPool(total int64, caching bool) *pool {
	p := &pool{Total: total, Free: total, Caching: caching}
	if !caching {
		return p
	}
	p.blocks = make([]block, total)
	p.content = make([]content, total)
	p.index = newIndex(total)
	size := int64(4)
	for size < 2*total {
		size *= 2
	}
	p.queue = make([]int32, size)
	for b := range int32(total) {
		p.enqueue(b, false)
	}
	return p
}

// Clone is an independent copy without Removed and Watch.
func (p *pool) Clone() *pool {
	c := *p
	c.Removed = nil
	c.Watch = nil
	c.spare = nil
	c.blocks = slices.Clone(p.blocks)
	c.content = slices.Clone(p.content)
	c.index = slices.Clone(p.index)
	c.queue = slices.Clone(p.queue)
	return &c
}

// enqueue puts a free block at the tail, or at the head.
func (p *pool) enqueue(b int32, first bool) {
	if p.tail-p.head == uint64(len(p.queue)) {
		p.compact()
	}
	at := p.tail
	if first {
		p.head--
		at = p.head
	} else {
		p.tail++
	}
	at &= uint64(len(p.queue) - 1)
	p.queue[at] = b
	p.blocks[b].place = int32(at)
}

// compact closes the gaps in the queue, at least half of which are gaps.
func (p *pool) compact() {
	mask := uint64(len(p.queue) - 1)
	to := p.head
	for i := p.head; i != p.tail; i++ {
		if b := p.queue[i&mask]; b != none {
			p.queue[to&mask] = b
			p.blocks[b].place = int32(to & mask)
			to++
		}
	}
	p.tail = to
}

// takeFree removes the block from the head of the queue and forgets its content (get_new_blocks()).
func (p *pool) takeFree() int32 {
	mask := uint64(len(p.queue) - 1)
	for p.queue[p.head&mask] == none {
		p.head++
	}
	b := p.queue[p.head&mask]
	p.head++
	p.Free--
	at := &p.blocks[b]
	if p.Taken != nil {
		p.Taken(b)
	}
	if at.hashed {
		p.evict(b)
	}
	at.ref = 1
	return b
}

// release drops one reference. The last one puts the block into the queue: first, where it is to
// be handed out next (free_blocks()).
func (p *pool) release(b int32, first bool) {
	at := &p.blocks[b]
	at.ref--
	if at.ref > 0 {
		return
	}
	p.enqueue(b, first)
	p.Free++
	p.Gains++
}

// InUse reports whether a request holds block b.
func (p *pool) InUse(b int32) bool { return p.blocks[b].ref > 0 }

// Lookup returns the first registered block with the hash (get_cached_block()).
func (p *pool) Lookup(hash uint64) (int32, bool) {
	b := p.index.find(p.content, hash)
	return b, b != none
}

// Share gives a request the cached blocks of its prefix (touch()).
func (p *pool) Share(h *held, hits []int32) {
	for _, b := range hits {
		at := &p.blocks[b]
		if at.ref == 0 {
			p.queue[at.place] = none
			p.Free--
		}
		at.ref++
	}
	p.equip(h)
	h.IDs = append(h.IDs, hits...)
	h.N += int64(len(hits))
	p.Hits += int64(len(hits))
	h.Registered += int64(len(hits))
}

// Register notes the content of the request's next unregistered block and makes it findable,
// behind earlier blocks of the same content (cache_full_blocks()). A request's own content is noted
// for Removed only: no other request can look for it, and ListAll makes it findable for itself.
func (p *pool) Register(h *held, hash uint64, own bool) {
	b := h.IDs[h.Registered]
	h.Registered++
	p.content[b].hash = hash
	p.blocks[b].hashed = true
	if !own {
		p.makeFindable(b)
	}
}

// RegisterOwn is Register of all blocks before want, with the request's own content and no
// Removed.
func (p *pool) RegisterOwn(h *held, want int64) { h.Registered = max(h.Registered, want) }

// makeFindable enters a registered block in the index.
func (p *pool) makeFindable(b int32) {
	p.Gains++
	at := &p.content[b]
	p.blocks[b].listed, at.dup = true, none
	first := p.index.find(p.content, at.hash)
	if first == none {
		p.index.insert(at.hash, b)
		if p.Watch != nil {
			p.Watch(at.hash, true)
		}
		return
	}
	for p.content[first].dup != none {
		first = p.content[first].dup
	}
	p.content[first].dup = b
}

// ListAll makes all registered blocks of h, of content c, findable: the request
// is preempted and will look for them itself.
func (p *pool) ListAll(h *held, c *Content, blockSize int64) {
	for i, b := range h.IDs[:h.Registered] {
		if p.blocks[b].listed {
			continue
		}
		hash, _ := c.Block(int64(i), blockSize)
		p.content[b].hash = hash
		p.blocks[b].hashed = true
		p.makeFindable(b)
	}
}

// evict forgets the content of b (_maybe_evict_cached_block()).
func (p *pool) evict(b int32) {
	at := &p.content[b]
	p.blocks[b].hashed = false
	if p.Removed != nil {
		p.Removed(at.hash)
	}
	if !p.blocks[b].listed {
		return
	}
	p.blocks[b].listed = false
	first := p.index.find(p.content, at.hash)
	switch {
	case first != b:
		for p.content[first].dup != b {
			first = p.content[first].dup
		}
		p.content[first].dup = at.dup
	case at.dup == none:
		p.index.remove(p.content, at.hash)
		if p.Watch != nil {
			p.Watch(at.hash, false)
		}
	default:
		p.index.replace(p.content, at.hash, at.dup)
	}
}

// Grow gives h blocks until it has want of them. The caller must have checked Free.
func (p *pool) Grow(h *held, want int64) {
	p.Misses += max(0, want-h.N)
	if !p.Caching {
		p.Free -= want - h.N
		h.N = want
		return
	}
	p.equip(h)
	for h.N < want {
		h.IDs = append(h.IDs, p.takeFree())
		h.N++
	}
}

// equip gives h a list for its identities.
func (p *pool) equip(h *held) {
	if n := len(p.spare); h.IDs == nil && n > 0 {
		h.IDs, p.spare = p.spare[n-1], p.spare[:n-1]
	}
}

// Drop returns all blocks of h, its last one first.
func (p *pool) Drop(h *held) {
	if !p.Caching {
		p.Free += h.N
		p.Gains++
		h.N = 0
		return
	}
	last := len(h.IDs) - 1
	if p.UnhashedFirst {
		for i := int(h.Registered); i <= last; i++ {
			p.release(h.IDs[i], true)
		}
		last = min(last, int(h.Registered)-1)
	}
	for i := last; i >= 0; i-- {
		p.release(h.IDs[i], false)
	}
	if h.IDs != nil {
		p.spare = append(p.spare, h.IDs[:0])
	}
	h.IDs = nil
	h.N = 0
	h.Registered = 0
}
