package sim

// This file copies a running engine, so that package cluster can simulate what would have happened
// to a rejected request.

import (
	"math/rand/v2"
	"slices"
)

// CanClone reports whether Clone supports this engine: one without a KV connector, derivatives,
// recorded step times or data-parallel ranks.
func (e *Engine) CanClone() bool {
	return e.connector == nil && e.grad == nil && e.timeline == nil && e.rank == nil
}

// Clone returns an independent copy of the engine in its present state, with other hooks. Both
// share the latency model, so they must not run at the same time. CanClone must be true.
func (e *Engine) Clone(hooks Hooks) *Engine {
	copies := map[*seq]*seq{}
	seqs := func(list []*seq) []*seq {
		out := make([]*seq, len(list), len(list)+1)
		for i, s := range list {
			out[i] = s.clone(copies)
		}
		return out
	}
	items := func(list []item) []item {
		own := slices.Clone(list)
		for i := range own {
			own[i].s = own[i].s.clone(copies)
		}
		return own
	}
	c := *e
	c.obs = nil
	c.kvLog = nil
	c.gaps = nil
	c.cfg.TokenGaps = false
	c.check = nil
	c.hooks = hooks
	c.reuse = memory{}
	c.skipped = nil
	c.rng = rand.New(&c.source)
	c.pool = e.pool.Clone()
	c.spec = e.spec.clone()
	c.out.Findings = slices.Clone(e.out.Findings)
	c.aborts = slices.Clone(e.aborts)
	c.outside.heap = slices.Clone(e.outside.heap)
	c.stageFree = slices.Clone(e.stageFree)
	if e.api != nil {
		api := *e.api
		c.api = &api
	}
	c.visits = make([]*visit, len(e.visits))
	for i, v := range e.visits {
		if v == nil {
			continue
		}
		own := *v
		c.visits[i] = &own
		if v.s != nil {
			own.s = v.s.clone(copies)
			own.s.res = &own.res
		}
	}
	c.transfers.e = &c
	c.transfers.parked = seqs(e.transfers.parked)
	c.transfers.leaving = seqs(e.transfers.leaving)
	c.frees.waiting = slices.Clone(e.frees.waiting)
	for i := range c.frees.waiting {
		c.frees.waiting[i].held = c.frees.waiting[i].held.clone()
	}
	c.front.ring = seqs(e.front.ring)
	c.front.heap = seqs(e.front.heap)
	c.waiting.ring = seqs(e.waiting.ring)
	c.waiting.heap = seqs(e.waiting.heap)
	c.running = seqs(e.running)
	c.inbox = seqs(e.inbox)
	c.cur = items(e.cur)
	c.flight = slices.Clone(e.flight)
	for k := range c.flight {
		c.flight[k].items = items(c.flight[k].items)
	}
	return &c
}

// clone returns the copy of s, and always the same one: copies maps originals to copies that were
// made already, so that pointers to one request stay equal.
func (s *seq) clone(copies map[*seq]*seq) *seq {
	if s == nil || copies[s] != nil {
		return copies[s]
	}
	c := *s
	c.held = s.held.clone()
	c.gaps = nil
	c.nextFree = nil
	if s.content != nil {
		c.content = s.content.Clone()
	}
	copies[s] = &c
	return &c
}

// clone returns a copy with its own list of blocks.
func (h *held) clone() held {
	c := *h
	c.IDs = slices.Clone(h.IDs)
	return c
}
