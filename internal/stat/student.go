package stat

// This file has Student's t distribution and the interval of a mean by it.

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Normal95 is half the width of a 95 % interval of a normal distribution, in standard deviations: its 0.975-quantile.
const Normal95 = 1.959963984540054

// StudentT returns the p-quantile, 0 < p < 1, of Student's t distribution with df > 0 degrees of
// freedom; NaN for any other df.
func StudentT(p, df float64) float64 {
	if !(df > 0) {
		return math.NaN()
	}
	return distuv.StudentsT{Sigma: 1, Nu: df}.Quantile(p)
}

// MeanInterval returns the mean of values, none of them NaN, with its 95 % interval by Student's t,
// which is infinite for one value.
func MeanInterval(v []float64) (mean, lo, hi float64) {
	mean = Mean(v)
	half := math.Inf(1)
	if n := len(v); n > 1 {
		half = StudentT(0.975, float64(n-1)) * StdErr(v)
	}
	return mean, mean - half, mean + half
}
