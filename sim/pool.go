package sim

// This file is the pool of GPU KV blocks. It mirrors vllm/v1/core/block_pool.py and the parts of
// kv_cache_manager.py that allocate and free blocks.
//
// Words: a block is hashed if its content hash is known, and findable (listed in the index) if a
// lookup may return it. Own content is content that no other request can have.

import (
	"slices"
	"sync"
)

// none marks a missing block, and the end of a list of blocks.
const none = int32(-1)

// unused stands in pool.queue for all blocks that were never taken, in the order of their numbers.
const unused = int32(-2)

// held is the KV blocks of one request.
type held struct {
	N          int64   // number of blocks
	IDs        []int32 // the blocks in the order of their tokens; nil without prefix caching
	Registered int64   // number of leading blocks that are full and whose content hash is known
	holder     int32   // its number in the pool's log, which knows its blocks; 0: IDs has them
}

// pool is the KV blocks of one engine. It mirrors vllm/v1/core/block_pool.py: BlockPool. Without prefix
// caching it only counts blocks. With prefix caching each block has a number, a reference count and a
// content hash, and free blocks have an order in which they are used again.
//
// Free blocks are in a queue and are taken from its head. Blocks that come free go to the tail, the
// last block of a request first, so that the end of a prompt is evicted before its beginning. A free
// block keeps its content, and can be found by its hash, until it is taken. With UnhashedFirst blocks
// without a content hash go to the head, so that cached blocks live longer.
//
// Memory follows the blocks that were taken at least once, because most simulations use few of them.
type pool struct {
	Total, Free   int64
	Hits, Misses  int64 // blocks given to requests from the cache, and blocks taken to be filled
	Gains         int64 // grows whenever a block comes free or becomes findable; Engine.admit compares it to see whether a new attempt can succeed
	Caching       bool  // prefix caching
	UnhashedFirst bool  // as free_blocks() does since 0.24

	// Removed is called when the content of a block is evicted. It must be set before the first
	// Register; nil without an observer.
	Removed func(hash uint64)
	// Taken is called when a block is taken to be filled; nil unless a connector has to wait for
	// copies from it.
	Taken func(b int32)
	// Watch is called when a content hash becomes findable, and when its last block is evicted.
	Watch func(hash uint64, stored bool)

	poolMemory
	log  poolLog
	head uint64 // place of the next block to take; the index in queue is its low bits
	tail uint64 // place after the last block; tail - head entries, gaps included, are in the queue
}

// poolMemory is the memory of a pool with prefix caching, which is used again after an engine is closed: a
// validation replays a phase hundreds of times.
type poolMemory struct {
	blocks  []block   // by number: the blocks that were taken at least once
	content []content // of the same blocks
	index   index
	queue   []int32      // ring of free blocks: one entry for all unused ones, and none where a block was taken out of order
	spare   [][]int32    // unused memory for held.IDs
	changes []poolChange // unused memory for a log
}

// unusedMemory has the *poolMemory of closed engines.
var unusedMemory sync.Pool

// block is the state of one block. It is small, because decodes touch little other memory.
type block struct {
	ref    int32 // number of requests that hold it
	place  int32 // its index in pool.queue while it is free
	hashed bool  // its content hash is known
	listed bool  // pool.index finds it
}

// content is the content hash of a block.
type content struct {
	hash uint64
	dup  int32 // the next block with the same hash, in the order of registration; or none
}

// newPool returns a pool of total blocks, all free.
func newPool(total int64, caching bool) *pool {
	p := &pool{Total: total, Free: total, Caching: caching}
	if !caching {
		return p
	}
	if m, ok := unusedMemory.Get().(*poolMemory); ok {
		p.poolMemory = *m
		p.blocks = p.blocks[:0]
		p.content = p.content[:0]
		p.log.changes = p.changes[:0]
	} else {
		p.index = newIndex(0)
		p.queue = make([]int32, 16)
	}
	p.queue[0] = unused
	p.tail = 1
	return p
}

// Close gives the memory of the pool to later ones. It counts its blocks as before, and no longer knows them.
func (p *pool) Close() {
	if p.Caching && p.index != nil {
		m := p.poolMemory
		m.changes = p.log.changes
		if !p.log.on {
			m.index.clear()
		}
		unusedMemory.Put(&m)
		p.poolMemory = poolMemory{}
	}
}

// Clone returns an independent copy without the functions Removed and Watch.
func (p *pool) Clone() *pool {
	c := *p
	c.Removed = nil
	c.Watch = nil
	c.poolMemory = poolMemory{
		blocks:  slices.Clone(p.blocks),
		content: slices.Clone(p.content),
		index:   slices.Clone(p.index),
		queue:   slices.Clone(p.queue),
	}
	c.log.changes = slices.Clone(p.log.changes)
	c.log.ids = slices.Clone(p.log.ids)
	for holder, ids := range c.log.ids {
		c.log.ids[holder] = slices.Clone(ids)
	}
	return &c
}

// enqueue puts free block b at the tail of the queue, or with first at its head.
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
	at &= uint64(len(p.queue) - 1) // the length is a power of two
	p.queue[at] = b
	p.blocks[b].place = int32(at)
}

// compact removes the gaps from the full queue, and doubles it if gaps were less than a half of it.
func (p *pool) compact() {
	from := p.queue
	gaps := 0
	for _, b := range from {
		if b == none {
			gaps++
		}
	}
	if gaps < len(from)/2 {
		p.queue = make([]int32, 2*len(from))
	}
	to := p.head
	for i := p.head; i != p.tail; i++ {
		b := from[i&uint64(len(from)-1)]
		if b == none {
			continue
		}
		at := to & uint64(len(p.queue)-1)
		p.queue[at] = b
		if b != unused {
			p.blocks[b].place = int32(at)
		}
		to++
	}
	p.tail = to
}

// takeFree removes the block at the head of the queue, evicts its content and returns it
// (block_pool.py: get_new_blocks()). One must be free.
func (p *pool) takeFree() int32 {
	mask := uint64(len(p.queue) - 1)
	for p.queue[p.head&mask] == none {
		p.head++
	}
	b := p.queue[p.head&mask]
	if b == unused { // this entry stays at the head until all blocks were taken once
		b = p.addBlock()
	} else {
		p.head++
	}
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

// addBlock takes the first unused block, which is at the head of the queue, and returns its number.
func (p *pool) addBlock() int32 {
	b := int32(len(p.blocks))
	p.blocks = append(p.blocks, block{})
	p.content = append(p.content, content{})
	if int64(len(p.blocks)) == p.Total {
		p.head++
	}
	p.index = p.index.withRoom(p.content)
	return b
}

// release removes one reference to block b. Without references the block goes to the tail of the
// free queue, or with first to its head (block_pool.py: free_blocks()).
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

// InUse reports whether a request uses block b.
func (p *pool) InUse(b int32) bool { return p.blocks[b].ref > 0 }

// Lookup returns the first registered block with the hash (block_pool.py: get_cached_block()).
func (p *pool) Lookup(hash uint64) (int32, bool) {
	p.replayLog()
	b := p.index.find(p.content, hash)
	return b, b != none
}

// Share gives request h the cached blocks of its prefix, hits (block_pool.py: touch()). Free ones
// among them leave the queue.
func (p *pool) Share(h *held, hits []int32) {
	if len(hits) == 0 {
		return
	}
	p.identify(h)
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

// Register stores the content hash of the request's next full block and makes the block findable,
// after earlier blocks with the same content (block_pool.py: cache_full_blocks()). With own no
// other request can have this content; the hash is then stored only for Removed, and ListAll makes
// the block findable if the request is preempted.
func (p *pool) Register(h *held, hash uint64, own bool) {
	p.identify(h)
	b := h.IDs[h.Registered]
	h.Registered++
	p.content[b].hash = hash
	p.blocks[b].hashed = true
	if !own {
		p.makeFindable(b)
	}
}

// RegisterOwn registers the blocks of the request before number want, whose content is its own. It
// stores no hashes, so it may be used only if Removed is nil.
func (p *pool) RegisterOwn(h *held, want int64) { h.Registered = max(h.Registered, want) }

// makeFindable enters block b, whose hash is known, in the index after other blocks with the same
// hash.
func (p *pool) makeFindable(b int32) {
	p.Gains++
	at := &p.content[b]
	p.blocks[b].listed = true
	at.dup = none
	first := p.index.find(p.content, at.hash)
	if first == none {
		p.index.insert(at.hash, b)
		if p.Watch != nil {
			p.Watch(at.hash, true)
		}
		return
	}
	last := first
	for p.content[last].dup != none {
		last = p.content[last].dup
	}
	p.content[last].dup = b
}

// ListAll makes all registered blocks of request h, with content c, findable. It is called when the
// request is preempted, because the request looks up its own blocks when it resumes.
func (p *pool) ListAll(h *held, c *Content, blockSize int64) {
	p.identify(h)
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

// evict removes the content of block b from the index (block_pool.py: _maybe_evict_cached_block()).
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
	case first != b: // the index has an earlier block of the same content: leave the chain of duplicates
		before := first
		for p.content[before].dup != b {
			before = p.content[before].dup
		}
		p.content[before].dup = at.dup
	case at.dup == none: // the only one
		p.index.remove(p.content, at.hash)
		if p.Watch != nil {
			p.Watch(at.hash, false)
		}
	default: // the first of several
		p.index.replace(p.content, at.hash, at.dup)
	}
}

// Grow takes free blocks for h until h has want of them. The caller must have checked that enough
// are free.
func (p *pool) Grow(h *held, want int64) {
	p.Misses += max(0, want-h.N)
	if !p.Caching {
		p.Free -= want - h.N
		h.N = want
		return
	}
	if p.log.on {
		p.growLogged(h, want)
		return
	}
	p.identify(h)
	p.equip(h)
	for h.N < want {
		h.IDs = append(h.IDs, p.takeFree())
		h.N++
	}
}

// equip gives h memory for its block numbers, from spare if there is any.
func (p *pool) equip(h *held) {
	if n := len(p.spare); h.IDs == nil && n > 0 {
		h.IDs = p.spare[n-1]
		p.spare = p.spare[:n-1]
	}
}

// Drop releases all blocks of h, the last one first (kv_cache_manager.py: free()).
func (p *pool) Drop(h *held) {
	if !p.Caching {
		p.Free += h.N
		p.Gains++
		h.N = 0
		return
	}
	if p.log.on {
		p.dropLogged(h)
		return
	}
	p.identify(h)
	last := len(h.IDs) - 1
	if p.UnhashedFirst { // blocks without a content hash go to the head of the queue
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
