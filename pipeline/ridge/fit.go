package ridge

// This file has a solution with its certificate, the proof that it is the minimum.

import (
	"fmt"
	"hash/fnv"
	"math"
)

// Fit is one solution with its certificate.
type Fit struct {
	Lambda     float64
	Beta       []float64 // coefficients, beta_j = gamma_j*ybar/s_j
	Gamma      []float64 // scaled coefficients: the typical share of the target that each term explains
	Scale      []float64 // s_j; 0 for an all-zero column
	YBar       float64   // us
	W          float64   // sum of weights
	Active     []bool    // non-zero or free terms
	Objective  float64   // at the minimum, relative to W*ybar^2
	Cert       Certificate
	DF         float64   // effective degrees of freedom
	DFTerm     []float64 // their share per term, 0 outside the active set
	PriorShare []float64 // weight of the prior against a term's own rows, lambda*d/(1+lambda*d); NaN for an all-zero column
}

// Certificate is half the gradient of the objective with respect to gamma at the answer. At a
// minimum it is 0 on active terms and not negative on terms that the sign constraint keeps at 0.
type Certificate struct {
	MinZero   float64 // smallest gradient over zero terms; NaN without one
	MaxActive float64 // largest |gradient| over active terms
}

// certTol is the tolerance of the gradient (spec#certificate).
const certTol = 1e-8

// OK reports whether the gradient shows a minimum: within certTol of 0 on active terms, and not below
// -certTol on zero terms.
func (c Certificate) OK() bool { return !(c.MinZero < -certTol) && c.MaxActive <= certTol }

// Solve returns the fit of one lambda on a Gram of balanced weights.
func Solve(g *Gram, lambda float64, o Options) (Fit, error) {
	s := newSolver(g.P, &o)
	s.load(g, 0)
	s.cold()
	s.solve(lambda)
	return s.fit(lambda)
}

// FitRows returns the fit of one lambda on the given rows (nil: all) with one weight for each row
// of d. The scales W, s and ybar are those of these rows.
func FitRows(d *Data, w []float64, rows []int32, lambda float64, o Options) (Fit, error) {
	return Solve(OfRows(d, w, rows, o.Threads()), lambda, o)
}

// Fingerprint returns a hash of the exact bits of a coefficient vector.
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
