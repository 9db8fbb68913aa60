package sim

// This file simulates LMCache's tier of KV blocks in CPU memory.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// lmcache is the connector of LMCache 0.5.6 (vllm_v1_adapter.py, cache_engine.py,
// local_cpu_backend.py and cache_policy of its wheel).
//
// Before each admission a request is looked up once, in chunks from its first token on. Chunks that are
// found are not evicted until the request runs. If they reach further than the blocks on the GPU, they
// are loaded inside the step, which then takes longer. A step saves the chunks that it fills after
// those found. From the first step of a single token on it saves none, except with save_decode_cache.
// Saving a chunk needs free space even if the tier has the chunk already.
//
// With LMCache's own server (lmcache_mp_connector.py, deploy.Offload.Parks) the answer to a lookup comes
// with the next step, requests wait for their loads outside of steps, copies run in parallel to steps,
// and only chunks of prompts are saved.
type lmcache struct{ cpuTier }

// newLMCache returns the connector with a capacity of a number of blocks or, if blocks is 0, of
// max_local_cpu_size bytes.
func newLMCache(e *Engine, blocks int64) *lmcache {
	c := &lmcache{newCPUTier(e)}
	c.capacity = int(blocks / c.set.Blocks)
	if blocks <= 0 { // the capacity is max_local_cpu_size; a chunk takes whole pages
		const page = 4096
		stages := max(1, e.cfg.Deployment.PP)
		chunkBytes := page * math.Ceil(float64(c.chunkTokens)*c.tokenBytes/float64(stages*page))
		c.capacity = int(trace.Int(c.set.Bytes / chunkBytes))
	}
	// These rules describe vLLM's own connector and do not apply.
	r := &e.rules
	r.OffloadFreesAtOnce = false
	r.OffloadInOrder = false
	r.OffloadByUse = false
	r.OffloadAtFinish = false
	r.OffloadByRequest = false
	r.OffloadSyncLoads = false
	return c
}

// match implements connector. It looks the request up once, from its first chunk on, and protects
// the chunks it finds from eviction until the request runs.
func (c *lmcache) match(s *seq, local int64) (tokens int64, sync, busy bool) {
	state := s.offload
	if !state.isAsked && c.set.Parks {
		state.isAsked = true
		return 0, false, true
	}
	if !state.isAnswered {
		state.isAnswered = true
		state.hitChunks = 0
		// Chunks are found from the first one on; those found are held.
		for state.hitChunks < s.tokens()/c.chunkTokens {
			x := c.get(c.key(s, state.hitChunks))
			if x == nil {
				break
			}
			x.refs++
			state.hitChunks++
		}
		for i := state.hitChunks - 1; i >= 0; i-- {
			c.rankFound(c.get(c.key(s, i)))
		}
	}
	tokens = state.hitChunks*c.chunkTokens - local
	if state.hitChunks*c.chunkTokens == s.tokens() {
		tokens-- // the last token is computed
	}
	if tokens < max(1, c.set.Fewest) { // also if the GPU has as many tokens
		tokens = 0
	}
	return tokens, !c.set.Parks, false
}

// rankStored puts new chunk x at its place in the list c.t1, from whose front cache_policy evicts.
func (c *lmcache) rankStored(x *tierChunk) {
	rank := c.nextRank()
	switch c.set.Policy {
	case "mru":
		rank = -rank
	case "lfu":
		rank = lfuRank(x, rank)
	}
	x.moveTo(&c.t1, rank)
}

// rankFound moves chunk x, which a lookup has found, to its new place in c.t1 according to
// cache_policy.
func (c *lmcache) rankFound(x *tierChunk) {
	rank := c.nextRank()
	switch c.set.Policy {
	case "fifo":
		return
	case "mru":
		rank = -rank
	case "lfu":
		rank = lfuRank(x, rank)
	}
	x.moveTo(&c.t1, rank)
}

// lfuRank returns the next rank of chunk x under the policy lfu: its high bits count how often the
// chunk was found, its low bits order equals by age. rank is from nextRank, so rank>>32 counts calls.
func lfuRank(x *tierChunk, rank int64) int64 { return (x.rank>>40+1)<<40 + rank>>32 }

// startLoad implements connector: it loads the found chunks that reach further than the local
// tokens.
func (c *lmcache) startLoad(s *seq, local, _ int64, sync bool) {
	state := s.offload
	first := local / c.chunkTokens
	t := &transfer{s: s, state: state, idx: s.idx, load: true, sync: sync, pins: c.keys(s, 0, state.hitChunks)}
	t.gpuBlocks = (state.hitChunks - first) * c.set.Blocks
	state.nextStore = state.hitChunks
	state.isLoaded = true
	c.addLoad(t, s, first, state.hitChunks)
	c.event(KVEvent{Kind: cacheLoadCommitted, Request: s.idx, Step: c.e.step - 1, Blocks: t.source, CPU: true})
	c.startCopy(t)
}

// planStores implements connector: it decides which chunks the step saves, in the order of LMCache:
// new requests, then running ones, then resumed ones. Model runner V2 treats resumed requests as
// new and running ones last.
func (c *lmcache) planStores(items []item) {
	for pass := range turns {
		for i := range items {
			it := &items[i]
			turn := turnOfRunning
			if it.fresh {
				turn = turnOfAdmitted(it.s)
			}
			if c.e.rules.ModelRunnerV2 {
				turn = (turns - turn) % turns // new, resumed, running
			}
			if turn == pass {
				c.planSave(it)
			}
		}
	}
	for _, s := range c.preempted { // its copies must end before its blocks are used again
		c.waitForCopiesOf(s.offload)
		c.completeStore(s.offload.storing)
		s.offload.storing = s.offload.storing[:0]
	}
	c.preempted = c.preempted[:0]
}

// planSave decides which chunks of one request the step saves: those that the step completes after
// the chunks already saved or found. It mirrors how LMCache's request tracker follows the tokens of a
// request (vllm_v1_adapter.py: RequestTracker.from_new_request(), update()), and its choice of chunks
// (ReqMeta.from_request_tracker()).
func (c *lmcache) planSave(it *item) {
	s := it.s
	state := s.offload
	known := s.tokens() // most tokens that the tracker may have
	base := min(s.computed, state.knownTokens)
	save := &transfer{s: s, state: state, idx: s.idx, sync: !c.set.Parks}
	newTokens := min(it.n, known-base) // tokens that the step adds to the tracker
	state.hasDecoded = state.hasDecoded || newTokens == 1
	if c.set.Parks || it.fresh && (s.preempted == 0 || c.e.rules.ModelRunnerV2) {
		// A new tracker, which has tokens of the prompt only.
		base = s.computed
		newTokens = it.n
		state.hasDecoded = false
		if !c.set.Parks || !c.set.Decodes {
			known = s.prompt
		}
	} else if it.fresh {
		base = s.computed
	}
	if s.computed < state.knownTokens { // drafts were rejected
		state.savedTokens = min(state.savedTokens, s.computed)
	}
	state.knownTokens = min(base+max(0, newTokens), known)
	if it.fresh { // what the lookup found needs no saving, and the next admission looks up again
		state.savedTokens = state.hitChunks * c.chunkTokens
		if !state.isLoaded { // otherwise the load releases the chunks that the lookup found
			save.pins = c.keys(s, 0, state.hitChunks)
		}
		state.isAsked = false
		state.isAnswered = false
		state.isLoaded = false
	}
	// Whole chunks only, and none once the request decodes.
	from := state.savedTokens / c.chunkTokens
	to := state.knownTokens / c.chunkTokens
	if state.hasDecoded && !c.set.Decodes || to <= from {
		from = to
	} else {
		state.savedTokens = to * c.chunkTokens
	}
	save.hashes = c.keys(s, from, to)
	save.source = to - from
	save.gpuBlocks = save.source * c.set.Blocks
	if save.gpuBlocks+int64(len(save.pins)) > 0 {
		c.e.batch.StoreBlocks += save.gpuBlocks
		c.e.out.StoredBlocks += save.gpuBlocks
		state.pending++
		c.startCopy(save)
	}
	state.offered = c.set.Parks // it keeps its blocks until the server has reported the copy
}

// completeTransfers implements connector: it ends loads, and stores the chunks of finished saves.
func (c *lmcache) completeTransfers(nowUs, step int64) {
	for _, t := range c.takeDone(nowUs, step) {
		c.showDone(t)
		if !t.load {
			t.state.pending--
		}
		for _, h := range t.pins {
			c.get(h).refs--
		}
		if t.load {
			c.completeLoad(t)
		} else {
			c.saveChunks(t.hashes)
		}
	}
}

// saveChunks stores chunks, given by hash, in the tier. From the first one on for which no space
// can be made they are dropped.
func (c *lmcache) saveChunks(hashes []uint64) {
	n := 0 // number of chunks for which there is space; LMCache takes it before it looks which it has
	for n < len(hashes) && c.makeRoom(n+1) {
		n++
	}
	for _, h := range hashes[:n] {
		if c.index[h] == nil {
			x := &tierChunk{hash: h, refs: -1}
			c.index[h] = x
			c.rankStored(x)
		}
	}
	c.completeStore(hashes[:n])
}

// keepsBlocks implements connector: only with LMCache's own server, which sets offered, a finished
// request keeps its blocks until they are copied.
func (c *lmcache) keepsBlocks(s *seq) bool {
	s.offload.finished = true
	return c.keepUntilCopied(s)
}

// hasWork implements connector: LMCache never makes the engine run steps for copies alone.
func (c *lmcache) hasWork() bool { return false }
