package cluster

import (
	"math"
	"slices"
)

// median is the quantile of observed / estimated by which an estimate is multiplied.
const median = 0.5

// enough is the number of ratios that replaces the prior.
const enough = 30

// kept is the number of ratios of a group that are remembered.
const kept = 512

// ratios are the latest ratios observed / estimated of a group.
type ratios struct {
	ring   [kept]float64
	next   int
	sorted []float64
}

// addRatio adds a ratio and drops the oldest if there are too many.
func (s *ratios) addRatio(x float64) {
	if len(s.sorted) == kept {
		at, _ := slices.BinarySearch(s.sorted, s.ring[s.next])
		s.sorted = slices.Delete(s.sorted, at, at+1)
	}
	s.ring[s.next] = x
	s.next = (s.next + 1) % kept
	at, _ := slices.BinarySearch(s.sorted, x)
	s.sorted = slices.Insert(s.sorted, at, x)
}

// quantile is the ceil((n+1)*level)-th smallest ratio, the quantile of conformal prediction.
func (s *ratios) quantile(level float64) float64 {
	n := len(s.sorted)
	k := int(math.Ceil(float64(n+1) * level))
	return s.sorted[min(n, max(1, k))-1]
}

// share is the share of ratios up to x.
func (s *ratios) share(x float64) float64 {
	n, _ := slices.BinarySearch(s.sorted, math.Nextafter(x, math.Inf(1)))
	return float64(n) / float64(len(s.sorted))
}
