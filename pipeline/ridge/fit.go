package ridge

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
)

// Fit is one solution and what certifies it.
type Fit struct {
	Lambda     float64
	Beta       []float64 // coefficients, beta_j = gamma_j*ybar/s_j
	Gamma      []float64 // typical share of the target each term explains
	Scale      []float64 // s_j; 0 for an all-zero column
	YBar       float64   // us
	W          float64   // sum of weights
	Active     []bool    // non-zero or free terms
	Objective  float64
	Cert       Certificate
	DF         float64   // effective degrees of freedom
	DFTerm     []float64 // their share per term, 0 outside the active set
	PriorShare []float64 // lambda*d/(1+lambda*d); NaN for an all-zero column
}

// Certificate is half the gradient of the objective at the answer, with respect
// to gamma: a minimum has none on active terms and a non-negative one on terms
// held at zero.
type Certificate struct {
	MinZero   float64 // smallest gradient over zero terms; NaN without one
	MaxActive float64 // largest |gradient| over active terms
}

// certTol is the tolerance of the gradient (spec#certificate).
const certTol = 1e-8

// OK reports whether the certificate holds.
func (c Certificate) OK() bool { return !(c.MinZero < -certTol) && c.MaxActive <= certTol }

// Solve fits one lambda on a Gram of balanced weights.
func Solve(g *Gram, lambda float64, o Options) (Fit, error) {
	s := newSolver(g.P, &o)
	s.load(g, 0)
	s.cold()
	s.solve(lambda)
	return s.fit(lambda)
}

// FitRows fits one lambda on the given rows with one weight per row of d; rows
// nil: all. W, s and ybar are those of the rows.
func FitRows(d *Data, w []float64, rows []int32, lambda float64, o Options) (Fit, error) {
	return Solve(OfRows(d, w, rows, o.Threads()), lambda, o)
}

// fit reports the last solution in full.
func (s *solver) fit(lambda float64) (Fit, error) {
	f := Fit{
		Lambda: lambda, YBar: s.ybar, W: s.w, Objective: s.objective(lambda),
		Beta: make([]float64, s.p), Gamma: make([]float64, s.p), Scale: make([]float64, s.p),
		Active: make([]bool, s.p), PriorShare: make([]float64, s.p),
	}
	s.beta(f.Beta)
	copy(f.Gamma, s.gamma)
	copy(f.Scale, s.scale)
	for j := range s.p {
		f.Active[j] = !s.zero[j] && (s.gamma[j] != 0 || s.o.IsFree(j))
		f.PriorShare[j] = math.NaN()
		if !s.zero[j] {
			ld := float64(lambda * s.penalty(j, j))
			f.PriorShare[j] = ld / (1 + ld)
		}
	}
	f.Cert = s.certificate(lambda)
	f.DFTerm = s.degrees(lambda, f.Active)
	for _, v := range f.DFTerm {
		f.DF += v
	}
	if s.err != nil {
		return f, &Error{CertificateFailed, s.err.Error()}
	}
	if !f.Cert.OK() {
		return f, &Error{CertificateFailed, fmt.Sprintf(
			"gradient on zero terms: got %v, on active terms %v, want >= -1e-8 and <= 1e-8", f.Cert.MinZero, f.Cert.MaxActive)}
	}
	return f, nil
}

// certificate reads the gradient at the last solution, under a strong prior with
// a covariance relative to it.
func (s *solver) certificate(lambda float64) Certificate {
	c := Certificate{MinZero: math.NaN()}
	unit := 1.0
	for j := 0; s.prec != nil && j < s.p; j++ {
		unit = math.Max(unit, lambda*s.prec[j*s.p+j]*math.Max(1, math.Abs(s.prior[j])))
	}
	for j := range s.p {
		switch {
		case s.zero[j]:
		case s.gamma[j] != 0 || s.o.IsFree(j):
			c.MaxActive = math.Max(c.MaxActive, math.Abs(s.grad[j]))
		case !(c.MinZero < s.grad[j]):
			c.MinZero = s.grad[j]
		}
	}
	c.MaxActive, c.MinZero = c.MaxActive/unit, c.MinZero/unit
	return c
}

// degrees is the diagonal of (G + lambda D)^-1 G over the active terms.
func (s *solver) degrees(lambda float64, active []bool) []float64 {
	out := make([]float64, s.p)
	var idx []int
	for j, a := range active {
		if a {
			idx = append(idx, j)
		}
	}
	m := len(idx)
	l := make([]float64, m*m)
	for r, j := range idx {
		for c, k := range idx[:r+1] {
			l[r*m+c] = s.g[j*s.p+k] + float64(lambda*s.penalty(j, k))
		}
	}
	if stat.Cholesky(l, m) < m {
		return out
	}
	col := make([]float64, m)
	for c, k := range idx {
		for r, j := range idx {
			col[r] = s.g[j*s.p+k]
		}
		stat.CholeskySolve(l, m, col)
		out[k] = col[c]
	}
	return out
}

// Fingerprint names a coefficient set by its exact bits.
func Fingerprint(beta []float64) string {
	h := fnv.New64a()
	var b [8]byte
	for _, v := range beta {
		u := math.Float64bits(v)
		for k := range b {
			b[k] = byte(u >> (8 * k))
		}
		h.Write(b[:])
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
