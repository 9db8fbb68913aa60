package gram

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Eigen is the spectrum of a symmetric matrix, ascending, with its vectors as
// columns; the sign of each vector makes its largest entry positive.
func Eigen(a *mat.SymDense) ([]float64, *mat.Dense) {
	m := a.SymmetricDim()
	var e mat.EigenSym
	if !e.Factorize(a, true) {
		panic("ridge: symmetric eigenvalues did not converge")
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
	return e.Values(nil), &v
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
