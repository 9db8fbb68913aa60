package sim

import (
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
