package stat

// This file draws random numbers by keys in place of order, so that draws do not shift each other.

import (
	"math"
)

// Draw returns a uniform number in [0, 1) that depends only on its keys: a draw keyed by (seed,
// stream, index) is the same whatever was drawn before.
//
// Source: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over a chain of the
// keys.
func Draw(keys ...uint64) float64 {
	x := uint64(0)
	for _, k := range keys {
		x = mix(x ^ k)
	}
	return float64(x>>11) / (1 << 53)
}

// DrawN returns a uniform whole number in [0, n) that depends only on its keys.
func DrawN(n uint64, keys ...uint64) uint64 { return uint64(Draw(keys...) * float64(n)) }

// mix returns the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// LogNormal returns the u-quantile, 0 < u < 1, of the log-normal distribution with a mean and a
// squared coefficient of variation (variance / mean^2).
func LogNormal(mean, cv2, u float64) float64 {
	sigma2 := math.Log1p(cv2)
	return mean * math.Exp(math.Sqrt(2*sigma2)*math.Erfinv(2*u-1)-sigma2/2)
}
