package sim

import (
	"slices"
)

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
