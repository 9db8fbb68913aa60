package autoscale

import "math"

// SlidingOptions are those of a refit over the last windows, as model-tuner's
// sliding-window mode has them (pkg/estimator@6dba8ce): squared relative errors,
// one outlier dropped, an unidentified fit held back.
type SlidingOptions struct {
	Flavour      Flavour
	Windows      int     // in the buffer
	Least        int     // before the first fit
	Outlier      float64 // relative error above which the worst window is dropped
	MaxCondition float64
	Observation  Observation
	Start        []float64
}

// defaultSliding are model-tuner's defaults.
func defaultSliding(f Flavour) SlidingOptions {
	return SlidingOptions{Flavour: f, Windows: 10, Least: 5, Outlier: 0.5, MaxCondition: 1000}
}

// Sliding refits at every window over the last ones, starting from the fit
// before. The minimum is found by Levenberg-Marquardt; the original searches with
// 500 evaluations of Nelder-Mead. NIS and innovations are not defined: the
// innovation is that of the fit before.
func Sliding(windows []Window, o SlidingOptions) []Step {
	opt := FitOptions{Flavour: o.Flavour, Pull: 1, Huber: math.Inf(1), MaxCondition: o.MaxCondition, Observation: o.Observation}
	var last []float64
	steps := make([]Step, 0, len(windows))
	for i := range windows {
		w := &windows[i]
		if last == nil {
			if last = o.Start; last == nil {
				last = Guess(o.Flavour, w, nil)
			}
		}
		s := Step{Window: i, X: last, NIS: math.NaN(), Verdict: filling}
		if ttft, itl, _, ok := predict(o.Flavour, w, last, o.Observation); ok {
			s.Innovation = [2]float64{w.TTFTMs - ttft, w.ITLMs - itl}
		}
		if i+1 >= o.Least {
			buffer := windows[max(0, i+1-o.Windows) : i+1]
			if x, ok := refit(buffer, &opt, last, o.Outlier); ok {
				last, s.X, s.Verdict = x, x, accepted
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
func refit(buffer []Window, opt *FitOptions, from []float64, outlier float64) ([]float64, bool) {
	p := evenProblem(buffer, opt, logs(from))
	theta := p.theta(p.marquardt(make([]float64, len(from)), tracking))
	if worst, err := p.worst(theta); err > outlier && len(buffer) > 2 {
		kept := append(append([]Window(nil), buffer[:worst]...), buffer[worst+1:]...)
		p = evenProblem(kept, opt, theta)
		theta = p.theta(p.marquardt(make([]float64, len(from)), tracking))
	}
	p.base = theta
	values, _ := p.directions()
	return exp(theta), condition(values, len(from)) <= opt.MaxCondition
}

// evenProblem is one in which every window weighs the same and all directions move.
func evenProblem(windows []Window, opt *FitOptions, theta []float64) *problem {
	p := &problem{o: opt, windows: windows, scale: [2]float64{1, 1}, base: theta, basis: identity(len(theta)), quick: true}
	p.sigma = make([][2]float64, len(windows))
	for i := range p.sigma {
		p.sigma[i] = [2]float64{1, 1}
	}
	return p
}

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
