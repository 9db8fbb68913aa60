package sim

// This file preempts running requests when KV blocks run out (scheduler.py: schedule(),
// _preempt_request()).

import "slices"

// makeRoom preempts running requests until there are enough free blocks for s to have need blocks
// (scheduler.py: schedule(), the loop around allocate_slots() of running requests). i is the
// position of s in the running list.
//
// at is the index of the loop over the running list afterwards. left is the token budget, which grows
// by the tokens that preempted requests had in this step. ok is false if s itself was preempted, or
// if no request may be preempted.
func (e *Engine) makeRoom(s *seq, i int, need, budget int64) (at int, left int64, ok bool) {
	for need-s.held.N > e.pool.Free {
		k := e.victim()
		victim := e.running[k]
		if e.frees.on && e.rules.VictimsInFlightStay && victim.flying > 0 {
			// Preempting it would free no blocks now (_request_blocks_can_be_freed(), since 0.30).
			return i, budget, false
		}
		e.running = slices.Delete(e.running, k, k+1)
		taken := int64(0) // tokens that the victim had got in this step
		if e.byPriority { // with fcfs the victim is the last running request, which has none yet
			taken = e.removeFromStep(victim)
		}
		// s moves down if the victim was before it. Before 0.28 vLLM moves its index only if the
		// victim had got tokens in this step, and so passes over a request.
		if taken > 0 || e.rules.PreemptByPosition && k < i {
			i--
		}
		if taken > 0 {
			budget += taken
			e.spec.spend(taken, -1)
		}
		e.preempt(victim)
		if victim == s {
			return i, budget, false
		}
	}
	return i, budget, true
}

// victim returns the position of the running request to preempt: the last one (fcfs), or the one
// that would be served last (priority). If several have equal priority and arrival time, vLLM takes
// the first. Simulated arrivals can be equal, and with vLLM's choice such requests would preempt
// each other for ever, so the choice here is by Before, which treats no two requests as equal.
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

// preempt frees the blocks of a request and puts it back at the head of the waiting queue
// (scheduler.py: _preempt_request()).
func (e *Engine) preempt(s *seq) {
	if e.connector != nil {
		e.connector.preempt(s)
	}
	if e.pool.Caching {
		e.pool.ListAll(&s.held, s.content, e.blockSize) // before its blocks are freed
	}
	e.freeBlocks(s)
	s.status = statusPreempted
	s.computed = 0
	s.drafts = 0
	s.prefills = false
	if e.rules.ResumeAfterDrain { // since 0.27 it resumes only when its steps in flight have ended
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
	e.out.PeakWaiting = max(e.out.PeakWaiting, int64(e.numWaiting()))
}

// removeFromStep removes s from the step being formed and returns how many tokens s had there; 0 if
// it was not in the step.
func (e *Engine) removeFromStep(s *seq) int64 {
	for i := range e.cur {
		it := &e.cur[i]
		if it.s != s {
			continue
		}
		n := it.n
		const removes = -1
		if it.drafts > 0 {
			e.batch.AddVerify(s.computed, n, s.held.N, removes)
		} else {
			e.batch.Add(s.computed, s.prompt, n, s.held.N, removes)
		}
		e.cur = append(e.cur[:i], e.cur[i+1:]...)
		return n
	}
	return 0
}
