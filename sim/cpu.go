package sim

import (
	"math"
	"slices"
)

// loadState is a request's part in the CPU tier.
type loadState struct {
	ready     bool     // its load has arrived
	stored    bool     // something of it was offered to the CPU tier: its blocks stay until the copies are done
	nextStore int64    // first block not yet offered
	pending   int      // copies not yet done
	loading   []uint64 // hashes on their way to the GPU
	storing   []uint64 // hashes on their way to the CPU
}

// cpuTier is the CPU-memory tier of the KV cache: full blocks by content hash,
// least recently used evicted first.
//
// A store is decided in the step that fills the block and copied with the next
// one; a load is decided at admission, copied with that step, and the request
// is scheduled when it has arrived. Copies of one direction follow each other
// at PCIe speed. A finished request keeps its GPU blocks until its copies are done; from
// vLLM 0.23 on they come free at once, and a step that takes one waits for its copy.
type cpuTier struct {
	e        *Engine
	capacity int64
	blockUs  float64 // time to copy one block, whole tensor-parallel group

	index      map[uint64]int32
	blocks     []cpuBlock
	next, prev []int32 // LRU ring through the sentinel at index capacity, oldest first
	free       []int32

	beingLoaded map[uint64]bool
	planned     []*transfer // stores decided in the last step
	flying      []*transfer
	busyUntil   [2]int64 // store, load
	leaving     []*seq   // finished, still being copied or not yet told to the workers
	transfers   int64

	atOnce     bool                // finished requests' GPU blocks come free at once
	promptOnly bool                // nothing behind prompts is stored
	copied     map[int32]*transfer // with atOnce: GPU blocks that are read by a store to come or under way
	flushed    []*transfer         // of them those whose blocks this step takes: it waits for them
}

type cpuBlock struct {
	hash  uint64
	refs  int32
	ready bool
}

type transfer struct {
	s      *seq
	state  *loadState // of s, which may be another request's before the copy is done
	idx    int
	load   bool
	hashes []uint64
	blocks []int32 // of the GPU, of a store with atOnce
	done   int64
	id     int64
	step   int64
}

func newCPUTier(e *Engine, blocks int64) *cpuTier {
	n := int32(blocks)
	c := &cpuTier{
		e: e, capacity: blocks, index: map[uint64]int32{}, blocks: make([]cpuBlock, n),
		next: make([]int32, n+1), prev: make([]int32, n+1), beingLoaded: map[uint64]bool{},
	}
	c.next[n], c.prev[n] = n, n
	for i := n - 1; i >= 0; i-- {
		c.free = append(c.free, i)
	}
	if c.atOnce = e.rules.OffloadFreesAtOnce; c.atOnce {
		c.copied = map[int32]*transfer{}
		e.pool.Taken = func(b int32) {
			if t := c.copied[b]; t != nil {
				c.flushed = append(c.flushed, t)
			}
		}
	}
	d := e.cfg.Deployment
	c.promptOnly = e.rules.OffloadFreesAtOnce && d.Engine.OffloadsPromptsOnly()
	bytes := float64(e.blockSize) * 2 * float64(d.Model.NumLayers*max(d.Model.NumKVHeads, d.TP)*d.Model.HeadDim) * d.Model.BytesPerKV
	if rate := d.Hardware.PCIeBandwidthGBs * 1e3 * d.Hardware.PCIeEfficiency * float64(max(1, d.TP)); rate > 0 {
		c.blockUs = bytes / rate
	}
	return c
}

func (c *cpuTier) toEnd(i int32) {
	end := int32(c.capacity)
	c.prev[i], c.next[i] = c.prev[end], end
	c.next[c.prev[i]], c.prev[end] = i, i
}

func (c *cpuTier) unlink(i int32) {
	c.next[c.prev[i]], c.prev[c.next[i]] = c.next[i], c.prev[i]
}

// touch makes the request's first n blocks the most recently used, its first block last.
func (c *cpuTier) touch(s *seq, n int64) {
	for b := n - 1; b >= 0; b-- {
		if i, ok := c.index[s.blockHash(b, c.e.blockSize)]; ok {
			c.unlink(i)
			c.toEnd(i)
		}
	}
}

// match returns how many full blocks beyond the local hits are ready here;
// busy when some of them are already being loaded for another request.
func (c *cpuTier) match(s *seq, local int64) (blocks int64, busy bool) {
	full := s.tokens() / c.e.blockSize
	c.touch(s, full)
	for b := local; b < full; b++ {
		i, ok := c.index[s.blockHash(b, c.e.blockSize)]
		if !ok || !c.blocks[i].ready {
			break
		}
		blocks++
	}
	for b := local; b < local+blocks; b++ {
		if c.beingLoaded[s.blockHash(b, c.e.blockSize)] {
			return 0, true
		}
	}
	return blocks, false
}

// startLoad copies n blocks behind the local hits with this step.
func (c *cpuTier) startLoad(s *seq, local, n int64) {
	s.status = statusLoading
	s.load.pending++
	s.load.ready, s.load.loading = false, s.load.loading[:0]
	for b := local; b < local+n; b++ {
		h := s.blockHash(b, c.e.blockSize)
		c.blocks[c.index[h]].refs++
		c.beingLoaded[h] = true
		s.load.loading = append(s.load.loading, h)
	}
	s.load.nextStore = local + n
	c.e.batch.LoadBlocks += n
	c.e.out.LoadedBlocks += n
	c.event(KVEvent{Kind: cacheLoadCommitted, Request: s.idx, Step: c.e.step - 1, Blocks: n, CPU: true})
	c.fly(&transfer{s: s, state: s.load, idx: s.idx, load: true, hashes: s.load.loading})
}

// fly starts a copy now.
func (c *cpuTier) fly(t *transfer) {
	direction := 0
	if t.load {
		direction = 1
	}
	c.transfers++
	t.id, t.step = c.transfers, c.e.step
	t.done = max(c.busyUntil[direction], c.e.now) + min(ToUs(math.Floor(c.blockUs*float64(len(t.hashes)))), LatestUs)
	c.busyUntil[direction] = t.done
	c.flying = append(c.flying, t)
	c.event(KVEvent{Kind: transferInitiated, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: int64(len(t.hashes)), Transfer: t.id})
}

// loaded reports whether the load of s has arrived; then the request may be
// scheduled from there.
func (c *cpuTier) loaded(s *seq) bool {
	if !s.load.ready {
		return false
	}
	s.load.ready = false
	s.status = statusWaiting
	if s.preempted > 0 {
		s.status = statusPreempted
	}
	s.computed = min(s.held.N*c.e.blockSize, s.tokens())
	if s.computed == s.tokens() {
		s.computed--
	}
	c.e.registerBlocks(s, s.computed)
	return true
}

// planStores starts the copies decided in the last step and decides those of
// this one: new requests first, then running, then resumed ones.
func (c *cpuTier) planStores(items []item) {
	for _, t := range c.planned {
		c.e.batch.StoreBlocks += int64(len(t.hashes))
		c.e.out.StoredBlocks += int64(len(t.hashes))
		c.fly(t)
	}
	c.planned = c.planned[:0]
	admitted := len(items) - int(c.e.view.Admitted)
	for _, pass := range []struct {
		from, to int
		resumed  bool
	}{{admitted, len(items), false}, {0, admitted, false}, {admitted, len(items), true}} {
		for i := pass.from; i < pass.to; i++ {
			if it := &items[i]; pass.from == 0 || it.s.preempted > 0 == pass.resumed {
				c.planStore(it.s, it.n)
			}
		}
	}
}

func (c *cpuTier) planStore(s *seq, n int64) {
	full := min(s.computed+n, s.tokens()) / c.e.blockSize // whole blocks only; they are full when this step has run
	if c.promptOnly {
		full = min(full, s.prompt/c.e.blockSize)
	}
	if full <= s.load.nextStore {
		return
	}
	var store []uint64
	var from []int32
	for b := s.load.nextStore; b < full; b++ {
		if h := s.blockHash(b, c.e.blockSize); !c.has(h) {
			store, from = append(store, h), append(from, s.held.IDs[b])
		}
	}
	if !c.makeRoom(int64(len(store))) {
		return
	}
	s.load.nextStore = full
	if len(store) == 0 {
		return
	}
	for _, h := range store {
		i := c.free[len(c.free)-1]
		c.free = c.free[:len(c.free)-1]
		c.blocks[i] = cpuBlock{hash: h, refs: -1}
		c.index[h] = i
		c.toEnd(i)
	}
	c.event(KVEvent{Kind: cacheStored, Request: s.idx, Step: c.e.step, Blocks: int64(len(store)), CPU: true})
	c.touch(s, full)
	s.load.stored = true
	s.load.pending++
	s.load.storing = append(s.load.storing, store...)
	t := &transfer{s: s, state: s.load, idx: s.idx, hashes: store}
	if c.planned = append(c.planned, t); c.atOnce {
		for t.blocks = from; len(from) > 0; from = from[1:] {
			c.copied[from[0]] = t
		}
	}
}

func (c *cpuTier) has(h uint64) bool {
	_, ok := c.index[h]
	return ok
}

// makeRoom evicts until n blocks are free; false, and nothing evicted, when that cannot be.
func (c *cpuTier) makeRoom(n int64) bool {
	need := n - int64(len(c.free))
	if need <= 0 {
		return true
	}
	var out []int32
	for i := c.next[c.capacity]; int64(i) != c.capacity && int64(len(out)) < need; i = c.next[i] {
		if c.blocks[i].refs == 0 {
			out = append(out, i)
		}
	}
	if int64(len(out)) < need {
		return false
	}
	var hashes []uint64
	for _, i := range out {
		hashes = append(hashes, c.blocks[i].hash)
		delete(c.index, c.blocks[i].hash)
		c.unlink(i)
		c.free = append(c.free, i)
	}
	c.event(KVEvent{Kind: cacheEviction, Request: -1, Step: c.e.step, Blocks: need, CPU: true})
	c.event(KVEvent{Kind: blockRemoved, Request: -1, Step: c.e.step, Hashes: hashes, Blocks: need, CPU: true})
	return true
}

// preempted completes the stores of a preempted request at once: the workers
// wait for them before its blocks are taken.
func (c *cpuTier) preempted(s *seq) {
	c.completeStore(s.load.storing)
	s.load.storing = s.load.storing[:0]
}

func (c *cpuTier) completeStore(hashes []uint64) {
	var ready []uint64
	for _, h := range hashes {
		if i, ok := c.index[h]; ok && !c.blocks[i].ready {
			c.blocks[i].ready, c.blocks[i].refs = true, 0
			ready = append(ready, h)
		}
	}
	if len(ready) > 0 {
		c.event(KVEvent{Kind: blockStored, Request: -1, Step: c.e.step, Hashes: ready, Blocks: int64(len(ready)), CPU: true})
	}
}

// completeTransfers processes the copies that are done when a step is updated,
// and frees the blocks of requests that wait for nothing more.
func (c *cpuTier) completeTransfers(now int64) {
	kept := c.flying[:0]
	for _, t := range c.flying {
		if t.done > now {
			kept = append(kept, t)
			continue
		}
		c.event(KVEvent{Kind: transferCompleted, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: int64(len(t.hashes)), Transfer: t.id})
		if t.load {
			c.arrive(t)
		} else {
			t.state.pending--
			c.completeStore(t.hashes)
			for _, b := range t.blocks {
				if c.copied[b] == t {
					delete(c.copied, b)
				}
			}
		}
	}
	clear(c.flying[len(kept):])
	c.flying = kept
	left := c.leaving[:0]
	for _, s := range c.leaving {
		if s.load.pending > 0 || s.doneStep == c.e.step {
			left = append(left, s)
			continue
		}
		c.e.pool.Drop(&s.held)
		c.e.free.push(s)
	}
	clear(c.leaving[len(left):])
	c.leaving = left
}

// flush is when the stores are done whose GPU blocks this step has taken.
func (c *cpuTier) flush() (untilUs int64) {
	for _, t := range c.flushed {
		untilUs = max(untilUs, t.done)
	}
	c.flushed = c.flushed[:0]
	return untilUs
}

func (c *cpuTier) arrive(t *transfer) {
	for _, h := range t.hashes {
		c.blocks[c.index[h]].refs--
		delete(c.beingLoaded, h)
	}
	t.state.ready = true
	t.state.pending--
}

// keeps reports whether the blocks of a finished request stay for its copies.
func (c *cpuTier) keeps(s *seq) bool {
	if (!s.load.stored || c.atOnce) && s.status != statusLoading || c.e.cfg.FreeStored {
		return false
	}
	c.leaving = append(c.leaving, s)
	return true
}

func (c *cpuTier) event(ev KVEvent) {
	if c.e.kvLog != nil {
		ev.AtUs = c.e.now
		c.e.kvLog.send(ev)
	}
}

// loading reports whether some request waits for its load.
func (c *cpuTier) loading() bool {
	return slices.ContainsFunc(c.flying, func(t *transfer) bool { return t.load })
}

func (e *Engine) cpuIdle() bool { return e.cpu == nil || !e.cpu.loading() && len(e.cpu.leaving) == 0 }
