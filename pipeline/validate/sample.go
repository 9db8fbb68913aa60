package validate

import (
	"math"

	"github.com/blis-train/blis-train/result"
)

// Wasserstein is the first Wasserstein distance of two non-empty samples, the
// area between their ECDFs, in the samples' unit.
func Wasserstein(a, b []float64) float64 {
	a, b = sorted(a), sorted(b)
	area, last := 0.0, 0.0
	n, m := float64(len(a)), float64(len(b))
	for i, j := 0, 0; i < len(a) || j < len(b); {
		v := nextValue(a, b, i, j)
		if i+j > 0 {
			area += math.Abs(float64(i)/n-float64(j)/m) * (v - last)
		}
		last = v
		i, j = pastValue(a, i, v), pastValue(b, j, v)
	}
	return area
}

// Quantile interpolates linearly between order statistics of a sorted,
// non-empty sample (type 7); p in [0, 1].
func Quantile(sorted []float64, p float64) float64 {
	h := p * float64(len(sorted)-1)
	lo := int(math.Floor(h))
	if lo+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[lo] + (h-float64(lo))*(sorted[lo+1]-sorted[lo])
}

// Median of a non-empty sample, which is left as it is.
func Median(s []float64) float64 { return Quantile(sorted(s), 0.5) }

// Stats describes a non-empty sample.
func Stats(s []float64) result.SampleStats {
	o := sorted(s)
	return result.SampleStats{
		P50: Quantile(o, 0.5), P90: Quantile(o, 0.9), P99: Quantile(o, 0.99),
		Mean: mean(s),
	}
}

// maxLag and maxSeries bound the cost of EffectiveSize.
const (
	maxLag    = 500
	maxSeries = 20_000
)

// EffectiveSize is the number of independent observations that a series in time
// order is worth: n / (1 + 2*sum rho_k), the autocorrelations of the ranks summed
// while the sums of neighbouring pairs stay positive (Geyer's initial positive
// sequence). It lies in [1, n].
//
// Source: Geyer, Statistical Science 7 (1992), section 3.3.
func EffectiveSize(series []float64) float64 {
	n := len(series)
	if n < 4 {
		return float64(n)
	}
	window := series
	if n > maxSeries {
		window = series[(n-maxSeries)/2:][:maxSeries]
	}
	r := ranks(window)
	c0 := autocovariance(r, 0)
	if c0 == 0 {
		return float64(n)
	}
	tau, last := -1.0, math.Inf(1)
	for k := 0; k+1 < min(len(r)/2, maxLag); k += 2 {
		pair := (autocovariance(r, k) + autocovariance(r, k+1)) / c0
		if pair <= 0 {
			break
		}
		last = min(last, pair)
		tau += 2 * last
	}
	return math.Max(1, math.Min(float64(n), float64(n)/tau))
}

func autocovariance(x []float64, lag int) float64 {
	m, sum := mean(x), 0.0
	for i := 0; i+lag < len(x); i++ {
		sum += (x[i] - m) * (x[i+lag] - m)
	}
	return sum / float64(len(x))
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// ranks are 0-based with ties at their mean rank.
func ranks(x []float64) []float64 {
	order := orderOf(x)
	out := make([]float64, len(x))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && x[order[j]] == x[order[i]] {
			j++
		}
		for _, k := range order[i:j] {
			out[k] = float64(i+j-1) / 2
		}
		i = j
	}
	return out
}
