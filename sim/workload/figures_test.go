package workload

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// moments returns the mean and the variance of n values.
func moments(n int, draw func() float64) (mean, variance float64) {
	var sum, squares float64
	for range n {
		v := draw()
		sum += v
		squares += v * v
	}
	mean = sum / float64(n)
	return mean, squares/float64(n) - mean*mean
}

// TestMomentsOfDraws: distributions have the mean and the variance of their parameters.
func TestMomentsOfDraws(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 20_000
	length := func(l LengthSpec) func() float64 { return func() float64 { return float64(l.draw(rng)) } }
	spec := func(kind string, params map[string]float64) func() float64 {
		l := specLength{Type: kind, Params: params}
		return func() float64 { return float64(l.draw(rng)) }
	}
	gaps := func(a specArrival) func() float64 {
		draw := a.gaps(0.01)
		return func() float64 { return draw(rng) }
	}
	ptr := testkit.Ptr
	for _, c := range []struct {
		name           string
		draw           func() float64
		mean, variance float64
	}{
		{"gamma 0.5", func() float64 { return Gamma(rng, 0.5) }, 0.5, 0.5},
		{"gamma 1", func() float64 { return Gamma(rng, 1) }, 1, 1},
		{"gamma 4", func() float64 { return Gamma(rng, 4) }, 4, 4},
		{"gamma 100", func() float64 { return Gamma(rng, 100) }, 100, 100},
		{"log-normal", length(LengthSpec{Kind: "lognormal", Mean: 1000, Sigma: 0.5}), 1000, 1e6 * math.Expm1(0.25)},
		{"uniform", length(LengthSpec{Kind: "uniform", Min: 11, Max: 20}), 15.5, 8.25},
		{"empirical", length(LengthSpec{Kind: "empirical", Values: []int64{1, 1, 1, 5}}), 2, 3},
		{"gaussian", spec("gaussian", map[string]float64{"mean": 1000, "std_dev": 100, "max": 5000}), 1000, 1e4},
		{"exponential", spec("exponential", map[string]float64{"mean": 1000}), 1000, 1e6},
		{"log-normal of a specification", spec("lognormal", map[string]float64{"mu": 6, "sigma": 0.5}), math.Exp(6.125), math.Exp(12.25) * math.Expm1(0.25)},
		{"half Pareto", spec("pareto_lognormal", map[string]float64{"alpha": 5, "xm": 800, "mu": 6, "sigma": 0, "mix_weight": 0.5}), (1000 + math.Exp(6)) / 2,
			(1e6/15 + math.Pow(1000-math.Exp(6), 2)/2) / 2},
		{"weighted", spec("empirical", map[string]float64{"10": 3, "20": 1}), 12.5, 18.75},
		{"gaps of a Poisson process", gaps(specArrival{Process: "poisson"}), 100, 1e4},
		{"gamma gaps", gaps(specArrival{Process: "gamma", CV: ptr(0.5)}), 100, 2500},
		{"gamma gaps of a shape alone", gaps(specArrival{Process: "gamma", CV: ptr(0.5), Shape: ptr(9)}), 100, 2500},
		{"gamma gaps of a shape and a scale", gaps(specArrival{Process: "gamma", CV: ptr(0.5), Shape: ptr(9), ScaleUs: ptr(2)}), 18, 36},
		{"Weibull gaps", gaps(specArrival{Process: "weibull", CV: ptr(0.5)}), 100, 2500},
		{"Weibull gaps of a scale alone", gaps(specArrival{Process: "weibull", CV: ptr(0.5), ScaleUs: ptr(2)}), 100, 2500},
		{"Weibull gaps of a shape and a scale", gaps(specArrival{Process: "weibull", Shape: ptr(1), ScaleUs: ptr(20)}), 20, 400},
		{"constant gaps", gaps(specArrival{Process: "constant"}), 100, 0},
	} {
		mean, variance := moments(n, c.draw)
		if math.Abs(mean-c.mean) > 0.03*c.mean || math.Abs(variance-c.variance) > 0.1*c.variance {
			t.Errorf("%s: got a mean of %.4g and a variance of %.4g, want %.4g and %.4g", c.name, mean, variance, c.mean, c.variance)
		}
	}
	for _, c := range []struct {
		got  int64
		want int64
	}{
		{(&LengthSpec{Kind: "lognormal", Mean: 5e9}).draw(rng), 1e9},
		{(&LengthSpec{Kind: "lognormal", Mean: 7.4}).draw(rng), 7},
		{(&LengthSpec{Kind: "lognormal", Mean: 7.6}).draw(rng), 8},
		{(&LengthSpec{Kind: "lognormal", Mean: 700, Max: 600}).draw(rng), 600},
		{(&LengthSpec{Kind: "lognormal", Mean: 700, Min: 800}).draw(rng), 800},
		{(&specLength{Type: "constant", Params: map[string]float64{"value": 7.9}}).draw(rng), 7},
		{(&specLength{Type: "constant", Params: map[string]float64{"value": 7e9}}).draw(rng), 1e9},
		{(&specLength{Type: "constant", Params: map[string]float64{"value": 0}}).draw(rng), 1},
		{(&specLength{Type: "constant", Params: map[string]float64{"value": 90, "max": 50.5}}).draw(rng), 50},
		{(&specLength{Type: "constant", Params: map[string]float64{"value": 9, "min": 50.5}}).draw(rng), 50},
	} {
		if c.got != c.want {
			t.Errorf("a length: got %d, want %d", c.got, c.want)
		}
	}
}

// TestRangesOfAGenerator: numbers at the ends of their ranges, and beyond.
func TestRangesOfAGenerator(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		name   string
		change func(g *Generator)
		isGood bool
	}{
		{"as it is", func(*Generator) {}, true},
		{"no request", func(g *Generator) { g.Requests = 0 }, false},
		{"as many as may be", func(g *Generator) { g.Requests = MaxGenerated }, true},
		{"more", func(g *Generator) { g.Requests = MaxGenerated + 1 }, false},
		{"negative max_tokens", func(g *Generator) { g.MaxTokens = -1 }, false},
		{"a prefix", func(g *Generator) { g.Prefix = prefixSpec{1, 1, 1} }, true},
		{"no groups", func(g *Generator) { g.Prefix = prefixSpec{0, 1, 1} }, false},
		{"no tokens", func(g *Generator) { g.Prefix = prefixSpec{1, 0, 1} }, false},
		{"no share", func(g *Generator) { g.Prefix = prefixSpec{1, 1, 0} }, false},
		{"more than all", func(g *Generator) { g.Prefix = prefixSpec{1, 1, 1.01} }, false},
		{"a class", func(g *Generator) { g.Classes = []classSpec{{"a", 0.1, 1, 0, 0}} }, true},
		{"no name", func(g *Generator) { g.Classes = []classSpec{{"", 0.1, 1, 0, 0}} }, false},
		{"no share of a class", func(g *Generator) { g.Classes = []classSpec{{"a", 0, 1, 0, 0}} }, false},
		{"an infinite share", func(g *Generator) { g.Classes = []classSpec{{"a", inf, 1, 0, 0}} }, false},
		{"negative TTFT", func(g *Generator) { g.Classes = []classSpec{{"a", 1, -1, 0, 0}} }, false},
		{"negative E2E", func(g *Generator) { g.Classes = []classSpec{{"a", 1, 0, -1, 0}} }, false},
		{"no rate", func(g *Generator) { g.Arrivals.RateRPS = 0 }, false},
		{"an infinite rate", func(g *Generator) { g.Arrivals.RateRPS = inf }, false},
		{"think time of an open load", func(g *Generator) { g.Arrivals.ThinkMs = 1 }, false},
		{"negative think time", func(g *Generator) { g.Arrivals.ThinkMs = -1 }, false},
		{"negative ramp", func(g *Generator) { g.Arrivals.RampS = -1 }, false},
		{"clients of an open load", func(g *Generator) { g.Arrivals.Clients = 1 }, false},
		{"a burst of an open load", func(g *Generator) { g.Arrivals.Burst = 1 }, false},
		{"gamma without cv", func(g *Generator) { g.Arrivals.Kind = "gamma" }, false},
		{"gamma", func(g *Generator) { g.Arrivals.Kind, g.Arrivals.CV = "gamma", 1 }, true},
		{"bursts", func(g *Generator) { g.Arrivals = ArrivalSpec{Kind: "bursts", Burst: 1, EveryS: 1} }, true},
		{"bursts without a time", func(g *Generator) { g.Arrivals = ArrivalSpec{Kind: "bursts", Burst: 1} }, false},
		{"a closed loop", func(g *Generator) { g.Arrivals = ArrivalSpec{Kind: "closed", Clients: 1, ThinkMs: 1, RampS: 1} }, true},
		{"a closed loop of nobody", func(g *Generator) { g.Arrivals = ArrivalSpec{Kind: "closed"} }, false},
	} {
		g := Generator{Requests: 1, Arrivals: ArrivalSpec{Kind: "poisson", RateRPS: 1}, Prompt: LengthSpec{Kind: "constant", Value: 1}, Output: LengthSpec{Kind: "constant", Value: 1}}
		c.change(&g)
		if err := g.Check(); (err == nil) != c.isGood {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	for _, c := range []struct {
		name   string
		stages []stageSpec
		isGood bool
	}{
		{"one", []stageSpec{{1, 1}}, true},
		{"no request", []stageSpec{{1, 1}, {0, 1}}, false},
		{"all that may be", []stageSpec{{1, 1}, {MaxGenerated - 1, 1}}, true},
		{"more", []stageSpec{{1, 1}, {MaxGenerated, 1}}, false},
		{"no rate", []stageSpec{{1, 0}}, false},
		{"an infinite rate", []stageSpec{{1, inf}}, false},
	} {
		g := Generator{Arrivals: ArrivalSpec{Kind: "gamma"}, Stages: c.stages}
		if err := g.takeStages(); (err == nil) != c.isGood || c.isGood && (g.Requests < 1 || g.Arrivals.RateRPS != 1) {
			t.Errorf("stages, %s: got %+v and %v", c.name, g, err)
		}
	}
	for _, g := range []Generator{{Requests: 1, Arrivals: ArrivalSpec{Kind: "gamma"}}, {Arrivals: ArrivalSpec{Kind: "gamma", RateRPS: 1}}, {Arrivals: ArrivalSpec{Kind: "closed"}}} {
		g.Stages = []stageSpec{{1, 1}}
		if err := g.takeStages(); err == nil {
			t.Errorf("stages beside %+v were taken", g.Arrivals)
		}
	}
	for loop, isGood := range map[Loop]bool{{Clients: 1}: true, {}: false, {Clients: 1, ThinkUs: -1}: false, {Clients: 1, RampUs: -1}: false, {Clients: 1, ThinkUs: sim.LatestUs}: true,
		{Clients: 1, ThinkUs: sim.LatestUs + 1}: false, {Clients: 1, RampUs: sim.LatestUs + 1}: false} {
		if err := loop.Check(); (err == nil) != isGood {
			t.Errorf("%+v: got %v", loop, err)
		}
	}
	for p, isGood := range map[Point]bool{
		{Requests: 1, InputTokens: 10, OutputTokens: 10}:                       true,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, RangeRatio: 0.99}:     true,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, RangeRatio: 1}:        false,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, RangeRatio: -0.1}:     false,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, RateRPS: -1}:          false,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, Concurrency: -1}:      false,
		{Requests: 0, InputTokens: 10, OutputTokens: 10}:                       false,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, Concurrency: 1}:       true,
		{Requests: 1, InputTokens: 10, OutputTokens: 10, RateRPS: math.Inf(1)}: false,
	} {
		if _, err := p.Workload(1); (err == nil) != isGood {
			t.Errorf("%+v: got %v", p, err)
		}
	}
}

// TestSpecNumbers: numbers of a specification and of its clients at the ends of their ranges, and beyond.
func TestSpecNumbers(t *testing.T) {
	ptr := func(v int64) *int64 { return &v }
	window := func(from, to int64) *specLifecycle {
		return &specLifecycle{Windows: []specWindow{{StartUs: from, EndUs: to}}}
	}
	for _, c := range []struct {
		name   string
		change func(s *specV2, c *specClient)
		want   string // in the error; empty for none
	}{
		{"as it is", func(*specV2, *specClient) {}, ""},
		{"requests", func(s *specV2, _ *specClient) { s.NumRequests = MaxGenerated }, ""},
		{"too many", func(s *specV2, _ *specClient) { s.NumRequests = MaxGenerated + 1 }, "num_requests, horizon: got 10000001"},
		{"negative requests", func(s *specV2, _ *specClient) { s.NumRequests = -1 }, "num_requests, horizon: got -1"},
		{"a horizon alone", func(s *specV2, _ *specClient) { s.NumRequests, s.Horizon = 0, sim.LatestUs }, ""},
		{"too far", func(s *specV2, _ *specClient) { s.Horizon = sim.LatestUs + 1 }, "num_requests, horizon"},
		{"negative horizon", func(s *specV2, _ *specClient) { s.Horizon = -1 }, "num_requests, horizon"},
		{"a target of a day", func(s *specV2, _ *specClient) { s.Targets = map[string]specTargets{"a": {1, 0, 86_400_000}} }, ""},
		{"of more", func(s *specV2, _ *specClient) { s.Targets = map[string]specTargets{"a": {0, 86_400_001, 0}} }, "goodput_slo_targets.a: got 8.6400001e+07 ms"},
		{"negative concurrency", func(_ *specV2, c *specClient) { c.Concurrency = -1 }, "clients[0].concurrency, think_time_us"},
		{"negative think time", func(_ *specV2, c *specClient) { c.ThinkUs = -1 }, "got a negative number"},
		{"negative prefix", func(_ *specV2, c *specClient) { c.PrefixTokens = -1 }, "got a negative number"},
		{"negative target", func(_ *specV2, c *specClient) { c.TargetUs = -1 }, "got a negative number"},
		{"negative timeout", func(_ *specV2, c *specClient) { c.TimeoutUs = ptr(-1) }, "got a negative number"},
		{"no timeout", func(_ *specV2, c *specClient) { c.TimeoutUs = ptr(0) }, ""},
		{"in flight", func(_ *specV2, c *specClient) { c.RateFraction, c.Concurrency = 0, 1 }, ""},
		{"in flight with a rate", func(_ *specV2, c *specClient) { c.Concurrency = 1 }, "concurrency: got it beside"},
		{"in flight for ever", func(s *specV2, c *specClient) { c.RateFraction, c.Concurrency, s.NumRequests, s.Horizon = 0, 1, 0, 9 }, "concurrency: got it beside"},
		{"in flight in windows", func(_ *specV2, c *specClient) { c.RateFraction, c.Concurrency, c.Lifecycle = 0, 1, window(0, 1) }, "concurrency: got it beside"},
		{"no rate", func(_ *specV2, c *specClient) { c.RateFraction = 0 }, "rate_fraction: got 0"},
		{"an infinite part", func(_ *specV2, c *specClient) { c.RateFraction = math.MaxFloat64 }, "rate_fraction: got"},
		{"no rate in all", func(s *specV2, _ *specClient) { s.AggregateRate = 0 }, "of aggregate_rate 0/s"},
		{"too large a rate", func(s *specV2, _ *specClient) { s.AggregateRate = 1e9 }, "of aggregate_rate 1e+09/s"},
		{"a window", func(_ *specV2, c *specClient) { c.Lifecycle = window(0, 1) }, ""},
		{"the last one", func(_ *specV2, c *specClient) { c.Lifecycle = window(0, sim.LatestUs) }, ""},
		{"none", func(_ *specV2, c *specClient) { c.Lifecycle = &specLifecycle{} }, "lifecycle.windows: got none"},
		{"an empty one", func(_ *specV2, c *specClient) { c.Lifecycle = window(5, 5) }, "lifecycle.windows: got 5 to 5 us"},
		{"an early one", func(_ *specV2, c *specClient) { c.Lifecycle = window(-1, 5) }, "lifecycle.windows: got -1"},
		{"a late one", func(_ *specV2, c *specClient) { c.Lifecycle = window(0, sim.LatestUs+1) }, "lifecycle.windows: got 0"},
		{"no output", func(_ *specV2, c *specClient) { c.Output.Params = nil }, "output_distribution: params.value: missing"},
		{"a negative length", func(_ *specV2, c *specClient) { c.Input.Params = map[string]float64{"value": -1} }, "input_distribution: params.value: got -1"},
		{"a negative mu", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "lognormal", Params: map[string]float64{"mu": -1, "sigma": 0}}
		}, ""},
		{"an infinite mu", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "lognormal", Params: map[string]float64{"mu": math.Inf(1), "sigma": 0}}
		}, "params.mu: got +Inf"},
		{"min above max", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "exponential", Params: map[string]float64{"mean": 1, "min": 3, "max": 2}}
		}, "params: got min 3, max 2"},
		{"min at max", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "exponential", Params: map[string]float64{"mean": 1, "min": 3, "max": 3}}
		}, ""},
		{"alpha 0", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "pareto_lognormal", Params: map[string]float64{"alpha": 0, "xm": 1, "mu": 1, "sigma": 1, "mix_weight": 0}}
		}, "and alpha 0"},
		{"no chance", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "empirical", Params: map[string]float64{"5": 0}}
		}, "no length with a chance above 0"},
		{"no token", func(_ *specV2, c *specClient) {
			c.Input = specLength{Type: "empirical", Params: map[string]float64{"0": 1}}
		}, `params: got "0"`},
	} {
		one := specLength{Type: "constant", Params: map[string]float64{"value": 1}}
		s := &specV2{Version: "2", NumRequests: 1, AggregateRate: 1, Clients: []specClient{{RateFraction: 1, Arrival: specArrival{Process: "poisson"}, Input: one, Output: one}}}
		c.change(s, &s.Clients[0])
		err := s.checkSpec()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	// Two clients send at different times, and one of them beside a third.
	s := &specV2{AggregateRate: 12, Clients: []specClient{{RateFraction: 1, Lifecycle: window(0, 10)}, {RateFraction: 2, Lifecycle: window(10, 20)}, {RateFraction: 3}}}
	for i, want := range []float64{3, 4.8, 6} {
		if got := s.rateOf(&s.Clients[i]); got != want {
			t.Errorf("client %d: got a rate of %g, want %g", i, got, want)
		}
	}
	for at, want := range map[int64]bool{-1: false, 0: true, 9: true, 10: false} {
		if s.Clients[0].isActive(at) != want || !s.Clients[2].isActive(at) {
			t.Errorf("at %d us: got active %v", at, !want)
		}
	}
	if got := s.Clients[1].lastWindow(); got != 20 {
		t.Errorf("got a last window to %d us, want 20", got)
	}
	// A client that keeps requests in flight gives up after 300 s, others only if they say so.
	one := specLength{Type: "constant", Params: map[string]float64{"value": 7}}
	for _, c := range []struct {
		concurrency int
		timeout     *int64
		want        trace.Opt[int64]
	}{{0, nil, trace.Opt[int64]{}}, {1, nil, some(300_000_000)}, {1, ptr(0), trace.Opt[int64]{}}, {1, ptr(1), some(1)}, {0, ptr(5), some(5)}} {
		client := specClient{Concurrency: c.concurrency, TimeoutUs: c.timeout, Input: one, Output: one, PrefixGroup: "p", TargetUs: 9}
		q := client.request(rand.New(rand.NewPCG(1, 2)), 4, map[string]uint64{"p": 2}, map[string]int64{"p": 50})
		if q.AbortAfterUs != c.want || q.ArrivalUs != 4 || q.PromptTokens != 57 || q.OutputTokens != 7 || q.Group != 2 || q.GroupTokens != 50 || q.SLOTTFTUs != 9 || c.want.OK && q.AbortKind != sim.OutcomeTimedOut {
			t.Errorf("%+v: got %+v", c, q)
		}
	}
}

// TestNumbersOfFiles: the smallest numbers that files may have, and smaller ones.
func TestNumbersOfFiles(t *testing.T) {
	weka := func(fields string) string {
		return `{"block_size": 64, "requests": [{"t": 0, "in": 5, "out": 5, "api_time": 1}, {` + fields + `}]}` + "\n"
	}
	for _, c := range []struct{ text, want string }{
		{`{"timestamp": 0, "input_length": 1, "output_length": 0}` + "\n", ""},
		{`{"timestamp": -1, "input_length": 1, "output_length": 0}` + "\n", "got timestamp -1 ms"},
		{`{"timestamp": 0, "input_length": 0, "output_length": 0}` + "\n", "0 input"},
		{`{"timestamp": 0, "input_length": 1, "output_length": -1}` + "\n", "-1 output"},
		{`{"timestamp": 0, "input_length": 1, "output_length": 1, "block_size": 0}` + "\n", "got no JSON object of a request"},
		{weka(`"t": 0.5, "in": 1, "out": 0, "api_time": 0`), ""},
		{weka(`"t": -0.5, "in": 1, "out": 0, "api_time": 0`), "request 2: got t -0.5 s"},
		{weka(`"t": 0.5, "in": 0, "out": 0, "api_time": 0`), "request 2: got t 0.5 s, api_time 0 s, 0 input"},
		{weka(`"t": 0.5, "in": 1, "out": -1, "api_time": 0`), "-1 output tokens"},
		{weka(`"t": 0.5, "in": 1, "out": 0, "api_time": -1`), "api_time -1 s"},
		{"prompt_tokens,output_tokens\n1,1\n", ""},
		{"Output_Len,INPUT_LEN,arrival\n1,1,0\n", ""},
		{"prompt_tokens,output_tokens\n0,1\n", "prompt_tokens: got"},
		{"prompt_tokens,output_tokens\n1,0\n", "output_tokens: got"},
	} {
		w, _, err := Read([]byte(c.text), "w")
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
		if err == nil && (w.Requests[len(w.Requests)-1].OutputTokens != 1 || w.Requests[len(w.Requests)-1].PromptTokens != 1) {
			t.Errorf("%q: got %+v", c.text, w.Requests)
		}
	}
	for header, want := range map[string]bool{"prompt_tokens,output_tokens": true, "prompt_tokens": false, "output_tokens": false, "prompt_tokens,x": false} {
		if isLengthTable(header) != want {
			t.Errorf("%s: got a table of lengths %v", header, !want)
		}
	}
	w := load(t, weka(`"t": 3.5, "in": 1, "out": 0, "api_time": 2`))
	if got, want := w.rounds, []round{{}, {before: 1, thinkUs: 2_500_000}}; !slices.Equal(got, want) || w.Requests[1].ArrivalUs != 3_500_000 || w.Requests[1].HashTokens != 64 {
		t.Errorf("got rounds %+v of %+v, want %+v", got, w.Requests, want)
	}
}

// TestDrawsOfTraffic: requests are no longer than the engine takes, and a part of each prompt is cached.
func TestDrawsOfTraffic(t *testing.T) {
	of := func(longest int64, cached float64) ([]sim.Request, Lengths) {
		tr := Traffic{Shape: Lengths{Prompt: 1000, Output: 400, Cached: cached, PromptCV2: 1, OutputCV2: 1}, PromptLaw: ExponentialLaw, OutputLaw: LogNormalLaw, RateRPS: 10, Requests: 2000, Seed: 3, Longest: longest}
		return tr.Draw()
	}
	requests, drawn := of(0, 250)
	if math.Abs(drawn.Prompt-1000) > 50 || math.Abs(drawn.Output-400) > 20 || math.Abs(drawn.PromptCV2-1) > 0.15 || math.Abs(drawn.OutputCV2-1) > 0.3 || math.Abs(drawn.Cached-drawn.Prompt/4) > 1e-9 {
		t.Errorf("got lengths %+v", drawn)
	}
	if last := float64(requests[1999].ArrivalUs) / 1e6; math.Abs(last-200) > 15 {
		t.Errorf("got a last arrival at %g s, want about 200", last)
	}
	if q := requests[7]; q.CachedTokens.V != q.PromptTokens/4 {
		t.Errorf("got %d cached tokens of %d", q.CachedTokens.V, q.PromptTokens)
	}
	requests, drawn = of(1000, 0)
	var prompt, output int64
	for _, q := range requests {
		prompt, output = max(prompt, q.PromptTokens), max(output, q.OutputTokens)
	}
	if prompt != 750 || output != 250 || requests[0].CachedTokens.OK || drawn.Cached != 0 {
		t.Errorf("got up to %d and %d tokens, want 750 and 250", prompt, output)
	}
	d := testkit.Llama8B()
	if got, want := fmt.Sprint(ChatTraffic(d, 10, 20).Shape), fmt.Sprint(Lengths{Prompt: 10, Output: 20, PromptCV2: 1, OutputCV2: 0.5}); got != want {
		t.Errorf("chat: got %s, want %s", got, want)
	}
}

// TestFirstStepEnds: a token of the first step ends it.
func TestFirstStepEnds(t *testing.T) {
	run := &trace.Run{
		Steps:    []trace.Step{{ID: 1, TsStartNs: 1000, ScheduledTokens: 1}, {ID: 2, TsStartNs: 11_000, ScheduledTokens: 1}},
		Requests: []trace.Request{{FirstTokenStep: some(1), FirstTokenNs: some(9000)}, {FinishedStep: some(2), FinishedNs: some(20_000)}},
	}
	w := &Workload{BaseNs: 1000}
	if got, want := w.timeline(run).End, []int64{8, 19}; !slices.Equal(got, want) {
		t.Errorf("got ends %v, want %v", got, want)
	}
	for ids, want := range map[[2]int64]bool{{1, 2}: false, {1, 3}: true, {2, 3}: true, {2, 2}: true} {
		if got := lacksSteps(&trace.Run{Steps: []trace.Step{{ID: ids[0]}, {ID: ids[1]}}}); got != want {
			t.Errorf("steps %v: got a lack %v", ids, got)
		}
	}
	if _, err := ForceLater(&trace.Run{ID: "r"}, testkit.Llama8B()); err == nil || !strings.Contains(err.Error(), `run "r": got no recorded step`) {
		t.Errorf("no steps: got %v", err)
	}
}

// TestRampOfALoop: four clients of a closed loop begin evenly over 2 s, and think for 3 ms between their requests.
func TestRampOfALoop(t *testing.T) {
	one := LengthSpec{Kind: "constant", Value: 1}
	g := Generator{Requests: 6, Prompt: one, Output: one, Arrivals: ArrivalSpec{Kind: "closed", Clients: 4, RampS: 2, ThinkMs: 3}}
	w, err := g.Generate(1)
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range w.Requests {
		want := sim.Request{ArrivalUs: int64(i) * 500_000}
		if i >= 4 {
			want = sim.Request{Queued: true, ThinkUs: 3000}
		}
		if q.ArrivalUs != want.ArrivalUs || q.Queued != want.Queued || q.ThinkUs != want.ThinkUs || q.Loop != 1 {
			t.Errorf("request %d: got %+v, want %+v", i, q, want)
		}
	}
}
