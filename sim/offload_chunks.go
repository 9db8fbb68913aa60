package sim

// This file is the index of the CPU tier (connector.go): which chunks of KV blocks it has, and
// which it evicts. It mirrors vllm/v1/kv_offload/cpu/policies (LRUCachePolicy, ARCCachePolicy).
//
// Words: policy arc keeps two lists of stored chunks, t1 (seen once) and t2 (seen again), and
// remembers the hashes evicted from each as ghosts, b1 and b2; policy lru uses t1 alone. The rank
// of a chunk is its recency: the smallest rank in a list is evicted first.

import "slices"

// tierChunk is a chunk in the tier, or one that only policy arc (as a ghost) or the tracker of
// store_threshold remembers.
type tierChunk struct {
	hash uint64
	refs int32 // number of loads that read it; -1 while it is not written yet
	// offer is the number of the last offer that contained the chunk, which must not evict it. In
	// the tracker it is how often the chunk was counted.
	offer int64
	rank  int64 // recency of its last use; lists are in increasing order of rank
	in    *chunkList
	// Its neighbours in the list. A chunk is its own element, because a request moves all its chunks
	// with each block that it fills.
	before, after *tierChunk
}

// chunkList is a list of chunks in increasing order of rank.
type chunkList struct {
	first, last *tierChunk
	length      int
}

// remove takes x out of its list.
func (l *chunkList) remove(x *tierChunk) {
	if x.before != nil {
		x.before.after = x.after
	} else {
		l.first = x.after
	}
	if x.after != nil {
		x.after.before = x.before
	} else {
		l.last = x.before
	}
	x.before, x.after, x.in = nil, nil, nil
	l.length--
}

// moveTo moves x from its list, if it is in one, into list l, at the place of its new rank. It searches
// from the end, because most ranks are the largest so far.
func (x *tierChunk) moveTo(l *chunkList, rank int64) {
	if x.in != nil {
		x.in.remove(x)
	}
	at := l.last
	for at != nil && rank < at.rank {
		at = at.before
	}
	x.in = l
	x.rank = rank
	x.before = at
	if at != nil {
		x.after = at.after
		at.after = x
	} else {
		x.after = l.first
		l.first = x
	}
	if x.after != nil {
		x.after.before = x
	} else {
		l.last = x
	}
	l.length++
}

// key returns the hash of chunk i of s, which is that of the chunk's last block.
func (c *cpuTier) key(s *seq, i int64) uint64 {
	return s.blockHash((i+1)*c.set.Blocks-1, c.e.blockSize)
}

// keys returns the hashes of the chunks of s in [from, to).
func (c *cpuTier) keys(s *seq, from, to int64) (hashes []uint64) {
	for i := from; i < to; i++ {
		hashes = append(hashes, c.key(s, i))
	}
	return hashes
}

// get returns the chunk with hash h; nil if the tier does not have it.
func (c *cpuTier) get(h uint64) *tierChunk {
	if x := c.index[h]; x != nil && x.in != &c.b1 && x.in != &c.b2 {
		return x
	}
	return nil
}

// nextRank returns the rank of a chunk that is used now. Consecutive ranks differ by enough to rank
// the chunks of one request in between.
func (c *cpuTier) nextRank() int64 {
	c.lastRank += 1 << 32
	return c.lastRank
}

// makeRoom evicts chunks until n more fit (LRUCachePolicy.evict(), ARCCachePolicy.evict()). If that
// is impossible it evicts nothing and returns false. Chunks that are being copied or belong to the
// present offer are not evicted.
func (c *cpuTier) makeRoom(n int) bool {
	need := n - (c.capacity - c.t1.length - c.t2.length) // number of chunks to evict
	if n == 0 || need <= 0 {
		return true
	}
	nextEvictable := func(at *tierChunk) *tierChunk {
		for at != nil && (at.refs != 0 || at.offer == c.offers) {
			at = at.after
		}
		return at
	}
	var evicted []*tierChunk
	once := nextEvictable(c.t1.first)  // next victim of the list of chunks seen once
	again := nextEvictable(c.t2.first) // and of those seen again
	left := c.t1.length                // chunks of t1 that are not evicted
	for len(evicted) < need {
		// Policy arc evicts from t1 while it is longer than the target, policy lru always (target 0).
		// Since 0.30 t1 is also tried if t2 has no victim.
		from := &again
		if once != nil && (left >= int(c.target) || again == nil && c.e.rules.OffloadCommitted) {
			from = &once
			left--
		}
		if *from == nil {
			return false
		}
		evicted = append(evicted, *from)
		*from = nextEvictable((*from).after)
	}
	var hashes []uint64
	for _, x := range evicted {
		hashes = append(hashes, x.hash)
		ghosts := &c.b2
		if x.in == &c.t1 {
			ghosts = &c.b1
		}
		x.moveTo(ghosts, c.nextRank())
	}
	// Policy arc remembers as many ghosts in each list as the tier has chunks, policy lru none.
	for _, l := range []*chunkList{&c.b1, &c.b2} {
		for l.length > c.capacity || l.length > 0 && !c.set.Arc {
			x := l.first
			l.remove(x)
			delete(c.index, x.hash)
		}
	}
	c.event(KVEvent{Kind: cacheEviction, Request: -1, Step: c.e.step, Blocks: int64(len(evicted)), CPU: true})
	c.event(KVEvent{Kind: blockRemoved, Request: -1, Step: c.e.step, Hashes: hashes, Blocks: int64(len(evicted)),
		CPU: true})
	return true
}

// give implements connector.
func (c *cpuTier) give(s *seq, tokens int64) {
	for i := range tokens / c.chunkTokens {
		h := c.key(s, i)
		if c.get(h) != nil {
			continue
		}
		if !c.makeRoom(1) {
			return
		}
		x := c.index[h] // policy arc may remember it
		if x == nil {
			x = &tierChunk{hash: h}
			c.index[h] = x
		}
		x.offer = c.offers // the next of them does not evict it
		x.moveTo(&c.t1, c.nextRank())
	}
}

// noteUnused records that a copy of x has ended. If it was the last one, releases 0.24 to 0.30
// count that as a use with policy lru.
func (c *cpuTier) noteUnused(x *tierChunk) {
	if r := &c.e.rules; x.refs == 0 && !c.set.Arc && r.OffloadByUse && !r.OffloadByRequest {
		x.moveTo(&c.t1, c.nextRank())
	}
}

// touch makes the first n chunks of s the most recently used ones, in reverse order, so that the
// first is the most recent (CachePolicy.touch()).
func (c *offloading) touch(s *seq, n int64) {
	// A request touches all its chunks with each one that it fills, so it remembers where they are.
	known := s.offload.chunks
	if missing := n - int64(len(known)); missing > 0 {
		known = append(known, make([]*tierChunk, missing)...)
		s.offload.chunks = known
	}
	for i := n - 1; i >= 0; i-- {
		x := known[i]
		if x == nil || x.in == nil {
			x = c.index[c.key(s, i)]
			known[i] = x
		}
		switch {
		case x == nil: // not in the tier
		case !c.set.Arc && c.e.rules.OffloadByUse && x.refs != 0: // noteUnused counts the end of its copy
		case c.set.Arc && x.in == &c.t1 && x.refs >= 0: // seen again
			x.moveTo(&c.t2, c.nextRank())
		default:
			c.adapt(x)
		}
	}
}

// adapt makes a chunk the most recently used of its list. If arc had evicted it too early, arc's
// target changes (ARCCachePolicy._adapt_to_ghost_hit()).
func (c *offloading) adapt(x *tierChunk) {
	switch x.in {
	case &c.b1:
		c.moveTarget(max(1, float64(c.b2.length)/float64(c.b1.length)))
	case &c.b2:
		c.moveTarget(-max(1, float64(c.b1.length)/float64(c.b2.length)))
	}
	x.moveTo(x.in, c.nextRank())
}

// moveTarget changes the length of t1 at which arc aims, between 0 and the capacity.
func (c *offloading) moveTarget(by float64) {
	c.target = min(max(c.target+by, 0), float64(c.capacity))
}

// countUses counts uses of chunks for store_threshold. When the tracker is full, only chunks that
// are not among hashes are dropped from it.
func (c *offloading) countUses(hashes ...uint64) {
	if c.set.Threshold < 2 {
		return
	}
	others := c.tracker.Len() // number of tracked chunks that are not among hashes
	for _, h := range hashes {
		if at := c.counts[h]; at != nil {
			at.Value.(*tierChunk).offer++
			c.tracker.MoveToBack(at)
			others--
		}
	}
	for _, h := range hashes {
		isFull := int64(c.tracker.Len()) >= c.set.Tracked
		if c.counts[h] != nil || isFull && others == 0 {
			continue
		}
		if isFull {
			delete(c.counts, c.tracker.Remove(c.tracker.Front()).(*tierChunk).hash)
			others--
		}
		c.counts[h] = c.tracker.PushBack(&tierChunk{hash: h, offer: 1})
	}
}

// isFrequent reports whether a chunk was used store_threshold times.
func (c *offloading) isFrequent(h uint64) bool {
	if c.set.Threshold < 2 {
		return true
	}
	counted := c.counts[h]
	return counted != nil && counted.Value.(*tierChunk).offer >= c.set.Threshold
}

// Bits of offloadState.uses: what a request did with a chunk.
const (
	usedStored = 1 << iota // stored it
	usedFound              // found it in the tier, and did not store it before
	usedMissed             // offered it when the tier did not have it
)

// noteUse records what a running request does with its chunk i. Since 0.31 the uses of a chunk
// count once, when the request has finished (CPUOffloadingManager._record_request_cache_access()).
func (c *offloading) noteUse(s *seq, i int64, how uint8) {
	state := s.offload
	r := &c.e.rules
	if !r.OffloadByRequest {
		return
	}
	state.uses = append(state.uses, make([]uint8, max(0, i+1-int64(len(state.uses))))...)
	if state.uses[i] == 0 && !c.set.Arc && r.OffloadSyncLoads { // since 0.33 lru ranks at the first use too
		rank := c.rankOf(state, i)
		if x := c.get(c.key(s, i)); x != nil && x.rank < rank {
			x.moveTo(&c.t1, rank)
		}
	}
	if how != usedFound || state.uses[i]&usedStored == 0 {
		state.uses[i] |= how
	}
}

// rankOf returns the rank of chunk i of a running request. The chunks of a request rank next to
// each other, the last one lowest (LRUCachePolicy._get_request_rank(), since 0.33).
func (c *offloading) rankOf(state *offloadState, i int64) int64 {
	if state.rank == 0 {
		state.rank = c.nextRank()
	}
	return state.rank - i - 1
}

// countFinished applies the uses of a finished request to the lists (CachePolicy.on_request_finished()):
// each chunk that it used moves to the end of t1 or, with policy arc and unless the request only stored
// it, of t2.
func (c *offloading) countFinished(s *seq) {
	for i, how := range slices.Backward(s.offload.uses) {
		x := c.get(c.key(s, int64(i)))
		if how == 0 || x == nil {
			continue
		}
		isOnlyStored := x.in == &c.t1 && how&(usedStored|usedFound) == usedStored
		switch {
		case !c.set.Arc || isOnlyStored:
			x.moveTo(&c.t1, c.nextRank())
		case how&(usedStored|usedFound) != 0:
			x.moveTo(&c.t2, c.nextRank())
		}
	}
}

// noteOffer records for the eviction policy which chunks of an offer, those from nextStore to end,
// were in the tier. store has the numbers of those that were missing.
func (c *offloading) noteOffer(s *seq, end int64, store []int64) {
	uses := s.offload.uses
	for _, i := range slices.Backward(store) {
		wasMissed := i < int64(len(uses)) && uses[i]&usedMissed != 0
		if x := c.index[c.key(s, i)]; x != nil && !wasMissed {
			c.adapt(x)
		}
	}
	for i := s.offload.nextStore; i < end; i++ {
		if x := c.get(c.key(s, i)); x != nil && x.refs >= 0 {
			c.noteUse(s, i, usedFound)
		} else if slices.Contains(store, i) {
			c.noteUse(s, i, usedMissed)
		}
	}
}
