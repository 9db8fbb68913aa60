package ridge_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// TestEigenOfWhatIsNotFinite: sums that overflowed are an error, not a panic.
func TestEigenOfWhatIsNotFinite(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		for at := range 9 {
			a := mat.NewSymDense(3, []float64{2, 1, 0, 1, 2, 1, 0, 1, 2})
			a.SetSym(at/3, at%3, bad)
			if values, _, err := ridge.Eigen(a); !errors.Is(err, ridge.ErrEigen) {
				t.Errorf("entry %d is %v: got %v and error %v", at, bad, values, err)
			}
		}
	}
	if values, _, err := ridge.Eigen(mat.NewSymDense(2, []float64{2, 1, 1, 2})); err != nil || math.Abs(values[0]-1) > 1e-15 {
		t.Errorf("got %v, %v, want 1 and 3", values, err)
	}
}

// Values and vectors are those of LAPACK, of matrices with full rank and without, and the
// vectors turn the matrix back.
func TestEigenAsLAPACK(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for m := 1; m <= 30; m++ {
		for _, rank := range []int{m, (m + 1) / 2} {
			a := mat.NewSymDense(m, nil)
			for range rank {
				x := mat.NewVecDense(m, nil)
				for j := range m {
					x.SetVec(j, rng.NormFloat64()*math.Pow(10, float64(j%7)))
				}
				a.SymRankOne(a, 1, x)
			}
			values, vectors, err := ridge.Eigen(a)
			if err != nil {
				t.Fatal(err)
			}
			var want mat.EigenSym
			want.Factorize(a, false)
			top := values[m-1]
			for k, v := range want.Values(nil) {
				if math.Abs(values[k]-v) > 1e-14*top {
					t.Errorf("%d x %d, rank %d: eigenvalue %d is %g, LAPACK says %g", m, m, rank, k, values[k], v)
				}
			}
			var left, unit mat.Dense
			left.Mul(a, vectors)
			unit.Mul(vectors.T(), vectors)
			for r := range m {
				for k := range m {
					if off := math.Abs(left.At(r, k) - values[k]*vectors.At(r, k)); off > 1e-13*top {
						t.Errorf("%d x %d, rank %d: A*v is %g beside lambda*v", m, m, rank, off)
					}
					if one := unit.At(r, k); math.Abs(one-float64(min(1, max(0, 1-(r-k)*(r-k))))) > 1e-13 {
						t.Errorf("%d x %d, rank %d: vectors %d and %d have product %g", m, m, rank, r, k, one)
					}
				}
			}
		}
	}
}
