package autoscale

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

type goldenFile struct {
	Problem struct {
		N     int     `json:"maxBatchSize"`
		Q     int     `json:"maxQueueSize"`
		In    float64 `json:"avgInputTokens"`
		Out   float64 `json:"avgOutputTokens"`
		Alpha float64 `json:"alpha"`
		Beta  float64 `json:"beta"`
		Gamma float64 `json:"gamma"`
	} `json:"problem"`
	Solve, Target, Optimize goldenSolution
	Primitives              []struct {
		B                  int
		Alpha, Beta, Gamma float64
		In, Out, Nc        float64
		Iter               float64 `json:"iter_time"`
		Prefill            float64 `json:"prefill"`
		ITL                float64 `json:"itl"`
		Tau                float64 `json:"tau"`
	} `json:"primitives"`
}

type goldenSolution struct {
	Flavour    Flavour `json:"flavour"`
	Rate       float64 `json:"rate_rps"`
	TargetTTFT float64 `json:"targetTTFT"`
	TargetITL  float64 `json:"targetITL"`
	Throughput float64 `json:"throughput"`
	RespTime   float64 `json:"avgRespTime"`
	WaitTime   float64 `json:"avgWaitTime"`
	InServ     float64 `json:"avgNumInServ"`
	TTFT       float64 `json:"avgTTFT"`
	ITL        float64 `json:"avgITL"`
	MaxRPS     float64 `json:"maxRPS"`
	RateTTFT   float64 `json:"RPSTargetTTFT"`
	RateITL    float64 `json:"RPSTargetITL"`
}

// The source computes in float32: relative 2e-4, waits (differences of large
// times) absolute 2e-3 ms.
const (
	goldenRel    = 2e-4
	goldenWaitMs = 2e-3
)

// TestGolden: the published vectors of llm-inferno/queue-analysis.
func TestGolden(t *testing.T) {
	data, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g goldenFile
	if err := json.Unmarshal(data, &g); err != nil {
		t.Fatal(err)
	}
	values, worst := 0, 0.0
	same := func(name string, got, want float64) {
		t.Helper()
		values++
		worst = math.Max(worst, math.Abs(got/want-1))
		if !closeTo(got, want, goldenRel) {
			t.Errorf("%s: got %.8g, want %.8g (%.2g)", name, got, want, got/want-1)
		}
	}
	wait := func(name string, got, want float64) {
		t.Helper()
		values++
		if math.Abs(got-want) > goldenWaitMs {
			t.Errorf("%s: got %.6f ms, want %.6f ms", name, got, want)
		}
	}
	build := func(f Flavour) model {
		m, err := New(f, params{AlphaMs: g.Problem.Alpha, BetaMs: g.Problem.Beta, GammaMs: g.Problem.Gamma},
			shape{Prompt: g.Problem.In, Output: g.Problem.Out}, Limits{MaxBatch: g.Problem.N, Queue: g.Problem.Q})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	check := func(name string, p point, maxRPS float64, w goldenSolution) {
		t.Helper()
		same(name+" throughput", p.ThroughputRPS, w.Throughput)
		same(name+" response", p.ResponseMs, w.RespTime)
		same(name+" in service", p.InService, w.InServ)
		same(name+" ttft", p.TTFTMs, w.TTFT)
		same(name+" itl", p.ITLMs, w.ITL)
		same(name+" max rate", maxRPS, w.MaxRPS)
	}

	m := build(g.Solve.Flavour)
	p := m.Solve(g.Solve.Rate)
	check("solve", p, 0.999*m.MaxRateRPS(), g.Solve)
	wait("solve wait", p.WaitMs, g.Solve.WaitTime)
	for name, w := range map[string]goldenSolution{"target": g.Target, "optimize": g.Optimize} {
		m := build(w.Flavour)
		s, err := m.Size(Targets{TTFTMs: w.TargetTTFT, ITLMs: w.TargetITL})
		if err != nil {
			t.Fatal(err)
		}
		check(name, s.At, s.MaxRPS, w)
		if w.RateTTFT > 0 {
			same(name+" rate for ttft", s.TTFTRPS, w.RateTTFT)
			same(name+" rate for itl", s.ITLRPS, w.RateITL)
		}
		at := m.Solve(w.Throughput) // at their rate: their search stops within 1e-6 of the target
		wait(name+" wait", at.WaitMs, w.WaitTime)
	}
	for i := range g.Primitives {
		x := &g.Primitives[i]
		m, err := New(inferno3P, params{AlphaMs: x.Alpha, BetaMs: x.Beta, GammaMs: x.Gamma}, shape{Prompt: x.In, Output: x.Out},
			Limits{MaxBatch: x.B})
		if err != nil {
			t.Fatal(err)
		}
		c, tau := m.chunksAt(float64(x.B)), m.tauMs(x.B)
		same("chunks", c, x.Nc)
		same("iteration", tau/(c+x.Out), x.Iter)
		same("prefill", m.prefillMs(float64(x.B)), x.Prefill)
		same("itl", (tau-m.prefillMs(float64(x.B)))/x.Out, x.ITL)
		same("tau", tau, x.Tau)
	}
	t.Logf("golden: %d values of 3 solutions and %d primitives, largest relative difference %.1e", values, len(g.Primitives), worst)
}
