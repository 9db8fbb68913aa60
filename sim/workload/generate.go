package workload

// This file is the generator of synthetic workloads: its YAML format, the checks, and the draws.

import (
	"cmp"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Generator is a synthetic workload, in YAML:
//
//	requests: 1000
//	arrivals: {kind: poisson, rate_rps: 5}          # constant | poisson | gamma (cv) | bursts (burst, every_s) |
//	                                                # closed (clients, think_ms, ramp_s)
//	stages:   [{requests: 500, rate_rps: 2}, {requests: 500, rate_rps: 8}]  # instead of requests and rate_rps: one after another
//	prompt:   {kind: lognormal, mean: 300, sigma: 0.8, min: 4, max: 4096}   # constant (value) | uniform (min, max) | empirical (values)
//	output:   {kind: uniform, min: 10, max: 200}
//	max_tokens: 1024                                 # longer outputs end there; 0: no limit but the output's own length
//	prefix:   {groups: 8, tokens: 128, share: 0.5}
//	classes:  [{name: chat, share: 0.7, ttft_ms: 500, e2e_ms: 20000, priority: 0}]
type Generator struct {
	Requests  int         `yaml:"requests"`
	Arrivals  ArrivalSpec `yaml:"arrivals"`
	Stages    []stageSpec `yaml:"stages"`
	Prompt    LengthSpec  `yaml:"prompt"`
	Output    LengthSpec  `yaml:"output"`
	MaxTokens int64       `yaml:"max_tokens"`
	Prefix    prefixSpec  `yaml:"prefix"`
	Classes   []classSpec `yaml:"classes"`

	spec *specV2 // instead of everything above
}

// ArrivalSpec is when requests arrive.
type ArrivalSpec struct {
	Kind    string  `yaml:"kind"`
	RateRPS float64 `yaml:"rate_rps"` // requests per second
	CV      float64 `yaml:"cv"`       // of gamma gaps
	Burst   int     `yaml:"burst"`    // requests that come together
	EveryS  float64 `yaml:"every_s"`  // seconds between bursts
	Clients int     `yaml:"clients"`  // of a closed loop
	ThinkMs float64 `yaml:"think_ms"` // between a client's requests
	RampS   float64 `yaml:"ramp_s"`   // the clients start evenly over this time
}

// stageSpec is a stretch of arrivals at one rate.
type stageSpec struct {
	Requests int     `yaml:"requests"`
	RateRPS  float64 `yaml:"rate_rps"`
}

// LengthSpec is a distribution of tokens.
type LengthSpec struct {
	Kind   string  `yaml:"kind"`
	Value  int64   `yaml:"value"`
	Mean   float64 `yaml:"mean"`  // of the log-normal itself, tokens
	Sigma  float64 `yaml:"sigma"` // of its logarithm
	Min    int64   `yaml:"min"`
	Max    int64   `yaml:"max"`
	Values []int64 `yaml:"values"` // drawn with equal chances
}

// prefixSpec makes a share of the requests begin with one of some shared prefixes.
type prefixSpec struct {
	Groups int     `yaml:"groups"`
	Tokens int64   `yaml:"tokens"`
	Share  float64 `yaml:"share"` // 0..1
}

// classSpec is a service class with its goodput targets.
type classSpec struct {
	Name     string  `yaml:"name"`
	Share    float64 `yaml:"share"`
	TTFTMs   float64 `yaml:"ttft_ms"`
	E2EMs    float64 `yaml:"e2e_ms"`
	Priority int64   `yaml:"priority"`
}

// MaxGenerated is the largest number of requests of a generator. A larger number is taken for a
// mistake.
const MaxGenerated = 10_000_000

// loadGenerator reads and checks a generator in YAML. Unknown keys are errors. name is for
// messages.
func loadGenerator(r io.Reader, name string) (*Generator, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	g := &Generator{}
	if err := files.DecodeYAML(text, name, g); err != nil {
		e, ok := errors.AsType[*trace.SyntaxError](err)
		if !ok {
			return nil, err
		}
		e.Code = codeBadWorkload
		e.Msg = "workload generator: " + e.Msg
		e.Hint = cmp.Or(e.Hint, "a workload is a run folder, an extracted run, a Mooncake, Weka, Azure or TraceV2 file, a workload-spec of BLIS, "+
			"or a generator in YAML (see simulate --help)")
		return nil, e
	}
	if err := cmp.Or(g.takeStages(), g.Check()); err != nil {
		e := &trace.SyntaxError{File: name, Code: codeBadWorkload, Msg: err.Error()}
		if coded, ok := errors.AsType[*trace.Error](err); ok {
			e.Msg = coded.Msg
			e.Hint = coded.Hint
		}
		if root, err := files.ParseYAML(text, name); err == nil {
			e.Line, e.Col = files.PlaceOf(root, pathOf(e.Msg))
		}
		return nil, e
	}
	return g, nil
}

// keyOfMessage matches the key with which a message begins, such as arrivals.kind or stages[2], with its index.
var keyOfMessage = regexp.MustCompile(`^([a-z_.]+)(?:\[(\d+)\])?[,:]`)

// pathOf returns the path of the value that a message is about, see [files.NodeAt]; nil if it does not begin with one.
func pathOf(message string) (path []any) {
	m := keyOfMessage.FindStringSubmatch(message)
	if m == nil {
		return nil
	}
	for _, key := range strings.Split(m[1], ".") {
		path = append(path, key)
	}
	if i, err := strconv.Atoi(m[2]); err == nil {
		path = append(path, i)
	}
	return path
}

// Check returns an error for values out of range.
func (g *Generator) Check() error {
	if g.Requests < 1 || g.Requests > MaxGenerated || g.MaxTokens < 0 {
		return trace.Errorf(codeBadWorkload, "requests, max_tokens: got %d and %d, want >= 1 and at most %d, and >= 0",
			g.Requests, g.MaxTokens, MaxGenerated)
	}
	if err := g.Arrivals.checkArrivals(); err != nil {
		return err
	}
	if err := g.Prompt.checkLength("prompt"); err != nil {
		return err
	}
	if err := g.Output.checkLength("output"); err != nil {
		return err
	}
	if p := g.Prefix; p != (prefixSpec{}) && (p.Groups < 1 || p.Tokens < 1 || !(p.Share > 0 && p.Share <= 1)) {
		return trace.Errorf(codeBadWorkload,
			"prefix: got %d groups of %d tokens at share %g, want >= 1, >= 1, above 0 to 1",
			p.Groups, p.Tokens, p.Share)
	}
	for _, c := range g.Classes {
		if c.Name == "" || !(c.Share > 0) || math.IsInf(c.Share, 0) || !isTarget(c.TTFTMs) || !isTarget(c.E2EMs) {
			return trace.Errorf(codeBadWorkload,
				"class %q: got share %g, targets %g and %g ms, want a name, > 0, 0 or %g to %g", c.Name, c.Share,
				c.TTFTMs, c.E2EMs, leastTargetMs, mostTargetMs)
		}
	}
	return nil
}

// Smallest and largest latency target, ms: targets are kept in whole us.
const (
	leastTargetMs = 1e-3
	mostTargetMs  = 1e9
)

// isTarget reports whether ms is a target, or 0: none.
func isTarget(ms float64) bool { return ms == 0 || ms >= leastTargetMs && ms <= mostTargetMs }

// takeStages checks the stages, and sets the number of requests to their sum and the rate to that
// of the first.
func (g *Generator) takeStages() error {
	if len(g.Stages) == 0 {
		return nil
	}
	switch kind := g.Arrivals.Kind; {
	case g.Requests != 0 || g.Arrivals.RateRPS != 0:
		return trace.Errorf(codeBadWorkload, "stages: got requests or arrivals.rate_rps too, want them in stages alone")
	case kind != "constant" && kind != "poisson" && kind != "gamma":
		return trace.Errorf(codeBadWorkload, "arrivals.kind: got %q with stages, want constant, poisson or gamma", kind).
			WithHint("arrivals: {kind: poisson}")
	}
	total := 0
	for k, s := range g.Stages {
		if s.Requests < 1 || s.Requests > MaxGenerated-total || !(s.RateRPS > 0) || math.IsInf(s.RateRPS, 0) {
			return trace.Errorf(codeBadWorkload, "stages[%d]: got %d requests at %g/s, want 1 to %d in all and > 0",
				k, s.Requests, s.RateRPS, MaxGenerated)
		}
		total += s.Requests
	}
	g.Requests = total
	g.Arrivals.RateRPS = g.Stages[0].RateRPS
	return nil
}

// checkArrivals returns an error for values out of range and for keys that the kind does not use.
func (a *ArrivalSpec) checkArrivals() error {
	type number struct {
		key string
		v   float64
	}
	var needed []number
	switch a.Kind {
	case "constant", "poisson":
		needed = []number{{"rate_rps", a.RateRPS}}
	case "gamma":
		needed = []number{{"rate_rps", a.RateRPS}, {"cv", a.CV}}
	case "bursts":
		needed = []number{{"burst", float64(a.Burst)}, {"every_s", a.EveryS}}
	case "closed":
		needed = []number{{"clients", float64(a.Clients)}}
	default:
		return trace.Errorf(codeBadWorkload,
			"arrivals.kind: got %q, want constant, poisson, gamma, bursts or closed", a.Kind)
	}
	for _, n := range needed {
		if !(n.v > 0) || math.IsInf(n.v, 0) {
			return trace.Errorf(codeBadWorkload, "arrivals.%s: got %g, want > 0 with kind %s", n.key, n.v, a.Kind)
		}
	}
	if !(a.ThinkMs >= 0) || !(a.RampS >= 0) {
		return trace.Errorf(codeBadWorkload, "arrivals: got think_ms %g and ramp_s %g, want >= 0", a.ThinkMs, a.RampS)
	}
	return checkKind("arrivals", a.Kind, []keyOfKinds{
		{key: "rate_rps", given: a.RateRPS != 0, kinds: []string{"constant", "poisson", "gamma"}},
		{key: "cv", given: a.CV != 0, kinds: []string{"gamma"}},
		{key: "burst", given: a.Burst != 0, kinds: []string{"bursts"}},
		{key: "every_s", given: a.EveryS != 0, kinds: []string{"bursts"}},
		{key: "clients", given: a.Clients != 0, kinds: []string{"closed"}},
		{key: "think_ms", given: a.ThinkMs != 0, kinds: []string{"closed"}},
		{key: "ramp_s", given: a.RampS != 0, kinds: []string{"closed"}},
	})
}

// keyOfKinds is a key that only some kinds use, and whether the file has it.
type keyOfKinds struct {
	key   string
	given bool
	kinds []string
}

// checkKind returns an error for a key that the file has but that the kind does not use.
func checkKind(name, kind string, keys []keyOfKinds) error {
	for _, k := range keys {
		if k.given && !slices.Contains(k.kinds, kind) {
			return trace.Errorf(codeBadWorkload, "%s.%s: got it with kind %s, want it with kind %s", name, k.key,
				kind, trace.OneOf(k.kinds))
		}
	}
	return nil
}

// checkLength returns an error for values out of range and for keys that the kind does not use.
// name is that of the distribution.
func (l *LengthSpec) checkLength(name string) error {
	bad := func(format string, args ...any) error {
		return trace.Errorf(codeBadWorkload, name+": got "+format, args...)
	}
	if why := tokenRange.Check(name,
		max(l.Mean, float64(max(l.Value, l.Max, slices.Max(append(l.Values, 0)))))); why != "" {
		return trace.Errorf(codeBadWorkload, "%s", why)
	}
	switch l.Kind {
	case "constant":
		if l.Value < 1 {
			return bad("value %d, want >= 1 tokens", l.Value)
		}
	case "uniform":
		if l.Min < 1 || l.Max < l.Min {
			return bad("min %d and max %d, want 1 <= min <= max tokens", l.Min, l.Max)
		}
	case "lognormal":
		if !(l.Mean >= 1 && l.Sigma >= 0) || l.Min < 0 || l.Max != 0 && l.Max < max(1, l.Min) {
			return bad("mean %g, sigma %g, min %d and max %d, want mean >= 1, sigma >= 0, 0 <= min <= max tokens",
				l.Mean, l.Sigma, l.Min, l.Max)
		}
	case "empirical":
		if len(l.Values) == 0 || slices.Min(l.Values) < 1 {
			return bad("values %v, want one or more of >= 1 tokens", l.Values)
		}
	default:
		return trace.Errorf(codeBadWorkload,
			"%s.kind: got %q, want constant, uniform, lognormal or empirical", name, l.Kind)
	}
	return checkKind(name, l.Kind, []keyOfKinds{
		{key: "value", given: l.Value != 0, kinds: []string{"constant"}},
		{key: "values", given: len(l.Values) > 0, kinds: []string{"empirical"}},
		{key: "mean", given: l.Mean != 0, kinds: []string{"lognormal"}},
		{key: "sigma", given: l.Sigma != 0, kinds: []string{"lognormal"}},
		{key: "min", given: l.Min != 0, kinds: []string{"uniform", "lognormal"}},
		{key: "max", given: l.Max != 0, kinds: []string{"uniform", "lognormal"}},
	})
}

// draw returns a random length in tokens, at least 1.
func (l *LengthSpec) draw(rng *rand.Rand) int64 {
	switch l.Kind {
	case "constant":
		return l.Value
	case "uniform":
		return l.Min + rng.Int64N(l.Max-l.Min+1)
	case "empirical":
		return l.Values[rng.IntN(len(l.Values))]
	}
	// A log-normal length; the mean of its logarithm is log(mean) - sigma^2/2.
	v := math.Exp(math.Log(l.Mean) - l.Sigma*l.Sigma/2 + l.Sigma*rng.NormFloat64())
	n := int64(math.Min(v, 1e9) + 0.5)
	if l.Max > 0 {
		n = min(n, l.Max)
	}
	return max(n, l.Min, 1)
}

// Generate draws the requests of the workload; the same seed gives the same requests.
func (g *Generator) Generate(seed int64) (*Workload, error) {
	if g.spec != nil {
		return g.spec.generate(seed)
	}
	w := &Workload{Requests: make([]sim.Request, 0, g.Requests)}
	next := g.draws(seed)
	for range g.Requests {
		w.addRequest(next())
	}
	if a := g.Arrivals; a.Kind == "closed" {
		return w, w.Close(Loop{Clients: a.Clients, ThinkUs: sim.ToUs(a.ThinkMs * 1000),
			RampUs: sim.ToUs(a.RampS * 1e6)})
	}
	return w, nil
}

// Draw returns the requests of Generate in a form that draws each when it is needed, so that a long workload need not be in
// memory. ok is false for closed loops and for workload specifications of BLIS, where a request depends on later ones.
func (g *Generator) Draw(seed int64) (requests sim.Drawn, ok bool) {
	if g.spec != nil || g.Arrivals.Kind == "closed" {
		return sim.Drawn{}, false
	}
	return sim.Drawn{N: g.Requests, Next: g.draws(seed)}, true
}

// draws returns a function that draws one request after another, at most g.Requests. The arrivals never decrease; those of
// a closed loop are not set.
func (g *Generator) draws(seed int64) func() sim.Request {
	rng := rand.New(rand.NewPCG(uint64(seed), 0x9e37))
	clockUs := 0.0 // arrival of the last request
	arrivals := g.Arrivals
	drawn := 0 // number of requests drawn
	stage := 0 // number of stages begun
	left := 0  // requests of the present stage that are still to be drawn
	return func() sim.Request {
		if len(g.Stages) > 0 && left == 0 {
			arrivals.RateRPS = g.Stages[stage].RateRPS
			left = g.Stages[stage].Requests
			stage++
		}
		left--
		request := sim.Request{ID: strconv.Itoa(drawn), PromptTokens: g.Prompt.draw(rng), OutputTokens: g.Output.draw(rng)}
		if g.MaxTokens > 0 {
			request.MaxTokens = g.MaxTokens
			request.OutputTokens = min(request.OutputTokens, g.MaxTokens)
		}
		arrivals.setArrival(rng, drawn, &clockUs, &request)
		if p := g.Prefix; p.Groups > 0 && rng.Float64() < p.Share {
			request.Group = 1 + uint64(rng.IntN(p.Groups))
			request.GroupTokens = min(p.Tokens, request.PromptTokens)
		}
		g.classify(rng, &request)
		drawn++
		return request
	}
}

// setArrival sets the arrival of request i. *at is the arrival of the request before, us; it
// becomes that of this one.
func (a *ArrivalSpec) setArrival(rng *rand.Rand, i int, at *float64, q *sim.Request) {
	switch a.Kind {
	case "closed":
		return
	case "bursts":
		*at = float64(i/a.Burst) * a.EveryS * 1e6
	case "constant":
		if i > 0 {
			*at += 1 / a.RateRPS * 1e6
		}
	case "poisson":
		*at += rng.ExpFloat64() / a.RateRPS * 1e6
	case "gamma":
		*at += Gamma(rng, 1/(a.CV*a.CV)) * a.CV * a.CV / a.RateRPS * 1e6
	}
	q.ArrivalUs = sim.ToUs(*at)
}

// Gamma draws from a gamma distribution of the given shape and scale 1
// (Marsaglia and Tsang 2000; below shape 1 through shape + 1).
func Gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return Gamma(rng, shape+1) * math.Pow(rng.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(rng.Float64()) < 0.5*x*x+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// classify draws the service class of a request and sets its targets and priority.
func (g *Generator) classify(rng *rand.Rand, q *sim.Request) {
	if len(g.Classes) == 0 {
		return
	}
	total := 0.0
	for _, c := range g.Classes {
		total += c.Share
	}
	u := rng.Float64() * total
	for i, c := range g.Classes {
		u -= c.Share
		if u < 0 || i == len(g.Classes)-1 {
			q.SLOClass = c.Name
			q.Priority = c.Priority
			// trace.Ns multiplies by 1000 and truncates: here from ms to us.
			q.SLOTTFTUs = trace.Ns(c.TTFTMs)
			q.SLOE2EUs = trace.Ns(c.E2EMs)
			return
		}
	}
}
