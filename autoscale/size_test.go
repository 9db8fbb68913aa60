package autoscale

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// TestSizeIsTheLargestRate: targets hold at the rate and are missed just above it.
func TestSizeIsTheLargestRate(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 4))
	binding := map[string]int{}
	for i := range 500 {
		m, err := randomModel(rng)
		if err != nil {
			t.Fatal(err)
		}
		lo := m.Solve(1000 * 0.001 / m.tauMs(1))
		hi := m.Solve((1 - 0.001) * m.MaxRateRPS())
		if hi.TTFTMs < lo.TTFTMs*1.001 || hi.ITLMs < lo.ITLMs*1.001 || m.shape.Output == 1 {
			continue // one seat, or no gap between tokens: nothing grows with the load
		}
		target := Targets{TTFTMs: lo.TTFTMs + (hi.TTFTMs-lo.TTFTMs)*rng.Float64(), ITLMs: lo.ITLMs + (hi.ITLMs-lo.ITLMs)*1.2*rng.Float64()}
		s, err := m.Size(target)
		if err != nil {
			t.Fatal(err)
		}
		binding[s.Binding]++
		const eps = 1e-12
		if s.At.TTFTMs > target.TTFTMs*(1+eps) || s.At.ITLMs > target.ITLMs*(1+eps) {
			t.Fatalf("case %d, %s: at %g/s TTFT %g and ITL %g exceed the targets %+v", i, m.flavour, s.RateRPS, s.At.TTFTMs, s.At.ITLMs, target)
		}
		above := m.Solve(s.RateRPS * (1 + 1e-6))
		if s.Binding == byTTFT && above.TTFTMs <= target.TTFTMs || s.Binding == byITL && above.ITLMs <= target.ITLMs {
			t.Fatalf("case %d, %s: %g/s is not the largest rate for %+v (%s)", i, m.flavour, s.RateRPS, target, s.Binding)
		}
	}
	for _, name := range []string{byTTFT, byITL} {
		if binding[name] == 0 {
			t.Errorf("no case was bound by %s: the test proves nothing about it", name)
		}
	}
}

func TestSizeAtTheEnds(t *testing.T) {
	m := benchModel(t, inferno3P)
	if _, err := m.Size(Targets{TTFTMs: 1}); trace.CodeOf(err) != targetBelowRange {
		t.Errorf("a TTFT of 1 ms: got %v, want %s", err, targetBelowRange)
	}
	s, err := m.Size(Targets{TTFTMs: 1e9})
	if err != nil || s.Binding != byRange || len(s.Findings) != 1 || s.Findings[0].Code != sizingRemark {
		t.Errorf("a TTFT of 1e9 ms: got %+v, %v, want the range and %s", s, err, sizingRemark)
	}
	s, err = m.Size(Targets{TPS: 1, Emulate: true})
	if err != nil || s.Binding != byTPS || !closeTo(s.RateRPS, 0.9*0.999*m.MaxRateRPS(), 1e-12) {
		t.Errorf("a TPS target, emulated: got %+v, %v, want 0.9 of the range", s, err)
	}
}

// TestNewRefuses names the value that cannot be.
func TestNewRefuses(t *testing.T) {
	p := params{AlphaMs: 6, BetaMs: 0.02, GammaMs: 5e-5}
	s := shape{Prompt: 128, Output: 128}
	v := Limits{MaxBatch: 64, Queue: 640}
	for want, change := range map[string]func(*params, *shape, *Limits){
		"alpha ms: got -1":                     func(p *params, _ *shape, _ *Limits) { p.AlphaMs = -1 },
		"beta ms: got NaN":                     func(p *params, _ *shape, _ *Limits) { p.BetaMs = math.NaN() },
		"gamma ms: got +Inf":                   func(p *params, _ *shape, _ *Limits) { p.GammaMs = math.Inf(1) },
		"output tokens: got 0":                 func(_ *params, s *shape, _ *Limits) { s.Output = 0 },
		"max batch: got 0":                     func(_ *params, _ *shape, v *Limits) { v.MaxBatch = 0 },
		"queue: got -1":                        func(_ *params, _ *shape, v *Limits) { v.Queue = -1 },
		"cached tokens: got 129, want at most": func(_ *params, s *shape, _ *Limits) { s.Cached = 129 },
		"time in service ms: got 0":            func(p *params, _ *shape, _ *Limits) { *p = params{} },
	} {
		p := p
		s := s
		v := v
		change(&p, &s, &v)
		if _, err := newModel(corrected, p, s, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := newModel("mm1", p, s, v); err == nil || !strings.Contains(err.Error(), string(badOption)) {
		t.Errorf("flavour mm1: got %v, want %s", err, badOption)
	}
}

// TestSolveAnywhere: every rate has a finite answer that obeys Little's law.
func TestSolveAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 5))
	for i := range 3000 {
		m, err := randomModel(rng)
		if err != nil {
			t.Fatal(err)
		}
		p := m.Solve(m.MaxRateRPS() * math.Exp(rng.NormFloat64()*4))
		for _, v := range []float64{p.ThroughputRPS, p.WaitMs, p.ServiceMs, p.TTFTMs, p.ITLMs, p.TunerTTFTMs, p.PrefillMs} {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Fatalf("case %d, %s: got %+v, want finite numbers (%+v %+v %+v)", i, m.flavour, p, m.params, m.shape, m.limits)
			}
		}
		if p.TTFTMs < 0 || p.ThroughputRPS > p.MaxRateRPS*(1+1e-12) && !m.flavour.chunked() || p.ThroughputRPS < 0 || p.ThroughputRPS > p.RateRPS {
			t.Fatalf("case %d, %s: got %+v (%+v %+v %+v)", i, m.flavour, p, m.params, m.shape, m.limits)
		}
		if got := p.ThroughputRPS / 1000 * p.ServiceMs; !closeTo(got, p.InService, 1e-9) {
			t.Fatalf("case %d, %s: throughput x time in service = %g, want %g in service", i, m.flavour, got, p.InService)
		}
	}
}

// The example of llm-inferno/queue-analysis, sized by both of its models.
func Example() {
	p := params{AlphaMs: 12, BetaMs: 0.05, GammaMs: 0.0005}
	for _, f := range []Flavour{wvA3P, inferno3P, corrected} {
		m, err := newModel(f, p, shape{Prompt: 128, Output: 512},
			Limits{MaxBatch: 48, Queue: 128})
		if err != nil {
			fmt.Println(err)
			return
		}
		s, err := m.Size(Targets{TTFTMs: 60, ITLMs: 20})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%-10s %.3f requests/s, bound by %s: TTFT %.1f ms, ITL %.2f ms\n", f, s.RateRPS, s.Binding, s.At.TTFTMs, s.At.ITLMs)
	}
	// Output:
	// wva-3p     2.874 requests/s, bound by itl: TTFT 56.1 ms, ITL 20.00 ms
	// inferno-3p 2.949 requests/s, bound by ttft: TTFT 60.0 ms, ITL 19.91 ms
	// corrected  2.978 requests/s, bound by itl: TTFT 43.7 ms, ITL 20.00 ms
}

// drawn is a server with parameters near those of published GPUs.
func drawn(rng *rand.Rand) (params, Limits) {
	scale := math.Exp(0.4 * rng.NormFloat64())
	return params{
		AlphaMs: 6.6 * scale,
		BetaMs:  0.02 * scale * math.Exp(0.3*rng.NormFloat64()),
		GammaMs: 5e-5 * scale * math.Exp(0.3*rng.NormFloat64()),
	}, Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 8192}
}

// recording is the windows of one server in the simulator, whose load and lengths change
// from window to window.
func recording(t *testing.T, rng *rand.Rand, p params, v Limits, n, requests int) []window {
	t.Helper()
	var out []window
	for i := range n {
		s := shape{
			Prompt:    math.Round(128 * math.Pow(2, 4*rng.Float64())),
			Output:    math.Round(64 * math.Pow(2, 3*rng.Float64())),
			OutputCV2: 0.5,
			PromptCV2: 0.3,
		}
		m, err := newModel(corrected, p, s, v)
		if err != nil {
			t.Fatal(err)
		}
		traffic := workload.Traffic{
			Shape:     workload.Lengths(s),
			PromptLaw: workload.LogNormalLaw,
			OutputLaw: workload.LogNormalLaw,
			RateRPS:   (0.15 + 0.55*rng.Float64()) * m.MaxRateRPS(),
			Requests:  requests,
			Seed:      rng.Uint64(),
		}
		_, shape := traffic.Draw()
		got, err := simulate(p, v, traffic, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, window{
			StartNs:  int64(i) * 60e9,
			EndNs:    int64(i+1) * 60e9,
			Requests: got.Requests,
			RateRPS:  traffic.DrawnRate(),
			Shape:    shape,
			Limits:   v,
			TTFTMs:   got.TTFTMs,
			ITLMs:    got.ITLMs,
			TTFTSeMs: got.TTFTSeMs,
			ITLSeMs:  got.ITLSeMs,
		})
	}
	return out
}

// TestBatchFitAgainstReplica: on simulated recordings the batch fit predicts the last 30 %
// of the windows no worse than the autoscalers' tuners that have seen the first 70 %.
func TestBatchFitAgainstReplica(t *testing.T) { fitAgainstReplica(t, 8, 7) }

// TestEvalBatchFitAgainstReplica: the same of 20 recordings.
func TestEvalBatchFitAgainstReplica(t *testing.T) {
	repo.NeedEval(t)
	fitAgainstReplica(t, 20, 18)
}

func fitAgainstReplica(t *testing.T, recordings, least int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(22, 30))
	wins := map[string]int{}
	for range recordings {
		p, v := drawn(rng)
		w := recording(t, rng, p, v, 20, 200)
		train, held := w[:14], w[14:]
		for _, tuner := range []replicaOptions{wvaTuner, modelTuner} {
			steps := Replica(train, tuner)
			fit, err := Fit(train, defaultFit(tuner.Flavour))
			if err != nil {
				t.Fatal(err)
			}
			sum := func(s queueScore) float64 { return *s.TTFTWape + *s.ITLWape + float64(s.Unpredicted) }
			batch := sum(evaluate(held, tuner.Flavour, fit.X, asTuned))
			replica := sum(evaluate(held, tuner.Flavour, steps[len(steps)-1].X, asTuned))
			if batch <= replica {
				wins[tuner.Name]++
			}
		}
	}
	t.Logf("batch fit no worse than the replica on the hold-out: %d of %d (wva), %d (model-tuner)", wins["wva"], recordings, wins["model-tuner"])
	for _, name := range []string{wvaTuner.Name, modelTuner.Name} {
		if wins[name] < least {
			t.Errorf("%s: %d of %d, want %d", name, wins[name], recordings, least)
		}
	}
}

// TestSizeHoldsInTheSimulator: at the rate that sizing finds, the simulator's mean of the
// binding metric is within 10 % of the target.
func TestSizeHoldsInTheSimulator(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 31))
	worst := 0.0
	for i := range 12 {
		p, v := drawn(rng)
		s := shape{
			Prompt:    []float64{256, 1024, 512}[i%3],
			Output:    []float64{128, 256, 64, 512}[i%4],
			PromptCV2: 0.3,
			OutputCV2: 0.5,
		}
		m, err := newModel(corrected, p, s, v)
		if err != nil {
			t.Fatal(err)
		}
		at := m.Solve((0.3 + 0.4*rng.Float64()) * m.MaxRateRPS())
		target := Targets{ITLMs: at.ITLMs}
		if i%2 == 0 {
			target = Targets{TTFTMs: at.TTFTMs}
		}
		size, err := m.Size(target)
		if err != nil {
			t.Fatal(err)
		}
		got, err := simulate(m.params, m.limits, trafficOf(m.shape, size.RateRPS, 6000, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		miss := got.ITLMs/target.ITLMs - 1
		if size.Binding == "ttft" {
			miss = got.TTFTMs/target.TTFTMs - 1
		}
		if worst = math.Max(worst, math.Abs(miss)); math.Abs(miss) > 0.1 {
			t.Errorf("%+v at %.3g/s: %s is off its target by %+.1f %%", s, size.RateRPS, size.Binding, 100*miss)
		}
		t.Logf("%4.0f/%3.0f %s at %.3g requests/s: %+.1f %%; TTFT P95 %.4g ms, ITL P95 %.4g ms", s.Prompt, s.Output, size.Binding, size.RateRPS,
			100*miss, got.TTFTP95Ms, got.ITLP95Ms)
	}
	t.Logf("largest miss %.1f %%", 100*worst)
}

// TestIntervalHoldsTheValue: an interval that the penalty moved the value out of reaches to it, and says so.
func TestIntervalHoldsTheValue(t *testing.T) {
	for _, c := range []struct {
		value float64
		want  [2]float64
		says  int
	}{{5, [2]float64{4, 6}, 0}, {3, [2]float64{3, 6}, 1}, {7, [2]float64{4, 7}, 1}} {
		s := &Server{ID: "s"}
		if got := s.interval("alpha", c.value, &[2]float64{4000, 6000}); *got != c.want || len(s.Findings) != c.says {
			t.Errorf("%g ms: got %v and %v, want %v and %d findings", c.value, *got, s.Findings, c.want, c.says)
		}
	}
}

// TestMachineSpeed: a window whose steps take half as long again is 1.5 against the others.
func TestMachineSpeed(t *testing.T) {
	const second = int64(1e9)
	it := &fit.Iteration{}
	for i := range int64(400) { // ten steps a second, slow from 30 s on
		us := 100.0
		if i >= 300 {
			us = 150
		}
		it.TimeNs = append(it.TimeNs, i*second/10)
		it.Us = append(it.Us, us)
		it.PredUs = append(it.PredUs, 80)
	}
	s := &Server{Physical: &Physical{steps: it}}
	for i := range int64(4) {
		s.Windows = append(s.Windows, window{StartNs: i * 10 * second, EndNs: (i + 1) * 10 * second})
	}
	got := s.speeds(3)
	for i, want := range []float64{1, 1, 1, 1.5} {
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("window %d: got %g, want %g", i, got[i], want)
		}
	}
}

// TestSizeHoldsNearCapacity: also where the wait for a seat is a third of TTFT, with lengths as chat
// recordings have them.
func TestSizeHoldsNearCapacity(t *testing.T) { sizeHoldsNearCapacity(t, nearCapacity[:1]) }

// TestEvalSizeHoldsNearCapacity: the same with other lengths.
func TestEvalSizeHoldsNearCapacity(t *testing.T) {
	repo.NeedEval(t)
	sizeHoldsNearCapacity(t, nearCapacity[1:])
}

// loadOfShape is a share of capacity, and the lengths of requests.
type loadOfShape struct {
	load float64
	s    shape
}

var nearCapacity = []loadOfShape{
	{0.83, shape{Prompt: 130, Output: 48, PromptCV2: 0.65, OutputCV2: 0.45}},
	{0.83, shape{Prompt: 130, Output: 48}},
	{0.75, shape{Prompt: 200, Output: 135, PromptCV2: 3, OutputCV2: 0.25}},
}

func sizeHoldsNearCapacity(t *testing.T, loads []loadOfShape) {
	t.Helper()
	p := params{AlphaMs: 25, BetaMs: 0.35, GammaMs: 0.01}
	v := Limits{MaxBatch: 32, Queue: 320, MaxBatchedTokens: 2048}
	for _, c := range loads {
		s := c.s
		m, err := newModel(corrected, p, s, v)
		if err != nil {
			t.Fatal(err)
		}
		at := m.Solve(c.load * m.MaxRateRPS())
		got, err := simulate(m.params, m.limits, trafficOf(m.shape, at.RateRPS, 100_000, 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		miss := at.TTFTMs/got.TTFTMs - 1
		t.Logf("%+v: TTFT %.4g ms, %.0f %% of it the wait for a seat: %+.1f %%; ITL %+.1f %%", s, at.TTFTMs, 100*at.WaitMs/at.TTFTMs, 100*miss,
			100*(at.ITLMs/got.ITLMs-1))
		if math.Abs(miss) > 0.1 || at.WaitMs < 0.1*at.TTFTMs {
			t.Errorf("%+v: TTFT is %+.1f %% off the simulator's %.4g ms", s, 100*miss, got.TTFTMs)
		}
	}
}

// A target in output tokens per second says how many replicas: at 14.74 requests/s of 200
// outputs each, 10 and 1,000 need one and 100,000 need 34; queue allocate says the same.
func TestTPSSaysReplicas(t *testing.T) {
	m, err := newModel(inferno3P, params{
		AlphaMs: 10,
		BetaMs:  0.03,
		GammaMs: 4e-5,
	}, shape{Prompt: 512, Output: 200},
		Limits{MaxBatch: 64, Queue: 640})
	if err != nil {
		t.Fatal(err)
	}
	m.params.AlphaMs *= m.MaxRateRPS() * 0.999 / 14.74 // about that rate
	free, err := m.Size(Targets{})
	if err != nil {
		t.Fatal(err)
	}
	for tps, want := range map[float64]int{10: 1, 1000: 1, 1e5: int(math.Ceil(500 / free.RateRPS))} {
		s, err := m.Size(Targets{TPS: tps})
		if err != nil || s.Replicas != want || s.Binding != byRange || s.RateRPS != free.RateRPS {
			t.Errorf("%g tokens/s: got %d replicas at %g/s, bound by %s, %v, want %d at %g/s", tps, s.Replicas, s.RateRPS, s.Binding, err, want,
				free.RateRPS)
		}
		o := Option{
			Accelerator: "x",
			Type:        "x",
			Units:       1,
			RateRPS:     s.RateRPS,
			DemandRPS:   m.rateOf(tps),
		}
		d := Demand{Name: "a", RateRPS: 1, Options: []Option{o}}
		if c := d.candidates(); c[0].Replicas != want {
			t.Errorf("%g tokens/s: allocate gives %d replicas, want %d", tps, c[0].Replicas, want)
		}
	}
}

// TestFewestSeats: the example of queue-analysis' README (cfadd1c, POST /optimize): 49 seats of 256 serve 2.9716 requests/s within
// the targets.
func TestFewestSeats(t *testing.T) {
	m, err := newModel(inferno3P, params{
		AlphaMs: 12,
		BetaMs:  0.05,
		GammaMs: 5e-4,
	}, shape{Prompt: 128, Output: 512},
		Limits{MaxBatch: 48, Queue: 128})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.leastSeats(Targets{TTFTMs: 60, ITLMs: 20}, 256)
	if err != nil || s.Concurrency != 49 || math.Abs(s.At.ThroughputRPS-2.9715836) > 1e-4 || math.Abs(s.TTFTMs-57.9873) > 1e-2 ||
		math.Abs(s.InService-30.50618) > 1e-3 {
		t.Errorf("got %d seats, %.5f requests/s, TTFT %.4f ms, %.4f in service, %v; want 49, 2.97158, 57.9873, 30.5062", s.Concurrency,
			s.At.ThroughputRPS, s.TTFTMs, s.InService, err)
	}
	if s, err = m.leastSeats(Targets{TTFTMs: 60, ITLMs: 20}, 48); err != nil || s.Concurrency != 48 {
		t.Errorf("got %d seats of 48, %v, want all", s.Concurrency, err)
	}
	if _, err = m.leastSeats(Targets{ITLMs: 2}, 48); err == nil {
		t.Error("no load meets 2 ms")
	}
}
