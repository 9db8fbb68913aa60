package ridge_test

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// TestFrozenIsTheNormalEquations: X'W(y - X beta) = lambda beta.
func TestFrozenIsTheNormalEquations(t *testing.T) {
	s := ridge.ThreeConfigs(1)
	s.D.Factor = make([]float64, s.D.Len())
	for i := range s.D.Factor {
		s.D.Factor[i] = 1 - .5*float64(i%3/2)
	}
	f, err := s.D.FitFrozen(s.O)
	if err != nil {
		t.Fatal(err)
	}
	left := make([]float64, s.D.P)
	size := make([]float64, s.D.P)
	for i, y := range s.D.Y {
		r := y - ridge.Dot(s.D.Row(i), f.Beta)
		for j, x := range s.D.Row(i) {
			left[j] += s.D.Factor[i] * x * r
			size[j] += s.D.Factor[i] * math.Abs(x*y)
		}
	}
	for j := range left {
		if math.Abs(left[j]-f.Lambda*f.Beta[j]) > 1e-9*size[j] {
			t.Errorf("term %d: X'W(y - X beta) = %g, want lambda beta = %g", j+1, left[j], f.Lambda*f.Beta[j])
		}
	}
}

func TestPlantedCoefficientsRecovered(t *testing.T) {
	s := ridge.Plant(2, ridge.Shape{Configs: 4, Rows: 400, Noise: 0})
	fit, err := ridge.FitRows(s.D, ridge.Weights(s.D, s.O), nil, 1e-12, s.O)
	if err != nil {
		t.Fatal(err)
	}
	ridge.Near(t, "beta", fit.Beta, s.Beta, 1e-6)
}

// TestNormFallsAsLambdaGrows on the penalised norm sum d gamma^2.
func TestNormFallsAsLambdaGrows(t *testing.T) {
	s := ridge.ThreeConfigs(4)
	g := ridge.OfRows(s.D, ridge.Weights(s.D, s.O), nil, 1)
	last := math.Inf(1)
	for _, lambda := range ridge.DefaultLambdas() {
		fit, err := ridge.Solve(g, lambda, s.O)
		if err != nil {
			t.Fatal(err)
		}
		var norm float64
		for j, v := range fit.Gamma {
			norm += s.O.Penalty[j] * v * v
		}
		if norm > last {
			t.Errorf("lambda %g: norm %g, want at most %g", lambda, norm, last)
		}
		last = norm
	}
}

// TestScaledAndRawPredictionsAgree: sum gamma_j ybar x_j/s_j = x.beta to 1e-12.
func TestScaledAndRawPredictionsAgree(t *testing.T) {
	s := ridge.ThreeConfigs(5)
	fit, err := ridge.FitRows(s.D, ridge.Weights(s.D, s.O), nil, 1e-4, s.O)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.D.Len() {
		var sum float64
		for j, x := range s.D.Row(i) {
			if fit.Scale[j] > 0 {
				sum += fit.Gamma[j] * fit.YBar * x / fit.Scale[j]
			}
		}
		ridge.Near(t, "prediction", []float64{sum}, []float64{ridge.Dot(s.D.Row(i), fit.Beta)}, 1e-12)
	}
}

// TestBalancesCells: equal sums of w*y^2 over the regimes of a configuration
// and over configurations; a regime of 12 rows counts with the largest.
func TestBalancesCells(t *testing.T) {
	d := &ridge.Data{P: 1}
	add := func(config, regime int32, rows int) {
		for k := range rows {
			d.X = append(d.X, 1)
			d.Y = append(d.Y, float64(100*(1+int(config))+k))
			d.Config = append(d.Config, config)
			d.Regime = append(d.Regime, regime)
		}
	}
	add(0, 0, 50)
	add(0, 1, 20)
	add(1, 0, 30)
	add(1, 1, 80)
	add(1, 2, 12)
	o := ridge.DefaultOptions(1)
	w := ridge.Weights(d, o)
	sums := map[[2]int32]float64{}
	for i, v := range w {
		sums[[2]int32{d.Config[i], d.Regime[i]}] += v * d.Y[i] * d.Y[i]
	}
	got := []float64{sums[[2]int32{0, 0}], sums[[2]int32{0, 1}], sums[[2]int32{1, 0}], sums[[2]int32{1, 1}] + sums[[2]int32{1, 2}]}
	ridge.Near(t, "sum of w*y^2", got, []float64{.25, .25, .25, .25}, 1e-12)
	plain := d.Unbalanced(o)
	ridge.Near(t, "one factor for a joined cell", []float64{w[len(w)-1] / plain[len(w)-1]}, []float64{w[110] / plain[110]}, 1e-12)
}

// TestDoubledRowIsWeightTwo: a row given twice and the same row with factor 2
// weigh the same, so every fit agrees.
func TestDoubledRowIsWeightTwo(t *testing.T) {
	s := ridge.ThreeConfigs(7)
	rows := s.D.AllRows()
	double := s.D.Subset(append(slices.Clone(rows), rows[:100]...))
	heavy := s.D.Subset(rows)
	heavy.Factor = make([]float64, heavy.Len())
	for i := range heavy.Factor {
		heavy.Factor[i] = 1
		if i < 100 {
			heavy.Factor[i] = 2
		}
	}
	a, err := ridge.FitRows(double, ridge.Weights(double, s.O), nil, 1e-3, s.O)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ridge.FitRows(heavy, ridge.Weights(heavy, s.O), nil, 1e-3, s.O)
	if err != nil {
		t.Fatal(err)
	}
	ridge.Near(t, "beta", a.Beta, b.Beta, 1e-10)
}
