package cluster

import (
	"math"
	"slices"
)

// median of observed / estimated is what an estimate is corrected by.
const median = 0.5

// enough ratios replace the prior.
const enough = 30

// kept is how many ratios of a group count.
const kept = 512

// ratios are the last observed / estimated of a group.
type ratios struct {
	ring   [kept]float64
	next   int
	sorted []float64
}

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

// quantile is the ceil((n+1)*level)-th smallest, as conformal prediction has it.
func (s *ratios) quantile(level float64) float64 {
	n := len(s.sorted)
	k := int(math.Ceil(float64(n+1) * level))
	return s.sorted[min(n, max(1, k))-1]
}

// share is that of ratios up to x.
func (s *ratios) share(x float64) float64 {
	n, _ := slices.BinarySearch(s.sorted, math.Nextafter(x, math.Inf(1)))
	return float64(n) / float64(len(s.sorted))
}
