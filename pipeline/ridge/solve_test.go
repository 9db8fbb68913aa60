package ridge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/stat"
)

func small(seed uint64) planted {
	return plant(seed, plantOptions{configs: 3, rows: 300, noise: .05, memory: .5})
}

// TestV1FrozenIsTheNormalEquations: X'W(y - X beta) = lambda beta.
func TestV1FrozenIsTheNormalEquations(t *testing.T) {
	s := small(1)
	s.d.Factor = make([]float64, s.d.Len())
	for i := range s.d.Factor {
		s.d.Factor[i] = 1 - .5*float64(i%3/2)
	}
	f, err := Frozen(s.d, s.o)
	if err != nil {
		t.Fatal(err)
	}
	left, size := make([]float64, s.d.P), make([]float64, s.d.P)
	for i, y := range s.d.Y {
		r := y - Dot(s.d.Row(i), f.Beta)
		for j, x := range s.d.Row(i) {
			left[j] += s.d.Factor[i] * x * r
			size[j] += s.d.Factor[i] * math.Abs(x*y)
		}
	}
	for j := range left {
		if math.Abs(left[j]-f.Lambda*f.Beta[j]) > 1e-9*size[j] {
			t.Errorf("term %d: X'W(y - X beta) = %g, want lambda beta = %g", j+1, left[j], f.Lambda*f.Beta[j])
		}
	}
}

func TestV4PlantedCoefficientsRecovered(t *testing.T) {
	s := plant(2, plantOptions{configs: 4, rows: 400, noise: 0})
	fit, err := FitRows(s.d, Weights(s.d, s.o), nil, 1e-12, s.o)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "beta", fit.Beta, s.beta, 1e-6)
}

// TestV5MatchesExhaustiveSearch compares with the best of all active sets.
func TestV5MatchesExhaustiveSearch(t *testing.T) {
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
	return GramOf(d, w, nil, 1)
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
			allowed = allowed && (v >= 0 || o.free(j))
		}
		if allowed {
			best = math.Min(best, s.objective(lambda))
		}
	}
	return best
}

// TestV4NormFallsAsLambdaGrows on the penalised norm sum d gamma^2.
func TestV4NormFallsAsLambdaGrows(t *testing.T) {
	s := small(4)
	g := GramOf(s.d, Weights(s.d, s.o), nil, 1)
	last := math.Inf(1)
	for _, lambda := range DefaultLambdas() {
		fit, err := Solve(g, lambda, s.o)
		if err != nil {
			t.Fatal(err)
		}
		var norm float64
		for j, v := range fit.Gamma {
			norm += s.o.Penalty[j] * v * v
		}
		if norm > last {
			t.Errorf("lambda %g: norm %g, want at most %g", lambda, norm, last)
		}
		last = norm
	}
}

// TestV3ScaledAndRawPredictionsAgree: sum gamma_j ybar x_j/s_j = x.beta to 1e-12.
func TestV3ScaledAndRawPredictionsAgree(t *testing.T) {
	s := small(5)
	fit, err := FitRows(s.d, Weights(s.d, s.o), nil, 1e-4, s.o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.d.Len() {
		var sum float64
		for j, x := range s.d.Row(i) {
			if fit.Scale[j] > 0 {
				sum += fit.Gamma[j] * fit.YBar * x / fit.Scale[j]
			}
		}
		near(t, "prediction", []float64{sum}, []float64{Dot(s.d.Row(i), fit.Beta)}, 1e-12)
	}
}

func TestEigenFallbackSolvesASingularMatrix(t *testing.T) {
	o := DefaultOptions(3)
	s := newSolver(3, &o)
	d := &Data{P: 3, X: []float64{1, 1, 0, 2, 2, 1, 3, 3, 0}, Y: []float64{2, 5, 6}}
	s.load(GramOf(d, []float64{1, 1, 1}, nil, 1), 0)
	s.cold()
	s.solvePassive(0) // no penalty: columns 1 and 2 are equal
	beta := make([]float64, 3)
	s.beta(beta)
	near(t, "predictions", Predict(d, beta), d.Y, 1e-9)
	near(t, "smallest solution", beta[:1], beta[1:2], 1e-9)
	a := []float64{1, 0, 2, 1}
	if stat.Cholesky(a, 2) == 2 {
		t.Error("cholesky accepted a matrix with a negative eigenvalue")
	}
}

// TestV2BalancesCells: equal sums of w*y^2 over the regimes of a configuration
// and over configurations; a regime of 12 rows counts with the largest.
func TestV2BalancesCells(t *testing.T) {
	d := &Data{P: 1}
	add := func(config, regime int32, rows int) {
		for k := range rows {
			d.X, d.Y = append(d.X, 1), append(d.Y, float64(100*(1+int(config))+k))
			d.Config, d.Regime = append(d.Config, config), append(d.Regime, regime)
		}
	}
	add(0, 0, 50)
	add(0, 1, 20)
	add(1, 0, 30)
	add(1, 1, 80)
	add(1, 2, 12)
	o := DefaultOptions(1)
	w := Weights(d, o)
	sums := map[[2]int32]float64{}
	for i, v := range w {
		sums[[2]int32{d.Config[i], d.Regime[i]}] += v * d.Y[i] * d.Y[i]
	}
	got := []float64{sums[[2]int32{0, 0}], sums[[2]int32{0, 1}], sums[[2]int32{1, 0}], sums[[2]int32{1, 1}] + sums[[2]int32{1, 2}]}
	near(t, "sum of w*y^2", got, []float64{.25, .25, .25, .25}, 1e-12)
	plain := Unbalanced(d, o)
	near(t, "one factor for a joined cell", []float64{w[len(w)-1] / plain[len(w)-1]}, []float64{w[110] / plain[110]}, 1e-12)
}

// TestDoubledRowIsWeightTwo: a row given twice and the same row with factor 2
// weigh the same, so every fit agrees.
func TestDoubledRowIsWeightTwo(t *testing.T) {
	s := small(7)
	rows := allRows(s.d.Len())
	double := s.d.Subset(append(slices.Clone(rows), rows[:100]...))
	heavy := s.d.Subset(rows)
	heavy.Factor = make([]float64, heavy.Len())
	for i := range heavy.Factor {
		heavy.Factor[i] = 1
		if i < 100 {
			heavy.Factor[i] = 2
		}
	}
	a, err := FitRows(double, Weights(double, s.o), nil, 1e-3, s.o)
	if err != nil {
		t.Fatal(err)
	}
	b, err := FitRows(heavy, Weights(heavy, s.o), nil, 1e-3, s.o)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "beta", a.Beta, b.Beta, 1e-10)
}
