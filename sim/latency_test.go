package sim_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/sim"
)

// The roofline is the max of compute and bandwidth, phase by phase.
func TestRooflineIsTheMaximum(t *testing.T) {
	d := testkit.Llama8B()
	m, err := sim.NewRoofline(d)
	if err != nil {
		t.Fatal(err)
	}
	decode := sim.Batch{DecodeTokens: 8, DecodeReqs: 8, DecodeContext: 8 * 1000, KVRead: 8 * 1000, Running: 8}
	us, err := m.StepUs(&decode)
	if err != nil {
		t.Fatal(err)
	}
	weights := (32*(2*4096.0*(4096+1024)+3*4096*14336) + 4096*128256) * 2 / 3.35e12
	kv := 8000 * 2 * 32 * 1024 * 2.0 / 3.35e12
	if want := (weights + kv + 32*1e-5) * 1e6; math.Abs(us/want-1) > 1e-9 {
		t.Errorf("decode: got %g us, want %g: weights and KV at full bandwidth", us, want)
	}
	prefill := sim.Batch{PrefillTokens: 4000, PrefillReqs: 1, CausalWork: 4000 * 4001 / 2, KVRead: 4000, Running: 1}
	us, err = m.StepUs(&prefill)
	if err != nil {
		t.Fatal(err)
	}
	flops := 4000*32*(4*4096.0*(4096+1024)+6*4096*14336) + 2*4096*128256 + 4*4096*32*4000*4001/2
	if want := (flops/989.5e12 + 32*1e-5) * 1e6; math.Abs(us/want-1) > 1e-9 {
		t.Errorf("prefill: got %g us, want %g: FLOPs at peak", us, want)
	}
}

// An alpha that contains a wait is refused as a delay.
func TestWaitIsNeverADelay(t *testing.T) {
	set := testkit.Planted()
	set.Alpha = []coeff.AlphaModel{{Target: coeff.Admission, Coefficients: features.NewCoefficients(features.AlphaFeatures(features.V11))}}
	if _, err := sim.NewAlphaDelay(set, coeff.Admission, testkit.Llama8B()); err == nil {
		t.Error("the admission alpha was accepted as a delay")
	}
}

// Coefficients drawn from a covariance have it, and keep their signs.
func TestDrawBetaFollowsTheCovariance(t *testing.T) {
	set := testkit.Planted()
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
		d, ok := sim.DrawBeta(set, rng)
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

// TestLinear3CountsWhatItSays: computed tokens are those scheduled, KV tokens
// read the contexts including them.
func TestLinear3CountsWhatItSays(t *testing.T) {
	m, err := sim.NewLinear3([]float64{1000, 3, 0.5})
	if err != nil {
		t.Fatal(err)
	}
	b := sim.Batch{PrefillTokens: 100, DecodeTokens: 2, KVRead: 100 + 51 + 71}
	if us, err := m.StepUs(&b); err != nil || us != 1000+3*102+0.5*222 {
		t.Errorf("got %g us, %v, want %g", us, err, 1000+3*102+0.5*222)
	}
	for _, bad := range [][]float64{{1, 2}, {1, 2, math.NaN()}, {1, 2, -1}} {
		if _, err := sim.NewLinear3(bad); err == nil {
			t.Errorf("%v: got a model, want an error", bad)
		}
	}
}
