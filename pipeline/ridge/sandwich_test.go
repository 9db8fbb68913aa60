package ridge

import (
	"math"
	"testing"
)

// TestPosteriorOfOneTerm compares the interval of a fit with one term, whose rows all have the same
// feature, with the textbook computation: all weights are equal and cancel.
func TestPosteriorOfOneTerm(t *testing.T) {
	const x, beta, lambda, precision = 2.0, 50.0, 0.01, 0.0004
	d := &Data{P: 1}
	var sumX, sumY float64 // of squares
	scores := make([]float64, 8)
	for i := range 32 {
		y := 100 * (1 + 0.05*math.Sin(float64(3*(i/4)+1)) + 0.02*math.Cos(float64(i)))
		d.X = append(d.X, x)
		d.Y = append(d.Y, y)
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
		sumX += x * x
		sumY += y * y
		scores[i/4] += x * (y - x*beta)
	}
	o := DefaultOptions(1)
	o.Prior = []float64{45}
	o.Precision = []float64{precision}
	if blocks := rowBlocks(d, predictionWeights(d, []float64{beta}, o), []float64{beta}, o); len(blocks) != len(scores) {
		t.Fatalf("got %d blocks, want %d of four rows", len(blocks), len(scores))
	}
	mean, variance := 0.0, 0.0
	for _, s := range scores {
		mean += s / sumY / 8
	}
	for _, s := range scores {
		variance += 8.0 / 7 * (s/sumY - mean) * (s/sumY - mean)
	}
	a := sumX/sumY + lambda*precision
	ofRows := variance / (a * a)
	all := ofRows + lambda*lambda*precision/(a*a)
	freedom := 7 * (all / ofRows) * (all / ofRows)
	half := studentQuantile(freedom) * math.Sqrt(all)

	got := d.Posterior(Fit{Beta: []float64{beta}, Lambda: lambda}, o)
	term := got.Terms[0]
	Near(t, "interval and covariance", []float64{term.Lo, term.Hi, got.Covariance[0]}, []float64{beta - half, beta + half, all}, 1e-9)
	if !got.Posterior || term.Method != fromPosterior || !math.IsNaN(got.JackSE[0]) {
		t.Errorf("got posterior %v, method %q, jackknife %g", got.Posterior, term.Method, got.JackSE[0])
	}

	wide := o
	wide.Precision = []float64{1e-9}
	for i := range d.Y {
		d.Y[i] = 100
		if i/4%2 > 0 {
			d.Y[i] = 1
		}
	}
	if cut := d.Posterior(Fit{Beta: []float64{5}, Lambda: lambda}, wide); cut.Terms[0].Lo != 0 {
		t.Errorf("a term with a sign has the interval from %g, want 0", cut.Terms[0].Lo)
	}
	o.Precision = nil
	if none := d.Posterior(Fit{Beta: []float64{beta}, Lambda: lambda}, o); !math.IsInf(none.Terms[0].Hi, 1) && !math.IsNaN(none.Terms[0].Hi) {
		t.Errorf("without a precision the interval ends at %g, want none", none.Terms[0].Hi)
	}
}

// TestSandwich: inv*middle*inv by hand, also in place.
func TestSandwich(t *testing.T) {
	inv := []float64{2, 1, 1, 3}
	middle := []float64{5, -1, -1, 4}
	// inv*middle = (9 2; 2 11), times inv = (20 15; 15 35).
	want := []float64{20, 15, 15, 35}
	out := make([]float64, 4)
	sandwich(inv, middle, 2, out)
	Near(t, "sandwich", out, want, 1e-12)
	sandwich(inv, middle, 2, middle)
	Near(t, "sandwich in place", middle, want, 1e-12)
}

// TestScoreVariance: blocks of each run vary about the run's own mean; a run of one block, and the
// difference between runs, add nothing.
func TestScoreVariance(t *testing.T) {
	block := func(config, run int32, b0, b1 float64) BlockGram {
		g := New(2)
		copy(g.G, []float64{1, 2, 2, 5})
		copy(g.B, []float64{b0, b1})
		return BlockGram{Config: config, Run: run, Gram: g}
	}
	beta := []float64{3, -1} // G*beta is (1, 1)
	blocks := []BlockGram{
		block(0, 0, 11, 1), block(0, 0, 1, 21), block(0, 0, -9, 11), // scores (1, 0), (0, 2), (-1, 1) at Q = 10
		block(0, 1, 900, -900),                    // alone
		block(1, 1, 101, 1), block(1, 1, 121, 41), // (10, 0), (12, 4)
	}
	// Run 0: 3/2 * sums about (0, 1): 2, -1, 2. The last: 2/1 * sums about (11, 2): 2, 4, 8.
	want := []float64{1.5*2 + 2*2, 1.5*-1 + 2*4, 1.5*-1 + 2*4, 1.5*2 + 2*8}
	Near(t, "score variance", scoreVariance(blocks, 10, beta), want, 1e-12)
}

// TestStudentQuantile: the published 97.5 % quantiles, and the normal one for many and for unknown
// degrees of freedom.
func TestStudentQuantile(t *testing.T) {
	for freedom, want := range map[float64]float64{1: 12.7062047, 2: 4.3026527, 10: 2.2281389, 30: 2.0422725, 1e6: 1.9599663,
		1e9: 1.9599663, math.Inf(1): 1.9599663} {
		Near(t, "quantile", []float64{studentQuantile(freedom)}, []float64{want}, 1e-6)
	}
	Near(t, "unknown freedom", []float64{studentQuantile(math.NaN())}, []float64{1.9599663}, 1e-6)
}

// TestPosteriorInverse: the inverse of G/Q + lambda*P by hand, and none where that is singular.
func TestPosteriorInverse(t *testing.T) {
	g := New(2)
	copy(g.G, []float64{8, 4, 4, 20})
	g.Q = 4
	// G/Q is (2 1; 1 5); with 0.5*(2 0; 0 4) it is (3 1; 1 7), of determinant 20.
	got := posteriorInverse(g, 0.5, []float64{2, 0, 0, 4})
	Near(t, "inverse", got, []float64{7.0 / 20, -1.0 / 20, -1.0 / 20, 3.0 / 20}, 1e-12)
	copy(g.G, []float64{4, 4, 4, 4})
	if got := posteriorInverse(g, 0, []float64{2, 0, 0, 4}); got != nil {
		t.Errorf("a singular matrix has the inverse %v", got)
	}
}
