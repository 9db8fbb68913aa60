package sim

import (
	"math/rand/v2"
	"slices"
)

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
	c.obs, c.kvLog, c.check, c.hooks, c.cfg.TokenGaps = nil, nil, nil, hooks, false
	c.pool = e.pool.Clone()
	c.spare, c.skipped, c.hits, c.freeVisits, c.contents, c.free, c.spareGaps = nil, nil, nil, nil, nil, freeList{}, nil
	c.out.Findings, c.aborts, c.outside.heap = slices.Clone(e.out.Findings), slices.Clone(e.aborts), slices.Clone(e.outside.heap)
	c.rng = rand.New(&c.source)
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
