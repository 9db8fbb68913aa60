package predictor

// This file makes upper bounds of predictions: a factor on the predicted latency such that a share
// of the measured ones (the level, such as 0.9) lies below (split conformal prediction).

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
)

// calibrationGroups is the number of groups with a factor of their own: by whether requests wait,
// and by whether at least half of the prompt is cached (queueGroup).
const calibrationGroups = 4

// leastGroup is the number of rows that a group needs for a factor of its own.
const leastGroup = 200

// conformal returns the factors of a level from rows that did not train the model m: the quantile
// of measured over predicted, raised as split conformal prediction requires for n rows. Groups of
// fewer than leastGroup rows get the factor of all rows (spec#predictor-calibration).
//
// Source: Lei et al., Distribution-free predictive inference for regression (JASA 113, 2018),
// section 2.2.
func conformal(t *trainingColumns, m model, rows []int, level float64) forest.LevelFactors {
	return ratiosOf(t, m, rows).At(level)
}

// residualRatios are the ratios of measured to predicted latency of rows that did not train the
// model, ascending: of all rows, and by calibration group.
type residualRatios struct {
	all []float64
	by  [calibrationGroups][]float64
}

// ratiosOf returns measured over predicted latency for the given rows of t. It omits rows for which
// this is not a finite number.
func ratiosOf(t *trainingColumns, m model, rows []int) *residualRatios {
	r := &residualRatios{}
	for _, i := range rows {
		ratio := t.Y[i] / m.Predict(t, i)
		if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
			continue
		}
		r.all = append(r.all, ratio)
		r.by[t.queueGroup(i)] = append(r.by[t.queueGroup(i)], ratio)
	}
	slices.Sort(r.all)
	for g := range r.by {
		slices.Sort(r.by[g])
	}
	return r
}

// At returns the factors of a level, one for each calibration group: for a group of fewer than leastGroup
// rows that of all rows.
func (r *residualRatios) At(level float64) forest.LevelFactors {
	f := forest.LevelFactors{Level: level}
	for g := range f.Factors {
		ratios := r.all
		if len(r.by[g]) >= leastGroup {
			ratios = r.by[g]
		}
		f.Factors[g] = upperQuantile(ratios, level)
	}
	return f
}

// upperQuantile returns the ceil((n+1)*level)-th smallest of n ascending values, or the largest if
// there are too few; NaN without values.
func upperQuantile(v []float64, level float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	k := int(math.Ceil(float64(len(v)+1)*level)) - 1
	return v[max(0, min(k, len(v)-1))]
}

// calibrated returns the upper bound of row i in ms: its prediction times the factor of its group.
func calibrated(f *forest.LevelFactors, t *trainingColumns, m model, i int) float64 {
	return m.Predict(t, i) * f.Factors[t.queueGroup(i)]
}
