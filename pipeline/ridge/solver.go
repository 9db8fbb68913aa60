package ridge

// This file minimises the penalised loss of one Gram matrix under sign constraints and upper limits.

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/stat"
)

// Tolerances of the working set: a value at most signTol outside its limits, and a gradient at most
// gradTol on the wrong side of 0, count as rounding errors.
const (
	signTol = 1e-13
	gradTol = 1e-12
)

// solver minimises gamma'G gamma - 2 b'gamma + lambda sum d(gamma-gamma0)^2 subject to 0 <= gamma <=
// upper on terms with a sign constraint, for one scaled Gram matrix and many lambdas. It is an active
// set method: terms in the working set (passive) are solved for, all others stay at one of their
// limits. Its buffers are reused, so each goroutine needs its own.
type solver struct {
	p       int
	o       *Options
	gram    []float64 // scaled Gram matrix, p x p
	right   []float64 // scaled right side X'Wy
	q       float64   // sum w y^2/(W ybar^2)
	scale   []float64 // s_j of the columns; 0: all zero
	ybar, w float64   // scale of the target, us, and sum of the weights
	zero    []bool    // terms fixed at 0: all-zero columns, and those with an upper limit of 0
	prior   []float64 // gamma0
	prec    []float64 // Precision for gamma, p x p; nil: Penalty
	none    []float64 // zeros
	passive []bool    // the working set; kept between solves as the next guess
	upper   []float64 // largest gamma, +Inf: no limit
	atUpper []bool    // terms outside the working set that are held at upper, not at 0
	gamma   []float64 // the answer
	grad    []float64 // half gradient: G gamma - right + lambda D (gamma - gamma0)
	chol    []float64 // scratch of solvePassive: Cholesky factor,
	rhs     []float64 // right side,
	idx     []int     // and terms of the working set
	err     error     // of an eigenvalue problem of this Gram
}

// newSolver returns the scratch space of a solver for p terms.
func newSolver(p int, o *Options) *solver {
	vector := func() []float64 { return make([]float64, p) }
	return &solver{
		p:       p,
		o:       o,
		gram:    make([]float64, p*p),
		chol:    make([]float64, p*p),
		right:   vector(),
		scale:   vector(),
		prior:   vector(),
		gamma:   vector(),
		grad:    vector(),
		rhs:     vector(),
		upper:   vector(),
		atUpper: make([]bool, p),
		none:    vector(),
		zero:    make([]bool, p),
		passive: make([]bool, p),
		idx:     make([]int, 0, p),
	}
}

// fit returns the last solution as a Fit, with an error when its certificate does not hold.
func (s *solver) fit(lambda float64) (Fit, error) {
	out := Fit{
		Lambda: lambda, YBar: s.ybar, W: s.w, Objective: s.objective(lambda),
		Beta: make([]float64, s.p), Gamma: make([]float64, s.p), Scale: make([]float64, s.p),
		Active: make([]bool, s.p), PriorShare: make([]float64, s.p),
	}
	s.beta(out.Beta)
	copy(out.Gamma, s.gamma)
	copy(out.Scale, s.scale)
	for j := range s.p {
		out.Active[j] = !s.zero[j] && !s.atUpper[j] && (s.gamma[j] != 0 || s.o.IsFree(j))
		out.PriorShare[j] = math.NaN()
		if !s.zero[j] {
			penalty := lambda * s.penalty(j, j)
			out.PriorShare[j] = penalty / (1 + penalty)
		}
	}
	out.Cert = s.certificate(lambda)
	out.DFTerm = s.degrees(lambda, out.Active)
	for _, v := range out.DFTerm {
		out.DF += v
	}
	if s.err != nil {
		return out, &Error{CertificateFailed, s.err.Error()}
	}
	if !out.Cert.OK() {
		return out, &Error{CertificateFailed, fmt.Sprintf(
			"gradient on zero terms: got %v, on active terms %v, want >= -1e-8 and <= 1e-8",
			out.Cert.MinZero, out.Cert.MaxActive)}
	}
	return out, nil
}

// certificate returns the largest violations of the gradient at the last solution. Under a prior
// with a covariance they are relative to the prior's entries where these are above 1, because
// rounding grows with them.
func (s *solver) certificate(lambda float64) Certificate {
	c := Certificate{MinZero: math.NaN()}
	unit := 1.0
	for j := 0; s.prec != nil && j < s.p; j++ {
		unit = math.Max(unit, lambda*s.prec[j*s.p+j]*math.Max(1, math.Abs(s.prior[j])))
	}
	for j := range s.p {
		switch {
		case s.zero[j]:
		case s.atUpper[j]: // at an upper limit the gradient must not be positive
			if !(c.MinZero < -s.grad[j]) {
				c.MinZero = -s.grad[j]
			}
		case s.gamma[j] != 0 || s.o.IsFree(j):
			c.MaxActive = math.Max(c.MaxActive, math.Abs(s.grad[j]))
		case !(c.MinZero < s.grad[j]):
			c.MinZero = s.grad[j]
		}
	}
	c.MaxActive = c.MaxActive / unit
	c.MinZero = c.MinZero / unit
	return c
}

// degrees returns the effective degrees of freedom per term: the diagonal of (G + lambda D)^-1 G
// over the active terms.
func (s *solver) degrees(lambda float64, active []bool) []float64 {
	out := make([]float64, s.p)
	var idx []int
	for j, a := range active {
		if a {
			idx = append(idx, j)
		}
	}
	m := len(idx)
	chol := make([]float64, m*m)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			chol[r*m+c] = s.gram[j*s.p+k] + lambda*s.penalty(j, k)
		}
	}
	if stat.Cholesky(chol, m) < m {
		return out
	}
	col := make([]float64, m)
	for c, k := range idx {
		for r, j := range idx {
			col[r] = s.gram[j*s.p+k]
		}
		stat.CholeskySolve(chol, m, col)
		out[k] = col[c]
	}
	return out
}

// load scales a Gram by its own W, s and ybar (spec#scaling). ybarUs > 0 fixes ybar.
func (s *solver) load(g *Gram, ybarUs float64) {
	p := s.p
	s.err = nil
	s.w = g.W
	s.ybar = math.Sqrt(g.Q / g.W)
	if ybarUs > 0 {
		s.ybar = ybarUs
	}
	if g.W <= 0 || s.ybar == 0 { // no rows, or only targets of 0: any scale will do
		s.w = 1
		s.ybar = 1
	}
	for j := range p {
		s.scale[j] = math.Sqrt(g.G[j*p+j] / s.w)
		// A column without data is decided by its correlation with the others in the prior. The prior
		// gives it a scale, because a scale of 0 would remove the term.
		if s.o.Precision != nil && s.scale[j] == 0 {
			s.scale[j] = s.ybar * math.Sqrt(s.o.Precision[j*p+j])
		}
	}
	s.normalise(g)
}

// normalise fills the scaled matrix, right side and prior from g, for the current w, ybar and
// scale.
func (s *solver) normalise(g *Gram) {
	p := s.p
	s.q = g.Q / (s.w * s.ybar * s.ybar)
	for j := range p {
		scale := s.scale[j]
		s.zero[j] = scale == 0 || s.o.UpperOf(j) == 0
		s.prior[j] = 0
		s.right[j] = 0
		if s.zero[j] {
			s.passive[j] = false
			s.atUpper[j] = false
			continue
		}
		s.upper[j] = s.o.UpperOf(j) * scale / s.ybar
		s.prior[j] = s.o.PriorOf(j) * scale / s.ybar
		s.right[j] = g.B[j] / (scale * s.w * s.ybar)
		for k := range p {
			s.gram[j*p+k] = 0
			if s.scale[k] != 0 {
				s.gram[j*p+k] = g.G[j*p+k] / (scale * s.scale[k] * s.w)
			}
		}
	}
	s.setPrecision()
}

// setPrecision scales the prior's precision from coefficients to gamma.
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

// penalty returns entry (j, k) of the penalty matrix: the prior's precision, or Penalty on the
// diagonal.
func (s *solver) penalty(j, k int) float64 {
	switch {
	case s.prec != nil:
		return s.prec[j*s.p+k]
	case j == k:
		return s.o.Penalty[j]
	}
	return 0
}

// pull returns entry j of lambda*D*(gamma - prior), the penalty's half gradient at gamma.
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

// cold resets the working set to all terms that are not zero.
func (s *solver) cold() {
	for j := range s.passive {
		s.passive[j] = !s.zero[j]
		s.atUpper[j] = false
	}
}

// solve finds the minimum for one lambda by exchanging the working set: terms whose value leaves
// the allowed side are removed, terms whose gradient is negative are added. All offending terms
// move as long as that helps, then only the last one (Murty's rule), which ends for every positive
// definite matrix.
func (s *solver) solve(lambda float64) {
	// Terms without a sign constraint are always solved for.
	for j := range s.p {
		if !s.zero[j] && s.o.IsFree(j) {
			s.passive[j] = true
		}
	}
	best := s.p + 1 // fewest offenders so far
	patience := mostPatience
	// A few exchanges are usual. Where rounding makes terms go to and fro without end, the certificate shows
	// whether the last answer is a minimum.
	for range 100 * s.p {
		s.solvePassive(lambda)
		count, lastOut := s.offenders(lambda)
		switch {
		case count == 0:
			s.finish(lambda)
			return
		case count < best:
			best = count
			patience = mostPatience
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

// mostPatience is the number of exchanges of all offenders that may fail to reduce their number before
// solve moves one term at a time.
const mostPatience = 3

// offenders refreshes the gradient and returns the number of terms on the wrong side and the last
// of them.
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

// offends reports whether a term must change sides: it is a term in the working set whose value is
// outside its limits, or one fixed at a limit whose gradient points inside.
func (s *solver) offends(j int) bool {
	switch {
	case s.zero[j] || s.o.IsFree(j):
		return false
	case s.passive[j]:
		return s.gamma[j] < -signTol || s.gamma[j] > s.upper[j]+signTol
	case s.atUpper[j]:
		return s.grad[j] > gradTol
	}
	return s.grad[j] < -gradTol
}

// exchange moves the offending term only into the working set or out of it; all offenders if only is
// negative.
func (s *solver) exchange(only int) {
	for j := range s.p {
		if (only < 0 || j == only) && s.offends(j) {
			s.atUpper[j] = s.passive[j] && s.gamma[j] > s.upper[j]
			s.passive[j] = !s.passive[j]
		}
	}
}

// finish sets values that are outside their limits by rounding to the limit and refreshes the
// gradient.
func (s *solver) finish(lambda float64) {
	for j := range s.p {
		if s.passive[j] && !s.o.IsFree(j) {
			s.gamma[j] = math.Min(math.Max(s.gamma[j], 0), s.upper[j])
		}
	}
	s.gradient(lambda)
}

// gradient sets grad to half the derivative of the objective.
func (s *solver) gradient(lambda float64) {
	for j := range s.p {
		s.grad[j] = 0
		if s.zero[j] {
			continue
		}
		s.grad[j] = Dot(s.gram[j*s.p:(j+1)*s.p], s.gamma) - s.right[j] + s.pull(lambda, j, s.gamma)
	}
}

// solvePassive solves the normal equations over the working set; the other terms are at their
// limits.
func (s *solver) solvePassive(lambda float64) {
	s.idx = s.idx[:0]
	for j := range s.p {
		s.gamma[j] = 0
		switch {
		case s.passive[j]:
			s.idx = append(s.idx, j)
		case s.atUpper[j]:
			s.gamma[j] = s.upper[j]
		}
	}
	m := len(s.idx)
	for r, j := range s.idx {
		s.rhs[r] = s.rightSide(lambda, j)
		for c, k := range s.idx[:r+1] {
			s.chol[r*m+c] = s.gram[j*s.p+k] + lambda*s.penalty(j, k)
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

// rightSide returns the right side of the normal equation of term j: what remains to it after the
// terms that are fixed at their upper limits.
func (s *solver) rightSide(lambda float64, j int) float64 {
	right := s.right[j] - s.pull(lambda, j, s.none)
	for k, isFixed := range s.atUpper {
		if isFixed {
			right -= (s.gram[j*s.p+k] + lambda*s.penalty(j, k)) * s.upper[k]
		}
	}
	return right
}

// solveEigen solves the working set where the Cholesky factorisation fails: directions with
// eigenvalues under 1e-14 of the largest get 0.
func (s *solver) solveEigen(lambda float64) {
	m := len(s.idx)
	system := mat.NewSymDense(m, nil)
	rhs := make([]float64, m)
	for r, j := range s.idx {
		rhs[r] = s.rightSide(lambda, j)
		for c, k := range s.idx[:r+1] {
			system.SetSym(r, c, s.gram[j*s.p+k]+lambda*s.penalty(j, k))
		}
	}
	values, vectors, err := Eigen(system)
	if err != nil {
		s.err = err
		return
	}
	for k, eigenvalue := range values {
		if eigenvalue <= 1e-14*values[m-1] {
			continue
		}
		var projection float64
		for r := range m {
			projection += vectors.At(r, k) * rhs[r]
		}
		for r, j := range s.idx {
			s.gamma[j] += vectors.At(r, k) * projection / eigenvalue
		}
	}
}

// objective returns the objective at the last solution.
func (s *solver) objective(lambda float64) float64 {
	obj := s.q
	for j := range s.p {
		if s.zero[j] {
			continue
		}
		d := s.gamma[j] - s.prior[j]
		obj += s.gamma[j]*(Dot(s.gram[j*s.p:(j+1)*s.p], s.gamma)-2*s.right[j]) + d*s.pull(lambda, j, s.gamma)
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
