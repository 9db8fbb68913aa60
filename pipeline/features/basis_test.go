package features

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

func llama(tp int64) *deploy.Deployment {
	return &deploy.Deployment{
		Model: deploy.Model{NumLayers: 32, HiddenSize: 4096, NumHeads: 32, NumKVHeads: 8, HeadDim: 128, IntermediateSize: 14336,
			VocabSize: 128256, NumMLPProj: 3, BytesPerWeight: 2, BytesPerKV: 2, BytesPerActivation: 2, BytesPerLMHead: 2},
		Hardware: deploy.Hardware{TFlopsPeak: 989.5, BwPeakTBs: 3.35}, TP: tp, PP: 1, DP: 1,
	}
}

// The formulas of the basis, written once more the slow way.
func TestTrainedPhysicsAgainstLongForm(t *testing.T) {
	for _, tp := range []int64{1, 2, 4} {
		d := llama(tp)
		b, err := NewTrainedPhysics(d)
		if err != nil {
			t.Fatal(err)
		}
		batch := []trace.Chunk{{Computed: 0, Prompt: 700, New: 512}, {Computed: 300, Prompt: 400, New: 100},
			{Computed: 1000, Prompt: 900, New: 1}, {Computed: 64, Prompt: 64, New: 1}}
		x := make([]float64, len(TrainedPhysicsBeta))
		s := BasisSum(batch)
		b.Beta(&s, x)
		L, hid, dKV, dff, H, dh := 32.0, 4096.0, 1024.0, 14336.0, 32.0, 128.0
		n := float64(tp)
		peak, bw := 989.5e6, 3.35e6
		attn := 4 * (H / n) * dh * (512*(700+256.0) + 100*(400+50.0))
		want := []float64{
			prefillCompute:  (2*L*612*hid*(2*hid+2*dKV)/n + L*attn + 6*hid*dff*612*L/n) / peak,
			decodeCompute:   (2*L*2*hid*(2*hid+2*dKV)/n + L*4*(H/n)*(1064)*dh + 6*hid*dff*2*L/n) / peak,
			basisWeightLoad: (L*hid*(2*hid+2*dKV) + 3*hid*dff*L) * 2 / n / bw,
			allReduce:       2 * L * 614 * hid * 2 * 2 * (n - 1) / n / bw,
			perLayer:        32, perRequest: 4, PerStep: 1, perMoELayer: 0,
			prefillKV: 4 * L * dKV * 612 / n / bw, decodeKV: 4 * L * dKV * (1064 + 2) / n / bw, moEDispatch: 0,
		}
		for i := range want {
			if math.Abs(x[i]-want[i]) > 1e-12*math.Max(1, want[i]) {
				t.Errorf("tp %d %s: got %g, want %g", tp, TrainedPhysicsBeta[i].Name, x[i], want[i])
			}
		}
	}
}

// The number of betas selects the formula: an explicit 0 is not an absent one.
func TestLengthSelectsFormula(t *testing.T) {
	b, err := NewTrainedPhysics(llama(1))
	if err != nil {
		t.Fatal(err)
	}
	s := BasisSum([]trace.Chunk{{Computed: 3000, Prompt: 10, New: 1}})
	x := make([]float64, len(TrainedPhysicsBeta))
	short := b.StepUs(&s, []float64{0, 1, 0, 0, 0, 0, 0, 0}, x)
	long := b.StepUs(&s, []float64{0, 1, 0, 0, 0, 0, 0, 0, 0, 0}, x)
	if short != math.Max(x[decodeCompute], x[decodeKV]) || long != x[decodeCompute] || short <= long {
		t.Errorf("8 betas: %g, 10 betas: %g, compute %g, kv %g", short, long, x[decodeCompute], x[decodeKV])
	}
	if CheckBetas(make([]float64, 6)) == nil || CheckBetas(make([]float64, 12)) == nil || CheckBetas([]float64{0, 0, 0, 0, 0, 0, -1}) == nil {
		t.Error("CheckBetas accepts 6, 12 or negative values")
	}
}

// Kept for parity: the prefill attention of the basis is 1.5 P^2 for one chunk
// and falls towards P^2 when the prompt is split, where the causal count is P^2/2 always.
func TestPrefillAttnGap(t *testing.T) {
	one := BasisSum([]trace.Chunk{{Computed: 0, Prompt: 1024, New: 1024}})
	var split Step
	for c := int64(0); c < 1024; c += 64 {
		split.Add(trace.Chunk{Computed: c, Prompt: 1024, New: 64})
	}
	if one.PrefillAttn != 1.5*1024*1024 || split.PrefillAttn != 1024*(1024+32) {
		t.Errorf("one chunk %g, sixteen %g", one.PrefillAttn, split.PrefillAttn)
	}
}

// TestTermsAreTheStep: the dot product of terms and betas is the step time for
// every number of betas.
func TestTermsAreTheStep(t *testing.T) {
	d := llama(2)
	b, err := NewTrainedPhysics(d)
	if err != nil {
		t.Fatal(err)
	}
	all := []float64{0.4, 0.3, 1.3, 0.7, 31, 4.4, 120, 9, 0.2, 1.9, 0.6}
	x := make([]float64, len(TrainedPhysicsBeta))
	for n := 7; n <= len(all); n++ {
		for _, chunk := range []trace.Chunk{{Computed: 0, Prompt: 700, New: 512}, {Computed: 4000, Prompt: 900, New: 1}} {
			s := BasisSum([]trace.Chunk{chunk, {Computed: 30, Prompt: 30, New: 1}})
			y, sum := b.StepUs(&s, all[:n], x), 0.0
			for j, v := range Terms(x, make([]float64, n)) {
				sum += v * all[j]
			}
			if math.Abs(sum/y-1) > 1e-12 {
				t.Errorf("%d betas: terms give %g us, the step lasts %g", n, sum, y)
			}
		}
	}
}
