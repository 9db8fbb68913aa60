package ridge

import (
	"math"
	"testing"
)

// TestPrecisionIsTheInverseCovariance: the answer is that of the normal
// equations with the prior's precision, a column without data takes its
// conditional mean, and a diagonal precision is the plain penalty.
func TestPrecisionIsTheInverseCovariance(t *testing.T) {
	g := New(3)
	for _, r := range [][4]float64{{1, 2, 0, 8}, {2, 1, 0, 7}, {3, 5, 0, 20}} {
		g.AddRow(1/(r[3]*r[3]), r[:3], r[3])
	}
	o := DefaultOptions(3)
	o.Prior = []float64{1, 2, 3}
	o.Precision = []float64{4, 1, -2, 1, 3, 0.5, -2, 0.5, 5}
	const lambda = 0.01
	fit, err := Solve(g, lambda, o)
	if err != nil {
		t.Fatal(err)
	}
	w, ybar := g.W, math.Sqrt(g.Q/g.W)
	for j := range 3 { // gradient of SSE/(W ybar^2)/2 + lambda/2 d'Pd
		sum := -g.B[j]
		for k := range 3 {
			sum += g.G[j*3+k] * fit.Beta[k]
		}
		sum /= w * ybar * ybar
		for k := range 3 {
			sum += lambda * o.Precision[j*3+k] * (fit.Beta[k] - o.Prior[k])
		}
		if math.Abs(sum) > 1e-9 {
			t.Errorf("term %d: gradient %g at %v", j+1, sum, fit.Beta)
		}
	}
	want := o.Prior[2] - (o.Precision[6]*(fit.Beta[0]-1)+o.Precision[7]*(fit.Beta[1]-2))/o.Precision[8]
	if math.Abs(fit.Beta[2]-want) > 1e-9 {
		t.Errorf("the column without data: got %g, want its conditional mean %g", fit.Beta[2], want)
	}
}
