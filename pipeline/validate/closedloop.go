package validate

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// leastCalls is how many calls a load needs before its shape is recognised.
const leastCalls = 20

// closeLoop gives a closed loop its clients back (spec#closed-loops): as many clients as were in flight at
// once send their first request when they did, and every later one follows an answer of the simulator,
// after the time that its client took in the recording. Replayed as recorded arrivals, a closed loop would
// have the recorded server's speed built in. A phase is a closed loop when run.yaml says so, or when the
// requests in flight and the times of sending look like one.
func (p *replayedPhase) closeLoop(load string) {
	p.load = load
	calls := callsOf(p.recorded)
	c := workload.ConcurrencyOf(calls)
	if load != deploy.LoadClosed {
		looksClosed := len(calls) >= leastCalls && c.Clients > 1 && c.IsClosed()
		if !looksClosed {
			return
		}
		p.load = deploy.LoadClosed
		p.findings = append(p.findings, trace.Findingf(ReplayAssumes,
			"run.yaml calls the load %s, but %d requests are always in flight and every answer is followed by the next: replayed as a closed loop",
			load, c.Clients))
	}
	if _, err := workload.RecloseCalls(p.requests, calls, c.Clients); err != nil {
		p.load = deploy.LoadOpen
		p.findings = append(p.findings, trace.Findingf(NoReplay, "closed loop: %v", err))
	}
}

// callsOf are the client's calls behind the requests, by the time they were sent.
func callsOf(requests []Request) []workload.Call {
	const neverEnds = 1 << 62
	var calls []workload.Call
	byGroup := map[string]int{}
	for i := range requests {
		o := &requests[i]
		endNs := o.EndNs.Or(neverEnds)
		if o.E2EMs.OK {
			// Whole microseconds, so that the end is never after the request that followed it.
			endNs = o.ArrivalNs + trace.Int(math.Trunc(o.E2EMs.V*1e3))*1000
		}
		k, known := byGroup[o.Group]
		if !known || o.Group == "" {
			byGroup[o.Group] = len(calls)
			calls = append(calls, workload.Call{Samples: []int{i}, SentNs: o.ArrivalNs, EndNs: endNs})
			continue
		}
		c := &calls[k]
		c.Samples = append(c.Samples, i)
		c.SentNs = min(c.SentNs, o.ArrivalNs)
		c.EndNs = max(c.EndNs, endNs)
	}
	slices.SortStableFunc(calls, func(a, b workload.Call) int { return cmp.Compare(a.SentNs, b.SentNs) })
	return calls
}
