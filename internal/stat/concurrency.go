package stat

// This file recognises loads that a fixed number of clients sends, from the times of their calls.

import "slices"

// Concurrency describes how the calls of a load were sent, as far as their times show. Times have
// the unit of the calls' times.
type Concurrency struct {
	Clients      int     // calls in flight at once, at most
	PlateauShare float64 // of the sends after the first Clients and a ramp: with at least 9/10 of Clients in flight, itself included
	ThinkP90     float64 // between an answer and the send that followed it
	MeanGap      float64 // between sends
}

// FewestCalls is the number of calls that a load needs before its shape can be recognised.
const FewestCalls = 20

// IsClosed reports whether the load looks like a closed loop: about the same number of calls is
// always in flight, and every answer is followed by a send long before an independent arrival would
// be due. A client that holds back the calls above its limit is such a loop too, as long as it is
// at the limit. A loop whose clients think long cannot be distinguished from open arrivals.
func (c Concurrency) IsClosed() bool {
	return c.Clients > 1 && c.PlateauShare >= 0.9 && c.ThinkP90 < c.MeanGap/2
}

// ConcurrencyOf returns the concurrency of calls; sent has their send times in ascending order, and
// end the time at which each was answered. Without a call after the first Clients, all but Clients is 0.
//
// Clients that start one after the other are a ramp: it ends with the first call that finds 9/10 of them in flight, if
// most calls come later.
func ConcurrencyOf(sent, end []int64) Concurrency {
	inFlight := callsInFlight(sent, end)
	if len(inFlight) == 0 {
		return Concurrency{}
	}
	c := Concurrency{Clients: slices.Max(inFlight)}
	later := inFlight[c.Clients:]
	if len(later) == 0 {
		return c
	}
	isOnPlateau := func(n int) bool { return 10*n+5 >= 9*c.Clients } // 9/10 of the clients, rounded
	if ramp := slices.IndexFunc(later, isOnPlateau); ramp > 0 && 2*(c.Clients+ramp) < len(sent) {
		later = later[ramp:]
	}
	var think []float64
	isFirst := FirstCalls(sent, end)
	for n, v := range ThinkTimes(sent, end) {
		if !isFirst[n] {
			think = append(think, float64(v))
		}
	}
	slices.Sort(think)
	c.ThinkP90 = Quantile(think, 0.9)
	c.MeanGap = float64(sent[len(sent)-1]-sent[0]) / float64(len(sent)-1)
	onPlateau := 0
	for _, n := range later {
		if isOnPlateau(n) {
			onPlateau++
		}
	}
	c.PlateauShare = float64(onPlateau) / float64(len(later))
	return c
}

// callsInFlight returns how many calls are in flight when each is sent, itself included.
func callsInFlight(sent, end []int64) []int {
	var ends []int64 // of the calls sent so far, ascending
	inFlight := make([]int, len(sent))
	for n := range sent {
		gone, _ := slices.BinarySearch(ends, sent[n]+1)
		inFlight[n] = n - gone + 1
		at, _ := slices.BinarySearch(ends, end[n])
		ends = slices.Insert(ends, at, end[n])
	}
	return inFlight
}

// FirstCalls reports of each call whether it is the first one of a client: more calls are in flight then than ever
// before. As many are as there are clients (the Clients of [ConcurrencyOf]).
func FirstCalls(sent, end []int64) []bool {
	isFirst := make([]bool, len(sent))
	most := 0
	for n, calls := range callsInFlight(sent, end) {
		isFirst[n] = calls > most
		most = max(most, calls)
	}
	return isFirst
}

// ThinkTimes returns for each call the time between it and the answer that it followed, the most
// recent one that no call had followed yet. The first call of a client follows none; it gets the median of the
// others, or 0.
func ThinkTimes(sent, end []int64) []int64 {
	byEnd := slices.Sorted(slices.Values(end)) // of the answers that are still to come
	isFirst := FirstCalls(sent, end)
	think := make([]int64, len(sent))
	var known []int64
	var free []int64 // answers that no call followed yet
	for n := range sent {
		for len(byEnd) > 0 && byEnd[0] <= sent[n] {
			free = append(free, byEnd[0])
			byEnd = byEnd[1:]
		}
		if isFirst[n] {
			continue
		}
		// Of no more calls in flight than there were before at least one had been answered since.
		last := len(free) - 1
		think[n] = sent[n] - free[last]
		free = free[:last]
		known = append(known, think[n])
	}
	slices.Sort(known)
	for n := range think {
		if isFirst[n] && len(known) > 0 {
			think[n] = known[len(known)/2]
		}
	}
	return think
}
