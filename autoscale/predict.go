package autoscale

import "math"

// observation is which TTFT of a flavour stands against the measured one.
type observation int

// wva-3p sizes with one ITL more than its tuner observes; all other flavours
// agree with themselves.
const (
	asSized observation = iota
	asTuned
)

// predict is TTFT and ITL of a window under parameters x, ms; ok is false where
// the model has none (x out of range).
func predict(f Flavour, w *window, x []float64, as observation) (ttft, itl float64, p point, ok bool) {
	m, err := New(f, fromVector(x), w.Shape, w.Limits)
	if err != nil {
		return 0, 0, p, false
	}
	p = m.Solve(w.RateRPS)
	ttft = p.TTFTMs
	if as == asTuned {
		ttft = p.TunerTTFTMs
	}
	return ttft, p.ITLMs, p, !math.IsNaN(ttft) && !math.IsNaN(p.ITLMs)
}

// guess inverts a flavour at light load from one window: 0.9 of the ITL is
// alpha, the rest follows from TTFT = alpha + (beta+gamma)k and ITL = alpha +
// beta + gamma(k+(m+1)/2). A seed pins gamma to its own, which leaves no
// arbitrary constant. Where that gives nothing positive, the seed or (5, 0.05,
// 5e-5) is returned.
//
// Source: model-tuner pkg/estimator/guess.go@6dba8ce, workload-variant-autoscaler
// internal/engines/analyzers/queueingmodel@v0.8.0.
func guess(f Flavour, w *window, seed []float64) []float64 {
	k, half := w.Shape.Prompt, float64((w.Shape.Output+1)/2)
	if f == wvA4P {
		return guess4P(w)
	}
	if len(seed) == 3 && k > 1 {
		beta := (w.TTFTMs - w.ITLMs + float64(seed[2]*half)) / (k - 1)
		alpha := w.ITLMs - beta - float64(seed[2]*(k+half))
		if alpha > 0 && beta > 0 {
			return []float64{alpha, beta, seed[2]}
		}
		return append([]float64(nil), seed...)
	}
	alpha := float64(baseShare * w.ITLMs)
	both := (w.TTFTMs - alpha) / k
	gamma := (w.ITLMs - alpha - both) / (k + half - 1)
	if x := []float64{alpha, both - gamma, gamma}; k > 0 && positive(x) {
		return x
	}
	return append([]float64(nil), defaultState...)
}

// baseShare of a latency is taken for its constant part; defaultState is where
// the autoscalers start without a usable window.
const baseShare = 0.9

var defaultState = []float64{5, 0.05, 5e-5}

// guess4P splits ITL and TTFT the same way, at the mean number in service.
func guess4P(w *window) []float64 {
	n := math.Max(1, w.RateRPS/1000*(w.TTFTMs+float64((w.Shape.Output-1)*w.ITLMs)))
	return []float64{baseShare * w.ITLMs, (1 - baseShare) * w.ITLMs / n, baseShare * w.TTFTMs,
		(1 - baseShare) * w.TTFTMs / (n * math.Max(1, w.Shape.Prompt))}
}

func positive(x []float64) bool {
	for _, v := range x {
		if !(v > 0) {
			return false
		}
	}
	return true
}

// predictWindow is TTFT and ITL of a window under parameters x, ms; ok is false where the
// model has no answer.
func predictWindow(f Flavour, w *window, x []float64, as observation) (ttftMs, itlMs float64, ok bool) {
	ttftMs, itlMs, _, ok = predict(f, w, x, as)
	return ttftMs, itlMs, ok
}
