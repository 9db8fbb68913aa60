package learn

import (
	"context"
	"math"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/pipeline/ridge/gram"
)

// Choose picks the n loads that would teach most together, one after the other: the
// largest determinant of what is known after them, with the prior (D-optimality). Only
// what is asked of the loads counts, not what was measured. Errors are those of the
// simulator.
func Choose(ctx context.Context, loads []*Load, prior *Prior, n int, o Options) ([]int, error) {
	l := &learner{Options: o, ctx: ctx}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	grams := make([]*gram.Gram, len(loads))
	for i, load := range loads {
		asked := *load
		asked.Point = &Point{TTFTMs: 1, TPOTMs: 1}
		cfg, err := asked.config(l.m, l.m.mean)
		if err != nil {
			return nil, err
		}
		theta := l.theta(&asked, l.m.mean)
		if *asked.Point, err = predicted(cfg, asked.Requests); err != nil {
			return nil, err
		}
		score, err := asked.Point.assess(cfg, asked.Requests, theta, true)
		if err != nil {
			return nil, err
		}
		grams[i] = l.freeColumns(&asked, score.Blocks[0], 1/(pointTPOTSD*pointTPOTSD))
	}
	known := append([]float64(nil), l.m.precision...)
	var chosen []int
	taken := make([]bool, len(loads))
	for len(chosen) < min(n, len(loads)) {
		best, most := -1, math.Inf(-1)
		for i, g := range grams {
			if taken[i] {
				continue
			}
			if d := logDet(known, g.G, len(l.m.free)); d > most {
				best, most = i, d
			}
		}
		if best < 0 {
			break
		}
		taken[best], chosen = true, append(chosen, best)
		for k, v := range grams[best].G {
			known[k] += v
		}
	}
	return chosen, nil
}

// logDet is the log determinant of a + b; -Inf when it is not positive definite.
func logDet(a, b []float64, n int) float64 {
	sum := make([]float64, len(a))
	for k := range a {
		sum[k] = a[k] + b[k]
	}
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, sum)) {
		return math.Inf(-1)
	}
	return chol.LogDet()
}
