package autoscale

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim/workload"
)

// simulatedSweep is the windows of one simulated sweep: shapes by shares of capacity, requests a point.
func simulatedSweep(t *testing.T, p params, law workload.Law, shapes []shape, requests int, seed uint64) []window {
	t.Helper()
	limits := Limits{MaxBatch: 64, Queue: 640}
	var out []window
	for i, s := range shapes {
		m, err := New(inferno3P, p, s, limits)
		if err != nil {
			t.Fatal(err)
		}
		for k, load := range []float64{0.15, 0.35, 0.5, 0.65, 0.8} {
			traffic := workload.Traffic{Shape: s, Prompts: workload.ConstantLaw, Output: law, RateRPS: load * m.MaxRateRPS(), Requests: requests,
				Seed: seed*100 + uint64(5*i+k)}
			at, _, err := simulate(p, limits, traffic, nil)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, window{Name: "sweep", Requests: requests, RateRPS: traffic.RateRPS, Limits: limits, Shape: s, TTFTMs: at.TTFTMs,
				ITLMs: at.ITLMs})
		}
	}
	return out
}

// Intervals of sweeps hold the truth: of 40 simulated sweeps, with constant and with
// exponential outputs, each parameter lies inside in 36 at least.
func TestEvalSweepIntervals(t *testing.T) {
	repo.NeedEval(t)
	coverage(t, 20, 2000, 36)
}

// The same of two sweeps: the machinery, and that a jackknife is the wider one.
func TestSweepIntervals(t *testing.T) { coverage(t, 1, 500, 0) }

func coverage(t *testing.T, sweeps, requests, least int) {
	truth := params{AlphaMs: 10, BetaMs: 0.03, GammaMs: 4e-5}
	shapes := []shape{{Prompt: 256, Output: 128}, {Prompt: 512, Output: 256}, {Prompt: 1024, Output: 128}, {Prompt: 2048, Output: 64}}
	inside, jack := make([]int, 3), 0
	half := make([][]float64, 3)
	opt := defaultFit(inferno3P)
	for _, law := range []workload.Law{workload.ConstantLaw, workload.ExponentialLaw} {
		for k := range sweeps {
			w := simulatedSweep(t, truth, law, shapes, requests, uint64(k+1))
			all, err := Fit(w, opt)
			if err != nil {
				t.Fatal(err)
			}
			list := (&Server{}).effective(inferno3P, all)
			widen(list, w, all, opt)
			for j, want := range []float64{truth.AlphaMs, truth.BetaMs, truth.GammaMs} {
				q := &list[j]
				if q.CI95[0] <= want && want <= q.CI95[1] {
					inside[j]++
				}
				if q.CI95Method == byJackknife {
					jack++
				}
				half[j] = append(half[j], math.Sqrt(q.CI95[1]/q.CI95[0])-1)
			}
		}
	}
	n := 2 * sweeps
	for j, name := range inferno3P.Parameters() {
		slices.Sort(half[j])
		t.Logf("%s: inside in %d of %d, median half width %.1f %%", name, inside[j], n, 100*stat.Median(half[j]))
		if inside[j] < least {
			t.Errorf("%s: inside in %d of %d sweeps, want %d", name, inside[j], n, least)
		}
	}
	if jack == 0 {
		t.Error("no interval is the jackknife's")
	}
}
