package autoscale

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// fitOptions say how parameters are estimated.
type fitOptions struct {
	Flavour Flavour
	// Physical parameters, in the flavour's order: the fit is pulled towards them, and combinations that
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
	// Medians of TTFT are observed: the simulator's means say nothing of them.
	Medians bool
	// Near is a solution of almost the same windows: the search starts there alone, and the check by
	// Nelder-Mead and the intervals are left out.
	Near []float64
}

// defaultFit are the options of a bare fit.
func defaultFit(f Flavour) fitOptions {
	return fitOptions{Flavour: f, Pull: 0.5, Floor: 0.02, Huber: 1.345}
}

// fitted is a batch fit.
type fitted struct {
	X         []float64   // parameters in the flavour's order, ms
	Lo, Hi    []float64   // 95 % intervals; NaN where the value is held
	Held      []bool      // the windows do not determine it: it is the physical value
	PriorPart []float64   // share of what is known of it that the physical value brought, 0..1
	Cov       [][]float64 // covariance of X, to first order; nil where it is not known
	Objective float64     // at X
	// NelderMead is the objective an independent search from X reaches; the smaller of
	// the two is taken.
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
	if n := len(o.Flavour.Parameters()); o.Physical != nil && (len(o.Physical) != n || !positive(o.Physical)) {
		return nil, trace.Errorf(badOption, "physical parameters: got %v, want %d numbers > 0", o.Physical, n)
	}
	if len(windows) == 0 {
		return nil, trace.Errorf(noWindows, "windows: got none").WithHint("shorter --window or smaller --min-requests, if the drops say so")
	}
	p := newProblem(windows, &o)
	f := &fitted{Evaluated: p.identify(p.nominal())}
	if f.Evaluated.Condition > sameWindows {
		if err := p.refuse(&f.Evaluated); err != nil {
			return nil, err
		}
	}
	start := p.start()
	if p.prior == nil {
		f.Evaluated = p.identify(start)
		if err := p.refuse(&f.Evaluated); err != nil {
			return nil, err
		}
	}
	p.restrict(start, &f.Evaluated)
	z := p.solve()
	f.X = exp(p.theta(z))
	if o.Near != nil {
		return f, nil
	}
	f.NelderMead = p.check(z)
	f.Objective = p.objective(z)
	if held := len(start) - len(p.basis); held > 0 {
		f.Findings = append(f.Findings, trace.Findingf(heldParameter, "%d of %d directions are held at physical values: %s", held, len(start),
			words(f.Evaluated.Null)))
	} else {
		f.Evaluated = p.identify(p.theta(z)) // at the solution, for people
	}
	p.intervals(f, z)
	return f, nil
}

// unknownSE is the relative standard deviation of a window without one; it only
// weighs against the pull.
const unknownSE = 0.1

// sameWindows is a condition number that only windows of one operating point have,
// at whatever parameters it is asked.
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
		p.prior = logs(o.Physical)
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

// guess is Guess of one window in log parameters.
func (p *problem) guess(window int, seed []float64) []float64 {
	return logs(guess(p.o.Flavour, &p.windows[window], seed))
}

// nominal are parameters of about the right size, none of them 0, at which to ask
// what the windows can show: the physical ones, or a guess.
func (p *problem) nominal() []float64 {
	if p.prior != nil {
		return slices.Clone(p.prior)
	}
	order := p.byLoad()
	return p.guess(order[len(order)/2], defaultState)
}

// start is the physical values, or the best of several searches: from what single
// windows suggest, and from the autoscalers' defaults.
func (p *problem) start() []float64 {
	if p.prior != nil {
		return slices.Clone(p.prior)
	}
	if p.o.Near != nil {
		return logs(p.o.Near)
	}
	order := p.byLoad()
	starts := [][]float64{}
	for _, at := range []int{0, len(order) / 2, len(order) - 1} {
		starts = append(starts, p.guess(order[at], nil), p.guess(order[at], defaultState))
	}
	if p.o.Flavour != wvA4P {
		starts = append(starts, logs(defaultState))
	}
	squares := *p.o
	squares.Huber = math.Inf(1)
	q := *p
	q.o, q.power = &squares, false
	at := func(theta []float64) float64 {
		q.base, q.basis = theta, identity(len(theta))
		return q.objective(make([]float64, len(theta)))
	}
	stat.SortStable(starts, func(a, b []float64) int { return cmp.Compare(at(a), at(b)) })
	starts = starts[:min(scouted, len(starts))]
	for i := range starts {
		at(starts[i])
		starts[i] = q.theta(q.marquardt(make([]float64, len(starts[i])), scouting))
	}
	return slices.MinFunc(starts, func(a, b []float64) int { return cmp.Compare(at(a), at(b)) })
}

// scouted is the number of starts that are searched from.
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
	x := exp(theta)
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

// madToSigma makes a median absolute deviation a standard deviation of a normal.
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

// check searches on from the solution without derivatives. It moves z when it
// finds a smaller objective.
func (p *problem) check(z []float64) float64 {
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

// intervals fills the 95 % intervals and the prior's part from the curvature at z.
func (p *problem) intervals(f *fitted, z []float64) {
	n, moving := len(f.X), len(p.basis)
	f.Lo = make([]float64, n)
	f.Hi = make([]float64, n)
	f.Held = make([]bool, n)
	f.PriorPart = make([]float64, n)
	var cov []float64
	if a, _, _, ok := p.normal(z); ok {
		cov = stat.Inverse(a, moving)
	}
	if cov != nil {
		f.Cov = p.natural(f.X, cov, p.spread(z))
	}
	for j := range n {
		// v is parameter j's share in each moving direction, u = cov v
		v := make([]float64, moving)
		u := make([]float64, moving)
		var free, variance, pulled float64
		for a := range v {
			v[a] = p.basis[a][j]
			free += v[a] * v[a]
		}
		f.Lo[j], f.Hi[j], f.PriorPart[j] = math.NaN(), math.NaN(), 1
		if f.Held[j] = free < heldShare; f.Held[j] || cov == nil {
			continue
		}
		for a := range v {
			for b := range v {
				u[a] += cov[a*moving+b] * v[b]
			}
			variance += v[a] * u[a]
			pulled += u[a] * u[a] / (p.o.Pull * p.o.Pull)
		}
		if p.prior == nil {
			pulled = 0
		}
		half := normal975 * math.Sqrt(variance*p.spread(z))
		f.Lo[j], f.Hi[j] = f.X[j]*math.Exp(-half), f.X[j]*math.Exp(half)
		f.PriorPart[j] = math.Min(1, 1-free+free*pulled/variance)
	}
}

// natural turns the covariance of the moving directions into that of parameters x.
func (p *problem) natural(x, cov []float64, spread float64) [][]float64 {
	moving := len(p.basis)
	out := make([][]float64, len(x))
	for i := range out {
		out[i] = make([]float64, len(x))
		for j := range out[i] {
			for a := range moving {
				for b := range moving {
					out[i][j] += p.basis[a][i] * cov[a*moving+b] * p.basis[b][j]
				}
			}
			out[i][j] *= spread * x[i] * x[j]
		}
	}
	return out
}

// spread is the variance of the residuals where their standard deviation was not
// known beforehand, else 1.
func (p *problem) spread(z []float64) float64 {
	r := make([]float64, p.size())
	n := 2 * len(p.windows)
	if !p.power || n <= len(z) || !p.residuals(z, r) {
		return 1
	}
	var sum, weights float64
	for _, v := range r[:n] {
		_, w := p.robust(v)
		sum, weights = sum+w*w*v*v, weights+w
	}
	return sum / weights * float64(n) / float64(n-len(z))
}

const (
	normal975 = 1.959963984540054 // quantile of the standard normal
	heldShare = 0.5               // a parameter of which less than this may move is held
)

func logs(x []float64) []float64 { return stat.Map(x, math.Log) }
func exp(x []float64) []float64  { return stat.Map(x, math.Exp) }

// maxCondition is the condition number of the log-parameter Jacobian above which a direction counts as not shown, and
// model-tuner's sliding window holds a fit back.
const maxCondition = 1000.0

// identifiability says what windows tell of parameters.
type identifiability struct {
	// Condition is the ratio of the singular values of the Jacobian of relative
	// residuals with respect to log parameters, as model-tuner has it
	// (pkg/estimator/identifiability.go@6dba8ce); +Inf when a direction is not seen.
	Condition float64
	Rank      int // directions above 1/maxCondition of the largest
	Null      []queueDirection
	Sweep     []queuePoint // operating points that would show all directions
	After     float64      // condition number that windows at these points would have
}

// identify examines the windows at log parameters theta.
func (p *problem) identify(theta []float64) identifiability {
	q := p.noPrior()
	q.base, q.basis = theta, identity(len(theta))
	plain := *q
	plain.sigma = evenSigma(len(p.windows))
	values, _ := plain.directions()
	id := identifiability{Condition: condition(values, len(theta))}
	for _, s := range values {
		if s*maxCondition >= values[0] && s > 0 {
			id.Rank++
		}
	}
	values, vectors := q.directions()
	for k := range theta {
		if known := k < len(values) && p.shown(values, k) && (p.prior != nil || k < id.Rank); known {
			continue
		}
		id.Null = append(id.Null, direction(p.o.Flavour.Parameters(), vectors[k]))
	}
	if len(id.Null) > 0 {
		id.Sweep = p.sweep(exp(theta))
		id.After = p.conditionOf(id.Sweep, theta)
	}
	return id
}

// shown reports whether the windows know more of a direction than the pull does,
// and not less than the best direction by maxCondition.
func (p *problem) shown(values []float64, k int) bool {
	if values[k]*maxCondition < values[0] {
		return false
	}
	return p.prior == nil || values[k]*p.o.Pull >= 1
}

// directions are the singular values of the weighted Jacobian, largest first, and
// the directions in log parameters they belong to.
func (p *problem) directions() (values []float64, vectors [][]float64) {
	j, _ := p.jacobian(make([]float64, len(p.basis)))
	n := len(p.basis)
	var svd mat.SVD
	if j == nil || !svd.Factorize(mat.NewDense(len(j)/n, n, j), mat.SVDFullV) {
		return make([]float64, n), p.basis
	}
	var v mat.Dense
	svd.VTo(&v)
	for k := range n {
		col := mat.Col(nil, k, &v)
		if i := largest(col); col[i] < 0 { // a direction and its opposite are the same
			for x := range col {
				col[x] = -col[x]
			}
		}
		vectors = append(vectors, col)
	}
	values = svd.Values(nil)
	for len(values) < n {
		values = append(values, 0)
	}
	return values, vectors
}

func condition(values []float64, n int) float64 {
	if len(values) < n || !(values[n-1] > values[0]*1e-15) {
		return math.Inf(1)
	}
	return values[0] / values[n-1]
}

// refuse is the error of windows that do not show all parameters when nothing
// else is known of the rest.
func (p *problem) refuse(id *identifiability) error {
	if p.prior != nil || len(id.Null) == 0 {
		return nil
	}
	return trace.Errorf(noWindows, "%d windows show %d of %d parameters (condition number %.3g, at most %g): %s", len(p.windows), id.Rank,
		len(p.o.Flavour.Parameters()), id.Condition, maxCondition, words(id.Null)).
		WithHint("record a sweep: " + sweepWords(id.Sweep))
}

// restrict sets where the search starts and which directions move: all, or those
// that the windows show.
func (p *problem) restrict(start []float64, id *identifiability) {
	p.base, p.basis = start, identity(len(start))
	if len(id.Null) == 0 {
		return
	}
	values, vectors := p.noPrior().directions()
	p.basis = nil
	for k, v := range vectors {
		if p.shown(values, k) {
			p.basis = append(p.basis, v)
		}
	}
}

func (p *problem) noPrior() *problem {
	q := *p
	q.prior, q.scale = nil, [2]float64{1, 1}
	return &q
}

// direction names the parameters that take part in a direction.
func direction(names []string, v []float64) queueDirection {
	d := queueDirection{}
	for j, name := range names {
		if math.Abs(v[j]) >= namedShare {
			d.Names = append(d.Names, name)
			d.Weight = append(d.Weight, v[j])
		}
	}
	return d
}

// namedShare is the least weight a parameter of a direction is named for.
const namedShare = 0.003

// words says what a direction means.
func words(null []queueDirection) string {
	var all []string
	for _, d := range null {
		var parts []string
		for i, name := range d.Names {
			parts = append(parts, fmt.Sprintf("%s %+.2g %%", name, 100*math.Expm1(0.1*d.Weight[i]/math.Abs(d.Weight[largest(d.Weight)]))))
		}
		if len(parts) == 1 {
			all = append(all, fmt.Sprintf("%s shows in neither TTFT nor ITL", d.Names[0]))
			continue
		}
		all = append(all, strings.Join(parts, " with ")+" changes neither TTFT nor ITL")
	}
	return strings.Join(all, "; ")
}

// sweep proposes the windows' own shape and four times both lengths, each at 0.2
// and 0.8 of its capacity.
func (p *problem) sweep(x []float64) []queuePoint {
	prompt := make([]float64, len(p.windows))
	output := make([]float64, len(p.windows))
	for i := range p.windows {
		prompt[i], output[i] = p.windows[i].Shape.Prompt, p.windows[i].Shape.Output
	}
	var out []queuePoint
	for _, times := range []float64{1, 4} {
		s := shape{Prompt: math.Round(times * stat.Median(prompt)), Output: math.Round(times * stat.Median(output))}
		m, err := New(p.o.Flavour, fromVector(x), s, p.windows[0].Limits)
		if err != nil {
			continue
		}
		for _, load := range []float64{0.2, 0.8} {
			out = append(out, queuePoint{PromptTokens: s.Prompt, OutputTokens: s.Output, RateRPS: load * m.MaxRateRPS(), LoadFrac: load})
		}
	}
	return out
}

// conditionOf is the condition number that windows at the points would have.
func (p *problem) conditionOf(points []queuePoint, theta []float64) float64 {
	q := p.noPrior()
	q.windows, q.sigma = nil, nil
	for _, at := range points {
		w := window{Shape: shape{Prompt: at.PromptTokens, Output: at.OutputTokens}, Limits: p.windows[0].Limits, RateRPS: at.RateRPS}
		var ok bool
		if w.TTFTMs, w.ITLMs, ok = predictWindow(p.o.Flavour, &w, exp(theta), asSized); !ok {
			return math.Inf(1)
		}
		q.windows = append(q.windows, w)
		q.sigma = append(q.sigma, [2]float64{1, 1})
	}
	q.base, q.basis = theta, identity(len(theta))
	values, _ := q.directions()
	return condition(values, len(theta))
}

func sweepWords(points []queuePoint) string {
	var out []string
	for _, p := range points {
		out = append(out, fmt.Sprintf("%.0f/%.0f tokens at %.3g/s", p.PromptTokens, p.OutputTokens, p.RateRPS))
	}
	return strings.Join(out, ", ") + " (prompt/output; 0.2 and 0.8 of capacity)"
}

// jacobian is d residuals / d z by differences, row by row, and the residuals
// themselves; nil where the model has no answer. Differences are central, or
// forward when p.quick.
func (p *problem) jacobian(z []float64) (j, r []float64) {
	n, rows := len(p.basis), p.size()
	r = make([]float64, rows)
	up, down := make([]float64, rows), r
	j = make([]float64, rows*n)
	if !p.residuals(z, r) {
		return nil, nil
	}
	below := 0.0
	if !p.quick {
		down, below = make([]float64, rows), lmStep
	}
	at := slices.Clone(z)
	for k := range n {
		at[k] = z[k] + lmStep
		ok := p.residuals(at, up)
		if !p.quick {
			at[k] = z[k] - below
			ok = ok && p.residuals(at, down)
		}
		if !ok {
			return nil, nil
		}
		at[k] = z[k]
		for i := range rows {
			j[i*n+k] = (up[i] - down[i]) / (lmStep + below)
		}
	}
	return j, r
}

// informative picks at most n windows that together tell the flavour's parameters apart
// best, near x: one after the other the window that adds most to the determinant of J'J, the
// relative derivatives of TTFT and ITL by log parameters. Positions come in that order.
func informative(windows []window, f Flavour, x []float64, n int) []int {
	p := evenProblem(windows, new(defaultFit(f)), logs(x))
	p.quick = false
	j, _ := p.jacobian(make([]float64, len(x)))
	if j == nil {
		return nil
	}
	dim := len(x)
	a := mat.NewSymDense(dim, nil)
	for i := range dim {
		a.SetSym(i, i, 1e-9)
	}
	with := func(i int) *mat.SymDense {
		b := mat.NewSymDense(dim, nil)
		b.CopySym(a)
		for _, row := range [][]float64{j[2*i*dim : (2*i+1)*dim], j[(2*i+1)*dim : (2*i+2)*dim]} {
			b.SymRankOne(b, 1, mat.NewVecDense(dim, row))
		}
		return b
	}
	var picked []int
	for len(picked) < min(n, len(windows)) {
		best, most := -1, math.Inf(-1)
		for i := range windows {
			if slices.Contains(picked, i) {
				continue
			}
			var c mat.Cholesky
			if c.Factorize(with(i)) && c.LogDet() > most {
				best, most = i, c.LogDet()
			}
		}
		if best < 0 {
			break
		}
		a, picked = with(best), append(picked, best)
	}
	return picked
}

func identity(n int) [][]float64 {
	out := make([][]float64, n)
	for i := range out {
		out[i] = make([]float64, n)
		out[i][i] = 1
	}
	return out
}

func largest(v []float64) int {
	at := 0
	for i := range v {
		if math.Abs(v[i]) > math.Abs(v[at]) {
			at = i
		}
	}
	return at
}

// Levenberg-Marquardt on weighted residuals; the robust losses by reweighting.
const (
	lmStep    = 1e-5 // of the central difference, in log parameters
	lmLargest = 1.5  // longest step in log parameters
)

// effort says when a search ends.
type effort struct {
	iterations int
	tol        float64 // relative fall of the objective
}

var (
	thorough = effort{60, 1e-10}
	scouting = effort{15, 1e-4}
	tracking = effort{6, 1e-4}
)

// marquardt minimises the objective from z.
func (p *problem) marquardt(z []float64, e effort) []float64 {
	z = slices.Clone(z)
	if len(z) == 0 {
		return z
	}
	damp := 1e-3
	for range e.iterations {
		a, g, loss, ok := p.normal(z)
		if !ok {
			return z
		}
		next, better := loss, false
		for ; damp < 1e12 && !better; damp *= 8 {
			step := solveDamped(a, g, damp)
			for k := range step {
				step[k] += z[k]
			}
			if next = p.objective(step); next < loss {
				z, better = step, true
			}
		}
		damp = math.Max(damp/80, 1e-12)
		if !better || loss-next <= e.tol*loss {
			return z
		}
	}
	return z
}

// normal are the matrix J'WJ (row by row), the gradient J'Wr and the objective at z.
func (p *problem) normal(z []float64) (a, g []float64, loss float64, ok bool) {
	j, r := p.jacobian(z)
	if j == nil {
		return nil, nil, 0, false
	}
	n := len(z)
	a, g = make([]float64, n*n), make([]float64, n)
	for i, v := range r {
		weight := 1.0
		if i < 2*len(p.windows) {
			_, weight = p.robust(v)
		}
		row := j[i*n : i*n+n]
		for x := range n {
			g[x] += weight * row[x] * v
			for y := range n {
				a[x*n+y] += weight * row[x] * row[y]
			}
		}
	}
	return a, g, p.loss(r), true
}

// solveDamped is -(A + damp*diag(A))^-1 g, no longer than lmLargest.
func solveDamped(a, g []float64, damp float64) []float64 {
	n := len(g)
	l, step := slices.Clone(a), make([]float64, n)
	for i := range n {
		l[i*n+i] += damp*a[i*n+i] + 1e-300
		step[i] = -g[i]
	}
	if stat.Cholesky(l, n) < n {
		return make([]float64, n)
	}
	stat.CholeskySolve(l, n, step)
	if length := math.Abs(step[largest(step)]); length > lmLargest {
		for k := range step {
			step[k] *= lmLargest / length
		}
	}
	return step
}
