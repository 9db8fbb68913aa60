package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// pickedUp are overhead rows of one run: request i takes delay(i) us with a
// scatter of a quarter, and the engine looks at its input every step us.
func pickedUp(run, config string, n int, step float64, seed uint64, delay func(x []float64) float64) *rows.Table {
	rng := rand.New(rand.NewPCG(seed, 1))
	fs := features.AlphaFeatures(features.V11)
	t := &rows.Table{Run: run, Config: config, Target: coeff.Overhead, P: len(fs), Read: n, Kept: n, Hits: make([]int, len(fs))}
	for range t.P {
		t.Min, t.Max = append(t.Min, math.Inf(1)), append(t.Max, math.Inf(-1))
	}
	for i := range n {
		x := make([]float64, t.P)
		for j, f := range fs {
			switch f.Name {
			case "base_bias":
				x[j] = 1
			case "admission_compute":
				x[j] = 0.1 * rng.Float64()
			}
			t.Min[j], t.Max[j] = math.Min(t.Min[j], x[j]), math.Max(t.Max[j], x[j])
		}
		took := delay(x) * math.Exp(0.25*rng.NormFloat64())
		next := step * rng.Float64()
		lo, hi := 0., next
		for hi < took {
			lo, hi = hi, hi+step
		}
		t.X = append(t.X, x...)
		t.Y = append(t.Y, hi)
		t.Lo = append(t.Lo, lo)
		t.Hi = append(t.Hi, hi)
		t.Exact = append(t.Exact, false)
		t.Steps = append(t.Steps, 1)
		t.Regime = append(t.Regime, rows.Idle)
		t.TimeNs = append(t.TimeNs, int64(i)*1e7)
		t.FirstStep = append(t.FirstStep, int64(i))
		t.LastStep = append(t.LastStep, int64(i))
		t.Tag = append(t.Tag, rows.TagJourney)
		t.Phase = append(t.Phase, -1)
		t.Factor = append(t.Factor, 1)
		t.HoldOut = append(t.HoldOut, i >= n*4/5)
		t.Sets = append(t.Sets, 0)
		t.FloorUs = append(t.FloorUs, 0)
		t.ID = append(t.ID, run)
		t.Batch = append(t.Batch, 1)
		t.Context = append(t.Context, 1)
	}
	return t
}

// overheadFit is the overhead's model over planted tables.
func overheadFit(t *testing.T, tables ...*rows.Table) *result.Model {
	t.Helper()
	f := fitterOf(t, tables...)
	for i, p := range f.used {
		p.Alpha = map[string]*rows.Table{coeff.Overhead: tables[i]}
	}
	a, err := f.selectAlpha(t.Context(), coeff.Overhead)
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.alphaModel(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A delay of which nine in ten intervals say nothing returns, and no
// penalty shrinks it away.
func TestOverheadReturns(t *testing.T) {
	for seed := range uint64(5) {
		m := overheadFit(t, pickedUp("r", "gpu/a", 600, 15000, seed, func([]float64) float64 { return 900 }))
		if got := *m.Interval.MedianPredUs; math.Abs(got-900) > 0.2*900 {
			t.Errorf("seed %d: median %g us, want within 20 %% of 900", seed, got)
		}
		if m.DeploymentCoefficients != nil {
			t.Error("one deployment has values of its own")
		}
	}
}

// Decision 0012: deployments whose overheads lie apart get values of their own,
// shrunk toward the common ones; one whose rows say nothing keeps those.
func TestOverheadOfDeployments(t *testing.T) {
	constant := func(us float64) func([]float64) float64 { return func([]float64) float64 { return us } }
	m := overheadFit(t,
		pickedUp("a", "gpu/a", 1500, 10000, 1, constant(600)),
		pickedUp("b", "gpu/b", 1500, 10000, 2, constant(1200)),
		pickedUp("c", "gpu/c", 300, 1e9, 3, constant(900)),
		pickedUp("d", "gpu/d", 1500, 10000, 4, func(x []float64) float64 { return 600 + 1e4*x[2] }))
	if len(m.DeploymentCoefficients) != 4 {
		t.Fatalf("%d deployments, want 4", len(m.DeploymentCoefficients))
	}
	var common float64
	for _, c := range m.Coefficients {
		if c.Name == "base_bias" {
			common = c.Value
		}
	}
	for k, want := range []float64{600, 1200, common, 1100} {
		if got := *m.AlphaRuns[k].Interval.MedianPredUs; math.Abs(got-want) > 0.12*want {
			t.Errorf("%s: median %g us, want within 12 %% of %g", m.AlphaRuns[k].Run, got, want)
		}
		if d := m.DeploymentCoefficients[k]; d.Rows == 0 || d.Lambda == nil || len(d.Values) != len(m.Coefficients) {
			t.Errorf("%+v", d)
		}
	}
	slope := func(k int) float64 { return m.DeploymentCoefficients[k].Values[2] }
	if !(slope(3) > 5e3 && slope(0) < 3e3) {
		t.Errorf("slopes %g and %g, want about 10000 us/s where it was planted and little elsewhere", slope(3), slope(0))
	}
	few := overheadFit(t, pickedUp("a", "gpu/a", 600, 10000, 1, constant(600)), pickedUp("b", "gpu/b", 5, 10000, 2, constant(1200)))
	if d := few.DeploymentCoefficients[1]; d.Lambda != nil || d.Values[3] != few.Coefficients[3].Value {
		t.Errorf("five rows: %+v, want the common values", d)
	}
}
