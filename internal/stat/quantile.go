package stat

// This file has quantiles, means and orders of samples.

import (
	"cmp"
	"math"
	"slices"
)

// Quantile returns the p-quantile, p in [0, 1], of a sorted sample: linear between the order
// statistics around p(n-1) (type 7 of Hyndman and Fan, the default of R and numpy). NaN without
// values.
func Quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := p * float64(len(sorted)-1)
	k := int(at)
	if k+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := at - float64(k)
	if part == 0 || sorted[k] == sorted[k+1] { // also of infinite values, whose difference is not a number
		return sorted[k]
	}
	return sorted[k] + part*(sorted[k+1]-sorted[k])
}

// NearestRank returns the smallest value of a sorted sample that is not below a share q of its values, q in [0, 1].
// NaN without values. It is always a value of the sample, other than Quantile.
func NearestRank(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// Median returns the 0.5-quantile of values in any order, which it does not change; NaN without
// values.
func Median(v []float64) float64 { return Quantile(Sorted(v), 0.5) }

// MedianInPlace returns what Median does, and leaves the values sorted: for lists so long that a copy matters.
func MedianInPlace(v []float64) float64 {
	Sort(v)
	return Quantile(v, 0.5)
}

// WeightedMedian returns the smallest value at which the weights of it and all smaller values reach
// half the total; NaN without values.
func WeightedMedian(v, w []float64) float64 {
	var total, sum float64
	order := Order(v)
	for _, i := range order {
		total += w[i]
	}
	for _, i := range order {
		if sum += w[i]; sum >= total/2 {
			return v[i]
		}
	}
	return math.NaN()
}

// Mean returns the mean of the values that are not NaN; NaN without any.
func Mean(v []float64) float64 {
	var sum float64
	n := 0
	for _, x := range v {
		if !math.IsNaN(x) {
			sum += x
			n++
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / float64(n)
}

// StdErr returns the standard error of the mean of the values that are not NaN; 0 if there are
// fewer than two.
func StdErr(v []float64) float64 {
	m := Mean(v)
	n := 0
	var squares float64
	for _, x := range v {
		if !math.IsNaN(x) {
			squares += (x - m) * (x - m)
			n++
		}
	}
	if n < 2 {
		return 0
	}
	return math.Sqrt(squares / float64(n-1) / float64(n))
}

// Order returns the indices of the values in ascending order of the values; equal values stay in
// their order.
func Order[V cmp.Ordered](v []V) []int {
	order := make([]int, len(v))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(v[a], v[b]), a-b) })
	return order
}

// Thin returns at most n of the values, evenly spread, the first included.
func Thin[T any](v []T, n int) []T {
	if len(v) <= n {
		return v
	}
	out := make([]T, n)
	for k := range out {
		out[k] = v[ThinAt(k, len(v), n)]
	}
	return out
}

// ThinAt returns the index, among all values, of the value k that Thin returns.
func ThinAt(k, all, n int) int {
	if all <= n {
		return k
	}
	return k * all / n
}

// Round returns v rounded to n significant digits, for numbers that people read.
func Round(v float64, n int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, float64(n-1)-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
