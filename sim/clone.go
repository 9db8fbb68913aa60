package sim

import (
	"math/rand/v2"
	"slices"
)

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
