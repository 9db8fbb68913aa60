package stat

// This file has a slope that outliers do not move.

import "math"

const (
	mostSlopePoints = 500  // of more points, as many that are evenly spaced are used: slopes are of pairs
	slopeDeviations = 1.96 // half width of the interval, in standard deviations of Kendall's count: 95 %
)

// Slope returns the slope of y on x and its 95 % interval: the median of the slopes between any two points, and the ranks
// among these that Kendall's count of rising pairs can have by chance (Theil and Sen). A constant that is added to y does
// not change it, and a quarter of wild points hardly does. Without two different x all three are NaN.
func Slope(x, y []float64) (slope, lo, hi float64) {
	stride := 1 + (len(x)-1)/mostSlopePoints
	var slopes []float64
	n := 0.0
	for i := 0; i < len(x); i += stride {
		n++
		for j := 0; j < i; j += stride {
			if x[i] != x[j] {
				slopes = append(slopes, (y[i]-y[j])/(x[i]-x[j]))
			}
		}
	}
	if len(slopes) == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slopes = Sorted(slopes)
	width := slopeDeviations * math.Sqrt(n*(n-1)*(2*n+5)/18) / float64(2*len(slopes))
	return Quantile(slopes, 0.5), Quantile(slopes, math.Max(0, 0.5-width)), Quantile(slopes, math.Min(1, 0.5+width))
}
