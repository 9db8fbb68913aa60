package kv

import (
	"fmt"
	"slices"
)

// none is the absent block or list end.
const none = int32(-1)

// Held is what one request holds of a pool.
type Held struct {
	N          int64   // blocks
	IDs        []int32 // their identities, with caching only
	Registered int64   // leading blocks whose content is known
}

// Pool is the blocks of one engine.
//
// The free list is in eviction order: head first. Freed blocks go to the tail,
// the last block of a request before the ones in front of it; a cached block
// stays findable until it is taken again.
type Pool struct {
	Total, Free int64
	Gains       int64 // times a block came free or content became findable
	Caching     bool
	Removed     func(hash uint64) // told of content that is lost; nil = nobody listens

	blocks []block // the last one is the sentinel of the free list's ring
	index  index
}

// block is one block's identity; 32 bytes, so that it takes one cache line.
type block struct {
	hash       uint64
	next, prev int32 // free list
	dup        int32 // next block with the same hash, in the order they were registered
	ref        int32
	hashed     bool // its content is known
	listed     bool // findable through the index
}

// NewPool is a pool of total free blocks.
func NewPool(total int64, caching bool) *Pool {
	p := &Pool{Total: total, Free: total, Caching: caching}
	if !caching {
		return p
	}
	n := int32(total)
	p.blocks = make([]block, n+1)
	for i := range n + 1 {
		p.blocks[i].next, p.blocks[i].prev = (i+1)%(n+1), (i+n)%(n+1)
	}
	p.index = newIndex(total)
	return p
}

// Clone is an independent copy that nobody listens to.
func (p *Pool) Clone() *Pool {
	c := *p
	c.Removed, c.blocks, c.index = nil, slices.Clone(p.blocks), slices.Clone(p.index)
	return &c
}

// take removes the block from the head of the free list and forgets its content.
func (p *Pool) take() int32 {
	b := p.blocks[p.Total].next
	p.unlink(b)
	if p.blocks[b].hashed {
		p.evict(b)
	}
	p.blocks[b].ref = 1
	return b
}

func (p *Pool) unlink(b int32) {
	at := &p.blocks[b]
	p.blocks[at.prev].next, p.blocks[at.next].prev = at.next, at.prev
	p.Free--
}

// release drops one reference; the last one puts the block at the tail.
func (p *Pool) release(b int32) {
	at := &p.blocks[b]
	at.ref--
	if at.ref > 0 {
		return
	}
	end := int32(p.Total)
	last := p.blocks[end].prev
	at.prev, at.next = last, end
	p.blocks[last].next, p.blocks[end].prev = b, b
	p.Free++
	p.Gains++
}

// InUse reports whether somebody holds block b.
func (p *Pool) InUse(b int32) bool { return p.blocks[b].ref > 0 }

// Lookup returns the first registered block with the hash.
func (p *Pool) Lookup(hash uint64) (int32, bool) {
	b := p.index.find(p.blocks, hash)
	return b, b != none
}

// Share gives a request the cached blocks it was found to have.
func (p *Pool) Share(h *Held, hits []int32) {
	for _, b := range hits {
		if p.blocks[b].ref == 0 {
			p.unlink(b)
		}
		p.blocks[b].ref++
	}
	h.IDs = append(h.IDs, hits...)
	h.N += int64(len(hits))
	h.Registered += int64(len(hits))
}

// Register notes the content of the request's next unregistered block and makes
// it findable, behind earlier blocks of the same content. A request's own
// content is noted only: nobody else can look for it, see ListAll.
func (p *Pool) Register(h *Held, hash uint64, own bool) {
	b := h.IDs[h.Registered]
	h.Registered++
	p.blocks[b].hash, p.blocks[b].hashed = hash, true
	if !own {
		p.list(b)
	}
}

// list makes a registered block findable.
func (p *Pool) list(b int32) {
	p.Gains++
	at := &p.blocks[b]
	at.listed, at.dup = true, none
	first := p.index.find(p.blocks, at.hash)
	if first == none {
		p.index.insert(at.hash, b)
		return
	}
	for p.blocks[first].dup != none {
		first = p.blocks[first].dup
	}
	p.blocks[first].dup = b
}

// ListAll makes all registered blocks of h findable: the request is preempted
// and will look for them itself.
func (p *Pool) ListAll(h *Held) {
	for _, b := range h.IDs[:h.Registered] {
		if !p.blocks[b].listed {
			p.list(b)
		}
	}
}

// evict forgets the content of b.
func (p *Pool) evict(b int32) {
	at := &p.blocks[b]
	at.hashed = false
	if p.Removed != nil {
		p.Removed(at.hash)
	}
	if !at.listed {
		return
	}
	at.listed = false
	first := p.index.find(p.blocks, at.hash)
	switch {
	case first != b:
		for p.blocks[first].dup != b {
			first = p.blocks[first].dup
		}
		p.blocks[first].dup = at.dup
	case at.dup == none:
		p.index.remove(p.blocks, at.hash)
	default:
		p.index.replace(p.blocks, at.hash, at.dup)
	}
}

// Grow gives h blocks until it has want of them. The caller has checked Free.
func (p *Pool) Grow(h *Held, want int64) {
	if !p.Caching {
		p.Free -= want - h.N
		h.N = want
		return
	}
	for h.N < want {
		h.IDs = append(h.IDs, p.take())
		h.N++
	}
}

// Drop returns all blocks of h, its last one first.
func (p *Pool) Drop(h *Held) {
	if !p.Caching {
		p.Free += h.N
		p.Gains++
		h.N = 0
		return
	}
	for i := len(h.IDs) - 1; i >= 0; i-- {
		p.release(h.IDs[i])
	}
	h.IDs, h.N, h.Registered = h.IDs[:0], 0, 0
}

// Check verifies the pool against everything that is held of it: allocated +
// free = total, every reference has a holder, the free list has every free
// block, and what the index finds has the content it was asked for.
func (p *Pool) Check(held []*Held) error {
	sum, holders := int64(0), make(map[int32]int32)
	for _, h := range held {
		sum += h.N
		for _, b := range h.IDs {
			holders[b]++
		}
		if p.Caching && int64(len(h.IDs)) != h.N {
			return fmt.Errorf("a request holds %d blocks and %d identities", h.N, len(h.IDs))
		}
	}
	if p.Caching {
		sum = int64(len(holders))
	}
	if sum+p.Free != p.Total {
		return fmt.Errorf("%d blocks held + %d free, want %d", sum, p.Free, p.Total)
	}
	if !p.Caching {
		return nil
	}
	listed, free := 0, int64(0)
	for b := range p.blocks[:p.Total] {
		at := &p.blocks[b]
		if holders[int32(b)] != at.ref {
			return fmt.Errorf("block %d has %d references, %d holders", b, at.ref, holders[int32(b)])
		}
		if at.listed {
			listed++
		}
	}
	for b := p.blocks[p.Total].next; int64(b) != p.Total; b = p.blocks[b].next {
		free++
	}
	if free != p.Free {
		return fmt.Errorf("%d blocks in the free list, counted %d", free, p.Free)
	}
	return p.checkIndex(listed)
}

func (p *Pool) checkIndex(listed int) error {
	for _, first := range p.index {
		if first == none {
			continue
		}
		hash := p.blocks[first].hash
		if p.index.find(p.blocks, hash) != first {
			return fmt.Errorf("block %d is in the index and not found", first)
		}
		for b := first; b != none; b = p.blocks[b].dup {
			listed--
			if !p.blocks[b].hashed || !p.blocks[b].listed || p.blocks[b].hash != hash {
				return fmt.Errorf("block %d is listed under a hash it does not have", b)
			}
		}
	}
	if listed != 0 {
		return fmt.Errorf("%d listed blocks are not in the index", listed)
	}
	return nil
}
