package sim

// This file is the queue of waiting requests (vllm/v1/core/sched/request_queue.py).

import "slices"

// waitQueue is a queue of waiting requests: a deque (fcfs) or a heap (priority).
type waitQueue struct {
	byPriority bool
	heap       Heap[*seq] // used with byPriority
	ring       []*seq     // used otherwise: n requests from head on
	head, n    int
}

// len returns the number of requests in the queue.
func (q *waitQueue) len() int { return q.n + len(q.heap) }

// at returns the i-th request. With byPriority the order is that of a heap, so only at(0) is known
// to be the next one.
func (q *waitQueue) at(i int) *seq {
	if q.byPriority {
		return q.heap[i]
	}
	return q.ring[(q.head+i)%len(q.ring)]
}

// set puts s at place i of the ring.
func (q *waitQueue) set(i int, s *seq) { q.ring[(q.head+i)%len(q.ring)] = s }

// reserve makes room for one more request in the ring.
func (q *waitQueue) reserve() {
	if q.n < len(q.ring) {
		return
	}
	ring := make([]*seq, max(16, 2*len(q.ring)))
	for i := range q.n {
		ring[i] = q.at(i)
	}
	q.ring, q.head = ring, 0
}

// peek returns the request that is served next.
func (q *waitQueue) peek() *seq { return q.at(0) }

// push adds a new request at the tail (fcfs), or at its place (priority).
func (q *waitQueue) push(s *seq) {
	if q.byPriority {
		q.heap.Push(s)
		return
	}
	q.reserve()
	q.n++
	q.set(q.n-1, s)
}

// prepend puts a request at the head (fcfs), or at its place (priority).
func (q *waitQueue) prepend(s *seq) {
	if q.byPriority {
		q.heap.Push(s)
		return
	}
	q.reserve()
	q.head = (q.head + len(q.ring) - 1) % len(q.ring)
	q.n++
	q.set(0, s)
}

// pop removes and returns the request that is served next.
func (q *waitQueue) pop() *seq {
	if q.byPriority {
		return q.heap.Pop()
	}
	s := q.at(0)
	q.set(0, nil)
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return s
}

// remove removes s from any place in the queue.
func (q *waitQueue) remove(s *seq) {
	if q.byPriority {
		rest := remove(q.heap, s)
		q.heap = nil
		for _, x := range rest { // any item may have been inside the heap, so it is built again
			q.heap.Push(x)
		}
		return
	}
	kept := 0
	for i := range q.n {
		if x := q.at(i); x != s {
			q.set(kept, x)
			kept++
		}
	}
	for i := kept; i < q.n; i++ {
		q.set(i, nil)
	}
	q.n = kept
}

// Before orders requests as vLLM's priority policy does: by priority, arrival, id. The index
// decides among equal ones, so that no two are equal.
func (a *seq) Before(b *seq) bool {
	switch {
	case a.req.Priority != b.req.Priority:
		return a.req.Priority < b.req.Priority
	case a.res.ArrivalUs != b.res.ArrivalUs:
		return a.res.ArrivalUs < b.res.ArrivalUs
	case a.req.ID != b.req.ID:
		return a.req.ID < b.req.ID
	}
	return a.idx < b.idx
}

// nextQueue returns the queue whose first request is served next.
func (e *Engine) nextQueue() *waitQueue {
	if e.front.len() > 0 {
		return &e.front
	}
	return &e.waiting
}

// skip passes over waiting request s in this step (scheduler.py: skip_request()).
func (e *Engine) skip(s *seq) {
	e.skipped = append(e.skipped, s)
	if !s.deferred {
		s.deferred = true
		e.deferred++
	}
}

// undefer is called when a request that was passed over (deferred) runs or has left.
func (e *Engine) undefer(s *seq) {
	if s.deferred {
		s.deferred = false
		e.deferred--
	}
}

// putBackSkipped returns the requests passed over in this step to their queue. From 0.19 to 0.30
// these requests are served before all other waiting ones, since 0.31 only if they hold KV blocks
// (scheduler.py: skipped_waiting, kv_holding_waiting). The last one goes first, so that they come to
// lie at the head of the queue in the order in which they were passed over.
func (e *Engine) putBackSkipped() {
	for _, s := range slices.Backward(e.skipped) {
		holds := s.computed > 0 || s.status == statusParked
		if e.rules.SkippedFirst && !e.byPriority || e.rules.HoldersFirst && holds {
			e.front.prepend(s)
		} else {
			e.waiting.prepend(s)
		}
	}
	clear(e.skipped)
	e.skipped = e.skipped[:0]
}

// unqueue removes a waiting request from its queue.
func (e *Engine) unqueue(s *seq) {
	e.waiting.remove(s)
	if e.front.len() > 0 {
		e.front.remove(s)
	}
}
