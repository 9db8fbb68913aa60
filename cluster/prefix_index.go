package cluster

import (
	"container/list"
	"math"
	"math/bits"
)

// maxInstances is how many instances a gateway serves: one bit of a word each.
const maxInstances = 64

// index is which blocks of prompts each instance probably has: for every instance
// the hashes of the blocks sent there, the least recently sent first to go.
// Blocks that no other request can have only take room: they are one node of many.
type index struct {
	capacity int64
	where    map[uint64]uint64 // hash -> instances, one bit each
	lru      []recency
}

// recency orders what one instance was sent, the most recent first.
type recency struct {
	nodes  map[uint64]*list.Element
	order  list.List // of *node
	blocks int64
}

type node struct {
	hash   uint64
	blocks int64 // 1 of shared content, more of a prompt's own
	own    bool
}

// newIndex is an empty index of capacity blocks an instance.
func newIndex(instances int, capacity int64) *index {
	x := &index{capacity: capacity, where: map[uint64]uint64{}, lru: make([]recency, instances)}
	for i := range x.lru {
		x.lru[i].nodes = map[uint64]*list.Element{}
	}
	return x
}

// Match counts the leading blocks each instance has into to.
func (x *index) Match(hashes []uint64, to []int64) {
	clear(to)
	all := uint64(math.MaxUint64)
	if len(to) < maxInstances {
		all = 1<<len(to) - 1
	}
	for n, h := range hashes {
		still := all & x.where[h]
		for lost := all &^ still; lost != 0; lost &= lost - 1 {
			to[bits.TrailingZeros64(lost)] = int64(n)
		}
		if all = still; all == 0 {
			return
		}
	}
	for ; all != 0; all &= all - 1 {
		to[bits.TrailingZeros64(all)] = int64(len(hashes))
	}
}

// Record notes that instance i has the request's blocks now.
func (x *index) Record(r *Request, i int) {
	l := &x.lru[i]
	for _, h := range r.Hashes {
		x.touch(l, i, h, 1, false)
	}
	if own := r.Blocks - int64(len(r.Hashes)); own > 0 {
		x.touch(l, i, ^uint64(r.Index), min(own, x.capacity), true)
	}
}

func (x *index) touch(l *recency, i int, hash uint64, blocks int64, own bool) {
	if at, ok := l.nodes[hash]; ok {
		n := at.Value.(*node)
		l.blocks -= n.blocks
		n.blocks = blocks
		l.order.MoveToFront(at)
	} else {
		l.nodes[hash] = l.order.PushFront(&node{hash: hash, blocks: blocks, own: own})
	}
	if !own {
		x.where[hash] |= 1 << i
	}
	l.blocks += blocks
	for l.blocks > x.capacity {
		x.evict(l, i, l.blocks-x.capacity)
	}
}

// evict forgets up to n blocks of the least recent node.
func (x *index) evict(l *recency, i int, n int64) {
	at := l.order.Back()
	last := at.Value.(*node)
	if last.blocks > n {
		last.blocks -= n
		l.blocks -= n
		return
	}
	l.blocks -= last.blocks
	l.order.Remove(at)
	delete(l.nodes, last.hash)
	if last.own {
		return
	}
	if w := x.where[last.hash] &^ (1 << i); w == 0 {
		delete(x.where, last.hash)
	} else {
		x.where[last.hash] = w
	}
}
