package sim

// This file is the engine's main loop, which mirrors vllm/v1/engine/core.py (EngineCore): when
// steps are scheduled, when their results are processed, and when the engine pauses.
//
// Words: a step in flight is one that was scheduled and whose result has not been processed; a
// parked request waits for its KV blocks to be loaded; a teacher-forced run takes step times from a
// recording (timeline) instead of predicting them.

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Engine is one vLLM V1 engine in simulated time. The caller submits requests in the order of their
// arrival with Arrive and advances time with RunTo, up to the next arrival.
//
// Parts that only some deployments have are objects of their own, nil without them: a connector,
// speculative decoding, ranks in lockstep, derivatives, token gaps.
type Engine struct {
	cfg   Config
	obs   Observer
	hooks Hooks
	out   Result
	limits
	clock

	pool     *pool
	waiting  waitQueue
	front    waitQueue // requests served before those in waiting: Rules.SkippedFirst, HoldersFirst
	deferred int       // number of requests in both queues that were passed over
	running  []*seq
	inbox    []*seq  // requests in the input queue that were not picked up yet
	aborts   []int32 // requests whose abort has reached the engine
	finished int64   // number of requests finished since the last schedule()
	outside  outsideQueue
	visits   []*visit // by index of the request; nil while it is not in the engine
	cadence  cadence

	// The step being formed.
	cur       []item           // its sequences: running ones in their order, then those it admits
	batch     Batch            // sums over cur, the input of the latency model
	reached   features.Reached // memory for the sums of batch within attention windows
	view      StepView         // memory for what an observer is shown of the step
	skipped   []*seq           // waiting requests passed over in this step
	threshold int64            // long_prefill_token_threshold of this step; 0 for none

	flight    []flight // steps scheduled and not yet updated, oldest first
	executed  bool     // the current iteration scheduled tokens
	stall     stall
	ema       float64 // moving average of the share of preempted requests, weight Config.GammaEMA
	shortUs   int64   // when the queue last had to wait for KV blocks; -1 for never
	stageFree []int64 // for each pipeline stage, when it is free, us

	source   rand.PCG
	rng      *rand.Rand // of source
	drift    driftCursor
	timeline timeline // recorded step times of a teacher-forced run; nil for none
	meets    Queue    // memory for the input of delay models
	failed   error    // error of a delay model in finish, which RunTo returns at the end of the step

	// Optional parts.
	connector connector // nil: none
	transfers transfers // loads from, and blocks for, other servers and the connector's tier
	frees     deferredFrees
	spec      *speculation // nil: no speculative decoding
	rank      *rank        // nil: not in lockstep with other data-parallel ranks
	api       *apiLimits   // nil: the API server accepts any number of requests
	grad      *clocks      // nil without Config.Gradient
	gaps      *gapLog      // nil without Config.TokenGaps
	kvLog     *kvLog       // nil: no observer of KV events

	// Which short cuts the steps of this run allow.
	plain     bool  // without drafts and pipeline stages: a decode is always one token
	quick     bool  // steady steps (steady.go) are possible: one engine without pipeline stages, unobserved, no connector
	memo      bool  // a request that found no free blocks need not be tried before some come free
	forced    bool  // some request has a PickUpStep, so an idle engine may have to jump to it
	allDecode bool  // every running request decodes
	inSteady  bool  // the step being formed is steady so far (admitInSteady)
	decoding  int64 // of an asynchronous engine: for how many steps every running request goes on decoding; 0: not known

	reuse memory
	check func(when string) // set by tests, called in every iteration of RunTo and after every schedule()
}

// clock is simulated time, in us.
type clock struct {
	now   int64
	last  int64 // time of the last event outside the engine while it was idle
	until int64 // RunTo returns before anything at or after it happens
	phase phase
	step  int64 // number of schedule() calls so far
	turns uint  // iterations of RunTo's loop, to look at cfg.Done now and then
}

// stall describes the steps in a row that executed nothing; see noteStall.
type stall struct {
	isStuck    bool // the last step scheduled nothing, no request ran, and no transfer was under way
	isHopeless bool // the only running request had all blocks and preempted itself
	passes     int  // number of iterations in a row that were stuck
	thrashes   int  // number of times in a row that the only running request preempted itself
}

// memory is freed objects that are used again, so that steps allocate no memory.
type memory struct {
	items    [][]item
	hits     []int32
	visits   []*visit
	seqs     freeList
	contents []*Content
}

// Hooks are functions that the engine calls when something happens, for the caller that drives
// several engines. Each may be nil.
type Hooks struct {
	// Step is called at the end of a step, before First and Left.
	Step func()
	// First is called at a request's first token.
	First func(i int, atUs int64)
	// Left is called for a request that leaves the API, whatever its outcome, and by Close for
	// those still inside. r is reused afterwards.
	Left func(i int, atUs int64, r *RequestResult)
}

// phase is the event for which an engine waits.
type phase uint8

const (
	idle     phase = iota // nothing to do until a request reaches the input queue
	ready                 // the next iteration starts now
	busy                  // the oldest step in flight ends
	dummying              // a rank in lockstep: its dummy pass ends
	gathered              // a rank in lockstep: all ranks reach the sync
)

// item is one sequence of a scheduled step.
type item struct {
	s      *seq
	n      int64 // tokens that the step computes of it
	idx    int32 // s.idx at that time; it differs once s has been reused for another request
	drafts int32 // of n, those that verify drafts
	yields bool  // the step computes its last known token, so it samples a new one
	fresh  bool  // admitted in this step, so its drafts are only padding
}

// flight is a step that was scheduled and whose result has not been processed.
type flight struct {
	items  []item
	step   int64
	start  int64      // start of schedule(), us
	end    int64      // when its result is ready, us; pendingUs while not all ranks have reached the pass
	tokens int64      // scheduled; 0 for an empty step
	steady bool       // formed by scheduleSteady, without items: every running request decodes
	grad   Derivative // of end
}

// NewEngine returns an idle engine at time 0. obs may be nil.
func NewEngine(cfg Config, obs Observer, hooks Hooks) (*Engine, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, obs: obs, hooks: hooks, drift: newDriftCursor(cfg.Drift), shortUs: -1}
	e.transfers.e = e
	if err := e.setLimits(); err != nil {
		return nil, err
	}
	e.source.Seed(uint64(cfg.Seed), 0x51b5) // the second word makes it another sequence than speculation's
	e.rng = rand.New(&e.source)
	e.waiting.byPriority = e.byPriority
	e.front.byPriority = e.byPriority
	e.timeline, _ = cfg.Latency.(timeline)
	if cfg.Gradient {
		var err error
		if e.grad, err = newClocks(&cfg); err != nil {
			return nil, err
		}
	}
	blocks, err := kvBlocks(&cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Deployment.Model.Layered != nil {
		// Layers of several kinds: a block below is a unit of the model (model.KVUnits), which takes
		// one block of every group of layers with full attention.
		e.blockSize = e.groups.Block
		blocks = max(1, blocks/e.groups.Blocks)
	}
	d := &cfg.Deployment.Engine
	e.pool = newPool(blocks, d.PrefixCaching)
	e.pool.UnhashedFirst = e.rules.UnhashedBlocksFirst
	e.watermark = int64(e.rules.Watermark * float64(blocks+1)) // vLLM counts the null block too
	if watcher, ok := obs.(KVObserver); ok {
		e.kvLog = &kvLog{obs: watcher}
		e.pool.Removed = e.kvLog.removed
	}
	e.connector = newConnector(e)
	if e.connector == nil {
		e.pool.startLog()
	}
	// Short cuts of the hot path, where no optional part of the engine can change their result.
	e.quick = (e.depth == 1 || e.depth == 2 && e.cfg.Async && e.pp == 1) && obs == nil && e.connector == nil && e.spec == nil &&
		e.cadence.interval <= 1
	e.plain = e.spec == nil && e.pp == 1
	// The parts excluded here let an attempt to admit a request depend on more than the free blocks
	// and the token budget, which are what the engine remembers of a failed attempt. Without chunked
	// prefill, a request whose cached blocks have been evicted meanwhile may fail by the budget before
	// the blocks are looked at.
	e.memo = e.connector == nil && e.spec == nil && e.longPrefill == 0 && e.watermark == 0 && e.chunked &&
		e.cadence.interval <= 1 && d.Extra["kv_transfer_config"] == nil
	if cfg.TokenGaps {
		e.out.Gaps = stat.NewHistogram()
		e.gaps = &gapLog{histogram: e.out.Gaps, tokenUs: cfg.TokenUs}
	}
	e.view.TotalBlocks = blocks
	return e, nil
}

// RunTo simulates everything that happens before untilUs. It returns early if a hook called Yield,
// and with context.Canceled soon after cfg.Done is closed.
func (e *Engine) RunTo(untilUs int64) error {
	for e.until = untilUs; ; {
		e.turns++
		if e.turns%turnsBetweenChecks == 0 && e.isCanceled() {
			return context.Canceled
		}
		wake := e.wake()
		if e.outside.before(wake) {
			if e.outside.heap[0].at >= e.until {
				return nil
			}
			e.handle(e.outside.heap.Pop())
			continue
		}
		if wake >= e.until {
			return nil
		}
		if err := e.act(); err != nil {
			return err
		}
		if e.check != nil {
			e.check("iteration")
		}
	}
}

// turnsBetweenChecks is how many iterations of RunTo's loop, a millisecond of work or less, pass
// between looks at cfg.Done.
const turnsBetweenChecks = 1 << 12

// isCanceled reports whether cfg.Done is closed.
func (e *Engine) isCanceled() bool {
	select {
	case <-e.cfg.Done:
		return true
	default:
		return false
	}
}

// Yield makes the current RunTo return before anything that happens at atUs or later.
func (e *Engine) Yield(atUs int64) { e.until = min(e.until, atUs) }

// NextUs returns the time at which something happens next in the engine, us; math.MaxInt64 for
// never.
func (e *Engine) NextUs() int64 {
	if wake := e.wake(); !e.outside.before(wake) {
		return wake
	}
	return e.outside.heap[0].at
}

// wake returns the time of the engine's own next action, us. Events from outside (arrivals, aborts)
// in the same microsecond are processed before it.
func (e *Engine) wake() int64 {
	switch e.phase {
	case ready:
		return e.now
	case busy:
		return max(e.now, e.flight[0].end)
	case dummying:
		return max(e.now, e.rank.dummyUs)
	}
	return math.MaxInt64
}

// act does the engine's own next action, according to its phase.
func (e *Engine) act() error {
	switch e.phase {
	case busy:
		return e.finishStep()
	case dummying:
		e.now = max(e.now, e.rank.dummyUs)
		e.rank.sync()
		return nil
	}
	e.drainInbox()
	if e.timeline != nil && e.hasWork() {
		// Requests that arrive before the recorded start of the next step are picked up too.
		if start := e.timeline.StartUs(e.step+1, e.now); start > e.now {
			e.now = start
			return nil
		}
	}
	return e.beginStep()
}

// hasWork reports whether the engine continues to run steps: a request is inside, or the workers
// have not been told of a finished one (scheduler.py: has_requests()).
func (e *Engine) hasWork() bool {
	return e.unfinished() || e.finished > 0 || len(e.transfers.leaving) > 0 && e.rules.LeavingIsWork ||
		e.connector != nil && e.connector.hasWork()
}

// unfinished reports whether a request is inside (scheduler.py: has_unfinished_requests()).
func (e *Engine) unfinished() bool { return len(e.running) > 0 || e.numWaiting() > 0 }

// numWaiting returns the number of waiting requests, in both queues.
func (e *Engine) numWaiting() int { return e.waiting.len() + e.front.len() }

// drainInbox picks up the input queue at the start of an iteration (engine/core.py:
// _process_input_queue()).
func (e *Engine) drainInbox() {
	if e.forced && !e.hasWork() && len(e.flight) == 0 {
		e.skipToPickUp()
	}
	later := e.inbox[:0]
	for _, s := range e.inbox {
		if s.req.PickUpStep.OK && s.req.PickUpStep.V > e.step {
			later = append(later, s)
			continue
		}
		e.pickUp(s)
	}
	e.inbox = later
	e.processAborts()
}

// skipToPickUp advances the step counter of an idle engine to the recorded step at which the next
// request was picked up.
func (e *Engine) skipToPickUp() {
	next := int64(math.MaxInt64)
	for _, s := range e.inbox {
		next = min(next, s.req.PickUpStep.V)
	}
	if len(e.inbox) > 0 {
		e.step = max(e.step, next)
	}
}

// beginStep calls schedule(). A synchronous engine then waits for the end of the step
// (engine/core.py: step()). With asynchronous scheduling or pipeline stages it schedules further
// steps while one executes, until e.depth steps are in flight (step_with_batch_queue()).
func (e *Engine) beginStep() error {
	e.executed = false
	if e.hasWork() || e.depth == 1 && e.rank == nil {
		if err := e.schedule(); err != nil {
			return err
		}
		if e.rank != nil {
			if err := e.rank.runReadyPasses(); err != nil {
				return err
			}
		}
		if int64(len(e.flight)) < e.depth && (e.executed || e.rules.EmptyBatchesQueue && e.hasWork()) {
			e.pass(max(1, e.cfg.ScheduleUs))
			if e.rank != nil {
				return e.rank.endIteration()
			}
			return nil
		}
	}
	if e.rank != nil && len(e.flight) == 0 {
		return e.rank.endIteration()
	}
	e.phase = busy
	return nil
}

// finishStep is called when the oldest step in flight ends. It processes the result and begins the
// next iteration, or makes the engine idle.
func (e *Engine) finishStep() error {
	e.landStep()
	if e.rank != nil {
		return errors.Join(e.failed, e.rank.endIteration())
	}
	if !e.executed {
		e.pauseIfStuck()
	}
	if len(e.flight) == 0 && len(e.inbox) == 0 && !e.hasWork() {
		e.phase = idle
	}
	return e.failed
}

// landStep removes the oldest step in flight, advances the clock to its end and processes its
// result.
func (e *Engine) landStep() {
	f := e.flight[0]
	e.flight = append(e.flight[:0], e.flight[1:]...)
	if e.grad != nil {
		e.grad.updated(&f, f.end < e.now)
	}
	e.now = max(e.now, f.end)
	e.phase = ready
	if f.tokens > 0 || e.depth > 1 { // an empty step of a synchronous engine has no result
		if f.tokens > 0 && e.hooks.Step != nil {
			e.hooks.Step()
		}
		if len(e.aborts) > 0 {
			e.itemize(&f)
		}
		e.processAborts()
		if f.steady {
			e.drainFrees(f.step)
			e.updateSteady(f.step)
		} else {
			e.update(&f)
		}
		e.skipTo(e.now + e.cfg.StepGapUs)
	} else if e.connector != nil || e.transfers.areUnderWay() {
		e.update(&f) // copies may have ended during it
	}
	if !f.steady {
		e.reuse.items = append(e.reuse.items, f.items[:0])
	}
}

// pauseIfStuck is called after a step that executed nothing. If requests wait, the engine pauses
// for Config.IdleSleepUs, as vLLM does. It rejects a request that can never be scheduled, on which
// vLLM would wait for ever.
func (e *Engine) pauseIfStuck() {
	if !e.unfinished() {
		return
	}
	if e.stall.isHopeless {
		e.rejectStuck(e.nextQueue().pop())
		return
	}
	if e.stall.isStuck && !e.isExecuting() && e.numWaiting() > 0 && !e.transfers.areUnderWay() {
		// The next schedule() may see loads that have just arrived, so the queue must be stuck
		// twice if parked requests hold blocks. Releases before 0.31 wait for ever if these hold
		// all blocks.
		q := e.nextQueue()
		if q.peek().status != statusParked && (e.stall.passes > 1 || len(e.waitingHolders()) == 0) {
			e.rejectStuck(q.pop())
			return
		}
		e.stall.passes++
	}
	e.pass(e.cfg.IdleSleepUs)
}

// pass advances the engine's clock by us, but in a teacher-forced run not beyond the recorded start
// of the next step.
func (e *Engine) pass(us int64) {
	until := e.now + us
	if e.timeline != nil {
		until = min(until, e.timeline.StartUs(e.step+1, until))
	}
	e.skipTo(until)
}

// skipTo advances the clock to untilUs, a time that does not depend on coefficients: its
// derivatives stay as they are.
func (e *Engine) skipTo(untilUs int64) {
	if untilUs <= e.now {
		return
	}
	if e.grad != nil {
		e.grad.now.Us += float64(untilUs - e.now)
	}
	e.now = untilUs
}

// isExecuting reports whether a step with tokens is in flight.
func (e *Engine) isExecuting() bool {
	return slices.ContainsFunc(e.flight, func(f flight) bool { return f.tokens > 0 })
}

// Close ends the run and returns its totals. Requests that are still inside leave as unfinished.
// The result has no Requests, because Hooks.Left was called with each.
func (e *Engine) Close() *Result {
	if e.gaps != nil {
		e.gaps.flush()
	}
	if e.connector != nil {
		// Complete the copies under way, whose events then name a step after the last one.
		e.step++
		e.connector.completeTransfers(math.MaxInt64, e.step)
		e.step--
	}
	for i, v := range e.visits {
		if v == nil {
			continue
		}
		if v.s != nil && e.gaps != nil {
			e.gaps.forget(v.s)
		}
		e.leave(i, e.now)
	}
	e.out.Steps = e.step
	e.out.HitBlocks = e.pool.Hits
	e.out.NewBlocks = e.pool.Misses
	e.out.EndUs = max(e.now, e.last)
	if n := e.out.ClippedSteps + e.out.ClippedDelays; n > 0 {
		e.out.Findings = append(e.out.Findings, trace.Findingf(codeClipped,
			"%d step times below 1 us and %d delays below 0 were clipped", e.out.ClippedSteps, e.out.ClippedDelays))
	}
	e.pool.Close()
	out := e.out // a copy, so that the result does not keep the engine in memory
	return &out
}
