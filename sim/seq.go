package sim

// status of a request inside the engine.
type status uint8

const (
	statusOutside status = iota
	statusWaiting
	statusPreempted
	statusLoading // its blocks come from the CPU tier
	statusParked  // its blocks come from another server
	statusRunning
	statusDone
)

// seq is a request inside the engine. Token counts; blocks include the current
// step's allocation. A decode of a synchronous engine without drafts touches the first two
// lines of 64 bytes alone: hundreds of requests run, and each step walks over all of them.
type seq struct {
	computed int64 // tokens in KV, those of steps in flight included
	outputs  int64 // output tokens the scheduler knows
	prompt   int64
	inFlight int64 // output tokens scheduled but not yet known (asynchronous scheduling), drafts included
	drafts   int64 // proposed behind its last known token, to be verified by its next step
	flying   int64 // tokens in steps in flight, where the engine keeps more than one
	target   int64 // output tokens at which it stops
	status   status
	first    bool // FIRST_TOKEN has been seen
	chunk    bool // its last step left known tokens uncomputed
	deferred bool // passed over while it waited
	prefills bool // admitted, and has not computed all its known tokens since
	drains   bool // some of flying is stale

	held      held
	side      int64 // blocks beside those of its tokens: of windows and states
	idx       int
	maxTokens int64

	req       *Request
	res       *RequestResult
	stale     int64 // of flying, those scheduled before its last preemption, with Rules.ResumeAfterDrain
	verified  int64 // verifies so far
	decodeAt  int64 // the first step that may decode it again, with pipeline parallelism
	cached    int64 // prompt tokens cached at first admission, -1 before
	hiwater   int64 // prompt tokens processed, cached included; survives preemption
	preempted int64
	doneStep  int64 // step count when it left, for reuse
	lastToken int64 // us of its last token, with Config.TokenGaps
	gaps      []int32
	// Its last failed admission for want of blocks: the pool's gains then, and the budget.
	blockedAt     int64
	blockedBudget int64
	content       *Content   // nil without caching and before it is first considered
	shared        int64      // leading blocks of content that others may have
	load          *loadState // nil without a CPU tier
	remote        remoteState
	nextFree      *seq
}

// mostSpare is how many records of requests that have left an engine keeps for those to come: a
// queue that drains does not need what it took to grow.
const mostSpare = 1024

// freeList hands out the records of sequences that have left, the first first.
type freeList struct {
	head, tail *seq
	n          int
}

func (l *freeList) push(s *seq) {
	if l.n++; l.n > mostSpare {
		l.n--
		return
	}
	if l.head == nil {
		l.head = s
	} else {
		l.tail.nextFree = s
	}
	l.tail = s
}

// take is the first record, when it left before the given step.
func (l *freeList) take(before int64) *seq {
	s := l.head
	if s == nil || s.doneStep >= before {
		return nil
	}
	l.n--
	l.head = s.nextFree
	return s
}

// visit is a request on its way through one engine, from the API and back.
type visit struct {
	req  *Request
	s    *seq // in the engine; nil before and after
	res  RequestResult
	grad *gradient // nil without Config.Gradient
}

// tokens is what the scheduler wants in KV: prompt and known outputs.
func (s *seq) tokens() int64 { return s.prompt + s.outputs }

// blockHash is the chained hash of block b of the request.
func (s *seq) blockHash(b, blockSize int64) uint64 {
	h, _ := s.content.Block(b, blockSize)
	return h
}

// waitQueue holds waiting requests: a deque (fcfs) or a heap (priority).
type waitQueue struct {
	byPriority bool
	heap       Heap[*seq] // by priority
	ring       []*seq     // else: n of them from head on
	head, n    int
}

func (q *waitQueue) len() int { return q.n + len(q.heap) }

func (q *waitQueue) at(i int) *seq {
	if q.byPriority {
		return q.heap[i]
	}
	return q.ring[(q.head+i)%len(q.ring)]
}

func (q *waitQueue) set(i int, s *seq) { q.ring[(q.head+i)%len(q.ring)] = s }

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

// push adds a new request.
func (q *waitQueue) push(s *seq) {
	if q.byPriority {
		q.heap.Push(s)
		return
	}
	q.reserve()
	q.n++
	q.set(q.n-1, s)
}

// prepend puts a request at the head (fcfs) or back into its order (priority).
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

// pop removes the request that is served next.
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

// remove takes s out wherever it is.
func (q *waitQueue) remove(s *seq) {
	if q.byPriority {
		rest := remove(q.heap, s)
		q.heap = nil
		for _, x := range rest {
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

// Before is vLLM's order of requests: priority, arrival, id.
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
