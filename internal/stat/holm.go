package stat

import (
	"math"
)

// Holm adjusts p-values of a family for the chance that any is small by luck
// (Holm, Scand. J. Statistics 6, 1979); NaN stays.
func Holm(p []float64) []float64 {
	out := make([]float64, len(p))
	floor := 0.0
	left := 0
	for i := range out {
		if out[i] = math.NaN(); !math.IsNaN(p[i]) {
			left++
		}
	}
	for _, i := range Order(p) {
		if math.IsNaN(p[i]) {
			continue
		}
		floor = math.Max(floor, math.Min(1, p[i]*float64(left)))
		out[i] = floor
		left--
	}
	return out
}
