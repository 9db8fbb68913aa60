package sim

// This file is a short cut for steady steps: every running request decodes one token, and no
// request is admitted or preempted. In a busy engine most steps are steady. Two short loops over
// the running list give the same result as the general code (TestSteadyPathIsExact).
// A step in which requests wait begins as a steady one, and is one unless a request is admitted.

import "math"

// isSteady reports whether the next step begins as a steady one: every running request decodes and
// gets its token within the budget, and there are enough blocks.
func (e *Engine) isSteady() bool {
	n := int64(len(e.running))
	return e.quick && e.allDecode && n > 0 && n <= e.budget && !e.transfers.areUnderWay() && e.hasBlocks() &&
		(e.depth == 1 || e.decodeOn())
}

// hasBlocks reports whether there is a free block for each running request that needs one for its next token.
func (e *Engine) hasBlocks() bool {
	if int64(len(e.running)) <= e.pool.Free {
		return true
	}
	need := int64(0)
	for _, s := range e.running {
		if s.computed == (s.held.N-s.side)*e.blockSize {
			need++
		}
	}
	return need <= e.pool.Free
}

// decodeOn reports whether every running request of an asynchronous engine gets a token in the next
// step. Those do not whose token in flight is their last one by max_tokens or max_model_len. It looks
// at the requests only if the step before was not steady.
func (e *Engine) decodeOn() bool {
	if e.decoding == 0 {
		least := int64(math.MaxInt64) // tokens that each may still get
		for _, s := range e.running {
			if !e.isPlainDecode(s) {
				return false
			}
			least = min(least, min(e.maxLen, s.prompt+s.maxTokens)-1-s.computed)
		}
		if least <= 0 {
			return false
		}
		e.decoding = least
	}
	e.decoding--
	return true
}

// scheduleSteady forms a steady step: one token and at most one new block for each request.
func (e *Engine) scheduleSteady() {
	b := &e.batch
	var context, longest, blocks int64
	// Read once: the loop visits hundreds of requests in every step.
	size := e.blockSize
	caching := e.pool.Caching
	ahead := e.stepsAhead()
	for _, s := range e.running {
		c := s.computed
		if c == (s.held.N-s.side)*size {
			e.pool.Grow(&s.held, s.held.N+1)
		}
		if caching && c+1 >= (s.held.Registered+1)*size {
			e.registerBlocks(s, s.tokens())
		}
		context += c
		longest = max(longest, c)
		blocks += s.held.N
		s.computed = c + 1
		s.inFlight += ahead
		s.flying += ahead
	}
	if ahead > 0 {
		e.stall.thrashes = 0
	}
	b.AddDecodes(int64(len(e.running)), context, blocks)
	b.LongestDecode = longest
	for i := range b.reaches {
		r := b.reaches[i]
		near := r.Near()
		entries := int64(0) // KV entries that the decodes read within this reach
		for _, s := range e.running {
			if near > 0 {
				entries += min(s.computed, near) // as Read, but faster
			} else {
				entries += r.Read(s.computed-1, 1) // computed includes the step's token by now
			}
		}
		b.reached.AddDecodes(i, entries)
	}
}

// admitInSteady tries to admit waiting requests behind the decodes of a steady step, with the tokens that are left, and
// reports whether the step is steady still: nothing was admitted, nor a transfer begun.
func (e *Engine) admitInSteady(left int64) bool {
	e.beginBatch()
	e.inSteady = true
	e.scheduleWaiting(left)
	if e.inSteady && e.transfers.areUnderWay() { // the KV of a request is on its way, which the general code looks after
		e.endSteady()
	}
	isSteady := e.inSteady
	e.inSteady = false
	if isSteady { // the step has no items
		e.reuse.items = append(e.reuse.items, e.cur)
		e.cur = nil
	}
	return isSteady
}

// endSteady gives the step being formed an item for each running request, before one is admitted. Its tokens are counted
// with the items from then on.
func (e *Engine) endSteady() {
	e.inSteady = false
	e.itemizeAll()
	e.decoding = 0
	ahead := e.stepsAhead()
	for _, s := range e.running {
		s.computed--
		s.inFlight -= ahead
		s.flying -= ahead
		e.appendItem(s, 1).yields = true
	}
}

// stepsAhead returns how many steps are scheduled before the result of one is known.
func (e *Engine) stepsAhead() int64 { return e.depth - 1 }

// updateSteady processes the result of the steady step with number step: each running request gets
// one token. It is not the first one of any, because all decoded before.
func (e *Engine) updateSteady(step int64) {
	isLast := false
	gaps := e.gaps
	ahead := e.stepsAhead()
	registers := ahead > 0 && e.pool.Caching // as deliver does
	for _, s := range e.running {
		s.outputs++
		s.inFlight -= ahead
		s.flying -= ahead
		if registers {
			late := s.inFlight
			if e.rules.ReadyTokensCached {
				late = s.flying
			}
			if s.computed-late >= (s.held.Registered+1)*e.blockSize {
				e.registerBlocks(s, s.computed-late)
			}
		}
		if gaps != nil {
			gaps.add(s, e.now-s.lastToken)
			s.lastToken = e.now
		}
		if s.outputs >= s.target {
			if !isLast {
				e.itemizeAll()
			}
			e.stop(s, step)
			isLast = true
		}
	}
	if isLast {
		e.sweep()
	}
	e.allDecode = true
}

// itemizeAll gives the steady steps in flight items, as other steps have. It must be called before a
// request enters or leaves the running list, which until then has the requests of these steps. Only
// asynchronous engines change the list while a step is in flight.
func (e *Engine) itemizeAll() {
	for i := range e.flight {
		e.itemize(&e.flight[i])
	}
}

// itemize gives a steady step items.
func (e *Engine) itemize(f *flight) {
	if !f.steady {
		return
	}
	f.steady = false
	if n := len(e.reuse.items); n > 0 {
		f.items = e.reuse.items[n-1]
		e.reuse.items = e.reuse.items[:n-1]
	}
	for _, s := range e.running {
		f.items = append(f.items, item{s: s, n: 1, idx: int32(s.idx), yields: true})
	}
}
