package stat

import "math"

// A queue rises where the requests in the system grow by more than this share of the arrivals and by more than
// so many standard deviations of a Poisson number, and time explains at least this share of the variance of
// their number. A server 5 % above its capacity keeps one request in twenty; below it the number in the system
// comes and goes, about as that of a Poisson process.
const (
	leastRiseShare = 0.03
	leastRiseSDs   = 4
	leastRiseR2    = 0.5
)

// QueueRises reports whether requests, in order of arrival, pile up in the system while they arrive: more
// is offered than the server can do. A load that itself rises, and few requests, prove nothing.
func QueueRises(requests []Arrival) bool { return queueRises(requests, false) }

// Overloaded is [Saturation] of a simulated load: of one that itself rises, such as a ramp, the last half
// decides, or its last half where that rises too. A recorded ramp is evidence for a fit up to its end.
func Overloaded(requests []Arrival) (checks []Check, saturated bool) {
	checks, saturated = Saturation(requests)
	return checks, saturated || queueRises(requests, true)
}

func queueRises(requests []Arrival, ofRamps bool) bool {
	at := make([]float64, len(requests))
	var left []float64
	for i := range requests {
		at[i] = requests[i].At
		if !math.IsNaN(requests[i].Left) {
			left = append(left, requests[i].Left)
		}
	}
	Sort(left)
	inSystem := make([]float64, len(at))
	gone := 0
	for i, t := range at {
		for gone < len(left) && left[gone] <= t {
			gone++
		}
		inSystem[i] = float64(i - gone)
	}
	for ofRamps && len(at) >= minCheckRequests && isRamp(at) {
		inSystem = inSystem[len(at)/2:]
		at = at[len(at)/2:]
	}
	if len(at) < minCheckRequests || isRamp(at) {
		return false
	}
	r := correlation(at, inSystem)
	if !(r > 0) {
		return false
	}
	riseOfLine := r * math.Sqrt(variance(inSystem)/variance(at)) * (at[len(at)-1] - at[0])
	leastRise := math.Max(leastRiseShare*float64(len(at)), leastRiseSDs*math.Sqrt(Mean(inSystem)))
	return r*r >= leastRiseR2 && riseOfLine >= leastRise
}

// variance returns the mean square distance to the mean.
func variance(v []float64) float64 {
	mean := Mean(v)
	sum := 0.0
	for _, x := range v {
		sum += (x - mean) * (x - mean)
	}
	return sum / float64(len(v))
}
