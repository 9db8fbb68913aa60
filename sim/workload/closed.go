package workload

// This file turns a workload with arrivals into a closed loop, in which clients send when they are
// answered.

import (
	"cmp"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Loop is a closed loop of clients: each client sends its next request when its last one has been
// answered.
type Loop struct {
	Clients int
	ThinkUs int64 // between an answer and the client's next request
	RampUs  int64 // the clients start evenly over this time
	// KeepArrivals keeps the arrivals of requests and only limits how many are in flight: a request
	// is sent at its arrival, or later as soon as fewer than Clients are in flight.
	KeepArrivals bool
}

// Check returns an error for values out of range.
func (l Loop) Check() error {
	if l.Clients < 1 || l.ThinkUs < 0 || l.RampUs < 0 || max(l.ThinkUs, l.RampUs) > sim.LatestUs {
		return trace.Errorf(codeBadWorkload,
			"closed loop: got %d clients, think time %d us, ramp %d us, want >= 1, >= 0, >= 0, at most 1e16 us",
			l.Clients, l.ThinkUs, l.RampUs)
	}
	return nil
}

// Close makes the workload a closed loop: its requests in their order, from one queue that all
// clients share. Requests that already follow another one (After) and further samples (With) are
// not changed. Recorded aborts then count from the request's arrival.
func (w *Workload) Close(l Loop) error {
	if err := l.Check(); err != nil {
		return err
	}
	heads := releaseArrivals(w.Requests)
	if !l.KeepArrivals { // all will arrive at 0, so their present order becomes that of the queue
		stat.SortStable(heads, func(a, b int) int {
			return cmp.Compare(w.Requests[a].ArrivalUs, w.Requests[b].ArrivalUs)
		})
	}
	for n, i := range heads { // the first l.Clients of them are sent by themselves, the others are queued
		request := &w.Requests[i]
		if !l.KeepArrivals {
			request.ArrivalUs = 0
		}
		request.Loop = 1
		request.Queued = n >= l.Clients
		switch {
		case request.Queued:
			request.ThinkUs = l.ThinkUs
		case !l.KeepArrivals:
			request.ArrivalUs = l.RampUs * int64(n) / int64(min(l.Clients, len(heads)))
		}
	}
	return nil
}

// releaseArrivals removes what ties requests to recorded times: aborts count from the arrival, and
// the overhead is the simulator's. It returns the indices of the requests that follow no other one,
// in workload order.
func releaseArrivals(requests []sim.Request) []int {
	var heads []int
	for i := range requests {
		q := &requests[i]
		if q.AbortAtUs.OK {
			q.AbortAfterUs = trace.Some(q.AbortAtUs.V - q.ArrivalUs)
			q.AbortAtUs = trace.Opt[int64]{}
		}
		q.EnqueueUs = trace.Opt[int64]{}
		if q.After == 0 && q.With == 0 {
			heads = append(heads, i)
		}
	}
	return heads
}

// Concurrency estimates from a recorded run how the client limited its requests in flight. Times
// are ns.
func (w *Workload) Concurrency(run *trace.Run) stat.Concurrency { return ConcurrencyOf(w.calls(run)) }

// ConcurrencyOf estimates how a client limited its requests in flight, from its calls in the order
// in which they were sent. Times are ns.
func ConcurrencyOf(calls []Call) stat.Concurrency { return stat.ConcurrencyOf(timesOf(calls)) }

// timesOf returns when each call was sent and answered, ns.
func timesOf(calls []Call) (sent, end []int64) {
	for _, c := range calls {
		sent = append(sent, c.SentNs)
		end = append(end, c.EndNs)
	}
	return sent, end
}

// Call is one request of a client to the API, with all its samples (n > 1).
type Call struct {
	Samples       []int // positions in the workload, the first one first
	SentNs, EndNs int64 // when it was sent and when its last sample was answered
}

// calls returns the API calls behind the workload in the order in which they were sent. A call
// without a recorded end counts as in flight for ever.
func (w *Workload) calls(run *trace.Run) []Call {
	var calls []Call
	byID := map[string]int{} // by API id, which the samples of a call share: position in calls
	for i, row := range w.Rows {
		r := &run.Requests[row]
		sent, _ := arrivalNs(r, RunOptions{})
		end := max(r.DepartedNs.V, r.AbortedNs.V)
		if !r.DepartedNs.OK && !r.AbortedNs.OK {
			const never = 1 << 62
			end = r.FinishedNs.Or(never)
		}
		k, known := byID[r.APIID.V]
		if !known || !r.APIID.OK {
			if r.APIID.OK {
				byID[r.APIID.V] = len(calls)
			}
			calls = append(calls, Call{Samples: []int{i}, SentNs: sent, EndNs: end})
			continue
		}
		c := &calls[k]
		c.Samples = append(c.Samples, i)
		c.SentNs = min(c.SentNs, sent)
		c.EndNs = max(c.EndNs, end)
	}
	stat.SortStable(calls, func(a, b Call) int { return cmp.Compare(a.SentNs, b.SentNs) })
	return calls
}

// Reclose makes the workload of a recorded run a closed loop again: the first request of each
// client arrives as recorded, and every later one follows an answer after the think time that the
// recording shows.
//
// A recording does not contain which answer a request followed. The latest answer that no request
// has followed yet is assumed, which matters only for think times.
func (w *Workload) Reclose(run *trace.Run) (Loop, error) {
	calls := w.calls(run)
	return RecloseCalls(w.Requests, calls, ConcurrencyOf(calls).Clients)
}

// RecloseCalls does what Reclose does, for requests whose calls, in the order in which they were
// sent, and number of clients are known.
func RecloseCalls(requests []sim.Request, calls []Call, clients int) (Loop, error) {
	loop := Loop{Clients: clients}
	if err := loop.Check(); err != nil {
		return loop, err
	}
	releaseArrivals(requests)
	sent, end := timesOf(calls)
	think, isFirst := stat.ThinkTimes(sent, end), stat.FirstCalls(sent, end) // by call; ns
	for n, call := range calls {
		first := &requests[call.Samples[0]]
		first.Loop = 1
		first.Queued = !isFirst[n]
		if first.Queued {
			first.ArrivalUs = 0
			first.ThinkUs = ceilDiv(think[n], 1000)
		}
		for _, i := range call.Samples[1:] {
			requests[i].With = call.Samples[0] + 1
			requests[i].ArrivalUs = first.ArrivalUs
		}
	}
	return loop, nil
}
