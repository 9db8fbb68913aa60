package cluster

// This file estimates which prompt blocks each engine has in its prefix cache, from the requests
// that the gateway has sent to it. kv_events.go has the exact alternative.

import (
	"container/list"
	"math"
	"math/bits"
)

// maxInstances is the largest number of instances of a gateway, because an instance is a bit of a
// word.
const maxInstances = 64

// index is the gateway's estimate of which prompt blocks each instance has cached: the blocks of
// requests that were sent to it, of which the least recently sent are evicted first. Blocks that no
// other request can share are never looked up and only take space, so all of one prompt's form a
// single node.
type index struct {
	capacity int64             // blocks that each instance can cache
	where    map[uint64]uint64 // by hash of a block, the instances that have it, one bit each
	lru      []recency         // for each instance, the blocks that it was sent
}

// recency is an LRU list of the blocks that one instance was sent, most recent first.
type recency struct {
	nodes  map[uint64]*list.Element
	order  list.List // of *node
	blocks int64     // blocks of all nodes, at most the index's capacity
}

// node is one block of shared content, or all own blocks of a prompt.
type node struct {
	hash   uint64
	blocks int64 // number of blocks: 1 for shared content
	own    bool  // the blocks of one prompt that no other request shares
}

// newIndex returns an empty index for a number of instances, with room for a number of blocks on
// each.
func newIndex(instances int, capacity int64) *index {
	x := &index{capacity: capacity, where: map[uint64]uint64{}, lru: make([]recency, instances)}
	for i := range x.lru {
		x.lru[i].nodes = map[uint64]*list.Element{}
	}
	return x
}

// Match sets to[i] to the number of leading blocks of a prompt, given by their hashes, that
// instance i is expected to have. It follows the hashes with the set of instances that have had
// every block so far.
func (x *index) Match(hashes []uint64, to []int64) {
	clear(to)
	have := uint64(math.MaxUint64) // instances that have every block so far, one bit each
	if len(to) < maxInstances {
		have = 1<<len(to) - 1
	}
	for n, h := range hashes {
		still := have & x.where[h]
		for lost := have &^ still; lost != 0; lost &= lost - 1 { // visits each bit, the lowest first
			to[bits.TrailingZeros64(lost)] = int64(n)
		}
		have = still
		if have == 0 {
			return
		}
	}
	for ; have != 0; have &= have - 1 {
		to[bits.TrailingZeros64(have)] = int64(len(hashes))
	}
}

// Record records that request r was sent to instance i, which therefore has the request's blocks
// now.
func (x *index) Record(r *Request, i int) {
	for _, h := range r.Hashes {
		x.touch(i, h, 1, false)
	}
	if own := r.Blocks - int64(len(r.Hashes)); own > 0 {
		// They need a key and have no hash: the request's index, inverted to be unlike hashes.
		x.touch(i, ^uint64(r.Index), min(own, x.capacity), true)
	}
}

// touch makes the node of a hash the most recent of instance i, with a number of blocks, and evicts
// others if they no longer fit. own is as in node.
func (x *index) touch(i int, hash uint64, blocks int64, own bool) {
	l := &x.lru[i]
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
		x.evict(i, l.blocks-x.capacity)
	}
}

// evict removes up to n blocks of the least recent node of instance i, and the node when nothing is
// left of it.
func (x *index) evict(i int, n int64) {
	l := &x.lru[i]
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
