package autoscale

// This file finds the best allocation of a small fleet by exhaustive search with bounds, to judge
// the greedy one (allocate.go).

import (
	"cmp"
	"math"
	"slices"
)

// optimumServers is the largest number of demands that Optimum solves.
const optimumServers = 10

// Optimum returns the best allocation that serves demands in full: as many demands of the first
// priority as possible, then of the second, and so on; among equally good ones that with the
// smallest sum of values. Demands that get nothing share the rest by the fleet's policy, after
// their own priority or after all of them, as in Allocate. It returns nil for more than
// optimumServers demands.
func (f *Fleet) Optimum(demands []Demand) (*QueuePlan, error) {
	if err := f.Check(demands); err != nil || len(demands) > optimumServers {
		return nil, err
	}
	var all []*entry
	for i := range demands {
		all = append(all, newEntry(&demands[i]))
	}
	slices.SortFunc(all, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.demand.Priority, b.demand.Priority), cmp.Compare(a.demand.Name, b.demand.Name))
	})
	groups := [][]*entry{all}
	if f.Policy != policyNone && !f.dividesLast() {
		groups = byPriority(all)
	}
	left := f.available()
	for _, group := range groups {
		unserved := f.best(group, left)
		if !f.Unlimited {
			f.bestEffort(unserved, left)
		}
	}
	var values []queueGiven
	for _, e := range all {
		values = append(values, e.given)
	}
	return f.plan(values, left), nil
}

// best gives the demands of a group their best allocation in full, and returns the entries that got
// nothing.
func (f *Fleet) best(group []*entry, left map[string]int) (unserved []*entry) {
	if len(group) == 0 {
		return nil
	}
	s := search{all: group, left: left, unlimited: f.Unlimited}
	s.prepare()
	s.visit(0, 0)
	for i, e := range group {
		if k := s.bestPick[i]; k >= 0 {
			e.assign(&e.candidates[k], e.candidates[k].Replicas)
			left[e.candidates[k].typ] -= e.candidates[k].unitsNeeded()
		} else {
			unserved = append(unserved, e)
		}
	}
	return unserved
}

// search is a depth-first search over the demands of a group in the order of priority.
type search struct {
	all       []*entry
	left      map[string]int
	unlimited bool
	least     []float64 // sum of the smallest values of the demands from i on, of any priority
	pick      []int     // candidate of each demand, -1 = none
	served    []int     // demands served so far, by group of equal priority
	group     []int     // number of each demand's group, in the order of priority
	after     []int     // number of demands of the same priority from i on that could be served
	first     []int     // index of each group's first demand

	bestPick, bestServed []int
	bestValue            float64
}

// prepare computes the bounds.
func (s *search) prepare() {
	n := len(s.all)
	s.pick = make([]int, n)
	s.bestPick = make([]int, n)
	s.group = make([]int, n)
	s.after = make([]int, n+1)
	s.least = make([]float64, n+1)
	groups := 0
	for i, e := range s.all {
		if i > 0 && e.demand.Priority != s.all[i-1].demand.Priority {
			groups++
		}
		if i == 0 || groups > s.group[i-1] {
			s.first = append(s.first, i)
		}
		s.group[i] = groups
		s.bestPick[i] = -1
	}
	// From demand i on: how many of its priority can still be served, and the least sum of values.
	for i := n - 1; i >= 0; i-- {
		if i+1 < n && s.group[i+1] == s.group[i] {
			s.after[i] = s.after[i+1]
		}
		s.least[i] = s.least[i+1]
		if len(s.all[i].candidates) > 0 {
			s.after[i]++
			s.least[i] += s.all[i].candidates[0].value
		}
	}
	s.served = make([]int, groups+1)
	s.bestServed = make([]int, groups+1)
	s.bestServed[0] = -1
	s.bestValue = math.Inf(1)
}

// hopeless reports whether no allocation of demand i and those after it can be better than the best
// so far: fewer served in the first priority that differs or, even if all the rest is served, no
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

// visit tries every candidate of demand i, and none, given the sum of values so far.
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
	for k := range e.candidates {
		c := &e.candidates[k]
		if !s.unlimited && s.left[c.typ] < c.unitsNeeded() {
			continue
		}
		s.left[c.typ] -= c.unitsNeeded()
		s.pick[i] = k
		s.served[s.group[i]]++
		s.visit(i+1, value+c.value)
		s.served[s.group[i]]--
		s.left[c.typ] += c.unitsNeeded()
	}
	s.pick[i] = -1
	s.visit(i+1, value)
}
