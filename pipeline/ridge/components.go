package ridge

// This file fits in principal components: combinations of columns that the rows hardly vary along keep
// their prior.

import (
	"math"
)

// trailingWeight is the penalty of a principal component that is dropped, relative to one that is
// kept.
const trailingWeight = 1e6

// Components restricts the fit to the leading principal components of a Gram matrix's scaled
// columns: the fewest that have the given share of the variance (spec#principal-components). It
// returns how many. The others stay in the problem with a penalty that keeps them at the prior, so
// that the sign constraints are satisfied as usual. Errors: ErrEigen.
func (o *Options) Components(g *Gram, share float64) (int, error) {
	p := g.P
	sd := make([]float64, p)
	for j := range sd {
		sd[j] = math.Sqrt(g.G[j*p+j] / g.W)
	}
	idx := nonZeroColumns(sd)
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
	// The components with the smallest eigenvalues are dropped while their variances add up to at most
	// 1-share of the whole, the trace, which is m.
	left := (1 - share) * float64(m)
	tail := 0 // number of dropped components
	for tail < m-1 && values[tail] <= left {
		left -= values[tail]
		tail++
	}
	// The penalty matrix is Penalty on the diagonal, plus trailingWeight along every dropped component. It is
	// stated for coefficients, whose unit is ybar/sd.
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
