package source

// This file keeps samples of the stamps of a clock in bounded memory, and finds stamps that are far
// from all others (spec#value-limits).

import (
	"fmt"
	"math"
	"slices"
)

// sampleSize is the most values that a Sample keeps.
const sampleSize = 4096

// Sample keeps one of every n values that are added; n is doubled whenever the sample is full.
type Sample struct {
	vals  []int64
	n     int64 // values added
	every int64 // one value of this many is kept
}

// Add adds a value. Every so many values one is stored; when sampleSize values are stored, every
// second of them is removed, and from then on half as many are stored.
func (o *Sample) Add(v int64) {
	if o.every == 0 {
		o.every = 1
	}
	if o.n%o.every == 0 {
		if len(o.vals) == sampleSize {
			for i := range sampleSize / 2 {
				o.vals[i] = o.vals[2*i]
			}
			o.vals = o.vals[:sampleSize/2]
			o.every *= 2
		}
		if o.n%o.every == 0 {
			o.vals = append(o.vals, v)
		}
	}
	o.n++
}

// Any reports whether a value was added.
func (o *Sample) Any() bool { return o.n > 0 }

// Spread returns the median and the distance between the 10th and the 90th percentile. ok is false for
// an empty sample.
func (o *Sample) Spread() (median, spread int64, ok bool) {
	if len(o.vals) == 0 {
		return 0, 0, false
	}
	v := slices.Sorted(slices.Values(o.vals))
	quantile := func(p float64) int64 { return v[int(math.Round(p*float64(len(v)-1)))] }
	return quantile(0.5), quantile(0.9) - quantile(0.1), true
}

// StrayNs is how far a stamp may lie outside the 1st to 99th percentile of the stamps of its clock
// (spec#value-limits). A stamp farther away is a stray.
const StrayNs = 24 * 3600e9

// Stamps is the stamps of one clock: a sample of them, the smallest and the largest.
type Stamps struct {
	Sample
	Lo, Hi   int64 // the smallest and the largest
	from, to int64 // result of bounds, valid if isKnown
	isKnown  bool  // no stamp was added since bounds was called
}

// See adds a stamp.
func (s *Stamps) See(ns int64) {
	if s.n == 0 {
		s.Lo = ns
		s.Hi = ns
	}
	s.Lo = min(s.Lo, ns)
	s.Hi = max(s.Hi, ns)
	s.isKnown = false
	s.Add(ns)
}

// bounds returns the range of stamps that are no strays: from StrayNs before the 1st to StrayNs after
// the 99th percentile. With 3 to 99 stamps in the sample, the second smallest and the second largest
// take the place of the percentiles; with fewer, the smallest and the largest.
func (s *Stamps) bounds() (from, to int64) {
	if s.n == 0 {
		return math.MinInt64, math.MaxInt64
	}
	if !s.isKnown {
		v := slices.Sorted(slices.Values(s.vals))
		k := 0
		if len(v) > 2 {
			k = max(1, len(v)/100)
		}
		s.from = v[k] - StrayNs
		s.to = v[len(v)-1-k] + StrayNs
		s.isKnown = true
	}
	return s.from, s.to
}

// Check returns a description of how far a stamp (ns) is outside of the bounds; "" if it is inside.
func (s *Stamps) Check(name string, ns int64) string {
	from, to := s.bounds()
	if ns >= from && ns <= to {
		return ""
	}
	return fmt.Sprintf("%s: got %d ns, want %d to %d, 24 h around the run", name, ns, from, to)
}

// AnyStray reports whether any stamp is outside of the bounds.
func (s *Stamps) AnyStray() bool { return s.n > 0 && s.Check("", s.Lo)+s.Check("", s.Hi) != "" }
