package stat

// This file has the checks by which a load counts as saturated: more than the server can do.

import (
	"math"
)

// limitFailureShare and the values below are the limits of the saturation checks. A check is hit by
// a value above its limit.
const (
	limitFailureShare   = 0.05 // of the ended requests
	limitQueueRising    = 0.5  // R2
	limitPreemptedShare = 0.15 // of the requests of the engine
	limitTTFTDrift      = 2    // ratio of two medians
	limitE2ETail        = 10   // P99 / P50

	hitsThatSaturate = 2
	minCheckRequests = 9 // fewer are not enough for the checks on order and tail
)

// Names of the checks.
const (
	CheckFailureShare   = "failure_share"
	CheckQueueRising    = "queue_rising_r2"
	CheckPreemptedShare = "preempted_share"
	CheckTTFTDrift      = "ttft_drift"
	CheckE2ETail        = "e2e_p99_over_p50"
)

// Arrival has what the checks need of one request, recorded or simulated. All times are of the same
// clock and unit; NaN is unknown.
type Arrival struct {
	At        float64 // time of arrival
	Left      float64 // time at which it left the system, however it ended
	TTFT, E2E float64 // from arrival to the first token and to the last
	Ended     bool    // finished, failed or given up
	Failed    bool    // ended without success through no wish of its client
	Engine    bool    // reached the engine
	Preempted bool    // at least once
	Waits     bool    // in the engine's queue, if simulated
}

// Check is the result of one of the five checks.
type Check struct {
	Name  string  // CheckFailureShare ...
	Doc   string  // how the value is defined
	Value float64 // NaN: not measurable on these requests
	Limit float64 // the largest value that is no hit
	Hit   bool
}

// Saturation runs the five checks over requests in order of arrival, and reports whether the server was
// saturated: its queue rises (queueRises), or two checks are hit, and its queue may have risen or requests
// fail. A queue that levels off does not count as rising. The requests are those of an open load: a closed loop
// saturates no server.
func Saturation(requests []Arrival) (checks []Check, saturated bool) {
	left := departures(requests)
	return saturation(requests, left, 0, levelsOff(requests, left))
}

// saturation does what Saturation does. left are the departures of the requests and of earlier ones, which were in the
// system before the first of them. If the queue levels off it does not rise.
func saturation(requests []Arrival, left []float64, earlier int, levels bool) (checks []Check, saturated bool) {
	hits := 0
	// Whether more may have been offered than the server can do: two hits alone may be a long but steady queue, which
	// is no overload. Whether a queue rises cannot be seen in few requests or while the load itself rises (NaN).
	overrun := false
	for _, c := range []struct {
		name, doc string
		limit     float64
		value     func([]Arrival) float64
	}{
		{CheckFailureShare, "failed requests / ended requests; requests the client gave up do not count", limitFailureShare, failureShare},
		{CheckQueueRising, "R2 of the requests in the system at each arrival against time, where they rise to the end; null while the " +
			"offered load itself rises",
			limitQueueRising, func(requests []Arrival) float64 { return queueRising(requests, left, earlier) }},
		{CheckPreemptedShare, "requests preempted at least once / requests of the engine", limitPreemptedShare, preemptedShare},
		{CheckTTFTDrift, "median TTFT of the last third of the requests / of the first third", limitTTFTDrift, ttftDrift},
		{CheckE2ETail, "P99 / P50 of E2E", limitE2ETail, e2eTail},
	} {
		v := c.value(requests)
		if levels && c.name == CheckQueueRising && v > c.limit {
			v = 0
		}
		check := Check{Name: c.name, Doc: c.doc, Value: v, Limit: c.limit, Hit: v > c.limit}
		if check.Hit {
			hits++
		}
		switch c.name {
		case CheckQueueRising:
			overrun = overrun || check.Hit || math.IsNaN(v)
		case CheckFailureShare:
			overrun = overrun || check.Hit
		}
		checks = append(checks, check)
	}
	_, rises := queueRises(requests, left, earlier, false)
	return checks, rises && !levels || overrun && hits >= hitsThatSaturate
}

// share returns the share of requests for which part is true among those for which whole is true;
// NaN if there are none.
func share(requests []Arrival, whole, part func(*Arrival) bool) float64 {
	var n, of float64
	for i := range requests {
		if a := &requests[i]; whole(a) {
			of++
			if part(a) {
				n++
			}
		}
	}
	return n / of
}

// failureShare returns the share of failed requests among those that ended.
func failureShare(requests []Arrival) float64 {
	return share(requests, func(a *Arrival) bool { return a.Ended }, func(a *Arrival) bool { return a.Failed })
}

// queueRising returns the R2 of the queue length against time, and 0 if the queue falls. The queue
// is the number of requests in the system at each arrival, running ones included: with a large
// max_num_seqs a batch grows long before a request must wait. After the last arrival every queue
// falls, so that time is not used. Requests without a departure are left out; left and earlier are those of inSystem.
func queueRising(requests []Arrival, left []float64, earlier int) float64 {
	var ended []Arrival
	var at []float64
	for i := range requests {
		if a := &requests[i]; !math.IsNaN(a.Left) {
			ended = append(ended, *a)
			at = append(at, a.At)
		}
	}
	if len(at) < minCheckRequests || isRamp(at) {
		return math.NaN()
	}
	queue := inSystem(at, left, earlier)
	r2, _ := lineRises(at, queue, 0)
	if from := filledFrom(ended, earlier); r2 > limitQueueRising && from > 0 {
		r2, _ = lineRises(at[from:], queue[from:], 0)
	}
	return r2
}

// departures returns the times at which requests left the system, sorted, of those that did.
func departures(requests []Arrival) []float64 {
	left := known(requests, func(a *Arrival) float64 { return a.Left })
	Sort(left)
	return left
}

// inSystem returns at each arrival how many of the requests before it have not left: those that arrived at one of these
// times, and the earlier ones that were in the system before the first. Both lists of times are sorted; left has the
// departures of all of them.
func inSystem(at, left []float64, earlier int) []float64 {
	queue := make([]float64, len(at))
	gone := 0
	for i, t := range at {
		for gone < len(left) && left[gone] <= t {
			gone++
		}
		queue[i] = float64(earlier + i - gone)
	}
	return queue
}

// correlation returns Pearson's correlation of x and y; NaN if one of them does not vary.
func correlation(x, y []float64) float64 {
	mx, my := Mean(x), Mean(y)
	var xx, xy, yy float64
	for i, v := range x {
		dx, dy := v-mx, y[i]-my
		xx += dx * dx
		xy += dx * dy
		yy += dy * dy
	}
	return xy / math.Sqrt(xx*yy)
}

// rampFactor is the ratio of the arrival rate in the last third of the arrivals to that in the
// first third above which the offered load itself rises.
const rampFactor = 1.5

// isRamp reports whether the offered load rises over the (sorted) arrivals. A growing number of
// requests in the system is then no sign of saturation.
func isRamp(at []float64) bool {
	n := len(at)
	third := n / 3
	first := at[third] - at[0]
	last := at[n-1] - at[n-1-third]
	return last > 0 && first/last > rampFactor // arrivals at once at the end have no rate
}

// preemptedShare returns the share of preempted requests among those that reached the engine.
func preemptedShare(requests []Arrival) float64 {
	return share(requests, func(a *Arrival) bool { return a.Engine }, func(a *Arrival) bool { return a.Preempted })
}

// ttftDrift returns the median TTFT of the last third of the requests over that of the first third;
// NaN for fewer than minCheckRequests with a TTFT.
func ttftDrift(requests []Arrival) float64 {
	v := known(requests, func(a *Arrival) float64 { return a.TTFT })
	if len(v) < minCheckRequests {
		return math.NaN()
	}
	third := len(v) / 3
	return over(Median(v[len(v)-third:]), Median(v[:third]))
}

// e2eTail returns the 99th percentile of E2E over the median; NaN for too few requests.
func e2eTail(requests []Arrival) float64 {
	v := known(requests, func(a *Arrival) float64 { return a.E2E })
	if len(v) < minCheckRequests {
		return math.NaN()
	}
	Sort(v)
	return over(Quantile(v, 0.99), Quantile(v, 0.5))
}

// over returns a/b, and NaN unless b is positive.
func over(a, b float64) float64 {
	if !(b > 0) {
		return math.NaN()
	}
	return a / b
}

// known returns the values of the requests that are not NaN.
func known(requests []Arrival, of func(*Arrival) float64) []float64 {
	v := make([]float64, 0, len(requests))
	for i := range requests {
		if x := of(&requests[i]); !math.IsNaN(x) {
			v = append(v, x)
		}
	}
	return v
}
