package sim

import (
	"container/list"
	"slices"
)

// tierChunk is what the tier has or remembers of a chunk.
type tierChunk struct {
	hash  uint64
	refs  int32 // loads under way, -1: not yet written
	offer int64 // the last one that named it: it stays; of one that is counted how often
	rank  int64 // of its last use
	in    *list.List
	at    *list.Element
}

// take puts x into l where its rank says, out of the list it was in.
func (x *tierChunk) take(l *list.List, rank int64) {
	if x.in != nil {
		x.in.Remove(x.at)
	}
	x.in, x.at, x.rank = l, l.PushBack(x), rank
	for at := x.at.Prev(); at != nil && rank < at.Value.(*tierChunk).rank; at = x.at.Prev() {
		l.MoveBefore(x.at, at)
	}
}

// key is the hash of chunk i of s: that of its last block.
func (c *cpuTier) key(s *seq, i int64) uint64 {
	return s.blockHash((i+1)*c.set.Blocks-1, c.e.blockSize)
}

// get is the chunk with that hash, nil where the tier has it not.
func (c *cpuTier) get(h uint64) *tierChunk {
	if x := c.index[h]; x != nil && x.in != &c.b1 && x.in != &c.b2 {
		return x
	}
	return nil
}

// now is the rank of what is used now.
func (c *cpuTier) now() int64 {
	c.ranks += 1 << 32
	return c.ranks
}

// touch makes the request's first n chunks the most recently used, its first one last.
func (c *cpuTier) touch(s *seq, n int64) {
	for i := n - 1; i >= 0; i-- {
		switch x := c.index[c.key(s, i)]; {
		case x == nil || !c.set.Arc && c.e.rules.OffloadByUse && x.refs != 0:
		case c.set.Arc && x.in == &c.t1 && x.refs >= 0:
			x.take(&c.t2, c.now())
		default:
			c.adapt(x)
		}
	}
}

// adapt makes a chunk the last used of its list, and is arc's answer to one that it evicted too early.
func (c *cpuTier) adapt(x *tierChunk) {
	other, more := &c.b2, 1.0
	if x.in == other {
		other, more = &c.b1, -1
	}
	if x.in == &c.b1 || x.in == &c.b2 {
		change := more * max(1, float64(other.Len())/float64(x.in.Len()))
		c.target = min(max(c.target+change, 0), float64(c.capacity))
	}
	x.take(x.in, c.now())
}

// count notes that chunks were asked for or offered: none makes room for another of the same offer.
func (c *cpuTier) count(hashes ...uint64) {
	if c.set.Threshold < 2 {
		return
	}
	others := c.tracker.Len()
	for _, h := range hashes {
		if at := c.counts[h]; at != nil {
			at.Value.(*tierChunk).offer++
			c.tracker.MoveToBack(at)
			others--
		}
	}
	for _, h := range hashes {
		full := int64(c.tracker.Len()) >= c.set.Tracked
		if c.counts[h] != nil || full && others == 0 {
			continue
		}
		if full {
			delete(c.counts, c.tracker.Remove(c.tracker.Front()).(*tierChunk).hash)
			others--
		}
		c.counts[h] = c.tracker.PushBack(&tierChunk{hash: h, offer: 1})
	}
}

// makeRoom evicts until n chunks are free; false, and nothing evicted, when that cannot be.
func (c *cpuTier) makeRoom(n int) bool {
	need := n - (c.capacity - c.t1.Len() - c.t2.Len())
	if n == 0 || need <= 0 {
		return true
	}
	next := func(at *list.Element) *list.Element {
		for ; at != nil && (at.Value.(*tierChunk).refs != 0 || at.Value.(*tierChunk).offer == c.offers); at = at.Next() {
		}
		return at
	}
	var out []*tierChunk
	a, b := next(c.t1.Front()), next(c.t2.Front())
	for left := c.t1.Len(); len(out) < need; {
		from := &b
		if a != nil && (left >= int(c.target) || b == nil && c.e.rules.OffloadCommitted) {
			from, left = &a, left-1
		}
		if *from == nil {
			return false
		}
		out = append(out, (*from).Value.(*tierChunk))
		*from = next((*from).Next())
	}
	ghosts := map[*list.List]*list.List{&c.t1: &c.b1, &c.t2: &c.b2}
	hashes := []uint64(nil)
	for _, x := range out {
		hashes = append(hashes, x.hash)
		x.take(ghosts[x.in], c.now())
	}
	for _, l := range ghosts {
		for l.Len() > c.capacity || l.Len() > 0 && !c.set.Arc {
			delete(c.index, l.Remove(l.Front()).(*tierChunk).hash)
		}
	}
	c.event(KVEvent{Kind: cacheEviction, Request: -1, Step: c.e.step, Blocks: int64(len(out)), CPU: true})
	c.event(KVEvent{Kind: blockRemoved, Request: -1, Step: c.e.step, Hashes: hashes, Blocks: int64(len(out)), CPU: true})
	return true
}

// What a request did with a chunk: it stored, found or missed it.
const (
	usedStored = 1 << iota
	usedFound
	usedMissed
)

// use notes what a request does with its chunk: from 0.31 on it counts when it has finished, once.
func (c *cpuTier) use(s *seq, i int64, how uint8) {
	l, r := s.load, &c.e.rules
	if !r.OffloadByRequest {
		return
	}
	l.uses = append(l.uses, make([]uint8, max(0, i+1-int64(len(l.uses))))...)
	if l.uses[i] == 0 && !c.set.Arc && r.OffloadSyncLoads {
		rank := c.rankOf(l, i)
		if x := c.get(c.key(s, i)); x != nil && x.rank < rank {
			x.take(&c.t1, rank)
		}
	}
	if how != usedFound || l.uses[i]&usedStored == 0 {
		l.uses[i] |= how
	}
}

// rankOf is the recency of a running request's chunk: all of the request, its last one first.
func (c *cpuTier) rankOf(l *loadState, i int64) int64 {
	if l.rank == 0 {
		l.rank = c.now()
	}
	return l.rank - i - 1
}

// used counts what a finished request did.
func (c *cpuTier) used(s *seq) {
	for i, how := range slices.Backward(s.load.uses) {
		x := c.get(c.key(s, int64(i)))
		switch {
		case how == 0 || x == nil:
		case !c.set.Arc || x.in == &c.t1 && how&(usedStored|usedFound) == usedStored:
			x.take(&c.t1, c.now())
		case how&(usedStored|usedFound) != 0:
			x.take(&c.t2, c.now())
		}
	}
}

// rests notes that nobody reads or writes x any more: from 0.24 to 0.30 that is its last use.
func (c *cpuTier) rests(x *tierChunk) {
	if r := &c.e.rules; x.refs == 0 && !c.set.Arc && r.OffloadByUse && !r.OffloadByRequest {
		x.take(&c.t1, c.now())
	}
}

func (c *cpuTier) completeStore(hashes []uint64) {
	var ready []uint64
	for _, h := range hashes {
		if x := c.get(h); x != nil && x.refs < 0 {
			x.refs = 0
			c.rests(x)
			ready = append(ready, h)
		}
	}
	if len(ready) > 0 {
		c.event(KVEvent{Kind: blockStored, Request: -1, Step: c.e.step, Hashes: ready, Blocks: int64(len(ready)), CPU: true})
	}
}
