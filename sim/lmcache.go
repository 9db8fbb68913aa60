package sim

// What follows is the tier as LMCache 0.5.6 keeps it (vllm_v1_adapter.py, cache_engine.py, local_cpu_backend.py and
// cache_policy of its wheel). A request is looked up once before each admission, in chunks from its first token on. What
// is found is kept until it runs and loaded with the step, which takes longer, where it reaches further than the blocks
// on the GPU. A step saves the chunks that it fills behind those found; from the first step of one token on none, but with
// save_decode_cache. A chunk takes room even where it is there already. With LMCache's own server
// (lmcache_mp_connector.py) the answer comes with the next step, loads park, copies go beside the steps, and the prompt's
// chunks are saved.

// ask returns how many tokens behind the local ones are loaded; busy: the server has not answered yet.
func (c *cpuTier) ask(s *seq, local int64) (tokens int64, sync, busy bool) {
	l := s.load
	if !l.asked && c.set.Parks {
		l.asked = true
		return 0, false, true
	}
	if !l.found {
		for l.found, l.hit = true, 0; l.hit < s.tokens()/c.chunk; l.hit++ {
			x := c.get(c.key(s, l.hit))
			if x == nil {
				break
			}
			x.refs++
		}
		for i := l.hit - 1; i >= 0; i-- {
			c.rankChunk(c.get(c.key(s, i)), true)
		}
	}
	if tokens = l.hit*c.chunk - local; l.hit*c.chunk == s.tokens() {
		tokens-- // the last is computed
	}
	if tokens < max(1, c.set.Fewest) {
		tokens = 0
	}
	return tokens, !c.set.Parks, false
}

// rankChunk puts a chunk where cache_policy evicts it, the first of the list next; again: it was found.
func (c *cpuTier) rankChunk(x *tierChunk, again bool) {
	rank := c.now()
	switch c.set.Policy {
	case "fifo":
		if again {
			return
		}
	case "mru":
		rank = -rank
	case "lfu": // the oldest of those found as often
		rank = (x.rank>>40+1)<<40 + rank>>32
	}
	x.take(&c.t1, rank)
}

// planSave decides what this step saves of a request.
func (c *cpuTier) planSave(it *item) {
	s, l := it.s, it.s.load
	known := s.tokens()
	base := min(s.computed, l.length)
	t := &transfer{s: s, state: l, idx: s.idx, sync: !c.set.Parks}
	n := min(it.n, known-base)
	l.decodes = l.decodes || n == 1
	if c.set.Parks || it.fresh && (s.preempted == 0 || c.e.rules.ModelRunnerV2) {
		base = s.computed
		n = it.n
		l.decodes = false
		if !c.set.Parks || !c.set.Decodes {
			known = s.prompt
		}
	} else if it.fresh {
		base = s.computed
	}
	if s.computed < l.length { // what was rejected is forgotten
		l.saved = min(l.saved, s.computed)
	}
	if l.length = min(base+max(0, n), known); it.fresh {
		if l.saved = l.hit * c.chunk; !l.loads {
			t.pins = c.keys(s, 0, l.hit)
		}
		l.asked = false
		l.found = false
		l.loads = false
	}
	from, to := l.saved/c.chunk, l.length/c.chunk
	if l.decodes && !c.set.Decodes || to <= from {
		from = to
	} else {
		l.saved = to * c.chunk
	}
	t.hashes = c.keys(s, from, to)
	t.source = to - from
	if t.gpu = t.source * c.set.Blocks; t.gpu+int64(len(t.pins)) > 0 {
		c.e.batch.StoreBlocks += t.gpu
		c.e.out.StoredBlocks += t.gpu
		l.pending++
		c.fly(t)
	}
	l.stored = c.set.Parks // its blocks stay until the server has told of it
}

// keys are the hashes of the chunks of s.
func (c *cpuTier) keys(s *seq, from, to int64) (hashes []uint64) {
	for i := from; i < to; i++ {
		hashes = append(hashes, c.key(s, i))
	}
	return hashes
}

// save stores the chunks of a copy that is done: what finds no room is left out.
func (c *cpuTier) save(t *transfer) {
	for _, h := range t.pins {
		c.get(h).refs--
	}
	n := 0
	for !t.load && n < len(t.hashes) && c.makeRoom(n+1) {
		n++
	}
	for _, h := range t.hashes[:n] {
		if c.index[h] == nil {
			c.index[h] = &tierChunk{hash: h, refs: -1}
			c.rankChunk(c.index[h], false)
		}
	}
	c.completeStore(t.hashes[:n])
}
