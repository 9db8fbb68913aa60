package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// planted is a table of one run: row i has the features and target of make.
func planted(run, config string, n int, make func(i int) (x []float64, y float64)) *rows.Table {
	t := &rows.Table{Run: run, Config: config, Target: rows.Cadence, P: len(features.BetaFeatures(features.V11)), Read: n, Kept: n}
	for range t.P {
		t.Min, t.Max = append(t.Min, math.Inf(1)), append(t.Max, math.Inf(-1))
	}
	for i := range n {
		x, y := make(i)
		t.X, t.Y = append(t.X, x...), append(t.Y, y)
		for j, v := range x {
			t.Min[j], t.Max[j] = math.Min(t.Min[j], v), math.Max(t.Max[j], v)
		}
		t.Steps, t.Regime, t.TimeNs = append(t.Steps, 1), append(t.Regime, rows.Decode), append(t.TimeNs, int64(i)*1e7)
		t.FirstStep, t.LastStep, t.Tag = append(t.FirstStep, int64(i)), append(t.LastStep, int64(i)), append(t.Tag, rows.TagRich)
		t.Phase, t.Factor, t.HoldOut = append(t.Phase, -1), append(t.Factor, 1), append(t.HoldOut, i >= n*4/5)
		t.Sets, t.FloorUs = append(t.Sets, rows.PureDecode), append(t.FloorUs, 1)
		t.Batch, t.Context = append(t.Batch, 1), append(t.Context, 1)
	}
	return t
}

// fitterOf is a fitter over planted tables, one run each.
func fitterOf(t *testing.T, tables ...*rows.Table) *fitter {
	t.Helper()
	o := quick()
	o.AlphaTargets = []string{rows.Overhead}
	f := &fitter{o: o, gammas: features.Gammas(), out: &result.Fit{}}
	for _, table := range tables {
		p := &prepared{src: Source{ID: table.Run}, config: table.Config, beta: table}
		p.src.Deployment.Hardware.Name = strings.SplitN(table.Config, "/", 2)[0]
		p.src.Deployment.Model.ID = table.Config
		f.used = append(f.used, p)
		f.prepared = append(f.prepared, p)
	}
	return f
}

func (f *fitter) solveBeta(t *testing.T) *result.Model {
	t.Helper()
	s, m, err := f.selectBeta()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.solveChosen(s, m); err != nil {
		t.Fatal(err)
	}
	out, err := f.betaModel(s, m)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// slot is the column of a beta feature.
func slot(t testing.TB, name string) int {
	t.Helper()
	for j, f := range features.BetaFeatures(features.V11) {
		if f.Name == name {
			return j
		}
	}
	t.Fatalf("no feature %q", name)
	return -1
}

// vector is a feature vector with the named values and 1 in the bias.
func vector(t testing.TB, values map[string]float64) []float64 {
	x := make([]float64, len(features.BetaFeatures(features.V11)))
	x[slot(t, "bias")] = 1
	for name, v := range values {
		x[slot(t, name)] = v
	}
	return x
}

// Issue 6: folds that repeat one another are named. Rows that are all alike give
// every fold the same coefficients.
func TestIssue6RepeatedFoldsAreNamed(t *testing.T) {
	same := planted("r", "gpu/a", 96, func(int) ([]float64, float64) { return vector(t, nil), 1024 })
	if m := fitterOf(t, same).solveBeta(t); !has(m.Warnings, FoldsRepeat, "same coefficients") {
		t.Errorf("%v", m.Warnings)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	apart := planted("r", "gpu/a", 96, func(int) ([]float64, float64) { return vector(t, nil), 1000 + 100*rng.Float64() })
	if m := fitterOf(t, apart).solveBeta(t); has(m.Warnings, FoldsRepeat, "") {
		t.Error("distinct folds are called repeated")
	}
}

// Issue 6, 01 V-10: a feature that is constant inside every configuration is
// named, one that varies is not.
func TestV10ConstantWithinConfigurations(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	config := func(name string, gqa float64) *rows.Table {
		return planted(name, "gpu/"+name, 200, func(int) ([]float64, float64) {
			batch := rng.Float64()
			return vector(t, map[string]float64{"batch_utilization": batch, "gqa_efficiency": gqa}), 1000 + 4000*batch + 500*gqa + 20*rng.NormFloat64()
		})
	}
	m := fitterOf(t, config("a", 0.125), config("b", 0.25), config("c", 1)).solveBeta(t)
	if !has(m.Warnings, ConstantInConfigs, "gqa_efficiency does not vary inside any configuration: its value is between-configs") {
		t.Errorf("%v", m.Warnings)
	}
	if has(m.Warnings, ConstantInConfigs, "batch_utilization") {
		t.Error("a varying feature is called constant")
	}
}

// Planted coefficients come back through pool, selection and solution to 2 %.
func TestPlantedCoefficientsReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	table := planted("r", "gpu/a", 3000, func(int) ([]float64, float64) {
		w, b := 0.01*rng.Float64(), rng.Float64()
		return vector(t, map[string]float64{"decode_weight_load": w, "batch_utilization": b}), (1.5e6*w + 5000*b + 2000) * (1 + 0.01*rng.NormFloat64())
	})
	m := fitterOf(t, table).solveBeta(t)
	factor := m.DeploymentFactors[0].Factor
	for name, want := range map[string]float64{"decode_weight_load": 1.5e6, "batch_utilization": 5000, "bias": 2000} {
		if got := m.Coefficients[slot(t, name)].Value * factor; math.Abs(got-want) > 0.02*want {
			t.Errorf("%s: got %g, want %g", name, got, want)
		}
	}
}

// Devices that differ by a factor: learned, shrunk toward 1 by one configuration's
// worth, and kept because leave-one-out gets better.
func TestHardwareFactorsOnPlantedData(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	config := func(device, name string, speed float64) *rows.Table {
		return planted(device+name, device+"/"+name, 300, func(int) ([]float64, float64) {
			w, b := 0.01*rng.Float64(), rng.Float64()
			return vector(t, map[string]float64{"decode_weight_load": w, "batch_utilization": b}), speed * (1.5e6*w + 5000*b + 2000) * (1 + 0.01*rng.NormFloat64())
		})
	}
	m := fitterOf(t, config("fast", "a", 0.8), config("fast", "b", 0.8), config("slow", "a", 1.25), config("slow", "b", 1.25)).solveBeta(t)
	if len(m.HardwareFactors) != 2 || m.LocoPlain == nil || *m.LocoMedian >= *m.LocoPlain.Median {
		t.Fatalf("factors %+v, leave-one-out %v against %+v", m.HardwareFactors, *m.LocoMedian, m.LocoPlain)
	}
	fast, slow := m.HardwareFactors[0], m.HardwareFactors[1]
	ratio := slow.Factor / fast.Factor
	if want := math.Pow(1.25/0.8, 2.0/3); math.Abs(ratio-want) > 0.1 || fast.Configs != 2 {
		t.Errorf("slow over fast %.3f, want about %.3f: two of three parts of the difference", ratio, want)
	}
	for _, d := range m.DeploymentFactors {
		want := 0.8
		if strings.Contains(d.Deployment, "slow") {
			want = 1.25
		}
		if common := d.Factor / want; math.Abs(common-m.DeploymentFactors[0].Factor/0.8) > 0.02 {
			t.Errorf("%s: factor %.3f", d.Deployment, d.Factor)
		}
	}
	equal := fitterOf(t, config("a", "x", 1), config("b", "x", 1), config("a", "y", 1), config("b", "y", 1)).solveBeta(t)
	for _, h := range equal.HardwareFactors {
		if math.Abs(h.Factor-1) > 0.01 {
			t.Errorf("equal devices: %+v", h)
		}
	}
}

// learnFactors by hand: median log ratios 0.2 and 0.4 on one device give
// exp(0.6/3), none of its rows without their configuration.
func TestLearnFactorsByHand(t *testing.T) {
	d := &gram.Data{Y: []float64{math.Exp(0.2), math.Exp(0.4), 1}, Config: []int32{0, 1, 2}}
	got := learnFactors(d, []float64{1, 1, 1}, []string{"x", "x", "y"}, -1)
	if len(got) != 2 || math.Abs(got[0].Factor-math.Exp(0.2)) > 1e-12 || got[1].Factor != 1 {
		t.Errorf("%+v", got)
	}
	if got := learnFactors(d, []float64{1, 1, 1}, []string{"x", "x", "y"}, 2); got != nil {
		t.Errorf("one device left: %+v", got)
	}
	if factorOf(got, "z") != 1 {
		t.Error("an unknown device has a factor")
	}
}

// Null directions as sentences: one term, a pure sum, several unknown combinations.
func TestNullSentences(t *testing.T) {
	terms := []term{{name: "decode_attention"}, {name: "kv_cache_read"}, {name: "bias"}, {name: "batch_utilization"}}
	for _, c := range []struct {
		g    ridge.NullGroup
		want []string
	}{
		{ridge.NullGroup{Terms: []int{0}, Dim: 1}, []string{"decode_attention leaves no mark", "contexts of very different length"}},
		{ridge.NullGroup{Terms: []int{0, 1}, Dim: 1, SumUs: 8850}, []string{"decode_attention and kv_cache_read cannot be told apart: only their sum, 8.85 ms"}},
		{ridge.NullGroup{Terms: []int{0, 1, 2, 3}, Dim: 2, SumUs: 1000}, []string{"2 combinations of them are unknown; together they make 1 ms", "decode_attention, kv_cache_read, bias and batch_utilization"}},
		{ridge.NullGroup{Terms: []int{2, 3}, Dim: 0, SumUs: 1000}, []string{"nearly move together", "batches from 1 to max_num_seqs"}},
	} {
		got := nullSentence(terms, c.g, 1)
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("got %q, want it to hold %q", got, want)
			}
		}
	}
}

// inspect --identify: the bundled runs cannot tell attention from cache reads,
// hold no long context, and prompts of different length would shrink the
// interval of prefill attention.
func TestIdentify(t *testing.T) {
	id, err := Identify(context.Background(), bundled(t), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if len(id.Terms) != len(features.BetaFeatures(features.V11)) || len(id.Experiments) == 0 || len(id.Experiments) > maxExperiments {
		t.Fatalf("%d terms, %d experiments", len(id.Terms), len(id.Experiments))
	}
	if !strings.Contains(strings.Join(id.NullDirections, "\n"), "decode_attention and kv_cache_read cannot be told apart") {
		t.Errorf("%q", id.NullDirections)
	}
	if !strings.Contains(strings.Join(id.MissingRegimes, "\n"), "contexts of 4096 tokens") {
		t.Errorf("%q", id.MissingRegimes)
	}
	var seen bool
	for _, e := range id.Experiments {
		if e.HalfWidth != nil && e.After != nil && !(*e.After < worthwhile**e.HalfWidth) {
			t.Errorf("%s: %v does not shrink to %v", e.Description, *e.HalfWidth, *e.After)
		}
		seen = seen || e.Term == "prefill_attention" && strings.Contains(e.Description, "prompts")
	}
	if !seen {
		t.Errorf("no experiment for prefill_attention: %+v", id.Experiments)
	}
	one := DefaultOptions()
	one.Workers = 1
	again, err := Identify(context.Background(), bundled(t), one)
	if err != nil || bytesOf(t, again) != bytesOf(t, id) {
		t.Errorf("1 worker: other bytes (%v)", err)
	}
}

// Every variant of a deployment differs from it, and describes one change.
func TestVariantsDiffer(t *testing.T) {
	base := bundled(t)[0].Deployment
	seen := map[string]bool{}
	for _, v := range variants(base) {
		if v.dep.Label() == base.Label() && v.dep.Model.NumLayers == base.Model.NumLayers && v.dep.Model.HiddenSize == base.Model.HiddenSize &&
			v.dep.Model.NumKVHeads == base.Model.NumKVHeads && v.dep.Model.NumExperts == base.Model.NumExperts {
			t.Errorf("%s: nothing changed", v.what)
		}
		if seen[v.what] {
			t.Errorf("%s: twice", v.what)
		}
		seen[v.what] = true
		if _, err := features.New(features.V11, &v.dep); err != nil {
			t.Errorf("%s: %v", v.what, err)
		}
	}
	for _, l := range loadsOf(&base) {
		for _, b := range l.batches {
			var tokens int64
			for _, c := range b {
				tokens += c.New
			}
			if tokens > base.Engine.MaxNumBatchedTokens || int64(len(b)) > base.Engine.MaxNumSeqs {
				t.Errorf("%s: a batch of %d requests and %d tokens", l.what, len(b), tokens)
			}
		}
	}
}
