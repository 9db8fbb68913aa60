package autoscale

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// This file minimises by Levenberg-Marquardt on weighted residuals; robust losses are minimised by
// reweighting.

// Lengths in log parameters.
const (
	lmStep    = 1e-5 // step of the differences for derivatives
	lmLargest = 1.5  // longest step of the search
)

// effort is the stopping rule of a search.
type effort struct {
	iterations int     // at most
	tol        float64 // relative decrease of the objective below which the search ends
}

var (
	thorough = effort{iterations: 60, tol: 1e-10} // the fit itself
	scouting = effort{iterations: 15, tol: 1e-4}  // a starting point of the fit
	tracking = effort{iterations: 6, tol: 1e-4}   // a refit that begins at the previous one
)

// marquardt returns the point that the search for a minimum reaches from z.
func (p *problem) marquardt(z []float64, e effort) []float64 {
	z = slices.Clone(z)
	if len(z) == 0 {
		return z
	}
	damp := 1e-3
	for range e.iterations {
		normal, gradient, loss, ok := p.normal(z)
		if !ok {
			return z
		}
		// Damp more until a step lowers the objective.
		next, better := loss, false
		for ; damp < 1e12 && !better; damp *= 8 {
			step := solveDamped(normal, gradient, damp)
			for k := range step {
				step[k] += z[k]
			}
			if next = p.objective(step); next < loss {
				z, better = step, true
			}
		}
		damp = math.Max(damp/80, 1e-12) // a tenth of that of the step, after the factor of 8 that followed it
		if !better || loss-next <= e.tol*loss {
			return z
		}
	}
	return z
}

// normal returns the matrix J'WJ (row by row), the gradient J'Wr and the objective at z; false if
// the model has no answer.
func (p *problem) normal(z []float64) (a, g []float64, loss float64, ok bool) {
	jacobian, residuals := p.jacobian(z)
	if jacobian == nil {
		return nil, nil, 0, false
	}
	n := len(z)
	a = make([]float64, n*n)
	g = make([]float64, n)
	for i, v := range residuals {
		weight := 1.0
		if i < 2*len(p.windows) { // two residuals a window; the others are of the prior, which has no outliers
			_, weight = p.robust(v)
			weight *= p.share()
		}
		row := jacobian[i*n : i*n+n]
		for x := range n {
			g[x] += weight * row[x] * v
			for y := range n {
				a[x*n+y] += weight * row[x] * row[y]
			}
		}
	}
	return a, g, p.loss(residuals), true
}

// solveDamped returns -(A + damp*diag(A))^-1 g, shortened to lmLargest.
func solveDamped(a, g []float64, damp float64) []float64 {
	n := len(g)
	l := slices.Clone(a)
	step := make([]float64, n)
	for i := range n {
		l[i*n+i] += damp*a[i*n+i] + 1e-300 // not 0 for a direction without any effect
		step[i] = -g[i]
	}
	if stat.Cholesky(l, n) < n {
		return make([]float64, n)
	}
	stat.CholeskySolve(l, n, step)
	if length := math.Abs(step[largest(step)]); length > lmLargest {
		for k := range step {
			step[k] *= lmLargest / length
		}
	}
	return step
}
