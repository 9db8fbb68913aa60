package autoscale

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/sim/workload"
)

// drawn is a server with parameters near those of published GPUs.
func drawn(rng *rand.Rand) (params, Limits) {
	scale := math.Exp(0.4 * rng.NormFloat64())
	return params{
		AlphaMs: 6.6 * scale, BetaMs: 0.02 * scale * math.Exp(0.3*rng.NormFloat64()), GammaMs: 5e-5 * scale * math.Exp(0.3*rng.NormFloat64()),
	}, Limits{MaxBatch: 64, Queue: 640, MaxBatchedTokens: 8192}
}

// recording is the windows of one server in the simulator, whose load and lengths change
// from window to window.
func recording(t *testing.T, rng *rand.Rand, p params, v Limits, n, requests int) []window {
	t.Helper()
	var out []window
	for i := range n {
		s := shape{Prompt: math.Round(128 * math.Pow(2, 4*rng.Float64())), Output: math.Round(64 * math.Pow(2, 3*rng.Float64())),
			OutputCV2: 0.5, PromptCV2: 0.3}
		m, err := New(corrected, p, s, v)
		if err != nil {
			t.Fatal(err)
		}
		traffic := workload.Traffic{Shape: workload.Lengths(s), Prompts: workload.LogNormalLaw, Output: workload.LogNormalLaw,
			RateRPS:  (0.15 + 0.55*rng.Float64()) * m.MaxRateRPS(),
			Requests: requests, Seed: rng.Uint64()}
		got, shape, err := simulate(p, v, traffic, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, window{
			StartNs: int64(i) * 60e9, EndNs: int64(i+1) * 60e9, Requests: got.Requests, RateRPS: traffic.DrawnRate(), Shape: shape, Limits: v,
			TTFTMs: got.TTFTMs, ITLMs: got.ITLMs, TTFTSeMs: got.TTFTSeMs, ITLSeMs: got.ITLSeMs,
		})
	}
	return out
}

// TestBatchFitAgainstReplica: on 20 simulated recordings the batch fit predicts the last 30 %
// of the windows no worse than the autoscalers' tuners that have seen the first 70 %.
func TestBatchFitAgainstReplica(t *testing.T) {
	rng := rand.New(rand.NewPCG(22, 30))
	wins := map[string]int{}
	for range 20 {
		p, v := drawn(rng)
		w := recording(t, rng, p, v, 20, 200)
		train, held := w[:14], w[14:]
		for _, tuner := range []replicaOptions{wvaTuner(), modelTuner()} {
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
	t.Logf("batch fit no worse than the replica on the hold-out: %d of 20 (wva), %d of 20 (model-tuner)", wins["wva"], wins["model-tuner"])
	for name, n := range wins {
		if n < 18 {
			t.Errorf("%s: %d of 20, want 18", name, n)
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
		s := shape{Prompt: []float64{256, 1024, 512}[i%3], Output: []float64{128, 256, 64, 512}[i%4], PromptCV2: 0.3, OutputCV2: 0.5}
		z := sized{Flavour: corrected, Params: p, Shape: s, Limits: v}
		m, err := New(z.Flavour, p, s, v)
		if err != nil {
			t.Fatal(err)
		}
		at := m.Solve((0.3 + 0.4*rng.Float64()) * m.MaxRateRPS())
		target := Targets{ITLMs: at.ITLMs}
		if i%2 == 0 {
			target = Targets{TTFTMs: at.TTFTMs}
		}
		size, _, err := z.Size(target)
		if err != nil {
			t.Fatal(err)
		}
		got, err := z.Simulate(size.RateRPS, 6000, 1, nil)
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
		it.TimeNs, it.Us, it.PredUs = append(it.TimeNs, i*second/10), append(it.Us, us), append(it.PredUs, 80)
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
func TestSizeHoldsNearCapacity(t *testing.T) {
	p := params{AlphaMs: 25, BetaMs: 0.35, GammaMs: 0.01}
	v := Limits{MaxBatch: 32, Queue: 320, MaxBatchedTokens: 2048}
	for _, c := range []struct {
		load float64
		s    shape
	}{
		{0.83, shape{Prompt: 130, Output: 48, PromptCV2: 0.65, OutputCV2: 0.45}},
		{0.83, shape{Prompt: 130, Output: 48}},
		{0.75, shape{Prompt: 200, Output: 135, PromptCV2: 3, OutputCV2: 0.25}},
	} {
		s := c.s
		z := sized{Flavour: corrected, Params: p, Shape: s, Limits: v}
		m, err := New(z.Flavour, p, s, v)
		if err != nil {
			t.Fatal(err)
		}
		at := m.Solve(c.load * m.MaxRateRPS())
		got, err := z.Simulate(at.RateRPS, 100_000, 1, nil)
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
