package requestfit

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"
)

// TestUnlearnedDirectionsAreDefinite: the directions of which nothing was learned are the same however they were
// rotated, and the axes themselves where these lie in the space.
func TestUnlearnedDirectionsAreDefinite(t *testing.T) {
	// The space of the three: axes 0 and 3, and the diagonal of axes 1 and 2. The diagonal that is left is alone.
	half := math.Sqrt(0.5)
	settled := func(angle float64) ([]float64, *mat.Dense) {
		c, s := math.Cos(angle), math.Sin(angle)
		vectors := mat.NewDense(4, 4, []float64{
			0, c, -s, 0,
			-half, half * s, half * c, 0,
			half, half * s, half * c, 0,
			0, 0, 0, 1,
		})
		values := []float64{0.25, 1 - 1e-6, 1, 1 + 3e-16}
		settleUnlearned(values, vectors)
		return values, vectors
	}
	want := mat.NewDense(4, 4, []float64{
		0, 1, 0, 0,
		-half, 0, 0, half,
		half, 0, 0, half,
		0, 0, 1, 0,
	})
	for _, angle := range []float64{0, 0.3, 1, 2.5} {
		values, got := settled(angle)
		if !mat.EqualApprox(got, want, 1e-12) {
			t.Errorf("rotated by %g: got\n%.4g", angle, mat.Formatted(got))
		}
		if values[0] != 0.25 || values[1] != 1 || values[2] != 1 || values[3] != 1 {
			t.Errorf("values: got %g", values)
		}
	}
}

// TestLearnedDirectionsStay: a direction of which a little more was learned keeps its vector.
func TestLearnedDirectionsStay(t *testing.T) {
	vectors := mat.NewDense(2, 2, []float64{0.6, -0.8, 0.8, 0.6})
	values := []float64{0.5, 1 - 1.1e-6}
	settleUnlearned(values, vectors)
	if values[1] != 1-1.1e-6 || vectors.At(0, 0) != 0.6 || vectors.At(0, 1) != -0.8 {
		t.Errorf("got %g, %g", values, vectors.RawMatrix().Data)
	}
}
