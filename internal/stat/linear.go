package stat

// This file solves linear systems with symmetric matrices.

import (
	"math"
	"slices"
)

// pivotTol is the pivot, relative to its diagonal entry, up to which a column
// counts as a combination of those before it.
const pivotTol = 1e-15

// Cholesky overwrites the lower triangle of the symmetric m x m matrix a (row-major) with its
// Cholesky factor and returns the number of positive pivots, which is m for a positive definite
// matrix. A pivot that is not positive leaves its column 0, so that the factor of a semidefinite
// matrix still reproduces it; LAPACK's factorisation stops there. gonum's takes 1.8 to 1.9 times as
// long for the 8 to 16 terms of a fit, and changes covariances of directions that rows do not
// determine by percents.
func Cholesky(a []float64, m int) (rank int) {
	for r := range m {
		row := a[r*m : r*m+m]
		for c := range r + 1 {
			sum := row[c]
			other := a[c*m : c*m+m]
			for k := range c {
				sum -= row[k] * other[k]
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

// CholeskySolve replaces b by the solution x of L L' x = b. l is the factor L of a positive
// definite m x m matrix.
func CholeskySolve(l []float64, m int, b []float64) {
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

// CholeskyInverse returns the inverse of a positive definite m x m matrix from its factor.
func CholeskyInverse(l []float64, m int) []float64 {
	out := make([]float64, m*m)
	column := make([]float64, m)
	for c := range m {
		clear(column)
		column[c] = 1
		CholeskySolve(l, m, column)
		for r, v := range column {
			out[r*m+c] = v
		}
	}
	return out
}

// Inverse returns the inverse of a symmetric positive definite m x m matrix; nil for any other
// matrix.
func Inverse(a []float64, m int) []float64 {
	l := slices.Clone(a)
	if Cholesky(l, m) < m {
		return nil
	}
	return CholeskyInverse(l, m)
}
