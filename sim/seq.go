package sim

import (
	"math/rand/v2"
	"slices"
)

// status of a request inside the engine.
type status uint8

const (
	statusOutside status = iota
	statusWaiting
	statusPreempted
	statusParked // its blocks come from another server or the CPU tier
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

// inside is the state of an engine as its metrics page would show it. Requests
// that have reached the input queue and were not picked up yet count as waiting.
type inside struct {
	Waiting     int64 // requests
	Running     int64 // requests
	FreeBlocks  int64
	TotalBlocks int64
	StepStartUs int64 // of the step that executes; -1: none does
}

// Inside looks at the engine; RunTo of that moment comes first.
func (e *Engine) Inside() inside {
	start := int64(-1)
	if len(e.flight) > 0 && e.flight[0].tokens > 0 {
		start = e.flight[0].start
	}
	return inside{Waiting: int64(e.waits() + len(e.inbox)), Running: int64(len(e.running)), FreeBlocks: e.pool.Free,
		TotalBlocks: e.pool.Total, StepStartUs: start}
}

// Work is one request inside an engine, as only the engine knows it.
type Work struct {
	Computed  int64 // tokens in KV, the step under way included
	Prompt    int64 // tokens
	InStep    int64 // tokens of it that the step under way computes
	Outputs   int64 // tokens it has
	Remaining int64 // output tokens it will still produce
	Priority  int64
	Running   bool
}

// Each visits every request inside the engine, running ones first.
func (e *Engine) Each(visit func(Work)) {
	scheduled := scheduled(e.cur)
	show := func(s *seq, running bool) {
		w := Work{Computed: s.computed, Prompt: s.prompt, Outputs: s.outputs, Remaining: s.target - s.outputs,
			Priority: s.req.Priority, Running: running}
		if running {
			w.InStep = scheduled.of(s)
		}
		visit(w)
	}
	for _, s := range e.running {
		show(s, true)
	}
	for _, q := range []*waitQueue{&e.front, &e.waiting} {
		for i := range q.len() {
			show(q.at(i), false)
		}
	}
	for _, s := range e.inbox {
		show(s, false)
	}
}

// Watch tells of every block of shared content that becomes findable and of every
// one that is lost, at the engine's time. It comes before the first request.
func (e *Engine) Watch(told func(atUs int64, hash uint64, stored bool)) {
	e.pool.Watch = func(hash uint64, stored bool) { told(e.now, hash, stored) }
}

// BlockHashes appends the chained hashes of the leading blocks of request i that
// other requests may share.
func (r *Request) BlockHashes(i int, blockSize int64, to []uint64) []uint64 {
	c := r.content(i)
	for b := range c.Shared(blockSize) {
		h, _ := c.Block(b, blockSize)
		to = append(to, h)
	}
	return to
}

// CanClone reports whether Clone knows everything inside.
func (e *Engine) CanClone() bool {
	return e.cpu == nil && e.grad == nil && e.timeline == nil && e.peers == nil
}

// Clone is an independent copy of the engine as it is now, with hooks of its own.
// It shares the latency model, so the two must not run at the same time. CanClone
// comes first.
func (e *Engine) Clone(hooks Hooks) *Engine {
	c := *e
	c.obs = nil
	c.kvLog = nil
	c.check = nil
	c.hooks = hooks
	c.cfg.TokenGaps = false
	c.pool = e.pool.Clone()
	c.spare = nil
	c.skipped = nil
	c.hits = nil
	c.freeVisits = nil
	c.contents = nil
	c.free = freeList{}
	c.spareGaps = nil
	c.out.Findings, c.aborts, c.outside.heap = slices.Clone(e.out.Findings), slices.Clone(e.aborts), slices.Clone(e.outside.heap)
	if c.rng = rand.New(&c.source); e.api != nil {
		c.api = new(*e.api)
	}
	copies := map[*seq]*seq{}
	c.visits = make([]*visit, len(e.visits))
	for i, v := range e.visits {
		if v == nil {
			continue
		}
		own := *v
		if c.visits[i] = &own; v.s != nil {
			own.s = v.s.clone(copies)
			own.s.res = &c.visits[i].res
		}
	}
	of := func(list []*seq) []*seq {
		out := make([]*seq, len(list), len(list)+1)
		for i, s := range list {
			out[i] = s.clone(copies)
		}
		return out
	}
	c.gpuFree, c.parked, c.leaving, c.fenced = slices.Clone(e.gpuFree), of(e.parked), of(e.leaving), of(e.fenced)
	c.front.ring, c.front.heap = of(e.front.ring), of(e.front.heap)
	if e.spec != nil {
		own := *e.spec
		own.rng = rand.New(&own.source)
		c.spec = &own
	}
	c.running, c.inbox, c.waiting.ring, c.waiting.heap = of(e.running), of(e.inbox), of(e.waiting.ring), of(e.waiting.heap)
	items := func(list []item) []item {
		own := slices.Clone(list)
		for i := range own {
			own[i].s = own[i].s.clone(copies)
		}
		return own
	}
	c.flight, c.cur = slices.Clone(e.flight), items(e.cur)
	for k := range c.flight {
		c.flight[k].items = items(c.flight[k].items)
	}
	return &c
}

// clone is the copy of s, one for every original.
func (s *seq) clone(copies map[*seq]*seq) *seq {
	if s == nil || copies[s] != nil {
		return copies[s]
	}
	c := *s
	c.held = held{N: s.held.N, IDs: slices.Clone(s.held.IDs), Registered: s.held.Registered}
	if c.gaps, c.nextFree = nil, nil; s.content != nil {
		c.content = s.content.Clone()
	}
	copies[s] = &c
	return &c
}
