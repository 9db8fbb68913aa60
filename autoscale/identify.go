package autoscale

// This file finds out which directions of the log parameters the windows determine, by the singular
// values of the Jacobian of the residuals, and proposes operating points that would determine the
// others.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// maxCondition is the condition number of the Jacobian by log parameters above which a direction counts as
// not determined, and above which model-tuner's sliding window does not use a fit.
const maxCondition = 1000.0

// identifiability describes which directions of the parameters the windows determine.
type identifiability struct {
	// Condition is the ratio of the largest to the smallest singular value of the Jacobian of
	// relative residuals with respect to log parameters, as in model-tuner
	// (pkg/estimator/identifiability.go@6dba8ce); +Inf if a direction has no effect on the windows.
	Condition float64
	Rank      int // number of singular values above 1/maxCondition of the largest
	Null      []queueDirection
	Sweep     []queuePoint // operating points that would determine all directions
	After     float64      // condition number that windows at these points would have
}

// identify returns what the windows determine at log parameters theta.
func (p *problem) identify(theta []float64) identifiability {
	q := p.withoutPrior()
	q.base = theta
	q.basis = identity(len(theta))
	plain := *q // condition and rank are of relative residuals that are not weighted, as in model-tuner
	plain.sigma = evenSigma(len(p.windows))
	values, _ := plain.directions()
	id := identifiability{Condition: condition(values, len(theta))}
	for _, s := range values {
		if s*maxCondition >= values[0] && s > 0 {
			id.Rank++
		}
	}
	values, vectors := q.directions()
	for k := range theta {
		// Without physical values only the directions within the rank count as known.
		withinRank := p.prior != nil || k < id.Rank
		if k < len(values) && p.isIdentified(values, k) && withinRank {
			continue
		}
		id.Null = append(id.Null, direction(p.o.Flavour.Parameters(), vectors[k]))
	}
	if len(id.Null) > 0 {
		id.Sweep = p.sweep(expsOf(theta))
		id.After = p.conditionOf(id.Sweep, theta)
	}
	return id
}

// isIdentified reports whether the windows determine direction k of log parameters, of which
// values[k] is the singular value, 1 over the standard error from the windows alone. It must be
// within maxCondition of the largest and above 1/Pull, that of the prior.
func (p *problem) isIdentified(values []float64, k int) bool {
	if values[k]*maxCondition < values[0] {
		return false
	}
	return p.prior == nil || values[k]*p.o.Pull >= 1
}

// directions returns the singular values of the weighted Jacobian at z = 0, the largest first, and
// for each the direction of log parameters.
func (p *problem) directions() (values []float64, vectors [][]float64) {
	j, _ := p.jacobian(make([]float64, len(p.basis)))
	n := len(p.basis)
	var svd mat.SVD
	if j == nil || !svd.Factorize(mat.NewDense(len(j)/n, n, j), mat.SVDFullV) {
		return make([]float64, n), p.basis
	}
	var v mat.Dense
	svd.VTo(&v)
	for k := range n {
		col := mat.Col(nil, k, &v)
		if i := largest(col); col[i] < 0 { // a direction and its opposite are the same
			for x := range col {
				col[x] = -col[x]
			}
		}
		vectors = append(vectors, col)
	}
	values = svd.Values(nil)
	for len(values) < n {
		values = append(values, 0)
	}
	return values, vectors
}

// condition returns the condition number of n singular values, +Inf if the smallest is 0 or
// missing.
func condition(values []float64, n int) float64 {
	if len(values) < n || !(values[n-1] > values[0]*1e-15) {
		return math.Inf(1)
	}
	return values[0] / values[n-1]
}

// refuseUnidentified returns an error if the windows do not determine all parameters and there are
// no physical values for the others.
func (p *problem) refuseUnidentified(id *identifiability) error {
	if p.prior != nil || len(id.Null) == 0 {
		return nil
	}
	return trace.Errorf(noWindows,
		"%d windows show %d of %d parameters (condition number %.3g, at most %g): %s", len(p.windows), id.Rank,
		len(p.o.Flavour.Parameters()), id.Condition, maxCondition, directionWords(id.Null)).
		WithHint("record a sweep: " + sweepWords(id.Sweep))
}

// restrictDirections sets the point at which the search starts and the directions in which it
// moves: all, or those that the windows determine.
func (p *problem) restrictDirections(start []float64, id *identifiability) {
	p.base = start
	p.basis = identity(len(start))
	if len(id.Null) == 0 {
		return
	}
	values, vectors := p.withoutPrior().directions()
	p.basis = nil
	for k, v := range vectors {
		if p.isIdentified(values, k) {
			p.basis = append(p.basis, v)
		}
	}
}

// withoutPrior returns a copy of the problem without prior and without scale.
func (p *problem) withoutPrior() *problem {
	q := *p
	q.prior, q.scale = nil, [2]float64{1, 1}
	return &q
}

// direction returns a direction v in the space of parameters as the names and weights of those
// parameters whose weight is at least namedShare.
func direction(names []string, v []float64) queueDirection {
	d := queueDirection{}
	for j, name := range names {
		if math.Abs(v[j]) >= namedShare {
			d.Names = append(d.Names, name)
			d.Weight = append(d.Weight, v[j])
		}
	}
	return d
}

// namedShare is the smallest weight with which a parameter is named in a direction.
const namedShare = 0.003

// directionWords describes directions for an error: by how much the parameters can change together
// without an effect on TTFT and ITL, the one that changes most by 10 %.
func directionWords(null []queueDirection) string {
	var all []string
	for _, d := range null {
		var parts []string
		for i, name := range d.Names {
			parts = append(parts,
				fmt.Sprintf("%s %+.2g %%", name, 100*math.Expm1(0.1*d.Weight[i]/math.Abs(d.Weight[largest(d.Weight)]))))
		}
		if len(parts) == 1 {
			all = append(all, fmt.Sprintf("%s shows in neither TTFT nor ITL", d.Names[0]))
			continue
		}
		all = append(all, strings.Join(parts, " with ")+" changes neither TTFT nor ITL")
	}
	return strings.Join(all, "; ")
}

// sweep proposes operating points for a recording: the windows' median lengths and four times these (a quarter where
// the server rejects such requests), each at 0.2 and 0.8 of the capacity.
func (p *problem) sweep(x []float64) []queuePoint {
	prompt := make([]float64, len(p.windows))
	output := make([]float64, len(p.windows))
	for i := range p.windows {
		prompt[i] = p.windows[i].Shape.Prompt
		output[i] = p.windows[i].Shape.Output
	}
	var out []queuePoint
	for _, times := range []float64{1, 4} {
		lengths := func(times float64) shape {
			return shape{Prompt: math.Round(times * stat.Median(prompt)), Output: math.Round(times * stat.Median(output))}
		}
		s := lengths(times)
		if p.windows[0].Limits.checkLength(s) != nil {
			s = lengths(1 / times)
		}
		m, err := newModel(p.o.Flavour, fromVector(x), s, p.windows[0].Limits)
		if err != nil {
			continue
		}
		for _, load := range []float64{0.2, 0.8} {
			out = append(out, queuePoint{
				PromptTokens: s.Prompt,
				OutputTokens: s.Output,
				RateRPS:      load * m.MaxRateRPS(),
				LoadFrac:     load,
			})
		}
	}
	return out
}

// conditionOf returns the condition number that windows at the points would have, +Inf without points.
func (p *problem) conditionOf(points []queuePoint, theta []float64) float64 {
	if len(points) == 0 {
		return math.Inf(1)
	}
	q := p.withoutPrior()
	q.windows, q.sigma = nil, nil
	for _, at := range points {
		w := window{
			Shape:   shape{Prompt: at.PromptTokens, Output: at.OutputTokens},
			Limits:  p.windows[0].Limits,
			RateRPS: at.RateRPS,
		}
		var ok bool
		w.TTFTMs, w.ITLMs, ok = predictWindow(p.o.Flavour, &w, expsOf(theta), asSized)
		if !ok {
			return math.Inf(1)
		}
		q.windows = append(q.windows, w)
		q.sigma = append(q.sigma, [2]float64{1, 1})
	}
	q.base = theta
	q.basis = identity(len(theta))
	values, _ := q.directions()
	return condition(values, len(theta))
}

// sweepWords describes operating points for a hint.
func sweepWords(points []queuePoint) string {
	var out []string
	for _, p := range points {
		out = append(out, fmt.Sprintf("%.0f/%.0f tokens at %.3g/s", p.PromptTokens, p.OutputTokens, p.RateRPS))
	}
	return strings.Join(out, ", ") + " (prompt/output; 0.2 and 0.8 of capacity)"
}

// jacobian returns the derivatives of the residuals by z, row by row, and the residuals; nil if the
// model has no answer. Differences are central, or forward with p.quick.
func (p *problem) jacobian(z []float64) (j, r []float64) {
	n := len(p.basis)
	rows := p.size()
	r = make([]float64, rows)
	up := make([]float64, rows)
	down := r
	j = make([]float64, rows*n)
	if !p.residuals(z, r) {
		return nil, nil
	}
	below := 0.0
	if !p.quick {
		down = make([]float64, rows)
		below = lmStep
	}
	at := slices.Clone(z)
	for k := range n {
		at[k] = z[k] + lmStep
		ok := p.residuals(at, up)
		if !p.quick {
			at[k] = z[k] - below
			ok = ok && p.residuals(at, down)
		}
		if !ok {
			return nil, nil
		}
		at[k] = z[k]
		for i := range rows {
			j[i*n+k] = (up[i] - down[i]) / (lmStep + below)
		}
	}
	return j, r
}

// informative returns the positions of at most n windows that together determine the parameters of
// flavour f best near x. It adds one window at a time: the one that increases the determinant of
// J'J most, where J is the relative derivatives of TTFT and ITL by log parameters.
func informative(windows []window, f Flavour, x []float64, n int) []int {
	p := evenProblem(windows, new(defaultFit(f)), logsOf(x))
	p.quick = false
	j, _ := p.jacobian(make([]float64, len(x)))
	if j == nil {
		return nil
	}
	parameters := len(x)
	information := mat.NewSymDense(parameters, nil) // J'J of the windows picked so far
	for i := range parameters {
		information.SetSym(i, i, 1e-9) // a determinant even before they determine all parameters
	}
	with := func(i int) *mat.SymDense { // J'J with window i too, whose two rows are of TTFT and ITL
		b := mat.NewSymDense(parameters, nil)
		b.CopySym(information)
		for _, row := range [][]float64{j[2*i*parameters : (2*i+1)*parameters], j[(2*i+1)*parameters : (2*i+2)*parameters]} {
			b.SymRankOne(b, 1, mat.NewVecDense(parameters, row))
		}
		return b
	}
	var picked []int
	for len(picked) < min(n, len(windows)) {
		best := -1
		most := math.Inf(-1)
		for i := range windows {
			if slices.Contains(picked, i) {
				continue
			}
			var c mat.Cholesky
			if c.Factorize(with(i)) && c.LogDet() > most {
				best = i
				most = c.LogDet()
			}
		}
		if best < 0 {
			break
		}
		information = with(best)
		picked = append(picked, best)
	}
	return picked
}

// identity returns n unit vectors.
func identity(n int) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = make([]float64, n)
		out[i][i] = 1
	}
	return out
}

// largest returns the position of the element with the largest absolute value.
func largest(v []float64) int {
	at := 0
	for i := range v {
		if math.Abs(v[i]) > math.Abs(v[at]) {
			at = i
		}
	}
	return at
}
