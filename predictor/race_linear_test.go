package predictor

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// linear is a ridge on standardised columns. Rows weigh 1/ms^2, so that it
// minimises relative errors as the trees do; nothing it predicts is below the
// smallest target it saw.
type linear struct {
	mean, scale []float64
	beta        []float64 // the last is the intercept
	least       float64
}

// lambdas are the penalties tried, as shares of the weight of all rows.
var lambdas = []float64{1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1}

// newLinear chooses lambda by the error on the last fifth of the rows (rows stand
// in time order inside each run) and fits all rows with it.
func newLinear(t *columns, rows []int, w []float64) (*linear, error) {
	early, late := splitTail(t, rows, 0.8)
	best, bestError := lambdas[0], math.Inf(1)
	if len(early) > 0 && len(late) > 0 {
		part := newGram(t, rows, w, inSet(early))
		for _, lambda := range lambdas {
			l, err := part.solve(lambda)
			if err != nil {
				continue
			}
			sum := 0.0
			for _, i := range late {
				sum += math.Abs(l.Predict(t, i)/t.Y[i] - 1)
			}
			if sum < bestError {
				best, bestError = lambda, sum
			}
		}
	}
	return newGram(t, rows, w, nil).solve(best)
}

func inSet(rows []int) map[int]bool {
	in := make(map[int]bool, len(rows))
	for _, i := range rows {
		in[i] = true
	}
	return in
}

// gram is the sums of a weighted least squares.
type gram struct {
	m           int // columns and intercept
	a, b        []float64
	mean, scale []float64
	least       float64
	weight      float64
}

// newGram sums the rows that only holds (nil: all).
func newGram(t *columns, rows []int, w []float64, only map[int]bool) *gram {
	p := len(t.X)
	g := &gram{m: p + 1, a: make([]float64, (p+1)*(p+1)), b: make([]float64, p+1), least: math.Inf(1)}
	var use []int
	var weights []float64
	for k, i := range rows {
		if only != nil && !only[i] {
			continue
		}
		weight := 1 / (t.Y[i] * t.Y[i])
		if w != nil {
			weight *= w[k]
		}
		use, weights = append(use, i), append(weights, weight)
		g.weight += weight
		g.least = math.Min(g.least, t.Y[i])
	}
	for c := range t.X {
		mean, scale := moments(t.X[c], use)
		g.mean, g.scale = append(g.mean, mean), append(g.scale, scale)
	}
	x := make([]float64, p+1)
	for k, i := range use {
		g.fill(t, i, x)
		for r := range x {
			for c := range r + 1 {
				g.a[r*g.m+c] += float64(weights[k] * x[r] * x[c])
			}
			g.b[r] += float64(weights[k] * x[r] * t.Y[i])
		}
	}
	return g
}

func (g *gram) fill(t *columns, i int, x []float64) {
	for c := range t.X {
		x[c] = standardised(t.X[c][i], g.mean[c], g.scale[c])
	}
	x[g.m-1] = 1
}

// solve penalises every column, the intercept not.
func (g *gram) solve(lambda float64) (*linear, error) {
	a := slices.Clone(g.a)
	for r := range g.m - 1 {
		a[r*g.m+r] += float64(lambda * g.weight)
	}
	if rank := stat.Cholesky(a, g.m); rank < g.m {
		return nil, fmt.Errorf("model %s: lambda %g: got %d of %d independent columns", nameLinear, lambda, rank, g.m)
	}
	beta := slices.Clone(g.b)
	stat.CholeskySolve(a, g.m, beta)
	return &linear{mean: g.mean, scale: g.scale, beta: beta, least: g.least}, nil
}

// Predict implements Model.
func (l *linear) Predict(t *columns, i int) float64 {
	p := len(l.mean)
	sum := l.beta[p]
	for c := range p {
		sum += float64(l.beta[c] * standardised(t.X[c][i], l.mean[c], l.scale[c]))
	}
	return math.Max(l.least, sum)
}
