package autoscale

// This file makes the intervals of fitted parameters.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// intervals sets the 95 % intervals of f and the share of information from the prior, from the
// curvature of the objective at solution z.
func (p *problem) intervals(f *fitted, z []float64) {
	n, moving := len(f.X), len(p.basis)
	f.Lo = make([]float64, n)
	f.Hi = make([]float64, n)
	f.Held = make([]bool, n)
	f.PriorPart = make([]float64, n)
	var cov []float64
	if a, _, _, ok := p.normal(z); ok {
		cov = stat.Inverse(a, moving)
	}
	if cov != nil {
		f.Cov = p.parameterCovariance(f.X, cov, p.residualVariance(z))
	}
	for j := range n {
		v := make([]float64, moving) // share of parameter j in each moving direction
		u := make([]float64, moving) // cov v
		free := 0.0                  // share of parameter j that may move, 0 to 1
		for a := range v {
			v[a] = p.basis[a][j]
			free += v[a] * v[a]
		}
		f.Lo[j] = math.NaN()
		f.Hi[j] = math.NaN()
		f.PriorPart[j] = 1
		f.Held[j] = free < heldShare
		if f.Held[j] || cov == nil {
			continue
		}
		variance := 0.0 // of the parameter's logarithm
		pulled := 0.0   // part of the variance that the prior's pull removes
		for a := range v {
			for b := range v {
				u[a] += cov[a*moving+b] * v[b]
			}
			variance += v[a] * u[a]
			pulled += u[a] * u[a] / (p.o.Pull * p.o.Pull)
		}
		if p.prior == nil {
			pulled = 0
		}
		half := stat.Normal95 * math.Sqrt(variance*p.residualVariance(z))
		f.Lo[j] = f.X[j] * math.Exp(-half)
		f.Hi[j] = f.X[j] * math.Exp(half)
		// What may not move has its value from the prior.
		f.PriorPart[j] = math.Min(1, 1-free+free*pulled/variance)
	}
}

// parameterCovariance returns the covariance of parameters x, to first order, from cov, that of the
// moving directions in log parameters, times spread; nil where it is too large for a number.
func (p *problem) parameterCovariance(x, cov []float64, spread float64) [][]float64 {
	moving := len(p.basis)
	out := make([][]float64, len(x))
	for i := range out {
		out[i] = make([]float64, len(x))
		for j := range out[i] {
			for a := range moving {
				for b := range moving {
					out[i][j] += p.basis[a][i] * cov[a*moving+b] * p.basis[b][j]
				}
			}
			out[i][j] *= spread * x[i] * x[j]
			if result.OrNull(out[i][j]) == nil {
				return nil
			}
		}
	}
	return out
}

// residualVariance returns the variance of the residuals if the windows have no standard errors;
// otherwise it is 1 by construction.
func (p *problem) residualVariance(z []float64) float64 {
	r := make([]float64, p.size())
	n := 2 * len(p.windows)
	independent := float64(n) * p.share()
	if !p.power || independent <= float64(len(z)) || !p.residuals(z, r) {
		return 1
	}
	var sum, weights float64
	for _, v := range r[:n] {
		_, w := p.robust(v)
		sum += w * w * v * v
		weights += w
	}
	return sum / weights * independent / (independent - float64(len(z)))
}

// heldShare: a parameter counts as held if a smaller share of it may move.
const heldShare = 0.5
