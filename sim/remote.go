package sim

import "math"

// remoteState is a request's part in disaggregated prefill.
type remoteState struct {
	pending  bool  // its prompt is to be loaded from another server at its admission
	arrived  bool  // the load is done
	readyUs  int64 // when it is
	parkedAt int64 // step
	freeUs   int64 // when another server has read its blocks, or the lease ends
}

// park keeps s waiting, with its blocks, until those of so many of its tokens have come: from another server, or from
// the CPU tier, which says when.
func (e *Engine) park(s *seq, tokens, external int64, remote bool) {
	s.status = statusParked
	s.computed = tokens
	s.prefills = true
	s.remote.arrived = false
	s.remote.parkedAt = e.step
	s.remote.readyUs = e.now + s.req.LoadUs
	if !remote {
		s.remote.readyUs = math.MaxInt64
	} else if e.cfg.Load != nil {
		s.remote.readyUs = e.cfg.Load(s.idx, e.now, external)
	}
	e.parked = append(e.parked, s)
	if s.cached < 0 && remote {
		e.cachedAtFirst(s, tokens-external)
	}
	if e.onPark != nil {
		e.onPark(s)
	}
}

// arrived reports whether a parked request may be scheduled; its last token is computed here.
func (e *Engine) arrived(s *seq) bool {
	if !s.remote.arrived {
		return false
	}
	s.status = statusWaiting
	if s.preempted > 0 {
		s.status = statusPreempted
	}
	if e.pool.Caching {
		e.registerBlocks(s, s.computed)
	}
	s.computed = min(s.computed, s.tokens()-1)
	return true
}

// reserved is the number of blocks that prompts in chunks and loads under way still need.
func (e *Engine) reserved() int64 {
	verify := int64(0)
	if e.spec != nil && e.rules.LoadsReserveDrafts {
		verify = 1 + e.spec.Tokens + e.spec.lookahead
	}
	blocks := ceilDiv(verify, e.blockSize) // of the load that asks
	remaining := func(s *seq) {
		full := min(s.tokens(), e.maxLen)
		if e.rules.LookaheadHashes { // from 0.33 on in one count
			blocks += max(0, ceilDiv(full+verify, e.blockSize)-s.held.N)
		} else {
			blocks += max(0, ceilDiv(full, e.blockSize)-s.held.N) + ceilDiv(verify, e.blockSize)
		}
	}
	for _, s := range e.running {
		if s.prefills {
			remaining(s)
		}
	}
	for _, s := range e.waitingHolders() {
		remaining(s)
	}
	return blocks
}

// waitingHolders are the waiting requests that hold blocks: loads, under way or arrived.
func (e *Engine) waitingHolders() (out []*seq) {
	for _, q := range []*waitQueue{&e.front, &e.waiting} {
		for i := range q.len() {
			if s := q.at(i); s.prefills {
				out = append(out, s)
			}
		}
	}
	for _, s := range e.skipped {
		if s.prefills {
			out = append(out, s)
		}
	}
	return out
}

// completeRemote notices, with the update of a step, which loads have arrived and which
// blocks nobody needs any more, of the requests that had finished before the update.
func (e *Engine) completeRemote(before int) {
	kept := e.parked[:0]
	for _, s := range e.parked {
		if !e.transferred(s, s.remote.readyUs) {
			kept = append(kept, s)
			continue
		}
		s.remote.arrived = true
		if s.status == statusDone {
			s.remote.freeUs = e.now
		}
	}
	clear(e.parked[len(kept):])
	e.parked = kept
	left := e.leaving[:0]
	for i, s := range e.leaving {
		loading := !s.remote.arrived && s.remote.parkedAt > 0 && (s.load == nil || !s.load.stored || e.rules.OffloadFreesAtOnce)
		if e.cpu.keepsOn(s) || i >= before || loading || s.req.RemoteDecode && !e.transferred(s, s.remote.freeUs) {
			left = append(left, s)
			continue
		}
		e.freeBlocks(s)
		e.free.push(s)
	}
	clear(e.leaving[len(left):])
	e.leaving = left
}

// transferred reports whether a transfer that takes until doneUs is done.
func (e *Engine) transferred(s *seq, doneUs int64) bool {
	if e.isTransferred != nil {
		return e.isTransferred(s)
	}
	return doneUs <= e.now
}

// keeps reports whether the blocks of a finished request stay: for the server that
// decodes on, which reads them, or while a load still writes them.
func (e *Engine) keeps(s *seq) bool {
	loading := s.status == statusParked && !s.remote.arrived && e.rules.AbortedLoadsStay
	if !loading && s.status == statusParked {
		e.parked = remove(e.parked, s)
	}
	if !loading && !s.req.RemoteDecode {
		return false
	}
	s.remote.freeUs = e.now + s.req.SendUs
	e.leaving = append(e.leaving, s)
	return true
}

// Release lets the engine have the blocks of finished request i back at atUs: another server has read them.
func (e *Engine) Release(i int, atUs int64) {
	for _, s := range e.leaving {
		if s.idx == i {
			s.remote.freeUs = atUs
		}
	}
}
