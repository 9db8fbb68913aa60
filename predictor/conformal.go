package predictor

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
)

// calibrationGroups of rows with a factor of their own: somebody waits or not, half of the
// prompt is cached or not.
const calibrationGroups = 4

// leastGroup is how many rows a group needs for a factor of its own.
const leastGroup = 200

// conformal sets the factors of a level from rows that did not train the model:
// the quantile of measured over predicted, raised as split conformal prediction
// asks for n rows, in each group from 200 rows on and pooled otherwise
// (spec#predictor-calibration).
//
// Source: Lei et al., Distribution-free predictive inference for regression
// (JASA 113, 2018), section 2.2.
func conformal(t *trainingColumns, m model, rows []int, level float64) forest.LevelFactors {
	return ratiosOf(t, m, rows).At(level)
}

// residualRatios are measured over predicted of rows that did not train the model,
// ascending: of all, and by group.
type residualRatios struct {
	all []float64
	by  [calibrationGroups][]float64
}

// ratiosOf asks a model about rows.
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

// At are the factors of a level.
func (r *residualRatios) At(level float64) forest.LevelFactors {
	f := forest.LevelFactors{Level: level}
	for g := range f.Factors {
		of := r.all
		if own := r.by[g]; len(own) >= leastGroup {
			of = own
		}
		f.Factors[g] = upperQuantile(of, level)
	}
	return f
}

// upperQuantile is the ceil((n+1)*level)-th smallest of ascending values, the largest when
// there are too few; NaN without values.
func upperQuantile(v []float64, level float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	k := int(math.Ceil(float64(len(v)+1)*level)) - 1
	return v[max(0, min(k, len(v)-1))]
}

// calibrated is the quantile of a row in ms.
func calibrated(f *forest.LevelFactors, t *trainingColumns, m model, i int) float64 {
	return m.Predict(t, i) * f.Factors[t.queueGroup(i)]
}
