package stat

// This file adjusts p-values for the number of tests.

import (
	"math"
)

// Holm returns the p-values of a family of tests after Holm's adjustment, which bounds the
// probability that any of them is small by chance (Scand. J. Statistics 6, 1979); NaN stays NaN.
func Holm(p []float64) []float64 {
	out := make([]float64, len(p))
	left := 0 // tests with a p-value at least as large as the next one
	for i := range out {
		out[i] = math.NaN()
		if !math.IsNaN(p[i]) {
			left++
		}
	}
	last := 0.0 // the adjusted p-value before: they do not fall
	for _, i := range Order(p) {
		if math.IsNaN(p[i]) {
			continue
		}
		last = math.Max(last, math.Min(1, p[i]*float64(left)))
		out[i] = last
		left--
	}
	return out
}
