package stat

import (
	"math"
)

// Holm returns the p-values of a family of tests after Holm's adjustment, which bounds the
// probability that any of them is small by chance (Scand. J. Statistics 6, 1979); NaN stays NaN.
func Holm(p []float64) []float64 {
	out := make([]float64, len(p))
	floor := 0.0
	left := 0
	for i := range out {
		out[i] = math.NaN()
		if !math.IsNaN(p[i]) {
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
