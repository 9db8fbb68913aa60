package stat

// This file compares paired samples.

import (
	"math"
	"slices"
)

// difference is a mean of paired differences with its uncertainty.
type difference struct {
	N            int
	Mean, Lo, Hi float64 // 95 % t interval
	P            float64 // of sign flips, two-sided
}

// maxFlips is the largest number of pairs of which all sign patterns are tried.
const maxFlips = 22

// Paired returns the mean of a[i] - b[i] with its interval by Student's t, and Fisher's
// randomisation p-value: the share of all sign patterns of the differences whose mean is at least
// as far from 0. It is exact up to maxFlips pairs; beyond, a million seeded patterns are drawn. All
// is NaN without a pair.
func Paired(a, b []float64) difference {
	n := len(a)
	d := make([]float64, n)
	for i := range a {
		d[i] = a[i] - b[i]
	}
	if n == 0 {
		return difference{Mean: math.NaN(), Lo: math.NaN(), Hi: math.NaN(), P: math.NaN()}
	}
	out := difference{N: n, P: signFlips(d)}
	out.Mean, out.Lo, out.Hi = MeanInterval(d)
	return out
}

// signFlips returns the p-value from all sign patterns, in Gray order so that each differs from the
// one before by one flip. The last pair keeps its sign, because opposite patterns are equally far
// from 0.
func signFlips(d []float64) float64 {
	sum := 0.0
	scale := 0.0
	for _, x := range d {
		sum += x
		scale += math.Abs(x)
	}
	limit := math.Abs(sum) - 1e-9*scale // patterns as far from 0 count, though rounding errors make them differ
	if len(d) > maxFlips {
		return sampledFlips(d, limit)
	}
	sign := slices.Repeat([]float64{1}, len(d))
	total, far := 1<<(len(d)-1), 0 // patterns, and those at least as far from 0 as the one that was observed
	for k := 1; ; k++ {
		if math.Abs(sum) >= limit {
			far++
		}
		if k == total {
			return float64(far) / float64(total)
		}
		// The k-th step of the Gray code flips the lowest bit that is set in k.
		bit := 0
		for k>>bit&1 == 0 {
			bit++
		}
		sign[bit] = -sign[bit]
		sum += 2 * sign[bit] * d[bit]
	}
}

// sampledFlips returns an estimate of the share of sign patterns whose sum is at least limit away
// from 0.
func sampledFlips(d []float64, limit float64) float64 {
	const patterns = 1_000_000
	far := 1 // the observed pattern counts, so that the share is not 0
	for k := range uint64(patterns) {
		sum := 0.0
		for i, x := range d {
			if Draw(k, uint64(i)) < 0.5 {
				x = -x
			}
			sum += x
		}
		if math.Abs(sum) >= limit {
			far++
		}
	}
	return float64(far) / (patterns + 1)
}
