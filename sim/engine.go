package sim

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/trace"
)

// engine is the state of one run.
type engine struct {
	cfg  *Config
	reqs []Request
	obs  Observer
	out  Result

	// knobs, resolved
	blockSize, maxLen, maxSeqs, budget, longPrefill int64
	chunked, byPriority                             bool

	now      int64
	step     int64 // schedule() calls so far
	pool     *pool
	cpu      *cpuTier // nil without offloading
	waiting  waitQueue
	running  []*seq
	inbox    []*seq // reached the input queue, not yet picked up
	aborts   []int32
	live     []*seq // by request index, nil outside the engine
	finished int64  // requests finished since the last schedule()

	arrivals   []int32 // open-loop requests by arrival
	nextArrive int
	outside    outsideQueue
	dependents map[int][]int32
	left       int // requests that have not departed

	cur     []item // the step being formed
	batch   Batch
	spare   [][]item
	flight  []flight // steps scheduled and not yet updated, oldest first
	gpuFree int64
	ema     float64

	rng      *rand.Rand
	drift    driftCursor
	timeline Timeline
	features FeatureModel
	cum      []float64 // running sum of features over steps

	view      StepView
	freeSeq   []*seq
	skipped   []*seq
	hits      []int32
	gapUs     int64 // pending run of equal gaps
	gapN      int64
	order     int64
	check     func(when string) // tests: look at the state after every change
	forced    bool              // some request has a PickUpStep
	quick     bool              // steady steps may be taken: synchronous, unobserved, no CPU tier
	allDecode bool
	memo      bool  // a request that found no blocks is not tried again before some came free
	failed    error // of a Delay, reported at the next iteration
}

// FeatureModel is a LatencyModel that can show the features of its last
// prediction (Config.Gradient).
type FeatureModel interface {
	LatencyModel
	// Features is the vector behind the last StepUs; valid until the next call.
	Features() []float64
}

// item is one sequence of a scheduled step.
type item struct {
	s      *seq
	n      int64
	idx    int32
	yields bool // the step computes its last known token, so it samples one
}

// flight is a step whose result is not yet processed.
type flight struct {
	items  []item
	step   int64
	end    int64
	tokens int64
	steady bool // everybody decoded: no items
}

func newEngine(cfg *Config, reqs []Request, obs Observer) (*engine, error) {
	d := &cfg.Deployment.Engine
	e := &engine{
		cfg: cfg, reqs: reqs, obs: obs, blockSize: d.BlockSize, maxLen: cfg.Deployment.MaxModelLen().Or(math.MaxInt64 / 4), maxSeqs: d.MaxNumSeqs, budget: d.MaxNumBatchedTokens,
		longPrefill: d.LongPrefillThreshold, chunked: d.ChunkedPrefill, byPriority: d.SchedulingPolicy == "priority",
		live: make([]*seq, len(reqs)), left: len(reqs), rng: rand.New(rand.NewPCG(uint64(cfg.Seed), 0x51b5)), drift: newDriftCursor(cfg.Drift),
	}
	e.waiting.byPriority = e.byPriority
	e.timeline, _ = cfg.Latency.(Timeline)
	if cfg.Gradient {
		e.features, _ = cfg.Latency.(FeatureModel)
	}
	blocks, err := kvBlocks(cfg)
	if err != nil {
		return nil, err
	}
	e.pool = newPool(blocks, d.PrefixCaching)
	if kv, ok := obs.(KVObserver); ok && obs != nil {
		e.pool.events = &kvLog{obs: kv}
	}
	if d.CPUOffloading && d.PrefixCaching && d.KVBlocksCPU > 0 {
		e.cpu = newCPUTier(e, d.KVBlocksCPU)
	}
	e.quick, e.memo = !cfg.Async && obs == nil && e.cpu == nil, e.cpu == nil
	e.out.Requests = make([]RequestResult, len(reqs))
	if cfg.TokenGaps {
		e.out.Gaps = NewQuantiles()
	}
	e.view.TotalBlocks = blocks
	return e, e.orderArrivals()
}

// orderArrivals checks the requests and sorts the open-loop ones by arrival.
func (e *engine) orderArrivals() error {
	for i := range e.reqs {
		r := &e.reqs[i]
		if err := checkRequest(r, i, len(e.reqs)); err != nil {
			return err
		}
		e.out.Requests[i] = RequestResult{ID: r.ID, ArrivalUs: r.ArrivalUs, PromptTokens: r.PromptTokens, SLOClass: r.SLOClass, Outcome: OutcomeUnfinished}
		e.forced = e.forced || r.PickUpStep.OK
		if r.After == 0 {
			e.arrivals = append(e.arrivals, int32(i))
			continue
		}
		if e.dependents == nil {
			e.dependents = map[int][]int32{}
		}
		e.dependents[r.After-1] = append(e.dependents[r.After-1], int32(i))
	}
	slices.SortStableFunc(e.arrivals, func(a, b int32) int { return cmpInt(e.reqs[a].ArrivalUs, e.reqs[b].ArrivalUs) })
	return nil
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func checkRequest(r *Request, i, n int) error {
	switch {
	case r.PromptTokens < 1 || r.OutputTokens < 1 || r.MaxTokens < 0:
		return trace.Errorf(CodeBadRequest, "request %d (%q): got %d prompt, %d output, %d max tokens, want >= 1, >= 1, >= 0", i, r.ID, r.PromptTokens, r.OutputTokens, r.MaxTokens)
	case r.ArrivalUs < 0 || r.ThinkUs < 0 || r.EnqueueUs.OK && r.EnqueueUs.V < r.ArrivalUs:
		return trace.Errorf(CodeBadRequest, "request %d (%q): got arrival %d us, think time %d us, enqueue %d us, want >= 0, >= 0, >= arrival", i, r.ID, r.ArrivalUs, r.ThinkUs, r.EnqueueUs.V)
	case len(r.Hashes) > 0 && r.HashTokens < 1:
		return trace.Errorf(CodeBadRequest, "request %d (%q): got %d content ids of %d tokens, want >= 1 token each", i, r.ID, len(r.Hashes), r.HashTokens)
	case r.CachedTokens.OK && (r.CachedTokens.V < 0 || r.CachedTokens.V > r.PromptTokens):
		return trace.Errorf(CodeBadRequest, "request %d (%q): got %d cached tokens, want 0 to the prompt's %d", i, r.ID, r.CachedTokens.V, r.PromptTokens)
	case r.After < 0 || r.After > n || r.After == i+1:
		return trace.Errorf(CodeBadRequest, "request %d (%q): got after %d, want another request's position, 1 to %d", i, r.ID, r.After, n)
	case r.AbortAtUs.OK && r.AbortKind != OutcomeAborted && r.AbortKind != OutcomeTimedOut && r.AbortKind != OutcomeFinished:
		return trace.Errorf(CodeBadRequest, "request %d (%q): got abort outcome %q, want aborted, timed_out or finished", i, r.ID, r.AbortKind)
	}
	return nil
}

// run is the engine loop.
func (e *engine) run() error {
	for {
		if e.cfg.StopUs > 0 && e.now >= e.cfg.StopUs {
			return nil
		}
		if !e.hasWork() && len(e.flight) == 0 {
			if more, err := e.awaitInput(); err != nil || !more {
				return err
			}
		}
		err := e.boundary()
		switch {
		case err != nil:
		case e.cfg.Async:
			err = e.iterateAsync()
		default:
			err = e.iterate()
		}
		if err == nil {
			err = e.failed
		}
		if e.check != nil {
			e.check("iteration")
		}
		if err != nil {
			return err
		}
	}
}

// hasWork is vLLM's has_requests: someone is in the engine, or a finish is
// still to be told to the workers.
func (e *engine) hasWork() bool {
	return e.unfinished() || e.finished > 0
}

func (e *engine) unfinished() bool { return len(e.running) > 0 || e.waiting.len() > 0 }

// awaitInput idles until a request reaches the input queue; false when none will.
func (e *engine) awaitInput() (bool, error) {
	for len(e.inbox) == 0 {
		at, ok := e.nextOutside()
		if !ok {
			return false, nil
		}
		if e.cfg.StopUs > 0 && at >= e.cfg.StopUs {
			e.now = e.cfg.StopUs
			return false, nil
		}
		e.now = max(e.now, at)
		if err := e.advance(e.now); err != nil {
			return false, err
		}
	}
	return true, nil
}

// boundary is the start of an engine iteration: the input queue is drained. In
// a teacher-forced run the recorded start of the next step may be later than
// now; what arrives until then is picked up too.
func (e *engine) boundary() error {
	if err := e.drain(); err != nil {
		return err
	}
	if e.timeline == nil || !e.hasWork() {
		return nil
	}
	if start := e.timeline.StartUs(e.step+1, e.now); start > e.now {
		e.now = start
		return e.drain()
	}
	return nil
}

func (e *engine) drain() error {
	if err := e.advance(e.now); err != nil {
		return err
	}
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
	return nil
}

// skipToPickUp moves an idle engine's step counter to the next recorded pick-up.
func (e *engine) skipToPickUp() {
	next := int64(math.MaxInt64)
	for _, s := range e.inbox {
		next = min(next, s.req.PickUpStep.V)
	}
	if len(e.inbox) > 0 {
		e.step = max(e.step, next)
	}
}

// iterate is one synchronous iteration: schedule, execute, update.
func (e *engine) iterate() error {
	f, err := e.schedule()
	if err != nil {
		return err
	}
	if err := e.advance(f.end); err != nil {
		return err
	}
	e.now = f.end
	if f.tokens > 0 {
		running := len(e.running)
		e.processAborts()
		if f.steady {
			e.out.WastedTokens += int64(running - len(e.running)) // their tokens come too late
			e.updateSteady(f.step)
		} else {
			e.update(&f)
			e.watchDecodes()
		}
		e.now += e.cfg.StepGapUs
	} else {
		if e.cpu != nil {
			e.update(&f)
		}
		e.pauseIfStuck()
	}
	if !f.steady {
		e.recycle(f.items)
	}
	return nil
}

// iterateAsync is one iteration with a queue of two steps: while one executes
// the next is scheduled.
func (e *engine) iterateAsync() error {
	executed := false
	if e.hasWork() {
		f, err := e.schedule()
		if err != nil {
			return err
		}
		executed = f.tokens > 0
		e.flight = append(e.flight, f)
		if executed && len(e.flight) < 2 {
			e.pass(max(1, e.cfg.ScheduleUs))
			return e.advance(e.now)
		}
	}
	f := e.flight[0]
	e.flight = append(e.flight[:0], e.flight[1:]...)
	if err := e.advance(max(e.now, f.end)); err != nil {
		return err
	}
	e.now = max(e.now, f.end)
	e.processAborts()
	e.update(&f)
	e.now += e.cfg.StepGapUs
	if !executed {
		e.pauseIfStuck()
	}
	e.recycle(f.items)
	return nil
}

// pauseIfStuck follows a step that executed nothing while requests wait.
func (e *engine) pauseIfStuck() {
	if !e.unfinished() {
		return
	}
	if len(e.running) == 0 && !e.executing() && e.waiting.len() > 0 && e.waiting.peek().status != statusLoading && e.cpuIdle() {
		e.rejectStuck(e.waiting.pop())
		return
	}
	e.pass(e.cfg.IdleSleepUs)
}

// pass lets engine time pass, in a teacher-forced run not beyond the next recorded start.
func (e *engine) pass(us int64) {
	until := e.now + us
	if e.timeline != nil {
		until = min(until, e.timeline.StartUs(e.step+1, until))
	}
	e.now = max(e.now, until)
}

// executing reports whether a step with tokens is in flight.
func (e *engine) executing() bool {
	for i := range e.flight {
		if e.flight[i].tokens > 0 {
			return true
		}
	}
	return false
}

func (e *engine) recycle(items []item) {
	for i := range items {
		items[i].s = nil
	}
	e.spare = append(e.spare, items[:0])
}

// stepUs predicts the step's execution time in whole us.
func (e *engine) stepUs() (int64, error) {
	y, err := e.cfg.Latency.StepUs(&e.batch)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return 0, trace.Errorf(CodeBadPrediction, "step %d: got %g us, want finite", e.batch.StepID, y)
	}
	if y < 1 {
		e.out.ClippedSteps++
		y = 1
	}
	if e.features != nil {
		e.addFeatures()
	}
	y *= e.drift.at(e.now)
	if e.cfg.Noise != nil {
		y *= e.cfg.Noise.draw(e.rng, e.batch.Regime())
	}
	return max(1, int64(coeff.RoundUs(y))), nil
}

func (e *engine) delayUs(d Delay, q *Queue) (int64, error) {
	if d == nil {
		return 0, nil
	}
	y, err := d.DelayUs(q)
	if err != nil {
		return 0, err
	}
	if math.IsNaN(y) || math.IsInf(y, 0) {
		return 0, trace.Errorf(CodeBadPrediction, "delay at %d us: got %g us, want finite", q.NowUs, y)
	}
	if y < 0 {
		e.out.ClippedDelays++
		y = 0
	}
	return int64(coeff.RoundUs(y)), nil
}

func (e *engine) addFeatures() {
	x := e.features.Features()
	if e.cum == nil {
		e.cum = make([]float64, len(x))
	}
	for j, v := range x {
		e.cum[j] += v
	}
}

// result closes the books.
func (e *engine) result() *Result {
	e.flushGaps()
	if e.cpu != nil {
		e.step++ // nobody is left to be told
		e.cpu.completeTransfers(math.MaxInt64)
		e.step--
	}
	e.out.Steps = e.step
	e.out.EndUs = e.now
	if n := e.out.ClippedSteps + e.out.ClippedDelays; n > 0 {
		e.out.Findings = append(e.out.Findings, trace.Findingf(CodeClipped, "%d step times below 1 us and %d delays below 0 were clipped", e.out.ClippedSteps, e.out.ClippedDelays))
	}
	return &e.out
}
