package requestfit

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
)

// TestEvalCoverage prints how often 95 % intervals hold the truth, by learned direction
// and together: 200 recordings of 1,000 requests each, no search, their coefficients
// drawn from what the prior believes, of which an interval is a statement.
func TestEvalCoverage(t *testing.T) {
	repo.NeedEval(t)
	const repetitions, requests = 200, 1000
	_, prior, _ := plant(t)
	d := h100(t)
	m, err := newModel(prior, d)
	if err != nil {
		t.Fatal(err)
	}
	q := []sim.Quantile{{Q: 0, Ratio: 0.85}, {Q: 0.5, Ratio: 1}, {Q: 1, Ratio: 1.15}}
	scatter := &sim.Noise{Decode: q, Prefill: q, Mixed: q}
	type one struct {
		held, learned []bool
		together      bool
	}
	results := make([]one, repetitions)
	err = par.Try(context.Background(), 0, repetitions, func(r int) error {
		truth := m.drawn(t, uint64(r))
		load := plantedNoisy(t, d, truth, 5, requests, uint64(1000+r), scatter)
		o := DefaultOptions()
		o.Search, o.Workers = SearchNone, 1
		got, err := Fit(context.Background(), []*Load{load}, prior, o)
		if err != nil {
			return err
		}
		n := len(m.free)
		off := make([]float64, n)
		for k := range off {
			off[k] = m.coefficientOf(got.Set, k).Value - m.coefficientOf(truth, k).Value
		}
		sum, learned := 0.0, 0
		for _, dir := range got.directions {
			z := 0.0
			for k := range n {
				z += dir.vector[k] * ridge.Dot(m.precision[k*n:(k+1)*n], off)
			}
			z /= 1 - dir.LearnedFrac
			results[r].held = append(results[r].held, z*z <= stat.Normal95*stat.Normal95)
			results[r].learned = append(results[r].learned, dir.Learned)
			if dir.Learned {
				sum += z * z
				learned++
			}
		}
		results[r].together = sum <= distuv.ChiSquared{K: float64(learned)}.Quantile(0.95)
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	together := 0
	held, all := make([]int, len(results[0].held)), make([]int, len(results[0].held))
	for _, r := range results {
		if r.together {
			together++
		}
		for k := range r.held {
			if r.learned[k] {
				all[k]++
				if r.held[k] {
					held[k]++
				}
			}
		}
	}
	t.Logf("all learned directions together: %d of %d", together, repetitions)
	if together < repetitions*85/100 {
		t.Errorf("the truth lies in the joint interval in %d of %d, want at least 85 %%", together, repetitions)
	}
	for k := range held {
		if all[k] > 0 {
			t.Logf("direction %d: %d of %d", k, held[k], all[k])
			if all[k] >= 50 && 100*held[k] < 85*all[k] {
				t.Errorf("direction %d: the truth lies in its interval in %d of %d, want at least 85 %%", k, held[k], all[k])
			}
		}
	}
}

// drawn is a truth as the prior believes it, no term below 0.
func (m *model) drawn(t *testing.T, seed uint64) *coeff.Set {
	t.Helper()
	n := len(m.free)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, append([]float64(nil), m.precision...))) {
		t.Fatal("the prior's precision is not positive definite")
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	rng := rand.New(rand.NewPCG(seed, 2))
	z := mat.NewVecDense(n, nil)
	for {
		for k := range n {
			z.SetVec(k, rng.NormFloat64())
		}
		var off mat.VecDense
		if err := off.SolveVec(lower.T(), z); err != nil {
			t.Fatal(err)
		}
		values := make([]float64, n)
		for k := range n {
			values[k] = m.mean[k] + off.AtVec(k)
		}
		if slices.Min(values) >= 0 { // one draw in forty
			return m.setOf(values)
		}
	}
}
