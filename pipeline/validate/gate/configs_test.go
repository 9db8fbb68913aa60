package gate

import (
	"math"
	"testing"

	"github.com/blis-train/blis-train/result"
)

// TestBiasesOfConfigurations: recorded configurations have the bias of held-out steps, test runs of unseen ones that of
// configurations that were left out, and neither has one without steps.
func TestBiasesOfConfigurations(t *testing.T) {
	steps := &result.Errors{Rows: 30, Bias: num(-0.02), BiasInterval: &[2]float64{-0.03, -0.01}}
	for name, c := range map[string]struct {
		config         result.ConfigErrors
		bias, biasLoco bool
	}{
		"recorded":                {result.ConfigErrors{Steps: steps}, true, false},
		"a test run of it":        {result.ConfigErrors{Steps: steps, TestRun: true, Seen: true}, true, false},
		"unseen":                  {result.ConfigErrors{Steps: steps, TestRun: true}, false, true},
		"recorded, no steps":      {result.ConfigErrors{}, false, false},
		"recorded, no rows":       {result.ConfigErrors{Steps: &result.Errors{Bias: num(1)}}, false, false},
		"unseen, no steps":        {result.ConfigErrors{TestRun: true}, false, false},
		"unseen, no rows":         {result.ConfigErrors{TestRun: true, Steps: &result.Errors{Bias: num(1)}}, false, false},
		"seen test run, no steps": {result.ConfigErrors{TestRun: true, Seen: true}, false, false},
	} {
		found := 0
		for _, g := range table {
			want, isBias := map[string]bool{Bias: c.bias, "bias_loco": c.biasLoco}[g.Name]
			if !isBias {
				continue
			}
			found++
			r, ok := g.ofConfig(&c.config, nil)
			if ok != want || ok && (math.Abs(*r.value-0.02) > 1e-12 || r.interval != steps.BiasInterval || r.size != 30 || !r.estimate || !r.rows) {
				t.Errorf("%s: got %+v, %v for %s", name, r, ok, g.Name)
			}
		}
		if found != 2 {
			t.Fatalf("%d gates of a bias, want 2", found)
		}
	}
}
