package requestfit

// This file has the state of a fit to loads (a recording's requests, or a benchmark's load level) and its
// objective: how far replays with candidate coefficients are from the measured times (learner.assess).

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
)

// Options of a fit of loads.
type Options struct {
	Passes   int   // Gauss-Newton passes through the simulator, at most
	Twins    int   // jittered copies of every load; the objective is the mean over them
	JitterUs int64 // largest shift of a send time in a twin
	BlockUs  int64 // length of time blocks; errors of requests of one block count as correlated
	Seed     int64
	Workers  int
	Search   string  // SearchNone | SearchNelderMead | SearchSPSA | SearchCMAES
	Calls    int     // evaluations of the objective that a search may use
	Steps    int64   // simulated steps after which no further pass or search evaluation begins; 0: no limit
	Holdout  []*Load // decide whether the result of a search is kept; without them there is no search

	valuesAlone bool // of a fit to load levels: nothing asks for the share of cached tokens that it would find
}

// DefaultOptions returns the options that the command line has by default.
func DefaultOptions() Options {
	return Options{
		Passes:   12,
		Twins:    3,
		JitterUs: 1000,
		BlockUs:  20e6,
		Seed:     1,
		Search:   SearchNelderMead,
		Calls:    120,
	}
}

// Searches of the learned directions after Gauss-Newton.
const (
	SearchNone       = "none"
	SearchNelderMead = "nelder-mead"
	SearchSPSA       = "spsa"
	SearchCMAES      = "cmaes"
)

// learner is a fit of loads in progress.
type learner struct {
	Options
	ctx    context.Context
	loads  []*Load
	twins  [][][]sim.Request // by load and twin
	m      *model
	seen   *evidence // of the regression on clients' stamps; nil: none
	stamps *evidence // seen while Gauss-Newton steps include it, else nil
	passes []result.RequestPass
	steps  atomic.Int64 // simulated
	calls  int          // evaluations of the objective so far
}

// isSpent reports whether the budget of simulated steps is used up.
func (l *learner) isSpent() bool { return l.Steps > 0 && l.steps.Load() >= l.Steps }

// state is a candidate, the values of the free terms, with the objective and the normal equations
// of its replays.
type state struct {
	values    []float64
	objective float64
	blocks    []*ridge.Gram // by load and time, the mean of the twins, the free columns alone
	twins     float64       // standard deviation of the objective over twins
}

// assess replays all twins of all loads (copies with jittered send times) with a candidate and
// returns its state. Twins even out that a schedule changes abruptly with the times of arrival.
// derivatives asks for the normal equations too. Without them a replay ends as soon as the objective is
// certain to exceed bound; 0 is no bound.
func (l *learner) assess(loads []*Load, twins [][][]sim.Request, values []float64, bound float64, derivatives bool) (*state, error) {
	parts := l.parts(loads, twins, bound)
	err := par.Try(l.ctx, l.Workers, len(parts), func(k int) error {
		p := &parts[k]
		load := loads[p.load]
		if load.Point != nil && derivatives {
			means, err := load.meansAt(l.m, values, l.ctx.Done())
			if err == nil {
				p.scores = []*sim.Score{load.Point.compare(means, l.m.theta(load, values), derivatives)}
			}
			return err
		}
		cfg, err := load.config(l.m, values)
		if err != nil {
			return err
		}
		cfg.Done = l.ctx.Done()
		if load.Point != nil {
			score, err := load.Point.assess(cfg, load.Requests, l.m.theta(load, values), derivatives)
			p.scores = []*sim.Score{score}
			return err
		}
		o := sim.Options{}
		if derivatives {
			o.BlockUs, o.Theta = l.BlockUs, l.m.theta(load, values)
		} else if bound > 0 {
			o.Bound = bound * float64(len(loads))
		}
		_, p.scores, err = sim.AssessTwins(cfg, p.twins, load.Seen, o)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	// Collect the scores of each load, then average over its twins and over the loads.
	scores := make([][]*sim.Score, len(loads))
	for _, p := range parts {
		scores[p.load] = append(scores[p.load], p.scores...)
	}
	l.calls++
	total := &state{values: values}
	for i, load := range loads {
		mean := 0.0
		variance := 0.0
		// A load level has one score. A replay that ended at the bound may have fewer scores than twins:
		// its mean is then a lower bound.
		twinCount := 1.0
		if load.Point == nil {
			twinCount = float64(len(twins[i]))
		}
		for _, score := range scores[i] {
			l.steps.Add(score.Steps)
			mean += score.Objective / twinCount
		}
		for _, score := range scores[i] {
			deviation := score.Objective - mean
			variance += deviation * deviation / float64(len(scores[i]))
		}
		total.objective += mean / float64(len(loads))
		total.blocks = append(total.blocks, l.merge(load, scores[i])...)
		total.twins += math.Sqrt(variance) / float64(len(loads))
	}
	return total, nil
}

// part is what one worker replays: one twin of a load, or all of them if there is a bound, because
// a candidate that exceeds it on the first twin needs no replay of the others.
type part struct {
	load   int
	twins  [][]sim.Request
	scores []*sim.Score
}

// parts returns the replays of all loads divided among workers.
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

// merge returns the normal equations of a load by time block, averaged over its twins. N counts the rows of
// all twins.
func (l *learner) merge(load *Load, scores []*sim.Score) []*ridge.Gram {
	var out []*ridge.Gram
	for _, score := range scores {
		for block, equations := range score.Blocks {
			if equations == nil {
				continue
			}
			for len(out) <= block {
				out = append(out, ridge.New(len(l.m.free)))
			}
			out[block].Add(l.freeColumns(load, equations, 1/float64(len(scores))))
		}
	}
	return out
}

// freeColumns returns the normal equations of the free columns, with their weights multiplied by c.
// What the fixed columns contribute is subtracted from the target.
func (l *learner) freeColumns(load *Load, b *ridge.Gram, c float64) *ridge.Gram {
	fixed := l.m.theta(load, make([]float64, len(l.m.free)))
	n := len(l.m.free)
	out := &ridge.Gram{
		P: n,
		N: b.N,
		W: c * b.W,
		Q: c * b.SSE(fixed),
		B: make([]float64, n),
		G: make([]float64, n*n),
	}
	for k, j := range l.m.free {
		row := b.G[j*b.P : (j+1)*b.P]
		out.B[k] = c * (b.B[j] - ridge.Dot(row, fixed))
		for i, jj := range l.m.free {
			out.G[k*n+i] = c * row[jj]
		}
	}
	return out
}

// twinsOf returns copies of a load with jittered send times. Requests of a closed loop have no send
// times of their own, so its copies are equal to the load.
func twinsOf(l *Load, o Options) [][]sim.Request {
	return sim.Twins(l.Requests, max(1, o.Twins), o.JitterUs, o.Seed)
}
