package requestfit

// This file searches along the learned directions without derivatives after Gauss-Newton has ended:
// Nelder-Mead, CMA-ES or SPSA. Derivatives do not show that a schedule changes abruptly.

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"gonum.org/v1/gonum/optimize"
)

// search returns a candidate improved along the learned directions without derivatives, which do
// not show that schedules change abruptly. It returns the candidate itself unless held-out loads
// are closer with the new one.
func (l *learner) search(from *state, e evidence) (*state, error) {
	if l.Search == SearchNone || l.Search == "" || len(l.Holdout) == 0 {
		return from, nil
	}
	space, err := l.subspace(from.values, e)
	if err != nil || len(space) == 0 {
		return from, err
	}
	best := slices.Clone(from.values)
	least := from.objective
	limit := l.calls + l.Calls
	// f is the objective at the point z along the directions (moved). It remembers the best candidate, so
	// that the method's own answer is not needed; without budget it is infinite.
	f := func(z []float64) float64 {
		if l.calls >= limit || l.isSpent() || err != nil {
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

// confirmed returns the state of values if the held-out loads are closer with it, else from.
func (l *learner) confirmed(from *state, values []float64) (*state, error) {
	var twins [][][]sim.Request
	for _, load := range l.Holdout {
		twins = append(twins, twinsOf(load, l.Options))
	}
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

// searchWidth is the unit of a search's coordinates z, in standard errors of the answer. The methods
// start with steps of half of it.
const searchWidth = 2

// subspace returns the learned directions, each one standard error long.
func (l *learner) subspace(values []float64, e evidence) ([][]float64, error) {
	post, err := l.posterior(e)
	if err != nil {
		return nil, err
	}
	var space [][]float64
	for _, d := range l.directions(values, post) {
		if d.Learned {
			space = append(space, d.vector)
		}
	}
	return space, nil
}

// moved returns a candidate moved by z times searchWidth along the directions. No value changes its sign.
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

// minimise runs the method of Options.Search on f, which remembers the best point it was called
// with.
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
	// An error of the method only ends the search, because f has the best point.
	_, _ = optimize.Minimize(optimize.Problem{Func: f}, make([]float64, n), settings, method)
}

// cmaStream and spsaStream are the seeds that separate the random numbers of the two methods.
const cmaStream, spsaStream = 0xc3a, 0x59a

// spsa is simultaneous perturbation stochastic approximation: two evaluations a step, for any
// number of dimensions, with the usual gains a/(k+A)^0.602 and c/k^0.101 (Spall 1998).
func (l *learner) spsa(f func([]float64) float64, n int) {
	rng := rand.New(rand.NewPCG(uint64(l.Seed), spsaStream))
	z := make([]float64, n)
	steps := l.Calls / 2
	for k := 1; k <= steps; k++ {
		// Gains of the step and of the perturbation.
		a := 0.5 / math.Pow(float64(k)+0.1*float64(steps), 0.602)
		c := math.Max(0.01, 0.3/math.Pow(float64(k), 0.101))
		// All coordinates are perturbed at once, each to a random side.
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
