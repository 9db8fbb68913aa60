package autoscale

// This file allocates the replicas of a fleet greedily, as workload-variant-autoscaler does
// (pkg/solver/greedy.go@b08b1c7). optimum.go has the best allocation to compare with.
//
// The value of an allocation is its transition penalty, in cents per hour; smaller is better. The
// regret of a demand is by how much the value rises if it does not get its present choice but the
// next one.

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Demand is one server that needs replicas: a model in one service class, with the accelerators
// that it can run on.
type Demand struct {
	Name        string    `yaml:"name"`
	Priority    int       `yaml:"priority"` // 1 is served first
	RateRPS     float64   `yaml:"rate_rps"` // arrivals to be served, requests per second
	MinReplicas int       `yaml:"min_replicas"`
	Current     Placement `yaml:"current"` // its present replicas; zero for none
	Keep        bool      `yaml:"keep"`    // stay on the accelerator of Current
	Options     []Option  `yaml:"-"`       // the accelerators it can run on
}

// Option is an accelerator that a demand can be served on.
type Option struct {
	Accelerator string
	Type        string  // accelerator type, the key of Fleet.Capacity
	Units       int     // units of Type that one replica takes
	UnitCost    float64 // cents per unit and hour
	RateRPS     float64 // largest rate of one replica (Sizing.RateRPS)
	DemandRPS   float64 // the demand in requests per second, if it was given in tokens; 0 for Demand.RateRPS
}

// Placement is a number of replicas on one accelerator.
type Placement struct {
	Accelerator string  `yaml:"accelerator"`
	Replicas    int     `yaml:"replicas"`
	Cost        float64 `yaml:"-"` // cents per hour
}

// Fleet is the devices that can be allocated, and how.
type Fleet struct {
	Capacity  map[string]int `yaml:"capacity"`  // units by accelerator type
	Unlimited bool           `yaml:"unlimited"` // every demand gets its cheapest option
	Policy    policy         `yaml:"policy"`
	// DelayBestEffort divides what is left among unserved demands only after all priorities were
	// served.
	DelayBestEffort bool `yaml:"delay_best_effort"`
}

// policy is the rule that divides the remaining devices among demands that cannot be met in full.
type policy string

// The policies of pkg/config/types.go@b08b1c7.
const (
	policyNone               policy = "None"
	policyPriorityExhaustive policy = "PriorityExhaustive"
	policyPriorityRoundRobin policy = "PriorityRoundRobin"
	policyRoundRobin         policy = "RoundRobin"
)

// policyBestEffortLast is the rule of the autoscaler's first design: all demands, by priority, are
// first met in full where that is possible, and what is left is then given to the others by
// priority, as many replicas as fit. It is PriorityExhaustive with DelayBestEffort, under a name of
// its own, because the two differ: a demand of high priority that cannot be met in full takes
// nothing from one of lower priority that can.
const policyBestEffortLast policy = "BestEffortLast"

// policies are the valid values of Fleet.Policy.
var policies = []policy{policyNone, policyPriorityExhaustive, policyPriorityRoundRobin, policyRoundRobin, policyBestEffortLast}

// dividesLast reports whether what is left is divided only after the demands of all priorities were
// met in full, and not after each priority.
func (f *Fleet) dividesLast() bool { return f.DelayBestEffort || f.Policy == policyBestEffortLast }

// candidate is one option of a demand with the number of replicas that it needs.
type candidate struct {
	Placement
	typ   string  // accelerator type
	units int     // per replica
	value float64 // transition penalty from the demand's present placement
}

// unitsNeeded returns the units of the accelerator type that all replicas need.
func (c *candidate) unitsNeeded() int { return c.units * c.Replicas }

// accelPenalty is the penalty of a change of accelerator, as a share of both costs
// (pkg/config/defaults.go@b08b1c7).
const accelPenalty = 0.1

// transition returns the penalty of moving from one placement to another, in cents per hour
// (pkg/core/allocation.go@b08b1c7): the difference of the costs, plus accelPenalty of both if the
// accelerator changes. It is negative for a cheaper placement on the same accelerator.
func transition(from, to Placement) float64 {
	switch {
	case from.Accelerator == to.Accelerator && from.Replicas == to.Replicas:
		return 0
	case from.Accelerator == to.Accelerator:
		return to.Cost - from.Cost
	}
	return accelPenalty*(from.Cost+to.Cost) + to.Cost - from.Cost
}

// maxReplicas is more than any fleet can hold. A rate that would need more replicas gets this
// number and so cannot be placed.
const maxReplicas = 1e9

// candidates returns the demand's options with the replicas that they need, ceil(rate / rate of one
// replica), in increasing order of value, then by accelerator. A demand without load and minimum
// has one candidate that needs nothing.
func (d *Demand) candidates() []candidate {
	if d.RateRPS == 0 && d.MinReplicas == 0 {
		return []candidate{{value: transition(d.Current, Placement{})}}
	}
	var out []candidate
	for _, o := range d.Options {
		if d.Keep && d.Current.Accelerator != "" && o.Accelerator != d.Current.Accelerator {
			continue
		}
		n := max(int(math.Min(maxReplicas, math.Ceil(cmp.Or(o.DemandRPS, d.RateRPS)/o.RateRPS))), d.MinReplicas)
		p := Placement{
			Accelerator: o.Accelerator,
			Replicas:    n,
			Cost:        o.UnitCost * float64(o.Units) * float64(n),
		}
		out = append(out, candidate{
			Placement: p,
			typ:       o.Type,
			units:     o.Units,
			value:     transition(d.Current, p),
		})
	}
	stat.SortStable(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.Accelerator, b.Accelerator))
	})
	return out
}

// Check returns an error for the first impossible value among those that [ReadProblem] cannot
// check: names, and the options taken from queue.json.
func (f *Fleet) Check(demands []Demand) error {
	if !f.Unlimited && !slices.Contains(policies, f.Policy) {
		return trace.Errorf(badModel, "saturation policy: got %q, want %s", f.Policy, trace.OneOf(policies))
	}
	names := map[string]bool{}
	for i := range demands {
		d := &demands[i]
		if d.Name == "" || names[d.Name] {
			return trace.Errorf(badModel, "server %q: want a name, each once", d.Name)
		}
		names[d.Name] = true
		for _, o := range d.Options {
			if o.Accelerator == "" || o.Units < 1 || !(o.RateRPS > 0) {
				return trace.Errorf(badModel,
					"server %q on %q: got %d units and %g requests/s, want a name, >= 1 and > 0", d.Name, o.Accelerator,
					o.Units, o.RateRPS)
			}
		}
	}
	return nil
}

// plan returns the allocation `given` as a document, with its totals and the units left of each
// type.
func (f *Fleet) plan(given []queueGiven, left map[string]int) *QueuePlan {
	p := &QueuePlan{Servers: given, Unserved: []string{}, Left: map[string]int{}}
	stat.SortStable(p.Servers, func(a, b queueGiven) int { return cmp.Compare(a.Name, b.Name) })
	for i := range p.Servers {
		g := &p.Servers[i]
		p.Cost += g.Cost
		p.Value += g.Value
		if g.Replicas == 0 && !g.Full {
			p.Unserved = append(p.Unserved, g.Name)
		}
	}
	for typ := range f.Capacity {
		p.Left[typ] = left[typ]
	}
	return p
}

// available returns the units of each accelerator type that can be allocated.
func (f *Fleet) available() map[string]int {
	left := map[string]int{}
	maps.Copy(left, f.Capacity)
	return left
}

// entry is the state of one demand in the greedy allocation.
type entry struct {
	demand     *Demand
	candidates []candidate // by value
	choice     int         // index of the candidate that is tried next
	regret     float64     // value of the candidate after that, minus the value of this one
	given      queueGiven
}

// newEntry returns the entry of a demand that has no replicas yet.
func newEntry(d *Demand) *entry {
	return &entry{
		demand:     d,
		candidates: d.candidates(),
		given:      queueGiven{Name: d.Name, Priority: d.Priority, RateRPS: d.RateRPS},
	}
}

// updateRegret sets the regret of the present choice; infinite if it is the last one.
func (e *entry) updateRegret() {
	e.regret = math.Inf(1) // the last choice
	if e.choice+1 < len(e.candidates) {
		e.regret = e.candidates[e.choice+1].value - e.candidates[e.choice].value
	}
}

// compare orders entries by priority, then largest regret, then largest value, as
// pkg/solver/greedy.go does, and then by name, so that the order of the input does not matter.
func (e *entry) compare(o *entry) int {
	return cmp.Or(cmp.Compare(e.demand.Priority, o.demand.Priority), cmp.Compare(o.regret, e.regret),
		cmp.Compare(o.candidates[o.choice].value, e.candidates[e.choice].value),
		cmp.Compare(e.demand.Name, o.demand.Name))
}

// assign gives the demand a number of replicas of candidate c; fewer than c needs if it cannot be
// met in full. Cost and value are then those of all replicas times the share that is given, as allocateMaximally and
// allocateEqually of pkg/solver/greedy.go@b08b1c7 scale them. The value of a share is therefore not the penalty of a
// transition to so many replicas.
func (e *entry) assign(c *candidate, replicas int) {
	share := 1.0 // a candidate that needs no replicas is met in full: its value is what giving up the present ones saves
	if c.Replicas > 0 {
		share = float64(replicas) / float64(c.Replicas)
	}
	e.given.Accelerator = c.Accelerator
	e.given.Replicas = replicas
	e.given.Cost = c.Cost * share
	e.given.Value = c.value * share
	e.given.Wanted = c.Replicas
	e.given.Full = replicas == c.Replicas
}

// Allocate places demands on the fleet (pkg/solver/greedy.go@b08b1c7). In the order of priority,
// and then of the largest regret, each demand gets its best option that still fits. The policy
// divides what is left among the demands that could not be met: after each priority, or at the end
// with DelayBestEffort. Ties are decided by name. With an unlimited fleet every demand gets its
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
		if len(e.candidates) == 0 {
			continue
		}
		e.updateRegret()
		waiting = append(waiting, e)
	}
	left := f.available()
	slices.SortFunc(waiting, (*entry).compare)
	switch {
	case f.Unlimited:
		for _, e := range waiting {
			e.assign(&e.candidates[0], e.candidates[0].Replicas)
		}
	case f.dividesLast():
		f.bestEffort(greedy(waiting, left), left)
	default:
		for _, group := range byPriority(waiting) {
			f.bestEffort(greedy(group, left), left)
		}
	}
	var values []queueGiven
	for _, e := range entries {
		values = append(values, e.given)
	}
	return f.plan(values, left), nil
}

// greedy gives each entry its best candidate that fits into left, the free units by accelerator type.
// entries are sorted by compare, and an entry whose choice does not fit goes back into the queue where
// the regret of its next choice puts it. greedy returns the entries of which no candidate fits, in the
// order in which they ran out of choices.
func greedy(entries []*entry, left map[string]int) (unserved []*entry) {
	queue := slices.Clone(entries)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		c := &e.candidates[e.choice]
		if left[c.typ] >= c.unitsNeeded() {
			left[c.typ] -= c.unitsNeeded()
			e.assign(c, c.Replicas)
			continue
		}
		e.choice++
		if e.choice == len(e.candidates) {
			unserved = append(unserved, e)
			continue
		}
		e.updateRegret()
		i, _ := slices.BinarySearchFunc(queue, e, (*entry).compare)
		queue = slices.Insert(queue, i, e)
	}
	return unserved
}

// byPriority divides sorted entries into groups of equal priority.
func byPriority(entries []*entry) [][]*entry {
	var groups [][]*entry
	for i, e := range entries {
		if i == 0 || e.demand.Priority != entries[i-1].demand.Priority {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], e)
	}
	return groups
}

// bestEffort divides the accelerators in left (free units by type) among the entries that got no
// allocation, by the fleet's policy.
func (f *Fleet) bestEffort(entries []*entry, left map[string]int) {
	switch f.Policy {
	case policyPriorityExhaustive, policyBestEffortLast:
		for _, e := range entries {
			e.assignMost(left)
		}
	case policyPriorityRoundRobin:
		for _, group := range byPriority(entries) {
			roundRobin(group, left)
		}
	case policyRoundRobin:
		roundRobin(entries, left)
	}
}

// assignMost gives the entry as many replicas as fit of the first candidate of which at least one
// fits.
func (e *entry) assignMost(left map[string]int) {
	for i := range e.candidates {
		c := &e.candidates[i]
		if n := min(left[c.typ]/max(1, c.units), c.Replicas); n > 0 {
			left[c.typ] -= n * c.units
			e.assign(c, n)
			return
		}
	}
}

// roundRobin gives the entries one replica at a time in turn, each of its first candidate of which
// one fits.
func roundRobin(entries []*entry, left map[string]int) {
	type turn struct {
		e *entry
		c *candidate // the one it gets replicas of; nil before its first turn
		n int        // replicas so far
	}
	var turns []*turn
	for _, e := range entries {
		turns = append(turns, &turn{e: e})
	}
	for len(turns) > 0 {
		turns = slices.DeleteFunc(turns, func(t *turn) bool {
			if t.c == nil {
				i := slices.IndexFunc(t.e.candidates, func(c candidate) bool {
					return c.units > 0 && left[c.typ] >= c.units
				})
				if i < 0 {
					return true // nothing fits: it gets none
				}
				t.c = &t.e.candidates[i]
			}
			if left[t.c.typ] < t.c.units || t.n == t.c.Replicas {
				return true // it keeps what it has
			}
			left[t.c.typ] -= t.c.units
			t.n++
			t.e.assign(t.c, t.n)
			return false
		})
	}
}
