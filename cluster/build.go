package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/predict"
	"github.com/blis-train/blis-train/trace"
)

// Policies of admission, by their names in cluster.yaml.
var Policies = []string{"always-admit", "token-bucket", "slo-gated", "gaie-legacy", "probabilistic", "latency-slo", "predictive-seed",
	"predictive", "size-only", "clairvoyant"}

// Floor and budget of predictive.
const (
	floorShare  = 0.2
	budgetShare = 0.05
)

// defaultAdmission is a policy with its published defaults. slo-gated has no signal:
// three public definitions exist.
func defaultAdmission(policy string) admission {
	return admission{Policy: policy, Capacity: 10_000, Refill: 1000, QueueThreshold: 5, KVThreshold: 0.8, K: 300, Power: 5,
		Variant: "b", Headroom: 1, StepMs: 7, BudgetsMs: map[string]float64{"critical": 200, "standard": 500, "sheddable": 300},
		PredictOn: "chosen", Floor: new(floorShare)}
}

func (a *admission) check() error {
	if !slices.Contains(Policies, a.Policy) {
		return specErrorf("admission policy: got %q, want one of %v", a.Policy, Policies)
	}
	for _, n := range []struct {
		name     string
		v, least float64
	}{{"capacity", a.Capacity, 1}, {"refill", a.Refill, 1e-9},
		{"queue_depth_threshold", a.QueueThreshold, 1e-9}, {"kv_threshold", a.KVThreshold, 1e-9},
		{"k", a.K, 0}, {"power", a.Power, 0}, {"headroom", a.Headroom, 0},
		{"step_ms", a.StepMs, 0}, {"beta0", a.Beta0, 0}, {"beta1", a.Beta1, 0}} {
		if !(n.v >= n.least) || math.IsInf(n.v, 0) {
			return specErrorf("admission.%s: got %g, want finite and >= %g", n.name, n.v, n.least)
		}
	}
	switch {
	case a.PredictOn != "chosen" && a.PredictOn != "best":
		return specErrorf("admission.predict_on: got %q, want chosen or best", a.PredictOn)
	case a.Floor != nil && !(*a.Floor >= 0 && *a.Floor <= 1):
		return specErrorf("admission.floor: got %g, want 0 to 1", *a.Floor)
	case a.Policy == "slo-gated" && !slices.Contains(signals, a.Signal):
		return trace.Errorf(codeBadSpec, "slo-gated signal: got %q, want %s", a.Signal, trace.OneOf(signals)).
			WithHint("in cluster.yaml: admission: {policy: slo-gated, signal: max-queue-depth, thresholds: {sheddable: 8, standard: 16}}")
	case a.Policy == "predictive-seed" && a.Variant != "a" && a.Variant != "b":
		return specErrorf("predictive-seed variant: got %q, want a or b", a.Variant)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Eps)) {
		if e := a.Eps[name]; !(e > 0 && e < 1) {
			return specErrorf("admission.eps.%s: got %g, want between 0 and 1", name, e)
		}
	}
	return nil
}

// parts are what a gate needs of the engines it stands before.
type parts struct {
	Engines     []sim.Config            // by instance
	Controllers []*predict.Engine       // by instance, with the coefficients of the gate; for predictions
	Plants      []*predict.Engine       // the same with those that drive the engines; for clairvoyant
	Prior       func(p float64) float64 // quantile of observed / predicted; nil: 1
	Trees       estimator               // of a predictor file, for latency-slo and llmd; nil without
	Observe     func(instance int) sim.Observer
	Seed        int64
}

// Build is the cluster that the spec describes.
func (s *Spec) Build(p parts) *Config {
	cfg := &Config{Spec: *s, parts: p}
	if s.Admission.Policy == "clairvoyant" {
		cfg.Live = &live{Engines: p.Plants, ByPriority: s.byPriority(p.Engines)}
	}
	cfg.Policy = s.policy(&p, cfg.Live)
	return cfg
}

// byPriority reports whether engines serve better classes first.
func (s *Spec) byPriority(engines []sim.Config) bool {
	if s.Scheduler != "" {
		return s.Scheduler == priorityFCFS
	}
	return engines[0].Deployment.Engine.SchedulingPolicy == "priority"
}

// NeedsController reports whether the policy predicts with coefficients.
func (s *Spec) NeedsController() bool {
	if s.Routing.Policy == LLMD && s.Routing.Predictor == "" {
		return true
	}
	switch s.Admission.Policy {
	case "predictive", "size-only":
		return true
	case "latency-slo":
		return s.Admission.Predictor == ""
	}
	return false
}

func (s *Spec) policy(p *parts, live *live) Policy {
	a := &s.Admission
	rollout := &Rollout{Engines: p.Controllers, ByPriority: s.byPriority(p.Engines)}
	switch a.Policy {
	case "token-bucket":
		return &tokenBucket{Capacity: a.Capacity, RefillPerS: a.Refill}
	case "slo-gated":
		return &sloGated{Signal: a.Signal, Thresholds: a.Thresholds}
	case "gaie-legacy":
		return &gaieLegacy{Queue: a.QueueThreshold, KV: a.KVThreshold}
	case "probabilistic":
		return &probabilistic{Queue: a.QueueThreshold, KV: a.KVThreshold, K: a.K, Power: a.Power, Seed: p.Seed}
	case "latency-slo":
		if a.Predictor != "" {
			return &latencySLO{Estimate: p.Trees}
		}
		return &latencySLO{Estimate: rollout}
	case "predictive-seed":
		budgets := map[string]float64{}
		for name, ms := range a.BudgetsMs {
			budgets[name] = ms * 1e3
		}
		return &Seed{Variant: a.Variant, Headroom: a.Headroom, StepUs: a.StepMs * 1e3, Beta0: a.Beta0, Beta1: a.Beta1,
			BudgetUs: budgets, AdmitUnmatched: a.AdmitUnmatched}
	case "predictive":
		return s.predictive(p, rollout)
	case "size-only":
		rollout.IgnoreCache = true
		return s.predictive(p, rollout)
	case "clairvoyant":
		return s.predictive(p, live)
	}
	return Always{}
}

func (s *Spec) predictive(p *parts, e estimator) *predictive {
	out := &predictive{Estimate: e, Best: s.Admission.PredictOn == "best", Eps: s.Admission.Eps, Prior: p.Prior,
		StandardUs: sim.ToUs(s.Targets["standard"].TTFTMs * 1e3)}
	if f := s.Admission.Floor; f != nil && *f > 0 {
		out.Floor = &Floor{Share: *f, BudgetShare: budgetShare}
	}
	return out
}

// TakeTargets gives requests the targets of their classes, where the
// spec has any.
func (s *Spec) TakeTargets(reqs []sim.Request) []sim.Request {
	if len(s.Targets) == 0 {
		return reqs
	}
	own := slices.Clone(reqs)
	for i := range own {
		if t, ok := s.Targets[own[i].SLOClass]; ok {
			own[i].SLOTTFTUs, own[i].SLOE2EUs, own[i].SLOITLUs = sim.ToUs(t.TTFTMs*1e3), sim.ToUs(t.E2EMs*1e3), sim.ToUs(t.ITLMs*1e3)
		}
	}
	return own
}

// defaultScorers are llm-d's default profile.
const defaultScorers = "precise-prefix-cache:2,queue-depth:1,kv-utilization:1"

// scorers are those of policy weighted.
func (r *Routing) scorers() ([]Scorer, error) {
	switch {
	case r.Policy == Weighted:
		return ParseScorers(r.ScorersText())
	case r.Scorers != "":
		if r.Policy == LLMD {
			return nil, specErrorf("routing.scorers: got %q with policy llmd, want a list of one plugin: [%s]", r.Scorers, latencyScorer)
		}
		return nil, trace.Errorf(codeBadSpec, "routing.scorers: got them with policy %q, want policy weighted", r.Policy).
			WithHint("add policy: weighted beside them")
	}
	return nil, nil
}

// ScorersText is the scorers of policy weighted.
func (r *Routing) ScorersText() string { return cmp.Or(r.Scorers, defaultScorers) }

// Updates of the index.
const (
	OnRoute      = "on-route"       // when a request is sent: a prefill that has not run is credited
	onFirstToken = "on-first-token" // when its first token comes
	kvEvents     = "kv-events"      // what engines say of their caches, some time later
)

// Config is a cluster: what its file says, and what stands behind and before the gateway.
type Config struct {
	Spec
	parts
	Policy Policy // in place of what the spec names
	Router router // the same; nil: the spec's
	Live   *live  // the estimator that looks into the engines; nil for all others
}

// Schedulers.
const (
	fcfs         = "fcfs"
	priorityFCFS = "priority-fcfs"
)

// defaultPriorities are those of BLIS and of the gateway API: below 0 a class may
// be shed. Classes without one are standard.
var defaultPriorities = map[string]int{"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}

const standardPriority = 3

func (c *Config) check() error {
	switch {
	case len(c.Engines) < 1 || len(c.Engines) > maxInstances:
		return specErrorf("instances: got %d, want 1 to %d", len(c.Engines), maxInstances)
	case c.Policy == nil:
		return specErrorf("admission: got none, want a policy")
	case c.RefreshUs < 0 || c.AdmissionUs < 0 || c.RoutingUs < 0 || c.Routing.EventDelayUs < 0 || c.Routing.IndexBlocks < 0:
		return specErrorf("times and blocks: got refresh %d, admission %d, routing %d, event delay %d us, %d index blocks, want all >= 0",
			c.RefreshUs, c.AdmissionUs, c.RoutingUs, c.Routing.EventDelayUs, c.Routing.IndexBlocks)
	case !slices.Contains([]string{OnRoute, onFirstToken, kvEvents}, c.Routing.IndexUpdate):
		return specErrorf("index update: got %q, want on-route, on-first-token or kv-events", c.Routing.IndexUpdate)
	case c.Scheduler != "" && c.Scheduler != fcfs && c.Scheduler != priorityFCFS:
		return specErrorf("scheduler: got %q, want fcfs or priority-fcfs", c.Scheduler)
	case !(c.AgeWeight >= 0) || c.AgeWeight > 1:
		return specErrorf("age weight: got %g, want 0 to 1 a us", c.AgeWeight)
	case c.Retry.Kind == "backoff" && (c.Retry.baseUs() < 1 || !(c.Retry.Factor >= 1)):
		return specErrorf("retry: got base %d us and factor %g, want >= 1 and >= 1", c.Retry.baseUs(), c.Retry.Factor)
	case !(c.ShadowShare >= 0 && c.ShadowShare <= 1):
		return specErrorf("shadow share: got %g, want 0 to 1", c.ShadowShare)
	}
	for i := range c.Engines {
		if e := &c.Engines[i]; e.Gradient || e.StopUs != 0 {
			return specErrorf("instance %d: got derivatives or a stop, want none in a cluster", i)
		}
	}
	return nil
}

// priority of a class, higher is more important.
func (c *Config) priority(class string) int {
	if p, ok := c.Priorities[class]; ok {
		return p
	}
	if p, ok := defaultPriorities[class]; ok {
		return p
	}
	return standardPriority
}

// enginePriority is what vLLM gets: smaller first. With age the order of two
// requests never changes, so it is a number too: the arrival less what a class is
// worth in time.
func (c *Config) enginePriority(priority int, arrivalUs int64) int64 {
	if c.AgeWeight > 0 {
		return arrivalUs - sim.ToUs(float64(priority+maxPriority)/c.AgeWeight)
	}
	top := standardPriority
	for _, p := range defaultPriorities {
		top = max(top, p)
	}
	for _, p := range c.Priorities {
		top = max(top, p)
	}
	return int64(top - priority)
}

// maxPriority bounds priorities on both sides.
const maxPriority = 100
