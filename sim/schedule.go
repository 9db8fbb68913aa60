package sim

import (
	"github.com/blis-train/blis-train/trace"
)

// This file mirrors vllm/v1/core/sched/scheduler.py: Scheduler.schedule() of the releases 0.15.1 to
// 0.33.0. Where releases differ, a field of vllm.Rules decides, whose entry names the release in which
// the behaviour began. TestOracle compares every step with vLLM's own scheduler. The functions and what
// they mirror:
//
//	schedule           schedule() as a whole
//	scheduleRunning    "First, schedule the RUNNING requests."
//	makeRoom, preempt  _preempt_request(), in preempt.go
//	scheduleWaiting    "Next, schedule the WAITING requests."
//	admit              get_computed_blocks() and the connector's get_num_new_matched_tokens()
//	fits               kv_cache_manager.py: allocate_slots()
//	advanceScheduled   _update_after_schedule() of scheduler.py and async_scheduler.py

// schedule forms the next step in e.cur and e.batch, predicts when its execution ends, advances the
// requests in it, and appends it to the steps in flight (scheduler.py: schedule()).
func (e *Engine) schedule() error {
	e.step++
	b := &e.batch
	b.begin(e.step, e.now, e.reaches, &e.reached)
	steady := e.isSteady()
	if steady {
		e.cur = nil
		e.scheduleSteady()
		if n := int64(len(e.running)); n < e.maxSeqs && e.numWaiting() > 0 {
			steady = e.admitInSteady(e.budget - n)
		}
	} else {
		e.itemizeAll()
		e.decoding = 0
		e.beginBatch()
		left, mayAdmit := e.scheduleRunning(e.budget)
		if mayAdmit {
			e.scheduleWaiting(left)
		}
		e.cadence.end(b.Tokens())
	}
	b.Running = int64(len(e.running))
	b.Waiting = int64(e.numWaiting())
	e.noteStall()
	// spec#preemption-average: the share of running requests that this step preempted.
	gamma := e.cfg.GammaEMA
	e.ema = gamma*float64(b.Preempted)/float64(max(1, b.Running)) + (1-gamma)*e.ema
	b.PreemptionEMA = e.ema
	if e.connector != nil {
		e.connector.planStores(e.cur)
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
	e.countStep()
	e.flight = append(e.flight, flight{})
	f := &e.flight[len(e.flight)-1] // set field by field, which is faster than copying a literal
	f.items = e.cur
	f.step = e.step
	f.start = b.StartUs
	f.end = end
	f.tokens = b.Tokens()
	f.steady = steady
	e.executed = f.tokens > 0
	if e.executed {
		e.stall.passes = 0
		e.frees.step = e.step
	}
	if e.grad != nil {
		f.grad = e.grad.endOfStep()
	}
	return nil
}

// beginBatch prepares an empty step and sets the limits that hold for it alone.
func (e *Engine) beginBatch() {
	e.cur = nil
	if n := len(e.reuse.items); n > 0 {
		e.cur = e.reuse.items[n-1]
		e.reuse.items = e.reuse.items[:n-1]
	}
	e.view.Admitted = 0
	e.threshold = e.prefillThreshold()
	e.cadence.begin(e.running, e.rank.iteration())
	e.spec.begin(e.cfg.Deployment.Engine.MaxNumBatchedTokens)
}

// mostThrashes is how many times in a row a request that runs alone may preempt itself, without a
// token for any request, before the engine gives up on it.
const mostThrashes = 100

// noteStall records whether the step just formed proves that a request can never be scheduled.
// pauseIfStuck acts on it.
func (e *Engine) noteStall() {
	b := &e.batch
	isEmpty := b.Tokens() == 0 && b.Running == 0
	// Blocks of steps in flight will be freed later, so an empty schedule is not a deadlock. With a
	// CPU tier the engine must not wait for them: the only running request could preempt itself for
	// ever.
	willFree := len(e.frees.waiting) > 0 && e.isExecuting() && !e.cfg.Deployment.Engine.CPUOffloading
	e.stall.isStuck = isEmpty && !e.transfers.areUnderWay() && !willFree
	e.stall.isHopeless = isEmpty && b.Preempted == 1
	if e.stall.isHopeless && e.pool.Free < e.pool.Total {
		// Requests whose loads have arrived hold the other blocks. Before 0.31 they may never run.
		e.stall.thrashes++
		e.stall.isHopeless = e.stall.thrashes > mostThrashes
	}
}

// scheduleRunning gives tokens to running requests, in order (schedule(): "First, schedule the
// RUNNING requests."). It returns the budget that is left, and whether waiting requests may be
// admitted, which vLLM does only in a step without a preemption.
func (e *Engine) scheduleRunning(budget int64) (int64, bool) {
	var decodes, context, longest, blocks int64 // sums over plain decodes, added to the batch at the end
	// Read once: the loop visits hundreds of requests in every step.
	ahead := e.spec.ahead()
	size := e.blockSize
	caching := e.pool.Caching
	for i := 0; i < len(e.running) && budget > 0; { // makeRoom removes requests and moves i
		s := e.running[i]
		n := int64(1)
		isDecode := e.isPlainDecode(s)
		if !isDecode {
			n = e.tokensFor(s, budget)
			if n <= 0 {
				i++
				continue
			}
		}
		end := min(s.computed+n+ahead, e.maxLen)
		if end > (s.held.N-s.side)*size { // its blocks are full; tested first, because the division in ceilDiv is slow
			need := ceilDiv(end, e.blockSize) + s.side
			if need-s.held.N > e.pool.Free {
				var isScheduled bool
				i, budget, isScheduled = e.makeRoom(s, i, need, budget)
				if !isScheduled {
					if e.rules.SelfPreemptedGoesOn && e.byPriority && s.status == statusPreempted {
						// Since 0.33 vLLM continues with the next running request after s, which
						// had the lowest priority, has preempted itself and freed its blocks.
						continue
					}
					break
				}
			}
			e.pool.Grow(&s.held, need)
		}
		if caching && s.computed+n >= (s.held.Registered+1)*size {
			e.registerBlocks(s, min(s.computed+n, s.tokens()))
		}
		if isDecode {
			decodes++
			context += s.computed
			longest = max(longest, s.computed)
			blocks += s.held.N
			e.batch.reach(true, s.computed, 1, 1)
			e.appendItem(s, 1).yields = true
		} else {
			e.cadence.continues = e.cadence.continues || s.chunk
			e.addToStep(s, n, s.takeDrafts(n))
			e.spec.spend(n, 1)
		}
		budget -= n
		i++
	}
	e.batch.AddDecodes(decodes, context, blocks)
	e.batch.LongestDecode = max(e.batch.LongestDecode, longest)
	return budget, e.batch.Preempted == 0
}

// isPlainDecode reports whether s gets exactly one token in this step and no rule of tokensFor
// applies: exactly one token is left to compute, it is an output token, and neither max_model_len
// nor, with a token in flight, max_tokens is reached. In a busy engine this holds for nearly all
// requests, so the test keeps the loop fast.
func (e *Engine) isPlainDecode(s *seq) bool {
	c := s.computed
	return e.plain && s.prompt+s.outputs+s.inFlight == c+1 && c >= s.prompt && !s.chunk && c+1 < e.maxLen &&
		(s.inFlight == 0 || c+2-s.inFlight < s.prompt+s.maxTokens)
}

// tokensFor returns how many tokens a running request gets within the budget (num_new_tokens of
// schedule()).
func (e *Engine) tokensFor(s *seq, budget int64) int64 {
	if s.inFlight > 0 {
		// The same test as vLLM's: computed tokens include those in flight, and the last output
		// token is never computed.
		if s.computed+2-s.inFlight >= s.prompt+s.maxTokens {
			return 0 // it reaches max_tokens with the step in flight
		}
		if e.pp > 1 && !e.rules.AsyncWithPP {
			return 0 // before 0.19, with pipeline stages, a decode waits for its token in flight
		}
	}
	if e.step < s.decodeAt { // next_decode_eligible_step
		return 0
	}
	if e.cadence.hold && s.chunk { // prefill_schedule_interval delays the rest of its prompt
		return 0
	}
	n := s.tokens() + s.drafts + s.inFlight - s.computed
	if e.threshold > 0 && n > e.threshold {
		n = e.threshold
	}
	return min(n, e.spec.room(budget), e.maxLen-1-s.computed)
}

// addToStep adds s to the step with n tokens, of which a number (drafts) verify draft tokens.
func (e *Engine) addToStep(s *seq, n int64, drafts int32) {
	it := e.appendItem(s, n)
	it.drafts = drafts
	it.yields = s.computed+n >= s.tokens()+s.inFlight
	const adds = 1 // not -1, which would remove it
	if drafts > 0 {
		e.batch.AddVerify(s.computed, n, s.held.N, adds)
		return
	}
	e.batch.Add(s.computed, s.prompt, n, s.held.N, adds)
}

// appendItem appends an item to the step. Its fields are set one by one, which is faster than
// copying a literal.
func (e *Engine) appendItem(s *seq, n int64) *item {
	e.cur = append(e.cur, item{})
	it := &e.cur[len(e.cur)-1]
	it.s = s
	it.n = n
	it.idx = int32(s.idx)
	return it
}

// scheduled is the items of a step that are still to be walked. The items are in the order of the
// running list, so tokensOf must be called in that order.
type scheduled []item

// tokensOf returns how many tokens of the running request s the step computes, and drops the items
// up to it.
func (q *scheduled) tokensOf(s *seq) int64 {
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

// scheduleWaiting admits waiting requests while max_num_seqs, the token budget and KV blocks allow
// (schedule(): "Next, schedule the WAITING requests.").
func (e *Engine) scheduleWaiting(budget int64) {
	for e.numWaiting() > 0 && budget > 0 && e.spec.room(budget) > 0 && int64(len(e.running)) < e.maxSeqs {
		queue := e.nextQueue()
		s := queue.peek()
		if s.status == statusParked && !e.transfers.unpark(s) { // its KV has not arrived
			e.skip(queue.pop())
			continue
		}
		if s.drains { // since 0.27 it waits for its steps from before the preemption to end
			e.skip(queue.pop())
			continue
		}
		a, verdict := e.admit(s, e.spec.room(budget))
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
		e.spec.spend(a.n, 1)
	}
	e.putBackSkipped()
	if !e.cadence.hold {
		// Requests that were not passed over had no room. vLLM then delays no prefill in the next step.
		e.cadence.bound = e.numWaiting() > e.deferred
	}
}

// verdict is the result of trying to admit a waiting request.
type verdict uint8

const (
	admitNow   verdict = iota // the request runs
	admitStop                 // neither it nor any request behind it is admitted in this step
	admitLater                // it is passed over, and the next request is tried
)

// admission is what a waiting request gets when it is admitted.
type admission struct {
	computed int64 // tokens found in the prefix cache
	external int64 // further tokens whose KV is loaded from the connector's tier or another server
	n        int64 // tokens that this step computes
	drafts   int32 // of n, those that are padding in place of drafts
	sync     bool  // the external tokens are loaded inside this step
}

// admit tries to admit s: it looks up how much of s is in the prefix cache (kv_cache_manager.py:
// get_computed_blocks()) or can be loaded (KVConnectorBase_V1.get_num_new_matched_tokens()), sizes
// its first chunk, and allocates the blocks (allocate_slots()).
func (e *Engine) admit(s *seq, budget int64) (a admission, v verdict) {
	if e.memo && s.blockedAt == e.pool.Gains+1 && budget >= s.blockedBudget {
		e.shortUs = e.now
		return a, admitStop // no block came free since s failed with no larger budget
	}
	if (e.pool.Caching || e.connector != nil) && s.content == nil {
		e.describe(s)
	}
	hits, busy := e.lookUp(s, &a)
	if busy {
		return a, admitLater
	}
	isRemote := s.remote.pending && a.computed < s.prompt
	if isRemote {
		a.external = s.prompt - a.computed
	}
	parks := isRemote || a.external > 0 && !a.sync // vLLM's load_kv_async: s waits until the KV has arrived
	if !parks {
		if e.cadence.hold && a.computed+a.external < s.tokens()-1 { // it would begin a prefill
			return a, admitStop
		}
		if v := e.sizeFirstChunk(s, &a, budget); v != admitNow {
			return a, v
		}
	}
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
	if a.external > 0 && !isRemote {
		e.connector.startLoad(s, a.computed, a.external, a.sync)
	}
	if parks {
		e.transfers.park(s, a.computed+a.external, a.external, isRemote)
		return a, admitLater
	}
	s.computed = a.computed + a.external
	if e.pool.Caching {
		e.registerBlocks(s, min(s.computed+a.n, s.tokens()))
	}
	return a, admitNow
}

// lookUp sets a.computed and a.external: how many tokens of s the prefix cache and the connector's
// tier have. hits are the cached blocks. busy is set if the connector answers later, so that s
// cannot be admitted in this step.
func (e *Engine) lookUp(s *seq, a *admission) (hits []int32, busy bool) {
	hits = e.reuse.hits[:0]
	a.computed = s.computed
	if s.cached < 0 && s.req.CachedTokens.OK { // a recording states the cached tokens
		a.computed = min(s.req.CachedTokens.V, s.tokens()-1)
		if s.computed != 0 || s.held.N != 0 {
			return hits, false
		}
		stated := a.computed
		if e.connector != nil {
			e.connector.give(s, s.req.CachedTokens.V)
			if s.req.LoadedTokens > 0 {
				a.computed = min(stated, s.req.CachedTokens.V-s.req.LoadedTokens)
				if a.external, a.sync, busy = e.connector.match(s, a.computed); busy {
					return hits, true
				}
				if a.external == 0 { // the tier is too small for them
					a.computed = stated
				}
			}
		}
		hits = e.findHits(s)
		return hits[:min(int64(len(hits)), a.computed/e.blockSize)], false
	}
	if s.computed != 0 || s.held.N != 0 { // its KV was loaded, so it has its blocks
		return hits, false
	}
	hits = e.findHits(s)
	a.computed = int64(len(hits)) * e.blockSize
	if e.connector != nil {
		a.external, a.sync, busy = e.connector.match(s, a.computed)
	}
	return hits, busy
}

// sizeFirstChunk sets a.n, the tokens that s computes in the step that admits it, limited by
// long_prefill_token_threshold and the budget.
func (e *Engine) sizeFirstChunk(s *seq, a *admission, budget int64) verdict {
	n := s.tokens() - a.computed - a.external
	if n == 1 && e.spec != nil && e.spec.padsDecodes && !e.cadence.continues {
		others := len(e.cur) > int(e.view.Admitted) // the step has running requests, not only admitted ones
		padded, wait := e.spec.padDecode(a.computed+a.external, budget, e.maxLen, others)
		if wait {
			return admitStop
		}
		n = padded
		a.drafts = int32(n - 1)
	}
	if e.threshold > 0 && n > e.threshold {
		n = e.threshold
	}
	if !e.chunked && n > budget { // without chunked prefill a prompt is computed whole
		return admitStop
	}
	a.n = min(n, budget)
	return admitNow
}

// fits returns how many blocks s needs for its first step or, with isLoad, for the KV that will be
// loaded, and whether so many are free (kv_cache_manager.py: allocate_slots()). hits are the cached
// blocks that it gets: those that no request uses are in the free queue, so each of them also takes
// one free block. Since 0.19 there must be free blocks for all known tokens of s, although only those
// of the first step are allocated (scheduler_reserve_full_isl).
func (e *Engine) fits(s *seq, a *admission, hits []int32, isLoad bool) (need int64, ok bool) {
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
	if isLoad && e.rules.LoadsReserve {
		free -= e.transfers.reservedBlocks()
	}
	end := min(a.computed+a.external, e.maxLen) + a.n + e.spec.firstLookaheadOf(s, isLoad)
	need = ceilDiv(min(end, e.maxLen), e.blockSize) + s.side
	return need, max(0, need-held) <= free
}

// start moves an admitted request to the running list and adds it to the step: SCHEDULED.
func (e *Engine) start(s *seq, a admission) {
	if e.inSteady {
		e.endSteady()
	}
	e.running = append(e.running, s)
	e.out.PeakRunning = max(e.out.PeakRunning, int64(len(e.running)))
	e.view.Admitted++
	s.status = statusRunning
	if s.cached < 0 {
		e.cachedAtFirst(s, s.computed)
	}
	if !s.res.ScheduledUs.OK { // not after a preemption
		s.res.ScheduledUs = trace.Some(e.now)
		s.res.ScheduledStep = e.step
		s.res.Starved = e.shortUs >= s.res.QueuedUs.V // blocks ran short while it waited
	}
	e.journey(Scheduled, s, e.step)
	s.prefills = s.prefills || s.computed+a.n < s.tokens() // park has set it for a request whose KV was loaded
	e.cadence.admits = e.cadence.admits || s.computed < s.tokens()-1
	e.undefer(s)
	e.addToStep(s, a.n, a.drafts)
	e.cur[len(e.cur)-1].fresh = true
}

// advanceScheduled counts the tokens of the step just formed as computed before its result is known
// (scheduler.py and async_scheduler.py: _update_after_schedule()). With asynchronous scheduling it
// also counts the output token, and the drafts, that each finished prompt or decode will produce.
// After a steady step it does nothing, because scheduleSteady forms no items and counts the tokens.
func (e *Engine) advanceScheduled() {
	proposals := e.spec.proposals(len(e.cur))
	hasFlights := e.depth > 1
	async := e.cfg.Async
	for i := range e.cur {
		it := &e.cur[i]
		s := it.s
		s.computed += it.n
		if hasFlights {
			s.flying += it.n
		}
		if s.outputs == 0 {
			s.hiwater = max(s.hiwater, min(s.computed, s.prompt))
		}
		s.chunk = !it.yields
		if !it.yields {
			continue
		}
		s.prefills = false
		e.stall.thrashes = 0
		if async {
			s.inFlight += 1 + int64(it.drafts)
			s.drafts = proposals
			if e.pp > 1 && e.rules.ModelRunnerV2 {
				s.decodeAt = e.step + e.pp
			}
		}
	}
}

// countStep adds the step to the totals of the run.
func (e *Engine) countStep() {
	b := &e.batch
	e.out.ScheduledTokens += b.Tokens()
	e.out.PrefillTokens += b.PrefillTokens
	e.out.DecodeTokens += b.DecodeTokens
	e.out.PeakBlocks = max(e.out.PeakBlocks, e.pool.Total-e.pool.Free)
}
