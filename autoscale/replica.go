package autoscale

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/blis-train/blis-train/internal/stat"
)

// replicaOptions describe an autoscaler's online tuner.
type replicaOptions struct {
	Name       string
	Flavour    Flavour
	Percent    float64 // p: Q = diag((p x)^2), and P before the first window
	ErrorLevel float64 // e: R = diag((e/t)^2 z^2), t the percentile of both
	// Expected is z in R; 0 = the window's own observation.
	ExpectedTTFTMs, ExpectedITLMs float64
	// Bounds clamp the state to [Low, High] times a reference: the first state, and
	// from the second window on the built-in defaults (workload-variant-autoscaler) or
	// the current state (model-tuner).
	Low, High   float64
	BoundsMove  bool // the reference is the current state
	FreeUpdates int  // accepted updates before the gate works
	// UnboundedRate: the queue model answers above its capacity (queue-analysis from
	// v0.5); workload-variant-autoscaler's returns nil there.
	UnboundedRate bool
	Start         []float64 // first state; nil: guessed from the first window
}

// wvaTuner is the tuner of workload-variant-autoscaler v0.6.0 to v0.8.0
// (internal/engines/analyzers/queueingmodel; tuner/ as of b08b1c7).
var wvaTuner = replicaOptions{Name: "wva", Flavour: wvA3P, Percent: 0.05, ErrorLevel: 0.05, Low: 0.01, High: 100}

// modelTuner is llm-inferno/model-tuner@6dba8ce with its default configuration.
var modelTuner = replicaOptions{Name: "model-tuner", Flavour: inferno3P, Percent: 0.15, ErrorLevel: 0.5, ExpectedTTFTMs: 200,
	ExpectedITLMs: 40, Low: 0.1, High: 10, BoundsMove: true, FreeUpdates: 5, UnboundedRate: true}

// maxNIS is the 97.5 % quantile of chi-squared with two degrees of freedom, the
// autoscalers' gate. (Their comments call it 95 %, which would be 5.991.)
const maxNIS = 7.378

// replicaStep is the step of their Jacobian, relative to a parameter, absolute where it is 0 (kalman-filter
// pkg/config/defaults.go@810b26d).
const replicaStep = 0.01

// Replica runs the tuner over the windows, bug for bug: a rejected update takes
// the covariance back with the state, time update included, so that after a
// lasting jump every later window is rejected; clamping leaves the covariance as
// it was; above its capacity the model gives nothing, and where that happens
// beside the state the original dereferences a nil.
func Replica(windows []window, o replicaOptions) []step {
	steps := make([]step, 0, len(windows))
	var g gaussian
	updates := 0
	for i := range windows {
		w := &windows[i]
		first := g.x == nil
		if first {
			x := o.Start
			if x == nil {
				x = guess(o.Flavour, w, nil)
			}
			g.x = mat.NewVecDense(len(x), append([]float64(nil), x...))
			g.p = o.noise(x)
		}
		before := g.copy()
		s := o.update(&g, w, first, updates < o.FreeUpdates)
		s.Window = i
		if s.Accepted() {
			updates++
		} else {
			g = before
			if first {
				g.x = nil // nothing is stored: the next window starts anew
			}
		}
		s.X, s.P = before.state(), square(before.p)
		if g.x != nil {
			s.X, s.P = g.state(), square(g.p)
		}
		steps = append(steps, s)
	}
	return steps
}

// noise is diag((p x)^2).
func (o *replicaOptions) noise(x []float64) *mat.Dense {
	d := mat.NewDense(len(x), len(x), nil)
	for i, v := range x {
		d.Set(i, i, o.Percent*v*o.Percent*v)
	}
	return d
}

// limit clamps the state.
func (o *replicaOptions) limit(x *mat.VecDense, reference []float64) {
	for i, v := range reference {
		x.SetVec(i, math.Min(math.Max(x.AtVec(i), o.Low*v), o.High*v))
	}
}

// update is one cycle of the tuner on g; the caller takes it back when it is not accepted.
func (o *replicaOptions) update(g *gaussian, w *window, first, free bool) step {
	start := g.state()
	reference := start
	if !first && !o.BoundsMove && o.Flavour != wvA4P {
		reference = defaultState
	}
	o.limit(g.x, reference)
	s := step{Verdict: rejectedModel}
	y, nis, failed := g.cycle(o.observer(w), []float64{w.TTFTMs, w.ITLMs}, o.noise(start), o.measurement(w))
	if s.NIS = nis; y != nil {
		s.Innovation = [2]float64{y[0], y[1]}
	}
	if failed != "" {
		return s
	}
	o.limit(g.x, reference)
	s.Verdict = accepted
	switch {
	case !positive(g.state()):
		s.Verdict = rejectedSign
	case !free && nis >= maxNIS:
		s.Verdict = rejectedNIS
	}
	return s
}

// measurement is the diagonal of R.
func (o *replicaOptions) measurement(w *window) []float64 {
	z := []float64{w.TTFTMs, w.ITLMs}
	if o.ExpectedTTFTMs > 0 {
		z = []float64{o.ExpectedTTFTMs, o.ExpectedITLMs}
	}
	f := o.ErrorLevel / tunerPercentile
	for i, v := range z {
		z[i] = f * f * v * v
	}
	return z
}

// observer is the tuner's observation function in one window.
func (o *replicaOptions) observer(w *window) observer {
	return func(x []float64) ([]float64, bool) {
		ttft, itl, p, ok := predict(o.Flavour, w, x, asTuned)
		if !ok || !o.UnboundedRate && p.RateRPS > (1-0.001)*p.MaxRateRPS {
			return nil, false
		}
		return []float64{ttft, itl}, true
	}
}

// run is one online estimator over a server's windows.
type run struct {
	name    string
	flavour Flavour
	as      observation
	steps   []step
}

// Track runs the online estimators over the windows of a fitted server, in time order, and
// adds them to the document beside the batch fit: the autoscalers' tuners bug for bug, our
// own filter, and the refit over the last windows. A sweep has no time order; its
// benchmarks are taken by load, sweep after sweep. It returns their rows of windows.parquet.
func Track(f *Calibrated, o *Options) []WindowRow {
	if f.Reason != "" || len(f.Windows) == 0 {
		return nil
	}
	var rows []WindowRow
	for _, r := range f.runs(o) {
		rows = append(rows, f.stepRows(r.flavour, r.name, r.steps)...)
		f.Doc.Tracks = append(f.Doc.Tracks, f.trackDoc(r))
		f.Doc.Scores = append(f.Doc.Scores, f.trackScores(r)...)
	}
	return rows
}

// runs are the estimators. Replicas observe what their autoscaler's model observes.
func (f *Calibrated) runs(o *Options) []run {
	var out []run
	for _, replica := range []replicaOptions{wvaTuner, modelTuner} {
		out = append(out, run{"replica:" + replica.Name, replica.Flavour, asTuned, Replica(f.Windows, replica)})
	}
	robust := defaultRobust(o.Flavour)
	robust.Start = f.Physical.vector(o.Flavour)
	return append(out,
		run{"robust", o.Flavour, asSized, Robust(f.Windows, robust)}, run{"sliding", o.Flavour, asSized, sliding(f.Windows, o.Flavour,
			robust.Start)})
}

func (f *Calibrated) trackDoc(r run) queueTrack {
	s := summarize(f.Windows, r.steps)
	last := r.steps[len(r.steps)-1]
	s.Estimator, s.Flavour, s.Names, s.Final, s.Covariance = r.name, string(r.flavour), r.flavour.Parameters(), last.X, last.P
	s.Drift, s.Verdict = drift(r.steps), trackVerdict(&s)
	return s
}

// drift is the median relative change of each parameter from one accepted window to the next.
func drift(steps []step) []float64 {
	var last []float64
	var moves [][]float64
	for i := range steps {
		s := &steps[i]
		if !s.Accepted() {
			continue
		}
		for j := range last {
			moves[j] = append(moves[j], math.Abs(s.X[j]/last[j]-1))
		}
		if last == nil {
			moves = make([][]float64, len(s.X))
		}
		last = s.X
	}
	var out []float64
	for _, m := range moves {
		if len(m) == 0 {
			return nil
		}
		out = append(out, stat.Median(m))
	}
	return out
}

// trackVerdict says what a run's summary means.
func trackVerdict(s *queueTrack) string {
	switch {
	case s.Accepted == 0:
		return "no window was accepted"
	case s.LockedOut >= lockedOut:
		return fmt.Sprintf("locked out: the last %d windows were all rejected", s.LockedOut)
	case s.MeanNIS == nil:
		return "a refit, no filter"
	case *s.MeanNIS < 1:
		return "underconfident: its noise is set too large"
	case *s.MeanNIS > 4:
		return "overconfident: its noise is set too small, or the model is off"
	}
	return "consistent"
}

// lockedOut is the number of rejections in a row that the gate alone gives once in a million runs.
const lockedOut = 4

// trackScores judge what an estimator predicted of each window before it saw it, and its
// parameters at the end of the training windows on the hold-out.
func (f *Calibrated) trackScores(r run) []queueScore {
	out := []queueScore{scoreOf(r.name, oneAhead, evaluateAhead(f.Windows, r.steps))}
	if held := f.Windows[f.Split:]; len(held) > 0 && f.Split > 0 {
		out = append(out, scoreOf(r.name, holdOut, evaluate(held, r.flavour, r.steps[f.Split-1].X, r.as)))
	}
	return out
}

// oneAhead is the set of all windows, each predicted from those before it.
const oneAhead = "one_ahead"

// A refit over the last windows as model-tuner's sliding-window mode has it (pkg/estimator@6dba8ce): squared relative
// errors, one outlier dropped, an unidentified fit held back.
const (
	slidingWindows = 10  // in the buffer
	slidingLeast   = 5   // before the first fit
	slidingOutlier = 0.5 // relative error above which the worst window is dropped
)

// sliding refits at every window over the last ones, starting from the fit
// before, the first from start, or from a guess without it. The minimum is found by Levenberg-Marquardt; the original searches with
// 500 evaluations of Nelder-Mead. NIS and innovations are not defined: the
// innovation is that of the fit before.
func sliding(windows []window, f Flavour, start []float64) []step {
	opt := fitOptions{Flavour: f, Pull: 1, Huber: math.Inf(1)}
	last := start
	steps := make([]step, 0, len(windows))
	for i := range windows {
		w := &windows[i]
		if last == nil {
			last = guess(f, w, nil)
		}
		s := step{Window: i, X: last, NIS: math.NaN(), Verdict: filling}
		if ttft, itl, ok := predictWindow(f, w, last, asSized); ok {
			s.Innovation = [2]float64{w.TTFTMs - ttft, w.ITLMs - itl}
		}
		if i+1 >= slidingLeast {
			buffer := windows[max(0, i+1-slidingWindows) : i+1]
			if x, ok := refit(buffer, &opt, last); ok {
				last = x
				s.X = x
				s.Verdict = accepted
			} else {
				s.Verdict = heldBack
			}
		}
		steps = append(steps, s)
	}
	return steps
}

// refit is one fit of the buffer, once more without its worst window when that
// is an outlier.
func refit(buffer []window, opt *fitOptions, from []float64) ([]float64, bool) {
	p := evenProblem(buffer, opt, logs(from))
	theta := p.theta(p.marquardt(make([]float64, len(from)), tracking))
	if worst, err := p.worst(theta); err > slidingOutlier && len(buffer) > 2 {
		p = evenProblem(slices.Delete(slices.Clone(buffer), worst, worst+1), opt, theta)
		theta = p.theta(p.marquardt(make([]float64, len(from)), tracking))
	}
	p.base = theta
	values, _ := p.directions()
	return exp(theta), condition(values, len(from)) <= maxCondition
}

// evenProblem is one in which every window weighs the same and all directions move.
func evenProblem(windows []window, opt *fitOptions, theta []float64) *problem {
	return &problem{o: opt, windows: windows, sigma: evenSigma(len(windows)), scale: [2]float64{1, 1}, base: theta,
		basis: identity(len(theta)), quick: true}
}

// evenSigma weighs n windows the same.
func evenSigma(n int) [][2]float64 { return slices.Repeat([][2]float64{{1, 1}}, n) }

// worst is the window with the largest relative error, and that error.
func (p *problem) worst(theta []float64) (at int, err float64) {
	r := make([]float64, p.size())
	q := *p
	q.base = theta
	if !q.residuals(make([]float64, len(p.basis)), r) {
		return 0, 0
	}
	for i := range p.windows {
		if e := math.Hypot(r[2*i], r[2*i+1]); e > err {
			at, err = i, e
		}
	}
	return at, err
}

// robustOptions are those of our own tracker.
type robustOptions struct {
	Flavour     Flavour
	StartSD     float64 // standard deviation of log parameters before the first window
	Floor       float64 // relative error of a prediction beside the windows' standard errors
	Observation observation
	Start       []float64 // nil: guessed from the first window
}

// defaultRobust are the options of a bare run.
func defaultRobust(f Flavour) robustOptions {
	return robustOptions{Flavour: f, StartSD: 0.5, Floor: 0.02}
}

const (
	driftPerHour = 0.1      // standard deviation of log parameters after an hour
	gateJump     = math.Ln2 // that of log parameters that opening the gate assumes
	noStdErr     = 0.05     // relative standard deviation of an observation without one
	robustStep   = 1e-4     // of the Jacobian, in log parameters
	iterations   = 5        // of the update
	opensAfter   = 2        // rejections in a row
)

// Robust tracks log parameters: they cannot become negative. R is what the
// window's standard errors say, Q grows with the time between windows and only
// along directions the window shows, so that what it does not show stays where it
// is. The update is iterated and in Joseph's form. A rejected window keeps its
// time update; the second in a row opens the gate: something has changed, so the
// shown directions may have moved by gateJump.
func Robust(windows []window, o robustOptions) []step {
	steps := make([]step, 0, len(windows))
	var g gaussian
	rejected, lastNs := 0, int64(0)
	for i := range windows {
		w := &windows[i]
		if g.x == nil {
			x := o.Start
			if x == nil {
				x = guess(o.Flavour, w, nil)
			}
			g.x = mat.NewVecDense(len(x), logs(x))
			g.p = scaledIdentity(len(x), o.StartSD*o.StartSD)
			lastNs = w.StartNs
		}
		hours := math.Max(0, float64(w.StartNs-lastNs)/3.6e12)
		lastNs = w.StartNs
		s := o.update(&g, w, hours, rejected+1 >= opensAfter)
		if s.Accepted() {
			rejected = 0
		} else {
			rejected++
		}
		s.Window = i
		s.X = exp(g.state())
		s.P = natural(g.p, s.X)
		steps = append(steps, s)
	}
	return steps
}

// update is one window.
func (o *robustOptions) update(g *gaussian, w *window, hours float64, open bool) step {
	r := o.measurement(w)
	observe := o.observer(w)
	s := step{NIS: math.NaN(), Verdict: rejectedModel}
	hx, h, failed := logJacobian(observe, g.state())
	if failed != "" {
		return s
	}
	spread(g.p, h, r, driftPerHour*driftPerHour*hours)
	s.Innovation = [2]float64{w.TTFTMs - hx[0], w.ITLMs - hx[1]}
	_, nis, ok := innovationOf(logRatio(w, hx), h, g.p, r)
	if !ok {
		return s
	}
	s.NIS, s.Verdict = nis, accepted
	if nis >= maxNIS {
		if !open {
			s.Verdict = rejectedNIS
			return s
		}
		s.Verdict = acceptedOpening
		spread(g.p, h, r, gateJump*gateJump)
	}
	o.iterate(g, w, observe, linear{hx, h}, r)
	return s
}

// linear is an observation function near one state.
type linear struct {
	hx []float64
	h  *mat.Dense // d log(hx) / d theta
}

// iterate is the iterated update: linearise at the latest estimate, until it
// rests; at is the linearisation at the state.
func (o *robustOptions) iterate(g *gaussian, w *window, observe observer, at linear, r []float64) {
	x0 := g.state()
	x := g.state()
	var k mat.Dense
	var used *mat.Dense
	for i := range iterations {
		if i > 0 {
			var failed string
			if at.hx, at.h, failed = logJacobian(observe, x); failed != "" {
				break
			}
		}
		// innovation of the linearisation at x, about the prior mean
		y := logRatio(w, at.hx)
		for m := range y {
			for j := range x {
				y[m] -= at.h.At(m, j) * (x0[j] - x[j])
			}
		}
		sInv, _, ok := innovationOf(y, at.h, g.p, r)
		if !ok {
			break
		}
		used = at.h
		k.Reset()
		k.Product(g.p, used.T(), sInv)
		moved := 0.0
		for j := range x {
			next := x0[j]
			for m := range y {
				next += k.At(j, m) * y[m]
			}
			moved = math.Max(moved, math.Abs(next-x[j]))
			x[j] = next
		}
		if moved < 1e-6 {
			break
		}
	}
	if used == nil {
		return
	}
	g.x = mat.NewVecDense(len(x), x)
	g.p = joseph(g.p, &k, used, r)
}

// joseph is (I-KH) P (I-KH)' + K R K', positive whatever K is.
func joseph(p, k, h *mat.Dense, r []float64) *mat.Dense {
	n, _ := p.Dims()
	var kh, a mat.Dense
	kh.Mul(k, h)
	a.Sub(scaledIdentity(n, 1), &kh)
	var out, noise mat.Dense
	out.Product(&a, p, a.T())
	noise.Product(k, mat.NewDiagDense(len(r), r), k.T())
	out.Add(&out, &noise)
	return &out
}

// spread adds variance v along the directions that the window shows: those of H
// in units of the measurement noise whose singular value is above 1/1000 of the
// largest.
func spread(p, h *mat.Dense, r []float64, v float64) {
	if v == 0 {
		return
	}
	m, n := h.Dims()
	scaled := mat.NewDense(m, n, nil)
	for i := range m {
		for j := range n {
			scaled.Set(i, j, h.At(i, j)/math.Sqrt(r[i]))
		}
	}
	var svd mat.SVD
	if !svd.Factorize(scaled, mat.SVDThin) {
		return
	}
	values := svd.Values(nil)
	var dirs mat.Dense
	svd.VTo(&dirs)
	for k, s := range values {
		if s*1000 < values[0] {
			continue
		}
		for i := range n {
			for j := range n {
				p.Set(i, j, p.At(i, j)+v*dirs.At(i, k)*dirs.At(j, k))
			}
		}
	}
}

// measurement is the variance of the logarithm of each observation.
func (o *robustOptions) measurement(w *window) []float64 {
	relative := func(se, v float64) float64 {
		if se == 0 {
			se = noStdErr * v
		}
		return se*se/(v*v) + o.Floor*o.Floor
	}
	return []float64{relative(w.TTFTSeMs, w.TTFTMs), relative(w.ITLSeMs, w.ITLMs)}
}

// observer gives TTFT and ITL at log parameters.
func (o *robustOptions) observer(w *window) observer {
	return func(theta []float64) ([]float64, bool) {
		ttft, itl, ok := predictWindow(o.Flavour, w, exp(theta), o.Observation)
		return []float64{ttft, itl}, ok && ttft > 0 && itl > 0
	}
}

// logRatio is log(observed/predicted).
func logRatio(w *window, hx []float64) []float64 {
	return []float64{math.Log(w.TTFTMs / hx[0]), math.Log(w.ITLMs / hx[1])}
}

// logJacobian is the observations and d log(h)/d theta.
func logJacobian(h observer, theta []float64) (hx []float64, j *mat.Dense, failed string) {
	return differences(h, theta, func(float64) float64 { return robustStep }, func(up, down float64) float64 { return math.Log(up / down) })
}

func scaledIdentity(n int, v float64) *mat.Dense {
	d := mat.NewDense(n, n, nil)
	for i := range n {
		d.Set(i, i, v)
	}
	return d
}

// natural is the covariance of exp(theta) to first order.
func natural(p *mat.Dense, x []float64) [][]float64 {
	out := square(p)
	for i := range out {
		for j := range out[i] {
			out[i][j] *= x[i] * x[j]
		}
	}
	return out
}

// observer maps a state to the observations; ok is false where there are none.
type observer func(x []float64) (z []float64, ok bool)

// verdict is what an online estimator did with a window; windows.parquet has it.
type verdict string

// The verdicts of filters and of refits.
const (
	accepted        verdict = "accepted"               // the window moved the state
	acceptedOpening verdict = "gate_opened"            // the second in a row beyond the gate: something has changed
	rejectedNIS     verdict = "innovation_too_large"   // for the filter's noise
	rejectedSign    verdict = "parameter_not_positive" // after the update
	rejectedModel   verdict = "model_has_no_answer"    // at the window's rate and the filter's state, or beside it
	heldBack        verdict = "held_back"              // the last windows do not tell the parameters apart: the last good refit is kept
	filling         verdict = "filling"                // too few windows yet for a refit
)

// step is what a filter did with one window.
type step struct {
	Window     int // position in the input
	X          []float64
	P          [][]float64 // covariance of X
	Innovation [2]float64  // observed - predicted TTFT and ITL, ms
	NIS        float64     // normalised innovation squared; NaN without a prediction
	Verdict    verdict
}

// Accepted reports whether the window moved the state.
func (s *step) Accepted() bool { return s.Verdict == accepted || s.Verdict == acceptedOpening }

// gaussian is the state of a filter.
type gaussian struct {
	x *mat.VecDense
	p *mat.Dense
}

func (g *gaussian) copy() gaussian { return gaussian{mat.VecDenseCopyOf(g.x), mat.DenseCopyOf(g.p)} }

func (g *gaussian) state() []float64 { return append([]float64(nil), g.x.RawVector().Data...) }

func square(m *mat.Dense) [][]float64 {
	n, _ := m.Dims()
	out := make([][]float64, n)
	for i := range out {
		out[i] = mat.Row(nil, i, m)
	}
	return out
}

// differences are the observations at x and how they change, by central differences. failed names the
// evaluation that had no answer: the state itself, or a point beside it.
func differences(h observer, x []float64, step func(v float64) float64, change func(up, down float64) float64) (hx []float64,
	j *mat.Dense, failed string) {
	hx, ok := h(x)
	if !ok {
		return nil, nil, "at the state"
	}
	j = mat.NewDense(len(hx), len(x), nil)
	at := slices.Clone(x)
	for c := range x {
		eps := step(x[c])
		at[c] = x[c] + eps
		up, ok1 := h(at)
		at[c] = x[c] - eps
		down, ok2 := h(at)
		at[c] = x[c]
		if !ok1 || !ok2 {
			return hx, nil, "beside the state"
		}
		for r := range hx {
			j.Set(r, c, change(up[r], down[r])/(2*eps))
		}
	}
	return hx, j, ""
}

// innovationOf is S = H P H' + R, its inverse, and y' S^-1 y.
func innovationOf(y []float64, h, p *mat.Dense, r []float64) (sInv *mat.Dense, nis float64, ok bool) {
	m := len(y)
	var s mat.Dense
	s.Product(h, p, h.T())
	for i := range m {
		s.Set(i, i, s.At(i, i)+r[i])
	}
	sInv = mat.NewDense(m, m, nil)
	if sInv.Inverse(&s) != nil {
		return nil, math.NaN(), false
	}
	v := mat.NewVecDense(m, y)
	return sInv, mat.Inner(v, sInv, v), true
}

// cycle is one time and measurement update with the identity as transition: P
// grows by q, then x and P are corrected by z with noise diag(r). failed names the
// evaluation of h that had no answer, or the inverse; g is then as far as it got.
func (g *gaussian) cycle(h observer, z []float64, q *mat.Dense, r []float64) (y []float64, nis float64, failed string) {
	g.p.Add(g.p, q)
	hx, j, failed := differences(h, g.state(), func(v float64) float64 { return cmp.Or(replicaStep*math.Abs(v), replicaStep) },
		func(up, down float64) float64 { return up - down })
	if failed != "" {
		return nil, math.NaN(), failed
	}
	y = make([]float64, len(z))
	for i := range z {
		y[i] = z[i] - hx[i]
	}
	sInv, nis, ok := innovationOf(y, j, g.p, r)
	if !ok {
		return y, math.NaN(), "inverting the innovation's covariance"
	}
	g.correct(y, j, sInv)
	return y, nis, ""
}

// correct is the textbook update: K = P H' S^-1, x + K y, (I - K H) P.
func (g *gaussian) correct(y []float64, h, sInv *mat.Dense) {
	var k, kh, rest, p mat.Dense
	k.Product(g.p, h.T(), sInv)
	var step mat.VecDense
	step.MulVec(&k, mat.NewVecDense(len(y), y))
	g.x.AddVec(g.x, &step)
	kh.Mul(&k, h)
	n, _ := g.p.Dims()
	rest.Sub(scaledIdentity(n, 1), &kh)
	p.Mul(&rest, g.p)
	g.p = &p
}
