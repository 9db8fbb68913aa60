package sim

import "github.com/blis-train/blis-train/trace"

// schedule is one schedule() call: it forms e.cur, advances what was
// scheduled and predicts when the step's execution ends.
func (e *Engine) schedule() (flight, error) {
	e.step++
	b := &e.batch
	steady := e.isSteady()
	if steady {
		e.cur, e.batch = nil, Batch{StepID: e.step, StartUs: e.now}
		e.scheduleSteady()
	} else {
		e.begin()
		if left, ok := e.scheduleRunning(e.budget); ok {
			e.scheduleWaiting(left)
		}
	}
	b.Running, b.Waiting = int64(len(e.running)), int64(e.waiting.len())
	e.stuck = b.Tokens() == 0 && b.Running == 0
	gamma := e.cfg.GammaEMA
	e.ema = gamma*float64(b.Preempted)/float64(max(1, b.Running)) + float64((1-gamma)*e.ema)
	b.PreemptionEMA = e.ema
	if e.cpu != nil {
		e.cpu.planStores(e.cur)
	}
	if e.check != nil {
		e.check("schedule")
	}
	end, err := e.execute()
	if err != nil {
		return flight{}, err
	}
	e.showStep(end)
	e.finished = 0
	e.advanceScheduled()
	e.count()
	f := flight{items: e.cur, step: e.step, start: e.batch.StartUs, end: end, tokens: b.Tokens(), steady: steady}
	if e.grad != nil {
		f.grad = e.grad.fly()
	}
	return f, nil
}

func (e *Engine) begin() {
	e.cur = nil
	if n := len(e.spare); n > 0 {
		e.cur, e.spare = e.spare[n-1], e.spare[:n-1]
	}
	e.batch = Batch{StepID: e.step, StartUs: e.now}
	e.view.Admitted = 0
}

// execute says when the step's result is there. A step without tokens runs no
// model. Synchronous step times are cadences, schedule() included; an
// asynchronous step begins when it is scheduled and the one before is done.
func (e *Engine) execute() (int64, error) {
	us := e.cfg.EmptyStepUs
	if e.batch.Tokens() > 0 {
		var err error
		if us, err = e.stepUs(); err != nil {
			return 0, err
		}
		e.out.BusyUs += us
	} else {
		e.out.EmptySteps++
	}
	start, fromGPU := e.now, false
	if e.cfg.Async && e.batch.Tokens() > 0 {
		start += e.cfg.ScheduleUs
		if fromGPU = e.gpuFree > start; fromGPU {
			start = e.gpuFree
		}
	}
	end := start + us
	if e.timeline != nil {
		if at, ok := e.timeline.EndUs(e.step, e.now); ok {
			end = max(at, e.now)
		}
	}
	if e.grad != nil {
		e.moveClocks(fromGPU, start, us)
	}
	if e.batch.Tokens() > 0 {
		e.gpuFree = end
	}
	return end, nil
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
	for i := 0; i < len(e.running) && budget > 0; {
		s := e.running[i]
		n := e.wants(s, budget)
		if n <= 0 {
			i++
			continue
		}
		if end := min(s.computed+n, e.maxLen); end > s.held.N*e.blockSize { // a division costs more than the rest of a decode
			need, kept := ceilDiv(end, e.blockSize), true
			if need-s.held.N > e.pool.Free {
				if i, budget, kept = e.makeRoom(s, i, need, budget); !kept {
					return budget, false
				}
			}
			e.pool.Grow(&s.held, need)
		}
		if e.pool.Caching {
			e.registerBlocks(s, min(s.computed+n, s.tokens()))
		}
		e.take(s, n)
		budget -= n
		i++
	}
	return budget, e.batch.Preempted == 0
}

// wants is the number of tokens a running request asks for within the budget.
func (e *Engine) wants(s *seq, budget int64) int64 {
	if s.inFlight > 0 && s.computed+2-s.inFlight >= s.prompt+s.maxTokens {
		return 0 // the step in flight reaches its cap for certain
	}
	n := s.tokens() + s.inFlight - s.computed
	if e.longPrefill > 0 && n > e.longPrefill {
		n = e.longPrefill
	}
	return min(n, budget, e.maxLen-1-s.computed)
}

// makeRoom preempts until s can have its blocks. It returns the new position
// in the running list, the budget, and false when s itself was preempted.
func (e *Engine) makeRoom(s *seq, i int, need, budget int64) (int, int64, bool) {
	for need-s.held.N > e.pool.Free {
		victim := e.victim()
		if victim.stepMark == e.step && victim.newTokens > 0 { // only under priority: it had its tokens already
			budget += victim.newTokens
			e.giveBack(victim)
			i--
		}
		e.preempt(victim)
		if victim == s {
			return i, budget, false
		}
	}
	return i, budget, true
}

// victim removes and returns the running request to preempt: under priority the
// one that would be served last. (vLLM takes the first of equal priority and
// arrival, which never happens there and would let two of them preempt each
// other for ever.)
func (e *Engine) victim() *seq {
	last := len(e.running) - 1
	if !e.byPriority {
		s := e.running[last]
		e.running[last] = nil
		e.running = e.running[:last]
		return s
	}
	worst := e.running[0]
	for _, s := range e.running[1:] {
		if worst.Before(s) {
			worst = s
		}
	}
	e.running = remove(e.running, worst)
	return worst
}

func (e *Engine) preempt(s *seq) {
	if e.cpu != nil {
		e.cpu.preempted(s)
	}
	if e.pool.Caching {
		e.pool.ListAll(&s.held, &s.content, e.blockSize)
	}
	e.pool.Drop(&s.held)
	s.status, s.computed = statusPreempted, 0
	s.preempted++
	s.res.Preemptions++
	s.res.Starved = true
	e.batch.Preempted++
	e.out.Preemptions++
	e.journey(Preempted, s, e.step)
	e.waiting.prepend(s)
	e.out.PeakWaiting = max(e.out.PeakWaiting, int64(e.waiting.len()))
}

// take puts n tokens of s into the step.
func (e *Engine) take(s *seq, n int64) {
	s.newTokens, s.stepMark = n, e.step
	e.cur = append(e.cur, item{s: s, n: n, idx: int32(s.idx), yields: s.computed+n == s.tokens()+s.inFlight})
	e.batch.Add(s.computed, s.prompt, n, s.held.N, 1)
}

// giveBack takes s out of the step again.
func (e *Engine) giveBack(s *seq) {
	e.batch.Add(s.computed, s.prompt, s.newTokens, s.held.N, -1)
	s.newTokens = 0
	for i := range e.cur {
		if e.cur[i].s == s {
			e.cur = append(e.cur[:i], e.cur[i+1:]...)
			return
		}
	}
}

// scheduleWaiting admits requests while seats, budget and blocks last.
func (e *Engine) scheduleWaiting(budget int64) {
	for e.waiting.len() > 0 && budget > 0 && int64(len(e.running)) < e.maxSeqs {
		s := e.waiting.peek()
		if s.status == statusLoading && !e.cpu.loaded(s) {
			e.skipped = append(e.skipped, e.waiting.pop())
			continue
		}
		n, verdict := e.admit(s, budget)
		if verdict == admitStop {
			break
		}
		e.waiting.pop()
		if verdict == admitLater {
			e.skipped = append(e.skipped, s)
			continue
		}
		e.start(s, n)
		budget -= n
	}
	for i := range e.skipped { // back to the head, the first skipped first
		e.waiting.prepend(e.skipped[len(e.skipped)-1-i])
	}
	clear(e.skipped)
	e.skipped = e.skipped[:0]
}

type verdict uint8

const (
	admitNow verdict = iota
	admitStop
	admitLater
)

// admit looks up cached blocks and allocates the first chunk of s. n is its
// number of tokens.
func (e *Engine) admit(s *seq, budget int64) (n int64, v verdict) {
	if e.memo && s.blockedAt == e.pool.Gains+1 && budget >= s.blockedBudget {
		e.shortUs = e.now
		return 0, admitStop // blocks have only become fewer since it failed, and it asks for no less
	}
	hits := e.hits[:0]
	computed := s.computed
	external := int64(0)
	if s.cached < 0 && s.req.CachedTokens.OK {
		computed = min(s.req.CachedTokens.V, s.tokens()-1)
	} else if computed == 0 && s.held.N == 0 { // a finished load has its blocks
		hits = e.findHits(s)
		computed = int64(len(hits)) * e.blockSize
		if e.cpu != nil {
			blocks, busy := e.cpu.match(s, int64(len(hits)))
			if busy {
				return 0, admitLater
			}
			external = blocks * e.blockSize
		}
	}
	if external == 0 {
		n = s.tokens() - computed
		if e.longPrefill > 0 && n > e.longPrefill {
			n = e.longPrefill
		}
		if !e.chunked && n > budget {
			return 0, admitStop
		}
		n = min(n, budget)
	}
	need := ceilDiv(min(computed+external+n, e.maxLen), e.blockSize) // external blocks are whole
	missing := need - max(int64(len(hits)), s.held.N)
	for _, b := range hits {
		if !e.pool.InUse(b) {
			missing++
		}
	}
	if missing > e.pool.Free {
		s.blockedAt, s.blockedBudget, e.shortUs = e.pool.Gains+1, budget, e.now
		return 0, admitStop
	}
	e.pool.Share(&s.held, hits)
	e.pool.Grow(&s.held, max(need, s.held.N))
	if external > 0 {
		e.cpu.startLoad(s, int64(len(hits)), external/e.blockSize)
		return 0, admitLater
	}
	s.computed = computed
	if e.pool.Caching {
		e.registerBlocks(s, min(computed+n, s.tokens()))
	}
	return n, admitNow
}

// start moves an admitted request to the running list: SCHEDULED.
func (e *Engine) start(s *seq, n int64) {
	e.running = append(e.running, s)
	e.out.PeakRunning = max(e.out.PeakRunning, int64(len(e.running)))
	e.view.Admitted++
	s.status = statusRunning
	if s.cached < 0 {
		s.cached = s.computed
		s.res.CachedTokens = s.computed
		e.out.HitTokens += min(s.computed, s.prompt)
		e.out.LookedUpTokens += s.prompt
	}
	if !s.res.ScheduledUs.OK {
		s.res.ScheduledUs, s.res.ScheduledStep = trace.Some(e.now), e.step
		s.res.Starved = e.shortUs >= s.res.QueuedUs.V
	}
	e.journey(Scheduled, s, e.step)
	e.take(s, n)
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
	return e.hits
}

// registerBlocks makes the full blocks of the first tokens of s findable.
func (e *Engine) registerBlocks(s *seq, tokens int64) {
	if tokens < (s.held.Registered+1)*e.blockSize {
		return
	}
	full := tokens / e.blockSize
	from := s.held.Registered
	if e.kvLog == nil {
		for b := from; b < min(full, s.shared); b++ {
			hash, own := s.content.Block(b, e.blockSize)
			e.pool.Register(&s.held, hash, own)
		}
		e.pool.RegisterOwn(&s.held, full)
		return
	}
	for b := from; b < full; b++ {
		hash, own := s.content.Block(b, e.blockSize)
		e.pool.Register(&s.held, hash, own)
	}
	e.kvLog.stored(e, s, from, full)
}

// advanceScheduled moves the requests of the step forward, before its result.
func (e *Engine) advanceScheduled() {
	for i := range e.cur {
		it := &e.cur[i]
		s := it.s
		s.computed += it.n
		if s.outputs == 0 {
			s.hiwater = max(s.hiwater, min(s.computed, s.prompt))
		}
		if it.yields && e.cfg.Async {
			s.inFlight++
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
