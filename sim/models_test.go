package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// The simulator's sums are those of the feature code on the same chunks,
// for both versions and for the other models' basis.
func TestSumsEqualTheFeatureCode(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		runChecked(t, cfg, reqs, stepFunc(func(v *StepView) {
			var chunks []trace.Chunk
			for _, m := range v.Members {
				chunks = append(chunks, trace.Chunk{Computed: m.Computed, Prompt: m.Prompt, New: m.New})
			}
			for _, version := range features.Versions() {
				want := features.Sum(version, chunks)
				want.RunningDepth, want.PreemptionEMA = float64(v.Running), v.PreemptionEMA
				want.TransferBlocks, want.CPUResidentReadBlocks = float64(v.StoreBlocks), float64(v.LoadBlocks)
				var got features.StepInput
				FillStepInput(version, &v.Batch, &got)
				got.SumDecodeKVBlocks = 0 // allocated blocks, which chunks do not show
				if got != want {
					t.Errorf("step %d, %s: got %+v, want %+v", v.StepID, version, got, want)
				}
			}
			if got, want := v.BasisStep(), features.BasisSum(chunks); got != want {
				t.Errorf("step %d: basis %+v, want %+v", v.StepID, got, want)
			}
		}), nil)
	})
}

// The preemption average is updated once per step, empty ones included.
func TestPreemptionEMA(t *testing.T) {
	forAll(t, func(t *testing.T, seed uint64, cfg Config, reqs []Request) {
		ema := 0.0
		runChecked(t, cfg, reqs, stepFunc(func(v *StepView) {
			ema = features.EMA(ema, cfg.GammaEMA, float64(v.Preempted), float64(v.Running))
			if math.Abs(ema-v.PreemptionEMA) > 1e-12 {
				t.Errorf("step %d: %g, want %g", v.StepID, v.PreemptionEMA, ema)
			}
		}), nil)
	})
}

// TestNoiseIsWhatWasValidated: the ends of a residual distribution are single
// rows; validation leaves them out, and simulate --noise draws from the same.
func TestNoiseIsWhatWasValidated(t *testing.T) {
	set := &coeff.Set{Residuals: map[string][][2]float64{
		RegimeDecode: {{0, 0.1}, {0.1, 0.9}, {0.5, 1}, {0.9, 1.1}, {1, 40}},
		regimeMixed:  {{0, 0.8}, {1, 1.2}}, // nothing else is known
		"waiting":    {{0.5, 3}},
	}}
	n := SetNoise(set)
	if len(n.Decode) != 3 || len(n.Mixed) != 2 || n.Prefill != nil {
		t.Fatalf("got %+v", n)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10000 {
		if r := n.draw(rng, RegimeDecode); r < 0.9 || r > 1.1 {
			t.Fatalf("drew %v, want 0.9 to 1.1", r)
		}
	}
	if SetNoise(&coeff.Set{}) != nil || SetNoise(&coeff.Set{Residuals: map[string][][2]float64{"waiting": {{0.5, 3}}}}) != nil {
		t.Error("no residuals of a step's regime: want no noise")
	}
}

// Noise draws follow the quantiles; drift multiplies by simulated time.
func TestNoiseAndDrift(t *testing.T) {
	n := &Noise{Decode: []Quantile{{0.05, 0.8}, {0.5, 1}, {0.95, 1.6}}}
	rng := rand.New(rand.NewPCG(1, 1))
	below := 0
	for range 20000 {
		r := n.draw(rng, RegimeDecode)
		if r < 0.8 || r > 1.6 {
			t.Fatalf("ratio %g", r)
		}
		if r <= 1 {
			below++
		}
	}
	if share := float64(below) / 20000; math.Abs(share-0.5) > 0.02 {
		t.Errorf("%.3f of the ratios at or below the median", share)
	}
	if n.draw(rng, RegimePrefill) != 1 {
		t.Error("a regime without quantiles has ratio 1")
	}
	c := newDriftCursor([]DriftPoint{{100, 2}, {200, 0.5}})
	for us, want := range map[int64]float64{0: 1} {
		if got := c.at(us); got != want {
			t.Errorf("at %d: %g, want %g", us, got, want)
		}
	}
	if c.at(150) != 2 || c.at(199) != 2 || c.at(200) != 0.5 {
		t.Error("drift factors")
	}
}

// Clipped predictions are counted and said; NaN is an error.
func TestClippingAndNaN(t *testing.T) {
	cfg := DefaultConfig(testkit.Small(100), &Blackbox{Beta: []float64{-5, 0, 0}})
	cfg.Overhead = Const(-1)
	res, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.ClippedSteps != 2 || res.ClippedDelays != 1 || len(res.Findings) != 1 || res.Requests[0].FinishedUs.V != 2 {
		t.Errorf("%+v", res)
	}
	cfg.Latency = &Blackbox{Beta: []float64{math.NaN(), 0, 0}}
	if _, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil); err == nil {
		t.Error("NaN was accepted")
	}
	cfg.Latency, cfg.Egress = &Blackbox{Beta: []float64{1, 0, 0}}, Const(math.Inf(1))
	if _, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil); err == nil {
		t.Error("an infinite egress was accepted")
	}
}

func ExampleRun() {
	d := testkit.Llama8B()
	m, err := NewRoofline(d)
	if err != nil {
		panic(err)
	}
	cfg := DefaultConfig(d, m)
	cfg.Overhead, cfg.Egress = Const(1000), Const(200)
	res, err := Run(cfg, []Request{{ID: "hello", PromptTokens: 512, OutputTokens: 100}}, nil)
	if err != nil {
		panic(err)
	}
	ttft, _ := res.Requests[0].TTFTUs()
	e2e, _ := res.Requests[0].E2EUs()
	fmt.Printf("%d steps, TTFT %.1f ms, E2E %.0f ms\n", res.Steps, ttft/1e3, e2e/1e3)
	// Output: 101 steps, TTFT 8.6 ms, E2E 486 ms
}
