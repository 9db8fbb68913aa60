package identity

// This file finds stamps and times that were rounded so much that they cannot tell one step or one request
// from another: all of them are multiples of a time that is long against what they measure. A reading
// (identity.go) has what was compared, how much of it contradicts, and a sentence.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Tolerances of rounding.
const (
	fewestRounded = 50   // stamps from which a common multiple is no chance
	mostRounded   = 0.2  // of the mean time that the stamps measure
	lostDigitsUs  = 2    // that a conversion of units or a sum of stamps is off
	mostUnrounded = 0.05 // share of the times that may be no multiples, where conversions lose digits
	leastOnGrid   = 0.9  // of the gaps between stamps, and of the numbers of equal stamps, that are alike
)

// roundedTimes are stamps or times of one stream in us.
type roundedTimes struct {
	what   string  // their name in the sentence
	us     []int64 // the stamps or times
	unitUs float64 // mean time that they measure
	isTime bool    // durations, which are all equal only if they are wrong; false: stamps
	isStep bool    // of steps, of which no two begin together
}

// roundedUs returns the largest number of us of which all times, less the first, are multiples; 0 if there are few of
// them, or all stamps are equal because everything began at once.
func (t *roundedTimes) roundedUs() float64 {
	if len(t.us) < fewestRounded {
		return 0
	}
	divisor := int64(0) // the greatest common divisor, by Euclid's algorithm; 0: all are equal
	for _, us := range t.us {
		rest := us - t.us[0]
		for rest != 0 {
			divisor, rest = rest, divisor%rest
		}
	}
	if divisor == 0 && t.isTime {
		return float64(t.us[0])
	}
	if !t.isTime && isPaced(t.us, t.isStep) {
		return 0
	}
	if divisor != 1 && divisor != -1 { // 1 us is what they are stored in
		return math.Abs(float64(divisor))
	}
	return t.nearlyRoundedUs()
}

// isPaced reports whether a load rather than rounding puts the stamps on a grid: a client that sends at a constant rate or
// equal bursts, or clients whose equal requests take turns. Rounded stamps of other loads have gaps of different lengths,
// or different numbers of stamps on each point of the grid. areSingle: a load puts only one stamp on each.
func isPaced(us []int64, areSingle bool) bool {
	if !slices.IsSorted(us) {
		us = slices.Sorted(slices.Values(us))
	}
	eachPoint := func(visit func(from, to int)) { // from..to-1 are the positions of equal stamps
		from := 0
		for i := 1; i <= len(us); i++ {
			if i == len(us) || us[i] != us[from] {
				visit(from, i)
				from = i
			}
		}
	}
	typical := 0.0 // of the values that were compared last
	areAlike := func(values []float64, tolerance float64) bool {
		typical = stat.MedianInPlace(values)
		alike := 0
		for _, v := range values {
			if math.Abs(v-typical) <= tolerance {
				alike++
			}
		}
		return float64(alike) >= leastOnGrid*float64(len(values))
	}
	gaps := make([]float64, 0, len(us)) // between different stamps
	eachPoint(func(from, to int) {
		if to < len(us) {
			gaps = append(gaps, float64(us[to]-us[from]))
		}
	})
	if len(gaps) == 0 || !areAlike(gaps, lostDigitsUs) {
		return false
	}
	sizes := gaps[:0] // numbers of equal stamps; there is one more than gaps
	eachPoint(func(from, to int) { sizes = append(sizes, float64(to-from)) })
	return areAlike(sizes, 0) && (!areSingle || typical == 1)
}

// nearlyRoundedUs returns the largest of 1, 2 and 5 times a power of ten us, from 1 ms on, of which nearly all times, less the first,
// are multiples but for the digits that conversions lose; 0 if there is none.
func (t *roundedTimes) nearlyRoundedUs() float64 {
	for unit := int64(10_000_000); unit >= 1000; unit /= 10 {
		for _, multiple := range []int64{unit, unit / 2, unit / 5} {
			near := 0
			for _, us := range t.us {
				rest := (us - t.us[0]) % multiple
				if rest < 0 {
					rest += multiple
				}
				if min(rest, multiple-rest) <= lostDigitsUs {
					near++
				}
			}
			if float64(near) > (1-mostUnrounded)*float64(len(t.us)) {
				return float64(multiple)
			}
		}
	}
	return 0
}

// compareRounding returns the reading of the stream that is rounded most for its purpose. largest is the ratio of the
// rounding to the time that it measures.
func compareRounding(streams []roundedTimes) reading {
	var r reading
	for i := range streams {
		t := &streams[i]
		if len(t.us) < fewestRounded || !(t.unitUs > 0) {
			continue
		}
		r.checked += len(t.us)
		roundedUs := t.roundedUs()
		if roundedUs/t.unitUs <= r.largest {
			continue
		}
		r.largest = roundedUs / t.unitUs
		r.broken = r.largest > mostRounded
		r.sentence = fmt.Sprintf("%s are all multiples of %.4g ms and measure times of %.4g ms on average: they were rounded, or have another unit", t.what,
			roundedUs/1e3, t.unitUs/1e3)
		if r.broken {
			r.violated = len(t.us)
		}
	}
	if r.checked == 0 {
		return notChecked("fewer than %d stamps of one kind", fewestRounded)
	}
	return r
}

// stepRounding compares the rounding of the stamps of steps with the time that steps take.
func stepRounding(f *facts) reading {
	steps := f.run.Steps
	if f.run.Aggregate != nil || len(steps) == 0 {
		return notChecked("no step summaries")
	}
	stamps := roundedTimes{
		what:   fmt.Sprintf("the stamps of %d steps", len(steps)),
		us:     make([]int64, 0, len(steps)),
		isStep: true,
	}
	var busyUs, busy float64
	for i := range steps {
		stamps.us = append(stamps.us, toUs(steps[i].TsStartNs))
		if i+1 < len(steps) && steps[i+1].ID == steps[i].ID+1 && steps[i].RunningDepth > 0 && steps[i+1].RunningDepth > 0 {
			busyUs += float64(steps[i+1].TsStartNs-steps[i].TsStartNs) / 1e3
			busy++
		}
	}
	stamps.unitUs = busyUs / math.Max(1, busy)
	return compareRounding([]roundedTimes{stamps})
}

// requestRounding compares the rounding of the stamps and times of requests with their time to the first token.
func requestRounding(f *facts) reading {
	const (
		apiStamps = iota
		journeyStamps
		sends // as exact as TTFT: arrivals decide how long requests wait for each other
		ttfts
		e2es
		firstTokens
		ends
	)
	streams := []roundedTimes{
		apiStamps:     {what: "the stamps of API spans"},
		journeyStamps: {what: "the stamps of journeys"},
		sends:         {what: "the times at which requests were sent"},
		ttfts:         {what: "the times to the first token", isTime: true},
		e2es:          {what: "the times of whole requests", isTime: true},
		firstTokens:   {what: "the times at which first tokens came"},
		ends:          {what: "the times at which answers ended"},
	}
	// add adds a stamp or time, which measures a time of unitUs.
	add := func(stream int, us int64, unitUs float64) {
		streams[stream].unitUs += unitUs
		streams[stream].us = append(streams[stream].us, us)
	}
	for i := range f.run.Requests {
		q := &f.run.Requests[i]
		if q.Source == trace.SourceStock {
			continue
		}
		if ms, ok := trace.BetweenMs(q.ArrivedNs, q.FirstTokenNs); ok {
			add(apiStamps, toUs(q.ArrivedNs.V), ms*1e3)
		}
		if ms, ok := trace.BetweenMs(q.QueuedNs, q.FirstTokenNs); ok {
			add(journeyStamps, toUs(q.FirstTokenNs.V), ms*1e3)
		}
	}
	// A few requests with long queues make a mean time to the first token that no other request has.
	waits := make([]float64, len(f.loads))
	for i := range f.loads {
		waits[i] = f.loads[i].ttftUs
	}
	medianUs := 0.0
	if len(waits) > 0 {
		medianUs = stat.Median(waits)
	}
	for i := range f.loads {
		l := &f.loads[i]
		whole := func(us float64) int64 { return int64(math.Round(us)) }
		if !l.isPlanned {
			add(sends, whole(l.sentUs), l.ttftUs)
		}
		add(ttfts, whole(l.ttftUs), l.ttftUs)
		add(e2es, whole(l.e2eUs), l.e2eUs)
		if isStreamed := l.ttftUs > 0 && l.e2eUs > l.ttftUs; isStreamed {
			add(firstTokens, whole(l.sentUs+l.ttftUs), l.ttftUs)
			add(ends, whole(l.sentUs+l.e2eUs), l.e2eUs)
		}
	}
	for i := range streams {
		t := &streams[i]
		t.unitUs /= math.Max(1, float64(len(t.us)))
		if measuresTTFT := i == sends || i == ttfts || i == firstTokens; measuresTTFT {
			t.unitUs = math.Min(t.unitUs, medianUs)
		}
	}
	return compareRounding(streams)
}

// toUs returns a stamp in us.
func toUs(ns int64) int64 { return (ns + 500) / 1000 }
