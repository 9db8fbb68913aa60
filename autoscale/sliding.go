package autoscale

import (
	"math"
	"slices"
)

// This file refits the parameters to the last windows, as model-tuner's sliding-window mode does
// (pkg/estimator@6dba8ce): squared relative errors, one outlier dropped, and a fit that the windows
// do not determine is not used.
const (
	slidingWindows = 10  // windows in the buffer
	slidingLeast   = 5   // windows before the first fit
	slidingOutlier = 0.5 // relative error above which the worst window is dropped
)

// sliding refits the last windows at each new one and returns the steps. The search starts from the
// previous fit, the first time from start, or from a guess if start is nil. The minimum is found by
// Levenberg-Marquardt; the original makes 500 evaluations of Nelder-Mead. The estimator has no NIS;
// the innovation of a window is the error of the previous fit.
func sliding(windows []window, f Flavour, start []float64) []step {
	opt := fitOptions{Flavour: f, Pull: 1, Huber: math.Inf(1)}
	last := start
	steps := make([]step, 0, len(windows))
	for i := range windows {
		w := &windows[i]
		if last == nil {
			last = guessParameters(f, w, nil)
		}
		s := step{Window: i, X: last, NIS: math.NaN(), Verdict: filling}
		if ttft, itl, ok := predictWindow(f, w, last, asSized); ok {
			s.Innovation = [2]float64{w.TTFTMs - ttft, w.ITLMs - itl}
		}
		if i+1 >= slidingLeast {
			buffer := windows[max(0, i+1-slidingWindows) : i+1]
			if x, ok := refitBuffer(buffer, &opt, last); ok {
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

// refitBuffer returns the fit of the buffer, repeated without its worst window if that is an
// outlier; false if the windows do not determine the parameters.
func refitBuffer(buffer []window, opt *fitOptions, from []float64) ([]float64, bool) {
	p := evenProblem(buffer, opt, logsOf(from))
	theta := p.theta(p.marquardt(make([]float64, len(from)), tracking))
	if worst, err := p.worstWindow(theta); err > slidingOutlier && len(buffer) > 2 {
		p = evenProblem(slices.Delete(slices.Clone(buffer), worst, worst+1), opt, theta)
		theta = p.theta(p.marquardt(make([]float64, len(from)), tracking))
	}
	p.base = theta
	values, _ := p.directions()
	return expsOf(theta), condition(values, len(from)) <= maxCondition
}

// evenProblem returns a problem in which every window has the same weight and all directions move.
func evenProblem(windows []window, opt *fitOptions, theta []float64) *problem {
	return &problem{
		o:       opt,
		windows: windows,
		sigma:   evenSigma(len(windows)),
		scale:   [2]float64{1, 1},
		base:    theta,
		basis:   identity(len(theta)),
		quick:   true,
	}
}

// evenSigma returns equal standard deviations for n windows.
func evenSigma(n int) [][2]float64 { return slices.Repeat([][2]float64{{1, 1}}, n) }

// worstWindow returns the position of the window with the largest relative error, and that error.
func (p *problem) worstWindow(theta []float64) (at int, err float64) {
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
