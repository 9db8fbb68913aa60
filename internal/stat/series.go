package stat

// This file measures how many independent values a correlated series is worth.

import (
	"math"
)

// Bounds on the cost of EffectiveSize, in values.
const (
	maxSeriesLag = 500    // longest lag whose autocorrelation is summed
	maxSeries    = 20_000 // of a longer series the middle counts for the autocorrelations
)

// EffectiveSize returns how many independent observations a series in time order is worth: n / (1 +
// 2*sum rho_k), at least 1 and at most n. The autocorrelations rho_k of the ranks are summed while
// the sums of neighbouring pairs stay positive (Geyer's initial positive sequence).
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
	mean := Mean(r)
	for i := range r {
		r[i] -= mean
	}
	variance := autocovariance(r, 0)
	if variance == 0 {
		return float64(n)
	}
	// tau is 1 + 2*sum rho_k: the pair of rho_0 = 1 and rho_1 adds 2 + 2*rho_1, hence the start at -1. Pairs
	// are kept from rising, because the true ones fall.
	tau, last := -1.0, math.Inf(1)
	for k := 0; k+1 < min(len(r)/2, maxSeriesLag); k += 2 {
		pair := (autocovariance(r, k) + autocovariance(r, k+1)) / variance
		if pair <= 0 {
			break
		}
		last = min(last, pair)
		tau += 2 * last
	}
	return math.Max(1, math.Min(float64(n), float64(n)/tau))
}

// autocovariance returns the autocovariance at a lag of a series whose mean is 0.
func autocovariance(x []float64, lag int) float64 {
	sum := 0.0
	for i := 0; i+lag < len(x); i++ {
		sum += x[i] * x[i+lag]
	}
	return sum / float64(len(x))
}

// ranks returns the rank of each value, from 0; equal values get their mean rank.
func ranks(x []float64) []float64 {
	order := Order(x)
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
