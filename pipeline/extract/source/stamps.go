package source

import (
	"fmt"
	"math"
	"slices"
)

// Sample holds at most 4096 of the values it is given, evenly thinned as more arrive.
type Sample struct {
	vals  []int64
	n     int64
	every int64
}

func (o *Sample) Add(v int64) {
	if o.every == 0 {
		o.every = 1
	}
	if o.n%o.every == 0 {
		if len(o.vals) == 4096 {
			for i := range 2048 {
				o.vals[i] = o.vals[2*i]
			}
			o.vals = o.vals[:2048]
			o.every *= 2
		}
		if o.n%o.every == 0 {
			o.vals = append(o.vals, v)
		}
	}
	o.n++
}

// Any reports whether there are values.
func (o *Sample) Any() bool { return o.n > 0 }

// Spread are the median and the distance of the 10th and 90th percentile; ok is false when it is empty.
func (o *Sample) Spread() (median, spread int64, ok bool) {
	if len(o.vals) == 0 {
		return 0, 0, false
	}
	v := slices.Sorted(slices.Values(o.vals))
	at := func(p float64) int64 { return v[int(math.Round(p*float64(len(v)-1)))] }
	return at(0.5), at(0.9) - at(0.1), true
}

// StrayNs is how far a stamp may lie from the 1st or 99th percentile of its clock's (spec#value-limits).
const StrayNs = 24 * 3600e9

// Stamps are those of one clock: a sample of them, and the ends.
type Stamps struct {
	Sample
	Lo, Hi   int64
	from, to int64 // bounds, once they were asked for
	isKnown  bool
}

func (s *Stamps) See(ns int64) {
	if s.n == 0 {
		s.Lo, s.Hi = ns, ns
	}
	s.Lo, s.Hi, s.isKnown = min(s.Lo, ns), max(s.Hi, ns), false
	s.Add(ns)
}

// bounds are 24 h around the 1st and the 99th percentile; of a few stamps around all but the
// first and the last.
func (s *Stamps) bounds() (from, to int64) {
	if s.n == 0 {
		return math.MinInt64, math.MaxInt64
	}
	if !s.isKnown {
		v, k := slices.Sorted(slices.Values(s.vals)), 0
		if len(v) > 2 {
			k = max(1, len(v)/100)
		}
		s.from, s.to, s.isKnown = v[k]-StrayNs, v[len(v)-1-k]+StrayNs, true
	}
	return s.from, s.to
}

// Check says how a stamp is outside; "" where it is not.
func (s *Stamps) Check(name string, ns int64) string {
	from, to := s.bounds()
	if ns >= from && ns <= to {
		return ""
	}
	return fmt.Sprintf("%s: got %d ns, want %d to %d, 24 h around the run", name, ns, from, to)
}

// AnyStray reports whether some stamp is outside.
func (s *Stamps) AnyStray() bool { return s.n > 0 && s.Check("", s.Lo)+s.Check("", s.Hi) != "" }
