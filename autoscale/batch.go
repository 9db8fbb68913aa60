package autoscale

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// fitOptions are the options of an estimation.
type fitOptions struct {
	Flavour Flavour
	// Physical are prior values of the parameters, in the flavour's order. The fit is pulled
	// towards them, and combinations that
	// the windows do not determine are held there. Nil: none are known.
	Physical []float64
	// Pull is the standard deviation of log(effective/physical) that the pull assumes.
	Pull float64
	// Floor is the relative error a prediction has even of a perfect window; it is
	// added to the windows' own standard errors.
	Floor float64
	// Huber is the residual, in standard deviations, beyond which its weight falls.
	// Windows without standard errors have no such scale: their loss is |r|^1.5, half
	// way between squares and absolute values, which needs none.
	Huber float64
	// Medians is set where the observed TTFTs are medians, with which the simulator's means cannot be compared.
	Medians bool
	// Near is a solution of almost the same windows: the search starts there alone, and the check by
	// Nelder-Mead and the intervals are left out.
	Near []float64
}

// defaultFit are the options of a bare fit.
func defaultFit(f Flavour) fitOptions {
	return fitOptions{Flavour: f, Pull: 0.5, Floor: 0.02, Huber: 1.345}
}

// fitted is the result of a fit.
type fitted struct {
	X         []float64   // parameters in the flavour's order, ms
	Lo, Hi    []float64   // 95 % intervals; NaN where the value is held
	Held      []bool      // set if the windows do not determine the parameter, which is then the physical value
	PriorPart []float64   // share of the parameter's information that comes from the physical value, 0..1
	Cov       [][]float64 // covariance of X, to first order; nil where it is not known
	Objective float64     // at X
	// NelderMead is the objective that an independent search from X reaches. If it is smaller than
	// Objective, its point is used.
	NelderMead float64
	Evaluated  identifiability
	Findings   []trace.Finding
}

// problem is one fit in log parameters.
type problem struct {
	o       *fitOptions
	windows []window
	sigma   [][2]float64 // per window: relative standard deviation of TTFT and ITL
	scale   [2]float64   // misfit beyond them, per metric
	prior   []float64    // log physical, nil without
	base    []float64    // log parameters at z = 0
	basis   [][]float64  // directions that move, unit vectors in log parameters
	quick   bool         // forward differences
	power   bool         // no standard errors: |r|^1.5
}

// Fit estimates the parameters of a flavour from windows.
func Fit(windows []window, o fitOptions) (*fitted, error) {
	if o.Physical != nil {
		n := len(o.Flavour.Parameters())
		if len(o.Physical) != n || !positive(o.Physical) {
			return nil, trace.Errorf(badOption, "physical parameters: got %v, want %d numbers > 0", o.Physical, n)
		}
	}
	if len(windows) == 0 {
		return nil, trace.Errorf(noWindows,
			"windows: got none").WithHint("shorter --window or smaller --min-requests, if the drops say so")
	}
	p := newProblem(windows, &o)
	f := &fitted{Evaluated: p.identify(p.nominal())}
	if f.Evaluated.Condition > sameWindows {
		if err := p.refuseUnidentified(&f.Evaluated); err != nil {
			return nil, err
		}
	}
	start := p.startPoint()
	if p.prior == nil {
		f.Evaluated = p.identify(start)
		if err := p.refuseUnidentified(&f.Evaluated); err != nil {
			return nil, err
		}
	}
	p.restrictDirections(start, &f.Evaluated)
	z := p.solve()
	f.X = expsOf(p.theta(z))
	if o.Near != nil {
		return f, nil
	}
	f.NelderMead = p.searchOn(z)
	f.Objective = p.objective(z)
	if held := len(start) - len(p.basis); held > 0 {
		f.Findings = append(f.Findings, trace.Findingf(heldParameter,
			"%d of %d directions are held at physical values: %s", held, len(start),
			directionWords(f.Evaluated.Null)))
	} else {
		f.Evaluated = p.identify(p.theta(z)) // at the solution, for people
	}
	p.intervals(f, z)
	return f, nil
}

// unknownSE is the relative standard deviation assumed for a window that has none. It matters only
// in comparison with the pull.
const unknownSE = 0.1

// sameWindows is a condition number that is exceeded, at any parameters, only if all windows have the same
// operating point.
const sameWindows = 1e8

func newProblem(windows []window, o *fitOptions) *problem {
	p := &problem{o: o, windows: windows, scale: [2]float64{1, 1}}
	for i := range windows {
		w := &windows[i]
		relative := func(se, v float64) float64 {
			if se == 0 {
				p.power = true
				return unknownSE
			}
			return math.Hypot(se/v, o.Floor)
		}
		p.sigma = append(p.sigma, [2]float64{relative(w.TTFTSeMs, w.TTFTMs), relative(w.ITLSeMs, w.ITLMs)})
	}
	if o.Physical != nil {
		p.prior = logsOf(o.Physical)
	}
	return p
}

// byLoad are the positions of the windows by the requests they decode at once.
func (p *problem) byLoad() []int {
	load := make([]float64, len(p.windows))
	for i := range p.windows {
		w := &p.windows[i]
		load[i] = w.RateRPS * w.Shape.Output * w.ITLMs
	}
	return stat.Order(load)
}

// guessFrom is Guess of one window in log parameters.
func (p *problem) guessFrom(window int, seed []float64) []float64 {
	return logsOf(guessParameters(p.o.Flavour, &p.windows[window], seed))
}

// nominal are parameters of about the right size, none of them 0, at which identifiability is
// examined: the physical ones, or a guess.
func (p *problem) nominal() []float64 {
	if p.prior != nil {
		return slices.Clone(p.prior)
	}
	order := p.byLoad()
	return p.guessFrom(order[len(order)/2], defaultState)
}

// startPoint is where the search begins: at the physical values, or at the best result of several
// short searches from guesses of single windows and from the autoscalers' defaults.
func (p *problem) startPoint() []float64 {
	if p.prior != nil {
		return slices.Clone(p.prior)
	}
	if p.o.Near != nil {
		return logsOf(p.o.Near)
	}
	order := p.byLoad()
	starts := [][]float64{}
	for _, at := range []int{0, len(order) / 2, len(order) - 1} {
		starts = append(starts, p.guessFrom(order[at], nil), p.guessFrom(order[at], defaultState))
	}
	if p.o.Flavour != wvA4P {
		starts = append(starts, logsOf(defaultState))
	}
	squares := *p.o
	squares.Huber = math.Inf(1)
	q := *p
	q.o = &squares
	q.power = false
	// moveTo makes theta the point z = 0 of q and returns the objective there.
	moveTo := func(theta []float64) float64 {
		q.base = theta
		q.basis = identity(len(theta))
		return q.objective(make([]float64, len(theta)))
	}
	byObjective := func(a, b []float64) int { return cmp.Compare(moveTo(a), moveTo(b)) }
	slices.SortStableFunc(starts, byObjective)
	starts = starts[:min(scouted, len(starts))]
	for i := range starts {
		moveTo(starts[i])
		starts[i] = q.theta(q.marquardt(make([]float64, len(starts[i])), scouting))
	}
	return slices.MinFunc(starts, byObjective)
}

// scouted is the number of starting points from which a short search is made.
const scouted = 4

func (p *problem) theta(z []float64) []float64 {
	t := slices.Clone(p.base)
	for k, v := range p.basis {
		for j := range t {
			t[j] += z[k] * v[j]
		}
	}
	return t
}

// residuals are (predicted - observed)/observed of TTFT and ITL per window, in
// standard deviations, then the pulls. ok is false where the model has no answer.
func (p *problem) residuals(z, r []float64) (ok bool) {
	theta := p.theta(z)
	x := expsOf(theta)
	for i := range p.windows {
		w := &p.windows[i]
		ttft, itl, good := predictWindow(p.o.Flavour, w, x, asSized)
		if !good {
			return false
		}
		r[2*i] = (ttft/w.TTFTMs - 1) / (p.sigma[i][0] * p.scale[0])
		r[2*i+1] = (itl/w.ITLMs - 1) / (p.sigma[i][1] * p.scale[1])
	}
	for j := range p.prior {
		r[2*len(p.windows)+j] = (theta[j] - p.prior[j]) / p.o.Pull
	}
	return true
}

func (p *problem) size() int { return 2*len(p.windows) + len(p.prior) }

// robust is the loss of a residual and the weight of its square at that place.
func (p *problem) robust(r float64) (loss, weight float64) {
	if p.power {
		a := math.Sqrt(math.Abs(r))
		return a * a * a, 0.75 / math.Max(a, 1e-4)
	}
	if a := math.Abs(r); a > p.o.Huber {
		return p.o.Huber * (2*a - p.o.Huber), p.o.Huber / a
	}
	return r * r, 1
}

func (p *problem) loss(r []float64) float64 {
	var sum float64
	for i, v := range r {
		if i < 2*len(p.windows) {
			v, _ := p.robust(v)
			sum += v
			continue
		}
		sum += v * v
	}
	return sum
}

func (p *problem) objective(z []float64) float64 {
	r := make([]float64, p.size())
	if !p.residuals(z, r) {
		return math.Inf(1)
	}
	return p.loss(r)
}

// Outer passes of the scale, and what counts as converged.
const (
	scalePasses = 6
	scaleTol    = 1e-3
)

// solve alternates between Levenberg-Marquardt and the scale of the misfit: the
// median absolute residual of each metric, at least 1.
func (p *problem) solve() []float64 {
	z := make([]float64, len(p.basis))
	for range scalePasses {
		z = p.marquardt(z, thorough)
		if !p.rescale(z) {
			break
		}
	}
	return z
}

// madToSigma converts a median absolute deviation to the standard deviation of a normal
// distribution.
const madToSigma = 1.4826

func (p *problem) rescale(z []float64) (changed bool) {
	r := make([]float64, p.size())
	if p.power || len(p.windows) < 4 || !p.residuals(z, r) {
		return false
	}
	for metric := range 2 {
		abs := make([]float64, len(p.windows))
		for i := range abs {
			abs[i] = math.Abs(r[2*i+metric])
		}
		s := p.scale[metric] * madToSigma * stat.Median(abs)
		s = math.Max(s, 1)
		changed = changed || math.Abs(s/p.scale[metric]-1) > scaleTol
		p.scale[metric] = s
	}
	return changed
}

// searchOn continues from the solution without derivatives, and moves z if it finds a smaller
// objective.
func (p *problem) searchOn(z []float64) float64 {
	res, err := optimize.Minimize(optimize.Problem{Func: p.objective}, slices.Clone(z),
		&optimize.Settings{FuncEvaluations: 200 * max(1, len(z))}, &optimize.NelderMead{SimplexSize: 0.05})
	if err != nil && res == nil {
		return math.NaN()
	}
	if res.F < p.objective(z) {
		copy(z, res.X)
	}
	return res.F
}

// logsOf is the logarithm of every parameter; nil for nil, which means that none are known.
func logsOf(x []float64) []float64 {
	var theta []float64
	for _, v := range x {
		theta = append(theta, math.Log(v))
	}
	return theta
}

// expsOf turns log parameters back into parameters.
func expsOf(theta []float64) []float64 {
	x := make([]float64, len(theta))
	for i, v := range theta {
		x[i] = math.Exp(v)
	}
	return x
}
