package sim

// This file is the part that KV connectors to CPU memory have in common. offload.go is vLLM's own
// connector, lmcache.go that of LMCache.
//
// Words: the tier is the KV cache in CPU memory; a chunk is a fixed number of consecutive full KV
// blocks of a request, the unit that the tier stores; an offer is the moment when the connector
// decides which of a request's new chunks the tier shall store; a load copies chunks to the GPU, a
// store copies them from it.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/vllm"
)

// connector is a KV connector that keeps KV blocks in CPU memory. Its methods are what vLLM's
// scheduler asks of a connector (vllm/distributed/kv_transfer/kv_connector/v1/base.py:
// KVConnectorBase_V1); Engine.connector is nil without one.
type connector interface {
	// match mirrors get_num_new_matched_tokens(): it returns how many tokens after the first local
	// ones, which are on the GPU, the tier has. If sync is true, their load runs inside this step.
	// If busy is true, the answer is not known yet and the scheduler passes over the request in
	// this step.
	match(s *seq, local int64) (tokens int64, sync, busy bool)
	// give puts the full chunks of the first tokens of s into the tier: a recording states that they were cached, and a
	// chunk that is cached on the GPU is in the tier too.
	give(s *seq, tokens int64)
	// startLoad mirrors update_state_after_alloc(): it starts to copy tokens of s from the tier to
	// the GPU with this step, those after the local ones.
	startLoad(s *seq, local, tokens int64, sync bool)
	// preempt mirrors handle_preemptions() for request s, whose blocks are freed afterwards.
	preempt(s *seq)
	// planStores mirrors build_connector_meta(): it decides which chunks the tier stores of the
	// step just formed.
	planStores(items []item)
	// delayStep returns when a step that is ready at startUs begins its forward pass: after the
	// copies that it waits for and the loads inside it.
	delayStep(startUs int64) int64
	// completeTransfers mirrors update_connector_output(): it processes the copies that are done
	// at nowUs and that began with the given step or before.
	completeTransfers(nowUs, step int64)
	// keepsBlocks mirrors request_finished(): it reports whether a finished request keeps its GPU
	// blocks until they are copied.
	keepsBlocks(s *seq) bool
	// stillKeeps reports whether a request for which keepsBlocks was true must still keep its blocks.
	stillKeeps(s *seq) bool
	// hasWork mirrors has_pending_push_work(): it reports whether the engine must run steps only to
	// complete copies.
	hasWork() bool
}

// offloadState is the connector's state of one request.
type offloadState struct {
	offered     bool         // some of its chunks were offered to the tier, so it keeps its blocks until they are copied
	finished    bool         // the request has finished
	nextStore   int64        // index of the first chunk that was not offered yet
	pending     int          // number of copies under way
	storing     []uint64     // hashes of chunks that are being copied to the CPU
	rank        int64        // recency of its chunks while it runs; 0 before it used one
	uses        []uint8      // for each chunk, bits of what the request did with it: usedStored, ...
	computed    int64        // number of tokens that may be stored after it has finished
	finalBlocks []int32      // its blocks when it finished or was preempted
	chunks      []*tierChunk // found by touch, by number; those without a list are looked up again

	// Fields of LMCache:
	hitChunks   int64 // chunks that the lookup found; they are not evicted until the request runs
	knownTokens int64 // tokens that LMCache's request tracker has
	savedTokens int64 // tokens that were saved or found
	isAsked     bool  // the lookup was sent to the server
	isAnswered  bool  // and answered
	isLoaded    bool  // what was found is being loaded
	hasDecoded  bool  // a step gave it a single token
}

// cpuTier is the common part of the connectors: chunks of full KV blocks in CPU memory, found by content
// hash, and the copies between CPU and GPU. Copies in one direction run one after another at PCIe speed.
type cpuTier struct {
	e           *Engine
	set         vllm.Offload // the deployment's settings of the connector
	capacity    int          // chunks
	chunkTokens int64
	blockUs     float64 // time to copy one block: every GPU of the group copies its share at the same time
	tokenBytes  float64 // KV bytes of a token on one GPU

	index    map[uint64]*tierChunk // chunks in t1, t2, b1 and b2, by content hash
	t1, t2   chunkList             // chunks stored, and (policy arc) chunks found again
	b1, b2   chunkList             // hashes evicted from t1 and t2, which arc remembers
	target   float64               // length of t1 at which arc aims
	lastRank int64                 // rank of the chunk used last
	offers   int64                 // number of offers, by which chunks of the present offer are recognised

	beingLoaded map[uint64]bool // hashes of chunks that a load outside a step reads
	flying      []*transfer     // copies under way
	done        []*transfer     // memory that takeDone reuses
	storesEndUs int64           // end of the last store
	loadsEndUs  int64           // end of the last load outside a step
	transfers   int64           // number of copies so far
	syncUs      int64           // duration of the loads inside the step being formed, us
	waitedFor   []*transfer     // copies that the step being formed waits for
	preempted   []*seq          // requests preempted in the step being formed
	landed      int64           // the last step whose result has been processed

	isDone func(t *transfer) bool // set by tests to decide when a copy is done
}

// transfer is one copy between GPU and tier.
type transfer struct {
	s         *seq
	state     *offloadState // state of s; s itself may be reused for another request before the copy ends
	idx       int           // index of the request
	load      bool          // CPU to GPU; false: a store, GPU to CPU
	sync      bool          // it runs inside its step
	waitStep  int64         // the step that waits for it; 0 for none
	hashes    []uint64      // the chunks that it copies
	pins      []uint64      // LMCache: chunks that may not be evicted before the copy is done
	gpuBlocks int64         // number of GPU blocks that it reads or writes
	source    int64         // number of blocks (store) or chunks (load) on the side from which it copies
	blocks    []int32       // GPU blocks that a store reads and that may come free before it is done
	doneUs    int64         // when it is done; 0 if it runs inside its step
	id        int64         // number of the copy, from 1 on
	step      int64         // the step with which it began
}

// newCPUTier returns an empty tier for engine e. The capacity is set by the connectors.
func newCPUTier(e *Engine) cpuTier {
	d := e.cfg.Deployment
	c := cpuTier{
		e:           e,
		set:         d.Engine.Offload(),
		offers:      1,
		index:       map[uint64]*tierChunk{},
		beingLoaded: map[uint64]bool{},
	}
	c.chunkTokens = c.set.Blocks * e.blockSize
	tp := max(1, d.TP)
	// Each GPU has at least one KV head, so heads are duplicated if there are more GPUs than heads.
	keysPerToken := d.Model.NumLayers * max(d.Model.NumKVHeads, d.TP) * d.Model.HeadDim
	const keysAndValues = 2
	c.tokenBytes = keysAndValues * float64(keysPerToken) * d.Model.BytesPerKV / float64(tp)
	if bytesPerUs := d.Hardware.PCIeBandwidthGBs * 1e3 * d.Hardware.PCIeEfficiency; bytesPerUs > 0 {
		c.blockUs = float64(e.blockSize) * c.tokenBytes / bytesPerUs
	}
	return c
}

// newConnector returns the connector of the deployment; nil if it has none. LMCache has its own hashes of
// chunks and a size of its own. vLLM's own connector finds blocks by the hashes of the prefix cache and
// holds as many as run.yaml states, so without either it never stores one.
func newConnector(e *Engine) connector {
	d := &e.cfg.Deployment.Engine
	switch {
	case !d.CPUOffloading:
		return nil
	case d.Offload().LMCache:
		return newLMCache(e, d.KVBlocksCPU)
	case d.PrefixCaching && d.KVBlocksCPU > 0:
		return newOffloading(e, d.KVBlocksCPU)
	}
	return nil
}

// preempt remembers the GPU blocks of s, because copies of them may still be under way when they
// are freed.
func (c *cpuTier) preempt(s *seq) {
	c.preempted = append(c.preempted, s)
	s.offload.finalBlocks = slices.Clone(s.held.IDs)
}

// addLoad adds the chunks of s in [from, to) to load t, counts the load in the batch and protects
// the chunks from eviction.
func (c *cpuTier) addLoad(t *transfer, s *seq, from, to int64) {
	for i := from; i < to; i++ {
		h := c.key(s, i)
		c.get(h).refs++
		t.hashes = append(t.hashes, h)
		if !t.sync {
			c.beingLoaded[h] = true
		}
	}
	t.source = int64(len(t.hashes))
	c.e.batch.LoadBlocks += t.gpuBlocks
	c.e.out.LoadedBlocks += t.gpuBlocks
}

// startCopy starts copy t. It runs after earlier copies of the same direction, at PCIe speed, or
// inside the step if t.sync.
func (c *cpuTier) startCopy(t *transfer) {
	c.transfers++
	t.id = c.transfers
	t.step = c.e.step
	took := min(ToUs(math.Floor(c.blockUs*float64(t.gpuBlocks))), LatestUs)
	lastEndUs := &c.storesEndUs
	if t.load {
		lastEndUs = &c.loadsEndUs
	}
	if t.sync {
		c.syncUs += took
	} else {
		t.doneUs = max(*lastEndUs, c.e.now) + took
		*lastEndUs = t.doneUs
	}
	c.flying = append(c.flying, t)
	c.event(KVEvent{Kind: transferInitiated, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: t.source,
		Transfer: t.id})
}

// waitForCopiesOf makes the step being formed wait for the copies of the request with this state,
// or for all copies if state is nil.
func (c *cpuTier) waitForCopiesOf(state *offloadState) {
	for _, t := range c.flying {
		if t.state == state || state == nil {
			c.waitedFor = append(c.waitedFor, t)
		}
	}
}

// delayStep implements connector: it returns startUs, delayed by the copies that the step waits for
// and by the loads inside the step.
func (c *cpuTier) delayStep(startUs int64) int64 {
	for _, t := range c.waitedFor {
		t.waitStep = cmp.Or(t.waitStep, c.e.step) // the first step that waits for it
		startUs = max(startUs, t.doneUs)
	}
	c.waitedFor = c.waitedFor[:0]
	startUs += c.syncUs
	c.syncUs = 0
	return startUs
}

// takeDone removes the copies that are done at nowUs, and began with the given step or before, from
// those under way and returns them. The next call overwrites the result.
func (c *cpuTier) takeDone(nowUs, step int64) []*transfer {
	c.landed = step
	c.done = c.done[:0]
	c.flying = slices.DeleteFunc(c.flying, func(t *transfer) bool {
		if t.step > step || c.isDone != nil && !c.isDone(t) || t.doneUs > nowUs {
			return false
		}
		c.done = append(c.done, t)
		return true
	})
	return c.done
}

// showDone emits the KV event of a finished copy.
func (c *cpuTier) showDone(t *transfer) {
	c.event(KVEvent{Kind: transferCompleted, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: t.source,
		Transfer: t.id})
}

// completeLoad ends load t: its chunks may be evicted again, and its request may be scheduled.
func (c *cpuTier) completeLoad(t *transfer) {
	for _, h := range t.hashes {
		x := c.get(h)
		x.refs--
		c.noteUnused(x)
		if !t.sync {
			delete(c.beingLoaded, h)
		}
	}
	if t.s.offload == t.state { // otherwise the request has left, and its record is another one's
		t.s.remote.readyUs = 0
	}
}

// completeStore makes chunks, given by hash, findable in the tier because their store is done.
func (c *cpuTier) completeStore(hashes []uint64) {
	var ready []uint64
	for _, h := range hashes {
		if x := c.get(h); x != nil && x.refs < 0 { // still being written; a preemption may have completed it before
			x.refs = 0
			c.noteUnused(x)
			ready = append(ready, h)
		}
	}
	if len(ready) > 0 {
		c.event(KVEvent{Kind: blockStored, Request: -1, Step: c.e.step, Hashes: ready, Blocks: int64(len(ready)),
			CPU: true})
	}
}

// keepUntilCopied reports whether finished request s keeps its GPU blocks, which is so if some of
// its chunks were offered to the tier. It then moves s to the requests that leave once their copies
// are done.
func (c *cpuTier) keepUntilCopied(s *seq) bool {
	if !s.offload.offered || c.e.cfg.FreeStored {
		return false
	}
	if s.status == statusParked {
		c.e.transfers.parked = remove(c.e.transfers.parked, s)
	}
	c.e.transfers.leaving = append(c.e.transfers.leaving, s)
	return true
}

// stillKeeps implements connector: it reports whether finished request s must keep its blocks. It
// completes the request's stores and returns false once no copy is under way and a step has been
// processed since the request finished, because before 0.22 workers report stores with a step's
// result.
func (c *cpuTier) stillKeeps(s *seq) bool {
	if !s.offload.offered {
		return false
	}
	if s.offload.pending > 0 || s.doneStep >= c.landed {
		return true
	}
	c.completeStore(s.offload.storing)
	return false
}

// event passes a KV event to the observer, if there is one. Transfers of no block are not reported.
func (c *cpuTier) event(ev KVEvent) {
	if c.e.kvLog != nil && (ev.Blocks > 0 || ev.Transfer == 0) {
		ev.AtUs = c.e.now
		c.e.kvLog.send(ev)
	}
}
