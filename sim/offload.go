package sim

import (
	"cmp"
	"container/list"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// loadState is a request's part in the CPU tier.
type loadState struct {
	// Something of it was offered to the CPU tier: its blocks stay until the copies are done; it has finished.
	stored, over bool
	nextStore    int64    // first chunk not yet offered
	pending      int      // copies not yet done
	storing      []uint64 // hashes on their way to the CPU
	rank         int64    // its recency while it runs, 0 before it touched anything
	uses         []uint8  // by chunk, what it did with it; see usedStored
	computed     int64    // tokens that may be stored when it has finished
	blocks       []int32  // it had then, or when it was preempted

	// Of LMCache: chunks found, which stay until it runs; tokens that its tracker has and that are saved.
	hit, length, saved           int64
	asked, found, loads, decodes bool // it waits for an answer; has it; what was found is loaded; a step gave it one token
}

// cpuTier is the CPU-memory tier of the KV cache: chunks of full blocks by content hash, the
// least recently used evicted first, or as arc says (vllm/v1/kv_offload of 0.15.1 to 0.33.0).
//
// A store is decided in the step that fills the chunk and copied with the next
// one; a load is decided at admission and copied with that step. The request parks until it
// has arrived; within sync_load_budget_bytes it runs in that step, which takes longer. Copies of
// one direction follow each other at PCIe speed. A finished request keeps its GPU blocks until
// its copies are done; from vLLM 0.22 on they come free at once, and a step that takes one waits
// for its copy.
type cpuTier struct {
	e          *Engine
	set        deploy.Offload
	capacity   int     // chunks
	chunk      int64   // its tokens
	blockUs    float64 // time to copy one block, whole tensor-parallel group
	tokenBytes float64 // KV of a token on one GPU

	index          map[uint64]*tierChunk
	t1, t2, b1, b2 list.List                // stored once, found again, and what arc remembers of them; lru has the first
	target         float64                  // of the length of t1, by arc
	counts         map[uint64]*list.Element // of tracker, by hash
	tracker        list.List                // how often chunks were asked for or offered, with store_threshold: the last max_tracker_size
	ranks, offers  int64

	beingLoaded     map[uint64]bool
	planned, flying []*transfer // stores decided in the last step; copies under way
	busyUntil       [2]int64    // store, load
	// Requests that have finished since the last step, whose last chunks are still to be offered; preempted in this one.
	finished, halted []*seq
	transfers        int64
	syncBytes        float64 // of the loads inside this step, per GPU
	syncUs           int64   // that they take

	copied  map[int32]*transfer // where blocks come free at once: those of the GPU that are read by a store to come or under way
	flushed []*transfer         // of them those whose blocks this step takes: it waits for them
	landed  int64               // the last step whose result is there
	drops   bool                // a drafter's last chunk: it is neither loaded nor, while it may change, stored
	isDone  func(t *transfer) bool
}

type transfer struct {
	s              *seq
	state          *loadState // of s, which may be another request's before the copy is done
	idx            int
	load, sync     bool     // sync: inside its step
	flushed        int64    // the step that waits for it
	hashes, pins   []uint64 // chunks; of LMCache those that stay until it is done
	gpu, source    int64    // blocks on the GPU, blocks where it comes from
	blocks         []int32  // of the GPU, of a store, where they may come free before it is done
	done, id, step int64
}

func newCPUTier(e *Engine, blocks int64) *cpuTier {
	d := e.cfg.Deployment
	c := &cpuTier{e: e, set: d.Engine.Offload(), offers: 1, index: map[uint64]*tierChunk{}, counts: map[uint64]*list.Element{},
		beingLoaded: map[uint64]bool{}}
	c.capacity = int(blocks / c.set.Blocks)
	c.chunk = c.set.Blocks * e.blockSize
	r := &e.rules
	if c.set.LMCache {
		r.OffloadFreesAtOnce = false
		r.OffloadInOrder = false
		r.OffloadByUse = false
		r.OffloadAtFinish = false
		r.OffloadByRequest = false
		r.OffloadSyncLoads = false
	}
	if e.spec != nil {
		c.drops = r.OffloadByUse && !r.OffloadMarksDrafts && e.spec.IsEagle() || r.OffloadSyncLoads && e.spec.dropBlock
	}
	if r.OffloadFreesAtOnce {
		c.copied = map[int32]*transfer{}
		e.pool.Taken = func(b int32) { c.waitFor(b) }
	}
	c.tokenBytes = 2 * float64(d.Model.NumLayers*max(d.Model.NumKVHeads, d.TP)*d.Model.HeadDim) * d.Model.BytesPerKV / float64(max(1, d.TP))
	if c.set.LMCache && blocks <= 0 {
		c.capacity = int(trace.Int(c.set.Bytes / (4096 * math.Ceil(float64(c.chunk)*c.tokenBytes/float64(max(1, d.PP)*4096)))))
	}
	if rate := d.Hardware.PCIeBandwidthGBs * 1e3 * d.Hardware.PCIeEfficiency; rate > 0 {
		c.blockUs = float64(e.blockSize) * c.tokenBytes / rate
	}
	return c
}

// waitFor has the step wait for the copies of finished requests that read those blocks, which somebody is given.
func (c *cpuTier) waitFor(blocks ...int32) {
	for _, b := range blocks {
		if t := c.copied[b]; t != nil && t.state.over {
			c.flushed = append(c.flushed, t)
		}
	}
}

// match returns how many tokens behind the local ones are ready here, in whole chunks; sync: they are loaded in this
// step; busy: some are still being written or loaded for another request, or its own copies are under way.
func (c *cpuTier) match(s *seq, local int64) (tokens int64, sync, busy bool) {
	r := &c.e.rules
	if c.set.LMCache {
		return c.ask(s, local)
	}
	if s.load.blocks = nil; r.OffloadSyncLoads {
		s.load.nextStore = 0
	}
	if r.OffloadByUse && s.load.pending > 0 {
		return 0, false, true
	}
	full := s.tokens() / c.chunk
	if !r.OffloadFreesAtOnce {
		c.touch(s, full)
	}
	start := local / c.chunk
	hits := int64(0)
	ends := false
	for i := start; i < full && full*c.chunk-local >= c.chunk && (!ends || !r.OffloadByKey); i++ {
		if !r.OffloadCountsOffers {
			c.count(c.key(s, i))
		}
		x := c.get(c.key(s, i))
		if ends = ends || x == nil || x.refs < 0 && !r.OffloadFreesAtOnce; !ends {
			hits++
			busy = busy || x.refs < 0
		}
	}
	if r.OffloadFreesAtOnce && !r.OffloadByRequest {
		c.touch(s, full)
	}
	if c.drops && !busy {
		hits = max(0, hits-1)
	}
	if tokens = c.chunk*(start+hits) - local; hits == 0 || tokens < c.chunk && !busy {
		return 0, false, false
	}
	for i := start; i < start+hits; i++ {
		busy = busy || c.beingLoaded[c.key(s, i)]
	}
	if busy {
		return 0, false, true
	}
	bytes := float64(tokens) * math.Floor(c.tokenBytes)
	if sync = c.set.SyncBytes > 0 && local+tokens < s.tokens() && c.syncBytes+bytes <= c.set.SyncBytes; sync {
		c.syncBytes += bytes
	}
	return tokens, sync, false
}

// startLoad copies the chunks of so many tokens behind the local ones with this step.
func (c *cpuTier) startLoad(s *seq, local, tokens int64, sync bool) {
	t := &transfer{s: s, state: s.load, idx: s.idx, load: true, sync: sync, gpu: tokens / c.e.blockSize}
	if c.copied != nil {
		s.load.pending++
	}
	if s.load.nextStore = (local + tokens) / c.chunk; c.set.LMCache {
		s.load.nextStore, s.load.loads, t.pins = s.load.hit, true, c.keys(s, 0, s.load.hit)
		t.gpu = (s.load.hit - local/c.chunk) * c.set.Blocks
	}
	for i := local / c.chunk; i < s.load.nextStore; i++ {
		h := c.key(s, i)
		c.get(h).refs++
		if t.hashes = append(t.hashes, h); !sync {
			c.beingLoaded[h] = true
		}
		c.use(s, i, usedFound)
	}
	t.source = int64(len(t.hashes))
	c.e.batch.LoadBlocks += t.gpu
	c.e.out.LoadedBlocks += t.gpu
	if c.e.rules.OffloadInOrder {
		c.waitFor(s.held.IDs...)
	}
	c.event(KVEvent{Kind: cacheLoadCommitted, Request: s.idx, Step: c.e.step - 1, Blocks: t.source, CPU: true})
	c.fly(t)
}

// fly starts a copy now.
func (c *cpuTier) fly(t *transfer) {
	c.transfers++
	t.id, t.step = c.transfers, c.e.step
	took := min(ToUs(math.Floor(c.blockUs*float64(t.gpu))), LatestUs)
	busy := &c.busyUntil[0]
	if t.load {
		busy = &c.busyUntil[1]
	}
	if t.sync {
		c.syncUs += took
	} else {
		t.done = max(*busy, c.e.now) + took
		*busy = t.done
	}
	c.flying = append(c.flying, t)
	c.event(KVEvent{Kind: transferInitiated, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: t.source, Transfer: t.id})
}

// planStores starts the copies decided in the last step and decides those of
// this one: in the order of the batch, before 0.23 new requests first, then running, then resumed ones.
func (c *cpuTier) planStores(items []item) {
	r := &c.e.rules
	for _, t := range c.planned {
		c.e.batch.StoreBlocks += t.gpu
		c.e.out.StoredBlocks += t.gpu
		c.fly(t)
	}
	c.planned = nil
	for pass := range 3 {
		for i := range items {
			it, at := &items[i], 1
			if it.fresh && r.OffloadFreesAtOnce && pass == 1 {
				c.waitFor(it.s.held.IDs...)
			}
			if it.fresh && !r.OffloadInOrder {
				at = 2 * int(min(it.s.preempted, 1))
			}
			if c.set.LMCache && r.ModelRunnerV2 { // to which who was preempted is new
				at = (3 - at) % 3
			}
			if at == pass && c.set.LMCache {
				c.planSave(it)
			} else if at == pass {
				c.planStore(it.s, it.s.computed+it.n, it.s.held.IDs)
			}
		}
	}
	for _, s := range c.finished {
		c.planStore(s, s.load.computed, s.load.blocks)
		c.used(s)
	}
	c.finished = c.finished[:0]
	for _, s := range c.halted { // the workers wait for its copies before its blocks are taken
		if c.flushOf(s.load); !r.OffloadFreesAtOnce {
			c.completeStore(s.load.storing)
			s.load.storing = s.load.storing[:0]
		}
	}
	c.halted = c.halted[:0]
	if r.OffloadFreesAtOnce && !r.OffloadByUse && !c.e.unfinished() { // to 0.23 nobody may come to see them done
		c.flushOf(nil)
	}
	c.syncBytes = 0
}

// flushOf has the step wait for the copies of a request, of nil all.
func (c *cpuTier) flushOf(l *loadState) {
	for _, t := range c.flying {
		if t.state == l || l == nil {
			c.flushed = append(c.flushed, t)
		}
	}
}

// planStore offers the chunks of the first tokens of s that have not been.
func (c *cpuTier) planStore(s *seq, tokens int64, blocks []int32) {
	r := &c.e.rules
	if c.set.PromptOnly {
		tokens = min(tokens, s.prompt)
	}
	if r.OffloadKnownTokens {
		tokens = min(tokens, s.tokens())
	}
	full := min(tokens/c.chunk, int64(len(blocks))/c.set.Blocks)
	end := min(full, s.tokens()/c.chunk)
	if c.drops && (!r.OffloadAtFinish || tokens > s.prompt && !(s.load.over && r.OffloadMarksDrafts)) {
		end = max(0, end-1)
	}
	if r.OffloadAtFinish {
		full = max(end, s.load.nextStore)
	}
	if end <= s.load.nextStore {
		if full > s.load.nextStore || r.OffloadByKey {
			s.load.nextStore = full // to 0.25 what is left out is never offered, and after a preemption all is again
		}
		return
	}
	var store []int64
	if c.offers++; r.OffloadCommitted {
		c.count(c.keys(s, s.load.nextStore, end)...)
	} else if r.OffloadCountsOffers {
		for i := s.load.nextStore; i < end; i++ {
			c.count(c.key(s, i))
		}
	}
	for i := s.load.nextStore; i < end; i++ {
		x := c.get(c.key(s, i))
		counted := c.counts[c.key(s, i)]
		passes := c.set.Threshold < 2 || counted != nil && counted.Value.(*tierChunk).offer >= c.set.Threshold
		if x == nil && passes {
			store = append(store, i)
		} else if x != nil && (passes || r.OffloadByRequest) && r.OffloadKeepsOffered {
			x.offer = c.offers
		}
	}
	if r.OffloadByRequest {
		c.note(s, end, store)
	}
	if !c.makeRoom(len(store)) {
		return
	}
	if s.load.nextStore = full; len(store) == 0 {
		return
	}
	n := int64(len(store)) * c.set.Blocks
	t := &transfer{s: s, state: s.load, idx: s.idx, gpu: n, source: n}
	for _, i := range store {
		h := c.key(s, i)
		x := cmp.Or(c.index[h], &tierChunk{hash: h})
		rank := c.now()
		c.index[h], x.refs = x, -1
		if !c.set.Arc && r.OffloadSyncLoads {
			rank = c.rankOf(s.load, i)
		}
		x.take(&c.t1, rank)
		if c.use(s, i, usedStored); c.copied != nil {
			t.blocks = append(t.blocks, blocks[i*c.set.Blocks:(i+1)*c.set.Blocks]...)
		}
		t.hashes = append(t.hashes, h)
	}
	c.event(KVEvent{Kind: cacheStored, Request: s.idx, Step: c.e.step, Blocks: int64(len(store)), CPU: true})
	if r.OffloadByKey {
		end = s.tokens() / c.chunk
	}
	if !r.OffloadByRequest {
		c.touch(s, end)
	}
	s.load.stored = true
	s.load.pending++
	s.load.storing = append(s.load.storing, t.hashes...)
	c.planned = append(c.planned, t)
	for _, b := range t.blocks {
		c.copied[b] = t
	}
}

// note has the policy learn what an offer found and missed.
func (c *cpuTier) note(s *seq, full int64, store []int64) {
	for _, i := range slices.Backward(store) {
		if x := c.index[c.key(s, i)]; x != nil && (int64(len(s.load.uses)) <= i || s.load.uses[i]&usedMissed == 0) {
			c.adapt(x)
		}
	}
	for i := s.load.nextStore; i < full; i++ {
		if x := c.get(c.key(s, i)); x != nil && x.refs >= 0 {
			c.use(s, i, usedFound)
		} else if slices.Contains(store, i) {
			c.use(s, i, usedMissed)
		}
	}
}

// completeTransfers processes the copies that are done when a step is updated, and began with it or before.
func (c *cpuTier) completeTransfers(now, step int64) {
	c.landed = step
	c.flying = slices.DeleteFunc(c.flying, func(t *transfer) bool {
		if t.step > step || c.isDone != nil && !c.isDone(t) || t.done > now {
			return false
		}
		c.event(KVEvent{Kind: transferCompleted, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: t.source, Transfer: t.id})
		if !t.load || c.copied != nil {
			t.state.pending--
		}
		if c.set.LMCache {
			c.save(t)
		}
		if t.state.pending == 0 && t.state.over && c.e.rules.OffloadForgets {
			t.state.computed = 0
		}
		if t.load {
			c.arrive(t)
		} else if c.copied != nil {
			c.completeStore(t.hashes)
		}
		for _, b := range t.blocks {
			if c.copied[b] == t {
				delete(c.copied, b)
			}
		}
		return true
	})
}

// flush is when the stores are done whose GPU blocks this step has taken.
func (c *cpuTier) flush() (untilUs int64) {
	for _, t := range c.flushed {
		t.flushed = cmp.Or(t.flushed, c.e.step)
		untilUs = max(untilUs, t.done)
	}
	c.flushed = c.flushed[:0]
	return untilUs
}

func (c *cpuTier) arrive(t *transfer) {
	for _, h := range t.hashes {
		x := c.get(h)
		x.refs--
		if c.rests(x); !t.sync {
			delete(c.beingLoaded, h)
		}
	}
	if t.s.load == t.state {
		t.s.remote.readyUs = 0
	}
}

// keeps reports whether the blocks of a finished request stay for its copies.
func (c *cpuTier) keeps(s *seq) bool {
	l := s.load
	if l.over = true; c.e.rules.OffloadAtFinish {
		if l.computed = s.tokens(); s.held.N > 0 {
			l.blocks = slices.Clone(s.held.IDs)
		}
		if s.res.FinishStatus == trace.FinishAborted && !c.e.rules.OffloadForgets {
			l.computed = s.computed
		} else if c.e.rules.OffloadCommitted {
			l.computed = max(s.prompt, s.tokens()-1)
		}
		c.finished = append(c.finished, s)
	}
	if !s.load.stored || c.copied != nil || c.e.cfg.FreeStored {
		return false
	}
	if s.status == statusParked {
		c.e.parked = remove(c.e.parked, s)
	}
	c.e.leaving = append(c.e.leaving, s)
	return true
}

// keepsOn reports whether the blocks of a request that has left stay: before 0.22 the workers tell of its copies in one.
func (c *cpuTier) keepsOn(s *seq) bool {
	if c == nil || c.copied != nil || !s.load.stored || s.load.pending > 0 || s.doneStep >= c.landed {
		return c != nil && c.copied == nil && s.load.stored
	}
	c.completeStore(s.load.storing)
	return false
}

func (c *cpuTier) event(ev KVEvent) {
	if c.e.kvLog != nil && (ev.Blocks > 0 || ev.Transfer == 0) {
		ev.AtUs = c.e.now
		c.e.kvLog.send(ev)
	}
}

// works reports whether the engine goes on for copies alone, as from 0.24 on.
func (c *cpuTier) works() bool {
	return c != nil && c.e.rules.OffloadByUse && len(c.flying)+len(c.planned)+len(c.finished) > 0
}
