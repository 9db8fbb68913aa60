package stat

// This file recognises loads that a fixed number of clients sends, from the times of their calls.

import "slices"

// Concurrency describes how the calls of a load were sent, as far as their times show. Times have
// the unit of the calls' times.
type Concurrency struct {
	Clients      int     // calls in flight at once, at most
	PlateauShare float64 // of the sends after the first Clients: with at least 9/10 of Clients in flight, itself included
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
func ConcurrencyOf(sent, end []int64) Concurrency {
	var c Concurrency
	var ends []int64                   // of the calls sent so far, ascending
	inFlight := make([]int, len(sent)) // when each call is sent, itself included
	for n := range sent {
		gone, _ := slices.BinarySearch(ends, sent[n]+1)
		inFlight[n] = n - gone + 1
		c.Clients = max(c.Clients, inFlight[n])
		at, _ := slices.BinarySearch(ends, end[n])
		ends = slices.Insert(ends, at, end[n])
	}
	later := inFlight[min(c.Clients, len(sent)):]
	if len(later) == 0 {
		return c
	}
	var think []float64
	for _, v := range ThinkTimes(sent, end, c.Clients)[c.Clients:] {
		think = append(think, float64(v))
	}
	slices.Sort(think)
	c.ThinkP90 = Quantile(think, 0.9)
	c.MeanGap = float64(sent[len(sent)-1]-sent[0]) / float64(len(sent)-1)
	onPlateau := 0
	for _, n := range later {
		if 10*n+5 >= 9*c.Clients { // 9/10 of them, rounded
			onPlateau++
		}
	}
	c.PlateauShare = float64(onPlateau) / float64(len(later))
	return c
}

// ThinkTimes returns for each call the time between it and the answer that it followed, the most
// recent one that no call had followed yet. The first calls, one of each client, follow none; a call that followed
// none gets the median of the others, or 0.
func ThinkTimes(sent, end []int64, clients int) []int64 {
	const followedNone = -1
	byEnd := slices.Sorted(slices.Values(end)) // of the answers that are still to come
	think := make([]int64, len(sent))
	var known []int64
	var free []int64 // answers that no call followed yet
	for n := range sent {
		for len(byEnd) > 0 && byEnd[0] <= sent[n] {
			free = append(free, byEnd[0])
			byEnd = byEnd[1:]
		}
		think[n] = followedNone
		if last := len(free) - 1; n >= clients && last >= 0 {
			think[n] = sent[n] - free[last]
			free = free[:last]
			known = append(known, think[n])
		}
	}
	slices.Sort(known)
	for n := range think {
		if think[n] != followedNone {
			continue
		}
		think[n] = 0
		if len(known) > 0 {
			think[n] = known[len(known)/2]
		}
	}
	return think
}
