package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Histogram quantiles are within half a percent of the exact ones.
func TestHistogramQuantilesAreClose(t *testing.T) {
	q := NewHistogram()
	var v []float64
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50000 {
		x := math.Exp(8 + 2*rng.NormFloat64())
		q.Add(x, 1)
		v = append(v, x)
	}
	slices.Sort(v)
	for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		exact := v[int(math.Ceil(p*float64(len(v))))-1]
		if got := q.Quantile(p); math.Abs(got/exact-1) > 0.005 {
			t.Errorf("p%g: got %g, want %g", p*100, got, exact)
		}
	}
	if q.N() != 50000 || q.max != v[len(v)-1] {
		t.Error("count or maximum")
	}
}
