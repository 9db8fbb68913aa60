package features

import (
	"crypto/sha256"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/trace"
)

// A fit made with another list under the same version is refused, and the
// message names the terms that differ.
func TestFeatureSetsNameTheTermsThatDiffer(t *testing.T) {
	ours := SetOf(V11)
	beta, alpha := Names(BetaFeatures(V11)), Names(AlphaFeatures(V11))
	if len(ours.Hash) != 16 || len(ours.Beta) != len(beta) || SetOf(V10).Hash == ours.Hash {
		t.Fatalf("got %+v", ours)
	}
	if err := checkFeatures(ours, V11, beta, alpha); err != nil {
		t.Error(err)
	}
	if err := checkFeatures(coeff.FeatureSet{}, V11, nil, nil); err != nil {
		t.Errorf("a file without a set: %v", err)
	}
	grown := coeff.FeatureSet{Hash: "0", Beta: append(slices.Clone(ours.Beta), "abcdef"), Alpha: slices.Clone(ours.Alpha)}
	grown.Beta[0], grown.Alpha[2] = "000000", "111111"
	err := checkFeatures(grown, V11, append(slices.Clone(beta[:15]), "single_prefill"), alpha)
	if trace.CodeOf(err) != WrongFeatureSet {
		t.Fatalf("got %v, want %s", err, WrongFeatureSet)
	}
	for _, want := range []string{"single_prefill is not in this build", beta[15] + " is not in the file",
		beta[0] + " has another definition", alpha[2] + " has another definition"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want %q in it", err.Error(), want)
		}
	}
	moved := coeff.FeatureSet{Hash: "1", Beta: slices.Clone(ours.Beta), Alpha: ours.Alpha}
	moved.Beta[0], moved.Beta[1] = ours.Beta[1], ours.Beta[0]
	swapped := slices.Clone(beta)
	swapped[0], swapped[1] = beta[1], beta[0]
	if err := checkFeatures(moved, V11, swapped, alpha); err == nil || !strings.Contains(err.Error(), "another order of terms") {
		t.Errorf("got %v", err)
	}
}

// Every part of a definition is in its digest.
func TestDigestCoversTheDefinition(t *testing.T) {
	base := BetaFeatures(V11)[0]
	seen := map[string]bool{base.digest(): true}
	for _, change := range []func(*Feature){
		func(f *Feature) { f.Name = "x" }, func(f *Feature) { f.Kind = Ratio }, func(f *Feature) { f.Formula += "*2" },
		func(f *Feature) { f.Bound *= 2 }, func(f *Feature) { f.Prompt = !f.Prompt },
	} {
		f := base
		change(&f)
		if d := f.digest(); seen[d] {
			t.Errorf("%+v has the digest %s of another", f, d)
		} else {
			seen[d] = true
		}
	}
}

// released are the lists of the released versions: how many slots, and a hash of everything that
// is said of each. Never edit an entry: a coefficient file that names its version would mean
// something else in this build. A new term goes to the experimental lists; a new version gets lists
// and an entry of its own.
var released = map[Version][2]string{
	V10: {"16", "6a6f16e9697a3d23a1a819a3cb9775e87d436f96fdddd20c741722a704bfc4c1"},
	V11: {"16", "193f3737e5092f3659ef2c3cf0906c356dff407d92da0b26aa30a53d508287a0"},
	V12: {"20", "5262e96918944fdf22f2776a055e02531c58c63730cb5c25eac8c0a528db396b"},
	V13: {"20", "1a0648bc2b2d94233a361366b91a693de52f54e14f909c4878958656b23b0317"},
}

func TestReleasedListsNeverChange(t *testing.T) {
	for v, want := range released {
		beta, alpha := describe(BetaFeatures(v)), describe(AlphaFeatures(v))
		got := [2]string{fmt.Sprint(len(BetaFeatures(v))), fmt.Sprintf("%x", sha256.Sum256([]byte(beta+"\n"+alpha)))}
		if got != want {
			t.Errorf("version %s is released and its features changed: got %q, want %q; put the term into the list experimental\n%s\n%s",
				v, got, want, beta, alpha)
		}
	}
	if len(Versions()) != len(released)+1 {
		t.Errorf("got versions %v, want one entry in released for each but %s", Versions(), Experimental)
	}
}

// describe is every slot with all its data, one a line; what its function computes is the formula,
// by another test.
func describe(fs []Feature) string {
	lines := make([]string, len(fs))
	for i := range fs {
		f := &fs[i]
		lines[i] = fmt.Sprintf("%d %s %s %g %g %t %t %g %s", f.Slot, f.Name, f.Kind, f.Penalty, f.PenaltyOne, f.Free, f.Prompt,
			f.Bound, f.Formula)
	}
	return strings.Join(lines, "\n")
}

// No version shares its list with another: an append to one must not show in a second.
func TestListsAreTheirOwn(t *testing.T) {
	seen := map[uintptr]Version{}
	for _, v := range Versions() {
		for _, fs := range [][]Feature{BetaFeatures(v), AlphaFeatures(v)} {
			at := reflect.ValueOf(fs).Pointer()
			if other, ok := seen[at]; ok {
				t.Errorf("versions %s and %s share a list", other, v)
			}
			seen[at] = v
		}
	}
}

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
		x := make([]float64, len(TrainedPhysicsBeta()))
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
				t.Errorf("tp %d %s: got %g, want %g", tp, TrainedPhysicsBeta()[i].Name, x[i], want[i])
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
	x := make([]float64, len(TrainedPhysicsBeta()))
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
	x := make([]float64, len(TrainedPhysicsBeta()))
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

// A way to fit behind a version changes no feature, and stands behind those that are not frozen.
func TestComponentsBehindAVersion(t *testing.T) {
	for _, v := range []Version{V11, V12, Experimental} {
		if got, want := SetOf(v+Components), SetOf(v); got.Hash != want.Hash || !(v + Components).InComponents() || v.InComponents() {
			t.Errorf("%s: hash %s, want %s", v, got.Hash, want.Hash)
		}
	}
	for v, want := range map[Version]string{
		"1.1+queue-pole":              "alone or with +principal-components",
		V10 + Components:              "want 1.1, 1.2, 1.3 or experimental, alone",
		V11 + Components + Components: "alone or with",
		"2.0" + Components:            "want 1.1, 1.2, 1.3 or experimental, alone",
		"2.0":                         "want 1.0, 1.1, 1.2, 1.3 or experimental",
	} {
		if err := CheckVersion(v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", v, err, want)
		}
		if BetaFeatures(v) != nil || AlphaFeatures(v) != nil {
			t.Errorf("%s has features", v)
		}
	}
}
