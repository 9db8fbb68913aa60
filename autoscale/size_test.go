package autoscale

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

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
		lo, hi := m.Solve(1000*rangeEdge/m.tauMs(1)), m.Solve((1-rangeEdge)*m.MaxRateRPS())
		if hi.TTFTMs < lo.TTFTMs*1.001 || hi.ITLMs < lo.ITLMs*1.001 || m.s.Output == 1 {
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
	var coded *trace.Error
	if _, err := m.Size(Targets{TTFTMs: 1}); !errors.As(err, &coded) || coded.Code != targetBelowRange {
		t.Errorf("a TTFT of 1 ms: got %v, want %s", err, targetBelowRange)
	}
	s, err := m.Size(Targets{TTFTMs: 1e9})
	if err != nil || s.Binding != byRange || len(s.Findings) != 1 || s.Findings[0].Code != sizingRemark {
		t.Errorf("a TTFT of 1e9 ms: got %+v, %v, want the range and %s", s, err, sizingRemark)
	}
	s, err = m.Size(Targets{TPS: 1})
	if err != nil || s.Binding != byTPS || !closeTo(s.RateRPS, 0.9*0.999*m.MaxRateRPS(), 1e-12) {
		t.Errorf("a TPS target: got %+v, %v, want 0.9 of the range", s, err)
	}
	if _, err = m.Size(Targets{ITLMs: math.NaN()}); !errors.As(err, &coded) || coded.Code != badModel {
		t.Errorf("a NaN target: got %v, want %s", err, badModel)
	}
}

// TestNewRefuses names the value that cannot be.
func TestNewRefuses(t *testing.T) {
	p, s, v := params{AlphaMs: 6, BetaMs: 0.02, GammaMs: 5e-5}, shape{Prompt: 128, Output: 128}, Limits{MaxBatch: 64, Queue: 640}
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
		p, s, v := p, s, v
		change(&p, &s, &v)
		if _, err := New(corrected, p, s, v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := New("mm1", p, s, v); err == nil || !strings.Contains(err.Error(), string(badOption)) {
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
				t.Fatalf("case %d, %s: got %+v, want finite numbers (%+v %+v %+v)", i, m.flavour, p, m.p, m.s, m.v)
			}
		}
		if p.TTFTMs < 0 || p.ThroughputRPS > p.MaxRateRPS*(1+1e-12) && !m.flavour.chunked() || p.BlockedFrac < 0 || p.BlockedFrac > 1 {
			t.Fatalf("case %d, %s: got %+v (%+v %+v %+v)", i, m.flavour, p, m.p, m.s, m.v)
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
		m, err := New(f, p, shape{Prompt: 128, Output: 512}, Limits{MaxBatch: 48, Queue: 128})
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
	// corrected  2.978 requests/s, bound by itl: TTFT 43.4 ms, ITL 20.00 ms
}
