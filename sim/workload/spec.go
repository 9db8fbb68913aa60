package workload

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// specV2 is a workload specification of BLIS, version 2 (its sim/workload at f90a1e3): clients that share a rate
// or each keep so many requests in flight. Read are the keys that decide which requests come when, and how long; a
// key that is of the format and not read is refused by name, because without it the workload is another one.
// tenant_id, model and streaming decide nothing here.
type specV2 struct {
	Version       string       `yaml:"version"`
	Seed          int64        `yaml:"seed"`
	Category      string       `yaml:"category"`
	AggregateRate float64      `yaml:"aggregate_rate"` // requests/s of all clients that have a rate_fraction
	Horizon       int64        `yaml:"horizon"`        // us, 0 = none
	NumRequests   int          `yaml:"num_requests"`   // 0 = up to the horizon
	Clients       []specClient `yaml:"clients"`

	Cohorts  unread `yaml:"cohorts"`
	ServeGen unread `yaml:"servegen_data"`
	PerfSpec unread `yaml:"inference_perf"`

	Targets map[string]specTargets `yaml:"goodput_slo_targets"` // by class
}

// specTargets are a class's goodput targets, ms; 0: none.
type specTargets struct {
	TTFTMs float64 `yaml:"ttft_ms"`
	ITLMs  float64 `yaml:"itl_ms"` // of the mean gap between a request's output tokens
	E2EMs  float64 `yaml:"e2e_ms"`
}

type specClient struct {
	ID           string         `yaml:"id"`
	Tenant       string         `yaml:"tenant_id"`
	SLOClass     string         `yaml:"slo_class"`
	Model        string         `yaml:"model"`
	Streaming    bool           `yaml:"streaming"`
	RateFraction float64        `yaml:"rate_fraction"`
	Concurrency  int            `yaml:"concurrency"`
	ThinkUs      int64          `yaml:"think_time_us"`
	Arrival      specArrival    `yaml:"arrival"`
	Input        specLength     `yaml:"input_distribution"`
	Output       specLength     `yaml:"output_distribution"`
	PrefixGroup  string         `yaml:"prefix_group"`
	PrefixTokens int64          `yaml:"prefix_length"`
	Lifecycle    *specLifecycle `yaml:"lifecycle"`
	TimeoutUs    *int64         `yaml:"timeout"`
	TargetUs     int64          `yaml:"slo_target_us"`

	Adapter    unread `yaml:"adapter"`
	Network    unread `yaml:"network"`
	Multimodal unread `yaml:"multimodal"`
	Reasoning  unread `yaml:"reasoning"`
	ClosedLoop unread `yaml:"closed_loop"`
}

type specArrival struct {
	Process string   `yaml:"process"` // poisson | gamma | weibull | constant
	CV      *float64 `yaml:"cv"`
	Shape   *float64 `yaml:"shape"`
	ScaleUs *float64 `yaml:"scale"`
}

type specLength struct {
	Type   string             `yaml:"type"`
	Params map[string]float64 `yaml:"params"`
	File   unread             `yaml:"file"`
}

type specLifecycle struct {
	Windows []specWindow `yaml:"windows"`
}

type specWindow struct {
	StartUs int64  `yaml:"start_us"`
	EndUs   int64  `yaml:"end_us"`
	Rate    unread `yaml:"trace_rate"`
	Arrival unread `yaml:"arrival"`
	Input   unread `yaml:"input_distribution"`
	Output  unread `yaml:"output_distribution"`
}

// What the format has where a file says nothing.
const (
	specPrefixTokens = 50          // tokens of a prefix group
	specTimeoutUs    = 300_000_000 // of a client that waits for its answer
)

// isSpecV2 recognises the specification by keys that only it has.
func isSpecV2(data []byte) bool {
	only := []string{"clients", "cohorts", "aggregate_rate", "servegen_data", "inference_perf"}
	var top yaml.Node
	if yaml.Unmarshal(data, &top) != nil || len(top.Content) == 0 || top.Content[0].Kind != yaml.MappingNode {
		return false
	}
	for i, n := range top.Content[0].Content {
		if i%2 == 0 && slices.Contains(only, n.Value) {
			return true
		}
	}
	return false
}

// loadSpecV2 reads a specification as a generator of requests. Codes: bad_workload.
func loadSpecV2(data []byte, name string) (*Generator, error) {
	s := &specV2{}
	if err := files.DecodeYAML(data, name, s); err != nil {
		e := (*trace.SyntaxError)(nil)
		if !errors.As(err, &e) {
			e, _ = trace.YAMLError(name, err)
		}
		e.Code = codeBadWorkload
		e.Msg = "workload specification: " + e.Msg
		return nil, e
	}
	if key, at := s.firstUnread(); key != "" {
		return nil, &trace.SyntaxError{File: name, Line: int64(at.Line), Col: int64(at.Col), Code: codeBadWorkload,
			Msg:  fmt.Sprintf("workload specification: got %s, which is not read, want a specification without it", key),
			Hint: "let `blis run --workload-spec FILE --trace-output PREFIX` write the requests, and give PREFIX.csv"}
	}
	if err := s.check(); err != nil {
		e := (*trace.Error)(nil)
		if errors.As(err, &e) {
			return nil, &trace.SyntaxError{File: name, Code: e.Code, Msg: "workload specification: " + e.Msg, Hint: e.Hint}
		}
		return nil, err
	}
	return &Generator{spec: s}, nil
}

// firstUnread names the first key that is of the format and not read.
func (s *specV2) firstUnread() (key string, at unread) {
	type entry struct {
		key string
		at  unread
	}
	list := []entry{{"cohorts", s.Cohorts}, {"servegen_data", s.ServeGen}, {"inference_perf", s.PerfSpec}}
	for i := range s.Clients {
		c := &s.Clients[i]
		of := fmt.Sprintf("clients[%d].", i)
		list = append(list, entry{of + "adapter", c.Adapter}, entry{of + "network", c.Network}, entry{of + "multimodal", c.Multimodal},
			entry{of + "reasoning", c.Reasoning}, entry{of + "closed_loop", c.ClosedLoop},
			entry{of + "input_distribution.file", c.Input.File}, entry{of + "output_distribution.file", c.Output.File})
		if c.Lifecycle == nil {
			continue
		}
		for k, w := range c.Lifecycle.Windows {
			in := fmt.Sprintf("%slifecycle.windows[%d].", of, k)
			list = append(list, entry{in + "trace_rate", w.Rate}, entry{in + "arrival", w.Arrival}, entry{in + "input_distribution", w.Input},
				entry{in + "output_distribution", w.Output})
		}
	}
	for _, e := range list {
		if e.at.Line > 0 {
			return e.key, e.at
		}
	}
	return "", unread{}
}

// maxTargetMs is a day.
const maxTargetMs = 86_400_000.0

func (s *specV2) check() error {
	bad := func(format string, args ...any) error { return trace.Errorf(codeBadWorkload, format, args...) }
	switch {
	case s.Version != "2":
		return bad("version: got %q, want \"2\"", s.Version)
	case s.Category != "" && s.Category != "language":
		return bad("category: got %q, want language", s.Category)
	case len(s.Clients) == 0:
		return bad("clients: got none, want at least one")
	case s.NumRequests < 0 || s.NumRequests > MaxGenerated || s.Horizon < 0 || s.Horizon > sim.LatestUs:
		return bad("num_requests, horizon: got %d and %d us, want 0 to %d, and 0 to %d us", s.NumRequests, s.Horizon, MaxGenerated, sim.LatestUs)
	case s.NumRequests == 0 && s.Horizon == 0:
		return bad("num_requests: got none and no horizon, want one of them")
	}
	for _, class := range slices.Sorted(maps.Keys(s.Targets)) {
		t := s.Targets[class]
		for _, ms := range []float64{t.TTFTMs, t.ITLMs, t.E2EMs} {
			if !(ms >= 0 && ms <= maxTargetMs) {
				return bad("goodput_slo_targets.%s: got %g ms, want 0 to %g", class, ms, maxTargetMs)
			}
		}
	}
	for i := range s.Clients {
		c := &s.Clients[i]
		if err := c.check(s); err != nil {
			return bad("clients[%d].%s", i, strings.TrimPrefix(err.Error(), string(codeBadWorkload)+": "))
		}
	}
	return nil
}

func (c *specClient) check(s *specV2) error {
	switch {
	case c.Concurrency < 0 || c.ThinkUs < 0 || c.PrefixTokens < 0 || c.TargetUs < 0 || c.TimeoutUs != nil && *c.TimeoutUs < 0:
		return fmt.Errorf("concurrency, think_time_us, prefix_length, slo_target_us, timeout: got a negative number, want >= 0")
	case c.Concurrency > 0 && (len(s.Clients) > 1 || c.Lifecycle != nil || c.RateFraction != 0 || s.NumRequests == 0):
		return fmt.Errorf("concurrency: got it beside other clients, a rate_fraction or a lifecycle, or without num_requests, " +
			"want one such client and num_requests")
	case c.Concurrency == 0 && !(c.RateFraction > 0 && c.RateFraction < math.MaxFloat64 && s.AggregateRate > 0 && s.AggregateRate < 1e9):
		return fmt.Errorf("rate_fraction: got %g of aggregate_rate %g/s, want both > 0, or concurrency", c.RateFraction, s.AggregateRate)
	case c.Concurrency == 0 && !slices.Contains([]string{"poisson", "gamma", "weibull", "constant"}, c.Arrival.Process):
		return fmt.Errorf("arrival.process: got %q, want poisson, gamma, weibull or constant", c.Arrival.Process)
	}
	for _, n := range []struct {
		key    string
		v      *float64
		lo, hi float64
	}{{"cv", c.Arrival.CV, 0.01, 10.4}, {"shape", c.Arrival.Shape, 1e-3, 1e6}, {"scale", c.Arrival.ScaleUs, 1e-6, 1e15}} {
		if n.v != nil && !(*n.v >= n.lo && *n.v <= n.hi) {
			return fmt.Errorf("arrival.%s: got %g, want %g..%g", n.key, *n.v, n.lo, n.hi)
		}
	}
	if c.Lifecycle != nil {
		if len(c.Lifecycle.Windows) == 0 {
			return fmt.Errorf("lifecycle.windows: got none, want at least one")
		}
		for _, w := range c.Lifecycle.Windows {
			if w.StartUs < 0 || w.EndUs <= w.StartUs || w.EndUs > sim.LatestUs {
				return fmt.Errorf("lifecycle.windows: got %d to %d us, want 0 <= start < end <= %d", w.StartUs, w.EndUs, sim.LatestUs)
			}
		}
	}
	if err := c.Input.check(); err != nil {
		return fmt.Errorf("input_distribution: %w", err)
	}
	if err := c.Output.check(); err != nil {
		return fmt.Errorf("output_distribution: %w", err)
	}
	return nil
}

// specParams are the parameters of each distribution of lengths: needed, then allowed.
var specParams = map[string][2][]string{
	"gaussian":         {{"mean", "std_dev", "min", "max"}, nil},
	"exponential":      {{"mean"}, {"min", "max"}},
	"lognormal":        {{"mu", "sigma"}, {"min", "max"}},
	"pareto_lognormal": {{"alpha", "xm", "mu", "sigma", "mix_weight"}, nil},
	"constant":         {{"value"}, nil},
}

func (l *specLength) check() error {
	given := slices.Sorted(maps.Keys(l.Params))
	for _, key := range given {
		if v := l.Params[key]; math.IsNaN(v) || math.IsInf(v, 0) || v < 0 && key != "mu" {
			return fmt.Errorf("params.%s: got %g, want a finite number >= 0", key, v)
		}
	}
	if l.Type == "empirical" {
		_, err := l.chances()
		return err
	}
	keys, ok := specParams[l.Type]
	if !ok {
		return fmt.Errorf("type: got %q, want gaussian, exponential, lognormal, pareto_lognormal, constant or empirical", l.Type)
	}
	for _, key := range keys[0] {
		if _, ok := l.Params[key]; !ok {
			return fmt.Errorf("params.%s: missing, want it with type %s", key, l.Type)
		}
	}
	for _, key := range given {
		if !slices.Contains(keys[0], key) && !slices.Contains(keys[1], key) {
			return fmt.Errorf("params.%s: got it, want %s with type %s", key, trace.OneOf(slices.Concat(keys[0], keys[1])), l.Type)
		}
	}
	if lo, hi := l.Params["min"], l.Params["max"]; hi > 0 && lo > hi || l.Type == "pareto_lognormal" && !(l.Params["alpha"] > 0) {
		return fmt.Errorf("params: got min %g, max %g and alpha %g, want min <= max, alpha > 0", lo, hi, l.Params["alpha"])
	}
	return nil
}

// Law is a distribution of lengths with a given mean.
type Law string

// The laws there are. A log-normal one has the squared coefficient of variation of its Lengths.
const (
	ConstantLaw    Law = "constant"
	ExponentialLaw Law = "exponential"
	LogNormalLaw   Law = "lognormal"
)

// Lengths are the mean tokens of requests and their spread, variance over squared mean.
type Lengths struct {
	Prompt, Output       float64
	Cached               float64 // tokens of the prompt found in the prefix cache
	PromptCV2, OutputCV2 float64
}

// Traffic is an open stream of requests: Poisson arrivals, independent lengths.
type Traffic struct {
	Shape           Lengths
	Prompts, Output Law
	RateRPS         float64
	Requests        int
	Seed            uint64
	Longest         int64 // tokens of a request at most; 0: no limit
}

// Spread of the lengths of chat recordings, and the burst that measures a capacity.
const (
	chatPromptCV2 = 1
	chatOutputCV2 = 0.5
	burst         = 600
)

// ChatTraffic is a burst of requests with the spread of lengths that chat recordings have.
func ChatTraffic(d *deploy.Deployment, prompt, output float64) Traffic {
	return Traffic{Shape: Lengths{Prompt: prompt, Output: output, PromptCV2: chatPromptCV2, OutputCV2: chatOutputCV2},
		Prompts: LogNormalLaw, Output: LogNormalLaw, Requests: burst, Seed: 1, RateRPS: 1e6,
		Longest: d.LongestSequence().Or(math.MaxInt32)}
}

// Keys of the draws. Request i draws the same numbers at any rate and under any law, so
// that two runs differ by what they compare.
const (
	drawGap uint64 = iota
	drawPrompt
	drawOutput
)

// Draw draws the requests, and returns the lengths they really have.
func (t *Traffic) Draw() ([]sim.Request, Lengths) {
	out := make([]sim.Request, t.Requests)
	var clock float64
	var prompt, prompt2, output, output2 float64
	for i := range out {
		clock -= 1e6 / t.RateRPS * math.Log1p(-stat.Draw(t.Seed, uint64(i), drawGap))
		r := &out[i]
		r.ArrivalUs = sim.ToUs(math.Floor(clock))
		r.PromptTokens = lengthOf(t.Prompts, t.Shape.Prompt, t.Shape.PromptCV2, stat.Draw(t.Seed, uint64(i), drawPrompt))
		r.OutputTokens = lengthOf(t.Output, t.Shape.Output, t.Shape.OutputCV2, stat.Draw(t.Seed, uint64(i), drawOutput))
		if t.Longest > 0 {
			r.PromptTokens = min(r.PromptTokens, t.Longest*3/4)
			r.OutputTokens = min(r.OutputTokens, t.Longest/4)
		}
		if t.Shape.Cached > 0 {
			r.CachedTokens = trace.Some(int64(float64(r.PromptTokens) * t.Shape.Cached / t.Shape.Prompt))
		}
		p := float64(r.PromptTokens)
		m := float64(r.OutputTokens)
		prompt += p
		prompt2 += p * p
		output += m
		output2 += m * m
	}
	n := float64(t.Requests)
	s := Lengths{Prompt: prompt / n, Output: output / n, PromptCV2: prompt2*n/(prompt*prompt) - 1, OutputCV2: output2*n/(output*output) - 1}
	s.Cached = t.Shape.Cached * s.Prompt / t.Shape.Prompt
	s.PromptCV2, s.OutputCV2 = math.Max(0, s.PromptCV2), math.Max(0, s.OutputCV2)
	return out, s
}

// lengthOf is the u-quantile of the law, at least one token.
func lengthOf(law Law, mean, cv2, u float64) int64 {
	v := mean
	switch law {
	case ExponentialLaw:
		v = -mean * math.Log1p(-u)
	case LogNormalLaw:
		v = stat.LogNormal(mean, cv2, u)
	}
	return max(1, trace.Int(v))
}

// DrawnRate is the rate of the arrivals that are drawn, requests per second.
func (t *Traffic) DrawnRate() float64 {
	reqs, _ := t.Draw()
	return float64(len(reqs)) / float64(reqs[len(reqs)-1].ArrivalUs) * 1e6
}

// ErrNothingFinished cannot happen with requests that fit the engine.
var ErrNothingFinished = errors.New("simulation: no request finished")

// Capacity is the throughput of a deployment whose requests all come at once, requests per second.
func (t *Traffic) Capacity(d *deploy.Deployment, step sim.Model) (float64, error) {
	reqs, _ := t.Draw()
	last := 0.0
	_, err := sim.Stream(sim.DefaultConfig(d, step), reqs, nil, sim.InOrder(len(reqs), func(_ int, r *sim.RequestResult) bool {
		last = math.Max(last, float64(r.FinishedUs.V))
		return true
	}))
	if err != nil {
		return 0, err
	}
	if last == 0 {
		return 0, ErrNothingFinished
	}
	return float64(len(reqs)) / last * 1e6, nil
}

// generate draws the requests of a specification: each client by itself, then in order of arrival, up to
// num_requests. The random numbers are our own, so counts, rates and lengths agree with BLIS's, single requests do
// not. Both seeds, the file's and the given one, count.
func (s *specV2) generate(seed int64) (*Workload, error) {
	groups, prefix := s.prefixGroups()
	w := &Workload{}
	for i := range s.Clients {
		c := &s.Clients[i]
		rng := rand.New(rand.NewPCG(uint64(seed)^uint64(s.Seed)<<32, uint64(i)+0x5bec))
		if c.Concurrency > 0 { // the only client
			for k := range s.NumRequests {
				w.add(c.request(rng, 0, groups, prefix))
				w.Requests[k].ID = strconv.Itoa(k)
			}
			s.promise(w)
			return w, w.Close(Loop{Clients: c.Concurrency, ThinkUs: c.ThinkUs, RampUs: c.ThinkUs})
		}
		if err := s.arrive(w, c, rng, groups, prefix); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(w.Requests, func(a, b sim.Request) int { return cmp.Compare(a.ArrivalUs, b.ArrivalUs) })
	if s.NumRequests > 0 && len(w.Requests) > s.NumRequests {
		w.Requests = w.Requests[:s.NumRequests]
	}
	for i := range w.Requests {
		w.Requests[i].ID = strconv.Itoa(i)
	}
	s.promise(w)
	if len(w.Requests) == 0 {
		return nil, trace.Errorf(codeBadWorkload, "workload specification: got no request before the horizon, want at least one")
	}
	return w, nil
}

// promise gives requests the goodput targets of their classes; a client's slo_target_us
// holds where its class has no ttft_ms.
func (s *specV2) promise(w *Workload) {
	for i := range w.Requests {
		q := &w.Requests[i]
		t := s.Targets[q.SLOClass]
		if q.SLOITLUs, q.SLOE2EUs = sim.ToUs(t.ITLMs*1e3), sim.ToUs(t.E2EMs*1e3); t.TTFTMs > 0 {
			q.SLOTTFTUs = sim.ToUs(t.TTFTMs * 1e3)
		}
	}
}

// arrive adds the requests of a client that has a share of the rate.
func (s *specV2) arrive(w *Workload, c *specClient, rng *rand.Rand, groups map[string]uint64, prefix map[string]int64) error {
	gap := c.Arrival.gaps(s.rate(c) / 1e6)
	end := int64(sim.LatestUs)
	if s.Horizon > 0 {
		end = s.Horizon
	}
	if c.Lifecycle != nil {
		end = min(end, c.lastWindow())
	}
	drawn := 0
	for at := int64(0); s.NumRequests == 0 || drawn < s.NumRequests; {
		at += max(1, sim.ToUs(math.Floor(gap(rng))))
		if at >= end {
			return nil
		}
		if !c.active(at) {
			continue
		}
		if drawn++; len(w.Requests) >= MaxGenerated {
			return trace.Errorf(codeBadWorkload, "workload specification: got more than %d requests, want fewer: give num_requests or horizon",
				MaxGenerated)
		}
		w.add(c.request(rng, at, groups, prefix))
	}
	return nil
}

func (c *specClient) request(rng *rand.Rand, at int64, groups map[string]uint64, prefix map[string]int64) sim.Request {
	q := sim.Request{ArrivalUs: at, PromptTokens: c.Input.draw(rng), OutputTokens: c.Output.draw(rng), SLOClass: c.SLOClass,
		SLOTTFTUs: c.TargetUs}
	if c.PrefixGroup != "" { // the prefix stands before the drawn prompt
		q.Group = groups[c.PrefixGroup]
		q.GroupTokens = prefix[c.PrefixGroup]
		q.PromptTokens += q.GroupTokens
	}
	timeout := int64(0)
	if c.Concurrency > 0 {
		timeout = specTimeoutUs
	}
	if c.TimeoutUs != nil {
		timeout = *c.TimeoutUs
	}
	if timeout > 0 {
		q.AbortAfterUs = trace.Some(timeout)
		q.AbortKind = sim.OutcomeTimedOut
	}
	return q
}

// prefixGroups numbers the groups from 1; the first client that gives a length decides it.
func (s *specV2) prefixGroups() (ids map[string]uint64, tokens map[string]int64) {
	ids = map[string]uint64{}
	tokens = map[string]int64{}
	for i := range s.Clients {
		c := &s.Clients[i]
		if c.PrefixGroup == "" {
			continue
		}
		if ids[c.PrefixGroup] == 0 {
			ids[c.PrefixGroup] = uint64(len(ids) + 1)
		}
		if tokens[c.PrefixGroup] == 0 {
			tokens[c.PrefixGroup] = c.PrefixTokens
		}
	}
	for name, n := range tokens {
		if n == 0 {
			tokens[name] = specPrefixTokens
		}
	}
	return ids, tokens
}

// rate is the client's part of the aggregate rate, requests/s: its fraction of those whose windows meet its own.
func (s *specV2) rate(c *specClient) float64 {
	sum := 0.0
	for i := range s.Clients {
		if o := &s.Clients[i]; c.meets(o) {
			sum += o.RateFraction
		}
	}
	return s.AggregateRate * c.RateFraction / sum
}

func (c *specClient) meets(o *specClient) bool {
	if c.Lifecycle == nil || o.Lifecycle == nil {
		return true
	}
	for _, a := range c.Lifecycle.Windows {
		for _, b := range o.Lifecycle.Windows {
			if a.StartUs < b.EndUs && b.StartUs < a.EndUs {
				return true
			}
		}
	}
	return false
}

func (c *specClient) active(at int64) bool {
	if c.Lifecycle == nil {
		return true
	}
	return slices.ContainsFunc(c.Lifecycle.Windows, func(w specWindow) bool { return at >= w.StartUs && at < w.EndUs })
}

func (c *specClient) lastWindow() (end int64) {
	for _, w := range c.Lifecycle.Windows {
		end = max(end, w.EndUs)
	}
	return end
}

// gaps draws times between arrivals, us, at a rate per us. Shape and scale of gamma and Weibull, where both are given,
// decide instead of the rate.
func (a *specArrival) gaps(rate float64) func(*rand.Rand) float64 {
	cv := 1.0
	if a.CV != nil {
		cv = *a.CV
	}
	fitted := a.Shape != nil && a.ScaleUs != nil
	switch a.Process {
	case "constant":
		return func(*rand.Rand) float64 { return 1 / rate }
	case "gamma":
		shape, scale := 1/(cv*cv), cv*cv/rate
		if fitted {
			shape, scale = *a.Shape, *a.ScaleUs
		}
		return func(rng *rand.Rand) float64 { return Gamma(rng, shape) * scale }
	case "weibull":
		shape := weibullShape(cv)
		scale := 1 / rate / math.Gamma(1+1/shape)
		if fitted {
			shape, scale = *a.Shape, *a.ScaleUs
		}
		return func(rng *rand.Rand) float64 { return scale * math.Pow(rng.ExpFloat64(), 1/shape) }
	}
	return func(rng *rand.Rand) float64 { return rng.ExpFloat64() / rate }
}

// weibullShape is the shape k of a Weibull distribution with the coefficient of variation: G(1+2/k)/G(1+1/k)^2 = 1 + cv^2,
// by bisection, because the left side falls with k.
func weibullShape(cv float64) float64 {
	lo, hi := 0.1, 200.0
	for range 60 {
		k := (lo + hi) / 2
		one, _ := math.Lgamma(1 + 1/k)
		two, _ := math.Lgamma(1 + 2/k)
		if math.Expm1(two-2*one) > cv*cv {
			lo = k
		} else {
			hi = k
		}
	}
	return (lo + hi) / 2
}

// draw is one length in tokens, at least 1.
func (l *specLength) draw(rng *rand.Rand) int64 {
	p := l.Params
	var v float64
	switch l.Type {
	case "constant":
		v = math.Floor(p["value"])
	case "gaussian":
		v = p["mean"] + p["std_dev"]*rng.NormFloat64()
	case "exponential":
		v = p["mean"] * rng.ExpFloat64()
	case "lognormal":
		v = math.Exp(p["mu"] + p["sigma"]*rng.NormFloat64())
	case "pareto_lognormal":
		if rng.Float64() < p["mix_weight"] {
			v = p["xm"] * math.Exp(rng.ExpFloat64()/p["alpha"])
		} else {
			v = math.Exp(p["mu"] + p["sigma"]*rng.NormFloat64())
		}
	case "empirical":
		values, err := l.chances()
		if err != nil {
			return 1 // unreachable: check has read them
		}
		u := rng.Float64() * values[len(values)-1].sum
		k, _ := slices.BinarySearchFunc(values, u, func(c chance, u float64) int { return cmp.Compare(c.sum, u) })
		v = float64(values[min(k, len(values)-1)].tokens)
	}
	n := int64(math.Round(math.Min(v, 1e9)))
	if most := trace.Int(math.Trunc(p["max"])); most > 0 {
		n = min(n, most)
	}
	return max(n, trace.Int(math.Trunc(p["min"])), 1)
}

// chance is a length and the chances up to it added up.
type chance struct {
	tokens int64
	sum    float64
}

// chances are the lengths of an empirical distribution, ascending.
func (l *specLength) chances() ([]chance, error) {
	weights := map[int64]float64{}
	for key, v := range l.Params {
		n, err := strconv.ParseInt(key, 10, 64)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("params: got %q, want tokens >= 1 with type empirical", key)
		}
		weights[n] = v
	}
	var out []chance
	sum := 0.0
	for _, n := range slices.Sorted(maps.Keys(weights)) {
		if v := weights[n]; v > 0 {
			sum += v
			out = append(out, chance{n, sum})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("params: got no length with a chance above 0, want at least one with type empirical")
	}
	return out, nil
}
