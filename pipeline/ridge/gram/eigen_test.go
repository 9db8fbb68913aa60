package gram_test

import (
	"errors"
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/pipeline/ridge/gram"
)

// TestEigenOfWhatIsNotFinite: sums that overflowed are an error, not a panic.
func TestEigenOfWhatIsNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for at := range 9 {
			a := mat.NewSymDense(3, []float64{2, 1, 0, 1, 2, 1, 0, 1, 2})
			a.SetSym(at/3, at%3, bad)
			if values, _, err := gram.Eigen(a); !errors.Is(err, gram.ErrEigen) {
				t.Errorf("entry %d is %v: got %v and error %v", at, bad, values, err)
			}
		}
	}
	if values, _, err := gram.Eigen(mat.NewSymDense(2, []float64{2, 1, 1, 2})); err != nil || math.Abs(values[0]-1) > 1e-15 {
		t.Errorf("got %v, %v, want 1 and 3", values, err)
	}
}
