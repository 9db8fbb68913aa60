package autoscale

// This file is our own online estimator: a Kalman filter in log parameters that recovers from
// lasting changes.

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// robustOptions are the options of our filter.
type robustOptions struct {
	Flavour     Flavour
	StartSD     float64 // standard deviation of log parameters before the first window
	Floor       float64 // relative error of a prediction, in addition to the windows' standard errors
	Observation observation
	Start       []float64 // nil: guessed from the first window
}

// defaultRobust returns the default options for a flavour.
func defaultRobust(f Flavour) robustOptions {
	return robustOptions{Flavour: f, StartSD: 0.5, Floor: 0.02}
}

const (
	driftPerHour = 0.1      // standard deviation of the change of log parameters in an hour
	gateJump     = math.Ln2 // standard deviation of their change that opening the gate assumes
	noStdErr     = 0.05     // relative standard deviation of an observation without one
	robustStep   = 1e-4     // of the Jacobian, in log parameters
	iterations   = 5        // largest number of iterations of an update
	opensAfter   = 2        // rejections in a row after which the gate opens
)

// Robust tracks the log parameters over the windows and returns its steps. R, the variance of the
// observations, comes from the windows' standard errors. Q, that of the parameters' drift, grows with
// the time between windows, and only along directions that the window determines; other directions
// keep their values. The update is iterated, in Joseph's
// form. A rejected window keeps its time update. The second rejection in a row opens the gate,
// which means that something has changed: the determined directions may then have moved by
// gateJump.
func Robust(windows []window, o robustOptions) []step {
	steps := make([]step, 0, len(windows))
	var g gaussian
	rejected := 0
	lastNs := int64(0)
	for i := range windows {
		w := &windows[i]
		if g.x == nil {
			x := o.Start
			if x == nil {
				x = guessParameters(o.Flavour, w, nil)
			}
			g.x = mat.NewVecDense(len(x), logsOf(x))
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
		s.X = expsOf(g.state())
		s.P = toParameterCovariance(g.p, s.X)
		steps = append(steps, s)
	}
	return steps
}

// update does one cycle for window w, `hours` after the last one. open means that the window may
// not be rejected.
func (o *robustOptions) update(g *gaussian, w *window, hours float64, open bool) step {
	r := o.measurement(w)
	observe := o.observer(w)
	s := step{NIS: math.NaN(), Verdict: rejectedModel}
	hx, h, failed := logJacobian(observe, g.state())
	if failed != "" {
		return s
	}
	addVariance(g.p, h, r, driftPerHour*driftPerHour*hours)
	s.Innovation = [2]float64{w.TTFTMs - hx[0], w.ITLMs - hx[1]}
	_, nis, ok := innovationOf(logRatio(w, hx), h, g.p, r)
	if !ok {
		return s
	}
	s.NIS = nis
	s.Verdict = accepted
	if nis >= maxNIS {
		if !open {
			s.Verdict = rejectedNIS
			return s
		}
		s.Verdict = acceptedOpening
		addVariance(g.p, h, r, gateJump*gateJump)
	}
	o.iterate(g, w, observe, linear{hx, h}, r)
	return s
}

// linear is an observation function near one state: observations and derivatives.
type linear struct {
	hx []float64
	h  *mat.Dense // d log(hx) / d theta
}

// iterate does the measurement update, linearised again at each new estimate until it does not move
// any more. at is the linearisation at the present state, r the diagonal of R.
func (o *robustOptions) iterate(g *gaussian, w *window, observe observer, at linear, r []float64) {
	x0 := g.state()
	x := g.state()
	var gain mat.Dense
	var used *mat.Dense
	for i := range iterations {
		if i > 0 {
			var failed string
			if at.hx, at.h, failed = logJacobian(observe, x); failed != "" {
				break
			}
		}
		// innovation of the linearisation at x, about the mean before the update
		innovation := logRatio(w, at.hx)
		for m := range innovation {
			for j := range x {
				innovation[m] -= at.h.At(m, j) * (x0[j] - x[j])
			}
		}
		sInv, _, ok := innovationOf(innovation, at.h, g.p, r)
		if !ok {
			break
		}
		used = at.h
		gain.Reset()
		gain.Product(g.p, used.T(), sInv)
		moved := 0.0
		for j := range x {
			next := x0[j]
			for m := range innovation {
				next += gain.At(j, m) * innovation[m]
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
	g.p = joseph(g.p, &gain, used, r)
}

// joseph returns the covariance (I-KH) P (I-KH)' + K R K', which is positive definite whatever K
// is.
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

// addVariance adds variance v to covariance p along the directions that the window determines:
// those of H, in units of the measurement noise, whose singular value is above 1/1000 of the
// largest.
func addVariance(p, h *mat.Dense, r []float64, v float64) {
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

// measurement returns the variance of the logarithm of each observation.
func (o *robustOptions) measurement(w *window) []float64 {
	relative := func(se, v float64) float64 {
		if se == 0 {
			se = noStdErr * v
		}
		return se*se/(v*v) + o.Floor*o.Floor
	}
	return []float64{relative(w.TTFTSeMs, w.TTFTMs), relative(w.ITLSeMs, w.ITLMs)}
}

// observer returns a function from log parameters to TTFT and ITL in window w, ms.
func (o *robustOptions) observer(w *window) observer {
	return func(theta []float64) ([]float64, bool) {
		ttft, itl, ok := predictWindow(o.Flavour, w, expsOf(theta), o.Observation)
		return []float64{ttft, itl}, ok && ttft > 0 && itl > 0
	}
}

// logRatio returns log(observed/predicted) of TTFT and ITL.
func logRatio(w *window, hx []float64) []float64 {
	return []float64{math.Log(w.TTFTMs / hx[0]), math.Log(w.ITLMs / hx[1])}
}

// logJacobian returns the observations at log parameters theta and d log(h)/d theta; failed is as
// in differences.
func logJacobian(h observer, theta []float64) (hx []float64, j *mat.Dense, failed string) {
	return differences(h, theta, func(float64) float64 { return robustStep },
		func(up, down float64) float64 { return math.Log(up / down) })
}

// scaledIdentity returns v times the n x n identity.
func scaledIdentity(n int, v float64) *mat.Dense {
	d := mat.NewDense(n, n, nil)
	for i := range n {
		d.Set(i, i, v)
	}
	return d
}

// toParameterCovariance returns the covariance of parameters x from p, that of their logarithms, to
// first order.
func toParameterCovariance(p *mat.Dense, x []float64) [][]float64 {
	out := rowsOf(p)
	for i := range out {
		for j := range out[i] {
			out[i][j] *= x[i] * x[j]
		}
	}
	return out
}
