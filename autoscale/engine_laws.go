package autoscale

// This file estimates how well three-parameter models can be trusted: it finds the parameters with
// which the simulator, instead of the queueing model, reproduces the windows
// (spec#queue-simulated). The difference is the error of the queueing model.

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim/workload"
)

// Settings of the search for an engine.
const (
	engineRequests = 4000  // largest number of requests in each simulated window
	engineTokens   = 12e6  // largest number of output tokens of all windows together
	enginePasses   = 3     // passes with a quarter of the requests, before one with all
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
		e.theta, _ = e.gaussNewtonStep(make([]int, len(windows)), -1) // from all windows
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
			Shape:     w.Shape,
			PromptLaw: workload.LogNormalLaw,
			OutputLaw: law,
			RateRPS:   w.RateRPS,
			Requests:  requests,
			Seed:      uint64(i + 1),
		}
		_, drawn := t.Draw()
		got, err := simulate(fromVector(expsOf(e.theta)), w.Limits, t, nil)
		if err != nil || !(got.ITLSeMs > 0) {
			return false
		}
		asDrawn := *w
		asDrawn.Shape = drawn
		asDrawn.RateRPS = t.DrawnRate()
		// TTFT and ITL of the corrected model: of the window, of the requests that were drawn, and of the
		// window after a step of each parameter.
		predict := func(w *window, theta []float64) (latencies [2]float64, ok bool) {
			latencies[0], latencies[1], ok = predictWindow(corrected, w, expsOf(theta), asSized)
			return latencies, ok
		}
		own, ok := predict(w, e.theta)
		ofDrawn, okDrawn := predict(&asDrawn, e.theta)
		if !ok || !okDrawn {
			return false
		}
		var stepped [3][2]float64
		for j := range stepped {
			theta := slices.Clone(e.theta)
			theta[j] += engineStep
			if stepped[j], ok = predict(w, theta); !ok {
				return false
			}
		}
		// The window's own means scatter too, by the number of its requests.
		both := math.Sqrt(1 + float64(got.Requests)/float64(cmp.Or(w.Requests, got.Requests)))
		for m, v := range [2]struct{ observed, simulated, simulatedSe float64 }{
			{w.TTFTMs, got.TTFTMs, got.TTFTSeMs},
			{w.ITLMs, got.ITLMs, got.ITLSeMs},
		} {
			se := math.Hypot(both*v.simulatedSe/v.simulated, engineFloor)
			e.residuals[2*i+m] = math.Log(v.observed/v.simulated*ofDrawn[m]/own[m]) / se
			for j := range stepped {
				e.slopes[2*i+m][j] = math.Log(stepped[j][m]/own[m]) / engineStep / se
			}
		}
	}
	return true
}

// gaussNewtonStep returns the log parameters that explain the residuals to first order, with
// standard errors. group has the group number of each window, of which those of number `without` are
// not used (-1: all are). Residuals far beyond the others' weigh less (Huber).
func (e *engine) gaussNewtonStep(group []int, without int) (theta, se []float64) {
	normal := make([]float64, 9) // 3 x 3, row by row
	gradient := make([]float64, 3)
	scale := [2]float64{} // scatter of the residuals of TTFT and of ITL, at least 1
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
		for row := range 3 {
			gradient[row] -= weight * r * e.slopes[i][row]
			for column := range 3 {
				normal[3*row+column] += weight * e.slopes[i][row] * e.slopes[i][column]
			}
		}
	}
	theta = slices.Clone(e.theta)
	se = make([]float64, 3)
	covariance := stat.Inverse(normal, 3)
	for j, move := range solveDamped(normal, gradient, 1e-9) {
		theta[j] += move
		if covariance != nil {
			se[j] = math.Sqrt(covariance[4*j]) // element (j, j)
		}
	}
	return theta, se
}
