package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/features/basis"
	"github.com/blis-train/blis-train/trace"
)

// S-6: the simulator's sums are those of the feature code on the same chunks,
// for both versions and for the other models' basis.
func TestS6SumsEqualTheFeatureCode(t *testing.T) {
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
			if got, want := v.BasisStep(), basis.Sum(chunks); got != want {
				t.Errorf("step %d: basis %+v, want %+v", v.StepID, got, want)
			}
		}), nil)
	})
}

// A-14: the preemption average is updated once per step, empty ones included.
func TestA14PreemptionEMA(t *testing.T) {
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

// The roofline is the max of compute and bandwidth, phase by phase.
func TestRooflineIsTheMaximum(t *testing.T) {
	d := llama8b()
	m, err := NewRoofline(d)
	if err != nil {
		t.Fatal(err)
	}
	decode := Batch{DecodeTokens: 8, DecodeReqs: 8, DecodeContext: 8 * 1000, KVRead: 8 * 1000, Running: 8}
	us, err := m.StepUs(&decode)
	if err != nil {
		t.Fatal(err)
	}
	weights := (32*(2*4096.0*(4096+1024)+3*4096*14336) + 4096*128256) * 2 / 3.35e12
	kv := 8000 * 2 * 32 * 1024 * 2.0 / 3.35e12
	if want := (weights + kv + 32*1e-5) * 1e6; math.Abs(us/want-1) > 1e-9 {
		t.Errorf("decode: got %g us, want %g: weights and KV at full bandwidth", us, want)
	}
	prefill := Batch{PrefillTokens: 4000, PrefillReqs: 1, CausalWork: 4000 * 4001 / 2, KVRead: 4000, Running: 1}
	us, err = m.StepUs(&prefill)
	if err != nil {
		t.Fatal(err)
	}
	flops := 4000*32*(4*4096.0*(4096+1024)+6*4096*14336) + 2*4096*128256 + 4*4096*32*4000*4001/2
	if want := (flops/989.5e12 + 32*1e-5) * 1e6; math.Abs(us/want-1) > 1e-9 {
		t.Errorf("prefill: got %g us, want %g: FLOPs at peak", us, want)
	}
}

// Wait-containing alphas are refused as delays (T-5).
func TestT5WaitIsNeverADelay(t *testing.T) {
	set := planted()
	set.Alpha = []coeff.AlphaModel{{Target: coeff.Admission, Coefficients: coeff.NewCoefficients(features.AlphaFeatures(features.V11))}}
	if _, err := NewAlphaDelay(set, coeff.Admission, llama8b()); err == nil {
		t.Error("the admission alpha was accepted as a delay")
	}
}

// Gradient: with the features summed per request between its stamps, the
// dot product with the coefficients is the time between the stamps, as long as
// the request is never without a step.
func TestGradientSumsAreTheTime(t *testing.T) {
	d := llama8b()
	set := planted()
	m, err := NewPhysics(set, d)
	if err != nil {
		t.Fatal(err)
	}
	cfg := DefaultConfig(d, m)
	cfg.Gradient = true
	res, err := Run(cfg, mixed(200, 20), nil)
	if err != nil {
		t.Fatal(err)
	}
	beta := coeff.Values(set.Beta)
	dot := func(x []float64) float64 {
		sum := 0.0
		for j := range x {
			sum += beta[j] * x[j]
		}
		return sum
	}
	for i := range res.Requests {
		r := &res.Requests[i]
		ttft, rest := float64(r.FirstTokenUs.V-r.QueuedUs.V), float64(r.FinishedUs.V-r.FirstTokenUs.V)
		steps := float64(r.FinishedStep - r.QueuedStep)
		if math.Abs(dot(r.PrefillSums)-ttft) > steps || math.Abs(dot(r.DecodeSums)-rest) > steps {
			t.Fatalf("request %d: %g and %g us, stamps say %g and %g (%g steps of rounding)", i, dot(r.PrefillSums), dot(r.DecodeSums), ttft, rest, steps)
		}
	}
	cfg.Gradient = false
	off, err := Run(cfg, mixed(200, 20), nil)
	if err != nil {
		t.Fatal(err)
	}
	if off.Requests[0].PrefillSums != nil {
		t.Error("sums without Gradient")
	}
}

// TestNoiseIsWhatWasValidated: the ends of a residual distribution are single
// rows; validation leaves them out, and simulate --noise draws from the same.
func TestNoiseIsWhatWasValidated(t *testing.T) {
	set := &coeff.Set{Residuals: []coeff.RegimeQuantiles{
		{Regime: RegimeDecode, Quantiles: [][2]float64{{0, 0.1}, {0.1, 0.9}, {0.5, 1}, {0.9, 1.1}, {1, 40}}},
		{Regime: RegimeMixed, Quantiles: [][2]float64{{0, 0.8}, {1, 1.2}}}, // nothing else is known
		{Regime: "waiting", Quantiles: [][2]float64{{0.5, 3}}},
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
	if SetNoise(&coeff.Set{}) != nil || SetNoise(&coeff.Set{Residuals: set.Residuals[2:]}) != nil {
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

// The streaming quantiles are within half a percent of the exact ones.
func TestQuantilesAreClose(t *testing.T) {
	q := NewQuantiles()
	var v []float64
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50000 {
		x := math.Exp(8 + 2*rng.NormFloat64())
		q.Add(x, 1)
		v = append(v, x)
	}
	slices.Sort(v)
	for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		exact := v[int(math.Ceil(p*float64(len(v))))-1]
		if got := q.At(p); math.Abs(got/exact-1) > 0.005 {
			t.Errorf("p%g: got %g, want %g", p*100, got, exact)
		}
	}
	if q.N() != 50000 || q.max != v[len(v)-1] {
		t.Error("count or maximum")
	}
}

// Clipped predictions are counted and said (G-8); NaN is an error (G-7).
func TestG8ClippingAndG7NaN(t *testing.T) {
	cfg := DefaultConfig(small(100), linear{-5, 0, 0})
	cfg.Overhead = Const(-1)
	res, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.ClippedSteps != 2 || res.ClippedDelays != 1 || len(res.Findings) != 1 || res.Requests[0].FinishedUs.V != 2 {
		t.Errorf("%+v", res)
	}
	cfg.Latency = linear{math.NaN(), 0, 0}
	if _, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil); err == nil {
		t.Error("NaN was accepted")
	}
	cfg.Latency, cfg.Egress = linear{1, 0, 0}, Const(math.Inf(1))
	if _, err := Run(cfg, []Request{{PromptTokens: 3, OutputTokens: 2}}, nil); err == nil {
		t.Error("an infinite egress was accepted")
	}
}

// The summary of a run small enough to check by hand.
func TestSummary(t *testing.T) {
	cfg := DefaultConfig(small(100), linear{1000, 0, 0})
	cfg.TokenGaps = true
	res, err := Run(cfg, []Request{
		{ID: "a", PromptTokens: 4, OutputTokens: 3, SLOClass: "chat", SLOTTFTUs: 1500},
		{ID: "b", ArrivalUs: 100, PromptTokens: 4, OutputTokens: 1, SLOClass: "chat", SLOTTFTUs: 1500},
		{ID: "c", ArrivalUs: 100, PromptTokens: 1000, OutputTokens: 1},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := Summarize(res)
	if s.Injected != 3 || s.Completed != 2 || s.Rejected != 1 || s.OutputTokens != 4 || s.DurationS != 0.003 {
		t.Errorf("%+v", s)
	}
	if s.TTFT.Mean != (1+1.9)/2 || s.ITL.Mean != 1 || s.E2E.P50 != (3+1.9)/2 || s.TokenGap.N != 2 {
		t.Errorf("TTFT %+v ITL %+v E2E %+v gaps %+v", s.TTFT, s.ITL, s.E2E, s.TokenGap)
	}
	if len(s.Classes) != 1 || s.Classes[0].Met != 1 || s.Classes[0].Attainment.V != 0.5 || math.Abs(s.Goodput.V-1/0.003) > 1e-9 {
		t.Errorf("classes %+v, goodput %v", s.Classes, s.Goodput)
	}
}

// Coefficients drawn from a covariance have it, and keep their signs.
func TestDrawBetaFollowsTheCovariance(t *testing.T) {
	set := planted()
	n := len(set.Beta)
	set.Covariance = make([][]float64, n)
	for i := range set.Covariance {
		set.Covariance[i] = make([]float64, n)
	}
	set.Covariance[0][0], set.Covariance[1][1], set.Covariance[0][1], set.Covariance[1][0] = 4e8, 1e8, 1.6e8, 1.6e8
	rng := rand.New(rand.NewPCG(3, 3))
	var sxx, syy, sxy float64
	const draws = 20000
	for range draws {
		d, ok := DrawBeta(set, rng)
		if !ok {
			t.Fatal("no covariance")
		}
		x, y := d.Beta[0].Value-set.Beta[0].Value, d.Beta[1].Value-set.Beta[1].Value
		sxx, syy, sxy = sxx+x*x/draws, syy+y*y/draws, sxy+x*y/draws
		if d.Beta[2].Value != set.Beta[2].Value {
			t.Fatal("a term without variance moved")
		}
	}
	if math.Abs(sxx/4e8-1) > 0.05 || math.Abs(syy/1e8-1) > 0.05 || math.Abs(sxy/1.6e8-1) > 0.05 {
		t.Errorf("covariance %g %g %g", sxx, syy, sxy)
	}
}

func ExampleRun() {
	d := llama8b()
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

// TestLinear3CountsWhatItSays: computed tokens are those scheduled, KV tokens
// read the contexts including them.
func TestLinear3CountsWhatItSays(t *testing.T) {
	m, err := NewLinear3([]float64{1000, 3, 0.5})
	if err != nil {
		t.Fatal(err)
	}
	b := Batch{PrefillTokens: 100, DecodeTokens: 2, KVRead: 100 + 51 + 71}
	if us, err := m.StepUs(&b); err != nil || us != 1000+3*102+0.5*222 {
		t.Errorf("got %g us, %v, want %g", us, err, 1000+3*102+0.5*222)
	}
	for _, bad := range [][]float64{{1, 2}, {1, 2, math.NaN()}, {1, 2, -1}} {
		if _, err := NewLinear3(bad); err == nil {
			t.Errorf("%v: got a model, want an error", bad)
		}
	}
}
