package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// priorFit is a fit of a run with the library's prior, its step times made by truth where that is given:
// times 3 % off, a tenth of that in common over blocks of 20 rows.
func priorFit(t *testing.T, src Source, seed uint64, truth func(l *libraryPrior, rng *rand.Rand) []float64) ([]float64, *result.Model) {
	t.Helper()
	o := stepsOnly()
	o.Spec, o.Prior = features.V12, PriorLibrary
	f, err := newFitter(t.Context(), []Source{src}, o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var beta []float64
	if truth != nil {
		if _, _, err := f.selectBeta(); err != nil {
			t.Fatal(err)
		}
		rng, table := rand.New(rand.NewPCG(seed, 11)), f.used[0].Beta
		for beta == nil || slices.ContainsFunc(table.Y, func(y float64) bool { return !(y > 50) }) {
			beta = truth(f.prior, rng)
			common := 0.0
			for i := range table.Y {
				if i%20 == 0 {
					common = 0.01 * rng.NormFloat64()
				}
				table.Y[i] = ridge.Dot(table.Row(i), beta) * stat.Exp(common+0.03*rng.NormFloat64())
			}
		}
	}
	s, m, err := f.selectBeta()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SolveAt(m, f.gamma, false); err != nil {
		t.Fatal(err)
	}
	out, err := f.betaModel(s, m)
	if err != nil {
		t.Fatal(err)
	}
	return beta, out
}

// drawn is a truth of the prior without negative terms.
func drawn(l *libraryPrior, rng *rand.Rand) []float64 {
	p := len(l.mean)
	root, beta := slices.Clone(l.cov), slices.Clone(l.mean)
	stat.Cholesky(root, p)
	for r := range p {
		z := rng.NormFloat64()
		for j := r; j < p; j++ {
			beta[j] += z * root[j*p+r]
		}
	}
	for j := range beta {
		beta[j] = math.Max(0, beta[j])
	}
	return beta
}

// Intervals with the library's prior: where the truth is drawn from it nothing is flagged; where it lies
// off it the terms are covered or the finding says so (spec#prior-contradicted). 40 fits a case.
func TestEvalPriorIntervals(t *testing.T) {
	repo.NeedEval(t)
	const fits = 40
	demo := SourcesOf(t, filepath.Join(repo.Root(t), "testdata", "traces", "demo"))
	_, other := priorFit(t, demo[0], 0, nil)
	posterior := coeff.Values(setOf(other).Beta)
	fmt.Println("library prior: fits flagged | terms covered in the others | fits with under 90 % of their terms covered, of those flagged")
	for _, c := range []struct {
		name  string
		src   Source
		truth func(*libraryPrior, *rand.Rand) []float64
	}{
		{"drawn from the prior", demo[0], drawn}, {"drawn from the prior, other run", demo[1], drawn},
		{"1.25 times the prior", demo[0], scaledPrior}, {"1.25 times the prior, other run", demo[1], scaledPrior},
		{"another run's posterior", demo[1], func(*libraryPrior, *rand.Rand) []float64 { return posterior }},
	} {
		flagged, covered, terms, below, caught := 0, 0, 0, 0, 0
		for seed := range uint64(fits) {
			truth, m := priorFit(t, c.src, seed, c.truth)
			flag := Has(m.Warnings, Implausible, offPrior) || Has(m.Warnings, Implausible, "what the prior")
			in, of := 0, 0
			for j, k := range m.Coefficients {
				if k.CI95 != nil && k.Range[1] > 0 {
					of++
					if k.CI95[0] <= truth[j] && truth[j] <= k.CI95[1] {
						in++
					}
				}
			}
			if float64(in) < 0.9*float64(of) {
				below++
				if flag {
					caught++
				}
			}
			if flag {
				flagged++
			} else {
				covered, terms = covered+in, terms+of
			}
		}
		fmt.Printf("  %-32s %2d of %d | %d of %d | %d, %d\n", c.name, flagged, fits, covered, terms, below, caught)
		if slices.Contains([]string{"drawn from the prior", "drawn from the prior, other run"}, c.name) {
			if flagged > fits/20 {
				t.Errorf("%s: %d of %d flagged, want at most 5 %%", c.name, flagged, fits)
			}
		} else if 10*caught < 8*below {
			t.Errorf("%s: %d of %d fits with low coverage flagged, want 80 %%", c.name, caught, below)
		}
		if 10*covered < 9*terms {
			t.Errorf("%s: %d of %d terms covered, want 90 %%", c.name, covered, terms)
		}
	}
}

func scaledPrior(l *libraryPrior, _ *rand.Rand) []float64 {
	out := slices.Clone(l.mean)
	for j := range out {
		out[j] *= 1.25
	}
	return out
}
