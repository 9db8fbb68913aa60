package autoscale

// This file estimates the parameters of a queueing model from windows: robust least squares of
// relative errors in the logarithms of the parameters, optionally with physical values as a prior.
// marquardt.go minimises, identify.go finds out which directions the windows determine,
// intervals.go makes the intervals.
//
// Words: a window is a period of a recording, or a benchmark, with its mean TTFT and ITL; theta are
// log parameters; z are coordinates along the directions that the search moves in, with theta =
// base + sum of z times basis.

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// fitOptions are the options of a fit.
type fitOptions struct {
	Flavour Flavour
	// Physical are prior values of the parameters, in the flavour's order: those fitted to recorded
	// steps. The fit is pulled towards them, and directions that the windows do not determine keep
	// these values. Nil if none are known.
	Physical []float64
	// Pull is the standard deviation of log(effective/physical) that the prior assumes.
	Pull float64
	// Floor is the relative error that a prediction has even for an exactly measured window. It is
	// added to the windows' own standard errors.
	Floor float64
	// Huber is the residual, in standard deviations, beyond which the loss is linear. Windows
	// without standard errors have no such scale; their loss is |r|^1.5, between squares and
	// absolute values.
	Huber float64
	// Medians is set where the observed TTFTs are medians, with which the simulator's means cannot be compared.
	Medians bool
	// Near is a solution of almost the same windows, if one is known: the search starts only there,
	// and neither the check by Nelder-Mead nor intervals are computed.
	Near []float64
}

// defaultFit returns the default options for a flavour.
func defaultFit(f Flavour) fitOptions {
	return fitOptions{Flavour: f, Pull: 0.5, Floor: 0.02, Huber: 1.345}
}

// fitted is the result of a fit.
type fitted struct {
	X         []float64   // parameters in the flavour's order, ms
	Lo, Hi    []float64   // 95 % intervals; NaN where the value is held
	Held      []bool      // whether the windows do not determine the parameter, so that it has the physical value
	PriorPart []float64   // share of the parameter's information that comes from the physical value, 0..1
	Cov       [][]float64 // covariance of X, to first order; nil where it is not known
	Objective float64     // at X
	// NelderMead is the objective that an independent search from X reaches. If it is smaller than
	// Objective, X is the point of that search.
	NelderMead float64
	Evaluated  identifiability
	Findings   []trace.Finding
}

// problem is one fit in log parameters.
type problem struct {
	o       *fitOptions
	windows []window
	sigma   [][2]float64 // per window: relative standard deviation of TTFT and ITL
	scale   [2]float64   // factor on sigma, per metric: the misfit that sigma does not explain
	prior   []float64    // logarithms of the physical parameters; nil without
	base    []float64    // log parameters at z = 0
	basis   [][]float64  // directions that move, unit vectors in log parameters
	quick   bool         // derivatives by forward differences
	power   bool         // loss |r|^1.5, because the windows have no standard errors
	overlap float64      // how often windows cover a time that they cover, on average; 0 is 1
}

// Fit estimates the parameters of o.Flavour from windows. If the windows do not determine all
// parameters and there are no physical values, it returns an error that names a sweep that would
// determine them.
func Fit(windows []window, o fitOptions) (*fitted, error) {
	if o.Physical != nil {
		n := len(o.Flavour.Parameters())
		if len(o.Physical) != n || !positive(o.Physical) {
			return nil, trace.Errorf(badOption, "physical parameters: got %v, want %d numbers > 0", o.Physical, n)
		}
	}
	if len(windows) == 0 {
		return nil, trace.Errorf(noWindows, "windows: got none")
	}
	p := newProblem(windows, &o)
	// Windows of one operating point are refused before anything is searched; what others determine is
	// examined, without physical values, at the better point from which the search starts.
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

// newProblem returns the problem of a fit, with the standard deviation of each window.
func newProblem(windows []window, o *fitOptions) *problem {
	p := &problem{o: o, windows: windows, scale: [2]float64{1, 1}, overlap: overlapOf(windows)}
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

// byLoad returns the positions of the windows in the order of the number of requests that decode at
// once.
func (p *problem) byLoad() []int {
	load := make([]float64, len(p.windows))
	for i := range p.windows {
		w := &p.windows[i]
		load[i] = w.RateRPS * w.Shape.Output * w.ITLMs
	}
	return stat.Order(load)
}

// guessFrom returns a guess of the log parameters from one window. seed is as in guessParameters.
func (p *problem) guessFrom(window int, seed []float64) []float64 {
	return logsOf(guessParameters(p.o.Flavour, &p.windows[window], seed))
}

// nominal returns log parameters of about the right size, at which it is examined what the windows
// determine: the physical ones, or a guess.
func (p *problem) nominal() []float64 {
	if p.prior != nil {
		return slices.Clone(p.prior)
	}
	order := p.byLoad()
	return p.guessFrom(order[len(order)/2], defaultState)
}

// startPoint returns the log parameters from which the search begins: the physical ones, or the
// best result of several short searches that begin at guesses from single windows and at the
// autoscalers' defaults.
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
	// Starts are compared and improved by plain squares, which pull towards the answer from afar; the robust
	// loss is flat there.
	squares := *p.o
	squares.Huber = math.Inf(1)
	plain := *p
	plain.o = &squares
	plain.power = false
	// moveTo makes theta the origin of the coordinates of plain and returns the objective there.
	moveTo := func(theta []float64) float64 {
		plain.base = theta
		plain.basis = identity(len(theta))
		return plain.objective(make([]float64, len(theta)))
	}
	byObjective := func(a, b []float64) int { return cmp.Compare(moveTo(a), moveTo(b)) }
	stat.SortStable(starts, byObjective)
	starts = starts[:min(scouted, len(starts))]
	for i := range starts {
		moveTo(starts[i])
		starts[i] = plain.theta(plain.marquardt(make([]float64, len(starts[i])), scouting))
	}
	return slices.MinFunc(starts, byObjective)
}

// scouted is the number of starting points from which startPoint makes a short search.
const scouted = 4

// theta returns the log parameters at coordinates z.
func (p *problem) theta(z []float64) []float64 {
	t := slices.Clone(p.base)
	for k, v := range p.basis {
		for j := range t {
			t[j] += z[k] * v[j]
		}
	}
	return t
}

// residuals sets r to the residuals at z: (predicted - observed)/observed of TTFT and ITL of each
// window, in standard deviations, then the deviations from the prior. ok is false if the model has
// no answer.
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

// size returns the number of residuals.
func (p *problem) size() int { return 2*len(p.windows) + len(p.prior) }

// robust returns the loss of a residual, and the weight of its square that has the same derivative.
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

// share returns what the residuals of a window count. Windows that overlap measure the same requests again, so that
// together they count as many as would cover their time without overlap.
func (p *problem) share() float64 {
	if p.overlap > 1 {
		return 1 / p.overlap
	}
	return 1
}

// loss returns the objective for residuals r. Deviations from the prior count as squares.
func (p *problem) loss(r []float64) float64 {
	var sum float64
	for i, v := range r {
		if i < 2*len(p.windows) {
			v, _ := p.robust(v)
			sum += v * p.share()
			continue
		}
		sum += v * v
	}
	return sum
}

// objective returns the loss at z; infinite where the model has no answer.
func (p *problem) objective(z []float64) float64 {
	r := make([]float64, p.size())
	if !p.residuals(z, r) {
		return math.Inf(1)
	}
	return p.loss(r)
}

// Largest number of passes of solve, and the relative change of the scale at which it stops.
const (
	scalePasses = 6
	scaleTol    = 1e-3
)

// solve returns the coordinates z of the minimum. It alternates between Levenberg-Marquardt and
// estimating the misfit beyond the standard errors (rescale).
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

// rescale sets p.scale to the spread of the residuals of each metric, at least 1, and reports
// whether it changed.
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

// searchOn continues from solution z by Nelder-Mead, which needs no derivatives, and returns the
// objective reached. If that is smaller, z becomes its point.
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

// logsOf returns the logarithm of each parameter; nil for nil.
func logsOf(x []float64) []float64 {
	var theta []float64
	for _, v := range x {
		theta = append(theta, math.Log(v))
	}
	return theta
}

// expsOf returns the parameters of log parameters.
func expsOf(theta []float64) []float64 {
	x := make([]float64, len(theta))
	for i, v := range theta {
		x[i] = math.Exp(v)
	}
	return x
}
