package sim

// This file processes the result of a step (scheduler.py: update_from_output()): tokens are handed out
// and finished requests leave.

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// update processes the result of step f: each request that sampled gets its token, and those that
// stop leave (scheduler.py: update_from_output()).
func (e *Engine) update(f *flight) {
	if f.tokens > 0 {
		e.drainFrees(f.step)
	}
	hasLeft := false
	stays := 0 // requests that got a token and go on
	finishedBefore := len(e.transfers.leaving)
	hasFlights := e.depth > 1
	hasGaps := e.gaps != nil
	// Then deliver would do no more than count the token: no drafts, and no blocks that enter the
	// prefix cache only now.
	isSimple := e.plain && !(hasFlights && e.pool.Caching)
	for i := range f.items {
		it := &f.items[i]
		s := it.s        // may be the record of another request by now, and then idx differs
		isStale := false // the step was scheduled before s was preempted
		if hasFlights && int32(s.idx) == it.idx {
			s.flying -= it.n
			if s.drains {
				isStale = true
				s.stale -= it.n
				s.drains = s.stale > 0
			}
		}
		if s.status == statusDone || int32(s.idx) != it.idx {
			e.out.WastedTokens += it.n
			e.deliverLate(s, it)
			continue
		}
		if !it.yields {
			continue
		}
		if isSimple {
			s.outputs++
			if s.inFlight > 0 && !isStale {
				s.inFlight--
			}
		} else {
			e.deliver(s, it, isStale)
		}
		if !s.first || hasGaps {
			e.stampToken(s, f.step)
		}
		if s.outputs >= s.target {
			if !hasLeft {
				e.itemizeAll()
			}
			e.stop(s, f.step)
			hasLeft = true
		} else {
			stays++
		}
	}
	if hasLeft {
		e.sweep()
	}
	e.allDecode = stays == len(e.running) // every running request got a token, so all decode next
	if e.spec != nil && !e.cfg.Async {
		e.spec.propose(f.items)
	}
	if e.connector != nil {
		e.connector.completeTransfers(e.now, f.step)
	}
	if e.transfers.areUnderWay() {
		e.transfers.complete(finishedBefore)
	}
	if e.kvLog != nil {
		e.kvLog.publish(e.now)
	}
}

// deliver gives s the tokens that its item of a step sampled: one, and one for each accepted draft.
// The KV of rejected drafts does not count as computed. With isStale, s was preempted since, so its
// counts of computed tokens started again and are not corrected. If asynchronous scheduling or drafts
// made it wait until now, it also enters the step's full blocks into the prefix cache.
func (e *Engine) deliver(s *seq, it *item, isStale bool) {
	n := int64(1)
	hadInFlight := s.inFlight > 0
	if it.drafts > 0 {
		rejected := int64(it.drafts)
		if !it.fresh { // drafts of an admitted request are padding, and none is accepted
			accepted := e.spec.accepted(s, rejected)
			n += accepted
			rejected -= accepted
			e.out.Verifies++
			e.out.DraftTokens += int64(it.drafts)
			e.out.AcceptedTokens += accepted
		}
		if !isStale {
			if s.computed > 0 {
				s.computed -= rejected
			}
			if s.inFlight > 0 {
				s.inFlight -= rejected
			}
		}
	}
	kept := min(n, s.target-s.outputs) // tokens after a stop are dropped
	s.outputs += kept
	if !isStale && hadInFlight {
		s.inFlight -= kept
	}
	if !e.pool.Caching || s.status != statusRunning {
		return
	}
	switch {
	case !e.rules.ReadyTokensCached && e.cfg.Async: // async_scheduler.py: _update_request_with_output()
		e.registerBlocks(s, s.computed-s.inFlight)
	case e.rules.ReadyTokensCached && !isStale && (hadInFlight || e.spec != nil): // since 0.33
		e.registerBlocks(s, s.computed-(n-kept)-s.flying)
	}
}

// deliverLate mirrors update_from_output() before 0.19: a request that ended during a step and
// whose blocks stay still gets the step's tokens. Only an aborted request has them in its result.
// If they reach its limit, it counts as finished a second time.
func (e *Engine) deliverLate(s *seq, it *item) {
	if e.rules.AbortedLoadsStay || !it.yields || int32(s.idx) != it.idx || !slices.Contains(e.transfers.leaving, s) {
		return
	}
	n := int64(1)       // tokens that the step sampled
	most := s.maxTokens // number of output tokens at which it counts as finished again
	if it.drafts > 0 && !it.fresh {
		n += e.spec.accepted(s, int64(it.drafts))
	}
	// An aborted request whose answer is still on its way to the client (its visit has not ended).
	if v := e.visits[s.idx]; s.res.FinishStatus == trace.FinishAborted && v != nil && &v.res == s.res {
		v.res.OutputTokens += n
		most = s.target
	}
	s.outputs += n
	if s.outputs >= most {
		e.finished++
	}
}

// stampToken records the time of a token of s that the given step produced. It is called for the
// first token and, with Config.TokenGaps, for each.
func (e *Engine) stampToken(s *seq, step int64) {
	if s.first {
		e.gaps.add(s, e.now-s.lastToken)
		s.lastToken = e.now
		return
	}
	s.first = true
	s.lastToken = e.now
	if e.api != nil {
		e.api.tokens -= s.prompt
	}
	if e.gaps != nil {
		e.gaps.begin(s)
	}
	s.res.FirstTokenUs = trace.Some(e.now)
	s.res.FirstStep = step
	if e.grad != nil {
		e.visits[s.idx].grad.first.set(&e.grad.now)
	}
	e.journey(FirstToken, s, step)
	if e.hooks.First != nil {
		e.hooks.First(s.idx, e.now)
	}
}

// stop finishes request s, which has its last token. If a stop token and a length limit come
// together, the finish status is that of the stop token (sched/utils.py: check_stop()).
func (e *Engine) stop(s *seq, step int64) {
	status := trace.FinishLength
	if s.outputs == s.req.OutputTokens && s.outputs < s.maxTokens {
		status = trace.FinishStopped
	}
	s.res.LengthCapped = s.outputs < min(s.maxTokens, s.req.OutputTokens)
	if !s.res.LengthCapped && (s.tokens()-1)%e.blockSize == 0 {
		e.pool.Misses++ // the KV of the last token is never computed, but BLIS counts its block
	}
	if s.status != statusRunning { // its last token arrived after it had been preempted
		e.unqueue(s)
	}
	e.finish(s, step, status, OutcomeFinished)
}

// finish ends request s with a status, frees its blocks unless a transfer needs them, and schedules
// its answer's arrival at the API after the egress delay (scheduler.py: _free_request()).
func (e *Engine) finish(s *seq, step int64, finishStatus string, outcome Outcome) {
	res := s.res
	res.FinishStatus = finishStatus
	res.OutputTokens = s.outputs
	res.FinishedStep = step
	res.Outcome = outcome
	res.FinishedUs = trace.Some(e.now)
	res.TokenUs = e.cfg.TokenUs
	if e.gaps != nil {
		if e.cfg.RequestGaps {
			res.ITLP50Ms, res.ITLP99Ms = e.gaps.quantiles(s)
		}
		if outcome != OutcomeFinished || s.req.Unmeasured {
			e.gaps.forget(s)
		}
		e.gaps.release(s)
	}
	e.journey(Finished, s, step)
	// The calls below depend on the status from before the finish.
	keepsBlocks := e.connector != nil && e.connector.keepsBlocks(s)
	if !keepsBlocks && (s.req.RemoteDecode || s.status == statusParked) {
		keepsBlocks = e.transfers.keepsBlocks(s)
	}
	e.undefer(s)
	s.status = statusDone
	s.doneStep = e.step
	v := e.visits[s.idx]
	v.s = nil
	if !keepsBlocks {
		e.freeBlocks(s)
		e.reuse.seqs.push(s)
	}
	e.finished++
	if e.api != nil {
		e.api.reqs--
		if !s.first {
			e.api.tokens -= s.prompt
		}
	}
	e.meets = e.queueState(s.prompt)
	e.meets.NowUs = e.now
	e.meets.OutputTokens = s.outputs
	exact, delay, err := e.delayUs(e.cfg.Egress, &e.meets)
	if err != nil && e.failed == nil {
		e.failed = err
	}
	if v.grad != nil && err == nil {
		e.grad.finish(v.grad, exact, s.outputs, e.cfg.TokenUs)
		if s.first {
			res.Gradient = v.grad
		}
	}
	e.outside.push(e.now+delay, outsideDepart, s.idx)
}

// sweep removes finished requests from the running list.
func (e *Engine) sweep() {
	kept := e.running[:0]
	for _, s := range e.running {
		if s.status != statusDone {
			kept = append(kept, s)
		}
	}
	clear(e.running[len(kept):])
	e.running = kept
}
