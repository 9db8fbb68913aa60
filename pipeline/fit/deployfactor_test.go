package fit

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/pipeline/rows"
)

// A run whose decode steps take twice the prediction and whose prompt work takes
// six times: both totals are met.
func TestRunFactorsMeetBothTotals(t *testing.T) {
	r := runTotals{rest: [2]float64{100, 40}, prompt: [2]float64{5, 60}}
	for k := range 2 {
		r.y[k] = 2*r.rest[k] + 6*r.prompt[k]
	}
	if all, more := r.factors(); math.Abs(all-2) > 1e-12 || math.Abs(more-3) > 1e-12 {
		t.Errorf("got %g and %g on top, want 2 and 3", all, more)
	}
	decodes := runTotals{y: [2]float64{150, 0}, rest: [2]float64{90, 0}, prompt: [2]float64{10, 0}}
	if all, more := decodes.factors(); all != 1.5 || more != 1 {
		t.Errorf("a run without prompts: got %g and %g, want 1.5 and 1", all, more)
	}
	odd := runTotals{y: [2]float64{200, 10}, rest: [2]float64{100, 10}, prompt: [2]float64{0, 10}}
	if all, more := odd.factors(); all != 1.75 || more != 1 {
		t.Errorf("prompt work below zero: got %g and %g, want the whole, 1.75, and 1", all, more)
	}
}

// Random effects by hand: four runs in two groups with medians 0.3 and -0.1, each
// 0.1 from its median, so that the variance is pi/2 0.1^2 times 4 runs over 2
// degrees of freedom. With a spread of 0.02: between the groups (0.09 + 0.01)/2 - 0.02/2 = 0.04 is left, so that
// two runs keep 0.04/(0.04 + 0.01) of what they say.
func TestFactorsArePooledBySpread(t *testing.T) {
	g := groups{names: []string{"a", "b"}, members: [][]int{{0, 1}, {2, 3}}, of: []int{0, 0, 1, 1}}
	v := []float64{0.2, 0.4, -0.2, 0}
	if got := g.variance(v); math.Abs(got-math.Pi/100) > 1e-12 {
		t.Fatalf("variance %g, want pi/100", got)
	}
	if got := g.pool(v, 0.02); math.Abs(got[0]-0.24) > 1e-12 || math.Abs(got[1]+0.08) > 1e-12 {
		t.Errorf("got %v, want 0.24 and -0.08", got)
	}
	if got := g.pool(v, 0); math.Abs(got[0]-0.3) > 1e-12 {
		t.Errorf("without a spread: got %v, want the medians", got)
	}
	if got := g.pool(v, 1); got[0] != 0 || got[1] != 0 {
		t.Errorf("runs that differ more than groups: got %v, want nothing", got)
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
