package ridge

// This file has the eigenvalues of symmetric matrices of very unequal entries.

import (
	"errors"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"gonum.org/v1/gonum/mat"
)

// ErrEigen means that the eigenvalues of a matrix were not found: an entry of it is
// not finite, or the iteration did not end.
var ErrEigen = errors.New("the eigenvalues of a matrix of sums did not converge")

// Eigen returns the eigenvalues of a symmetric matrix in ascending order, and the
// eigenvectors as columns, each with its largest entry positive. Errors: ErrEigen.
//
// Source: the cyclic Jacobi method (Golub and Van Loan, Matrix Computations, 8.5).
// The matrices here are graded: entries of terms that the prior leaves open are 1e12
// times those of others. Jacobi's method finds their small eigenvalues to full
// relative precision, gonum's mat.EigenSym (QR) only relative to the largest: variance
// inflation factors of nearly singular directions would lose digits.
func Eigen(a *mat.SymDense) ([]float64, *mat.Dense, error) {
	m := a.SymmetricDim()
	rows := make([][]float64, m)
	vectors := make([][]float64, m) // one a row
	largest := 0.0
	for r := range m {
		rows[r] = mat.Row(nil, r, a)
		vectors[r] = make([]float64, m)
		vectors[r][r] = 1
		for _, v := range rows[r] {
			largest = math.Max(largest, math.Abs(v))
		}
	}
	isFinite := largest <= math.MaxFloat64 // false for NaN
	if !isFinite || !diagonalise(rows, vectors, offDiagonal*largest) {
		return nil, nil, ErrEigen
	}
	diagonal := make([]float64, m)
	for k := range diagonal {
		diagonal[k] = rows[k][k]
	}
	values := make([]float64, m)
	columns := mat.NewDense(m, m, nil)
	for k, from := range stat.Order(diagonal) {
		values[k] = diagonal[from]
		if math.IsNaN(values[k]) || math.IsInf(values[k], 0) {
			return nil, nil, ErrEigen
		}
		sign := math.Copysign(1, largestEntry(vectors[from]))
		for r, v := range vectors[from] {
			columns.Set(r, k, sign*v)
		}
	}
	return values, columns, nil
}

// largestEntry returns the entry of largest magnitude; of entries equal within rounding the first.
func largestEntry(v []float64) float64 {
	largest := v[0]
	for _, x := range v {
		if math.Abs(x) > math.Abs(largest)*(1+1e-9) {
			largest = x
		}
	}
	return largest
}

const (
	offDiagonal = 0x1p-60 // an entry this small beside the largest moves no eigenvalue
	maxSweeps   = 60      // six are usual
)

// diagonalise rotates the symmetric matrix a, and the rows of v with it, until no entry off its
// diagonal is above least. It returns false when maxSweeps do not suffice.
func diagonalise(a, v [][]float64, least float64) bool {
	for range maxSweeps {
		done := true
		for p := range a {
			for q := range p {
				if math.Abs(a[p][q]) > least {
					done = false
					rotate(a, v, p, q)
				}
			}
		}
		if done {
			return true
		}
	}
	return false
}

// rotate makes the entries (p, q) and (q, p) of a zero by a rotation of at most 45 degrees.
func rotate(a, v [][]float64, p, q int) {
	ratio := (a[q][q] - a[p][p]) / (2 * a[p][q])
	// The tangent of the smaller of the two angles that make the entry 0.
	t := math.Copysign(1, ratio) / (math.Abs(ratio) + math.Sqrt(ratio*ratio+1))
	// Cosine c and sine s of the rotation.
	c := 1 / math.Sqrt(t*t+1)
	s := t * c
	// What the rotation takes off the diagonal entry p it adds to q: their sum, the trace, stays.
	shift := t * a[p][q]
	a[p][p] -= shift
	a[q][q] += shift
	a[p][q], a[q][p] = 0, 0
	// Rows and columns p and q turn in the matrix, and rows p and q of the eigenvectors with them.
	for k := range a {
		if k != p && k != q {
			x, y := a[p][k], a[q][k]
			a[p][k], a[q][k] = c*x-s*y, s*x+c*y
			a[k][p], a[k][q] = a[p][k], a[q][k]
		}
		x, y := v[p][k], v[q][k]
		v[p][k], v[q][k] = c*x-s*y, s*x+c*y
	}
}

// Symmetric returns a gonum copy of a symmetric p x p matrix.
func Symmetric(g []float64, p int) *mat.SymDense {
	return mat.NewSymDense(p, append([]float64(nil), g...))
}

// nullTol is the eigenvalue of the scaled Gram, relative to the largest, below which the
// rows do not determine a direction.
const nullTol = 1e-6

// nonZeroColumns returns the columns whose scale is not 0, which are not all zero.
func nonZeroColumns(scale []float64) []int {
	var idx []int
	for j, s := range scale {
		if s != 0 {
			idx = append(idx, j)
		}
	}
	return idx
}
