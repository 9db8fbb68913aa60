package sim

// This file keeps track of requests whose KV blocks are transferred: between servers (disaggregated
// prefill, where one server computes the prompt and another decodes), or from and to CPU memory.

import "math"

// remoteState is the state of disaggregated prefill of one request.
type remoteState struct {
	pending  bool  // its prompt is to be loaded from another server at its admission
	arrived  bool  // the load is done
	readyUs  int64 // when the load is done
	parkedAt int64 // step in which the load began; 0 if none did
	freeUs   int64 // when another server has read its blocks, or their lease has ended
}

// transfers is the requests whose KV blocks are being transferred: into the blocks of waiting
// requests (parked) from another server or a connector's CPU tier, or out of the blocks of finished
// requests (leaving).
type transfers struct {
	e      *Engine
	parked []*seq // waiting requests whose KV is being loaded: WAITING_FOR_REMOTE_KVS
	// leaving are finished requests whose blocks another server still reads, a copy to the tier
	// still reads, or a load still writes.
	leaving []*seq

	// Set by tests: onPark is called for every load, isDone replaces the times of transfers.
	onPark func(s *seq)
	isDone func(s *seq) bool
}

// areUnderWay reports whether any transfer is under way.
func (t *transfers) areUnderWay() bool { return len(t.parked)+len(t.leaving) > 0 }

// park makes s wait, with its blocks, until the KV of its first `tokens` tokens is there
// (scheduler.py: schedule(), load_kv_async). external of these tokens are loaded: with remote from
// another server, otherwise by the connector.
func (t *transfers) park(s *seq, tokens, external int64, remote bool) {
	e := t.e
	s.status = statusParked
	s.computed = tokens
	s.prefills = true
	s.remote.arrived = false
	s.remote.parkedAt = e.step
	switch {
	case !remote: // until the connector reports it (completeLoad)
		s.remote.readyUs = math.MaxInt64
	case e.cfg.Load != nil:
		s.remote.readyUs = e.cfg.Load(s.idx, e.now, external)
	default:
		s.remote.readyUs = e.now + s.req.LoadUs
	}
	t.parked = append(t.parked, s)
	if s.cached < 0 && remote {
		e.cachedAtFirst(s, tokens-external)
	}
	if t.onPark != nil {
		t.onPark(s)
	}
}

// unpark reports whether the KV of parked request s has arrived. If so, s becomes an ordinary
// waiting request, whose last token is still to be computed here (scheduler.py:
// _update_waiting_for_remote_kv()).
func (t *transfers) unpark(s *seq) bool {
	if !s.remote.arrived {
		return false
	}
	s.status = statusWaiting
	if s.preempted > 0 {
		s.status = statusPreempted
	}
	if t.e.pool.Caching {
		t.e.registerBlocks(s, s.computed)
	}
	s.computed = min(s.computed, s.tokens()-1)
	return true
}

// reservedBlocks returns the number of blocks that unfinished prompts and loads under way will
// still need (scheduler.py: _inflight_prefill_reserved_blocks(), since 0.23). An admission leaves
// them free.
func (t *transfers) reservedBlocks() int64 {
	e := t.e
	verify := int64(0) // tokens of drafts to verify
	if e.spec != nil && e.rules.LoadsReserveDrafts {
		verify = 1 + e.spec.Tokens + e.spec.lookahead
	}
	blocks := ceilDiv(verify, e.blockSize) // for the load that is to be admitted
	addRemaining := func(s *seq) {
		full := min(s.tokens(), e.maxLen)
		if e.rules.LookaheadHashes { // since 0.33 both in one count
			blocks += max(0, ceilDiv(full+verify, e.blockSize)-s.held.N)
		} else {
			blocks += max(0, ceilDiv(full, e.blockSize)-s.held.N) + ceilDiv(verify, e.blockSize)
		}
	}
	for _, s := range e.running {
		if s.prefills {
			addRemaining(s)
		}
	}
	for _, s := range e.waitingHolders() {
		addRemaining(s)
	}
	return blocks
}

// waitingHolders returns the waiting requests that hold blocks, because their KV is or was loaded.
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

// complete is called with the update of a step. It marks loads that have arrived, and frees the
// blocks of finished requests that no transfer needs any more (scheduler.py:
// _update_from_kv_xfer_finished()). Only the first `finished` entries of t.leaving, those from
// before the update, may be freed.
func (t *transfers) complete(finished int) {
	e := t.e
	waiting := t.parked[:0]
	for _, s := range t.parked {
		if !t.isTransferred(s, s.remote.readyUs) {
			waiting = append(waiting, s)
			continue
		}
		s.remote.arrived = true
		if s.status == statusDone {
			s.remote.freeUs = e.now
		}
	}
	clear(t.parked[len(waiting):])
	t.parked = waiting

	staying := t.leaving[:0]
	for i, s := range t.leaving {
		// Three reasons to keep the blocks: copies from them to the CPU tier, a load into them that
		// an abort did not stop, and the server that decodes.
		copying := e.connector != nil && e.connector.stillKeeps(s)
		loading := !s.remote.arrived && s.remote.parkedAt > 0 &&
			(s.offload == nil || !s.offload.offered || e.rules.OffloadFreesAtOnce)
		reading := s.req.RemoteDecode && !t.isTransferred(s, s.remote.freeUs)
		if copying || i >= finished || loading || reading {
			staying = append(staying, s)
			continue
		}
		e.freeBlocks(s)
		e.reuse.seqs.push(s)
	}
	clear(t.leaving[len(staying):])
	t.leaving = staying
}

// isTransferred reports whether a transfer of s that ends at doneUs is done now.
func (t *transfers) isTransferred(s *seq, doneUs int64) bool {
	if t.isDone != nil {
		return t.isDone(s)
	}
	return doneUs <= t.e.now
}

// keepsBlocks reports whether finished request s keeps its blocks: because the server that decodes
// reads them or, since 0.19, because a load still writes them (scheduler.py:
// _connector_finished()). It then adds s to t.leaving.
func (t *transfers) keepsBlocks(s *seq) bool {
	loading := s.status == statusParked && !s.remote.arrived && t.e.rules.AbortedLoadsStay
	if !loading && s.status == statusParked {
		t.parked = remove(t.parked, s) // an aborted load is forgotten
	}
	if !loading && !s.req.RemoteDecode {
		return false
	}
	s.remote.freeUs = t.e.now + s.req.SendUs
	t.leaving = append(t.leaving, s)
	return true
}

// Release lets finished request i free its blocks at atUs, when another server has read them.
func (e *Engine) Release(i int, atUs int64) {
	for _, s := range e.transfers.leaving {
		if s.idx == i {
			s.remote.freeUs = atUs
		}
	}
}

// deferredFrees keeps the blocks of requests that leave the running list while steps in flight
// still write them. A connector may write into a free block at once, so these blocks come free with
// the result of the last such step (scheduler.py: _free_request_blocks() and
// _drain_deferred_frees(), since 0.24).
type deferredFrees struct {
	on      bool
	step    int64 // the last step with tokens: sched_step_seq
	waiting []deferredFree
}

// deferredFree is blocks that come free when a step has been processed.
type deferredFree struct {
	held held
	step int64
}

// freeBlocks frees the blocks of s: now, or when the steps in flight that write them have been
// processed.
func (e *Engine) freeBlocks(s *seq) {
	if !e.frees.on || s.flying == 0 || s.held.N == 0 {
		e.pool.Drop(&s.held)
		return
	}
	e.frees.waiting = append(e.frees.waiting, deferredFree{held: s.held, step: e.frees.step})
	s.held = held{}
}

// drainFrees frees the blocks that waited for the result of the given step or an earlier one.
func (e *Engine) drainFrees(step int64) {
	for len(e.frees.waiting) > 0 && e.frees.waiting[0].step <= step {
		e.pool.Drop(&e.frees.waiting[0].held)
		e.frees.waiting = e.frees.waiting[1:]
	}
}
