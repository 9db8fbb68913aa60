package ridge

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// cholesky overwrites the lower triangle of the m x m matrix a with its factor.
// It reports false when a pivot shows the matrix is not positive definite.
func cholesky(a []float64, m int) bool {
	for r := range m {
		row := a[r*m : r*m+m]
		for c := range r + 1 {
			sum := row[c]
			other := a[c*m : c*m+m]
			for k := range c {
				sum -= row[k] * other[k]
			}
			if c < r {
				row[c] = sum / other[c]
				continue
			}
			if !(sum > 1e-15*row[c]) {
				return false
			}
			row[c] = math.Sqrt(sum)
		}
	}
	return true
}

// cholSolve solves L L' x = b in place.
func cholSolve(l []float64, m int, b []float64) {
	for r := range m {
		sum := b[r]
		for c := range r {
			sum -= l[r*m+c] * b[c]
		}
		b[r] = sum / l[r*m+r]
	}
	for r := m - 1; r >= 0; r-- {
		sum := b[r]
		for c := r + 1; c < m; c++ {
			sum -= l[c*m+r] * b[c]
		}
		b[r] = sum / l[r*m+r]
	}
}

// eigen is the spectrum of a symmetric matrix, ascending, with its vectors as
// columns; the sign of each vector makes its largest entry positive.
func eigen(a *mat.SymDense) ([]float64, *mat.Dense) {
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
