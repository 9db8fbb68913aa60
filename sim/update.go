package sim

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// update processes the result of a step: each sequence that sampled gets its
// token, those that stop leave.
func (e *Engine) update(f *flight) {
	for ; f.tokens > 0 && len(e.fenced) > 0 && e.fenced[0].doneStep <= f.step; e.fenced = e.fenced[1:] {
		e.pool.Drop(&e.fenced[0].held)
	}
	left := false
	stays := 0
	leaving := len(e.leaving)
	flies, gaps := e.depth > 1, e.cfg.TokenGaps // loads of the loop
	simple := e.plain && !(flies && e.pool.Caching)
	for i := range f.items {
		it := &f.items[i]
		s := it.s
		stale := false
		if flies && int32(s.idx) == it.idx {
			s.flying -= it.n
			if stale = s.drains; stale {
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
		if simple {
			if s.outputs++; s.inFlight > 0 && !stale {
				s.inFlight--
			}
		} else {
			e.deliver(s, it, stale)
		}
		if !s.first || gaps {
			e.token(s, f.step)
		}
		if stays++; s.outputs >= s.target {
			e.stop(s, f.step)
			left = true
			stays--
		}
	}
	if left {
		e.sweep()
	}
	e.allDecode = stays == len(e.running) // steady steps and requests that leave do not change that
	if e.spec != nil && !e.cfg.Async {
		e.propose(f)
	}
	if e.cpu != nil {
		e.cpu.completeTransfers(e.now, f.step)
	}
	if len(e.parked)+len(e.leaving) > 0 {
		e.completeRemote(leaving)
	}
	if e.kvLog != nil {
		e.kvLog.publish(e.now)
	}
}

// deliver gives s what its item sampled: one token, and the drafts it accepted. stale: s
// was preempted since, so its counts began again.
func (e *Engine) deliver(s *seq, it *item, stale bool) {
	n := int64(1)
	waited := s.inFlight > 0
	if it.drafts > 0 {
		rejected := int64(it.drafts)
		if !it.fresh {
			a := e.accepted(s, rejected)
			n, rejected = n+a, rejected-a
			e.out.Verifies++
			e.out.DraftTokens += int64(it.drafts)
			e.out.AcceptedTokens += a
		}
		if !stale {
			if s.computed > 0 {
				s.computed -= rejected
			}
			if s.inFlight > 0 {
				s.inFlight -= rejected
			}
		}
	}
	kept := min(n, s.target-s.outputs) // what lies behind a stop is cut
	s.outputs += kept
	if !stale && waited {
		s.inFlight -= kept
	}
	if !e.pool.Caching || s.status != statusRunning {
		return
	}
	switch {
	case !e.rules.ReadyTokensCached && e.cfg.Async:
		e.registerBlocks(s, s.computed-s.inFlight)
	case e.rules.ReadyTokensCached && !stale && (waited || e.spec != nil):
		e.registerBlocks(s, s.computed-(n-kept)-s.flying)
	}
}

// deliverLate is a quirk of releases before 0.19: a request that ends during its step, and whose blocks stay, still
// gets the step's tokens, which only one that was aborted is said to have, and is told of again where they end it again.
func (e *Engine) deliverLate(s *seq, it *item) {
	if e.rules.AbortedLoadsStay || !it.yields || int32(s.idx) != it.idx || !slices.Contains(e.leaving, s) {
		return
	}
	n, most := int64(1), s.maxTokens
	if it.drafts > 0 && !it.fresh {
		n += e.accepted(s, int64(it.drafts))
	}
	if v := e.visits[s.idx]; s.res.FinishStatus == trace.FinishAborted && v != nil && &v.res == s.res {
		v.res.OutputTokens += n
		most = s.target
	}
	if s.outputs += n; s.outputs >= most {
		e.finished++
	}
}

// token stamps a token of s.
func (e *Engine) token(s *seq, step int64) {
	if !s.first {
		if s.first = true; e.api != nil {
			e.api.tokens -= s.prompt
		}
		if n := len(e.spareGaps); e.cfg.TokenGaps && n > 0 {
			s.gaps = e.spareGaps[n-1]
			e.spareGaps = e.spareGaps[:n-1]
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
	} else {
		e.gap(s, e.now-s.lastToken)
	}
	s.lastToken = e.now
}

// stop ends a request that has its last token: a stop token counts before a limit, also where both come at once.
func (e *Engine) stop(s *seq, step int64) {
	status := trace.FinishLength
	if s.outputs == s.req.OutputTokens && s.outputs < s.maxTokens {
		status = trace.FinishStopped
	}
	s.res.LengthCapped = s.outputs < min(s.maxTokens, s.req.OutputTokens)
	if !s.res.LengthCapped && (s.tokens()-1)%e.blockSize == 0 {
		e.pool.Misses++ // the last token is never computed: BLIS takes its block all the same
	}
	if s.status != statusRunning { // its last token arrived after it had been preempted
		e.unqueue(s)
	}
	e.finish(s, step, status, OutcomeFinished)
}

// finish frees the request and lets it go.
func (e *Engine) finish(s *seq, step int64, finishStatus string, outcome Outcome) {
	res := s.res
	res.FinishStatus = finishStatus
	res.OutputTokens = s.outputs
	res.FinishedStep = step
	res.Outcome = outcome
	res.FinishedUs = trace.Some(e.now)
	res.ITLP50Ms, res.ITLP99Ms = e.gapQuantiles(s)
	if outcome != OutcomeFinished {
		e.forgetGaps(s)
	}
	if s.gaps != nil {
		e.spareGaps = append(e.spareGaps, s.gaps[:0])
		s.gaps = nil
	}
	res.TokenUs = e.cfg.TokenUs
	e.journey(Finished, s, step)
	keep := e.cpu != nil && e.cpu.keeps(s) || (s.req.RemoteDecode || s.status == statusParked) && e.keeps(s)
	e.undefer(s)
	s.status, s.doneStep = statusDone, e.step
	e.visits[s.idx].s = nil
	if !keep {
		e.freeBlocks(s)
		e.free.push(s)
	}
	if e.finished++; e.api != nil {
		if e.api.reqs--; !s.first {
			e.api.tokens -= s.prompt
		}
	}
	e.meets = e.queue(s.prompt)
	e.meets.NowUs = e.now
	e.meets.OutputTokens = s.outputs
	exact, delay, err := e.delayUs(e.cfg.Egress, &e.meets)
	if err != nil && e.failed == nil {
		e.failed = err
	}
	if g := e.visits[s.idx].grad; g != nil && err == nil {
		g.last.set(&e.grad.now)
		if e.grad.departs(g, exact, s.outputs, e.cfg.TokenUs); s.first {
			res.Gradient = g
		}
	}
	e.outside.push(e.now+delay, outsideDepart, s.idx)
}

// sweep drops finished requests from the running list, keeping its order.
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
