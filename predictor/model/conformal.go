package model

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/stat"
)

// groups of rows with a factor of their own: somebody waits or not, half of the
// prompt is cached or not.
const groups = 4

// leastGroup is how many rows a group needs for a factor of its own.
const leastGroup = 200

// Factors turn predictions into upper quantiles.
type Factors struct {
	Level float64
	Of    [groups]float64
	Held  int // rows that set them
}

// Conformal sets the factors of a level from rows that did not train the model:
// the quantile of measured over predicted, raised as split conformal prediction
// asks for n rows, in each group from 200 rows on and pooled otherwise
// (spec#predictor-calibration).
//
// Source: Lei et al., Distribution-free predictive inference for regression
// (JASA 113, 2018), section 2.2.
func Conformal(t *Table, m Model, rows []int, level float64) Factors {
	return RatiosOf(t, m, rows).At(level)
}

// Ratios are measured over predicted of rows that did not train the model,
// ascending: of all, and by group.
type Ratios struct {
	all []float64
	by  [groups][]float64
}

// RatiosOf asks a model about rows.
func RatiosOf(t *Table, m Model, rows []int) *Ratios {
	r := &Ratios{}
	for _, i := range rows {
		ratio := t.Y[i] / m.Predict(t, i)
		if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
			continue
		}
		r.all = append(r.all, ratio)
		r.by[t.group(i)] = append(r.by[t.group(i)], ratio)
	}
	slices.Sort(r.all)
	for g := range r.by {
		slices.Sort(r.by[g])
	}
	return r
}

// At are the factors of a level.
func (r *Ratios) At(level float64) Factors {
	f := Factors{Level: level, Held: len(r.all)}
	for g := range f.Of {
		f.Of[g] = r.factor(g, level)
	}
	return f
}

func (r *Ratios) factor(group int, level float64) float64 {
	if own := r.by[group]; len(own) >= leastGroup {
		return upper(own, level)
	}
	return upper(r.all, level)
}

// adaptiveStep is how far one outcome moves the level.
const adaptiveStep = 0.02

// Adaptive are the predictions of a quantile whose level follows the outcomes: a
// miss raises it, a hit lowers it a little, so that in the long run the share of
// misses is right whatever drifts. rows stand in time order; known says when the
// outcome of one is known, at when it is predicted; an outcome counts from then on.
//
// Source: Gibbs and Candes, Adaptive conformal inference under distribution shift
// (NeurIPS 2021), equation 2.
func (r *Ratios) Adaptive(t *Table, m Model, rows []int, level float64, at, known func(i int) int64) []float64 {
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
		out[k] = m.Predict(t, i) * r.factor(t.group(i), math.Max(0, math.Min(1, now)))
		if over := now - 1; over > 0 { // beyond every ratio that was held back
			out[k] *= 1 + float64(5*over)
		}
		open = append(open, outcome{known(i), t.Y[i] > out[k]})
	}
	return out
}

// upper is the ceil((n+1)*level)-th smallest of ascending values, the largest when
// there are too few; NaN without values.
func upper(v []float64, level float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	k := int(math.Ceil(float64(len(v)+1)*level)) - 1
	return v[max(0, min(k, len(v)-1))]
}

// Apply is the calibrated quantile of a row in ms.
func (f *Factors) Apply(t *Table, m Model, i int) float64 { return m.Predict(t, i) * f.Of[t.group(i)] }

// Pinball is the mean pinball loss of predictions of a quantile, in their unit.
func Pinball(y, pred []float64, q float64) float64 {
	sum, n := 0.0, 0
	for i := range y {
		if r := y[i] - pred[i]; !math.IsNaN(r) {
			sum, n = sum+math.Max(q*r, (q-1)*r), n+1
		}
	}
	return sum / float64(n)
}

// Coverage is the share of targets at or below their predictions, and its 95 %
// interval from the effective number of rows (rows in time order).
func Coverage(y, pred []float64) (share float64, band [2]float64) {
	var in []float64
	sum := 0.0
	for i := range y {
		if math.IsNaN(pred[i]) {
			continue
		}
		hit := 0.0
		if y[i] <= pred[i] {
			hit = 1
		}
		in = append(in, hit)
		sum += hit
	}
	n := float64(len(in))
	share = sum / n
	return share, wilson(share, stat.EffectiveSize(in))
}

// wilson is the 95 % score interval of a share among n rows (Wilson, JASA 22, 1927).
func wilson(p, n float64) [2]float64 {
	const z = 1.959963984540054
	centre := (p + z*z/(2*n)) / (1 + z*z/n)
	half := float64(z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n)))
	return [2]float64{math.Max(0, centre-half), math.Min(1, centre+half)}
}
