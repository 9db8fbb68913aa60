package sim

// none is the absent block or list end.
const none = int32(-1)

// pool is the KV cache: blocks as counts, and with prefix caching also as
// identities with reference counts, hashes and an eviction order.
//
// The free list is in eviction order: head first. Freed blocks go to the tail,
// the last block of a request before the ones in front of it; a cached block
// stays findable until it is taken again.
type pool struct {
	total, free int64
	gains       int64 // times a block came free or content became findable
	caching     bool

	ref        []int32
	hash       []uint64
	hashed     []bool  // registered: its content is known
	listed     []bool  // findable through table
	next, prev []int32 // free list, ring through the sentinel at index total
	dup        []int32 // next block with the same hash, in the order they were registered
	table      map[uint64]int32
	events     *kvLog // nil = nobody listens
}

func newPool(total int64, caching bool) *pool {
	p := &pool{total: total, free: total, caching: caching}
	if !caching {
		return p
	}
	n := int32(total)
	p.ref, p.dup = make([]int32, n), make([]int32, n)
	p.hash, p.hashed, p.listed = make([]uint64, n), make([]bool, n), make([]bool, n)
	p.next, p.prev = make([]int32, n+1), make([]int32, n+1)
	p.table = make(map[uint64]int32)
	for i := range n + 1 {
		p.next[i], p.prev[i] = (i+1)%(n+1), (i+n)%(n+1)
	}
	return p
}

// take removes the block from the head of the free list and forgets its content.
func (p *pool) take() int32 {
	b := p.next[p.total]
	p.unlink(b)
	p.evict(b)
	p.ref[b] = 1
	return b
}

func (p *pool) unlink(b int32) {
	p.next[p.prev[b]], p.prev[p.next[b]] = p.next[b], p.prev[b]
	p.free--
}

// release drops one reference; the last one puts the block at the tail.
func (p *pool) release(b int32) {
	p.ref[b]--
	if p.ref[b] > 0 {
		return
	}
	end := int32(p.total)
	p.prev[b], p.next[b] = p.prev[end], end
	p.next[p.prev[b]], p.prev[end] = b, b
	p.free++
	p.gains++
}

// touch adds a reference to a cached block.
func (p *pool) touch(b int32) {
	if p.ref[b] == 0 {
		p.unlink(b)
	}
	p.ref[b]++
}

// lookup returns the first registered block with the hash.
func (p *pool) lookup(hash uint64) (int32, bool) {
	b, ok := p.table[hash]
	return b, ok
}

// register notes the content of block b and makes it findable, behind earlier
// blocks of the same content. A request's own content is noted only: nobody
// else can look for it, see list.
func (p *pool) register(b int32, hash uint64, own bool) {
	p.hash[b], p.hashed[b] = hash, true
	if !own {
		p.list(b)
	}
}

// list makes a registered block findable.
func (p *pool) list(b int32) {
	p.gains++
	p.listed[b], p.dup[b] = true, none
	first, ok := p.table[p.hash[b]]
	if !ok {
		p.table[p.hash[b]] = b
		return
	}
	for p.dup[first] != none {
		first = p.dup[first]
	}
	p.dup[first] = b
}

// listAll makes all registered blocks of s findable: it is preempted and will
// look for them itself.
func (p *pool) listAll(s *seq) {
	for i := range s.registered {
		if b := s.ids[i]; !p.listed[b] {
			p.list(b)
		}
	}
}

// evict forgets the content of b.
func (p *pool) evict(b int32) {
	if !p.hashed[b] {
		return
	}
	p.hashed[b] = false
	hash := p.hash[b]
	if p.events != nil {
		p.events.removed(hash)
	}
	if !p.listed[b] {
		return
	}
	p.listed[b] = false
	first := p.table[hash]
	if first == b {
		if p.dup[b] == none {
			delete(p.table, hash)
		} else {
			p.table[hash] = p.dup[b]
		}
		return
	}
	for p.dup[first] != b {
		first = p.dup[first]
	}
	p.dup[first] = p.dup[b]
}

// grow gives s blocks until it has want of them. The caller has checked p.free.
func (p *pool) grow(s *seq, want int64) {
	if !p.caching {
		p.free -= want - s.blocks
		s.blocks = want
		return
	}
	for s.blocks < want {
		s.ids = append(s.ids, p.take())
		s.blocks++
	}
}

// drop returns all blocks of s, its last one first.
func (p *pool) drop(s *seq) {
	if !p.caching {
		p.free += s.blocks
		p.gains++
		s.blocks = 0
		return
	}
	for i := len(s.ids) - 1; i >= 0; i-- {
		p.release(s.ids[i])
	}
	s.ids, s.blocks, s.registered = s.ids[:0], 0, 0
}
