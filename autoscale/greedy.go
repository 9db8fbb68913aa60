package autoscale

import (
	"cmp"
	"math"
	"slices"
)

// entry is a demand on its way through the greedy allocation.
type entry struct {
	d      *Demand
	c      []candidate // by value
	at     int         // the candidate it asks for
	regret float64     // what falling to the next candidate would cost
	given  queueGiven
}

func newEntry(d *Demand) *entry {
	return &entry{d: d, c: d.candidates(), given: queueGiven{Name: d.Name, Priority: d.Priority, RateRPS: d.RateRPS}}
}

func (e *entry) weigh() {
	e.regret = math.Inf(1) // the last choice
	if e.at+1 < len(e.c) {
		e.regret = e.c[e.at+1].value - e.c[e.at].value
	}
}

// compare orders by priority, then largest regret, then largest value, then
// name: the last is ours, so that no order of the input matters.
func (e *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(e.d.Priority, o.d.Priority), cmp.Compare(o.regret, e.regret),
		cmp.Compare(o.c[o.at].value, e.c[e.at].value), cmp.Compare(e.d.Name, o.d.Name))
}

func (e *entry) take(c *candidate, replicas int) {
	share := 1.0
	if c.Replicas > 0 {
		share = float64(replicas) / float64(c.Replicas)
	}
	e.given.Accelerator, e.given.Replicas, e.given.Cost = c.Accelerator, replicas, c.Cost*share
	e.given.Value, e.given.Wanted, e.given.Full = c.value*share, c.Replicas, replicas == c.Replicas
}

// Allocate places demands on a fleet the way workload-variant-autoscaler does
// (pkg/solver/greedy.go@b08b1c7): by priority, largest regret first, each takes
// its best option or falls to the next; what cannot be met in full is left to
// the policy. Equal choices go by name. Unlimited fleets give every demand its
// best option.
func (f *Fleet) Allocate(demands []Demand) (*QueuePlan, error) {
	if err := f.Check(demands); err != nil {
		return nil, err
	}
	entries := make([]*entry, 0, len(demands))
	var waiting []*entry
	for i := range demands {
		e := newEntry(&demands[i])
		entries = append(entries, e)
		if len(e.c) == 0 {
			continue
		}
		e.weigh()
		waiting = append(waiting, e)
	}
	left := f.available()
	if f.Unlimited {
		for _, e := range waiting {
			e.take(&e.c[0], e.c[0].Replicas)
		}
	} else {
		slices.SortFunc(waiting, (*entry).compare)
		f.share(waiting, left)
	}
	given := make([]queueGiven, len(entries))
	for i, e := range entries {
		given[i] = e.given
	}
	return f.plan(given, left), nil
}

// share serves the entries, priority by priority unless best effort is delayed.
func (f *Fleet) share(entries []*entry, left map[string]int) {
	if f.DelayBestEffort {
		f.bestEffort(greedy(entries, left), left)
		return
	}
	for _, group := range byPriority(entries) {
		f.bestEffort(greedy(group, left), left)
	}
}

// greedy gives each entry its best affordable candidate and returns those
// without any, in the order they ran out of choices.
func greedy(entries []*entry, left map[string]int) (unserved []*entry) {
	queue := slices.Clone(entries)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		c := &e.c[e.at]
		if left[c.typ] >= c.need() {
			left[c.typ] -= c.need()
			e.take(c, c.Replicas)
			continue
		}
		if e.at++; e.at == len(e.c) {
			unserved = append(unserved, e)
			continue
		}
		e.weigh()
		i, _ := slices.BinarySearchFunc(queue, e, (*entry).compare)
		queue = slices.Insert(queue, i, e)
	}
	return unserved
}

func byPriority(entries []*entry) [][]*entry {
	var groups [][]*entry
	for i, e := range entries {
		if i == 0 || e.d.Priority != entries[i-1].d.Priority {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], e)
	}
	return groups
}

// bestEffort shares what is left among the entries that got nothing.
func (f *Fleet) bestEffort(entries []*entry, left map[string]int) {
	switch f.Policy {
	case policyPriorityExhaustive:
		for _, e := range entries {
			e.takeMost(left)
		}
	case policyPriorityRoundRobin:
		for _, group := range byPriority(entries) {
			roundRobin(group, left)
		}
	case policyRoundRobin:
		roundRobin(entries, left)
	}
}

// takeMost gives an entry as many replicas as fit of the first candidate that fits at all.
func (e *entry) takeMost(left map[string]int) {
	for i := range e.c {
		c := &e.c[i]
		if n := min(left[c.typ]/max(1, c.units), c.Replicas); n > 0 {
			left[c.typ] -= n * c.units
			e.take(c, n)
			return
		}
	}
}

// roundRobin gives one replica at a time, each entry of the first candidate of
// which one fits.
func roundRobin(entries []*entry, left map[string]int) {
	type turn struct {
		e *entry
		c *candidate
		n int
	}
	var turns []*turn
	for _, e := range entries {
		turns = append(turns, &turn{e: e})
	}
	for len(turns) > 0 {
		turns = slices.DeleteFunc(turns, func(t *turn) bool {
			if t.c == nil {
				i := slices.IndexFunc(t.e.c, func(c candidate) bool { return c.units > 0 && left[c.typ] >= c.units })
				if i < 0 {
					return true
				}
				t.c = &t.e.c[i]
			}
			if left[t.c.typ] < t.c.units || t.n == t.c.Replicas {
				return true
			}
			left[t.c.typ] -= t.c.units
			t.n++
			t.e.take(t.c, t.n)
			return false
		})
	}
}
