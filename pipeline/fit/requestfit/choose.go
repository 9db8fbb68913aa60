package requestfit

// This file chooses the loads whose measurement would add most to what a prior knows of the
// coefficients.

import (
	"context"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
	"gonum.org/v1/gonum/mat"
)

// Choose returns the places of the n most informative loads, chosen greedily by D-optimality: each
// next load maximises the determinant of the information matrix, which starts as the prior's. It
// uses the requests of the loads, not their measurements. A load that makes a server with the
// prior's coefficients run out of KV blocks is never chosen, because its times depend more on the
// size of the cache than on step times. Errors are those of the simulator.
func Choose(ctx context.Context, loads []*Load, prior *Prior, n int, o Options) ([]int, error) {
	l := &learner{Options: o, ctx: ctx}
	var err error
	if l.m, err = newModel(prior, loads[0].Deployment); err != nil {
		return nil, err
	}
	grams := make([]*ridge.Gram, len(loads)) // the information that each load would add
	taken := make([]bool, len(loads))
	err = par.Try(ctx, o.Workers, len(loads), func(i int) error {
		cfg, err := loads[i].config(l.m, l.m.mean)
		if err != nil {
			return err
		}
		means, err := sim.MeansOf(cfg, loads[i].Requests)
		if err != nil {
			return err
		}
		// A load that makes requests be preempted is marked as taken, so that it is never chosen.
		taken[i] = means.Preemptions > 0
		if taken[i] {
			return nil
		}
		// The simulated means take the place of measured ones: what matters are the derivatives.
		point := Point{TTFTMs: means.TTFTMs, TPOTMs: means.TPOTMs}
		score, err := point.assess(cfg, loads[i].Requests, l.m.theta(loads[i], l.m.mean), true)
		if err == nil {
			grams[i] = l.freeColumns(loads[i], score.Blocks[0], 1/(pointTPOTSD*pointTPOTSD))
		}
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	// Greedy choice: known is the information of the prior and of the loads chosen so far.
	known := append([]float64(nil), l.m.precision...)
	var chosen []int
	for len(chosen) < min(n, len(loads)) {
		best, most := -1, math.Inf(-1)
		for i, gram := range grams {
			if taken[i] {
				continue
			}
			if det := logDet(known, gram.G, len(l.m.free)); det > most {
				best, most = i, det
			}
		}
		if best < 0 { // none is left
			break
		}
		taken[best] = true
		chosen = append(chosen, best)
		addTo(known, grams[best].G)
	}
	return chosen, nil
}

// logDet returns the log determinant of a + b, two n x n matrices; -Inf if the sum is not positive
// definite.
func logDet(a, b []float64, n int) float64 {
	sum := slices.Clone(a)
	addTo(sum, b)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, sum)) {
		return math.Inf(-1)
	}
	return chol.LogDet()
}
