package sim

import (
	"cmp"
	"container/list"
	"math"
	"slices"

	"github.com/blis-train/blis-train/vllm"
)

// connector is a KV connector that keeps KV blocks in CPU memory. Its methods are what vLLM's
// scheduler asks of a connector (vllm/distributed/kv_transfer/kv_connector/v1/base.py:
// KVConnectorBase_V1); Engine.connector is nil without one.
type connector interface {
	// match mirrors get_num_new_matched_tokens(): how many tokens behind the local ones the
	// tier has. sync means that they are loaded inside this step; busy that the answer comes
	// later and the request is passed over in this step.
	match(s *seq, local int64) (tokens int64, sync, busy bool)
	// startLoad mirrors update_state_after_alloc(): it copies so many tokens behind the local
	// ones into the blocks of s, with this step.
	startLoad(s *seq, local, tokens int64, sync bool)
	// preempt mirrors handle_preemptions(). The blocks of s are freed afterwards.
	preempt(s *seq)
	// planStores mirrors build_connector_meta(): it decides what the step just formed copies to
	// the tier.
	planStores(items []item)
	// delayStep returns when a step that is ready at startUs begins its forward pass: after the
	// copies that it waits for and the loads inside it.
	delayStep(startUs int64) int64
	// completeTransfers mirrors update_connector_output(): it processes the copies that are done
	// at nowUs and that began with the given step or before.
	completeTransfers(nowUs, step int64)
	// keepsBlocks mirrors request_finished(): whether the blocks of a finished request stay until
	// they are copied.
	keepsBlocks(s *seq) bool
	// stillKeeps reports whether the blocks of a request that keepsBlocks was true for stay on.
	stillKeeps(s *seq) bool
	// hasWork mirrors has_pending_push_work(): whether the engine steps on for copies alone.
	hasWork() bool
}

// offloadState is the part of a connector in a request; nil without a connector.
type offloadState struct {
	offered     bool     // something of it was offered to the tier: its blocks stay until the copies are done
	finished    bool     // the request has finished
	nextStore   int64    // the first chunk that was not offered yet
	pending     int      // copies that are not done
	storing     []uint64 // chunks on their way to the CPU
	rank        int64    // its recency while it runs; 0 before it touched a chunk
	uses        []uint8  // by chunk, what the request did with it: usedStored, ...
	computed    int64    // tokens that may be stored when it has finished
	finalBlocks []int32  // its blocks when it finished or was preempted

	// LMCache keeps for each request what it found and saved.
	hitChunks   int64 // found by the lookup; they stay until the request runs
	knownTokens int64 // that its tracker has
	savedTokens int64
	isAsked     bool // the lookup was sent to the server
	isAnswered  bool // and answered
	isLoaded    bool // what was found is being loaded
	hasDecoded  bool // a step gave it a single token
}

// cpuTier is what the connectors have in common: chunks of full blocks in CPU memory by content
// hash, and copies between them and the GPU. Copies of one direction follow each other at PCIe
// speed.
type cpuTier struct {
	e           *Engine
	set         vllm.Offload
	capacity    int // chunks
	chunkTokens int64
	blockUs     float64 // time to copy one block of the whole tensor-parallel group
	tokenBytes  float64 // KV bytes of a token on one GPU

	index    map[uint64]*tierChunk
	t1, t2   list.List // *tierChunk: stored once; found again (arc only)
	b1, b2   list.List // *tierChunk: evicted from t1 and t2, which arc remembers
	target   float64   // length of t1 that arc aims at
	lastRank int64     // of the chunk used last
	offers   int64     // offers so far, to tell the chunks of the one under way

	beingLoaded map[uint64]bool
	flying      []*transfer // copies under way
	done        []*transfer // memory of takeDone
	busyUntil   [2]int64    // by direction: the end of its last copy; store, load
	transfers   int64       // so far
	syncUs      int64       // duration of the loads inside the step being formed
	waitedFor   []*transfer // copies that the step being formed waits for
	preempted   []*seq      // in the step being formed
	landed      int64       // the last step whose result has been processed

	isDone func(t *transfer) bool // tests: overrides when a copy is done; nil otherwise
}

// transfer is one copy between GPU and tier.
type transfer struct {
	s         *seq
	state     *offloadState // of s, whose record may be another request's before the copy is done
	idx       int           // of the request
	load      bool          // CPU to GPU
	sync      bool          // inside its step
	waitStep  int64         // the step that waits for it; 0: none
	hashes    []uint64      // chunks
	pins      []uint64      // chunks of LMCache that stay until the copy is done
	gpuBlocks int64
	source    int64   // blocks or chunks on the side that it comes from
	blocks    []int32 // GPU blocks of a store that may come free before it is done
	doneUs    int64
	id, step  int64
}

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
	valuesPerToken := d.Model.NumLayers * max(d.Model.NumKVHeads, d.TP) * d.Model.HeadDim
	c.tokenBytes = 2 * float64(valuesPerToken) * d.Model.BytesPerKV / float64(tp)
	if rate := d.Hardware.PCIeBandwidthGBs * 1e3 * d.Hardware.PCIeEfficiency; rate > 0 {
		c.blockUs = float64(e.blockSize) * c.tokenBytes / rate
	}
	return c
}

// newConnector makes the connector of the deployment; nil without one.
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

// preempt keeps the list of the request's blocks, which come free now.
func (c *cpuTier) preempt(s *seq) {
	c.preempted = append(c.preempted, s)
	s.offload.finalBlocks = slices.Clone(s.held.IDs)
}

// addLoad notes the chunks of s that t copies to the GPU.
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

// startCopy starts a copy now, behind the one of its direction that is under way.
func (c *cpuTier) startCopy(t *transfer) {
	c.transfers++
	t.id = c.transfers
	t.step = c.e.step
	took := min(ToUs(math.Floor(c.blockUs*float64(t.gpuBlocks))), LatestUs)
	busy := &c.busyUntil[0]
	if t.load {
		busy = &c.busyUntil[1]
	}
	if t.sync {
		c.syncUs += took
	} else {
		t.doneUs = max(*busy, c.e.now) + took
		*busy = t.doneUs
	}
	c.flying = append(c.flying, t)
	c.event(KVEvent{Kind: transferInitiated, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: t.source, Transfer: t.id})
}

// waitForCopiesOf makes the step being formed wait for the copies of a request; nil: for all.
func (c *cpuTier) waitForCopiesOf(state *offloadState) {
	for _, t := range c.flying {
		if t.state == state || state == nil {
			c.waitedFor = append(c.waitedFor, t)
		}
	}
}

func (c *cpuTier) delayStep(startUs int64) int64 {
	for _, t := range c.waitedFor {
		t.waitStep = cmp.Or(t.waitStep, c.e.step)
		startUs = max(startUs, t.doneUs)
	}
	c.waitedFor = c.waitedFor[:0]
	startUs += c.syncUs
	c.syncUs = 0
	return startUs
}

// takeDone removes the copies that are done from those under way.
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

func (c *cpuTier) showDone(t *transfer) {
	c.event(KVEvent{Kind: transferCompleted, Request: t.idx, Step: t.step, ToCPU: !t.load, Blocks: t.source, Transfer: t.id})
}

// completeLoad lets the request of a load go on.
func (c *cpuTier) completeLoad(t *transfer) {
	for _, h := range t.hashes {
		x := c.get(h)
		x.refs--
		c.noteUnused(x)
		if !t.sync {
			delete(c.beingLoaded, h)
		}
	}
	if t.s.offload == t.state {
		t.s.remote.readyUs = 0
	}
}

// completeStore makes stored chunks findable.
func (c *cpuTier) completeStore(hashes []uint64) {
	var ready []uint64
	for _, h := range hashes {
		if x := c.get(h); x != nil && x.refs < 0 {
			x.refs = 0
			c.noteUnused(x)
			ready = append(ready, h)
		}
	}
	if len(ready) > 0 {
		c.event(KVEvent{Kind: blockStored, Request: -1, Step: c.e.step, Hashes: ready, Blocks: int64(len(ready)), CPU: true})
	}
}

// keepUntilCopied keeps the blocks of a finished request of which something was offered.
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

// stillKeeps completes the stores of a finished request once none is under way and a step has
// been processed since it finished: before 0.22 the workers report its stores in one.
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

func (c *cpuTier) event(ev KVEvent) {
	if c.e.kvLog != nil && (ev.Blocks > 0 || ev.Transfer == 0) {
		ev.AtUs = c.e.now
		c.e.kvLog.send(ev)
	}
}
