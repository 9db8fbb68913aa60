package stat

import (
	"math"
	"slices"
)

// pivotTol is the pivot, relative to its diagonal entry, from which on a column
// counts as a combination of those before it.
const pivotTol = 1e-15

// Cholesky overwrites the lower triangle of the symmetric m x m matrix a
// (row-major) with its factor and reports the number of positive pivots: m when a
// is positive definite. A pivot that is not leaves its column 0, so that the
// factor of a semidefinite matrix still reproduces it. LAPACK's has no such
// tolerance and stops at the first pivot, and gonum's kernels add in another
// order on every architecture.
func Cholesky(a []float64, m int) (rank int) {
	for r := range m {
		row := a[r*m : r*m+m]
		for c := range r + 1 {
			sum := row[c]
			other := a[c*m : c*m+m]
			for k := range c {
				sum -= float64(row[k] * other[k])
			}
			switch {
			case c < r && other[c] > 0:
				row[c] = sum / other[c]
			case c == r && sum > pivotTol*row[c]:
				row[c] = math.Sqrt(sum)
				rank++
			default:
				row[c] = 0
			}
		}
	}
	return rank
}

// CholeskySolve solves L L' x = b in place, L the factor of a positive definite
// matrix.
func CholeskySolve(l []float64, m int, b []float64) {
	for r := range m {
		sum := b[r]
		for c := range r {
			sum -= float64(l[r*m+c] * b[c])
		}
		b[r] = sum / l[r*m+r]
	}
	for r := m - 1; r >= 0; r-- {
		sum := b[r]
		for c := r + 1; c < m; c++ {
			sum -= float64(l[c*m+r] * b[c])
		}
		b[r] = sum / l[r*m+r]
	}
}

// CholeskyInverse is the inverse of a positive definite matrix, m x m, from its factor.
func CholeskyInverse(l []float64, m int) []float64 {
	out, col := make([]float64, m*m), make([]float64, m)
	for c := range m {
		clear(col)
		col[c] = 1
		CholeskySolve(l, m, col)
		for r, v := range col {
			out[r*m+c] = v
		}
	}
	return out
}

// Inverse is the inverse of a symmetric positive definite matrix, m x m; nil for another.
func Inverse(a []float64, m int) []float64 {
	l := slices.Clone(a)
	if Cholesky(l, m) < m {
		return nil
	}
	return CholeskyInverse(l, m)
}
