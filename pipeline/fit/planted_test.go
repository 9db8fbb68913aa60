package fit

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// planted is a table of one run: row i has the features and target of make.
func planted(run, config string, n int, make func(i int) (x []float64, y float64)) *rows.Table {
	t := &rows.Table{Run: run, Config: config, Target: coeff.Cadence, P: len(features.BetaFeatures(features.V11)), Read: n, Kept: n}
	for range t.P {
		t.Min, t.Max = append(t.Min, math.Inf(1)), append(t.Max, math.Inf(-1))
	}
	for i := range n {
		x, y := make(i)
		t.X, t.Y = append(t.X, x...), append(t.Y, y)
		for j, v := range x {
			t.Min[j], t.Max[j] = math.Min(t.Min[j], v), math.Max(t.Max[j], v)
		}
		t.Steps = append(t.Steps, 1)
		t.Regime = append(t.Regime, rows.Decode)
		t.TimeNs = append(t.TimeNs, int64(i)*1e7)
		t.FirstStep = append(t.FirstStep, int64(i))
		t.LastStep = append(t.LastStep, int64(i))
		t.Tag = append(t.Tag, rows.TagRich)
		t.Phase = append(t.Phase, -1)
		t.Factor = append(t.Factor, 1)
		t.HoldOut = append(t.HoldOut, i >= n*4/5)
		t.Sets = append(t.Sets, rows.PureDecode)
		t.FloorUs = append(t.FloorUs, 1)
		t.Batch = append(t.Batch, 1)
		t.Context = append(t.Context, 1)
	}
	return t
}

// fitterOf is a fitter over planted tables, one run each.
func fitterOf(t *testing.T, tables ...*rows.Table) *fitter {
	t.Helper()
	o := Quick()
	o.AlphaTargets = []string{coeff.Overhead}
	f := &fitter{o: o, gammas: features.Gammas(), out: &result.Fit{}}
	for _, table := range tables {
		p := &Run{Src: Source{ID: table.Run}, runFacts: runFacts{Config: table.Config}, Beta: table}
		p.Src.Deployment.Hardware.Name = strings.SplitN(table.Config, "/", 2)[0]
		p.Src.Deployment.Model.ID = table.Config
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
	if err := s.SolveAt(m, f.gamma, f.o.RefitAll); err != nil {
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

// Folds that repeat one another are named. Rows that are all equal give
// every fold the same coefficients.
func TestRepeatedFoldsAreNamed(t *testing.T) {
	same := planted("r", "gpu/a", 96, func(int) ([]float64, float64) { return vector(t, nil), 1024 })
	if m := fitterOf(t, same).solveBeta(t); !Has(m.Warnings, CodeFewRows, "same coefficients") {
		t.Errorf("%v", m.Warnings)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	apart := planted("r", "gpu/a", 96, func(int) ([]float64, float64) { return vector(t, nil), 1000 + 100*rng.Float64() })
	if m := fitterOf(t, apart).solveBeta(t); Has(m.Warnings, CodeFewRows, "same coefficients") {
		t.Error("distinct folds are called repeated")
	}
}

// A feature that is constant inside every configuration is
// named, one that varies is not.
func TestConstantWithinConfigurations(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	config := func(name string, gqa float64) *rows.Table {
		return planted(name, "gpu/"+name, 200, func(int) ([]float64, float64) {
			batch := rng.Float64()
			return vector(t, map[string]float64{"batch_utilization": batch, "gqa_efficiency": gqa}),
				1000 + 4000*batch + 500*gqa + 20*rng.NormFloat64()
		})
	}
	m := fitterOf(t, config("a", 0.125), config("b", 0.25), config("c", 1)).solveBeta(t)
	if !Has(m.Warnings, NotIdentified,
		"gqa_efficiency does not vary inside any configuration: its value is between-configs") {
		t.Errorf("%v", m.Warnings)
	}
	if Has(m.Warnings, NotIdentified, "batch_utilization") {
		t.Error("a varying feature is called constant")
	}
}

// Planted coefficients come back through pool, selection and solution to 2 %.
func TestPlantedCoefficientsReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	table := planted("r", "gpu/a", 3000, func(int) ([]float64, float64) {
		w, b := 0.01*rng.Float64(), rng.Float64()
		return vector(t, map[string]float64{"decode_weight_load": w, "batch_utilization": b}),
			(1.5e6*w + 5000*b + 2000) * (1 + 0.01*rng.NormFloat64())
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
			return vector(t, map[string]float64{"decode_weight_load": w, "batch_utilization": b}),
				speed * (1.5e6*w + 5000*b + 2000) * (1 + 0.01*rng.NormFloat64())
		})
	}
	m := fitterOf(t, config("fast", "a", 0.8), config("fast", "b", 0.8), config("slow", "a", 1.25), config("slow", "b", 1.25)).solveBeta(t)
	if len(m.HardwareFactors) != 2 || m.LocoPlain == nil || *m.LocoMedian >= *m.LocoPlain.Median {
		t.Fatalf("factors %+v, leave-one-out %v against %+v", m.HardwareFactors, *m.LocoMedian, m.LocoPlain)
	}
	fast := m.HardwareFactors[0]
	slow := m.HardwareFactors[1]
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

// Two models with the same decode cost and prompt work of four times the price on
// one of them: one set of coefficients and two factors predict both.
func TestPromptFactorsOnPlantedData(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	run := func(model string, price float64) *rows.Table {
		return planted(model, model+"/x", 900, func(i int) ([]float64, float64) {
			w, c := 0.01*rng.Float64(), 0.0
			if i%3 == 0 {
				c = 0.01 * rng.Float64()
			}
			return vector(t, map[string]float64{"decode_weight_load": w, "prefill_linear_compute": c}), 1.5e6*w + price*1e6*c + 2000
		})
	}
	list := []*rows.Table{run("a", 1), run("b", 4)}
	for _, table := range list {
		for i := range table.Kept {
			if table.Row(i)[slot(t, "prefill_linear_compute")] > 0 {
				table.Regime[i] = rows.Mixed
			}
		}
	}
	m := fitterOf(t, list...).solveBeta(t)
	cost := map[string]float64{}
	for _, d := range m.DeploymentFactors {
		if d.Config != "" {
			cost[d.Config] = d.Factor * d.Prompt * m.Coefficients[slot(t, "prefill_linear_compute")].Value
		}
	}
	if ratio := cost["b/x"] / cost["a/x"]; math.Abs(ratio-4) > 0.6 {
		t.Errorf("prompt work of b over a: %.2f, want about 4 (%+v)", ratio, m.DeploymentFactors)
	}
	if m.Holdout != nil && *m.Holdout.MAPE > 0.05 {
		t.Errorf("hold-out MAPE %.3f", *m.Holdout.MAPE)
	}
}
