package sim

// This file is the way of a request outside the scheduler: arrival at the API, overhead, the
// engine's input queue, aborts, and leaving. A visit is one request from its arrival to its
// departure; a seq is its record inside the engine.

import (
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// outsideKind is the kind of an event outside the engine: a request reaches the input queue, its
// abort reaches it, or its answer leaves the API.
type outsideKind uint8

const (
	outsideEnqueue outsideKind = iota
	outsideAbort
	outsideDepart
)

// outsideEvent is an event of a request outside the engine.
type outsideEvent struct {
	at   int64 // us
	seq  int64 // number of the event in the order of scheduling
	kind outsideKind
	req  int32 // index of the request
}

// Before orders events by time, then the order in which they were scheduled.
func (a outsideEvent) Before(b outsideEvent) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// outsideQueue is the future events outside the engine, in the order of time.
type outsideQueue struct {
	heap Heap[outsideEvent]
	seq  int64 // number of events scheduled so far
}

// before reports whether an event happens at or before the time `at`.
func (q *outsideQueue) before(at int64) bool { return len(q.heap) > 0 && q.heap[0].at <= at }

// push schedules an event of a request at the time `at`.
func (q *outsideQueue) push(at int64, kind outsideKind, req int) {
	q.seq++
	q.heap.Push(outsideEvent{at: at, seq: q.seq, kind: kind, req: int32(req)})
}

// handle processes an event outside the engine.
func (e *Engine) handle(ev outsideEvent) {
	if e.phase == idle {
		e.last = ev.at // the engine's clock stays behind, but the run lasts until this event
	}
	switch ev.kind {
	case outsideEnqueue:
		e.enqueue(int(ev.req), ev.at)
	case outsideAbort:
		e.aborts = append(e.aborts, ev.req)
	case outsideDepart:
		e.depart(int(ev.req), ev.at)
	}
}

// Arrive submits request i to the API at atUs. The API rejects it at once or sends it to the
// engine. The caller must have called RunTo(atUs), and must not change r before the request has
// left.
func (e *Engine) Arrive(i int, r *Request, atUs int64) error { return e.arrive(i, r, atUs, nil) }

// arrive does what Arrive does. from has the derivatives of the arrival time; nil if it does not
// depend on coefficients.
func (e *Engine) arrive(i int, r *Request, atUs int64, from *Derivative) error {
	v := e.newVisit(i, r)
	v.res = r.result(atUs)
	e.out.Sent++
	if e.grad != nil {
		v.grad = e.grad.newGradient()
		e.grad.arrived(v.grad, atUs, from)
	}
	e.forced = e.forced || r.PickUpStep.OK
	e.emit(Event{Kind: Arrived, AtUs: atUs, Request: i})
	if code := e.refuse(r); code != "" {
		e.reject(i, code, atUs)
		return nil
	}
	delay, err := e.overhead(v, atUs)
	if err != nil {
		return err
	}
	if e.api != nil {
		e.api.reqs += 1
		e.api.tokens += r.PromptTokens
	}
	e.outside.push(atUs+delay, outsideEnqueue, i)
	if r.AbortAtUs.OK { // an abort cannot overtake its request
		e.outside.push(max(r.AbortAtUs.V, atUs+delay), outsideAbort, i)
	}
	if r.AbortAfterUs.OK {
		e.outside.push(atUs+max(r.AbortAfterUs.V, delay), outsideAbort, i)
	}
	return nil
}

// overhead returns the time that the request takes from the API to the engine's input queue, us: as
// recorded, or as Config.Overhead predicts. It also stores the derivatives of that time in the visit.
func (e *Engine) overhead(v *visit, atUs int64) (us int64, err error) {
	exact := 0.0 // the delay before rounding
	r := v.req
	switch {
	case r.EnqueueUs.OK:
		us = r.EnqueueUs.V - r.ArrivalUs
	case e.cfg.Overhead != nil:
		e.meets = e.queueAt(atUs, r)
		if exact, us, err = e.delayUs(e.cfg.Overhead, &e.meets); err != nil {
			return 0, err
		}
	}
	if e.grad != nil {
		e.grad.delayed(v.grad, exact)
		if r.EnqueueUs.OK {
			e.grad.enqueued(v.grad, atUs+us)
		}
	}
	return us, nil
}

// newVisit returns the visit of request i and registers it.
func (e *Engine) newVisit(i int, r *Request) *visit {
	if i >= len(e.visits) {
		e.visits = append(e.visits, make([]*visit, i+1-len(e.visits))...)
	}
	var v *visit
	if n := len(e.reuse.visits); n > 0 {
		v = e.reuse.visits[n-1]
		e.reuse.visits = e.reuse.visits[:n-1]
	} else {
		v = &visit{}
	}
	v.req = r
	e.visits[i] = v
	return v
}

// refuse returns the reason for which the API server rejects a request at once; "" if it accepts
// it. vLLM needs no check of the second kind, a prompt of more blocks than the pool has, because it
// starts only if max_model_len tokens fit.
func (e *Engine) refuse(r *Request) trace.Code {
	switch {
	case r.PromptTokens >= e.maxLen:
		return codePromptTooLong
	case ceilDiv(r.PromptTokens, e.blockSize)+e.groups.Side(r.PromptTokens) > e.pool.Total: // more than all blocks
		return codeNeverFits
	case e.api != nil && (e.api.mostReqs > 0 && e.api.reqs >= e.api.mostReqs ||
		e.api.mostTokens > 0 && e.api.tokens >= e.api.mostTokens):
		return codeQueueFull
	}
	return ""
}

// apiLimits are limits of the API servers over all ranks behind them (max_num_queued_reqs,
// max_num_queued_tokens, since 0.29); 0 for no limit.
type apiLimits struct {
	mostReqs, reqs     int64 // unfinished requests
	mostTokens, tokens int64 // prompt tokens of requests without first token
}

// queueAt returns the state of the engine that request r meets when it arrives at the time `at`,
// including the blocks that a lookup of its prefix would find.
func (e *Engine) queueAt(at int64, r *Request) Queue {
	q := e.queueState(r.PromptTokens)
	q.NowUs = at
	if _, constant := e.cfg.Overhead.(Const); e.pool.Caching && !constant { // a constant needs no lookup
		content := r.content(-1) // -1: its own content is not looked up
		s := seq{req: r, idx: -1, prompt: r.PromptTokens, content: &content}
		q.CachedBlocks = int64(len(e.findHits(&s)))
	}
	return q
}

// queueState returns the state of the engine that a request with a prompt of this many tokens
// meets.
func (e *Engine) queueState(prompt int64) Queue {
	return Queue{
		Running:       int64(len(e.running)),
		Waiting:       int64(e.numWaiting()),
		FreeBlocks:    e.pool.Free,
		TotalBlocks:   e.pool.Total,
		PreemptionEMA: e.ema,
		PromptTokens:  prompt,
	}
}

// enqueue puts request i into the engine's input queue at the time `at` and wakes an idle engine.
func (e *Engine) enqueue(i int, at int64) {
	v := e.visits[i]
	v.res.EnqueuedUs = trace.Some(at)
	v.s = e.newSeq(i, v)
	e.inbox = append(e.inbox, v.s)
	if e.phase == idle {
		e.phase = ready
		if e.grad != nil && at > e.now { // the clock moves, see below
			e.grad.woken(v.grad)
		}
		e.now = max(e.now, at)
	}
	if e.rank != nil && !e.rank.running {
		e.rank.startWave(at)
	}
	e.emit(Event{Kind: enqueued, AtUs: at, Request: i})
}

// newSeq returns the engine's record of a request. It reuses that of a request which left more than
// two steps ago: no step in flight refers to it, or the step's item sees the reuse (item.idx).
func (e *Engine) newSeq(i int, v *visit) *seq {
	s := e.reuse.seqs.take(e.step - 2)
	if s == nil {
		s = &seq{}
	} else {
		if s.content != nil {
			e.reuse.contents = append(e.reuse.contents, s.content)
		}
		*s = seq{}
	}
	r := v.req
	maxTokens := r.MaxTokens
	if maxTokens == 0 {
		maxTokens = r.OutputTokens
	}
	s.req = r
	s.res = &v.res
	s.idx = i
	s.prompt = r.PromptTokens
	s.maxTokens = maxTokens
	s.cached = -1
	s.remote.pending = r.RemotePrefill
	s.target = min(r.OutputTokens, maxTokens, e.maxLen-r.PromptTokens)
	s.side = e.groups.Side(r.PromptTokens + s.target)
	if e.connector != nil {
		s.offload = &offloadState{} // never reused, because copies may outlive the request
	}
	return s
}

// describe sets the content of s, from which block hashes are computed. It is called at the first
// attempt to admit s, because waiting requests do not need it.
func (e *Engine) describe(s *seq) {
	if n := len(e.reuse.contents); n > 0 {
		s.content = e.reuse.contents[n-1]
		e.reuse.contents = e.reuse.contents[:n-1]
	} else {
		s.content = &Content{}
	}
	s.content.Reset(s.req.content(s.idx))
	if e.spec != nil && e.spec.hashAhead { // a block's hash includes the token after it
		s.content.Ahead = 1
	}
	s.shared = s.content.Shared(e.blockSize)
}

// pickUp moves s from the input queue to the waiting queue, which is the event QUEUED.
func (e *Engine) pickUp(s *seq) {
	s.status = statusWaiting
	if e.grad != nil {
		e.grad.pickedUp(e.visits[s.idx].grad, e.waiting.len() == 0)
	}
	e.waiting.push(s)
	e.out.PeakWaiting = max(e.out.PeakWaiting, int64(e.waiting.len()))
	s.res.QueuedUs = trace.Some(e.now)
	s.res.QueuedStep = e.step
	e.journey(Queued, s, e.step)
}

// processAborts ends the requests whose abort has reached the engine (engine/core.py:
// abort_requests()). The abort of a request that is still in the input queue takes effect in the
// iteration after it is picked up.
func (e *Engine) processAborts() {
	if len(e.aborts) == 0 {
		return
	}
	e.itemizeAll()
	kept := e.aborts[:0]
	for _, i := range e.aborts {
		switch v := e.visits[i]; {
		case v == nil || v.s == nil: // it has left already
		case v.s.status == statusOutside:
			kept = append(kept, i)
		default:
			e.abort(v.s)
		}
	}
	e.aborts = kept
}

// abort ends a request that is running or waiting.
func (e *Engine) abort(s *seq) {
	if s.status == statusRunning {
		e.running = remove(e.running, s)
	} else {
		e.unqueue(s)
	}
	e.finish(s, e.step, trace.FinishAborted, s.req.AbortKind)
}

// remove returns list without s.
func remove(list []*seq, s *seq) []*seq {
	if i := slices.Index(list, s); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// rejectStuck rejects request s, which can never be scheduled: it does not fit although all blocks
// are free.
func (e *Engine) rejectStuck(s *seq) {
	code := codeNeverFits
	if !e.chunked && s.tokens() > e.budget {
		code = codePromptNoBudget
	}
	s.res.Reason = code
	e.finish(s, e.step, trace.FinishIgnored, OutcomeRejected)
}

// reject ends request i without running it.
func (e *Engine) reject(i int, code trace.Code, at int64) {
	v := e.visits[i]
	res := &v.res
	if v.grad != nil { // it leaves at its arrival, which requests that follow it use
		v.grad.left.set(&v.grad.arrive)
	}
	res.Outcome = OutcomeRejected
	res.Reason = code
	res.FinishStatus = trace.FinishIgnored
	e.emit(Event{Kind: rejected, AtUs: at, Request: i, Outcome: OutcomeRejected})
	e.outside.push(at, outsideDepart, i)
}

// depart makes request i leave the API at the time `at`, with its times and outcome.
func (e *Engine) depart(i int, at int64) {
	v := e.visits[i]
	if v.res.Outcome != OutcomeRejected {
		v.res.DepartedUs = trace.Some(at)
	}
	r := &v.res
	e.emit(Event{Kind: Departed, AtUs: at, Request: i, OutputTokens: r.OutputTokens, FinishStatus: r.FinishStatus,
		Outcome: r.Outcome})
	v.res.Judge(v.req)
	e.leave(i, at)
}

// leave calls Hooks.Left and releases the memory of the request.
func (e *Engine) leave(i int, at int64) {
	v := e.visits[i]
	if e.hooks.Left != nil {
		e.hooks.Left(i, at, &v.res)
	}
	e.visits[i] = nil
	if v.grad != nil {
		e.grad.free = append(e.grad.free, v.grad)
	}
	v.req = nil
	v.s = nil
	v.grad = nil
	if len(e.reuse.visits) < mostSpare {
		e.reuse.visits = append(e.reuse.visits, v)
	}
}

// emit passes an event to the observer, if there is one.
func (e *Engine) emit(ev Event) {
	if e.obs != nil {
		own := ev // a copy, so that ev is allocated on the heap only with an observer
		e.obs.Event(&own)
	}
}

// journey emits one of the five events that the core span of a request records.
func (e *Engine) journey(kind eventKind, s *seq, step int64) {
	if e.obs == nil {
		return
	}
	e.obs.Event(&Event{
		Kind: kind, AtUs: e.now, Request: s.idx, Step: step, Resume: kind == Scheduled && s.preempted > 0,
		PrefillDone: min(s.hiwater, s.prompt), OutputTokens: s.outputs, Preemptions: s.preempted,
		FinishStatus: s.res.FinishStatus, Outcome: s.res.Outcome,
	})
}

// ceilDiv returns a/b rounded up, for a >= 0.
func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
