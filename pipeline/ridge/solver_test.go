package ridge

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
)

// TestMatchesExhaustiveSearch compares with the best of all active sets.
func TestMatchesExhaustiveSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for trial := range 200 {
		p := 2 + trial%5
		o := DefaultOptions(p)
		o.Free = make([]bool, p)
		o.Free[rng.IntN(p)] = trial%3 == 0
		o.Prior = make([]float64, p)
		g := randomGram(rng, p, 3+rng.IntN(8))
		lambda := math.Pow(10, -6*rng.Float64())
		if trial%2 == 0 {
			o.Prior[0] = rng.NormFloat64()
		}
		fit, err := Solve(g, lambda, o)
		if err != nil {
			t.Fatal(err)
		}
		if want := exhaustive(g, lambda, &o); math.Abs(fit.Objective-want) > 1e-10*math.Abs(want)+1e-14 {
			t.Errorf("trial %d: objective %v, want %v", trial, fit.Objective, want)
		}
	}
}

func randomGram(rng *rand.Rand, p, n int) *Gram {
	d := &Data{P: p}
	w := make([]float64, n)
	common := rng.NormFloat64()
	for i := range n {
		y := 0.0
		for range p {
			x := rng.NormFloat64() + common
			d.X = append(d.X, x)
			y += x * rng.NormFloat64()
		}
		d.Y = append(d.Y, y)
		w[i] = rng.Float64()
	}
	return OfRows(d, w, nil, 1)
}

// exhaustive is the smallest objective over all active sets with allowed signs.
func exhaustive(g *Gram, lambda float64, o *Options) float64 {
	best := math.Inf(1)
	s := newSolver(g.P, o)
	s.load(g, 0)
	for set := range 1 << g.P {
		for j := range g.P {
			s.passive[j] = set>>j&1 == 1
		}
		s.solvePassive(lambda)
		allowed := true
		for j, v := range s.gamma {
			allowed = allowed && (v >= 0 || o.IsFree(j))
		}
		if allowed {
			best = math.Min(best, s.objective(lambda))
		}
	}
	return best
}

func TestEigenFallbackSolvesASingularMatrix(t *testing.T) {
	o := DefaultOptions(3)
	s := newSolver(3, &o)
	d := &Data{P: 3, X: []float64{1, 1, 0, 2, 2, 1, 3, 3, 0}, Y: []float64{2, 5, 6}}
	s.load(OfRows(d, []float64{1, 1, 1}, nil, 1), 0)
	s.cold()
	s.solvePassive(0) // no penalty: columns 1 and 2 are equal
	beta := make([]float64, 3)
	s.beta(beta)
	for i, pred := range Predict(d, beta) {
		if math.Abs(pred-d.Y[i]) > 1e-9*d.Y[i] {
			t.Errorf("prediction %d: got %v, want %v", i, pred, d.Y[i])
		}
	}
	if math.Abs(beta[0]-beta[1]) > 1e-9*beta[1] {
		t.Errorf("smallest solution: got %v and %v", beta[0], beta[1])
	}
	a := []float64{1, 0, 2, 1}
	if stat.Cholesky(a, 2) == 2 {
		t.Error("cholesky accepted a matrix with a negative eigenvalue")
	}
}

func BenchmarkSolve(b *testing.B) {
	plan := Plant(1, Shape{Configs: 3, Rows: 500, Noise: .05, Memory: .5})
	g := OfRows(plan.D, Weights(plan.D, plan.O), nil, 1)
	s := newSolver(g.P, &plan.O)
	b.ReportAllocs()
	for b.Loop() {
		s.load(g, 0)
		s.cold()
		s.solve(1e-4)
	}
}
