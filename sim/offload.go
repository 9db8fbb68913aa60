package sim

// This file simulates vLLM's own tier of KV blocks in CPU memory.

import (
	"container/list"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// offloading is vLLM's own connector, OffloadingConnector
// (vllm/distributed/kv_transfer/kv_connector/v1/offloading/scheduler.py and
// vllm/v1/kv_offload/cpu, 0.15.1 to 0.33.0). The least recently used chunks are evicted first,
// or those that eviction_policy arc chooses.
//
// A store is decided in the step that fills the chunk, and copied with the next step. A load is decided
// at admission and copied with that step, and the request waits until it has arrived (statusParked).
// Loads within sync_load_budget_bytes run inside the step, which then takes longer. Before 0.22 a
// finished request keeps its GPU blocks until its copies are done. Since then they come free at once,
// and a step that uses one of them waits for its copy.
type offloading struct {
	cpuTier

	// For store_threshold: how often chunks were looked up or offered, for the last
	// max_tracker_size of them.
	counts  map[uint64]*list.Element // elements of tracker by hash
	tracker list.List                // *tierChunk, the least recently counted first

	planned  []*transfer // stores decided in the last step, copied with the next
	finished []*seq      // requests finished since the last step, whose last chunks are still to be offered

	syncBytes float64 // bytes of the loads inside the step being formed, per GPU
	// copied maps the GPU blocks that stores read to the store; nil before 0.22, where finished
	// requests keep their blocks.
	copied   map[int32]*transfer
	dropLast bool // with a drafter: the last chunk is not loaded, nor stored while it may change
}

// newOffloading returns the connector with a capacity of a number of blocks.
func newOffloading(e *Engine, blocks int64) *offloading {
	c := &offloading{cpuTier: newCPUTier(e), counts: map[uint64]*list.Element{}}
	c.capacity = int(blocks / c.set.Blocks)
	r := &e.rules
	if e.spec != nil { // vLLM decides by the drafter's method from 0.24 to 0.29, by a mark since 0.33
		byMethod := r.OffloadByUse && !r.OffloadMarksDrafts && e.spec.IsEagle()
		byMark := r.OffloadSyncLoads && e.spec.dropBlock
		c.dropLast = byMethod || byMark
	}
	if r.OffloadFreesAtOnce {
		c.copied = map[int32]*transfer{}
		e.pool.Taken = func(b int32) { c.waitForStoresOf(b) }
	}
	return c
}

// waitForStoresOf makes the step being formed wait for stores that still read these GPU blocks for
// finished requests, because another request gets the blocks.
func (c *offloading) waitForStoresOf(blocks ...int32) {
	for _, b := range blocks {
		if t := c.copied[b]; t != nil && t.state.finished {
			c.waitedFor = append(c.waitedFor, t)
		}
	}
}

// match implements connector (OffloadingConnectorScheduler.get_num_new_matched_tokens()). How
// lookups are counted and how they end depends on the release.
func (c *offloading) match(s *seq, local int64) (tokens int64, sync, busy bool) {
	r := &c.e.rules
	s.offload.finalBlocks = nil
	if r.OffloadSyncLoads {
		s.offload.nextStore = 0
	}
	if r.OffloadByUse && s.offload.pending > 0 { // after a preemption: copies of its old blocks are under way
		return 0, false, true
	}
	full := s.tokens() / c.chunkTokens // number of full chunks
	if !r.OffloadFreesAtOnce {
		c.touch(s, full)
	}
	// Count the chunks that the tier has after those on the GPU, up to the first that it lacks.
	start := local / c.chunkTokens
	hits := int64(0)
	missed := false
	if full*c.chunkTokens-local >= c.chunkTokens {
		for i := start; i < full; i++ {
			if missed && r.OffloadByKey {
				break
			}
			if !r.OffloadCountsOffers {
				c.countUses(c.key(s, i))
			}
			x := c.get(c.key(s, i))
			if x == nil || x.refs < 0 && !r.OffloadFreesAtOnce { // before 0.22 a chunk being written is none
				missed = true
			}
			if !missed {
				hits++
				busy = busy || x.refs < 0 // since 0.22 the request waits for it
			}
		}
	}
	if r.OffloadFreesAtOnce && !r.OffloadByRequest {
		c.touch(s, full)
	}
	if c.dropLast && !busy {
		hits = max(0, hits-1)
	}
	// Less than a chunk is not loaded.
	tokens = c.chunkTokens*(start+hits) - local
	if hits == 0 || tokens < c.chunkTokens && !busy {
		return 0, false, false
	}
	for i := start; i < start+hits; i++ { // another request's load of the same chunk is waited for too
		busy = busy || c.beingLoaded[c.key(s, i)]
	}
	if busy {
		return 0, false, true
	}
	// _reserve_sync_load(), since 0.33
	bytes := float64(tokens) * math.Floor(c.tokenBytes)
	sync = c.set.SyncBytes > 0 && local+tokens < s.tokens() && c.syncBytes+bytes <= c.set.SyncBytes
	if sync {
		c.syncBytes += bytes
	}
	return tokens, sync, false
}

// startLoad implements connector (update_state_after_alloc()).
func (c *offloading) startLoad(s *seq, local, tokens int64, sync bool) {
	t := &transfer{s: s, state: s.offload, idx: s.idx, load: true, sync: sync, gpuBlocks: tokens / c.e.blockSize}
	if c.copied != nil { // since 0.22 loads count as copies of the request
		s.offload.pending++
	}
	first := local / c.chunkTokens
	s.offload.nextStore = (local + tokens) / c.chunkTokens
	c.addLoad(t, s, first, s.offload.nextStore)
	for i := first; i < s.offload.nextStore; i++ {
		c.noteUse(s, i, usedFound)
	}
	if c.e.rules.OffloadInOrder {
		c.waitForStoresOf(s.held.IDs...)
	}
	c.event(KVEvent{Kind: cacheLoadCommitted, Request: s.idx, Step: c.e.step - 1, Blocks: t.source, CPU: true})
	c.startCopy(t)
}

// planStores implements connector. It starts the stores decided in the last step and decides those
// of this step, in the order of the batch. Before 0.23 new requests come first, then running ones,
// then resumed ones (_build_store_jobs()).
func (c *offloading) planStores(items []item) {
	r := &c.e.rules
	for _, t := range c.planned {
		c.e.batch.StoreBlocks += t.gpuBlocks
		c.e.out.StoredBlocks += t.gpuBlocks
		c.startCopy(t)
	}
	c.planned = nil
	for pass := range turns {
		for i := range items {
			it := &items[i]
			if it.fresh && r.OffloadFreesAtOnce && pass == turnOfRunning {
				c.waitForStoresOf(it.s.held.IDs...)
			}
			turn := turnOfRunning
			if it.fresh && !r.OffloadInOrder {
				turn = turnOfAdmitted(it.s)
			}
			if turn == pass {
				c.planStore(it.s, it.s.computed+it.n, it.s.held.IDs)
			}
		}
	}
	for _, s := range c.finished {
		c.planStore(s, s.offload.computed, s.offload.finalBlocks)
		c.countFinished(s)
	}
	c.finished = c.finished[:0]
	for _, s := range c.preempted { // its copies must end before its blocks are used again
		c.waitForCopiesOf(s.offload)
		if !r.OffloadFreesAtOnce {
			c.completeStore(s.offload.storing)
			s.offload.storing = s.offload.storing[:0]
		}
	}
	c.preempted = c.preempted[:0]
	if r.OffloadFreesAtOnce && !r.OffloadByUse && !c.e.unfinished() {
		c.waitForCopiesOf(nil) // up to 0.23, because there may be no later step to complete them
	}
	c.syncBytes = 0
}

// The order of requests in planStores before 0.23: scheduler_output lists those scheduled for the
// first time, then running ones, then resumed ones.
const (
	turnOfNew = iota
	turnOfRunning
	turnOfResumed
	turns
)

// turnOfAdmitted returns the turn of a request that was admitted in this step.
func turnOfAdmitted(s *seq) int {
	if s.preempted > 0 {
		return turnOfResumed
	}
	return turnOfNew
}

// planStore offers to the tier the chunks of the first tokens of s that were not offered yet, and
// plans a store of those that the tier should have. blocks are the request's GPU blocks.
func (c *offloading) planStore(s *seq, tokens int64, blocks []int32) {
	r := &c.e.rules
	state := s.offload
	if c.set.PromptOnly {
		tokens = min(tokens, s.prompt)
	}
	if r.OffloadKnownTokens {
		tokens = min(tokens, s.tokens())
	}
	// full is the number of chunks that this step completes, end the number that may be offered: not
	// more than those of known tokens, and with a drafter not the last one while it may change.
	full := min(tokens/c.chunkTokens, int64(len(blocks))/c.set.Blocks)
	end := min(full, s.tokens()/c.chunkTokens)
	isComplete := state.finished && r.OffloadMarksDrafts
	if c.dropLast && (!r.OffloadAtFinish || tokens > s.prompt && !isComplete) {
		end = max(0, end-1)
	}
	if r.OffloadAtFinish {
		full = max(end, state.nextStore)
	}
	if end <= state.nextStore {
		if full > state.nextStore || r.OffloadByKey {
			// Up to 0.25 skipped blocks are never offered again, except after a preemption, when all are.
			state.nextStore = full
		}
		return
	}
	// The tier stores the offered chunks that it has not and that were used often enough.
	c.offers++
	if r.OffloadCommitted {
		c.countUses(c.keys(s, state.nextStore, end)...)
	} else if r.OffloadCountsOffers {
		for i := state.nextStore; i < end; i++ {
			c.countUses(c.key(s, i))
		}
	}
	var store []int64 // indices of chunks
	for i := state.nextStore; i < end; i++ {
		x := c.get(c.key(s, i))
		isFrequent := c.isFrequent(c.key(s, i))
		if x == nil && isFrequent {
			store = append(store, i)
		} else if x != nil && (isFrequent || r.OffloadByRequest) && r.OffloadKeepsOffered {
			x.offer = c.offers
		}
	}
	if r.OffloadByRequest {
		c.noteOffer(s, end, store)
	}
	if !c.makeRoom(len(store)) {
		return
	}
	state.nextStore = full
	if len(store) == 0 {
		return
	}
	// The chunks are in the tier from now on, but in use (refs -1) until the copy ends.
	n := int64(len(store)) * c.set.Blocks
	t := &transfer{s: s, state: state, idx: s.idx, gpuBlocks: n, source: n}
	for _, i := range store {
		h := c.key(s, i)
		x := c.index[h]
		if x == nil {
			x = &tierChunk{hash: h}
			c.index[h] = x
		}
		rank := c.nextRank()
		x.refs = -1
		if !c.set.Arc && r.OffloadSyncLoads { // since 0.33
			rank = c.rankOf(state, i)
		}
		x.moveTo(&c.t1, rank)
		c.noteUse(s, i, usedStored)
		if c.copied != nil {
			t.blocks = append(t.blocks, blocks[i*c.set.Blocks:(i+1)*c.set.Blocks]...)
		}
		t.hashes = append(t.hashes, h)
	}
	c.event(KVEvent{Kind: cacheStored, Request: s.idx, Step: c.e.step, Blocks: int64(len(store)), CPU: true})
	if r.OffloadByKey {
		end = s.tokens() / c.chunkTokens
	}
	if !r.OffloadByRequest {
		c.touch(s, end)
	}
	state.offered = true
	state.pending++
	state.storing = append(state.storing, t.hashes...)
	c.planned = append(c.planned, t)
	for _, b := range t.blocks {
		c.copied[b] = t
	}
}

// completeTransfers implements connector.
func (c *offloading) completeTransfers(nowUs, step int64) {
	for _, t := range c.takeDone(nowUs, step) {
		c.showDone(t)
		if !t.load || c.copied != nil { // see startLoad
			t.state.pending--
		}
		if t.state.pending == 0 && t.state.finished && c.e.rules.OffloadForgets {
			t.state.computed = 0
		}
		switch {
		case t.load:
			c.completeLoad(t)
		case c.copied != nil || c.e.cfg.FreeStored: // otherwise stillKeeps completes the stores of the finished request
			c.completeStore(t.hashes)
		}
		for _, b := range t.blocks {
			if c.copied[b] == t {
				delete(c.copied, b)
			}
		}
	}
}

// keepsBlocks implements connector: before 0.22 a finished request keeps its blocks until they are
// copied. Since 0.26, which offers chunks at the finish too, it records which tokens of s may still be
// offered.
func (c *offloading) keepsBlocks(s *seq) bool {
	state := s.offload
	r := &c.e.rules
	state.finished = true
	if r.OffloadAtFinish {
		state.computed = s.tokens()
		if s.held.N > 0 {
			state.finalBlocks = slices.Clone(s.held.IDs)
		}
		if s.res.FinishStatus == trace.FinishAborted && !r.OffloadForgets {
			state.computed = s.computed
		} else if r.OffloadCommitted {
			state.computed = max(s.prompt, s.tokens()-1) // the KV of the last token is not computed
		}
		c.finished = append(c.finished, s)
	}
	return c.copied == nil && c.keepUntilCopied(s)
}

// stillKeeps implements connector.
func (c *offloading) stillKeeps(s *seq) bool { return c.copied == nil && c.cpuTier.stillKeeps(s) }

// hasWork implements connector: since 0.24 the engine runs steps while a copy is planned or under
// way, or a finished request still has to be offered.
func (c *offloading) hasWork() bool {
	return c.e.rules.OffloadByUse && len(c.flying)+len(c.planned)+len(c.finished) > 0
}
