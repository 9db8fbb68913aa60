package sim

// This file is a short cut for steady steps: every running request decodes one token, and no
// request is admitted or preempted. In a busy engine most steps are steady. Two short loops over
// the running list give the same result as the general code (TestSteadyPathIsExact).

// isSteady reports whether the next step is certain to be steady: every running request decodes and
// gets its token within the budget, no request can be admitted (none waits, or max_num_seqs are
// running), and there are enough blocks even if every request needs one.
func (e *Engine) isSteady() bool {
	n := int64(len(e.running))
	return e.quick && e.allDecode && n > 0 && n <= e.budget && n <= e.pool.Free &&
		(e.numWaiting() == 0 || n >= e.maxSeqs) && !e.transfers.areUnderWay()
}

// scheduleSteady forms a steady step: one token and at most one new block for each request.
func (e *Engine) scheduleSteady() {
	b := &e.batch
	var context, longest, blocks int64
	// Read once: the loop visits hundreds of requests in every step.
	size := e.blockSize
	caching := e.pool.Caching
	for _, s := range e.running {
		c := s.computed
		if c == (s.held.N-s.side)*size {
			e.pool.Grow(&s.held, s.held.N+1)
		}
		if caching && c+1 >= (s.held.Registered+1)*size {
			e.registerBlocks(s, c+1)
		}
		context += c
		longest = max(longest, c)
		blocks += s.held.N
		s.computed = c + 1
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

// updateSteady processes the result of the steady step with number step: each running request gets
// one token. It is not the first one of any, because all decoded before.
func (e *Engine) updateSteady(step int64) {
	isLast := false
	gaps := e.gaps
	for _, s := range e.running {
		s.outputs++
		if gaps != nil {
			gaps.add(s, e.now-s.lastToken)
			s.lastToken = e.now
		}
		if s.outputs >= s.target {
			e.stop(s, step)
			isLast = true
		}
	}
	if isLast {
		e.sweep()
	}
}
