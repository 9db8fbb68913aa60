package cluster

// This file reads cluster.yaml: the Spec and its parts, their defaults and checks, and how a Spec
// becomes the Config that Run simulates.

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/forecast"
	"github.com/blis-train/blis-train/trace"
)

// Spec is cluster.yaml. Absent keys have the values of defaultSpec.
type Spec struct {
	Instances   instances `yaml:"instances"`
	RefreshUs   int64     `yaml:"snapshot_refresh_us"`  // us between scrapes; 0: live
	Scrape      string    `yaml:"scrape"`               // staggered or aligned
	ExportStep  bool      `yaml:"export_step_start"`    // engines export the start of their step
	AdmissionUs int64     `yaml:"admission_latency_us"` // us
	RoutingUs   int64     `yaml:"routing_latency_us"`   // us
	Admission   admission `yaml:"admission"`
	Routing     Routing   `yaml:"routing"`
	// Scheduler of the engines: fcfs or priority-fcfs; "" for that of the deployment, with the
	// requests' own priorities.
	Scheduler  string                `yaml:"scheduler"`
	Priorities map[string]int        `yaml:"priorities"`
	AgeWeight  float64               `yaml:"age_weight"` // priority a request gains per us of age
	Retry      retrySpec             `yaml:"retry"`
	Targets    map[string]targetSpec `yaml:"goodput_slo_targets"`
	Transfer   transferSpec          `yaml:"transfer"` // between prefill and decode instances
	// ShadowShare is the share of rejected requests, 0 to 1, that a copy of their engine serves all
	// the same, to learn which TTFT they would have had.
	ShadowShare float64 `yaml:"shadow_share"`

	file string     // the cluster file, for errors; "" for a spec that was not read from one
	root *yaml.Node // its content, for the places of errors
}

// instances is the number of instances, or groups of instances that differ.
type instances struct {
	Groups []group
}

// group is a number of instances of one deployment.
type group struct {
	Count        int      `yaml:"count"`
	Deployment   string   `yaml:"deployment"`   // run.yaml file; "": that of the command line
	Coefficients string   `yaml:"coefficients"` // file; "": those of the command line
	Set          []string `yaml:"set"`          // changes of the deployment, KEY=VALUE
	Role         string   `yaml:"role"`         // prefill or decode; "": both
}

// UnmarshalYAML reads a number of equal instances, or a list of groups.
func (n *instances) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		count, err := strconv.Atoi(node.Value)
		if err != nil {
			return badNode(node, "instances: got %q, want a number or a list of groups", node.Value)
		}
		n.Groups = []group{{Count: count}}
		return nil
	}
	n.Groups = nil
	return files.DecodeYAMLNode(node, &n.Groups)
}

// hasRoles reports whether any group is of prefill or decode instances.
func (n *instances) hasRoles() bool {
	return slices.ContainsFunc(n.Groups, func(g group) bool { return g.Role != "" })
}

// Count returns the number of instances of all groups.
func (n *instances) Count() int {
	sum := 0
	for _, g := range n.Groups {
		sum += g.Count
	}
	return sum
}

// admission is an admission policy and the parameters of all policies together; policyKeys lists
// which policy reads which. defaultAdmission has the defaults.
type admission struct {
	Policy string `yaml:"policy"`

	Capacity float64 `yaml:"capacity"` // token-bucket: tokens
	Refill   float64 `yaml:"refill"`   // token-bucket: tokens per second

	Signal     string             `yaml:"signal"`     // slo-gated
	Thresholds map[string]float64 `yaml:"thresholds"` // slo-gated, by class

	// gaie-legacy and probabilistic: waiting requests and share of KV blocks from which on an instance
	// counts as full. A request is rejected with probability K * saturation^Power by probabilistic.
	QueueThreshold float64 `yaml:"queue_depth_threshold"`
	KVThreshold    float64 `yaml:"kv_threshold"`
	K              float64 `yaml:"k"`
	Power          float64 `yaml:"power"`

	// predictive-seed estimates TTFT as waiting requests * StepMs + Beta0 + Beta1 * uncached tokens and
	// compares it with Headroom * the class's budget.
	Variant        string             `yaml:"variant"`   // a or b, see Seed.Decide
	BudgetsMs      map[string]float64 `yaml:"budget_ms"` // by class
	Headroom       float64            `yaml:"headroom"`
	StepMs         float64            `yaml:"step_ms"`
	Beta0          float64            `yaml:"beta0"`           // us
	Beta1          float64            `yaml:"beta1"`           // us per token
	AdmitUnmatched bool               `yaml:"admit_unmatched"` // admit requests whose prefix no instance has

	// predictive: coefficient file of the gate; "": that of the engines
	Controller string             `yaml:"controller"`
	Eps        map[string]float64 `yaml:"eps"`        // predictive, by class: tolerated share of misses
	PredictOn  string             `yaml:"predict_on"` // predictive: for the chosen instance, or the best one
	Floor      *float64           `yaml:"floor"`      // predictive: share of a prefix group's arrivals always admitted; 0: none
	Predictor  string             `yaml:"predictor"`  // latency-slo: predictor.json; "": the rollout
}

// UnmarshalYAML reads the name of a policy, or a mapping of the policy and its parameters.
// Parameters of another policy are errors.
func (a *admission) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		*a = defaultAdmission(node.Value)
		return nil
	}
	var head struct {
		Policy string `yaml:"policy"`
	}
	if err := node.Decode(&head); err != nil {
		return err
	}
	type plain admission
	p := plain(defaultAdmission(head.Policy))
	if err := files.DecodeYAMLNode(node, &p); err != nil {
		return err
	}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		if key.Value == "policy" || slices.Contains(policyKeys[head.Policy], key.Value) {
			continue
		}
		// Keys and policies that do not exist get their errors from DecodeYAMLNode and
		// checkParameters.
		policies := havePolicies(key.Value)
		if len(policies) > 0 && slices.Contains(admissionPolicies, head.Policy) {
			return badNode(key, "admission.%s: got it with policy %s, want it with %s", key.Value, head.Policy,
				trace.OneOf(policies))
		}
	}
	*a = admission(p)
	return nil
}

// havePolicies returns the policies that read a key.
func havePolicies(key string) (out []string) {
	for _, name := range admissionPolicies {
		if slices.Contains(policyKeys[name], key) {
			out = append(out, name)
		}
	}
	return out
}

// Routing is the routing policy and its parameters.
type Routing struct {
	Policy       string `yaml:"policy"`
	Scorers      string `yaml:"scorers"`        // "pa:4,qd:3"
	IndexUpdate  string `yaml:"index_update"`   // on-route, on-first-token or kv-events
	IndexBlocks  int64  `yaml:"index_blocks"`   // of each instance; 0: as many as its engine has
	EventDelayUs int64  `yaml:"event_delay_us"` // of KV events

	// The rest is of policy llmd.
	Filters   []plugin `yaml:"filters"`
	Scorer    plugin   `yaml:"-"`         // the one plugin of key scorers, if that is a list (UnmarshalYAML)
	Picker    plugin   `yaml:"picker"`    // weighted-random-picker, max-score-picker or random-picker
	Predictor string   `yaml:"predictor"` // predictor.json; "": the rollout
}

// retrySpec is what clients do when a request is rejected: nothing, or arrive again after BaseMs,
// BaseMs*Factor and so on, up to Tries arrivals in all.
type retrySpec struct {
	Kind   string  `yaml:"kind"` // none or backoff
	Tries  int     `yaml:"tries"`
	BaseMs float64 `yaml:"base_ms"`
	Factor float64 `yaml:"factor"`
}

// UnmarshalYAML reads the name of a kind, or a mapping.
func (r *retrySpec) UnmarshalYAML(node *yaml.Node) error {
	*r = retrySpec{Kind: "backoff", Tries: 4, BaseMs: 500, Factor: 2}
	if node.Kind == yaml.ScalarNode {
		r.Kind = node.Value
		return nil
	}
	type plain retrySpec
	return files.DecodeYAMLNode(node, (*plain)(r))
}

// baseUs returns the wait before the first retry, us.
func (r *retrySpec) baseUs() int64 { return sim.ToUs(r.BaseMs * 1e3) }

// targetSpec is the latency targets of a class, ms; 0 for none.
type targetSpec struct {
	TTFTMs float64 `yaml:"ttft_ms"`
	ITLMs  float64 `yaml:"itl_ms"`
	E2EMs  float64 `yaml:"e2e_ms"`
}

// defaultSpec returns the cluster of an empty cluster.yaml: one instance, every request admitted,
// metrics scraped every 50 ms as llm-d does.
func defaultSpec() Spec {
	return Spec{
		Instances: instances{Groups: []group{{Count: 1}}},
		RefreshUs: 50_000,
		Scrape:    "staggered",
		Admission: defaultAdmission(policyAlways),
		Routing:   Routing{Policy: RoundRobin, IndexUpdate: OnRoute, EventDelayUs: 50_000},
		Retry:     retrySpec{Kind: "none"},
		Transfer:  transferSpec{BandwidthGBs: 25, LatencyUs: 50, Shared: true},
	}
}

// parseSpec reads and checks cluster.yaml. Unknown keys are errors. file is the name for errors.
func parseSpec(text []byte, file string) (*Spec, error) {
	s := defaultSpec()
	if len(bytes.TrimSpace(text)) == 0 { // more likely a file that was cut off than a wish for the defaults
		return nil, &trace.SyntaxError{File: file, Code: codeBadSpec, Msg: "cluster: got an empty file, want at least one key", Hint: "instances: 1"}
	}
	if err := files.DecodeYAML(text, file, &s); err != nil {
		e, ok := errors.AsType[*trace.SyntaxError](err)
		if !ok {
			return nil, err
		}
		e.File = file
		e.Code = codeBadSpec
		e.Msg = "cluster: " + e.Msg
		return nil, e
	}
	s.file = file
	s.root, _ = files.ParseYAML(text, file) // which was parsed just now without an error
	if err := s.Check(); err != nil {
		return nil, s.inFile(err)
	}
	return &s, nil
}

// Check returns an error for values out of range and combinations that make no sense, apart from
// those that checkConfig finds.
func (s *Spec) Check() error {
	switch {
	case s.Scrape != "staggered" && s.Scrape != "aligned":
		return specErrorf(at("scrape"), "scrape: got %q, want staggered or aligned", s.Scrape)
	case s.Retry.Kind != "none" && s.Retry.Kind != "backoff":
		return specErrorf(at("retry", "kind"), "retry: got %q, want none or backoff", s.Retry.Kind)
	case s.Retry.Kind == "backoff" && (s.Retry.Tries < 2 || s.Retry.Tries > 100):
		return specErrorf(at("retry", "tries"), "retry.tries: got %d, want 2 to 100", s.Retry.Tries)
	}
	if len(s.Instances.Groups) == 0 {
		return specErrorf(at("instances"), "instances: got none, want >= 1 and at most %d in all", maxInstances)
	}
	for i, g := range s.Instances.Groups {
		if g.Count < 1 || g.Count > maxInstances {
			return specErrorf(at("instances", i, "count"), "instances: got %d, want >= 1 and at most %d in all", g.Count, maxInstances)
		}
	}
	if n := s.Instances.Count(); n > maxInstances {
		return specErrorf(at("instances"), "instances: got %d, want >= 1 and at most %d in all", n, maxInstances)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Priorities)) {
		if p := s.Priorities[name]; p < -100 || p > 100 {
			return specErrorf(at("priorities", name), "priorities.%s: got %d, want -100 to 100", name, p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if t := s.Targets[name]; !(t.TTFTMs >= 0 && t.ITLMs >= 0 && t.E2EMs >= 0) {
			return specErrorf(at("goodput_slo_targets", name), "goodput_slo_targets.%s: got %g, %g and %g ms, want all >= 0", name, t.TTFTMs,
				t.ITLMs, t.E2EMs)
		}
	}
	if a, r := s.Admission.Predictor, s.Routing.Predictor; a != "" && r != "" && a != r {
		return specErrorf(at("routing", "predictor"), "predictor: got %s for admission and %s for routing, want one", a, r)
	}
	if err := s.Routing.checkPlugins(); err != nil {
		return err
	}
	if err := s.checkRoles(); err != nil {
		return err
	}
	return s.Admission.checkParameters()
}

// badValue is an error about a value of the spec.
type badValue struct {
	err  *trace.Error // with code bad_cluster_spec
	path []any        // of the value in cluster.yaml: keys (string) and positions (int)
}

// Error returns the code and the message.
func (e *badValue) Error() string { return e.err.Error() }

// Unwrap returns the error without the path.
func (e *badValue) Unwrap() error { return e.err }

// withHint sets the hint and returns e.
func (e *badValue) withHint(hint string) error {
	e.err.Hint = hint
	return e
}

// at returns the path to a value of cluster.yaml, for specErrorf.
func at(path ...any) []any { return path }

// specErrorf returns an error about the value of the spec at a path, with code bad_cluster_spec.
func specErrorf(path []any, format string, args ...any) *badValue {
	return &badValue{err: trace.Errorf(codeBadSpec, format, args...), path: path}
}

// badNode returns an error about a node of cluster.yaml while it is decoded, with code bad_cluster_spec.
func badNode(n *yaml.Node, format string, args ...any) error {
	return &trace.SyntaxError{Line: int64(n.Line), Col: int64(n.Column), Code: codeBadSpec, Msg: fmt.Sprintf(format, args...)}
}

// inFile returns an error about the cluster that a file asks for with the name of the file and the place of the value
// there. Errors with another code, and those of a spec without a file, are returned as they are.
func (s *Spec) inFile(err error) error {
	var e *trace.Error
	if s.file == "" || !errors.As(err, &e) || e.Code != codeBadSpec {
		return err
	}
	inFile := &trace.SyntaxError{File: s.file, Code: codeBadSpec, Msg: e.Msg, Hint: e.Hint}
	var value *badValue
	if errors.As(err, &value) {
		inFile.Line, inFile.Col = files.PlaceOf(s.root, value.path)
	}
	return inFile
}

// ByClass returns the latency targets of each class, us.
func (s *Spec) ByClass() map[string]target {
	out := map[string]target{}
	for name, t := range s.Targets {
		out[name] = target{TTFTUs: t.TTFTMs * 1e3, ITLUs: t.ITLMs * 1e3, E2EUs: t.E2EMs * 1e3}
	}
	return out
}

// Policies of admission, by their names in cluster.yaml.
const (
	policyAlways        = "always-admit"
	policyTokenBucket   = "token-bucket"
	policyGated         = "slo-gated"
	policyLegacy        = "gaie-legacy"
	policyProbabilistic = "probabilistic"
	policyLatencySLO    = "latency-slo"
	policySeed          = "predictive-seed"
	policyPredictive    = "predictive"
	policySizeOnly      = "size-only"
	policyClairvoyant   = "clairvoyant"
)

// admissionPolicies are all policies of admission.
var admissionPolicies = []string{
	policyAlways,
	policyTokenBucket,
	policyGated,
	policyLegacy,
	policyProbabilistic,
	policyLatencySLO,
	policySeed,
	policyPredictive,
	policySizeOnly,
	policyClairvoyant,
}

// policyKeys are the keys of admission that each policy reads.
var policyKeys = map[string][]string{
	policyTokenBucket:   {"capacity", "refill"},
	policyGated:         {"signal", "thresholds"},
	policyLegacy:        {"queue_depth_threshold", "kv_threshold"},
	policyProbabilistic: {"queue_depth_threshold", "kv_threshold", "k", "power"},
	policyLatencySLO:    {"predictor", "controller"},
	policySeed: {
		"variant",
		"headroom",
		"step_ms",
		"beta0",
		"beta1",
		"budget_ms",
		"admit_unmatched",
	},
	policyPredictive:  predictiveKeys,
	policySizeOnly:    predictiveKeys,
	policyClairvoyant: predictiveKeys,
}

// predictiveKeys are the keys of predictive, and of size-only and clairvoyant, which differ from it
// only in how they predict.
var predictiveKeys = []string{"controller", "eps", "predict_on", "floor"}

// Defaults of the floor of policy predictive: the share of a prefix group's arrivals that it admits
// whatever the estimate, and the share of the served prompt tokens that it may spend on them.
const (
	floorShare  = 0.2
	budgetShare = 0.05
)

// defaultAdmission returns a policy with its published parameters. slo-gated has no default signal,
// because three public definitions exist.
func defaultAdmission(policy string) admission {
	return admission{
		Policy:         policy,
		Capacity:       10_000,
		Refill:         1000,
		QueueThreshold: 5,
		KVThreshold:    0.8,
		K:              300,
		Power:          5,
		Variant:        "b",
		Headroom:       1,
		StepMs:         7,
		BudgetsMs:      map[string]float64{"critical": 200, "standard": 500, "sheddable": 300},
		PredictOn:      "chosen",
		Floor:          new(floorShare),
	}
}

// checkParameters returns an error for an unknown policy and for parameters out of range.
func (a *admission) checkParameters() error {
	if !slices.Contains(admissionPolicies, a.Policy) {
		return specErrorf(at("admission", "policy"), "admission policy: got %q, want one of %v", a.Policy, admissionPolicies)
	}
	for _, n := range []struct {
		name     string
		v, least float64
	}{{"capacity", a.Capacity, 1}, {"refill", a.Refill, 1e-9},
		{"queue_depth_threshold", a.QueueThreshold, 1e-9}, {"kv_threshold", a.KVThreshold, 1e-9},
		{"k", a.K, 0}, {"power", a.Power, 0}, {"headroom", a.Headroom, 0},
		{"step_ms", a.StepMs, 0}, {"beta0", a.Beta0, 0}, {"beta1", a.Beta1, 0}} {
		if !(n.v >= n.least) || math.IsInf(n.v, 0) {
			return specErrorf(at("admission", n.name), "admission.%s: got %g, want finite and >= %g", n.name, n.v, n.least)
		}
	}
	switch {
	case a.PredictOn != "chosen" && a.PredictOn != "best":
		return specErrorf(at("admission", "predict_on"), "admission.predict_on: got %q, want chosen or best", a.PredictOn)
	case a.Floor != nil && !(*a.Floor >= 0 && *a.Floor <= 1):
		return specErrorf(at("admission", "floor"), "admission.floor: got %g, want 0 to 1", *a.Floor)
	case a.Policy == policyGated && !slices.Contains(signals, a.Signal):
		return specErrorf(at("admission", "signal"), "slo-gated signal: got %q, want %s", a.Signal, trace.OneOf(signals)).
			withHint(fmt.Sprintf("in cluster.yaml: admission: {policy: slo-gated, signal: max-queue-depth, thresholds: "+
				"{sheddable: %g, standard: %g}}", gateDefault["sheddable"], gateDefault["standard"]))
	case a.Policy == policySeed && a.Variant != "a" && a.Variant != "b":
		return specErrorf(at("admission", "variant"), "predictive-seed variant: got %q, want a or b", a.Variant)
	}
	for _, name := range slices.Sorted(maps.Keys(a.Thresholds)) {
		if v := a.Thresholds[name]; !(v >= 0) || math.IsInf(v, 0) {
			return specErrorf(at("admission", "thresholds", name), "admission.thresholds.%s: got %g, want finite and >= 0", name, v)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.Eps)) {
		if e := a.Eps[name]; !(e > 0 && e < 1) {
			return specErrorf(at("admission", "eps", name), "admission.eps.%s: got %g, want between 0 and 1", name, e)
		}
	}
	return nil
}

// parts is what a cluster consists of besides its Spec: the engines, and the forecasts with which
// policies predict.
type parts struct {
	Engines     []sim.Config                // by instance
	Controllers []*forecast.Engine          // by instance, with the coefficients of the gate; for predictions
	Plants      []*forecast.Engine          // the same with those that drive the engines; for clairvoyant
	Prior       func(level float64) float64 // quantile of observed / predicted step times; nil: 1
	Trees       estimator                   // of a predictor file, for latency-slo and llmd; nil without
	Observe     func(instance int) sim.Observer
	Seed        int64
}

// Build returns the configuration of the cluster that the spec describes, with the given engines
// and forecasts.
func (s *Spec) Build(p parts) *Config {
	cfg := &Config{Spec: *s, parts: p}
	if s.Admission.Policy == policyClairvoyant {
		cfg.Live = &live{Engines: p.Plants, ByPriority: s.byPriority(p.Engines)}
	}
	cfg.Policy = s.policy(&p, cfg.Live)
	return cfg
}

// byPriority reports whether the engines serve requests of more important classes first.
func (s *Spec) byPriority(engines []sim.Config) bool {
	if s.Scheduler != "" {
		return s.Scheduler == priorityFCFS
	}
	return engines[0].Deployment.Engine.SchedulingPolicy == "priority"
}

// NeedsController reports whether the policy predicts with coefficients.
func (s *Spec) NeedsController() bool {
	a := &s.Admission
	switch a.Policy {
	case policyPredictive, policySizeOnly:
		return true
	case policyLatencySLO:
		if a.Predictor == "" {
			return true
		}
	}
	return s.Routing.Policy == LLMD && s.Routing.Predictor == ""
}

// policy returns the admission policy that the spec names, with its parameters.
func (s *Spec) policy(p *parts, live *live) Policy {
	a := &s.Admission
	rollout := &Rollout{Engines: p.Controllers, ByPriority: s.byPriority(p.Engines)}
	switch a.Policy {
	case policyTokenBucket:
		return &tokenBucket{Capacity: a.Capacity, RefillPerS: a.Refill}
	case policyGated:
		return &sloGated{Signal: a.Signal, Thresholds: a.Thresholds}
	case policyLegacy:
		return &gaieLegacy{Queue: a.QueueThreshold, KV: a.KVThreshold}
	case policyProbabilistic:
		return &probabilistic{
			Queue: a.QueueThreshold,
			KV:    a.KVThreshold,
			K:     a.K,
			Power: a.Power,
			Seed:  p.Seed,
		}
	case policyLatencySLO:
		if a.Predictor != "" {
			return &latencySLO{Estimate: p.Trees}
		}
		return &latencySLO{Estimate: rollout}
	case policySeed:
		budgets := map[string]float64{}
		for name, ms := range a.BudgetsMs {
			budgets[name] = ms * 1e3
		}
		return &Seed{
			Variant:        a.Variant,
			Headroom:       a.Headroom,
			StepUs:         a.StepMs * 1e3,
			Beta0:          a.Beta0,
			Beta1:          a.Beta1,
			BudgetUs:       budgets,
			AdmitUnmatched: a.AdmitUnmatched,
		}
	case policyPredictive, policySizeOnly:
		rollout.IgnoreCache = a.Policy == policySizeOnly
		return s.predictive(p, rollout)
	case policyClairvoyant:
		return s.predictive(p, live)
	}
	return Always{}
}

// predictive returns policy predictive with the spec's parameters and estimator e.
func (s *Spec) predictive(p *parts, e estimator) *predictive {
	out := &predictive{
		Estimate:   e,
		Best:       s.Admission.PredictOn == "best",
		Eps:        s.Admission.Eps,
		Prior:      p.Prior,
		StandardUs: sim.ToUs(s.Targets["standard"].TTFTMs * 1e3),
	}
	if f := s.Admission.Floor; f != nil && *f > 0 {
		out.Floor = &Floor{Share: *f, BudgetShare: budgetShare}
	}
	return out
}

// unused returns a warning for each class that the spec has a target, a priority or an admission parameter for and
// that no request is of, most likely because its name is misspelt, and for a transfer between instances that have no roles.
func (s *Spec) unused(reqs []sim.Request) (out []trace.Finding) {
	isUsed := map[string]bool{}
	for i := range reqs {
		isUsed[reqs[i].SLOClass] = true
	}
	of := "no class"
	if used := slices.DeleteFunc(slices.Sorted(maps.Keys(isUsed)), func(name string) bool { return name == "" }); len(used) > 0 {
		of = strings.Join(used, ", ")
	}
	add := func(key string, classes []string) {
		for _, name := range classes {
			if !isUsed[name] {
				out = append(out, trace.Findingf(unusedSetting, "%s.%s: no request is of this class, they are of %s", key, name, of))
			}
		}
	}
	add("goodput_slo_targets", slices.Sorted(maps.Keys(s.Targets)))
	add("priorities", slices.Sorted(maps.Keys(s.Priorities)))
	add("admission.thresholds", slices.Sorted(maps.Keys(s.Admission.Thresholds)))
	add("admission.eps", slices.Sorted(maps.Keys(s.Admission.Eps)))
	budgets := maps.Clone(s.Admission.BudgetsMs)
	for name := range defaultAdmission(s.Admission.Policy).BudgetsMs { // those that every spec has
		delete(budgets, name)
	}
	add("admission.budget_ms", slices.Sorted(maps.Keys(budgets)))
	if s.Transfer != defaultSpec().Transfer && !s.Instances.hasRoles() {
		out = append(out, trace.Findingf(unusedSetting, "transfer: no instance has a role (prefill or decode), so nothing is transferred"))
	}
	return out
}

// TakeTargets returns the requests with the latency targets that the spec has for their classes;
// other classes keep theirs.
func (s *Spec) TakeTargets(reqs []sim.Request) []sim.Request {
	if len(s.Targets) == 0 {
		return reqs
	}
	own := slices.Clone(reqs)
	for i := range own {
		if t, ok := s.Targets[own[i].SLOClass]; ok {
			own[i].SLOTTFTUs = sim.ToUs(t.TTFTMs * 1e3)
			own[i].SLOE2EUs = sim.ToUs(t.E2EMs * 1e3)
			own[i].SLOITLUs = sim.ToUs(t.ITLMs * 1e3)
		}
	}
	return own
}

// defaultScorers are the scorers and weights of llm-d's default profile.
const defaultScorers = "precise-prefix-cache:2,queue-depth:1,kv-utilization:1"

// scorers returns the scorers of policy weighted, and none for other policies.
func (r *Routing) scorers() ([]Scorer, error) {
	switch {
	case r.Policy == Weighted:
		return ParseScorers(r.ScorersText())
	case r.Scorers != "":
		if r.Policy == LLMD {
			return nil, specErrorf(at("routing", "scorers"), "routing.scorers: got %q with policy llmd, want a list of one plugin: [%s]",
				r.Scorers, latencyScorer)
		}
		return nil, specErrorf(at("routing", "scorers"),
			"routing.scorers: got them with policy %q, want policy weighted", r.Policy).
			withHint("add policy: weighted beside them")
	}
	return nil, nil
}

// ScorersText returns the scorers of policy weighted as cluster.yaml has them.
func (r *Routing) ScorersText() string { return cmp.Or(r.Scorers, defaultScorers) }

// When the prefix index learns that an instance has the blocks of a request.
const (
	OnRoute      = "on-route"       // when a request is sent: a prefill that has not run is credited
	onFirstToken = "on-first-token" // when its first token comes
	kvEvents     = "kv-events"      // from the engines' KV cache events, with a delay
)

// Config is a cluster: the settings of its file, the engines behind the gateway and the requests.
type Config struct {
	Spec
	parts
	Policy Policy // the admission policy; Build makes it from the spec
	Router router // replaces the router of the spec; nil for that
	Live   *live  // the estimator of policy clairvoyant, which reads the engines' hidden state; nil for other policies
}

// Values of Spec.Scheduler.
const (
	fcfs         = "fcfs"
	priorityFCFS = "priority-fcfs"
)

// defaultPriorities are the priorities of classes in BLIS and in the gateway API. Requests of
// negative priority may be rejected.
var defaultPriorities = map[string]int{"critical": 4, "standard": 3, "batch": -1, "sheddable": -2, "background": -3}

// standardPriority is the priority of classes that have none.
const standardPriority = 3

// checkConfig returns an error for settings that the simulation cannot run with.
func (c *Config) checkConfig() error {
	for _, n := range []struct {
		path []any
		v    int64
	}{{at("snapshot_refresh_us"), c.RefreshUs}, {at("admission_latency_us"), c.AdmissionUs}, {at("routing_latency_us"), c.RoutingUs},
		{at("routing", "event_delay_us"), c.Routing.EventDelayUs}, {at("routing", "index_blocks"), c.Routing.IndexBlocks}} {
		if n.v < 0 {
			return specErrorf(n.path, "%s: got %d, want >= 0", n.path[len(n.path)-1], n.v)
		}
	}
	switch {
	case !slices.Contains([]string{OnRoute, onFirstToken, kvEvents}, c.Routing.IndexUpdate):
		return specErrorf(at("routing", "index_update"), "index update: got %q, want on-route, on-first-token or kv-events", c.Routing.IndexUpdate)
	case c.Scheduler != "" && c.Scheduler != fcfs && c.Scheduler != priorityFCFS:
		return specErrorf(at("scheduler"), "scheduler: got %q, want fcfs or priority-fcfs", c.Scheduler)
	case !(c.AgeWeight >= 0) || c.AgeWeight > 1:
		return specErrorf(at("age_weight"), "age weight: got %g, want 0 to 1 a us", c.AgeWeight)
	case c.Retry.Kind == "backoff" && (c.Retry.baseUs() < 1 || !(c.Retry.Factor >= 1)):
		return specErrorf(at("retry"), "retry: got base %d us and factor %g, want >= 1 and >= 1", c.Retry.baseUs(), c.Retry.Factor)
	case !(c.ShadowShare >= 0 && c.ShadowShare <= 1):
		return specErrorf(at("shadow_share"), "shadow share: got %g, want 0 to 1", c.ShadowShare)
	}
	return nil
}

// priority returns the priority of a class, larger for more important ones.
func (c *Config) priority(class string) int {
	if p, ok := c.Priorities[class]; ok {
		return p
	}
	if p, ok := defaultPriorities[class]; ok {
		return p
	}
	return standardPriority
}

// enginePriority returns the priority that vLLM gets for a request, of which smaller ones are
// served first. With AgeWeight a request's priority grows while it waits. The order of two requests
// then never changes, so one constant number suffices: the arrival minus the priority converted to
// us.
func (c *Config) enginePriority(priority int, arrivalUs int64) int64 {
	if c.AgeWeight > 0 {
		// ToUs wants times >= 0: maxPriority is added to all alike.
		return arrivalUs - sim.ToUs(float64(priority+maxPriority)/c.AgeWeight)
	}
	top := standardPriority
	for _, list := range []map[string]int{defaultPriorities, c.Priorities} {
		for _, p := range list {
			top = max(top, p)
		}
	}
	return int64(top - priority)
}

// maxPriority is the largest absolute value of a priority.
const maxPriority = 100
