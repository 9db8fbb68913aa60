package ridge

import (
	"errors"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/stat"
)

// solver minimises  gamma'G gamma - 2 b'gamma + lambda sum d(gamma-gamma0)^2
// subject to gamma >= 0 on signed terms, for one scaled Gram and many lambdas.
// Its buffers are reused; one solver per goroutine.
type solver struct {
	p       int
	o       *Options
	g       []float64 // scaled Gram, p x p
	b       []float64 // scaled right side
	q       float64   // sum w y^2/(W ybar^2)
	scale   []float64
	ybar, w float64
	zero    []bool // all-zero columns, fixed at 0
	prior   []float64
	prec    []float64 // Precision for gamma, p x p; nil: Penalty
	none    []float64 // zeros
	passive []bool    // the working set; kept between solves as the next guess
	gamma   []float64
	grad    []float64 // half gradient A gamma - b - lambda D gamma0
	chol    []float64
	rhs     []float64
	idx     []int
	err     error // of an eigenvalue problem of this Gram
}

func newSolver(p int, o *Options) *solver {
	f := func() []float64 { return make([]float64, p) }
	return &solver{
		p: p, o: o, g: make([]float64, p*p), chol: make([]float64, p*p),
		b: f(), scale: f(), prior: f(), gamma: f(), grad: f(), rhs: f(), none: f(),
		zero: make([]bool, p), passive: make([]bool, p), idx: make([]int, 0, p),
	}
}

// load scales a Gram by its own W, s and ybar (spec#scaling). ybarUs > 0 fixes ybar.
func (s *solver) load(g *Gram, ybarUs float64) {
	p := s.p
	s.w, s.err = g.W, nil
	s.ybar = math.Sqrt(g.Q / g.W)
	if ybarUs > 0 {
		s.ybar = ybarUs
	}
	if g.W <= 0 || s.ybar == 0 {
		s.w, s.ybar = 1, 1
	}
	for j := range p {
		s.scale[j] = math.Sqrt(g.G[j*p+j] / s.w)
		if s.o.Precision != nil && s.scale[j] == 0 { // no data: the others and the prior decide it
			s.scale[j] = s.ybar * math.Sqrt(s.o.Precision[j*p+j])
		}
	}
	s.normalise(g)
}

// normalise fills the scaled matrix for the current w, ybar and scale.
func (s *solver) normalise(g *Gram) {
	p := s.p
	s.q = g.Q / (s.w * s.ybar * s.ybar)
	for j := range p {
		sj := s.scale[j]
		s.zero[j] = sj == 0
		s.prior[j], s.b[j] = 0, 0
		if s.zero[j] {
			s.passive[j] = false
			continue
		}
		s.prior[j] = s.o.PriorOf(j) * sj / s.ybar
		s.b[j] = g.B[j] / (sj * s.w * s.ybar)
		for k := range p {
			s.g[j*p+k] = 0
			if s.scale[k] != 0 {
				s.g[j*p+k] = g.G[j*p+k] / (sj * s.scale[k] * s.w)
			}
		}
	}
	s.setPrecision()
}

// setPrecision scales the prior's precision to gamma.
func (s *solver) setPrecision() {
	if s.o.Precision == nil {
		return
	}
	if s.prec == nil {
		s.prec = make([]float64, s.p*s.p)
	}
	for j := range s.p {
		for k := range s.p {
			s.prec[j*s.p+k] = 0
			if s.scale[j] != 0 && s.scale[k] != 0 {
				s.prec[j*s.p+k] = s.o.Precision[j*s.p+k] * s.ybar * s.ybar / (s.scale[j] * s.scale[k])
			}
		}
	}
}

// penalty is what couples two terms.
func (s *solver) penalty(j, k int) float64 {
	switch {
	case s.prec != nil:
		return s.prec[j*s.p+k]
	case j == k:
		return s.o.Penalty[j]
	}
	return 0
}

// pull is the penalty's part of the right side, and with gamma of the gradient.
func (s *solver) pull(lambda float64, j int, gamma []float64) float64 {
	if s.prec == nil {
		return lambda * s.o.Penalty[j] * (gamma[j] - s.prior[j])
	}
	sum := 0.0
	for k, v := range s.prec[j*s.p : (j+1)*s.p] {
		sum += v * (gamma[k] - s.prior[k])
	}
	return lambda * sum
}

// cold forgets the working set: every term starts in it.
func (s *solver) cold() {
	for j := range s.passive {
		s.passive[j] = !s.zero[j]
	}
}

// Values closer to zero than these count as zero when the working set changes.
const (
	signTol = 1e-13
	gradTol = 1e-12
)

// solve finds the minimum for one lambda by exchanging the working set: terms
// that leave the allowed side go out, terms whose gradient is negative come in.
// All offenders move while that helps, then the last one alone (Murty's rule),
// which ends for every positive definite matrix.
func (s *solver) solve(lambda float64) {
	for j := range s.p {
		if !s.zero[j] && s.o.IsFree(j) {
			s.passive[j] = true
		}
	}
	best, patience := s.p+1, 3
	for range 100 * s.p {
		s.solvePassive(lambda)
		count, lastOut := s.offenders(lambda)
		switch {
		case count == 0:
			s.finish(lambda)
			return
		case count < best:
			best, patience = count, 3
			s.exchange(-1)
		case patience > 0:
			patience--
			s.exchange(-1)
		default:
			s.exchange(lastOut)
		}
	}
	s.finish(lambda)
}

// offenders refreshes the gradient and counts terms on the wrong side.
func (s *solver) offenders(lambda float64) (count, last int) {
	s.gradient(lambda)
	last = -1
	for j := range s.p {
		if s.offends(j) {
			count, last = count+1, j
		}
	}
	return count, last
}

func (s *solver) offends(j int) bool {
	switch {
	case s.zero[j] || s.o.IsFree(j):
		return false
	case s.passive[j]:
		return s.gamma[j] < -signTol
	}
	return s.grad[j] < -gradTol
}

// exchange moves one offender, or all when only is negative.
func (s *solver) exchange(only int) {
	for j := range s.p {
		if (only < 0 || j == only) && s.offends(j) {
			s.passive[j] = !s.passive[j]
		}
	}
}

func (s *solver) finish(lambda float64) {
	for j := range s.p {
		if s.passive[j] && !s.o.IsFree(j) && s.gamma[j] < 0 {
			s.gamma[j] = 0
		}
	}
	s.gradient(lambda)
}

// gradient is half the derivative of the objective.
func (s *solver) gradient(lambda float64) {
	for j := range s.p {
		s.grad[j] = 0
		if s.zero[j] {
			continue
		}
		s.grad[j] = Dot(s.g[j*s.p:(j+1)*s.p], s.gamma) - s.b[j] + s.pull(lambda, j, s.gamma)
	}
}

// solvePassive solves the normal equations of the working set, the rest is 0.
func (s *solver) solvePassive(lambda float64) {
	s.idx = s.idx[:0]
	for j := range s.p {
		s.gamma[j] = 0
		if s.passive[j] {
			s.idx = append(s.idx, j)
		}
	}
	m := len(s.idx)
	for r, j := range s.idx {
		s.rhs[r] = s.b[j] - s.pull(lambda, j, s.none)
		for c, k := range s.idx[:r+1] {
			s.chol[r*m+c] = s.g[j*s.p+k] + lambda*s.penalty(j, k)
		}
	}
	if stat.Cholesky(s.chol, m) < m {
		s.solveEigen(lambda)
		return
	}
	stat.CholeskySolve(s.chol, m, s.rhs[:m])
	for r, j := range s.idx {
		s.gamma[j] = s.rhs[r]
	}
}

// solveEigen is the fallback when Cholesky says the matrix is not positive
// definite: directions with eigenvalues under 1e-14 of the largest get 0.
func (s *solver) solveEigen(lambda float64) {
	m := len(s.idx)
	a := mat.NewSymDense(m, nil)
	rhs := make([]float64, m)
	for r, j := range s.idx {
		rhs[r] = s.b[j] - s.pull(lambda, j, s.none)
		for c, k := range s.idx[:r+1] {
			a.SetSym(r, c, s.g[j*s.p+k]+lambda*s.penalty(j, k))
		}
	}
	values, vectors, err := Eigen(a)
	if err != nil {
		s.err = err
		return
	}
	for k, e := range values {
		if e <= 1e-14*values[m-1] {
			continue
		}
		var proj float64
		for r := range m {
			proj += vectors.At(r, k) * rhs[r]
		}
		for r, j := range s.idx {
			s.gamma[j] += vectors.At(r, k) * proj / e
		}
	}
}

// objective is J at the last solution.
func (s *solver) objective(lambda float64) float64 {
	obj := s.q
	for j := range s.p {
		if s.zero[j] {
			continue
		}
		d := s.gamma[j] - s.prior[j]
		obj += s.gamma[j]*(Dot(s.g[j*s.p:(j+1)*s.p], s.gamma)-2*s.b[j]) + d*s.pull(lambda, j, s.gamma)
	}
	return obj
}

// beta writes the coefficients of the last solution.
func (s *solver) beta(out []float64) {
	for j := range s.p {
		out[j] = 0
		if !s.zero[j] {
			out[j] = s.gamma[j] * s.ybar / s.scale[j]
		}
	}
}

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

// trailingWeight is the penalty of a component that is left out, relative to one that is kept.
const trailingWeight = 1e6

// Components makes the options fit in the leading principal components of a Gram's scaled columns:
// the fewest that hold the share of their variance. The others pay a penalty that leaves them at
// the prior, so that signs hold as they do without (spec#principal-components). It returns how many are kept.
// Errors: gram.ErrEigen.
func (o *Options) Components(g *Gram, share float64) (int, error) {
	p := g.P
	sd := make([]float64, p)
	for j := range sd {
		sd[j] = math.Sqrt(g.G[j*p+j] / g.W)
	}
	idx := NonZero(sd)
	m := len(idx)
	scaled := make([]float64, m*m)
	for a, j := range idx {
		for b, k := range idx {
			scaled[a*m+b] = g.G[j*p+k] / (sd[j] * sd[k] * g.W)
		}
	}
	values, vectors, err := Eigen(Symmetric(scaled, m))
	if err != nil {
		return 0, err
	}
	left, tail := (1-share)*float64(m), 0 // the trace of the scaled Gram is m
	for tail < m-1 && values[tail] <= left {
		left -= values[tail]
		tail++
	}
	ybar := math.Sqrt(g.Q / g.W)
	o.Precision = make([]float64, p*p)
	for j := range p {
		o.Precision[j*p+j] = o.Penalty[j]
	}
	for a, j := range idx {
		for b, k := range idx {
			v := 0.0
			if a == b {
				v = o.Penalty[j]
			}
			for c := range tail {
				v += trailingWeight * vectors.At(a, c) * vectors.At(b, c)
			}
			o.Precision[j*p+k] = v * sd[j] * sd[k] / (ybar * ybar)
		}
	}
	return m - tail, nil
}
