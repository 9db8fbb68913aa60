package stat

// This file has the Wasserstein distance of two samples.

import (
	"math"
)

// Wasserstein returns the first Wasserstein distance of two samples that are not empty, in their
// unit: the area between their distribution functions. It is one pass over the sorted values;
// gonum's WassersteinDistance is quadratic, because it searches each share from the start (the
// tests compare the two).
func Wasserstein(a, b []float64) float64 {
	a, b = Sorted(a), Sorted(b)
	area := 0.0
	last := 0.0 // the value before
	gap := 0.0  // difference of the distribution functions from last on
	walk(a, b, func(i, j int, v float64) {
		area += gap * (v - last)
		last = v
		gap = math.Abs(float64(i)/float64(len(a)) - float64(j)/float64(len(b)))
	})
	return area
}
