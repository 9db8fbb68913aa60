package export

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// planted is BLIS's own model with known coefficients.
type planted struct {
	b    *features.TrainedPhysics
	beta []float64
}

func (p planted) StepUs(batch []trace.Chunk) (float64, error) {
	s := features.BasisSum(batch)
	return p.b.StepUs(&s, p.beta, make([]float64, len(features.TrainedPhysicsBeta()))), nil
}

func target(t *testing.T, tp int64, beta []float64) Target {
	t.Helper()
	d := testkit.DeploymentOf(tp)
	b, err := features.NewTrainedPhysics(&d)
	if err != nil {
		t.Fatal(err)
	}
	return Target{Deployment: &d, Model: planted{b, beta}, Region: Region{Prompt: 400, Output: 120, Seats: 64, Budget: 2048}}
}

// TestProjectionOfItself: a model that has BLIS's terms is held to its last digits on batches that
// were not fitted, and each deployment says which terms it never has.
func TestProjectionOfItself(t *testing.T) {
	beta := []float64{1.4, 0.9, 1.2, 0.75, 30, 4.4, 126, 0, 0.6, 1.9, 0}
	for _, tp := range []int64{1, 2} {
		got, err := OnBLIS(target(t, tp, beta))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got[0].Errors {
			if !(e.MAPE < 1e-4) || e.Steps < 20 {
				t.Errorf("tp %d, %q: %d steps, mean error %g, want at most 1e-4", tp, e.Kind, e.Steps, e.MAPE)
			}
		}
		want := []bool{true, true, true, tp > 1, true, true, true, false, true, true, false}
		if !slices.Equal(got[0].Used, want) {
			t.Errorf("tp %d: used %v, want %v", tp, got[0].Used, want)
		}
	}
}

// TestProjectionIsOfOneDeployment: where two deployments need different coefficients a joint set
// misses both, and their own do not.
func TestProjectionIsOfOneDeployment(t *testing.T) {
	slow := []float64{1.4, 0.9, 2.4, 0.75, 60, 4.4, 126, 0, 0.6, 3.8, 0}
	fast := []float64{1.4, 0.9, 1.2, 0.75, 30, 4.4, 126, 0, 0.6, 1.9, 0}
	a, b := target(t, 1, slow), target(t, 2, fast)
	joint, err := OnBLIS(a, b)
	if err != nil {
		t.Fatal(err)
	}
	for i, one := range []Target{a, b} {
		own, err := OnBLIS(one)
		if err != nil {
			t.Fatal(err)
		}
		if own[0].Errors[0].MAPE > 1e-4 || joint[i].Errors[0].MAPE < 0.02 {
			t.Errorf("target %d: own error %g, joint %g", i, own[0].Errors[0].MAPE, joint[i].Errors[0].MAPE)
		}
	}
}

// TestDraws: batches respect seats and token budget, and are of their kind.
func TestDraws(t *testing.T) {
	r := Region{Prompt: 3000, Output: 200, Seats: 100, Budget: 2048}
	largest := 0
	for kind, batches := range Draws(r) {
		for _, batch := range batches {
			var tokens int64
			decodes := 0
			for _, c := range batch {
				tokens += c.New
				if c.IsDecode() {
					decodes++
				}
				if c.New < 1 || c.Computed < 0 || c.Computed < c.Prompt && c.Computed+c.New > c.Prompt {
					t.Fatalf("%s: chunk %+v", kind, c)
				}
			}
			if tokens > r.Budget || len(batch) == 0 || kind == decode && decodes < len(batch) || kind == prefill && decodes > 0 {
				t.Fatalf("%s: %d tokens in %d chunks, %d decodes", kind, tokens, len(batch), decodes)
			}
			largest = max(largest, len(batch))
		}
	}
	if largest < 100 || largest > 101 {
		t.Errorf("largest batch %d, want all 100 seats", largest)
	}
}

type constant float64

func (c constant) StepUs([]trace.Chunk) (float64, error) { return float64(c), nil }

func TestRefusals(t *testing.T) {
	good := target(t, 1, make([]float64, 11))
	for name, edit := range map[string]func(*Target){
		"no lengths": func(g *Target) { g.Region.Prompt = 0 }, "not a number": func(g *Target) { g.Region.Output = math.NaN() },
		"no seats": func(g *Target) { g.Region.Seats = 0 }, "no time": func(g *Target) { g.Model = constant(0) },
		"no heads": func(g *Target) { d := deploy.Deployment{}; g.Deployment = &d },
	} {
		bad := good
		edit(&bad)
		_, err := OnBLIS(bad)
		if trace.CodeOf(err) == "" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
