package predictor

import (
	"math"
	"slices"
)

// adaptiveStep is how far one outcome moves the level.
const adaptiveStep = 0.02

// Adaptive are the predictions of a quantile whose level follows the outcomes: a
// miss raises it, a hit lowers it a little, so that in the long run the share of
// misses is right whatever drifts. rows stand in time order; known says when the
// outcome of one is known, at when it is predicted; an outcome counts from then on.
//
// Source: Gibbs and Candes, Adaptive conformal inference under distribution shift
// (NeurIPS 2021), equation 2.
func (r *ratios) Adaptive(t *columns, m model, rows []int, level float64, at, known func(i int) int64) []float64 {
	out := make([]float64, len(rows))
	type outcome struct {
		ns   int64
		late bool
	}
	var open []outcome
	now := level
	run := int32(-1)
	for k, i := range rows {
		if t.Run[i] != run { // another engine
			run, now, open = t.Run[i], level, nil
		}
		open = slices.DeleteFunc(open, func(o outcome) bool {
			if o.ns > at(i) {
				return false
			}
			missed := 0.0
			if o.late {
				missed = 1
			}
			now += float64(adaptiveStep * (missed - (1 - level)))
			return true
		})
		out[k] = m.Predict(t, i) * r.At(math.Max(0, math.Min(1, now))).Factors[t.group(i)]
		if over := now - 1; over > 0 { // beyond every ratio that was held back
			out[k] *= 1 + float64(5*over)
		}
		open = append(open, outcome{known(i), t.Y[i] > out[k]})
	}
	return out
}

// pinball is the mean pinball loss of predictions of a quantile, in their unit.
func pinball(y, pred []float64, q float64) float64 {
	sum, n := 0.0, 0
	for i := range y {
		if r := y[i] - pred[i]; !math.IsNaN(r) {
			sum, n = sum+math.Max(q*r, (q-1)*r), n+1
		}
	}
	return sum / float64(n)
}
