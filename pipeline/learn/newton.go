package learn

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
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

// learner is one fit under way.
type learner struct {
	Options
	ctx    context.Context
	loads  []*Load
	twins  [][][]sim.Request // by load and twin
	m      *model
	seen   *evidence // of the regression, once it is done; nil: none
	stamps *evidence // the same where steps are to keep to it
	passes []result.RequestPass
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
	scores := make([][]*sim.Score, len(loads))
	for _, p := range parts {
		scores[p.load] = append(scores[p.load], p.scores...)
	}
	l.calls++
	s := &state{values: values}
	for i, load := range loads {
		mean := 0.0
		variance := 0.0
		of := 1.0
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
func (m *model) theta(load *Load, values []float64) []float64 {
	c := m.columns
	out := make([]float64, c.step+c.overhead+c.egress+1)
	set := features.On(m.setOf(values), load.Deployment)
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
	fixed := l.m.theta(load, make([]float64, len(l.m.free)))
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
		e.variance = pointTPOTSD * pointTPOTSD
		e.design = 1
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
	l.passes = append(l.passes, result.RequestPass{Name: "start", Objective: best.objective})
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

// direction is one independent combination of terms, as far as the prior was from
// certain of it.
type direction struct {
	result.LearnedDirection
	vector []float64 // one standard error along it
}

func (d direction) document() result.LearnedDirection { return d.LearnedDirection }

// learnedShare of a direction's variance gone, and the requests, not the prior, decide it.
const learnedShare = 0.9

// directions are the eigenvectors of the information the requests add, in units of
// the prior: most learned first.
func (l *learner) directions(values, post []float64) []direction {
	n := len(l.m.free)
	var chol mat.Cholesky
	if !chol.Factorize(mat.NewSymDense(n, append([]float64(nil), l.m.precision...))) {
		return nil
	}
	var lower mat.TriDense
	chol.LTo(&lower)
	// The prior's precision is LL', so that of L'theta is 1: its posterior covariance
	// is L' post L, with the variances left of the prior's 1 as eigenvalues.
	var half, rest mat.Dense
	half.Mul(lower.T(), mat.NewDense(n, n, append([]float64(nil), post...)))
	rest.Mul(&half, &lower)
	sym := mat.NewSymDense(n, nil)
	for i := range n {
		for j := i; j < n; j++ {
			sym.SetSym(i, j, (rest.At(i, j)+rest.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(sym, true) {
		return nil
	}
	var vectors, terms mat.Dense
	eigen.VectorsTo(&vectors)
	if err := terms.Solve(lower.T(), &vectors); err != nil {
		return nil
	}
	left := eigen.Values(nil)
	_, shows := features.Experiments()
	out := make([]direction, n)
	for k := range n {
		d := &out[k]
		d.Terms, d.LearnedFrac = l.mainTerms(&terms, k), math.Min(1, math.Max(0, 1-left[k]))
		if d.Learned = d.LearnedFrac >= learnedShare; !d.Learned {
			d.Needs = shows[d.Terms[0]]
		}
		d.vector = make([]float64, n)
		for j := range n {
			d.vector[j] = math.Sqrt(math.Max(0, left[k])) * terms.At(j, k)
		}
	}
	return out
}

// namedShare of a direction is what its named terms make of it at least.
const namedShare = 0.8

// mainTerms are those that make up most of a unit move along a direction.
func (l *learner) mainTerms(vectors *mat.Dense, k int) (names []string) {
	n := len(l.m.free)
	type part struct {
		name  string
		share float64
	}
	parts, total := make([]part, n), 0.0
	for j := range n {
		v := vectors.At(j, k) / l.m.sd[j]
		parts[j] = part{l.m.names[j], v * v}
		total += v * v
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.share, a.share) })
	sum := 0.0
	for _, p := range parts {
		if sum >= namedShare*total {
			break
		}
		names = append(names, p.name)
		sum += p.share
	}
	return names
}

// search polishes the learned directions without derivatives, which sees what they
// cannot: schedules that jump, and distributions. The answer is kept only when loads
// held out agree.
func (l *learner) search(from *state, e evidence) (*state, error) {
	if l.Search == SearchNone || l.Search == "" || len(l.Holdout) == 0 {
		return from, nil
	}
	space, err := l.subspace(from.values, e)
	if err != nil || len(space) == 0 {
		return from, err
	}
	best := slices.Clone(from.values)
	least, limit := from.objective, l.calls+l.Calls
	f := func(z []float64) float64 {
		if l.calls >= limit || l.spent() || err != nil {
			return math.Inf(1)
		}
		values := moved(from.values, space, z)
		var s *state
		if s, err = l.assess(l.loads, l.twins, values, 2*least, false); err != nil {
			return math.Inf(1)
		}
		if s.objective < least {
			least, best = s.objective, values
		}
		return s.objective
	}
	if l.minimise(f, len(space)); err != nil {
		return nil, err
	}
	return l.confirmed(from, best)
}

// confirmed is the polished candidate where the loads held out are nearer with it.
func (l *learner) confirmed(from *state, values []float64) (*state, error) {
	twins := stat.Map(l.Holdout, func(load *Load) [][]sim.Request { return twinsOf(load, l.Options) })
	before, err := l.assess(l.Holdout, twins, from.values, 0, false)
	if err != nil {
		return nil, err
	}
	after, err := l.assess(l.Holdout, twins, values, 0, false)
	if err != nil || after.objective >= before.objective {
		return from, err
	}
	found, err := l.assess(l.loads, l.twins, values, 0, true)
	if err == nil {
		l.passes = append(l.passes, result.RequestPass{Name: l.Search, Objective: found.objective})
	}
	return found, err
}

// searchWidth is how far a search looks at first, in standard errors.
const searchWidth = 2

// subspace are the learned directions, each as long as its standard error.
func (l *learner) subspace(values []float64, e evidence) ([][]float64, error) {
	post, err := l.posterior(e)
	if err != nil {
		return nil, err
	}
	learned := stat.Filter(l.directions(values, post), func(d direction) bool { return d.Learned })
	return stat.Map(learned, func(d direction) []float64 { return d.vector }), nil
}

// moved is a candidate z along the directions, signs kept.
func moved(from []float64, space [][]float64, z []float64) []float64 {
	out := slices.Clone(from)
	for k, v := range space {
		for j, u := range v {
			out[j] += searchWidth * z[k] * u
		}
	}
	for j := range out {
		out[j] = math.Max(0, out[j])
	}
	return out
}

// minimise runs the method; where it stops is remembered by f.
func (l *learner) minimise(f func([]float64) float64, n int) {
	var method optimize.Method
	switch l.Search {
	case SearchSPSA:
		l.spsa(f, n)
		return
	case SearchCMAES:
		method = &optimize.CmaEsChol{Src: rand.NewPCG(uint64(l.Seed), cmaStream), InitStepSize: 0.5}
	default:
		method = &optimize.NelderMead{SimplexSize: 0.5}
	}
	settings := &optimize.Settings{FuncEvaluations: l.Calls, Concurrent: 1,
		Converger: &optimize.FunctionConverge{Relative: 1e-3, Iterations: 20}}
	// What a method calls a failure ends the search: f remembers the best it saw.
	_, _ = optimize.Minimize(optimize.Problem{Func: f}, make([]float64, n), settings, method)
}

// cmaStream and spsaStream separate the random numbers of the methods.
const cmaStream, spsaStream = 0xc3a, 0x59a

// spsa is simultaneous perturbation: two objectives a step whatever the dimension,
// with the usual gains a/(k+A)^0.602 and c/k^0.101 (Spall 1998).
func (l *learner) spsa(f func([]float64) float64, n int) {
	rng := rand.New(rand.NewPCG(uint64(l.Seed), spsaStream))
	z := make([]float64, n)
	steps := l.Calls / 2
	for k := 1; k <= steps; k++ {
		a := 0.5 / math.Pow(float64(k)+0.1*float64(steps), 0.602)
		c := math.Max(0.01, 0.3/math.Pow(float64(k), 0.101))
		sign := make([]float64, n)
		up, down := slices.Clone(z), slices.Clone(z)
		for j := range sign {
			sign[j] = float64(2*rng.IntN(2) - 1)
			up[j] += c * sign[j]
			down[j] -= c * sign[j]
		}
		slope := (f(up) - f(down)) / (2 * c)
		if !isNumber(slope) {
			continue
		}
		for j := range z {
			z[j] -= a * math.Max(-1, math.Min(1, slope)) * sign[j]
		}
	}
}
