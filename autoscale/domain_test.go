package autoscale

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/trace"
)

// TestRequestsThatAServerRejects: lengths above max_model_len, or above the whole KV cache, have no rate; those that
// just fit have one. An allocation leaves the option out.
func TestRequestsThatAServerRejects(t *testing.T) {
	for _, c := range []struct {
		longest int64
		kv      float64
		want    string // of the error; "" for none
	}{
		{8192, 0, "want together at most 8192, the max_model_len"},
		{0, 9000, "want together at most 9000, the tokens of the KV cache"},
		{8192, 9000, "want together at most 8192, the max_model_len"},
		{10_100, 10_100, ""},
		{0, 0, ""},
	} {
		q := example(corrected)
		q.Servers[0].Limits.MaxModelLen = c.longest
		if c.kv > 0 {
			q.Servers[0].Limits.KVTokens = &c.kv
		}
		err := SizeQueues(t.Context(), q, SizeOptions{Prompt: 10_000, Output: 100, Workers: 1})
		if c.want == "" {
			if err != nil || q.Servers[0].Sizing == nil {
				t.Errorf("max_model_len %d, KV cache %g: got %v", c.longest, c.kv, err)
			}
			continue
		}
		if trace.CodeOf(err) != badModel || !strings.Contains(err.Error(), c.want) {
			t.Errorf("max_model_len %d, KV cache %g: got %v, want %s", c.longest, c.kv, err, c.want)
		}
		p := &Problem{UnitCost: map[string]float64{deviceName("H100"): 1}, Servers: []problemServer{{Demand: Demand{Name: "chat", RateRPS: 1},
			Model: "meta-llama/Llama-3.1-8B", PromptTokens: 10_000}}}
		demands, findings, err := p.Demands(q)
		if err != nil || len(demands[0].Options) != 0 || !strings.Contains(findings[0].Message, c.want) {
			t.Errorf("allocation: got %+v, %v, %v, want no option", demands, findings, err)
		}
	}
}

// TestProposedSweepsFit: a proposed operating point is no request that the server rejects.
func TestProposedSweepsFit(t *testing.T) {
	s := plantedServer(t, inferno3P, []float64{8, 0.05, 1e-4}, 2, 4)
	for i := range s.Windows {
		s.Windows[i].Limits.MaxModelLen = 1000
	}
	p := newProblem(s.Windows, new(defaultFit(inferno3P)))
	points := p.sweep([]float64{8, 0.05, 1e-4})
	if len(points) != 4 || points[0].PromptTokens == points[2].PromptTokens {
		t.Fatalf("got %+v, want two lengths at two loads", points)
	}
	for _, at := range points {
		if at.PromptTokens+at.OutputTokens > 1000 {
			t.Errorf("got %g/%g tokens, want at most 1000 together", at.PromptTokens, at.OutputTokens)
		}
	}
}

// TestOutsideOfTheFittedWindows: lengths and a load that no window had are named by axis, others are not, and files of
// earlier versions, which do not say, have no such warning.
func TestOutsideOfTheFittedWindows(t *testing.T) {
	fitted := rangeOf([]window{
		{RateRPS: 2, TTFTMs: 40, ITLMs: 8, Shape: shape{Prompt: 400, Output: 101}},
		{RateRPS: 4, TTFTMs: 60, ITLMs: 9, Shape: shape{Prompt: 600, Output: 201}},
	})
	if fitted.AtOnce != [2]float64{1.68, 7.44} || fitted.RateRPS != [2]float64{2, 4} {
		t.Errorf("got %+v, want 1.68 to 7.44 requests at once at 2 to 4 requests/s", fitted)
	}
	for _, c := range []struct {
		known          bool
		prompt, output float64
		ttft           float64
		want           string
	}{
		{true, 500, 150, 20, ""},
		{true, 628, 150, 23, ""}, // within 5 % of the end
		{true, 5000, 150, 400, "prompt_tokens"},
		{true, 300, 150, 16, "prompt_tokens"},
		{true, 500, 20, 21, "output_tokens"},
		{true, 500, 150, 5000, "load at"},
		{false, 5000, 20, 5000, ""},
	} {
		q := example(corrected)
		if c.known {
			q.Servers[0].Fitted = fitted
		}
		if err := SizeQueues(t.Context(), q, SizeOptions{Targets: Targets{TTFTMs: c.ttft}, Prompt: c.prompt, Output: c.output, Workers: 1}); err != nil {
			t.Fatal(err)
		}
		named := func(f trace.Finding) bool { return f.Code == outsideTraining && strings.Contains(f.Message, c.want) }
		any := func(f trace.Finding) bool { return f.Code == outsideTraining }
		if got := slices.ContainsFunc(q.Warnings, any); got != (c.want != "") || got && !slices.ContainsFunc(q.Warnings, named) {
			t.Errorf("%+v: got %v", c, q.Warnings)
		}
	}
}

// TestOptimumIsNoWorse: under every policy the optimum meets at least the demands that the greedy allocation meets, the
// first priority counting most, and with BestEffortLast a demand that can be met in full is met.
func TestOptimumIsNoWorse(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for i := range 300 {
		f, demands := randomFleet(rng)
		demands = demands[:min(6, len(demands))]
		f.Policy = policies[i%len(policies)]
		greedy, err := f.Allocate(demands)
		if err != nil {
			t.Fatal(err)
		}
		best, err := f.Optimum(demands)
		if err != nil {
			t.Fatal(err)
		}
		// Without a division after each priority the two solve one problem.
		if f.Policy == policyNone || f.dividesLast() {
			if got, want := lexicographic(best), lexicographic(greedy); got < want {
				t.Errorf("case %d, %s: got %d served, want at least the %d of the greedy plan", i, f.Policy, got, want)
			}
		}
	}
	option := []Option{{Accelerator: "H100", Type: "H100", Units: 1, UnitCost: 1, RateRPS: 1}}
	f := Fleet{Capacity: map[string]int{"H100": 3}, Policy: policyBestEffortLast}
	p, err := f.Optimum([]Demand{
		{Name: "chat", Priority: 1, RateRPS: 7, Options: option}, {Name: "batch", Priority: 2, RateRPS: 1, Options: option},
	})
	if err != nil {
		t.Fatal(err)
	}
	if batch, chat := p.Servers[0].Replicas, p.Servers[1].Replicas; batch != 1 || chat != 2 {
		t.Errorf("got batch %d, chat %d, want 1 and 2", batch, chat)
	}
}

// TestShortAnswersAgainstTheSimulator: of few gaps between tokens only those after the own prefill are longer, and with
// asynchronous scheduling every second of them: ITL follows the simulator for answers of two tokens too.
func TestShortAnswersAgainstTheSimulator(t *testing.T) {
	p := params{AlphaMs: 5, BetaMs: 0.01, GammaMs: 2e-5}
	for _, c := range []struct {
		isAsync        bool
		prompt, output float64
		load           float64
	}{
		{false, 600, 2, 0.4}, {false, 2000, 2, 0.2}, {false, 2000, 3, 0.4}, {true, 200, 2, 0.4}, {true, 600, 2, 0.2}, {true, 600, 3, 0.7}, {true, 2000, 5, 0.4},
		{false, 600, 50, 0.4}, {true, 600, 50, 0.4},
	} {
		m, err := newModel(corrected, p, shape{Prompt: c.prompt, Output: c.output}, Limits{MaxBatch: 128, Queue: 1280, MaxBatchedTokens: 8192, OverheadMs: 0.3, Async: c.isAsync})
		if err != nil {
			t.Fatal(err)
		}
		rate := c.load * m.MaxRateRPS()
		sim, err := simulate(p, m.limits, trafficOf(m.shape, rate, 5000, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Solve(rate).ITLMs; math.Abs(got/sim.ITLMs-1) > 0.15 {
			t.Errorf("%+v: got an ITL of %.3g ms, the simulator has %.3g", c, got, sim.ITLMs)
		}
	}
	for _, c := range []struct{ r, steps, want float64 }{
		{0, 1, 1}, {0, 50, 1}, {0.5, 1, 1 / 0.75}, {0.5, 2, 2}, {0.5, 1e6, 4},
	} {
		if got := dispersion(c.r, c.steps); math.Abs(got-c.want) > 1e-5 {
			t.Errorf("ratio %g, %g steps: got %g, want %g", c.r, c.steps, got, c.want)
		}
	}
}

// TestShortAnswersAreNamed: a size of short answers at which prompts take much of the time has a warning, others have none;
// requests of one token have no ITL, and no target for one.
func TestShortAnswersAreNamed(t *testing.T) {
	for _, c := range []struct {
		flavour       Flavour
		output, itl   float64
		isFar, hasITL bool
	}{
		{corrected, 5, 100, true, true}, {corrected, 5, 6.7, false, true}, {corrected, 20, 100, false, true}, {inferno3P, 5, 100, false, true},
		{corrected, 1, 1e-3, true, false}, {inferno3P, 1, 1e-3, false, false},
	} {
		q := example(c.flavour)
		if err := SizeQueues(t.Context(), q, SizeOptions{Targets: Targets{ITLMs: c.itl}, Output: c.output, Workers: 1}); err != nil {
			t.Fatal(err)
		}
		isFar := slices.ContainsFunc(q.Warnings, func(f trace.Finding) bool { return f.Code == beyondJudged })
		z := q.Servers[0].Sizing
		if isFar != c.isFar || (z.ITLMs > 0) != c.hasITL || !c.hasITL && z.Binding != byRange || z.TargetITLMs != c.itl {
			t.Errorf("%+v: got %+v, %v", c, z, q.Warnings)
		}
	}
}
