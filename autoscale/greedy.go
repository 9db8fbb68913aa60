package autoscale

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
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
	return f.plan(stat.Map(entries, func(e *entry) queueGiven { return e.given }), left), nil
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
	turns := stat.Map(entries, func(e *entry) *turn { return &turn{e: e} })
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

// optimumServers is the largest fleet that Optimum solves.
const optimumServers = 10

// Optimum is the best allocation in full: as many demands of the first priority
// as possible, then of the second, and so on; among those the smallest sum of
// values. Who got nothing shares what is left by the fleet's policy, after its own priority
// or after all of them, as in Allocate. It searches all allocations with bounds, and is nil
// for more than optimumServers demands.
func (f *Fleet) Optimum(demands []Demand) (*QueuePlan, error) {
	if err := f.Check(demands); err != nil || len(demands) > optimumServers {
		return nil, err
	}
	var all []*entry
	for i := range demands {
		all = append(all, newEntry(&demands[i]))
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.d.Priority, b.d.Priority), cmp.Compare(a.d.Name, b.d.Name))
	})
	groups := [][]*entry{all}
	if f.Policy != policyNone && !f.DelayBestEffort {
		groups = byPriority(all)
	}
	left := f.available()
	for _, group := range groups {
		unserved := f.best(group, left)
		if !f.Unlimited {
			f.bestEffort(unserved, left)
		}
	}
	return f.plan(stat.Map(all, func(e *entry) queueGiven { return e.given }), left), nil
}

// best gives a group its best allocation in full, and returns whom that leaves with nothing.
func (f *Fleet) best(group []*entry, left map[string]int) (unserved []*entry) {
	if len(group) == 0 {
		return nil
	}
	s := search{all: group, left: left, unlimited: f.Unlimited}
	s.prepare()
	s.visit(0, 0)
	for i, e := range group {
		if k := s.bestPick[i]; k >= 0 {
			e.take(&e.c[k], e.c[k].Replicas)
			left[e.c[k].typ] -= e.c[k].need()
		} else {
			unserved = append(unserved, e)
		}
	}
	return unserved
}

// search is depth first over the demands in priority order.
type search struct {
	all       []*entry
	left      map[string]int
	unlimited bool
	least     []float64 // sum of the smallest values of the demands from i on
	pick      []int     // candidate of each demand, -1 = none
	served    []int     // demands served so far per priority group
	group     []int     // of each demand
	after     []int     // demands of the same group from i on that could be served
	first     []int     // index of each group's first demand

	bestPick   []int
	bestServed []int
	bestValue  float64
}

func (s *search) prepare() {
	n := len(s.all)
	s.pick, s.bestPick = make([]int, n), make([]int, n)
	s.group, s.after, s.least = make([]int, n), make([]int, n+1), make([]float64, n+1)
	groups := 0
	for i, e := range s.all {
		if i > 0 && e.d.Priority != s.all[i-1].d.Priority {
			groups++
		}
		if i == 0 || groups > s.group[i-1] {
			s.first = append(s.first, i)
		}
		s.group[i] = groups
		s.bestPick[i] = -1
	}
	for i := n - 1; i >= 0; i-- {
		if i+1 < n && s.group[i+1] == s.group[i] {
			s.after[i] = s.after[i+1]
		}
		s.least[i] = s.least[i+1]
		if len(s.all[i].c) > 0 {
			s.after[i]++
			s.least[i] += s.all[i].c[0].value
		}
	}
	s.served, s.bestServed = make([]int, groups+1), make([]int, groups+1)
	s.bestServed[0] = -1
	s.bestValue = math.Inf(1)
}

// hopeless reports whether nothing from demand i on can beat the best: fewer
// served in the first group that differs, or, with everything left served, no
// smaller value.
func (s *search) hopeless(i int, value float64) bool {
	for g := range s.served {
		most := s.served[g]
		if i < len(s.all) && g >= s.group[i] {
			most += s.after[max(i, s.first[g])]
		}
		if most != s.bestServed[g] {
			return most < s.bestServed[g]
		}
	}
	return value+s.least[i] >= s.bestValue
}

func (s *search) visit(i int, value float64) {
	if s.hopeless(i, value) {
		return
	}
	if i == len(s.all) {
		s.bestValue = value
		copy(s.bestPick, s.pick)
		copy(s.bestServed, s.served)
		return
	}
	e := s.all[i]
	for k := range e.c {
		c := &e.c[k]
		if !s.unlimited && s.left[c.typ] < c.need() {
			continue
		}
		s.left[c.typ] -= c.need()
		s.pick[i] = k
		s.served[s.group[i]]++
		s.visit(i+1, value+c.value)
		s.served[s.group[i]]--
		s.left[c.typ] += c.need()
	}
	s.pick[i] = -1
	s.visit(i+1, value)
}
