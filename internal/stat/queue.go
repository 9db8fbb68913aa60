package stat

// This file recognises a queue that grows as long as the load lasts.

import "math"

// leastRiseShare and the values below are the conditions for a rising queue: the requests in the
// system grow by more than this share of the arrivals and by more than so many standard deviations
// of a Poisson number, and time explains at least this share of the variance of their number. A
// server 5 % above its capacity keeps one request in twenty; below its capacity the number in the
// system varies about as that of a Poisson process.
const (
	leastRiseShare = 0.03
	leastRiseSDs   = 4
	leastRiseR2    = 0.5
)

// Overloaded returns what [Saturation] does for a simulated load. If the load itself rises, as a
// ramp does, its last half decides, or the last half of that if it rises too, provided that most
// requests of its last third wait: at the busier end of a ramp more requests run, without overload.
// The check of the queue then has the value of that half. A recorded ramp is evidence for a fit up
// to its end, so Saturation does not do this. Nor does a simulated queue level off: a short one may do so by chance.
// earlier are the times at which requests left that arrived before these and were in the system then, a warm-up for
// instance: without them the number in the system would seem to rise from 0. A request that never left has +Inf.
func Overloaded(requests []Arrival, earlier []float64) (checks []Check, saturated bool) {
	left := append(departures(requests), earlier...)
	Sort(left)
	checks, saturated = saturation(requests, left, len(earlier), false)
	r2, rises := queueRises(requests, left, len(earlier), true)
	if saturated || !rises || !mostWait(requests[len(requests)-len(requests)/3:]) {
		return checks, saturated
	}
	for i := range checks {
		if checks[i].Name == CheckQueueRising {
			checks[i].Value, checks[i].Hit = r2, true
		}
	}
	return checks, true
}

// mostWait reports whether more than half of the requests wait.
func mostWait(requests []Arrival) bool {
	n := 0
	for i := range requests {
		if requests[i].Waits {
			n++
		}
	}
	return 2*n > len(requests)
}

// queueRises reports whether the number of requests in the system rises while they arrive, which means that more is
// offered than the server can do, and the R2 of that number against time. requests are in order of arrival, left are
// their departures and those of the requests that are in the system before the first of them, of which earlier is the
// number. A load that itself rises, and few requests, prove nothing: it is false, unless ofRamps is set, with which the
// last half of such a load decides.
func queueRises(requests []Arrival, left []float64, earlier int, ofRamps bool) (r2 float64, rises bool) {
	at := make([]float64, len(requests))
	for i := range requests {
		at[i] = requests[i].At
	}
	queue := inSystem(at, left, earlier)
	for ofRamps && len(at) >= minCheckRequests && isRamp(at) {
		queue = queue[len(at)/2:]
		at = at[len(at)/2:]
	}
	if len(at) < minCheckRequests || isRamp(at) {
		return 0, false
	}
	r2, rises = lineRises(at, queue, leastRiseSDs)
	if from := filledFrom(requests[len(requests)-len(at):], earlier); rises && from > 0 {
		r2, rises = lineRises(at[from:], queue[from:], leastFilledRiseSDs)
	}
	return r2, rises
}

// lineRises reports whether the number of requests in the system at these times rises by so many standard deviations of a
// Poisson number at least, and the R2 of that number against time: 0 where it falls.
func lineRises(at, queue []float64, leastSDs float64) (r2 float64, rises bool) {
	r := correlation(at, queue)
	if !(r > 0) {
		return 0, false
	}
	riseOfLine := lineSlope(at, queue) * (at[len(at)-1] - at[0]) // from the first arrival to the last, in requests
	leastRise := math.Max(leastRiseShare*float64(len(at)), leastSDs*math.Sqrt(Mean(queue)))
	return r * r, r*r >= leastRiseR2 && riseOfLine >= leastRise
}

// An idle server fills for some answers before it is in its steady state: for filledAfter times the median time of a
// request in the system. If a leastFillingShare of the requests arrives until then, less of which cannot bend the line, and
// a leastFilledShare later, their number has to rise there too, by leastFilledRiseSDs standard deviations. A server that
// does more and more work at once answers a little later; where TTFT drifts (limitTTFTDrift) requests wait, and this is no
// filling.
const (
	filledAfter        = 2
	leastFillingShare  = 1.0 / 8
	leastFilledShare   = 1.0 / 3
	leastFilledRiseSDs = 2
)

// filledFrom returns the position of the first request that arrives when a server that was idle before the first of them
// has filled; 0 if earlier ones were in the system, if few requests arrive before or after that, or if TTFT drifts.
func filledFrom(requests []Arrival, earlier int) int {
	stay := known(requests, func(a *Arrival) float64 { return a.Left - a.At })
	if earlier > 0 || len(stay) == 0 || ttftDrift(requests) > limitTTFTDrift {
		return 0
	}
	filledAt := requests[0].At + filledAfter*Median(stay)
	from := 0
	for from < len(requests) && requests[from].At < filledAt {
		from++
	}
	all := float64(len(requests))
	after := len(requests) - from
	if float64(from) < leastFillingShare*all || float64(after) < leastFilledShare*all || after < minCheckRequests {
		return 0
	}
	return from
}

// levelSDs is the number of standard deviations about its own line that are added to what a queue grows over its last
// third: it has levelled off if that is below leastRiseShare of the arrivals there.
const levelSDs = 2

// mostLevelScatter is up to how many times the scatter of independent requests, the root of their mean number, that number
// may scatter about its own line where clients keep it constant. A queue of open arrivals scatters more, also where by
// chance it does not grow for a third of the recording.
const mostLevelScatter = 0.1

// levelsOff reports whether the number of requests in the system is constant over the last third of them, after it grew
// at first: the clients of a closed loop that started one after the other are all there. left are the departures of
// the requests. Where more than limitFailureShare of that third got no answer it is false: clients that give up keep
// the number constant too, whatever is offered.
func levelsOff(requests []Arrival, left []float64) bool {
	if len(requests) < minCheckRequests {
		return false
	}
	at := make([]float64, len(requests))
	for i := range requests {
		at[i] = requests[i].At
	}
	from := len(at) - len(at)/3
	lastAt, last := at[from:], inSystem(at, left, 0)[from:]
	span := lastAt[len(lastAt)-1] - lastAt[0]
	if !(span > 0) {
		return false
	}
	growth := lineSlope(lastAt, last) * span
	scatter := math.Sqrt(math.Max(0, variance(last)-growth*growth*variance(lastAt)/(span*span)))
	if growth+levelSDs*scatter >= leastRiseShare*float64(len(last)) || scatter > mostLevelScatter*math.Sqrt(Mean(last)) {
		return false
	}
	unanswered := share(requests[from:],
		func(*Arrival) bool { return true }, func(a *Arrival) bool { return a.Ended && math.IsNaN(a.E2E) })
	return !(unanswered > limitFailureShare)
}

// lineSlope returns the slope of the line of least squares of y over x, which varies. [Slope] is another one, which
// outliers do not move.
func lineSlope(x, y []float64) float64 {
	mx, my := Mean(x), Mean(y)
	var xx, xy float64
	for i, v := range x {
		xx += (v - mx) * (v - mx)
		xy += (v - mx) * (y[i] - my)
	}
	return xy / xx
}

// variance returns the mean square distance of the values to their mean.
func variance(v []float64) float64 {
	mean := Mean(v)
	sum := 0.0
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return sum / float64(len(v))
}
