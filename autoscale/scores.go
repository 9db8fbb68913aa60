package autoscale

// This file scores estimators: how well their parameters predict the TTFT and ITL of windows, and
// whether a filter's noise was right.

import (
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// summarize returns the consistency of a filter's run. MeanNIS is 2 for a filter with the right
// noise, below 2 for an underconfident one (R or P too large), above 2 for an overconfident one.
// Innovations that are not white would have allowed better predictions.
func summarize(windows []window, steps []step) queueTrack {
	s := queueTrack{Windows: len(steps)}
	var nis float64
	predicted, rejected := 0, 0
	var innovations [2][]float64
	for i := range steps {
		st := &steps[i]
		if st.Accepted() {
			s.Accepted++
			s.LockedOut = 0
		} else {
			s.LockedOut++
		}
		if math.IsNaN(st.NIS) {
			s.Unpredicted++
			continue
		}
		predicted++
		nis += st.NIS
		if st.Verdict == rejectedNIS || st.Verdict == acceptedOpening {
			rejected++
		}
		w := &windows[st.Window]
		innovations[0] = append(innovations[0], st.Innovation[0]/w.TTFTMs)
		innovations[1] = append(innovations[1], st.Innovation[1]/w.ITLMs)
	}
	if predicted > 0 {
		s.MeanNIS = result.OrNull(nis / float64(predicted))
		s.RejectedFrac = float64(rejected) / float64(predicted)
	}
	for m := range innovations {
		s.Whiteness[m] = result.OrNull(lag1(innovations[m]))
	}
	return s
}

// lag1 returns the correlation of neighbouring values; NaN for fewer than three.
func lag1(v []float64) float64 {
	if len(v) < 3 {
		return math.NaN()
	}
	mean := stat.Mean(v)
	var next, all float64
	for i, x := range v {
		all += (x - mean) * (x - mean)
		if i > 0 {
			next += (x - mean) * (v[i-1] - mean)
		}
	}
	if all == 0 {
		return math.NaN()
	}
	return next / all
}

// evaluate returns the score of the queueing model of flavour f with parameters x: its errors against
// the measured latencies of the windows. Windows for which the model has no answer are counted in
// Unpredicted.
func evaluate(windows []window, f Flavour, x []float64, as observation) queueScore {
	return evaluateAny(windows, func(_ int, w *window) (float64, float64, bool) { return predictWindow(f, w, x, as) })
}

// evaluateConstant scores a constant prediction, the medians of the training windows.
func evaluateConstant(train, windows []window) queueScore {
	var ttfts, itls []float64
	for _, w := range train {
		ttfts = append(ttfts, w.TTFTMs)
		itls = append(itls, w.ITLMs)
	}
	ttft := stat.Median(ttfts)
	itl := stat.Median(itls)
	return evaluateAny(windows, func(int, *window) (float64, float64, bool) { return ttft, itl, len(train) > 0 })
}

// evaluateAny scores a predictor, which returns TTFT and ITL of window i in ms. WAPE is the sum of
// absolute errors over the sum of observations, bias the sum of signed errors over the same.
func evaluateAny(windows []window, predicted func(i int, w *window) (ttft, itl float64, ok bool)) queueScore {
	var s queueScore
	var ttft, itl, ttftOff, itlOff, ttftBias, itlBias float64
	for i := range windows {
		w := &windows[i]
		a, b, ok := predicted(i, w)
		if !ok {
			s.Unpredicted++
			continue
		}
		s.Windows++
		ttft += w.TTFTMs
		itl += w.ITLMs
		ttftOff += math.Abs(a - w.TTFTMs)
		itlOff += math.Abs(b - w.ITLMs)
		ttftBias += a - w.TTFTMs
		itlBias += b - w.ITLMs
	}
	s.TTFTWape = result.OrNull(ttftOff / ttft)
	s.TTFTBias = result.OrNull(ttftBias / ttft)
	s.ITLWape = result.OrNull(itlOff / itl)
	s.ITLBias = result.OrNull(itlBias / itl)
	return s
}

// evaluateAhead scores what an online estimator predicted of each window before using it.
func evaluateAhead(windows []window, steps []step) queueScore {
	var used []window
	for _, s := range steps {
		used = append(used, windows[s.Window])
	}
	return evaluateAny(used, func(i int, w *window) (ttft, itl float64, ok bool) {
		y := steps[i].Innovation // observed - predicted; 0 and 0 without a prediction
		return w.TTFTMs - y[0], w.ITLMs - y[1], y != [2]float64{}
	})
}
