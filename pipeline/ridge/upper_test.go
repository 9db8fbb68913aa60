package ridge

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestUpperLimits: at the answer of random problems every term is within its limits, terms without
// limits have no gradient, and those at a limit one that points outside.
func TestUpperLimits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	held := 0
	for range 200 {
		const p, n = 7, 60
		d := &Data{P: p, X: make([]float64, n*p), Y: make([]float64, n)}
		for i := range n {
			d.Y[i] = 100
			for j := range p {
				d.X[i*p+j] = rng.Float64() + rng.Float64()*d.X[i*p]
				d.Y[i] += 300 * rng.Float64() * d.X[i*p+j]
			}
		}
		d.Config = make([]int32, n)
		d.Regime = make([]int32, n)
		o := DefaultOptions(p)
		o.Upper = make([]float64, p)
		for j := range o.Upper {
			o.Upper[j] = math.Inf(1)
			if j%2 == 0 {
				o.Upper[j] = 200 * rng.Float64()
			}
		}
		o.Upper[3] = 0 // removed
		for _, lambda := range []float64{1e-6, 1e-2, 1} {
			fit, err := FitRows(d, Weights(d, o), nil, lambda, o)
			if err != nil {
				t.Fatal(err)
			}
			for j, b := range fit.Beta {
				if b < 0 || b > o.Upper[j]*(1+1e-12) {
					t.Errorf("term %d: %v, want 0 to %v", j, b, o.Upper[j])
				}
				if o.Upper[j] > 0 && b >= o.Upper[j]*(1-1e-12) {
					held++
				}
			}
			other := o
			other.Upper = nil
			if free, err := FitRows(d, Weights(d, o), nil, lambda, other); err != nil || free.Objective > fit.Objective+1e-12 {
				t.Errorf("lambda %g: objective %v with limits, %v without, %v", lambda, fit.Objective, free.Objective, err)
			}
		}
	}
	if held < 100 {
		t.Errorf("%d terms at their limits, too few for a test", held)
	}
}

// TestEachBlockIsHeldOut: with EachBlock every block is scored once, by a fit that trains on all cells
// of other blocks outside the embargo.
func TestEachBlockIsHeldOut(t *testing.T) {
	const n = 120
	d := &Data{P: 1, X: make([]float64, n), Y: make([]float64, n), Config: make([]int32, n), Regime: make([]int32, n)}
	for i := range n {
		d.X[i] = 1
		d.Y[i] = 1000 + float64(i)
	}
	o := DefaultOptions(1)
	o.EachBlock = true
	o.EmbargoRows = 3
	o.Lambdas = []float64{1e-6}
	cells, _, err := d.Cut(o)
	if err != nil {
		t.Fatal(err)
	}
	tr := newTrials([]int32{0}, &o, true)
	if len(tr.folds) != o.Folds+1 {
		t.Fatalf("%d folds, want %d", len(tr.folds), o.Folds+1)
	}
	for j, g := range tr.gramTrials(cells[0])[:len(tr.folds)] {
		want := int64(n - 20 - 3)
		if j == 0 {
			want = n - 20 // nothing comes before the first block
		}
		if g.train.N != want || g.test[0].N != 20 {
			t.Errorf("block %d: %d training rows, %d validated, want %d and 20", j, g.train.N, g.test[0].N, want)
		}
	}
}
