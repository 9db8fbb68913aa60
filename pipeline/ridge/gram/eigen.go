package gram

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// ErrEigen says that the eigenvalues of a matrix were not found: an entry of it is
// not finite, or the iteration did not end.
var ErrEigen = errors.New("the eigenvalues of a matrix of sums did not converge")

// Eigen is the spectrum of a symmetric matrix, ascending, with its vectors as
// columns; the sign of each vector makes its largest entry positive. Errors: ErrEigen.
func Eigen(a *mat.SymDense) ([]float64, *mat.Dense, error) {
	m := a.SymmetricDim()
	var e mat.EigenSym
	if !e.Factorize(a, true) {
		return nil, nil, ErrEigen
	}
	values := e.Values(nil)
	if slices.ContainsFunc(values, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }) {
		return nil, nil, ErrEigen
	}
	var v mat.Dense
	e.VectorsTo(&v)
	for k := range m {
		big := 0
		for r := range m {
			if math.Abs(v.At(r, k)) > math.Abs(v.At(big, k))*(1+1e-9) {
				big = r
			}
		}
		if v.At(big, k) < 0 {
			for r := range m {
				v.Set(r, k, -v.At(r, k))
			}
		}
	}
	return values, &v, nil
}

// Symmetric is a copy of a p x p matrix.
func Symmetric(g []float64, p int) *mat.SymDense {
	return mat.NewSymDense(p, append([]float64(nil), g...))
}

// NullTol is the eigenvalue of the scaled Gram, relative to the largest, under
// which the rows do not tell a direction from zero.
const NullTol = 1e-6

// NonZero are the positions of columns that are not all zero.
func NonZero(scale []float64) []int {
	var idx []int
	for j, s := range scale {
		if s != 0 {
			idx = append(idx, j)
		}
	}
	return idx
}
