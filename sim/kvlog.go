package sim

// This file reports changes of the prefix cache in the order of vLLM's KV events.

// kvLog passes KV events to the observer in the order in which vLLM emits them, and marks which of
// them belong to one update.
type kvLog struct {
	obs     KVObserver
	pending bool     // events were sent since the last publish
	ev      KVEvent  // memory for the event being sent
	hashes  []uint64 // memory for its hashes
}

// send passes event ev to the observer.
func (l *kvLog) send(ev KVEvent) {
	l.pending = true
	l.ev = ev
	l.obs.KV(&l.ev)
}

// removed reports that the block with this hash was evicted from the prefix cache.
func (l *kvLog) removed(hash uint64) {
	l.hashes = append(l.hashes[:0], hash)
	l.send(KVEvent{Kind: blockRemoved, Request: -1, Hashes: l.hashes, Blocks: 1})
}

// stored reports that blocks from to to-1 of request s are in the prefix cache now.
func (l *kvLog) stored(e *Engine, s *seq, from, to int64) {
	l.hashes = l.hashes[:0]
	for b := from; b < to; b++ {
		l.hashes = append(l.hashes, s.blockHash(b, e.blockSize))
	}
	ev := KVEvent{Kind: blockStored, AtUs: e.now, Request: s.idx, Step: e.step, Hashes: l.hashes, Blocks: to - from}
	if from > 0 {
		ev.Parent = s.blockHash(from-1, e.blockSize)
		ev.HasParent = true
	}
	l.send(ev)
}

// publish marks the end of an update at the time `at`. All events since the last one become one
// line of a dump.
func (l *kvLog) publish(at int64) {
	if l.pending {
		l.pending = false
		l.obs.KV(&KVEvent{Kind: published, AtUs: at, Request: -1})
	}
}
