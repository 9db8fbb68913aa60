package cluster

import "fmt"

// cell is one configuration.
type cell struct {
	Name      string
	Number    int // of the five published configurations, as they were published
	Role      string
	Parameter float64 // of a frontier
	Spec      Spec
	// Matched copies the reject rates of the main cell's run of the same seed.
	Matched bool
}

// Roles.
const (
	roleCell     = "cell"
	roleExtra    = "extra"
	roleFrontier = "frontier"
)

// Scorers of the two published routings. qd was queue + batch + in flight when they
// were found, and is the waiting queue alone today.
const (
	scorersOld   = "prefix-affinity:3,queue-depth-effective:2,kv-utilization:2"
	scorersNew   = "prefix-affinity:4,queue-depth-effective:3"
	scorersToday = "prefix-affinity:4,queue-depth:3"
)

// Names that verdicts look for.
const (
	mainCell    = "predictive pa4qd3 priority"
	oldCell     = "always pa3qd2kv2 fcfs"
	matchedCell = "random-matched pa4qd3 priority"
	robinCell   = "always round-robin fcfs"
	noFloorCell = "predictive without floor pa4qd3 priority"
	gatedCell   = "slo-gated pa4qd3 priority"
	alwaysCell  = "always pa4qd3 priority"
	sizeCell    = "size-only pa4qd3 priority"
	seedCell    = "predictive-seed b pa4qd3 priority"
)

// numbers are those of the five published configurations.
var numbers = map[string]int{oldCell: 1, gatedCell: 2, mainCell: 3, "predictive pa3qd2kv2 fcfs": 4, robinCell: 5}

// publishedP99 are published P99 of TTFT on the workload seed, ms, by the cell that each
// was measured with: two of the same gate, of runs of 0.25 and of 1 s; 627 of the predictive
// gate of that time, which admitted everybody.
var publishedP99 = []struct {
	cell string
	ms   float64
}{{robinCell, 266}, {oldCell, 280}, {gatedCell, 141}, {gatedCell, 120}, {seedCell, 627}}

// gateDefault are the thresholds of slo-gated, requests that wait on the fullest
// instance: what a class's target is worth at 7 ms a queued request, the published
// estimate. Nobody published the thresholds themselves; 16 and 8 reject bursts that
// would have met their targets at 0.6 of capacity (spec#experiment).
var gateDefault = map[string]float64{"standard": 71, "sheddable": 42}

// shadowShare is the share of rejected requests that a copy of their engine serves, in
// the cells whose predictions are reported; where more would come than shadowsOf, less.
const (
	shadowShare = 0.02
	shadowsOf   = 400 // of a run's arrivals
)

func specOf(policy, scorers, scheduler string) Spec {
	s := defaultSpec()
	s.Admission = defaultAdmission(policy)
	s.Admission.Beta0, s.Admission.Beta1 = plantBeta[0], plantBeta[1]
	if policy == "slo-gated" {
		s.Admission.Signal, s.Admission.Thresholds = maxQueueDepth, gateDefault
	}
	s.Routing.Policy, s.Routing.Scorers = Weighted, scorers
	if scorers == "" {
		s.Routing.Policy = RoundRobin
	}
	s.Scheduler = scheduler
	if predicts := policy == "clairvoyant" || policy == "predictive-seed" || s.NeedsController(); predicts {
		s.ShadowShare = shadowShare
	}
	return s
}

// targetsOf are targets as a cluster.yaml has them.
func targetsOf(classes map[string]target) map[string]targetSpec {
	out := map[string]targetSpec{}
	for name, t := range classes {
		out[name] = targetSpec{TTFTMs: t.TTFTUs / 1e3, ITLMs: t.ITLUs / 1e3, E2EMs: t.E2EUs / 1e3}
	}
	return out
}

// thirteen are {always, slo-gated, predictive} x two routings x two schedulers, and
// round-robin.
func thirteen() []cell {
	out := []cell{{Name: robinCell, Number: numbers[robinCell], Role: roleCell, Spec: specOf("always-admit", "", "fcfs")}}
	short := map[string]string{"always-admit": "always", "slo-gated": "slo-gated", "predictive": "predictive"}
	for _, policy := range []string{"always-admit", "slo-gated", "predictive"} {
		for _, r := range [][2]string{{"pa3qd2kv2", scorersOld}, {"pa4qd3", scorersNew}} {
			for _, sched := range [][2]string{{"fcfs", "fcfs"}, {"priority", "priority-fcfs"}} {
				name := fmt.Sprintf("%s %s %s", short[policy], r[0], sched[0])
				out = append(out, cell{Name: name, Number: numbers[name], Role: roleCell, Spec: specOf(policy, r[1], sched[1])})
			}
		}
	}
	return out
}

// extras are controls beside the thirteen, all with the new routing and priority.
func extras() []cell {
	one := func(name, policy string, change func(*Spec)) cell {
		s := specOf(policy, scorersNew, "priority-fcfs")
		if change != nil {
			change(&s)
		}
		return cell{Name: name + " pa4qd3 priority", Role: roleExtra, Spec: s}
	}
	matched := one("random-matched", "always-admit", nil)
	matched.Matched = true
	return []cell{
		one("predictive-seed a", "predictive-seed", func(s *Spec) { s.Admission.Variant = "a" }),
		one("predictive-seed b", "predictive-seed", nil),
		one("probabilistic", "probabilistic", nil),
		matched,
		one("size-only", "size-only", nil),
		one("clairvoyant", "clairvoyant", nil),
		one("predictive without floor", "predictive", func(s *Spec) {
			none := 0.0
			s.Admission.Floor = &none
		}),
		one("today's qd, always", "always-admit", func(s *Spec) { s.Routing.Scorers = scorersToday }),
		one("today's qd, predictive", "predictive", func(s *Spec) { s.Routing.Scorers = scorersToday }),
	}
}

// frontiers sweep the knob of each gate.
func frontiers() []cell {
	var out []cell
	for _, n := range []float64{1, 2, 4, 8, 16, 32, 64} {
		s := specOf("slo-gated", scorersNew, "priority-fcfs")
		s.Admission.Thresholds = map[string]float64{"standard": 2 * n, "sheddable": n}
		out = append(out, cell{Name: fmt.Sprintf("slo-gated threshold %g", n), Role: roleFrontier, Parameter: n, Spec: s})
	}
	for _, e := range []float64{0.01, 0.03, 0.1, 0.2, 0.35, 0.5} {
		s := specOf("predictive", scorersNew, "priority-fcfs")
		s.Admission.Eps, s.ShadowShare = map[string]float64{"standard": e, "sheddable": e}, 0
		out = append(out, cell{Name: fmt.Sprintf("predictive eps %g", e), Role: roleFrontier, Parameter: e, Spec: s})
	}
	return out
}
