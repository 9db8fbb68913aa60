package sim

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// schedule is one schedule() call: it forms e.cur, advances what was
// scheduled, predicts when the step's execution ends and puts it in flight.
func (e *Engine) schedule() error {
	e.step++
	b := &e.batch
	b.begin(e.step, e.now, e.reaches, &e.reached)
	steady := e.isSteady()
	if steady {
		e.cur = nil
		e.scheduleSteady()
	} else {
		e.begin()
		if left, ok := e.scheduleRunning(e.budget); ok {
			e.scheduleWaiting(left)
		}
		e.cadence.ends(b.Tokens())
	}
	b.Running, b.Waiting = int64(len(e.running)), int64(e.waits())
	empty := b.Tokens() == 0 && b.Running == 0
	comes := len(e.fenced) > 0 && e.executing() && !e.cfg.Deployment.Engine.CPUOffloading // beside copies one that thrashes would never end
	e.stuck = empty && len(e.parked)+len(e.leaving) == 0 && !comes
	if e.hopeless = empty && b.Preempted == 1; e.hopeless && e.pool.Free < e.pool.Total {
		e.thrashes++ // loads that have arrived hold the other blocks: before 0.31 they may wait for ever
		e.hopeless = e.thrashes > mostThrashes
	}
	gamma := e.cfg.GammaEMA
	e.ema = gamma*float64(b.Preempted)/float64(max(1, b.Running)) + (1-gamma)*e.ema
	b.PreemptionEMA = e.ema
	if e.cpu != nil {
		e.cpu.planStores(e.cur)
	}
	if e.check != nil {
		e.check("schedule")
	}
	end, err := e.execute()
	if err != nil {
		return err
	}
	e.showStep(end)
	e.finished = 0
	e.advanceScheduled()
	e.count()
	e.flight = append(e.flight, flight{})
	f := &e.flight[len(e.flight)-1]
	f.items, f.step, f.start, f.end, f.tokens, f.steady = e.cur, e.step, b.StartUs, end, b.Tokens(), steady
	if e.executed = f.tokens > 0; e.executed {
		e.stuckPasses, e.fence = 0, e.step
	}
	if e.grad != nil {
		f.grad = e.grad.fly()
	}
	return nil
}

// mostThrashes is how often in a row, without a token for anybody, the request that runs alone may preempt itself.
const mostThrashes = 100

func (e *Engine) begin() {
	e.cur = nil
	if n := len(e.spare); n > 0 {
		e.cur, e.spare = e.spare[n-1], e.spare[:n-1]
	}
	e.view.Admitted = 0
	e.threshold = e.prefillThreshold()
	e.cadence.begins(e.running, e.iterations)
	if e.spec != nil {
		e.spec.input = e.cfg.Deployment.Engine.MaxNumBatchedTokens
	}
}

// execute says when the step's result is there. A step without tokens runs no
// model. Synchronous step times are cadences, schedule() included; an
// asynchronous step begins when it is scheduled and the one before is done.
func (e *Engine) execute() (int64, error) {
	if e.peers != nil && e.batch.Tokens() > 0 {
		e.peers.submit(e, &e.batch, false)
		return pendingUs, nil
	}
	us := e.cfg.EmptyStepUs
	if e.batch.Tokens() > 0 {
		var err error
		if us, err = e.stepUs(&e.batch); err != nil {
			return 0, err
		}
		e.out.BusyUs += us
	} else {
		e.out.EmptySteps++
	}
	start, fromGPU := e.now, false
	if e.depth > 1 && e.batch.Tokens() > 0 {
		start += e.cfg.ScheduleUs
		if fromGPU = e.gpuFree[0] > start; fromGPU {
			start = e.gpuFree[0]
		}
	}
	if e.cpu != nil {
		start = max(start, e.cpu.flush()) + e.cpu.syncUs
		e.cpu.syncUs = 0
	}
	end := start + us
	if e.pp > 1 && e.batch.Tokens() > 0 {
		end = e.throughStages(start, us)
	}
	if e.timeline != nil {
		if at, ok := e.timeline.EndUs(e.step, e.now); ok {
			end = max(at, e.now)
		}
	}
	if e.grad != nil {
		e.moveClocks(fromGPU, start, us)
	}
	if e.batch.Tokens() > 0 {
		e.gpuFree[e.pp-1] = end
	}
	return end, nil
}

// throughStages says when a step of us in all is through the pipeline: each stage takes
// an equal part of it, one step at a time and in order.
func (e *Engine) throughStages(start, us int64) int64 {
	for i := range e.gpuFree {
		start = max(start, e.gpuFree[i]) + us/e.pp
		e.gpuFree[i] = start
	}
	return start + us%e.pp
}

// moveClocks is execute for the derivatives.
func (e *Engine) moveClocks(fromGPU bool, start, us int64) {
	switch {
	case e.batch.Tokens() == 0:
		e.grad.idles(us)
	case fromGPU:
		e.grad.executes(true, 0)
	default:
		e.grad.executes(false, start-e.now)
	}
}

// scheduleRunning gives tokens to running requests, in order. It returns the
// budget left and whether requests may be admitted (nobody was preempted).
func (e *Engine) scheduleRunning(budget int64) (int64, bool) {
	var decodes, context, blocks int64
	ahead := e.ahead
	size := e.blockSize
	caching := e.pool.Caching
	for i := 0; i < len(e.running) && budget > 0; {
		s := e.running[i]
		n, next := int64(1), e.decodesNext(s)
		if !next {
			if n = e.wants(s, budget); n <= 0 {
				i++
				continue
			}
		}
		// a division costs more than the rest of a decode
		if end := min(s.computed+n+ahead, e.maxLen); end > (s.held.N-s.side)*size {
			need := ceilDiv(end, e.blockSize) + s.side
			kept := true
			if need-s.held.N > e.pool.Free {
				if i, budget, kept = e.makeRoom(s, i, need, budget); !kept {
					if e.rules.SelfPreemptedGoesOn && e.byPriority && s.status == statusPreempted {
						continue // who comes behind it is served before it, and it has just freed its blocks
					}
					break
				}
			}
			e.pool.Grow(&s.held, need)
		}
		if caching && s.computed+n >= (s.held.Registered+1)*size {
			e.registerBlocks(s, min(s.computed+n, s.tokens()))
		}
		if next {
			decodes += 1
			context += s.computed
			blocks += s.held.N
			e.batch.reach(true, s.computed, 1, 1)
			e.put(s, 1).yields = true
		} else {
			e.cadence.chunks = e.cadence.chunks || s.chunk
			e.take(s, n, e.draftsOf(s, n))
			e.spend(n, 1)
		}
		budget -= n
		i++
	}
	e.batch.AddDecodes(decodes, context, blocks)
	return budget, e.batch.Preempted == 0
}

// decodesNext reports whether s decodes one token and nothing is in its way, as nearly all of a
// busy step do; what others ask for is [Engine.wants].
func (e *Engine) decodesNext(s *seq) bool {
	c := s.computed
	return e.plain && s.prompt+s.outputs+s.inFlight == c+1 && c >= s.prompt && !s.chunk && c+1 < e.maxLen &&
		(s.inFlight == 0 || c+2-s.inFlight < s.prompt+s.maxTokens)
}

// wants is the number of tokens a running request asks for within the budget.
func (e *Engine) wants(s *seq, budget int64) int64 {
	if s.inFlight > 0 && (s.computed+2-s.inFlight >= s.prompt+s.maxTokens || e.pp > 1 && !e.rules.AsyncWithPP) {
		return 0 // the step in flight reaches its cap for certain, or has to be known first
	}
	if e.step < s.decodeAt || e.cadence.hold && s.chunk {
		return 0
	}
	n := s.tokens() + s.drafts + s.inFlight - s.computed
	if e.threshold > 0 && n > e.threshold {
		n = e.threshold
	}
	return min(n, e.room(budget), e.maxLen-1-s.computed)
}

// makeRoom preempts until s can have its blocks. It returns the new position
// in the running list, the budget, and false when s itself was preempted or nobody may be.
func (e *Engine) makeRoom(s *seq, i int, need, budget int64) (int, int64, bool) {
	for need-s.held.N > e.pool.Free {
		at, n := e.victim(), int64(0)
		victim := e.running[at]
		if e.defers && e.rules.VictimsInFlightStay && victim.flying > 0 {
			return i, budget, false
		}
		e.running = slices.Delete(e.running, at, at+1)
		if e.byPriority {
			n = e.giveBack(victim) // it may have had its tokens already
		}
		if n > 0 || e.rules.PreemptByPosition && at < i {
			i--
		}
		if n > 0 {
			budget += n
			e.spend(n, -1)
		}
		e.preempt(victim)
		if victim == s {
			return i, budget, false
		}
	}
	return i, budget, true
}

// victim is where the running request to preempt stands: the last, under priority the one that
// would be served last. (vLLM takes the first of equal priority and arrival, which never happens
// there and would let two of them preempt each other for ever.)
func (e *Engine) victim() int {
	worst := len(e.running) - 1
	if e.byPriority {
		for i, s := range e.running {
			if e.running[worst].Before(s) {
				worst = i
			}
		}
	}
	return worst
}

func (e *Engine) preempt(s *seq) {
	if e.cpu != nil {
		e.cpu.halted, s.load.blocks = append(e.cpu.halted, s), slices.Clone(s.held.IDs)
	}
	if e.pool.Caching {
		e.pool.ListAll(&s.held, s.content, e.blockSize)
	}
	e.freeBlocks(s)
	s.status = statusPreempted
	s.computed = 0
	s.drafts = 0
	s.prefills = false
	if e.rules.ResumeAfterDrain {
		s.stale = s.flying
		s.drains = s.flying > 0
		s.inFlight = 0
	}
	s.preempted++
	s.res.Preemptions++
	s.res.Starved = true
	e.batch.Preempted++
	e.out.Preemptions++
	e.journey(Preempted, s, e.step)
	e.waiting.prepend(s)
	e.out.PeakWaiting = max(e.out.PeakWaiting, int64(e.waits()))
}

// freeBlocks lets go of what s holds. A connector may write into a free block at once, so one that a step
// in flight writes comes free with that step's result.
func (e *Engine) freeBlocks(s *seq) {
	if !e.defers || s.flying == 0 || s.held.N == 0 {
		e.pool.Drop(&s.held)
		return
	}
	e.fenced = append(e.fenced, &seq{held: s.held, doneStep: e.fence})
	s.held = held{}
}

// take puts n tokens of s into the step, drafts among them.
func (e *Engine) take(s *seq, n int64, drafts int32) {
	it := e.put(s, n)
	it.drafts, it.yields = drafts, s.computed+n >= s.tokens()+s.inFlight
	if drafts > 0 {
		e.batch.AddVerify(s.computed, n, s.held.N, 1)
		return
	}
	e.batch.Add(s.computed, s.prompt, n, s.held.N, 1)
}

// put adds an item to the step, filled in place: a copy of a literal waits for its narrow stores.
func (e *Engine) put(s *seq, n int64) *item {
	e.cur = append(e.cur, item{})
	it := &e.cur[len(e.cur)-1]
	it.s = s
	it.n = n
	it.idx = int32(s.idx)
	return it
}

// giveBack takes s out of the step again and returns its tokens there.
func (e *Engine) giveBack(s *seq) int64 {
	for i := range e.cur {
		if e.cur[i].s != s {
			continue
		}
		n := e.cur[i].n
		if e.cur[i].drafts > 0 {
			e.batch.AddVerify(s.computed, n, s.held.N, -1)
		} else {
			e.batch.Add(s.computed, s.prompt, n, s.held.N, -1)
		}
		e.cur = append(e.cur[:i], e.cur[i+1:]...)
		return n
	}
	return 0
}

// scheduled are the items of a step, asked for in the order of the running list.
type scheduled []item

// of is how many tokens of s, which runs, the step computes.
func (q *scheduled) of(s *seq) int64 {
	for len(*q) > 0 && (*q)[0].s.status != statusRunning {
		*q = (*q)[1:]
	}
	if len(*q) == 0 || (*q)[0].s != s {
		return 0
	}
	n := (*q)[0].n
	*q = (*q)[1:]
	return n
}

// scheduleWaiting admits requests while seats, budget and blocks last.
func (e *Engine) scheduleWaiting(budget int64) {
	for e.waits() > 0 && budget > 0 && e.room(budget) > 0 && int64(len(e.running)) < e.maxSeqs {
		queue := e.next()
		s := queue.peek()
		if s.status == statusParked && !e.arrived(s) || s.drains {
			e.skip(queue.pop())
			continue
		}
		a, verdict := e.admit(s, e.room(budget))
		if verdict == admitStop {
			break
		}
		queue.pop()
		if verdict == admitLater {
			e.skip(s)
			continue
		}
		e.start(s, a)
		budget -= a.n
		e.spend(a.n, 1)
	}
	e.putBack()
	if !e.cadence.hold {
		e.cadence.bound = e.waits() > e.deferred
	}
}

type verdict uint8

const (
	admitNow verdict = iota
	admitStop
	admitLater
)

// admission is what a waiting request is about to get.
type admission struct {
	computed int64 // tokens found cached
	external int64 // tokens behind them that come from the CPU tier or another server
	n        int64 // tokens of this step
	drafts   int32 // of n, padding
	sync     bool  // external ones come within this step
}

// admit looks up cached blocks and allocates the first chunk of s.
func (e *Engine) admit(s *seq, budget int64) (a admission, v verdict) {
	if e.memo && s.blockedAt == e.pool.Gains+1 && budget >= s.blockedBudget {
		e.shortUs = e.now
		return a, admitStop // blocks have only become fewer since it failed, and it asks for no less
	}
	if (e.pool.Caching || e.cpu != nil) && s.content == nil {
		e.describe(s)
	}
	hits, busy := e.lookUp(s, &a)
	if busy {
		return a, admitLater
	}
	remote := s.remote.pending && a.computed < s.prompt
	switch {
	case remote:
		a.external = s.prompt - a.computed
	case a.external > 0 && !a.sync:
	case e.cadence.hold && a.computed+a.external < s.tokens()-1:
		return a, admitStop
	default:
		if v := e.firstChunk(s, &a, budget); v != admitNow {
			return a, v
		}
	}
	parks := remote || a.external > 0 && !a.sync
	need, fits := e.fits(s, &a, hits, parks)
	if !fits {
		s.blockedAt = e.pool.Gains + 1
		s.blockedBudget = budget
		e.shortUs = e.now
		return a, admitStop
	}
	e.pool.Share(&s.held, hits)
	e.pool.Grow(&s.held, max(need, s.held.N))
	s.remote.pending = false
	if a.external > 0 && !remote {
		e.cpu.startLoad(s, a.computed, a.external, a.sync)
	}
	if parks {
		e.park(s, a.computed+a.external, a.external, remote)
		return a, admitLater
	}
	s.computed = a.computed + a.external
	if e.pool.Caching {
		e.registerBlocks(s, min(s.computed+a.n, s.tokens()))
	}
	return a, admitNow
}

// lookUp finds what of s is cached here; busy: the CPU tier loads some of it for another request.
func (e *Engine) lookUp(s *seq, a *admission) (hits []int32, busy bool) {
	hits, a.computed = e.hits[:0], s.computed
	if s.cached < 0 && s.req.CachedTokens.OK {
		a.computed = min(s.req.CachedTokens.V, s.tokens()-1)
		return hits, false
	}
	if s.computed != 0 || s.held.N != 0 { // a finished load has its blocks
		return hits, false
	}
	hits = e.findHits(s)
	a.computed = int64(len(hits)) * e.blockSize
	if e.cpu != nil {
		a.external, a.sync, busy = e.cpu.match(s, a.computed)
	}
	return hits, busy
}

// firstChunk sizes the tokens that s gets when it is admitted.
func (e *Engine) firstChunk(s *seq, a *admission, budget int64) verdict {
	n := s.tokens() - a.computed - a.external
	if n == 1 {
		padded, pad, wait := e.padded(a.computed+a.external, budget)
		if wait {
			return admitStop
		}
		if n = padded; pad {
			a.drafts = int32(n - 1)
		}
	}
	if e.threshold > 0 && n > e.threshold {
		n = e.threshold
	}
	if !e.chunked && n > budget {
		return admitStop
	}
	a.n = min(n, budget)
	return admitNow
}

// fits says how many blocks s needs for its first step and whether they are free. From
// 0.19 on all its known tokens must fit, hits on free blocks counted as need: a test,
// not a reservation. External blocks of the CPU tier are whole.
func (e *Engine) fits(s *seq, a *admission, hits []int32, remote bool) (need int64, ok bool) {
	held := max(int64(len(hits)), s.held.N)
	free := e.pool.Free
	for _, b := range hits {
		if !e.pool.InUse(b) {
			free--
		}
	}
	if len(e.running) > 0 {
		free -= e.watermark
	}
	if e.rules.FullPromptAdmission && ceilDiv(min(s.tokens(), e.maxLen), e.blockSize)+s.side-held > free {
		return 0, false
	}
	if remote && e.rules.LoadsReserve {
		free -= e.reserved()
	}
	end := min(a.computed+a.external, e.maxLen) + a.n + e.lookaheadFor(s, remote)
	need = ceilDiv(min(end, e.maxLen), e.blockSize) + s.side
	return need, max(0, need-held) <= free
}

// start moves an admitted request to the running list: SCHEDULED.
func (e *Engine) start(s *seq, a admission) {
	e.running = append(e.running, s)
	e.out.PeakRunning = max(e.out.PeakRunning, int64(len(e.running)))
	e.view.Admitted++
	s.status = statusRunning
	if s.cached < 0 {
		e.cachedAtFirst(s, s.computed)
	}
	if !s.res.ScheduledUs.OK {
		s.res.ScheduledUs = trace.Some(e.now)
		s.res.ScheduledStep = e.step
		s.res.Starved = e.shortUs >= s.res.QueuedUs.V
	}
	e.journey(Scheduled, s, e.step)
	s.prefills = s.prefills || s.computed+a.n < s.tokens() // what came from elsewhere counts until the step is formed
	e.cadence.admits = e.cadence.admits || s.computed < s.tokens()-1
	e.undefer(s)
	e.take(s, a.n, a.drafts)
	e.cur[len(e.cur)-1].fresh = true
}

// cachedAtFirst notes how many tokens of s its first admission found here.
func (e *Engine) cachedAtFirst(s *seq, tokens int64) {
	s.cached, s.res.CachedTokens = tokens, tokens
	e.out.HitTokens += min(tokens, s.prompt)
	e.out.LookedUpTokens += s.prompt
}

// findHits returns the cached blocks of the longest known prefix of s; one
// token at least is left to compute.
func (e *Engine) findHits(s *seq) []int32 {
	e.hits = e.hits[:0]
	if !e.pool.Caching {
		return e.hits
	}
	for b := range (s.tokens() - 1) / e.blockSize {
		hash, own := s.content.Block(b, e.blockSize)
		if own && s.preempted == 0 {
			break // it has computed nothing yet
		}
		block, ok := e.pool.Lookup(hash)
		if !ok {
			break
		}
		e.hits = append(e.hits, block)
	}
	if n := len(e.hits); n > 0 && e.spec != nil && e.spec.dropBlock {
		e.hits = e.hits[:n-1] // the drafter computes it again for its own KV
	}
	return e.hits
}

// registerBlocks makes the full blocks of the first tokens of s findable.
func (e *Engine) registerBlocks(s *seq, tokens int64) {
	tokens = min(tokens, s.tokens()-s.content.Ahead)
	if tokens < (s.held.Registered+1)*e.blockSize {
		return
	}
	full := tokens / e.blockSize
	from, last := s.held.Registered, full
	if e.kvLog == nil {
		last = min(full, s.shared)
	}
	for b := from; b < last; b++ {
		hash, own := s.content.Block(b, e.blockSize)
		e.pool.Register(&s.held, hash, own)
	}
	if e.kvLog == nil {
		e.pool.RegisterOwn(&s.held, full)
		return
	}
	e.kvLog.stored(e, s, from, full)
}

// advanceScheduled moves the requests of the step forward, before its result.
func (e *Engine) advanceScheduled() {
	proposals := e.proposals(len(e.cur))
	flies := e.depth > 1
	async := e.cfg.Async
	for i := range e.cur {
		it := &e.cur[i]
		s := it.s
		s.computed += it.n
		if flies {
			s.flying += it.n
		}
		if s.outputs == 0 {
			s.hiwater = max(s.hiwater, min(s.computed, s.prompt))
		}
		s.chunk = !it.yields
		if !it.yields {
			continue
		}
		s.prefills, e.thrashes = false, 0
		if async {
			s.inFlight += 1 + int64(it.drafts)
			s.drafts = proposals
			if e.pp > 1 && e.rules.ModelRunnerV2 {
				s.decodeAt = e.step + e.pp
			}
		}
	}
}

func (e *Engine) count() {
	b := &e.batch
	e.out.ScheduledTokens += b.Tokens()
	e.out.PrefillTokens += b.PrefillTokens
	e.out.DecodeTokens += b.DecodeTokens
	e.out.PeakBlocks = max(e.out.PeakBlocks, e.pool.Total-e.pool.Free)
}
