package sim

// This file decides when requests arrive: by their own arrival times, or in closed loops after
// other requests have left.

import (
	"cmp"
	"slices"
)

// Source returns the requests of a workload in the order of their arrival. A request of a closed
// loop becomes due, which means that its arrival is known, when the request it waits for has left.
type Source struct {
	reqs      []Request
	open      []int32 // requests with arrivals of their own, sorted by arrival
	next      int     // position in open of the next one
	due       Heap[dueRequest]
	order     int64           // number of requests that became due so far
	followers map[int][]int32 // for each request, those that follow it (Request.After)
	queues    map[int][]int32 // for each loop, its requests that were not sent yet
	samples   map[int][]int32 // for each request, its other samples (Request.With)
	// inside counts, for each request with other samples that was taken, how many of it and them have
	// not left. It stays at 1, so that a request that is taken again does not send its samples again.
	inside map[int]int
}

// dueRequest is a request whose arrival depended on others: it is of a closed loop, or a further sample.
type dueRequest struct {
	at    int64 // arrival, us
	order int64 // how many requests became due before and including it
	req   int32 // index of the request
}

// Before orders by arrival, then by when the requests became due.
func (a dueRequest) Before(b dueRequest) bool {
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// NewSource checks the requests and returns a source of them. Requests with equal arrivals keep
// their order.
func NewSource(reqs []Request) (*Source, error) {
	s := &Source{reqs: reqs, followers: map[int][]int32{}, queues: map[int][]int32{}, samples: map[int][]int32{},
		inside: map[int]int{}}
	for i := range reqs {
		r := &reqs[i]
		if err := r.checkRequest(i, len(reqs)); err != nil {
			return nil, err
		}
		switch {
		case r.With > 0:
			s.samples[r.With-1] = append(s.samples[r.With-1], int32(i))
		case r.After > 0:
			s.followers[r.After-1] = append(s.followers[r.After-1], int32(i))
		case r.Queued:
			s.queues[r.Loop] = append(s.queues[r.Loop], int32(i))
		default:
			s.open = append(s.open, int32(i))
		}
	}
	slices.SortStableFunc(s.open, func(a, b int32) int { return cmp.Compare(reqs[a].ArrivalUs, reqs[b].ArrivalUs) })
	return s, nil
}

// Next returns the arrival of the next request, us; false if none will arrive before another has
// left.
func (s *Source) Next() (atUs int64, ok bool) {
	if s.next < len(s.open) {
		atUs = s.reqs[s.open[s.next]].ArrivalUs
		ok = true
	}
	if len(s.due) > 0 && (!ok || s.due[0].at < atUs) {
		atUs, ok = s.due[0].at, true
	}
	return atUs, ok
}

// Take removes and returns the next request. Of two that arrive in the same microsecond, the one
// with an arrival time of its own comes first.
func (s *Source) Take() (i int) {
	atUs, _ := s.Next()
	if s.next < len(s.open) && s.reqs[s.open[s.next]].ArrivalUs == atUs {
		i = int(s.open[s.next])
		s.next++
	} else {
		i = int(s.due.Pop().req)
	}
	if others := s.samples[i]; len(others) > 0 && s.inside[i] == 0 {
		s.inside[i] = 1 + len(others)
		for _, j := range others {
			s.Again(int(j), atUs)
		}
	}
	return i
}

// Left must be called when request i has left at atUs, whatever its outcome. When all its samples
// have left, the requests that follow it and the next one in the queue of its loop become due. For
// each of them Left calls sent with its arrival. followed is false if ArrivalUs made it arrive later
// than its think time after atUs.
func (s *Source) Left(i int, atUs int64, sent func(j int, atUs int64, followed bool)) {
	if with := s.reqs[i].With; with > 0 {
		i = with - 1
	}
	if n := s.inside[i]; n > 1 {
		s.inside[i] = n - 1
		return
	}
	send := func(j int32) {
		r := &s.reqs[j]
		at := max(atUs+r.ThinkUs, r.ArrivalUs)
		s.Again(int(j), at)
		sent(int(j), at, at == atUs+r.ThinkUs)
	}
	for _, j := range s.followers[i] {
		send(j)
	}
	if loop := s.reqs[i].Loop; loop > 0 && len(s.queues[loop]) > 0 {
		send(s.queues[loop][0])
		s.queues[loop] = s.queues[loop][1:]
	}
}

// Again makes request i arrive at atUs; it is one of a closed loop or a further sample.
func (s *Source) Again(i int, atUs int64) {
	s.order++
	s.due.Push(dueRequest{at: atUs, order: s.order, req: int32(i)})
}
