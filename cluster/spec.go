package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Spec is cluster.yaml. What is absent has the value of DefaultSpec.
type Spec struct {
	Instances   instances             `yaml:"instances"`
	RefreshUs   int64                 `yaml:"snapshot_refresh_us"`  // us between scrapes; 0: live
	Scrape      string                `yaml:"scrape"`               // staggered or aligned
	ExportStep  bool                  `yaml:"export_step_start"`    // engines tell when their step started
	AdmissionUs int64                 `yaml:"admission_latency_us"` // us
	RoutingUs   int64                 `yaml:"routing_latency_us"`   // us
	Admission   admission             `yaml:"admission"`
	Routing     Routing               `yaml:"routing"`
	Scheduler   string                `yaml:"scheduler"` // fcfs, priority-fcfs; "": the deployment's, and the requests' own priorities
	Priorities  map[string]int        `yaml:"priorities"`
	AgeWeight   float64               `yaml:"age_weight"` // priority a request gains per us of age
	Retry       retrySpec             `yaml:"retry"`
	Targets     map[string]targetSpec `yaml:"goodput_slo_targets"`
	Transfer    transferSpec          `yaml:"transfer"`     // between prefill and decode instances
	ShadowShare float64               `yaml:"shadow_share"` // of rejected requests served by a copy of their engine, 0..1
}

// instances is a number, or groups of instances that differ.
type instances struct {
	Groups []group
}

// group is instances of one deployment. "" is what the command line says.
type group struct {
	Count        int      `yaml:"count"`
	Deployment   string   `yaml:"deployment"`
	Coefficients string   `yaml:"coefficients"`
	Set          []string `yaml:"set"`
	Role         string   `yaml:"role"` // prefill or decode; "": both
}

// UnmarshalYAML takes a number or a list.
func (n *instances) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		count, err := strconv.Atoi(node.Value)
		if err != nil {
			return specErrorf("instances: got %q, want a number or a list of groups", node.Value)
		}
		n.Groups = []group{{Count: count}}
		return nil
	}
	n.Groups = nil
	return node.Decode(&n.Groups)
}

// Count is all instances.
func (n *instances) Count() (sum int) {
	return stat.Sum(n.Groups, func(g group) int { return g.Count })
}

// admission is a policy and its parameters; each policy has its own defaults.
type admission struct {
	Policy string `yaml:"policy"`

	Capacity float64 `yaml:"capacity"` // token-bucket: tokens
	Refill   float64 `yaml:"refill"`   // token-bucket: tokens per second

	Signal     string             `yaml:"signal"`     // slo-gated
	Thresholds map[string]float64 `yaml:"thresholds"` // slo-gated, by class

	QueueThreshold float64 `yaml:"queue_depth_threshold"` // gaie-legacy, probabilistic
	KVThreshold    float64 `yaml:"kv_threshold"`
	K              float64 `yaml:"k"`     // probabilistic
	Power          float64 `yaml:"power"` // probabilistic

	Variant        string             `yaml:"variant"`   // predictive-seed: a or b
	BudgetsMs      map[string]float64 `yaml:"budget_ms"` // predictive-seed, by class
	Headroom       float64            `yaml:"headroom"`
	StepMs         float64            `yaml:"step_ms"`
	Beta0          float64            `yaml:"beta0"` // us
	Beta1          float64            `yaml:"beta1"` // us per token
	AdmitUnmatched bool               `yaml:"admit_unmatched"`

	Controller string             `yaml:"controller"` // predictive: coefficient file of the gate; "": that of the engines
	Eps        map[string]float64 `yaml:"eps"`        // predictive, by class: tolerated share of misses
	PredictOn  string             `yaml:"predict_on"` // predictive: chosen or best
	Floor      *float64           `yaml:"floor"`      // predictive: share of a group's arrivals; 0: none
	Predictor  string             `yaml:"predictor"`  // latency-slo: predictor.json; "": the rollout
}

// UnmarshalYAML takes a name or a mapping.
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
		if key := node.Content[i]; key.Value != "policy" && !slices.Contains(parameters[head.Policy], key.Value) {
			if policies := havePolicies(key.Value); len(policies) > 0 && slices.Contains(Policies, head.Policy) {
				return &trace.SyntaxError{Line: int64(key.Line), Col: int64(key.Column), Code: codeBadSpec,
					Msg: fmt.Sprintf("admission.%s: got it with policy %s, want it with %s", key.Value, head.Policy, trace.OneOf(policies))}
			}
		}
	}
	*a = admission(p)
	return nil
}

// ofPredictive are the parameters of policies that predict with coefficients.
var ofPredictive = []string{"controller", "eps", "predict_on", "floor"}

// parameters are the keys that each policy of admission reads.
var parameters = map[string][]string{
	"token-bucket":    {"capacity", "refill"},
	"slo-gated":       {"signal", "thresholds"},
	"gaie-legacy":     {"queue_depth_threshold", "kv_threshold"},
	"probabilistic":   {"queue_depth_threshold", "kv_threshold", "k", "power"},
	"latency-slo":     {"predictor", "controller"},
	"predictive-seed": {"variant", "headroom", "step_ms", "beta0", "beta1", "budget_ms", "admit_unmatched"},
	"predictive":      ofPredictive, "size-only": ofPredictive, "clairvoyant": ofPredictive,
}

// havePolicies are the policies that read a key.
func havePolicies(key string) (out []string) {
	return stat.Filter(Policies, func(name string) bool { return slices.Contains(parameters[name], key) })
}

// Routing is a router.
type Routing struct {
	Policy       string `yaml:"policy"`
	Scorers      string `yaml:"scorers"`        // "pa:4,qd:3"
	IndexUpdate  string `yaml:"index_update"`   // on-route, on-first-token or kv-events
	IndexBlocks  int64  `yaml:"index_blocks"`   // of each instance; 0: as many as its engine has
	EventDelayUs int64  `yaml:"event_delay_us"` // of KV events

	Filters   []plugin `yaml:"filters"`   // llmd, like what follows
	Scorer    plugin   `yaml:"-"`         // of scorers as a list
	Picker    plugin   `yaml:"picker"`    // weighted-random-picker, max-score-picker or random-picker
	Predictor string   `yaml:"predictor"` // predictor.json; "": the rollout
}

// Retry is none, or what rejected clients do.
type retrySpec struct {
	Kind   string  `yaml:"kind"` // none or backoff
	Tries  int     `yaml:"tries"`
	BaseMs float64 `yaml:"base_ms"`
	Factor float64 `yaml:"factor"`
}

// UnmarshalYAML takes a name or a mapping.
func (r *retrySpec) UnmarshalYAML(node *yaml.Node) error {
	*r = retrySpec{Kind: "backoff", Tries: 4, BaseMs: 500, Factor: 2}
	if node.Kind == yaml.ScalarNode {
		r.Kind = node.Value
		return nil
	}
	type plain retrySpec
	return files.DecodeYAMLNode(node, (*plain)(r))
}

func (r *retrySpec) baseUs() int64 { return sim.ToUs(r.BaseMs * 1e3) }

// targetSpec is what a class was promised, ms; 0: nothing.
type targetSpec struct {
	TTFTMs float64 `yaml:"ttft_ms"`
	ITLMs  float64 `yaml:"itl_ms"`
	E2EMs  float64 `yaml:"e2e_ms"`
}

// defaultSpec is one instance that admits everything, scraped as llm-d does.
func defaultSpec() Spec {
	return Spec{Instances: instances{Groups: []group{{Count: 1}}}, RefreshUs: 50_000, Scrape: "staggered",
		Admission: defaultAdmission("always-admit"),
		Routing:   Routing{Policy: RoundRobin, IndexUpdate: OnRoute, EventDelayUs: 50_000}, Retry: retrySpec{Kind: "none"},
		Transfer: transferSpec{BandwidthGBs: 25, LatencyUs: 50, Shared: true}}
}

// parseSpec reads cluster.yaml strictly.
func parseSpec(text []byte, file string) (*Spec, error) {
	s := defaultSpec()
	if err := files.DecodeYAML(text, file, &s); err != nil {
		e := (*trace.SyntaxError)(nil)
		if !errors.As(err, &e) {
			e, _ = trace.YAMLError(file, err)
		}
		e.File, e.Code, e.Msg = file, codeBadSpec, "cluster: "+e.Msg
		return nil, e
	}
	if err := s.Check(); err != nil {
		return nil, &trace.SyntaxError{File: file, Code: codeBadSpec, Msg: err.Error(), Hint: trace.HintOf(err)}
	}
	return &s, nil
}

// Check verifies what neither the gateway nor the engines check.
func (s *Spec) Check() error {
	switch {
	case s.Scrape != "staggered" && s.Scrape != "aligned":
		return specErrorf("scrape: got %q, want staggered or aligned", s.Scrape)
	case s.Retry.Kind != "none" && s.Retry.Kind != "backoff":
		return specErrorf("retry: got %q, want none or backoff", s.Retry.Kind)
	case s.Retry.Kind == "backoff" && (s.Retry.Tries < 2 || s.Retry.Tries > 100):
		return specErrorf("retry.tries: got %d, want 2 to 100", s.Retry.Tries)
	}
	if len(s.Instances.Groups) == 0 {
		return specErrorf("instances: got none, want >= 1 and at most %d in all", maxInstances)
	}
	for _, g := range s.Instances.Groups {
		if g.Count < 1 || s.Instances.Count() > maxInstances {
			return specErrorf("instances: got %d, want >= 1 and at most %d in all", g.Count, maxInstances)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Priorities)) {
		if p := s.Priorities[name]; p < -100 || p > 100 {
			return specErrorf("priorities.%s: got %d, want -100 to 100", name, p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Targets)) {
		if t := s.Targets[name]; !(t.TTFTMs >= 0 && t.ITLMs >= 0 && t.E2EMs >= 0) {
			return specErrorf("goodput_slo_targets.%s: got %g, %g and %g ms, want all >= 0", name, t.TTFTMs, t.ITLMs, t.E2EMs)
		}
	}
	if a, r := s.Admission.Predictor, s.Routing.Predictor; a != "" && r != "" && a != r {
		return specErrorf("predictor: got %s for admission and %s for routing, want one", a, r)
	}
	if err := s.Routing.checkPlugins(); err != nil {
		return err
	}
	return errors.Join(s.checkRoles(), s.Admission.check())
}

func specErrorf(format string, args ...any) error {
	return trace.Errorf(codeBadSpec, format, args...)
}

// ByClass are the targets in us.
func (s *Spec) ByClass() map[string]target {
	out := map[string]target{}
	for name, t := range s.Targets {
		out[name] = target{TTFTUs: t.TTFTMs * 1e3, ITLUs: t.ITLMs * 1e3, E2EUs: t.E2EMs * 1e3}
	}
	return out
}
