package autoscale

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// Demand is one server (a model of one service class) that needs replicas.
type Demand struct {
	Name        string    `yaml:"name"`
	Priority    int       `yaml:"priority"` // 1 is served first
	RateRPS     float64   `yaml:"rate_rps"` // arrivals to be served, requests per second
	MinReplicas int       `yaml:"min_replicas"`
	Current     Placement `yaml:"current"` // where it runs now; the zero value: nowhere
	Keep        bool      `yaml:"keep"`    // stay on the current accelerator
	Options     []Option  `yaml:"-"`
}

// Option is an accelerator a demand can be served on.
type Option struct {
	Accelerator string
	Type        string  // what Fleet.Capacity counts
	Units       int     // of Type per replica
	UnitCost    float64 // cents per unit and hour
	RateRPS     float64 // largest rate of one replica (Sizing.RateRPS)
}

// Placement is replicas of one accelerator.
type Placement struct {
	Accelerator string  `yaml:"accelerator"`
	Replicas    int     `yaml:"replicas"`
	Cost        float64 `yaml:"-"` // cents per hour
}

// Fleet is what there is to allocate.
type Fleet struct {
	Capacity  map[string]int `yaml:"capacity"`  // units by accelerator type
	Unlimited bool           `yaml:"unlimited"` // every demand gets its cheapest option
	Policy    policy         `yaml:"policy"`
	// DelayBestEffort serves all priorities before the leftovers are shared.
	DelayBestEffort bool `yaml:"delay_best_effort"`
}

// policy says who gets what is left when a demand cannot be met in full.
type policy string

// The policies of pkg/config/types.go@b08b1c7.
const (
	policyNone               policy = "None"
	policyPriorityExhaustive policy = "PriorityExhaustive"
	policyPriorityRoundRobin policy = "PriorityRoundRobin"
	policyRoundRobin         policy = "RoundRobin"
)

// policies lists them.
var policies = []policy{policyNone, policyPriorityExhaustive, policyPriorityRoundRobin, policyRoundRobin}

// candidate is one option of a demand with its replicas.
type candidate struct {
	Placement
	typ   string
	units int // per replica
	value float64
}

func (c *candidate) need() int { return c.units * c.Replicas }

// accelPenalty weighs a change of accelerator (pkg/config/defaults.go@b08b1c7).
const accelPenalty = 0.1

// transition is the penalty of moving from one placement to another
// (pkg/core/allocation.go@b08b1c7): signed, 0 when nothing changes.
func transition(from, to Placement) float64 {
	switch {
	case from.Accelerator == to.Accelerator && from.Replicas == to.Replicas:
		return 0
	case from.Accelerator == to.Accelerator:
		return to.Cost - from.Cost
	}
	return float64(accelPenalty*(from.Cost+to.Cost)) + to.Cost - from.Cost
}

// maxReplicas is beyond any capacity; a rate that wants more is one that nobody serves.
const maxReplicas = 1e9

// candidates are a demand's options with replicas = ceil(rate/rate of one) and
// cost = unit cost x units x replicas, by value, then accelerator. Without load
// and minimum it needs nothing.
func (d *Demand) candidates() []candidate {
	if d.RateRPS == 0 && d.MinReplicas == 0 {
		return []candidate{{value: transition(d.Current, Placement{})}}
	}
	var out []candidate
	for _, o := range d.Options {
		if d.Keep && d.Current.Accelerator != "" && o.Accelerator != d.Current.Accelerator {
			continue
		}
		n := max(int(math.Min(maxReplicas, math.Ceil(d.RateRPS/o.RateRPS))), d.MinReplicas)
		p := Placement{Accelerator: o.Accelerator, Replicas: n, Cost: float64(o.UnitCost * float64(o.Units) * float64(n))}
		out = append(out, candidate{Placement: p, typ: o.Type, units: o.Units, value: transition(d.Current, p)})
	}
	slices.SortStableFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.Accelerator, b.Accelerator))
	})
	return out
}

// Check names the first impossible value.
func (f *Fleet) Check(demands []Demand) error {
	if !f.Unlimited && !slices.Contains(policies, f.Policy) {
		return trace.Errorf(badModel, "saturation policy: got %q, want %s", f.Policy, trace.OneOf(policies))
	}
	for _, typ := range slices.Sorted(maps.Keys(f.Capacity)) {
		if f.Capacity[typ] < 0 {
			return trace.Errorf(badModel, "capacity of %q: got %d units, want >= 0", typ, f.Capacity[typ])
		}
	}
	names := map[string]bool{}
	for i := range demands {
		d := &demands[i]
		if d.Name == "" || names[d.Name] {
			return trace.Errorf(badModel, "server %q: want a name, each once", d.Name)
		}
		names[d.Name] = true
		if err := d.check(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Demand) check() error {
	if !(d.RateRPS >= 0) || math.IsInf(d.RateRPS, 0) || d.MinReplicas < 0 || d.Priority < 1 {
		return trace.Errorf(badModel, "server %q: got rate %g/s, at least %d replicas, priority %d, want finite >= 0, >= 0, >= 1", d.Name,
			d.RateRPS, d.MinReplicas, d.Priority)
	}
	seen := map[string]bool{}
	for _, o := range d.Options {
		if o.Accelerator == "" || seen[o.Accelerator] || o.Units < 1 || !(o.UnitCost >= 0) || !(o.RateRPS > 0) || math.IsInf(o.UnitCost, 0) {
			return trace.Errorf(badModel, "server %q on %q: got %d units at %g cents/h and %g requests/s, want a name once, >= 1, >= 0 and > 0",
				d.Name, o.Accelerator, o.Units, o.UnitCost, o.RateRPS)
		}
		seen[o.Accelerator] = true
	}
	return nil
}

// plan sums up what was given.
func (f *Fleet) plan(given []queueGiven, left map[string]int) *QueuePlan {
	p := &QueuePlan{Servers: given, Unserved: []string{}, Left: map[string]int{}}
	slices.SortStableFunc(p.Servers, func(a, b queueGiven) int { return cmp.Compare(a.Name, b.Name) })
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

func (f *Fleet) available() map[string]int {
	left := map[string]int{}
	maps.Copy(left, f.Capacity)
	return left
}
