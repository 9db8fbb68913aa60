package requestfit

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// step returns the values of the free coefficients after one Gauss-Newton step from the candidate s:
// the most likely values by the sum of three sets of normal equations, of the candidate's replays
// (e), of the regression on clients' stamps (l.stamps, if any) and of the prior. damping > 0 adds rows
// that hold every coefficient at its present value, which shortens the step (Levenberg-Marquardt).
func (l *learner) step(s *state, e evidence, damping float64) ([]float64, error) {
	n := len(l.m.free)
	g := ridge.New(n)
	g.AddScaled(1/(e.variance*e.design), e.sum)
	if l.stamps != nil {
		g.AddScaled(1/l.stamps.design, l.stamps.sum)
	}
	x := make([]float64, n)
	for k := range n {
		if h := damping * (g.G[k*n+k] + l.m.precision[k*n+k]); h > 0 {
			x[k] = 1
			g.AddRow(h, x, s.values[k])
			x[k] = 0
		}
	}
	if !(g.Q > 0) {
		return append([]float64(nil), l.m.mean...), nil
	}
	o := ridge.DefaultOptions(n)
	o.Prior, o.Precision = l.m.mean, l.m.precision
	fit, err := ridge.Solve(g, 1/g.Q, o)
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
		e := l.weigh(best)
		next, err := l.better(best, e, &damping)
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
func (l *learner) better(from *state, e evidence, damping *float64) (*state, error) {
	for d := *damping / 10; d <= mostDamping; d = math.Max(leastDamping, 10*d) {
		values, err := l.step(from, e, d)
		if err != nil {
			return nil, err
		}
		next, err := l.assess(l.loads, l.twins, values, 0, true)
		if err != nil {
			return nil, err
		}
		if next.objective < from.objective {
			*damping = d
			return next, nil
		}
	}
	return nil, nil
}

// evidence is the normal equations of a candidate. Errors of requests close in time are correlated,
// so that `design` rows count as one independent row (design effect).
type evidence struct {
	sum      *ridge.Gram          // of all time blocks
	variance float64              // of the error of one row
	design   float64              // rows that count as one
	errors   [numRowKinds]float64 // of the regression's rows
}

// Lower bounds of evidence: clocks are no better than 0.3 %, and the three rows of a request
// (TTFT, span, E2E) depend on two independent times.
const (
	leastVariance = 1e-5
	leastDesign   = 1.5
)

// weigh returns the sums of the equations of a candidate, with estimates of their variance and
// design effect.
func (l *learner) weigh(s *state) evidence {
	n := len(l.m.free)
	e := evidence{sum: ridge.New(n)}
	for _, b := range s.blocks {
		e.sum.Add(b)
	}
	rows := float64(e.sum.N) / float64(max(1, l.Twins))
	e.variance = math.Max(leastVariance, e.sum.SSE(s.values)/math.Max(1, rows))
	e.design = l.m.design(s.blocks, s.values, e.variance)
	if l.loads[0].Point != nil { // the error of a point is known beforehand
		e.variance = pointTPOTSD * pointTPOTSD
		e.design = 1
	}
	return e
}
