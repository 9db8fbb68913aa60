package ridge

import (
	"errors"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"gonum.org/v1/gonum/mat"
)

// ErrEigen says that the eigenvalues of a matrix were not found: an entry of it is
// not finite, or the iteration did not end.
var ErrEigen = errors.New("the eigenvalues of a matrix of sums did not converge")

// Eigen is the spectrum of a symmetric matrix, ascending, with its vectors as
// columns; the sign of each vector makes its largest entry positive. Errors: ErrEigen.
//
// Source: the cyclic Jacobi method (Golub and Van Loan, Matrix Computations, 8.5).
// gonum's Dsyev adds in another order on every architecture.
func Eigen(a *mat.SymDense) ([]float64, *mat.Dense, error) {
	m := a.SymmetricDim()
	rows := make([][]float64, m)
	vectors := make([][]float64, m)
	var norm float64
	for r := range m {
		rows[r], vectors[r] = mat.Row(nil, r, a), make([]float64, m)
		vectors[r][r] = 1
		for _, v := range rows[r] {
			norm = math.Max(norm, math.Abs(v))
		}
	}
	if !(norm <= math.MaxFloat64) || !diagonalise(rows, vectors, offDiagonal*norm) {
		return nil, nil, ErrEigen
	}
	diagonal := make([]float64, m)
	values := make([]float64, m)
	out := mat.NewDense(m, m, nil)
	for k := range diagonal {
		diagonal[k] = rows[k][k]
	}
	for k, from := range stat.Order(diagonal) {
		if values[k] = rows[from][from]; math.IsNaN(values[k]) || math.IsInf(values[k], 0) {
			return nil, nil, ErrEigen
		}
		v, big := vectors[from], 0
		for r := range v {
			if math.Abs(v[r]) > math.Abs(v[big])*(1+1e-9) {
				big = r
			}
		}
		sign := math.Copysign(1, v[big])
		for r := range v {
			out.Set(r, k, sign*v[r])
		}
	}
	return values, out, nil
}

const (
	offDiagonal = 0x1p-60 // an entry this small beside the largest moves no eigenvalue
	maxSweeps   = 60      // six are usual
)

// diagonalise turns the symmetric matrix a until no entry off its diagonal is above
// least, and the rows of v along; false when it does not end.
func diagonalise(a, v [][]float64, least float64) bool {
	for range maxSweeps {
		done := true
		for p := range a {
			for q := range p {
				if math.Abs(a[p][q]) > least {
					done = false
					turn(a, v, p, q)
				}
			}
		}
		if done {
			return true
		}
	}
	return false
}

// turn makes the entries (p, q) and (q, p) of a zero by a rotation of at most 45 degrees.
func turn(a, v [][]float64, p, q int) {
	ratio := (a[q][q] - a[p][p]) / (2 * a[p][q])
	t := math.Copysign(1, ratio) / (math.Abs(ratio) + math.Sqrt(ratio*ratio+1)) // its tangent
	c := 1 / math.Sqrt(t*t+1)
	s, shift := t*c, t*a[p][q]
	a[p][p], a[q][q] = a[p][p]-shift, a[q][q]+shift
	a[p][q], a[q][p] = 0, 0
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
