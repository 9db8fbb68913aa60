package autoscale

// This file reproduces the autoscalers' own online tuners (extended Kalman filters), with their
// bugs, to show what they would have estimated.

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// replicaOptions describe the online tuner of an autoscaler. x is its state, z the observations.
type replicaOptions struct {
	Name       string
	Flavour    Flavour
	Percent    float64 // p: Q = diag((p x)^2), and P before the first window
	ErrorLevel float64 // e: R = diag((e/t)^2 z^2), t the percentile of both
	// Expected is z in R; 0 = the window's own observation, ms.
	ExpectedTTFTMs, ExpectedITLMs float64
	// Bounds clamp the state to [Low, High] times a reference: in the first window the state that it
	// starts from; from the second window on that state again if BoundsMove, otherwise defaultState.
	Low, High   float64
	BoundsMove  bool
	FreeUpdates int // number of accepted updates before windows are rejected for their NIS
	// UnboundedRate is true if the queueing model answers above its capacity (queue-analysis from
	// v0.5); that of workload-variant-autoscaler returns nil there.
	UnboundedRate bool
	Start         []float64 // first state; nil: guessed from the first window
}

// wvaTuner is the tuner of workload-variant-autoscaler v0.6.0 to v0.8.0
// (internal/engines/analyzers/queueingmodel; tuner/ as of b08b1c7).
var wvaTuner = replicaOptions{
	Name:       "wva",
	Flavour:    wvA3P,
	Percent:    0.05,
	ErrorLevel: 0.05,
	Low:        0.01,
	High:       100,
}

// modelTuner is llm-inferno/model-tuner@6dba8ce with its default configuration.
var modelTuner = replicaOptions{
	Name:           "model-tuner",
	Flavour:        inferno3P,
	Percent:        0.15,
	ErrorLevel:     0.5,
	ExpectedTTFTMs: 200,
	ExpectedITLMs:  40,
	Low:            0.1,
	High:           10,
	BoundsMove:     true,
	FreeUpdates:    5,
	UnboundedRate:  true,
}

// foundingTuner is the tuner of the autoscaler's first proposal, workload-variant-autoscaler's pull request 248: four
// states, alpha, beta, gamma and delta, of the model of v0.0.1 to v0.4.2. The targets that it takes as z in R are not
// in a recording, so z is the window's observation.
var foundingTuner = replicaOptions{
	Name:       "wva-4p",
	Flavour:    wvA4P,
	Percent:    0.05,
	ErrorLevel: 0.05,
	Low:        0.1,
	High:       10,
	BoundsMove: true,
}

// maxNIS is the 97.5 % quantile of chi-squared with two degrees of freedom, above which the
// autoscalers reject a window. (Their comments call it 95 %, which would be 5.991.)
const maxNIS = 7.378

// replicaStep is the step of the autoscalers' Jacobian, relative to a parameter, or absolute if it
// is 0 (kalman-filter pkg/config/defaults.go@810b26d).
const replicaStep = 0.01

// Replica runs the original tuner over the windows, bug for bug, and returns its steps. A rejected
// update resets the covariance together with the state, including the time update, so that after a
// lasting jump every later window is rejected. Clamping the state does not change the covariance.
// Above its capacity the model has no answer; where that happens at a neighbouring point of the
// Jacobian, the original dereferences nil.
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
				x = guessParameters(o.Flavour, w, nil)
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
		s.X = before.state()
		s.P = rowsOf(before.p)
		if g.x != nil {
			s.X = g.state()
			s.P = rowsOf(g.p)
		}
		steps = append(steps, s)
	}
	return steps
}

// noise returns diag((p x)^2) with p = o.Percent.
func (o *replicaOptions) noise(x []float64) *mat.Dense {
	d := mat.NewDense(len(x), len(x), nil)
	for i, v := range x {
		d.Set(i, i, o.Percent*v*o.Percent*v)
	}
	return d
}

// limit clamps state x to [Low, High] times the reference.
func (o *replicaOptions) limit(x *mat.VecDense, reference []float64) {
	for i, v := range reference {
		x.SetVec(i, math.Min(math.Max(x.AtVec(i), o.Low*v), o.High*v))
	}
}

// update does one cycle of the tuner (gaussian.cycle) on g for window w. The state is clamped before and
// after it. Q comes from the state before the first clamping. free means that the window cannot be
// rejected for its NIS (normalised innovation squared). The caller restores g if the window is not accepted.
func (o *replicaOptions) update(g *gaussian, w *window, first, free bool) step {
	before := g.state()
	reference := defaultState
	if first || o.BoundsMove {
		reference = before
	}
	o.limit(g.x, reference)
	y, nis, failed := g.cycle(o.observer(w), []float64{w.TTFTMs, w.ITLMs}, o.noise(before), o.measurement(w))
	o.limit(g.x, reference)
	s := step{NIS: nis, Verdict: accepted}
	if y != nil {
		s.Innovation = [2]float64{y[0], y[1]}
	}
	switch {
	case failed != "":
		s.Verdict = rejectedModel
	case !positive(g.state()):
		s.Verdict = rejectedSign
	case !free && nis >= maxNIS:
		s.Verdict = rejectedNIS
	}
	return s
}

// measurement returns the variances of the errors of a window's TTFT and ITL, ms^2: the diagonal of
// the covariance R of the Kalman filter. They scale with the square of the expected latencies if
// given, otherwise of the measured ones.
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

// observer returns the tuner's observation function in one window.
func (o *replicaOptions) observer(w *window) observer {
	return func(x []float64) ([]float64, bool) {
		ttft, itl, p, ok := solveWindow(o.Flavour, w, x, asTuned)
		if !ok || !o.UnboundedRate && p.RateRPS > (1-rangeEdge)*p.MaxRateRPS {
			return nil, false
		}
		return []float64{ttft, itl}, true
	}
}
