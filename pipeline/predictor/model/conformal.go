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
// asks for n rows, in each group from 200 rows on and pooled otherwise.
//
// Source: Lei et al., Distribution-free predictive inference for regression
// (JASA 113, 2018), section 2.2.
func Conformal(t *Table, m Model, rows []int, level float64) Factors {
	var all []float64
	var by [groups][]float64
	for _, i := range rows {
		ratio := t.Y[i] / m.Predict(t, i)
		if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
			continue
		}
		all = append(all, ratio)
		by[t.group(i)] = append(by[t.group(i)], ratio)
	}
	f := Factors{Level: level, Held: len(all)}
	pooled := upper(all, level)
	for g := range f.Of {
		f.Of[g] = pooled
		if len(by[g]) >= leastGroup {
			f.Of[g] = upper(by[g], level)
		}
	}
	return f
}

// upper is the ceil((n+1)*level)-th smallest value, the largest when there are too
// few; NaN without values.
func upper(v []float64, level float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	slices.Sort(v)
	k := int(math.Ceil(float64(len(v)+1)*level)) - 1
	return v[min(k, len(v)-1)]
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
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return [2]float64{math.Max(0, centre-half), math.Min(1, centre+half)}
}
