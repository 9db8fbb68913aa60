package learn

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/sim"
)

// Options say how coefficients are learned.
type Options struct {
	Passes   int // Gauss-Newton passes through the simulator, at most
	Twins    int // jittered copies of every load that an objective is the mean of
	JitterUs int64
	BlockUs  int64 // length of the time blocks whose requests are taken as dependent
	Seed     int64
	Workers  int
	Search   string  // SearchNone | SearchNelderMead | SearchSPSA | SearchCMAES
	Calls    int     // objectives a search may ask for
	Steps    int64   // simulated, after which no pass and no search begins anything new; 0: no limit
	Holdout  []*Load // judge a search; without them nothing is searched
}

// DefaultOptions are those of the command line.
func DefaultOptions() Options {
	return Options{Passes: 12, Twins: 3, JitterUs: 1000, BlockUs: 20e6, Seed: 1, Search: SearchNelderMead, Calls: 120}
}

// Searches of the learned directions after Gauss-Newton.
const (
	SearchNone       = "none"
	SearchNelderMead = "nelder-mead"
	SearchSPSA       = "spsa"
	SearchCMAES      = "cmaes"
)

// Pass is one step of the fit.
type Pass struct {
	Name      string
	Objective float64 // mean over loads and twins, dimensionless
	Damping   float64 // of the step that led here
}

// learner is one fit under way.
type learner struct {
	Options
	ctx    context.Context
	loads  []*Load
	twins  [][][]sim.Request // by load and twin
	m      *model
	seen   *evidence // of the regression, once it is done; nil: none
	stamps *evidence // the same where steps are to keep to it
	passes []Pass
	steps  atomic.Int64 // simulated
	calls  int          // objectives
}

// state is a candidate and what its replays said.
type state struct {
	values    []float64
	objective float64
	blocks    []*ridge.Gram // by load and time, the mean of the twins, the free columns alone
	twins     float64       // standard deviation of the objective over twins
}

// spent says that the budget is over.
func (l *learner) spent() bool { return l.Steps > 0 && l.steps.Load() >= l.Steps }

// assess replays all loads with a candidate. Without derivatives it stops where
// the objective is certain to exceed bound (0: never).
func (l *learner) assess(loads []*Load, twins [][][]sim.Request, values []float64, bound float64, derivatives bool) (*state, error) {
	parts := l.parts(loads, twins, bound)
	err := par.Try(l.ctx, l.Workers, len(parts), func(k int) error {
		p := &parts[k]
		load := loads[p.load]
		cfg, err := load.config(l.m, values)
		if err != nil {
			return err
		}
		cfg.Done = l.ctx.Done()
		if load.Point != nil {
			score, err := load.Point.assess(cfg, load.Requests, l.theta(load, values), derivatives)
			p.scores = []*sim.Score{score}
			return err
		}
		o := sim.Options{}
		if derivatives {
			o.BlockUs, o.Theta = l.BlockUs, l.theta(load, values)
		} else if bound > 0 {
			o.Bound = bound * float64(len(loads))
		}
		_, p.scores, err = sim.AssessTwins(cfg, p.twins, load.Seen, o)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	scores := make([][]*sim.Score, len(loads))
	for _, p := range parts {
		scores[p.load] = append(scores[p.load], p.scores...)
	}
	l.calls++
	s := &state{values: values}
	for i, load := range loads {
		mean, variance, of := 0.0, 0.0, 1.0
		if load.Point == nil {
			of = float64(len(twins[i]))
		}
		for _, score := range scores[i] {
			l.steps.Add(score.Steps)
			mean += score.Objective / of
		}
		for _, score := range scores[i] {
			d := score.Objective - mean
			variance += d * d / float64(len(scores[i]))
		}
		s.objective += mean / float64(len(loads))
		s.blocks = append(s.blocks, l.merge(load, scores[i])...)
		s.twins += math.Sqrt(variance) / float64(len(loads))
	}
	return s, nil
}

// part is what one worker replays: a twin of a load, or, where a candidate that loses on the
// first is not replayed on the others, all of them.
type part struct {
	load   int
	twins  [][]sim.Request
	scores []*sim.Score
}

func (l *learner) parts(loads []*Load, twins [][][]sim.Request, bound float64) (out []part) {
	for i, load := range loads {
		if bound > 0 || load.Point != nil {
			out = append(out, part{load: i, twins: twins[i]})
			continue
		}
		for k := range twins[i] {
			out = append(out, part{load: i, twins: twins[i][k : k+1]})
		}
	}
	return out
}

// merge are the time blocks of a load, the mean of its twins.
func (l *learner) merge(load *Load, scores []*sim.Score) []*ridge.Gram {
	var out []*ridge.Gram
	for _, score := range scores {
		for at, b := range score.Blocks {
			if b == nil {
				continue
			}
			for len(out) <= at {
				out = append(out, ridge.New(len(l.m.free)))
			}
			out[at].Add(l.freeColumns(load, b, 1/float64(len(scores))))
		}
	}
	return out
}

// theta are a candidate's coefficients on the load's deployment, in the simulator's
// columns.
func (l *learner) theta(load *Load, values []float64) []float64 {
	c := l.m.columns
	out := make([]float64, c.step+c.overhead+c.egress+1)
	set := features.On(l.m.setOf(values), load.Deployment)
	for j := range set.Beta {
		out[j] = set.Beta[j].Value
	}
	for t, target := range delayTargets {
		for j, v := range set.AlphaModel(target).Coefficients {
			out[c.step+t*c.overhead+j] = v.Value
		}
	}
	return out
}

// freeColumns is a Gram of all columns as one of the free ones, weights times c;
// what the others add is taken from the target.
func (l *learner) freeColumns(load *Load, b *ridge.Gram, c float64) *ridge.Gram {
	fixed := l.theta(load, make([]float64, len(l.m.free)))
	n := len(l.m.free)
	out := &ridge.Gram{P: n, N: b.N, W: c * b.W, Q: c * b.SSE(fixed), B: make([]float64, n), G: make([]float64, n*n)}
	for k, j := range l.m.free {
		row := b.G[j*b.P : (j+1)*b.P]
		out.B[k] = c * (b.B[j] - ridge.Dot(row, fixed))
		for i, jj := range l.m.free {
			out.G[k*n+i] = c * row[jj]
		}
	}
	return out
}

// evidence is what the rows of all blocks say at the candidate: their sum, the
// variance of one row, and how many rows count as one because the errors of a
// stretch of time go together.
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
	if e.design = l.m.design(s.blocks, s.values, e.variance); l.loads[0].Point != nil { // a point's error is known beforehand
		e.variance, e.design = pointTPOTSD*pointTPOTSD, 1
	}
	return e
}

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
	l.passes = append(l.passes, Pass{Name: "start", Objective: best.objective})
	damping := 0.0
	for pass := 0; pass < l.Passes && !l.spent(); pass++ {
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
		l.passes = append(l.passes, Pass{Name: "gauss-newton", Objective: best.objective, Damping: damping})
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
