package sim

import "github.com/blis-train/blis-train/trace"

// nextOutside is the time of the next outside event.
func (e *engine) nextOutside() (int64, bool) {
	at, ok := int64(0), false
	if e.nextArrive < len(e.arrivals) {
		at, ok = e.reqs[e.arrivals[e.nextArrive]].ArrivalUs, true
	}
	if len(e.outside.heap) > 0 && (!ok || e.outside.heap[0].at < at) {
		at, ok = e.outside.heap[0].at, true
	}
	return at, ok
}

// advance handles every outside event up to time to, in order. Arrivals of the
// workload come before other events of the same microsecond.
func (e *engine) advance(to int64) error {
	for {
		at, ok := e.nextOutside()
		if !ok || at > to {
			return nil
		}
		if e.nextArrive < len(e.arrivals) && e.reqs[e.arrivals[e.nextArrive]].ArrivalUs == at {
			i := e.arrivals[e.nextArrive]
			e.nextArrive++
			if err := e.arrive(int(i), at); err != nil {
				return err
			}
			continue
		}
		ev := e.outside.pop()
		switch ev.kind {
		case outsideArrive:
			if err := e.arrive(int(ev.req), at); err != nil {
				return err
			}
		case outsideEnqueue:
			e.enqueue(int(ev.req), at)
		case outsideAbort:
			e.aborts = append(e.aborts, ev.req)
		case outsideDepart:
			e.depart(int(ev.req), at)
		}
	}
}

// arrive is the request at the API: refused there, or on its way to the engine.
func (e *engine) arrive(i int, at int64) error {
	r, res := &e.reqs[i], &e.out.Requests[i]
	res.ArrivalUs = at
	e.emit(Event{Kind: Arrived, AtUs: at, Request: i})
	if code := e.refuse(r); code != "" {
		e.reject(i, code, at)
		return nil
	}
	delay, err := int64(0), error(nil)
	if r.EnqueueUs.OK {
		delay = r.EnqueueUs.V - r.ArrivalUs
	} else if e.cfg.Overhead != nil {
		q := e.queueAt(at, r)
		if delay, err = e.delayUs(e.cfg.Overhead, &q); err != nil {
			return err
		}
	}
	e.outside.push(at+delay, outsideEnqueue, i)
	if r.AbortAtUs.OK {
		e.outside.push(max(r.AbortAtUs.V, at+delay), outsideAbort, i)
	}
	return nil
}

// refuse is what the API server rejects without asking the engine.
func (e *engine) refuse(r *Request) trace.Code {
	switch {
	case r.PromptTokens >= e.maxLen:
		return CodePromptTooLong
	case ceilDiv(r.PromptTokens, e.blockSize) > e.pool.total:
		return CodeNeverFits
	}
	return ""
}

func (e *engine) queueAt(at int64, r *Request) Queue {
	q := Queue{NowUs: at, Running: int64(len(e.running)), Waiting: int64(e.waiting.len()), FreeBlocks: e.pool.free, TotalBlocks: e.pool.total,
		PreemptionEMA: e.ema, PromptTokens: r.PromptTokens}
	if _, constant := e.cfg.Overhead.(Const); e.pool.caching && !constant {
		s := seq{req: r, idx: -1, prompt: r.PromptTokens}
		q.CachedBlocks = int64(len(e.findHits(&s)))
	}
	return q
}

func (e *engine) enqueue(i int, at int64) {
	e.out.Requests[i].EnqueuedUs = trace.Some(at)
	s := e.newSeq(i)
	e.live[i] = s
	e.inbox = append(e.inbox, s)
	e.emit(Event{Kind: Enqueued, AtUs: at, Request: i})
}

// newSeq takes a sequence record whose last references are two steps old.
func (e *engine) newSeq(i int) *seq {
	var s *seq
	if len(e.freeSeq) > 0 && e.freeSeq[0].doneStep+2 < e.step {
		s = e.freeSeq[0]
		e.freeSeq = e.freeSeq[1:]
		*s = seq{ids: s.ids[:0], chain: s.chain[:0], gaps: s.gaps[:0], cumStart: s.cumStart[:0]}
	} else {
		s = &seq{}
	}
	r := &e.reqs[i]
	maxTokens := r.MaxTokens
	if maxTokens == 0 {
		maxTokens = r.OutputTokens
	}
	e.order++
	s.req, s.res, s.idx, s.prompt, s.maxTokens, s.cached, s.order = r, &e.out.Requests[i], i, r.PromptTokens, maxTokens, -1, e.order
	s.target = min(r.OutputTokens, maxTokens, e.maxLen-r.PromptTokens)
	return s
}

// pickUp puts a request of the input queue into the waiting queue: QUEUED.
func (e *engine) pickUp(s *seq) {
	s.status = statusWaiting
	e.waiting.push(s)
	e.out.PeakWaiting = max(e.out.PeakWaiting, int64(e.waiting.len()))
	s.res.QueuedUs, s.res.QueuedStep = trace.Some(e.now), e.step
	if e.features != nil {
		s.cumStart = append(s.cumStart[:0], e.cum...)
	}
	e.journey(Queued, s, e.step)
}

// processAborts ends the requests whose abort has reached the engine. One that
// is still in the input queue is picked up first, at the next boundary.
func (e *engine) processAborts() {
	kept := e.aborts[:0]
	for _, i := range e.aborts {
		s := e.live[i]
		switch {
		case s == nil || s.status == statusDone: // it had left before
		case s.status == statusOutside:
			kept = append(kept, i)
		default:
			e.abort(s)
		}
	}
	e.aborts = kept
}

func (e *engine) abort(s *seq) {
	if s.status == statusRunning {
		e.running = remove(e.running, s)
	} else {
		e.waiting.remove(s)
	}
	e.finish(s, e.step, trace.FinishAborted, s.req.AbortKind)
}

func remove(list []*seq, s *seq) []*seq {
	for i, x := range list {
		if x == s {
			copy(list[i:], list[i+1:])
			list[len(list)-1] = nil
			return list[:len(list)-1]
		}
	}
	return list
}

// rejectStuck refuses a request that can never be scheduled: everything is
// free and it still does not fit.
func (e *engine) rejectStuck(s *seq) {
	code := CodeNeverFits
	if !e.chunked && s.tokens() > e.budget {
		code = CodePromptNoBudget
	}
	s.res.Reason = code
	e.finish(s, e.step, trace.FinishIgnored, OutcomeRejected)
}

func (e *engine) reject(i int, code trace.Code, at int64) {
	res := &e.out.Requests[i]
	res.Outcome, res.Reason, res.FinishStatus = OutcomeRejected, code, trace.FinishIgnored
	e.emit(Event{Kind: Rejected, AtUs: at, Request: i, Outcome: OutcomeRejected})
	e.outside.push(at, outsideDepart, i)
}

// depart is the request leaving the API; closed loops go on from here.
func (e *engine) depart(i int, at int64) {
	e.left--
	res := &e.out.Requests[i]
	if res.Outcome != OutcomeRejected {
		res.DepartedUs = trace.Some(at)
	}
	e.emit(Event{Kind: Departed, AtUs: at, Request: i, OutputTokens: res.OutputTokens, FinishStatus: res.FinishStatus, Outcome: res.Outcome})
	e.judge(i)
	for _, j := range e.dependents[i] {
		e.outside.push(at+e.reqs[j].ThinkUs, outsideArrive, int(j))
	}
}

// judge compares a departed request with its goodput targets.
func (e *engine) judge(i int) {
	r, res := &e.reqs[i], &e.out.Requests[i]
	if r.SLOTTFTUs == 0 && r.SLOE2EUs == 0 {
		return
	}
	ttft, ok1 := res.TTFTUs()
	e2e, ok2 := res.E2EUs()
	met := ok1 && ok2 && (r.SLOTTFTUs == 0 || ttft <= float64(r.SLOTTFTUs)) &&
		(r.SLOE2EUs == 0 || e2e <= float64(r.SLOE2EUs))
	res.SLOMet = trace.Some(met)
}

func (e *engine) emit(ev Event) {
	if e.obs != nil {
		e.obs.Event(&ev)
	}
}

// journey emits one of the five events of a core span.
func (e *engine) journey(kind EventKind, s *seq, step int64) {
	if e.obs == nil {
		return
	}
	e.obs.Event(&Event{Kind: kind, AtUs: e.now, Request: s.idx, Step: step, Resume: kind == Scheduled && s.preempted > 0,
		PrefillDone: min(s.hiwater, s.prompt), OutputTokens: s.outputs, Preemptions: s.preempted, FinishStatus: s.res.FinishStatus, Outcome: s.res.Outcome})
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
