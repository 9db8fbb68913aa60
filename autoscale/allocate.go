package autoscale

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Problem is a fleet and what it is to serve, in YAML:
//
//	policy: None                            # None, PriorityExhaustive, PriorityRoundRobin, RoundRobin
//	unlimited: false
//	delay_best_effort: false
//	capacity: {H100: 16, A100: 24}          # devices, under any of their names
//	unit_cost: {H100: 400, A100: 250}       # cents per device and hour
//	servers:
//	  - name: chat
//	    model: meta-llama/Llama-3.1-8B      # every server of queue.json with it is an option
//	    parameters: [h100-monday]           # or only these, by id
//	    priority: 1                         # 1 first
//	    rate_rps: 12
//	    tps: 2400                           # in place of rate_rps: output tokens per second
//	    ttft_ms: 500                        # targets are means; 0 or absent: none
//	    itl_ms: 40
//	    min_replicas: 1
//	    current: {accelerator: H100, replicas: 2}
//	    keep: false
type Problem struct {
	Fleet    `yaml:",inline"`
	UnitCost map[string]float64 `yaml:"unit_cost"`
	Servers  []problemServer    `yaml:"servers"`
}

// problemServer is one demand, and what its options are sized for.
type problemServer struct {
	Demand `yaml:",inline"`
	Model  string `yaml:"model"`
	// Parameters are the ids of the servers of queue.json that count; empty: all of the model.
	Parameters   []string `yaml:"parameters"`
	TPS          float64  `yaml:"tps"` // output tokens per second, in place of a rate
	TTFTMs       float64  `yaml:"ttft_ms"`
	ITLMs        float64  `yaml:"itl_ms"`
	PromptTokens float64  `yaml:"prompt_tokens"`
	OutputTokens float64  `yaml:"output_tokens"`
}

// ReadProblem reads an allocation problem strictly; name is the file in messages.
func ReadProblem(data []byte, name string) (*Problem, error) {
	p := &Problem{Fleet: Fleet{Policy: policyNone}}
	if err := files.DecodeYAML(data, name, p); err != nil {
		if at := (*trace.SyntaxError)(nil); errors.As(err, &at) {
			return nil, err
		}
		at, _ := trace.YAMLError(name, err)
		at.Code = badModel
		return nil, at
	}
	if len(p.Servers) == 0 {
		return nil, trace.Errorf(badModel, "%s: got no servers, want at least one", name)
	}
	for i := range p.Servers {
		s := &p.Servers[i]
		s.Priority = cmp.Or(s.Priority, 1)
		for _, x := range []number{{"rate_rps", s.RateRPS, 0}, {"tps", s.TPS, 0}, {"ttft_ms", s.TTFTMs, 0}, {"itl_ms", s.ITLMs, 0},
			{"prompt_tokens", s.PromptTokens, 0}, {"output_tokens", s.OutputTokens, 0}, {"min_replicas", float64(s.MinReplicas), 0},
			{"priority", float64(s.Priority), 1}} {
			if err := x.check(); err != nil {
				return nil, fmt.Errorf("%s: server %q: %w", name, s.Name, err)
			}
		}
	}
	var bad [2]error
	p.Capacity, bad[0] = byDevice("capacity", p.Capacity)
	p.UnitCost, bad[1] = byDevice("unit_cost", p.UnitCost)
	if err := cmp.Or(bad[0], bad[1]); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// byDevice are checked values of devices, by the name that all spellings of one share.
func byDevice[V int | float64](what string, of map[string]V) (map[string]V, error) {
	out := map[string]V{}
	for _, typ := range slices.Sorted(maps.Keys(of)) {
		if err := (number{what + " of " + typ, float64(of[typ]), 0}).check(); err != nil {
			return nil, err
		}
		if _, ok := out[deviceName(typ)]; ok {
			return nil, trace.Errorf(badModel, "%s: got %q, which stands there under another name", what, typ)
		}
		out[deviceName(typ)] = of[typ]
	}
	return out, nil
}

// deviceName is the datasheet's name of a device, or of several as acceleratorOf has them; others are as they stand.
func deviceName(name string) string {
	before := ""
	if n, rest, ok := strings.Cut(name, "x"); ok && n != "" && strings.Trim(n, "0123456789") == "" {
		before, name = n+"x", rest
	}
	if h, ok := deploy.Datasheet(name); ok {
		name = h.Name
	}
	return before + name
}

// acceleratorOf names an option: the device, with its number where a replica takes several.
func acceleratorOf(s *QueueServer) string {
	if s.AccCount > 1 {
		return fmt.Sprintf("%dx%s", s.AccCount, s.Accelerator)
	}
	return s.Accelerator
}

// Demands sizes every option of every demand with the servers of queue.json. Options that
// miss a target at any load are findings.
func (p *Problem) Demands(q *Queue) ([]Demand, []trace.Finding, error) {
	var demands []Demand
	var findings []trace.Finding
	for i := range p.Servers {
		d, found, err := p.demand(&p.Servers[i], q)
		if err != nil {
			return nil, nil, err
		}
		demands = append(demands, d)
		findings = append(findings, found...)
	}
	return demands, findings, nil
}

func (p *Problem) demand(s *problemServer, q *Queue) (Demand, []trace.Finding, error) {
	d := s.Demand
	var findings []trace.Finding
	var known []string
	if !(s.TPS >= 0 && s.TPS <= mostWanted) || s.TPS > 0 && s.RateRPS > 0 {
		return d, nil, trace.Errorf(badModel, "server %q: got tps %g and rate_rps %g, want one of them, at most %g", s.Name, s.TPS, s.RateRPS,
			mostWanted)
	}
	for i := range q.Servers {
		at := &q.Servers[i]
		if known = append(known, at.Model); at.Model != s.Model || len(s.Parameters) > 0 && !slices.Contains(s.Parameters, at.ID) {
			continue
		}
		if slices.ContainsFunc(d.Options, func(o Option) bool { return o.Accelerator == acceleratorOf(at) }) {
			return d, nil, trace.Errorf(badModel, "server %q: queue.json has several servers of %q on %s", s.Name, s.Model, acceleratorOf(at)).
				WithHint("choose with parameters: [" + at.ID + "]")
		}
		cost, ok := p.UnitCost[deviceName(at.Accelerator)]
		if !ok {
			return d, nil, trace.Errorf(badModel, "unit_cost: got none for %q, want cents per device and hour", at.Accelerator)
		}
		z, err := sizedOf(at, Flavour(q.Flavour), s.PromptTokens, s.OutputTokens)
		if err != nil {
			findings = append(findings, trace.Findingf(badModel, "%s on %s: %v", s.Name, at.ID, err))
			continue
		}
		size, err := z.Size(Targets{TTFTMs: s.TTFTMs, ITLMs: s.ITLMs})
		if err != nil {
			findings = append(findings, trace.Findingf(targetBelowRange, "%s on %s: %v", s.Name, acceleratorOf(at), err))
			continue
		}
		findings = append(findings, size.Findings...)
		o := Option{Accelerator: acceleratorOf(at), Type: deviceName(at.Accelerator), Units: int(at.AccCount), UnitCost: cost,
			RateRPS: size.RateRPS, DemandRPS: z.rateOf(s.TPS)}
		d.RateRPS = max(d.RateRPS, o.DemandRPS)
		if deviceName(o.Accelerator) == deviceName(d.Current.Accelerator) {
			d.Current.Accelerator = o.Accelerator
			d.Current.Cost = cost * float64(o.Units*d.Current.Replicas)
		}
		d.Options = append(d.Options, o)
	}
	if !slices.Contains(known, s.Model) {
		return d, nil, trace.Errorf(badModel, "server %q: got model %q, want one of queue.json: %s", s.Name, s.Model, trace.OneOf(known))
	}
	return d, findings, nil
}

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
	DemandRPS   float64 // what a demand in tokens is in requests here; 0: the demand's rate
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
	return accelPenalty*(from.Cost+to.Cost) + to.Cost - from.Cost
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
		n := max(int(math.Min(maxReplicas, math.Ceil(cmp.Or(o.DemandRPS, d.RateRPS)/o.RateRPS))), d.MinReplicas)
		p := Placement{Accelerator: o.Accelerator, Replicas: n, Cost: o.UnitCost * float64(o.Units) * float64(n)}
		out = append(out, candidate{Placement: p, typ: o.Type, units: o.Units, value: transition(d.Current, p)})
	}
	stat.SortStable(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.Accelerator, b.Accelerator))
	})
	return out
}

// Check names the first impossible value of what [ReadProblem] does not know: names, and options of queue.json.
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
				return trace.Errorf(badModel, "server %q on %q: got %d units and %g requests/s, want a name, >= 1 and > 0", d.Name, o.Accelerator,
					o.Units, o.RateRPS)
			}
		}
	}
	return nil
}

// plan sums up what was given.
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

func (f *Fleet) available() map[string]int {
	left := map[string]int{}
	maps.Copy(left, f.Capacity)
	return left
}

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
	e.given.Accelerator = c.Accelerator
	e.given.Replicas = replicas
	e.given.Cost = c.Cost * share
	e.given.Value = c.value * share
	e.given.Wanted = c.Replicas
	e.given.Full = replicas == c.Replicas
}

// Allocate places demands on a fleet the way workload-variant-autoscaler does
// (pkg/solver/greedy.go@b08b1c7): by priority, largest regret first, each takes
// its best option or falls to the next; what cannot be met in full is left to
// the policy, after its own priority unless best effort is delayed. Equal choices
// go by name. Unlimited fleets give every demand its best option.
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
	slices.SortFunc(waiting, (*entry).compare)
	switch {
	case f.Unlimited:
		for _, e := range waiting {
			e.take(&e.c[0], e.c[0].Replicas)
		}
	case f.DelayBestEffort:
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
	var values []queueGiven
	for _, e := range all {
		values = append(values, e.given)
	}
	return f.plan(values, left), nil
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

	bestPick, bestServed []int
	bestValue            float64
}

func (s *search) prepare() {
	n := len(s.all)
	s.pick = make([]int, n)
	s.bestPick = make([]int, n)
	s.group = make([]int, n)
	s.after = make([]int, n+1)
	s.least = make([]float64, n+1)
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
	s.served = make([]int, groups+1)
	s.bestServed = make([]int, groups+1)
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
