package requestfit

// This file makes Gauss-Newton steps. For a given schedule the times of a request are linear in the
// coefficients, so one replay gives residuals and exact derivatives; a step solves the normal
// equations of all replays together with the prior, and damping shortens steps that change the
// schedule too much.

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// step returns the values of the free coefficients after one Gauss-Newton step from a candidate: the
// most likely values by the sum of three sets of normal equations, of the candidate's replays, of the
// regression on clients' stamps (l.stamps, if any) and of the prior. With damping > 0 one more
// equation for each coefficient pulls it to its present value, which shortens the step
// (Levenberg-Marquardt).
func (l *learner) step(from *state, replays evidence, damping float64) ([]float64, error) {
	n := len(l.m.free)
	equations := ridge.New(n)
	equations.AddScaled(1/(replays.variance*replays.design), replays.sum)
	if l.stamps != nil {
		equations.AddScaled(1/l.stamps.design, l.stamps.sum)
	}
	column := make([]float64, n)
	for k := range n {
		if weight := damping * (equations.G[k*n+k] + l.m.precision[k*n+k]); weight > 0 {
			column[k] = 1
			equations.AddRow(weight, column, from.values[k])
			column[k] = 0
		}
	}
	if !(equations.Q > 0) {
		// Nothing was measured: the most likely values are those of the prior.
		return append([]float64(nil), l.m.mean...), nil
	}
	// Q is the measured sum of squares, so that lambda = 1/Q gives the prior its own weight:
	// ridge.Solve minimises relative to it.
	options := ridge.DefaultOptions(n)
	options.Prior, options.Precision = l.m.mean, l.m.precision
	fit, err := ridge.Solve(equations, 1/equations.Q, options)
	return fit.Beta, err
}

// leastStepGain is the share of the objective by which a step has to reduce it for another one to follow.
const leastStepGain = 0.01

// newton repeats Gauss-Newton steps until the objective falls by less than 1 %, or until the passes
// or the budget are used up, and returns the best candidate.
func (l *learner) newton(best *state) (*state, evidence, error) {
	l.passes = append(l.passes, result.RequestPass{Name: "start", Objective: best.objective})
	damping := 0.0
	for pass := 0; pass < l.Passes && !l.isSpent(); pass++ {
		equations := l.weigh(best)
		next, err := l.better(best, equations, &damping)
		if err != nil {
			return nil, evidence{}, err
		}
		if next == nil {
			break
		}
		gain := best.objective - next.objective
		best = next
		l.passes = append(l.passes, result.RequestPass{Name: "gauss-newton", Objective: best.objective, Damping: damping})
		if gain < leastStepGain*best.objective {
			break
		}
	}
	return best, l.weigh(best), nil
}

// leastDamping is the damping tried after an undamped step failed. Beyond mostDamping a step is too
// small to matter.
const leastDamping, mostDamping = 0.1, 10

// better returns a candidate with a lower objective than from; nil if there is none. It starts with a
// tenth of the last successful damping and increases it tenfold until a step succeeds.
func (l *learner) better(from *state, equations evidence, damping *float64) (*state, error) {
	for tried := *damping / 10; tried <= mostDamping; tried = math.Max(leastDamping, 10*tried) {
		values, err := l.step(from, equations, tried)
		if err != nil {
			return nil, err
		}
		next, err := l.assess(l.loads, l.twins, values, 0, true)
		if err != nil {
			return nil, err
		}
		if next.objective < from.objective {
			*damping = tried
			return next, nil
		}
	}
	return nil, nil
}

// evidence is the normal equations of a candidate. Errors of requests close in time are correlated,
// so that `design` rows count as one independent row (design effect): sum divided by variance and design
// is the information of the rows.
type evidence struct {
	sum      *ridge.Gram          // of all time blocks
	variance float64              // of the error of one row
	design   float64              // rows that count as one
	errors   [numRowKinds]float64 // typical errors of the regression's rows, by kind; 0 of replays
}

// Lower bounds of evidence: clocks are no better than 0.3 %, and the three rows of a request
// (TTFT, span, E2E) depend on two independent times.
const (
	leastVariance = 1e-5
	leastDesign   = 1.5
)

// weigh returns the sums of the equations of a candidate, with estimates of their variance and
// design effect.
func (l *learner) weigh(from *state) evidence {
	n := len(l.m.free)
	out := evidence{sum: ridge.New(n)}
	for _, block := range from.blocks {
		out.sum.Add(block)
	}
	rows := float64(out.sum.N) / float64(max(1, l.Twins)) // a block is the mean of the twins, but counts the rows of all
	out.variance = math.Max(leastVariance, out.sum.SSE(from.values)/math.Max(1, rows))
	out.design = l.m.design(from.blocks, from.values, out.variance)
	if l.loads[0].Point != nil { // the error of a point is known beforehand
		out.variance = pointTPOTSD * pointTPOTSD
		out.design = 1
	}
	return out
}
