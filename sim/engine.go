package sim

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// Engine is one vLLM V1 engine in simulated time. Whoever drives it hands it
// requests in the order of their arrival (Arrive) and lets time pass up to the
// next one (RunTo).
type Engine struct {
	cfg   Config
	obs   Observer
	hooks Hooks
	out   Result

	// knobs, resolved
	blockSize, maxLen, maxSeqs, budget, longPrefill int64
	reaches                                         []deploy.Reach // of the model's attention beside the full one
	reached                                         features.Reached
	groups                                          deploy.KVUnits
	chunked, byPriority                             bool
	rules                                           deploy.Rules
	watermark                                       int64        // blocks an admission beside running requests leaves free
	depth, pp                                       int64        // batches in flight at most; pipeline stages
	spec                                            *speculation // nil = none
	ahead                                           int64        // its lookahead

	now   int64
	last  int64 // event outside, while idle
	until int64 // nothing at or after it happens before RunTo returns
	phase phase
	step  int64 // schedule() calls so far

	pool     *pool
	cpu      *cpuTier // nil without offloading
	waiting  waitQueue
	front    waitQueue // served before it: see Rules.SkippedFirst, HoldersFirst
	cadence  cadence   // of prefills
	running  []*seq
	inbox    []*seq // reached the input queue, not yet picked up
	aborts   []int32
	parked   []*seq // waiting for KV blocks of another server
	deferred int    // waiting requests that were passed over
	leaving  []*seq // finished, their blocks not yet taken by another server or still being written
	finished int64  // requests finished since the last schedule()

	api        *apiLimits // nil: none
	visits     []*visit   // by request, nil outside
	freeVisits []*visit
	contents   []*Content // of requests that have left
	free       freeList
	outside    outsideQueue

	cur      []item // the step being formed
	batch    Batch
	spare    [][]item
	flight   []flight // steps scheduled and not yet updated, oldest first
	defers   bool     // blocks of a step in flight come free after it
	fence    int64    // the last step that has computed tokens
	fenced   []*seq   // blocks that come free after step doneStep, in that order
	hopeless bool     // and it had all blocks when it was preempted for want of one
	// Iterations in a row that scheduled nothing although no transfer was under way.
	stuckPasses int
	thrashes    int     // preemptions in a row of the request that runs alone
	executed    bool    // the iteration under way scheduled tokens
	stuck       bool    // the last schedule() scheduled nothing although nobody ran: whoever holds blocks had left before it
	gpuFree     []int64 // by pipeline stage
	ema         float64

	source   rand.PCG
	rng      *rand.Rand // of source
	drift    driftCursor
	timeline timeline
	grad     *clocks // nil without Config.Gradient

	// Data-parallel ranks in lockstep: nil and zero for an engine alone.
	peers      *lockstep
	forwards   []forward // it has come to and that have not begun, oldest first
	iterations int64     // of the wave under way
	dummyUs    int64     // when its dummy ends

	view      StepView
	meets     Queue  // what a delay under way is asked about
	kvLog     *kvLog // nil = nobody listens
	skipped   []*seq
	hits      []int32
	gapUs     int64 // pending run of equal gaps
	gapN      int64
	spareGaps [][]int32         // of those that have left
	check     func(when string) // tests: look at the state after every change
	// Tests: told of a load, and asked whether the transfer of a parked or finished request is done.
	onPark        func(s *seq)
	isTransferred func(s *seq) bool
	threshold     int64 // of the step being formed
	shortUs       int64 // when KV blocks last kept the queue waiting
	forced        bool  // some request has a PickUpStep
	plain         bool  // no drafts and no pipeline: a decode is one token
	quick         bool  // steady steps may be taken: synchronous, unobserved, no CPU tier
	allDecode     bool
	memo          bool  // a request that found no blocks is not tried again before some came free
	failed        error // of a delay inside a step
	turns         uint  // of RunTo, to ask cfg.Done now and then
}

// Hooks are told what a driver of engines needs to know at once; nil ones are not.
type Hooks struct {
	// Step is told of the end of a step, before what First and Left are told of it.
	Step func()
	// First is told of a request's first token.
	First func(i int, atUs int64)
	// Left is told of a request that leaves the API, whatever its outcome, and by
	// Close of those still inside. r is reused afterwards.
	Left func(i int, atUs int64, r *RequestResult)
}

// phase is what an engine waits for.
type phase uint8

const (
	idle     phase = iota // nothing to do until a request reaches the input queue
	ready                 // the next iteration starts now
	busy                  // the oldest step in flight ends
	dummying              // its dummy ends
	gathered              // all ranks come to the sync
)

// item is one sequence of a scheduled step.
type item struct {
	s      *seq
	n      int64
	idx    int32
	drafts int32 // of n, proposed tokens to verify
	yields bool  // the step computes its last known token, so it samples one
	fresh  bool  // admitted in this step: its drafts are padding
}

// flight is a step whose result is not yet processed.
type flight struct {
	items  []item
	step   int64
	start  int64 // of schedule()
	end    int64
	tokens int64
	steady bool // everybody decoded: no items
	grad   Derivative
}

// NewEngine makes an idle engine at time 0. obs may be nil.
func NewEngine(cfg Config, obs Observer, hooks Hooks) (*Engine, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	d := &cfg.Deployment.Engine
	e := &Engine{
		cfg: cfg, obs: obs, hooks: hooks, blockSize: d.BlockSize, maxLen: cfg.Deployment.MaxModelLen().Or(math.MaxInt64 / 4),
		maxSeqs: d.MaxNumSeqs, budget: d.MaxNumBatchedTokens, longPrefill: d.LongPrefillThreshold, chunked: d.ChunkedPrefill,
		byPriority: d.SchedulingPolicy == "priority", drift: newDriftCursor(cfg.Drift),
	}
	e.reaches = cfg.Deployment.Reaches()
	if err := e.setRules(); err != nil {
		return nil, err
	}
	e.source.Seed(uint64(cfg.Seed), 0x51b5)
	e.rng = rand.New(&e.source)
	e.waiting.byPriority = e.byPriority
	e.front.byPriority = e.byPriority
	e.shortUs = -1
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
	if e.groups = cfg.Deployment.KVUnits(); cfg.Deployment.Model.Layered != nil {
		e.blockSize = e.groups.Block
		blocks = max(1, blocks/e.groups.Blocks)
	}
	e.pool = newPool(blocks, d.PrefixCaching)
	e.pool.UnhashedFirst = e.rules.UnhashedBlocksFirst
	e.watermark = int64(e.rules.Watermark * float64(blocks+1))
	if watcher, ok := obs.(KVObserver); ok && obs != nil {
		e.kvLog = &kvLog{obs: watcher}
		e.pool.Removed = e.kvLog.removed
	}
	if d.CPUOffloading && (d.PrefixCaching && d.KVBlocksCPU > 0 || d.Offload().LMCache) {
		e.cpu = newCPUTier(e, d.KVBlocksCPU)
	}
	e.quick = e.depth == 1 && obs == nil && e.cpu == nil && e.spec == nil && e.cadence.interval <= 1
	e.plain = e.spec == nil && e.pp == 1
	e.memo = e.cpu == nil && e.spec == nil && e.longPrefill == 0 && e.watermark == 0 && d.Extra["kv_transfer_config"] == nil
	if cfg.TokenGaps {
		e.out.Gaps = stat.NewHistogram()
	}
	e.view.TotalBlocks = blocks
	return e, nil
}

// RunTo lets everything before untilUs happen. It returns early when a hook
// called Yield.
func (e *Engine) RunTo(untilUs int64) error {
	for e.until = untilUs; ; {
		if e.turns++; e.turns%turnsUnasked == 0 && e.isDone() {
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

// turnsUnasked is a millisecond of work or less.
const turnsUnasked = 1 << 12

func (e *Engine) isDone() bool {
	select {
	case <-e.cfg.Done:
		return true
	default:
		return false
	}
}

// Yield makes the RunTo under way return before anything at atUs or later happens.
func (e *Engine) Yield(atUs int64) { e.until = min(e.until, atUs) }

// NextUs is when something happens next in the engine; math.MaxInt64: never.
func (e *Engine) NextUs() int64 {
	if wake := e.wake(); !e.outside.before(wake) {
		return wake
	}
	return e.outside.heap[0].at
}

// wake is when the engine's own next action is due. What reaches it from
// outside in the same microsecond comes first.
func (e *Engine) wake() int64 {
	switch e.phase {
	case ready:
		return e.now
	case busy:
		return max(e.now, e.flight[0].end)
	case dummying:
		return max(e.now, e.dummyUs)
	}
	return math.MaxInt64
}

// act does the engine's own next action.
func (e *Engine) act() error {
	switch e.phase {
	case busy:
		return e.finishStep()
	case dummying:
		e.now = max(e.now, e.dummyUs)
		e.peers.sync(e)
		return nil
	}
	e.drain()
	if e.timeline != nil && e.hasWork() {
		// What arrives until the recorded start of the next step is picked up too.
		if start := e.timeline.StartUs(e.step+1, e.now); start > e.now {
			e.now = start
			return nil
		}
	}
	return e.beginStep()
}

// hasWork is vLLM's has_requests: someone is in the engine, or a finish is
// still to be told to the workers.
func (e *Engine) hasWork() bool {
	return e.unfinished() || e.finished > 0 || len(e.leaving) > 0 && e.rules.LeavingIsWork || e.cpu.works()
}

func (e *Engine) unfinished() bool { return len(e.running) > 0 || e.waits() > 0 }

// waits is the number of waiting requests.
func (e *Engine) waits() int { return e.waiting.len() + e.front.len() }

// drain picks up the input queue at the start of an iteration.
func (e *Engine) drain() {
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

// skipToPickUp moves an idle engine's step counter to the next recorded pick-up.
func (e *Engine) skipToPickUp() {
	next := int64(math.MaxInt64)
	for _, s := range e.inbox {
		next = min(next, s.req.PickUpStep.V)
	}
	if len(e.inbox) > 0 {
		e.step = max(e.step, next)
	}
}

// beginStep schedules. A synchronous engine then waits for the step's end; with
// asynchronous scheduling and pipeline stages there is a queue of steps: while
// one executes the next is scheduled, until the queue is full.
func (e *Engine) beginStep() error {
	e.executed = false
	if e.hasWork() || e.depth == 1 && e.peers == nil {
		if err := e.schedule(); err != nil {
			return err
		}
		if e.peers != nil {
			if err := e.peers.runReadyPasses(); err != nil {
				return err
			}
		}
		if int64(len(e.flight)) < e.depth && (e.executed || e.rules.EmptyBatchesQueue && e.hasWork()) {
			if e.pass(max(1, e.cfg.ScheduleUs)); e.peers != nil {
				return e.endPass()
			}
			return nil
		}
	}
	if e.peers != nil && len(e.flight) == 0 {
		return e.endPass()
	}
	e.phase = busy
	return nil
}

// finishStep processes the oldest step in flight, at its end.
func (e *Engine) finishStep() error {
	e.landStep()
	if e.peers != nil {
		return errors.Join(e.failed, e.endPass())
	}
	if !e.executed {
		e.pauseIfStuck()
	}
	if len(e.flight) == 0 && len(e.inbox) == 0 && !e.hasWork() {
		e.phase = idle
	}
	return e.failed
}

// landStep updates with the oldest step's result.
func (e *Engine) landStep() {
	f := e.flight[0]
	e.flight = append(e.flight[:0], e.flight[1:]...)
	if e.grad != nil {
		e.grad.ends(&f, f.end < e.now)
	}
	e.now = max(e.now, f.end)
	e.phase = ready
	if f.tokens > 0 || e.depth > 1 {
		running := len(e.running)
		if f.tokens > 0 && e.hooks.Step != nil {
			e.hooks.Step()
		}
		e.processAborts()
		if f.steady {
			e.out.WastedTokens += int64(running - len(e.running)) // their tokens come too late
			e.updateSteady(f.step)
		} else {
			e.update(&f)
		}
		e.skipTo(e.now + e.cfg.StepGapUs)
	} else if e.cpu != nil || len(e.parked)+len(e.leaving) > 0 {
		e.update(&f)
	}
	if !f.steady {
		e.spare = append(e.spare, f.items[:0])
	}
}

// pauseIfStuck follows a step that executed nothing while requests wait.
func (e *Engine) pauseIfStuck() {
	if !e.unfinished() {
		return
	}
	if e.hopeless {
		e.rejectStuck(e.next().pop())
		return
	}
	if e.stuck && !e.executing() && e.waits() > 0 && len(e.parked)+len(e.leaving) == 0 {
		// Loads that have just arrived are seen by the next schedule(). Where they hold all blocks, releases before
		// 0.31 wait for ever.
		if q := e.next(); q.peek().status != statusParked && (e.stuckPasses > 1 || len(e.waitingHolders()) == 0) {
			e.rejectStuck(q.pop())
			return
		}
		e.stuckPasses++
	}
	e.pass(e.cfg.IdleSleepUs)
}

// pass lets engine time pass, in a teacher-forced run not beyond the next recorded start.
func (e *Engine) pass(us int64) {
	until := e.now + us
	if e.timeline != nil {
		until = min(until, e.timeline.StartUs(e.step+1, until))
	}
	e.skipTo(until)
}

// skipTo moves the clock by a time that no coefficient changes.
func (e *Engine) skipTo(untilUs int64) {
	if untilUs <= e.now {
		return
	}
	if e.grad != nil {
		e.grad.now.Us += float64(untilUs - e.now)
	}
	e.now = untilUs
}

// executing reports whether a step with tokens is in flight.
func (e *Engine) executing() bool {
	return slices.ContainsFunc(e.flight, func(f flight) bool { return f.tokens > 0 })
}

// Close ends the run: requests that are still inside leave unfinished. The
// result has no Requests; the hooks were told of them.
func (e *Engine) Close() *Result {
	e.flushGaps()
	if e.cpu != nil {
		e.step++ // nobody is left to be told
		e.cpu.completeTransfers(math.MaxInt64, e.step)
		e.step--
	}
	for i, v := range e.visits {
		if v != nil {
			if v.s != nil {
				e.forgetGaps(v.s)
			}
			e.leave(i, e.now)
		}
	}
	e.out.Steps = e.step
	e.out.HitBlocks = e.pool.Hits
	e.out.NewBlocks = e.pool.Misses
	e.out.EndUs = max(e.now, e.last)
	if n := e.out.ClippedSteps + e.out.ClippedDelays; n > 0 {
		e.out.Findings = append(e.out.Findings, trace.Findingf(codeClipped,
			"%d step times below 1 us and %d delays below 0 were clipped", e.out.ClippedSteps, e.out.ClippedDelays))
	}
	out := e.out // a pointer into the engine would keep all of it
	return &out
}
