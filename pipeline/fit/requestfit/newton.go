package requestfit

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// step is the likeliest candidate by the local quadratic, damped.
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

// newton descends from a candidate until the objective no longer falls by a
// hundredth, or the passes are over.
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
		if gain < 0.01*best.objective {
			break
		}
	}
	return best, l.weigh(best), nil
}

// Damping begins at leastDamping where the whole step fails, and ends at mostDamping,
// where a step has become too small to matter.
const leastDamping, mostDamping = 0.1, 10

// better is a candidate with a lower objective, nil when none is found.
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

// evidence is the equations of all blocks at a candidate: their sum, the variance of
// one row, and how many rows count as one because errors of one stretch of time are
// correlated.
type evidence struct {
	sum      *ridge.Gram
	variance float64
	design   float64
	errors   [numRowKinds]float64 // of the regression's rows
}

// leastVariance of a relative error, and leastDesign of rows: no clock is better
// than 0.3 %, and TTFT, span and E2E of a request are three views of two times.
const (
	leastVariance = 1e-5
	leastDesign   = 1.5
)

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
