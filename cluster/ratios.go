package cluster

// This file keeps the latest ratios observed/estimated TTFT of a group of requests, whose quantiles
// calibrate later estimates (predictive.go).

import (
	"math"
	"slices"
)

// median is the level of the quantile by which an estimate is multiplied to predict the TTFT.
const median = 0.5

// enough is the number of ratios from which on a group's own quantiles are used. The quantile at the
// level 1 - epsStandard of 30 ratios is the largest of them.
const enough = 30

// kept is the number of latest ratios that a group remembers.
const kept = 512

// ratios are the latest ratios observed/estimated of a group, in order of arrival (ring) and of
// size (sorted).
type ratios struct {
	ring   [kept]float64
	next   int // index in ring of the next ratio, and of the oldest once the ring is full
	sorted []float64
}

// addRatio adds a ratio; the oldest is dropped if there are `kept` already.
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

// quantile returns the ceil((n+1)*level)-th smallest of the n ratios, the quantile of conformal
// prediction: a new ratio of the same distribution does not exceed it with a probability of at
// least level. There must be one ratio.
func (s *ratios) quantile(level float64) float64 {
	n := len(s.sorted)
	k := int(math.Ceil(float64(n+1) * level))
	return s.sorted[min(n, max(1, k))-1]
}

// share returns the share of ratios that are at most x, in [0, 1].
func (s *ratios) share(x float64) float64 {
	n, _ := slices.BinarySearch(s.sorted, math.Nextafter(x, math.Inf(1)))
	return float64(n) / float64(len(s.sorted))
}
