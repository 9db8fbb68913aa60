package ridge

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/stat"
)

// Constant is the best constant prediction: per configuration the time per step
// that minimises the mean absolute percentage error on the training rows (the
// median of y/steps weighted by steps/y), times the steps of each row. It
// returns one prediction per row of d, NaN for a configuration without training
// rows.
func Constant(d *Data, train func(i int) bool) []float64 {
	configs := d.Configs()
	level := make([]float64, len(configs))
	for k, c := range configs {
		var v, w []float64
		for i, y := range d.Y {
			if d.Config[i] == c && train(i) && math.Abs(y) >= minTargetUs {
				v = append(v, y/d.steps(i))
				w = append(w, d.steps(i)/math.Abs(y))
			}
		}
		level[k] = stat.WeightedMedian(v, w)
	}
	out := make([]float64, d.Len())
	for i := range out {
		k, _ := slices.BinarySearch(configs, d.Config[i])
		out[i] = level[k] * d.steps(i)
	}
	return out
}
