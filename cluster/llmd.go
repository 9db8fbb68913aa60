package cluster

// This file mirrors the scheduling plugins of llm-d's router that use predicted latencies
// (llm-d/llm-d-router@ebab687, pkg/epp/framework/plugins/scheduling): a chain of filters, a scorer
// and a picker (spec#cluster-llmd).

import (
	"math"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// LLMD is the routing policy of llm-d's plugin chain with predicted latencies
// (llm-d/llm-d-router@ebab687, pkg/epp/framework/plugins/scheduling): filters reduce the instances
// one after another, scores are added, and a picker chooses (spec#cluster-llmd).
const LLMD = "llmd"

// plugin is one of llm-d's plugins, with the parameter names of its router. Absent parameters have
// the router's defaults.
type plugin struct {
	Type       string           `yaml:"type"`
	Parameters pluginParameters `yaml:"parameters"`
}

// pluginParameters are the parameters of all plugins together, under the names of llm-d's router.
// pluginKeys lists which plugin reads which.
type pluginParameters struct {
	AffinityThreshold      float64 `yaml:"affinityThreshold"`      // share of prompt blocks matched
	ExplorationProbability float64 `yaml:"explorationProbability"` // probability of keeping all instances
	MaxTTFTPenaltyMs       float64 `yaml:"maxTTFTPenaltyMs"`       // 0: keep instances with the prompt at any penalty
	TTFTSource             string  `yaml:"ttftSource"`             // prefillThroughput or latencyPredictor
	PeakPrefillThroughput  float64 `yaml:"peakPrefillThroughput"`  // tokens/s

	EpsilonExploreNeg float64 `yaml:"epsilonExploreNeg"` // probability of choosing among instances that miss a target

	TTFTWeight            float64 `yaml:"ttftWeight"`
	TPOTWeight            float64 `yaml:"tpotWeight"`
	Strategy              string  `yaml:"headroomSelectionStrategy"` // least or most
	CompositeKVWeight     float64 `yaml:"compositeKVWeight"`
	CompositeQueueWeight  float64 `yaml:"compositeQueueWeight"`
	CompositePrefixWeight float64 `yaml:"compositePrefixWeight"`
}

// Types of plugins.
const (
	affinityFilter = "prefix-cache-affinity-filter"
	headroomTier   = "slo-headroom-tier-filter"
	latencyScorer  = "latency-scorer"
	weightedRandom = "weighted-random-picker"
	maxScore       = "max-score-picker"
	anyEndpoint    = "random-picker"
)

// defaultParameters are the defaults of llm-d's router.
var defaultParameters = pluginParameters{
	AffinityThreshold:     0.80,
	MaxTTFTPenaltyMs:      18_000,
	TTFTSource:            "prefillThroughput",
	PeakPrefillThroughput: 15_928,
	EpsilonExploreNeg:     0.01,
	TTFTWeight:            0.8,
	TPOTWeight:            0.2,
	Strategy:              "least",
	CompositeKVWeight:     1,
	CompositeQueueWeight:  1,
	CompositePrefixWeight: 1,
}

// pluginKeys are the parameters that each plugin of llm-d's router reads.
var pluginKeys = map[string][]string{
	"prefix-cache-affinity-filter": {
		"affinityThreshold",
		"explorationProbability",
		"maxTTFTPenaltyMs",
		"ttftSource",
		"peakPrefillThroughput",
	},
	"slo-headroom-tier-filter": {"epsilonExploreNeg"},
	"latency-scorer": {
		"ttftWeight",
		"tpotWeight",
		"headroomSelectionStrategy",
		"compositeKVWeight",
		"compositeQueueWeight",
		"compositePrefixWeight",
	},
}

// UnmarshalYAML reads a plugin: its type alone, or a mapping of type and parameters. A parameter
// that the plugin does not read is an error.
func (p *plugin) UnmarshalYAML(node *yaml.Node) error {
	*p = plugin{Parameters: defaultParameters}
	if node.Kind == yaml.ScalarNode {
		p.Type = node.Value
		return nil
	}
	type plain plugin
	if err := files.DecodeYAMLNode(node, (*plain)(p)); err != nil {
		return err
	}
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].Value != "parameters" {
			continue
		}
		parameters := node.Content[i+1].Content
		for k := 0; k < len(parameters); k += 2 {
			key := parameters[k]
			if !slices.Contains(pluginKeys[p.Type], key.Value) {
				return badNode(key, "routing: %s: got parameter %q, want %s", p.Type, key.Value,
					trace.OneOf(pluginKeys[p.Type]))
			}
		}
	}
	return nil
}

// chain returns the filters, scorer and picker of a routing spec, each with llm-d's default where
// the spec names none: affinity filter at 0.99, headroom tiers, affinity filter at 0.80, latency
// scorer, weighted random picker.
func (r *Routing) chain() (filters []plugin, scorer plugin, picker plugin) {
	with := func(kind string) plugin { return plugin{kind, defaultParameters} }
	filters = r.Filters
	if filters == nil {
		strict := with(affinityFilter)
		strict.Parameters.AffinityThreshold = 0.99
		strict.Parameters.TTFTSource = "latencyPredictor"
		strict.Parameters.MaxTTFTPenaltyMs = 5000
		loose := strict
		loose.Parameters.AffinityThreshold = 0.80
		filters = []plugin{strict, with(headroomTier), loose}
	}
	scorer = r.Scorer
	if scorer.Type == "" {
		scorer = with(latencyScorer)
	}
	picker = r.Picker
	if picker.Type == "" {
		picker = with(weightedRandom)
	}
	return filters, scorer, picker
}

// UnmarshalYAML reads the name of a policy, or a mapping of it and its parameters, with scorers as a text (policy
// weighted) or as a list of one plugin (policy llmd).
func (r *Routing) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind == yaml.ScalarNode {
		r.Policy = node.Value
		return nil
	}
	rest := *node
	rest.Content = nil
	for i := 0; i+1 < len(node.Content); i += 2 {
		list := node.Content[i+1]
		if node.Content[i].Value == "scorers" && list.Kind == yaml.SequenceNode {
			if len(list.Content) != 1 {
				return badNode(list, "routing.scorers: got %d plugins, want one: %s", len(list.Content), latencyScorer)
			}
			if err := r.Scorer.UnmarshalYAML(list.Content[0]); err != nil {
				return err
			}
			continue
		}
		rest.Content = append(rest.Content, node.Content[i], node.Content[i+1])
	}
	type plain Routing
	return files.DecodeYAMLNode(&rest, (*plain)(r))
}

// checkPlugins returns an error for plugins and parameters that llm-d's router would refuse.
func (r *Routing) checkPlugins() error {
	if r.Policy != LLMD {
		if len(r.Filters) > 0 || r.Scorer.Type != "" || r.Picker.Type != "" || r.Predictor != "" {
			return specErrorf(at("routing"), "routing: got filters, a picker, a predictor or a list of scorers with policy %q, "+
				"want policy llmd", r.Policy)
		}
		return nil
	}
	filters, scorer, picker := r.chain()
	for i, f := range filters {
		p := &f.Parameters
		switch {
		case f.Type != affinityFilter && f.Type != headroomTier:
			return specErrorf(at("routing", "filters", i), "routing.filters: got %q, want %s or %s", f.Type, affinityFilter, headroomTier)
		case !(p.AffinityThreshold <= 1), !(p.ExplorationProbability >= 0 && p.ExplorationProbability <= 1),
			!(p.EpsilonExploreNeg >= 0 && p.EpsilonExploreNeg <= 1), !(p.MaxTTFTPenaltyMs >= 0):
			return specErrorf(at("routing", "filters", i), "routing.filters: %s: got threshold %g, probabilities %g and %g, penalty %g ms, "+
				"want at most 1, 0 to 1, >= 0", f.Type,
				p.AffinityThreshold, p.ExplorationProbability, p.EpsilonExploreNeg, p.MaxTTFTPenaltyMs)
		case p.TTFTSource != "prefillThroughput" && p.TTFTSource != "latencyPredictor":
			return specErrorf(at("routing", "filters", i, "parameters", "ttftSource"),
				"routing.filters: ttftSource: got %q, want prefillThroughput or latencyPredictor", p.TTFTSource)
		case p.TTFTSource == "prefillThroughput" && p.MaxTTFTPenaltyMs > 0 && !(p.PeakPrefillThroughput > 0):
			return specErrorf(at("routing", "filters", i, "parameters", "peakPrefillThroughput"),
				"routing.filters: peakPrefillThroughput: got %g, want above 0", p.PeakPrefillThroughput)
		}
	}
	switch p := &scorer.Parameters; {
	case scorer.Type != latencyScorer:
		return specErrorf(at("routing", "scorers", 0), "routing.scorers: got %q, want %s", scorer.Type, latencyScorer)
	case p.Strategy != "least" && p.Strategy != "most":
		return specErrorf(at("routing", "scorers", 0, "parameters", "headroomSelectionStrategy"),
			"routing.scorers: headroomSelectionStrategy: got %q, want least or most", p.Strategy)
	case !slices.Contains([]string{weightedRandom, maxScore, anyEndpoint}, picker.Type):
		return specErrorf(at("routing", "picker", "type"), "routing.picker: got %q, want %s, %s or %s", picker.Type, weightedRandom, maxScore,
			anyEndpoint)
	}
	return nil
}

// endpoint is an instance as the plugins see it for one request. Without a prediction ttftMs and
// the headrooms are 0.
type endpoint struct {
	instance  int
	match     float64 // share of the prompt's blocks that the index expects on it
	inFlight  float64 // uncached prompt tokens of requests without a first token
	predicted bool
	ttftMs    float64 // predicted
	// Headrooms, ms: the target minus the prediction.
	ttftHeadroom, tpotHeadroom float64
	dispatched                 int64   // unfinished requests
	kvUsage                    float64 // 0..1
	waiting                    int64   // requests, at the last scrape
	score                      float64
}

// llmd is the router of policy LLMD.
type llmd struct {
	filters        []plugin
	scorer, picker plugin
	estimate       estimator
	seed           uint64
}

// newLLMD returns the router for cfg. It predicts with cfg.Routing's trees, or with a rollout of
// the gateway's coefficients if the spec names no predictor.
func newLLMD(cfg *Config) *llmd {
	l := &llmd{seed: uint64(cfg.Seed)}
	l.filters, l.scorer, l.picker = cfg.Routing.chain()
	l.estimate = cfg.Trees
	if cfg.Routing.Predictor == "" {
		l.estimate = &Rollout{Engines: cfg.Controllers, ByPriority: cfg.byPriority(cfg.Engines)}
	}
	return l
}

// streamLLMD is the key of the random draws of plugins.
const streamLLMD = 5

// Route returns the instance for r: it predicts the TTFT on every instance, then filters, scores
// and picks. An instance whose prediction fails counts as one without a prediction. The headroom of
// TPOT is always 0, as in llm-d's router when streaming mode is off.
func (l *llmd) Route(r *Request, v *View) int {
	all := make([]endpoint, len(v.Snapshots))
	for i := range all {
		s, e := &v.Snapshots[i], &all[i]
		*e = endpoint{
			instance:   i,
			inFlight:   float64(v.Ledger.Of[i].All.Tokens),
			dispatched: v.Ledger.Of[i].InFlight,
			kvUsage:    s.KVUsage(),
			waiting:    s.QueueDepth,
		}
		if r.Blocks > 0 {
			e.match = float64(v.Match[i]) / float64(r.Blocks)
		}
		if x, err := l.estimate.TTFT(r, v, i); err == nil && !math.IsNaN(x.Us) {
			e.predicted = true
			e.ttftMs = x.Us / 1e3
			e.ttftHeadroom = (float64(r.SLOTTFTUs) - x.Us) / 1e3
		}
	}
	draws := uint64(0)
	return l.selectInstance(all, func() float64 {
		draws++
		return float64(stat.Draw(l.seed, streamLLMD, uint64(r.Index), uint64(r.Try), draws))
	})
}

// Routed does nothing: this router learns nothing from its choices.
func (l *llmd) Routed(*Request, int) {}

// selectInstance applies the filters, the scorer and the picker to the instances and returns the
// chosen one. draw returns uniform random numbers in [0, 1).
func (l *llmd) selectInstance(all []endpoint, draw func() float64) int {
	for i := range l.filters {
		if f := &l.filters[i]; f.Type == affinityFilter {
			all = f.Parameters.keepAffine(all, draw)
		} else {
			all = f.Parameters.keepTier(all, draw)
		}
	}
	l.scorer.Parameters.setLatencyScores(all)
	// The pickers give each instance a key and choose the largest. The random picker's key is the draw
	// alone, and so is that of the weighted one if every score is 0.
	best, top := 0, -1.0
	scored := slices.ContainsFunc(all, func(e endpoint) bool { return e.score > 0 })
	for i := range all {
		key := draw()
		s := all[i].score
		switch {
		case l.picker.Type == maxScore: // scores are multiples of 0.01: the draw decides only between equal ones
			key += 2 * math.Round(100*s)
		case l.picker.Type == weightedRandom && scored && s > 0: // key^(1/s): chosen with probability s / sum of scores
			key = math.Exp(math.Log(math.Max(key, 1e-10)) / s)
		case l.picker.Type == weightedRandom && scored:
			key = 0
		}
		if key > top {
			best, top = i, key
		}
	}
	return all[best].instance
}

// keepAffine mirrors prefix-cache-affinity-filter: it returns the instances that are expected to
// have at least AffinityThreshold of the prompt cached. It returns all if there are none, if the
// fastest other instance would be faster by more than MaxTTFTPenaltyMs, or with
// ExplorationProbability.
func (p *pluginParameters) keepAffine(all []endpoint, draw func() float64) []endpoint {
	if len(all) <= 1 || p.AffinityThreshold <= 0 || draw() < p.ExplorationProbability {
		return all
	}
	var sticky []endpoint                         // those with the prompt
	stickyMs, otherMs := math.Inf(1), math.Inf(1) // smallest TTFT of an instance with the prompt, and of one without
	for _, e := range all {
		ms := e.inFlight / p.PeakPrefillThroughput * 1e3
		if p.TTFTSource == "latencyPredictor" {
			ms = math.MaxFloat64
			if e.predicted {
				ms = e.ttftMs
			}
		}
		if e.match >= p.AffinityThreshold {
			sticky = append(sticky, e)
			stickyMs = math.Min(stickyMs, ms)
		} else {
			otherMs = math.Min(otherMs, ms)
		}
	}
	if len(sticky) == 0 {
		return all
	}
	if p.MaxTTFTPenaltyMs > 0 && len(sticky) < len(all) && stickyMs-otherMs > p.MaxTTFTPenaltyMs {
		return all
	}
	return sticky
}

// keepTier mirrors slo-headroom-tier-filter: it returns the instances predicted to meet both
// targets if there are any, or with probability EpsilonExploreNeg those that miss one.
func (p *pluginParameters) keepTier(all []endpoint, draw func() float64) []endpoint {
	if len(all) <= 1 || !slices.ContainsFunc(all, func(e endpoint) bool { return e.predicted }) {
		return all
	}
	var meets, misses []endpoint
	for _, e := range all {
		if e.predicted && e.ttftHeadroom >= 0 && e.tpotHeadroom >= 0 {
			meets = append(meets, e)
		} else {
			misses = append(misses, e)
		}
	}
	if len(meets) == 0 {
		return misses
	}
	if len(misses) > 0 && draw() < p.EpsilonExploreNeg {
		return misses
	}
	return meets
}

// setLatencyScores mirrors latency-scorer: it sets the scores, multiples of 0.01 in (0, 1.01], of
// the instances in the best bucket (see rank) and 0 for the others. Within the bucket a score
// depends on the headroom relative to the bucket's range.
func (p *pluginParameters) setLatencyScores(all []endpoint) {
	if !slices.ContainsFunc(all, func(e endpoint) bool { return e.predicted }) {
		p.setCompositeScores(all)
		return
	}
	// rank is the bucket of an instance in llm-d's scorer, the smallest being the best: one that meets
	// both targets or has no prediction, an idle one, one that misses only TPOT, only TTFT, both.
	rank := func(e *endpoint) int {
		switch {
		case !e.predicted || e.ttftHeadroom >= 0 && e.tpotHeadroom >= 0:
			return 0
		case e.dispatched == 0:
			return 1
		case e.ttftHeadroom >= 0:
			return 2
		case e.tpotHeadroom >= 0:
			return 3
		}
		return 4
	}
	least := 4
	for i := range all {
		least = min(least, rank(&all[i]))
	}
	// Only the best bucket that has an instance gets scores. lo and hi are the range of the distances
	// from the targets in it, of TTFT and of TPOT, ms.
	var bucket []*endpoint
	var lo, hi [2]float64
	for i := range all {
		e := &all[i]
		if e.score = 0; rank(e) != least {
			continue
		}
		for k, h := range []float64{math.Abs(e.ttftHeadroom), math.Abs(e.tpotHeadroom)} {
			if len(bucket) == 0 {
				lo[k], hi[k] = h, h
			}
			lo[k] = math.Min(lo[k], h)
			hi[k] = math.Max(hi[k], h)
		}
		bucket = append(bucket, e)
	}
	// Within the bucket the score is a weighted mean of both distances, each scaled to its range. One
	// that is equal for all instances gets no weight if the other is not.
	const none = 1e-9          // ms: a smaller range counts as equal
	weight := [2]float64{1, 0} // of TTFT and of TPOT
	if sum := p.TTFTWeight + p.TPOTWeight; sum > 0 {
		weight = [2]float64{p.TTFTWeight / sum, p.TPOTWeight / sum}
	}
	for k := range weight {
		if hi[k]-lo[k] <= none && hi[1-k]-lo[1-k] > none {
			weight[k], weight[1-k] = 0, 1
		}
	}
	for _, e := range bucket {
		combined := 0.0
		for k, h := range []float64{math.Abs(e.ttftHeadroom), math.Abs(e.tpotHeadroom)} {
			scaled := 0.5
			if hi[k]-lo[k] > none {
				scaled = (h - lo[k]) / (hi[k] - lo[k])
			}
			combined += weight[k] * scaled
		}
		// Strategy least prefers the instance that meets the targets most narrowly and so leaves the
		// others free. Of instances that miss a target (buckets after the first) the nearest to it is
		// always the best.
		if p.Strategy == "least" || least > 0 {
			combined = 1 - combined
		}
		e.score = (math.Floor(combined*100) + 1) / 100
	}
}

// setCompositeScores sets scores in [0, 1] by KV usage, queue length and matched prefix, which the
// latency scorer uses when no instance has a prediction.
func (p *pluginParameters) setCompositeScores(all []endpoint) {
	longest := int64(0)
	sum := p.CompositeKVWeight + p.CompositeQueueWeight + p.CompositePrefixWeight
	for _, e := range all {
		longest = max(longest, e.waiting)
	}
	for i := range all {
		e, queue := &all[i], 1.0
		if longest > 0 {
			queue = float64(longest-e.waiting) / float64(longest)
		}
		mean := 1 - e.kvUsage
		if sum > 0 {
			mean = (p.CompositeKVWeight*mean + p.CompositeQueueWeight*queue + p.CompositePrefixWeight*e.match) / sum
		}
		e.score = math.Round(100*mean) / 100
	}
}
