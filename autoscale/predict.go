package autoscale

// This file compares a queueing model with a window: it predicts the window's TTFT and ITL, and
// guesses parameters from them.

import (
	"math"
	"slices"
)

// observation selects the TTFT of a flavour that is compared with the measured one.
type observation int

// wva-3p sizes with a TTFT that is one ITL longer than the one its tuner observes; in all other
// flavours the two are equal.
const (
	asSized observation = iota
	asTuned
)

// solveWindow returns TTFT and ITL of a window, ms, and the steady state, with parameters x of
// flavour f; ok is false if x is out of range or the model has no answer.
func solveWindow(f Flavour, w *window, x []float64, as observation) (ttft, itl float64, p point, ok bool) {
	m, err := newModel(f, fromVector(x), w.Shape, w.Limits)
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

// predictWindow returns TTFT and ITL of a window, ms, with parameters x of flavour f; ok is false
// if the model has no answer.
func predictWindow(f Flavour, w *window, x []float64, as observation) (ttftMs, itlMs float64, ok bool) {
	ttftMs, itlMs, _, ok = solveWindow(f, w, x, as)
	return ttftMs, itlMs, ok
}

// guessParameters returns a guess of a flavour's parameters from one window, as if it were at light
// load: 0.9 of the ITL is alpha, and the rest follows from TTFT = alpha + (beta+gamma)k and ITL =
// alpha + beta + gamma(k+(m+1)/2), for prompts of k and answers of m tokens. With a seed (alpha, beta,
// gamma) gamma is the seed's instead, so that 0.9 is not needed. If a parameter would not be positive,
// the seed or defaultState is returned.
//
// Source: model-tuner pkg/estimator/guess.go@6dba8ce, workload-variant-autoscaler
// internal/engines/analyzers/queueingmodel@v0.8.0.
func guessParameters(f Flavour, w *window, seed []float64) []float64 {
	prompt, half := w.Shape.Prompt, (w.Shape.Output+1)/2
	if f == wvA4P {
		// splits ITL and TTFT the same way, at the mean number in service
		n := math.Max(1, w.RateRPS/1000*(w.TTFTMs+(w.Shape.Output-1)*w.ITLMs))
		return []float64{baseShare * w.ITLMs, (1 - baseShare) * w.ITLMs / n, baseShare * w.TTFTMs,
			(1 - baseShare) * w.TTFTMs / (n * math.Max(1, w.Shape.Prompt))}
	}
	if len(seed) == 3 && prompt > 1 {
		beta := (w.TTFTMs - w.ITLMs + seed[2]*half) / (prompt - 1)
		alpha := w.ITLMs - beta - seed[2]*(prompt+half)
		if alpha > 0 && beta > 0 {
			return []float64{alpha, beta, seed[2]}
		}
		return append([]float64(nil), seed...)
	}
	alpha := baseShare * w.ITLMs
	both := (w.TTFTMs - alpha) / prompt
	gamma := (w.ITLMs - alpha - both) / (prompt + half - 1)
	if x := []float64{alpha, both - gamma, gamma}; prompt > 0 && positive(x) {
		return x
	}
	return append([]float64(nil), defaultState...)
}

// baseShare is the share of a latency that is taken for its constant part.
const baseShare = 0.9

// defaultState is the state from which the autoscalers start without a usable window.
var defaultState = []float64{5, 0.05, 5e-5}

// positive reports whether all values are above 0.
func positive(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return !(v > 0) })
}
