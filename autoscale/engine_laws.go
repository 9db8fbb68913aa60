package autoscale

// This file estimates how well three-parameter models can be trusted: it finds the parameters with
// which the simulator, instead of the queueing model, reproduces the windows
// (spec#queue-simulated). The difference is the error of the queueing model. It also has the
// starting values of a fit of wva-4p.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim/workload"
)

// startOf returns starting values of the four parameters of wva-4p from the lightest and the
// heaviest of the windows w. Parameters that the loads do not determine keep these values.
func startOf(w []window) []float64 {
	lo, hi := &w[0], &w[len(w)-1]
	busy := math.Max(1, hi.RateRPS/1000*hi.ITLMs*hi.Shape.Output) // requests in service, about
	slope := func(a, b float64) float64 { return math.Max(b-a, 1e-3*a) / busy }
	return []float64{lo.ITLMs, slope(lo.ITLMs, hi.ITLMs), lo.TTFTMs, slope(lo.TTFTMs, hi.TTFTMs) / hi.Shape.Prompt}
}

// Settings of the search for an engine.
const ( // largest number of requests in each simulated window
	engineRequests = 4000  // largest number of output tokens of all windows together
	engineTokens   = 12e6  // passes with a quarter of the requests, before one with all
	enginePasses   = 3     // step of the log parameters for slopes
	engineStep     = 0.01  // difference of the parameters' logarithms for the slopes
	engineFloor    = 0.002 // relative error of every mean in addition to its standard error
	engineHuber    = 1.345 // standard deviations beyond which a residual weighs less
)

// engine is the values of alpha, beta and gamma with which the simulator reproduces the windows.
type engine struct {
	theta     []float64    // logarithms of the parameters that were simulated
	residuals []float64    // logarithms of observed over simulated TTFT and ITL of each window, in standard deviations
	slopes    [][3]float64 // derivatives of the simulated logarithms by the log parameters, in the same unit
}

// lawsOf returns the distributions of output lengths that agree with the spread of lengths in the
// windows: constant and exponential if no spread is known.
func lawsOf(windows []window) []workload.Law {
	var cv2s []float64
	for i := range windows {
		cv2s = append(cv2s, windows[i].Shape.OutputCV2)
	}
	cv2 := stat.Median(cv2s)
	switch {
	case cv2 == 0:
		return []workload.Law{workload.ConstantLaw, workload.ExponentialLaw}
	case cv2 > 0.8 && cv2 < 1.25:
		return []workload.Law{workload.ExponentialLaw}
	}
	return []workload.Law{workload.LogNormalLaw}
}

// newEngine finds the parameters with which the simulator reproduces the latencies of the windows,
// beginning with parameters x of flavour f. The fit of the corrected model is the first
// approximation. It returns nil for wva-4p, whose parameters do not describe an iteration, and if a
// window cannot be simulated.
func newEngine(windows []window, x []float64, law workload.Law, f Flavour) *engine {
	if f == wvA4P {
		return nil
	}
	o := defaultFit(corrected)
	o.Near = x
	near, err := Fit(windows, o)
	if err != nil {
		return nil
	}
	tokens := 0.0
	for i := range windows {
		tokens += windows[i].Shape.Output
	}
	e := &engine{theta: logsOf(near.X)}
	n := int(math.Min(engineRequests, engineTokens/tokens))
	for range enginePasses {
		if !e.simulateWindows(windows, law, n/4) {
			return nil
		}
		e.theta, _ = e.gaussNewtonStep(make([]int, len(windows)), -1)
	}
	if !e.simulateWindows(windows, law, n) {
		return nil
	}
	return e
}

// simulateWindows simulates every window with the parameters e.theta and sets residuals and slopes;
// false if one cannot be simulated. The lengths and the rate that were drawn differ a little from
// the window's; the corrected model predicts the effect of the difference, by which the result is
// corrected. Slopes are those of the corrected model.
func (e *engine) simulateWindows(windows []window, law workload.Law, requests int) bool {
	e.residuals = make([]float64, 2*len(windows))
	e.slopes = make([][3]float64, 2*len(windows))
	for i := range windows {
		w := &windows[i]
		t := workload.Traffic{
			Shape:    w.Shape,
			Prompts:  workload.LogNormalLaw,
			Output:   law,
			RateRPS:  w.RateRPS,
			Requests: requests,
			Seed:     uint64(i + 1),
		}
		_, drawn := t.Draw()
		got, err := simulate(fromVector(expsOf(e.theta)), w.Limits, t, nil)
		if err != nil || !(got.ITLSeMs > 0) {
			return false
		}
		asDrawn := *w
		asDrawn.Shape = drawn
		asDrawn.RateRPS = t.DrawnRate()
		// TTFT and ITL of the corrected model: 0 to 2 after a step up of one parameter, 3 without a step, 4 without
		// a step for the drawn requests.
		var near [5][2]float64
		for j := range near {
			z := slices.Clone(e.theta)
			predicted := w
			if j < 3 {
				z[j] += engineStep
			} else if j == 4 {
				predicted = &asDrawn
			}
			ttft, itl, ok := predictWindow(corrected, predicted, expsOf(z), asSized)
			if !ok {
				return false
			}
			near[j] = [2]float64{ttft, itl}
		}
		// The window's own means scatter too, by the number of its requests.
		both := math.Sqrt(1 + float64(got.Requests)/float64(cmp.Or(w.Requests, got.Requests)))
		for m, v := range [2]struct{ observed, simulated, simulatedSe float64 }{
			{w.TTFTMs, got.TTFTMs, got.TTFTSeMs},
			{w.ITLMs, got.ITLMs, got.ITLSeMs},
		} {
			se := math.Hypot(both*v.simulatedSe/v.simulated, engineFloor)
			e.residuals[2*i+m] = math.Log(v.observed/v.simulated*near[4][m]/near[3][m]) / se
			for j := range 3 {
				e.slopes[2*i+m][j] = math.Log(near[j][m]/near[3][m]) / engineStep / se
			}
		}
	}
	return true
}

// gaussNewtonStep returns the log parameters that explain the residuals to first order, with
// standard errors. Windows of group number without are not used (-1: all are). Residuals far beyond
// the others' weigh less (Huber).
func (e *engine) gaussNewtonStep(group []int, without int) (x, se []float64) {
	normal := make([]float64, 9)
	gradient := make([]float64, 3)
	scale := [2]float64{}
	for m := range scale {
		var size []float64
		for i := range group {
			size = append(size, math.Abs(e.residuals[2*i+m]))
		}
		scale[m] = math.Max(1, madToSigma*stat.Median(size))
	}
	// The normal equations of the residuals, each divided by the scatter of its kind.
	for i, r := range e.residuals {
		if group[i/2] == without {
			continue
		}
		scaleWeight := 1 / scale[i%2]
		weight := math.Min(scaleWeight, engineHuber/math.Max(math.Abs(r), 1e-9)) * scaleWeight
		for x := range 3 {
			gradient[x] -= weight * r * e.slopes[i][x]
			for y := range 3 {
				normal[3*x+y] += weight * e.slopes[i][x] * e.slopes[i][y]
			}
		}
	}
	x = slices.Clone(e.theta)
	se = make([]float64, 3)
	covariance := stat.Inverse(normal, 3)
	for j, move := range solveDamped(normal, gradient, 1e-9) {
		x[j] += move
		if covariance != nil {
			se[j] = math.Sqrt(covariance[4*j])
		}
	}
	return x, se
}
