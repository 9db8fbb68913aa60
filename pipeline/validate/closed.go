package validate

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// leastCalls is how many requests a load needs before its shape is read off.
const leastCalls = 20

// close gives a closed loop its clients back (spec#closed-loops): as many as were in
// flight at once send their first request when they did; every later one follows an
// answer of the simulator, after the time its client took in the recording. A phase
// is a closed loop when run.yaml says so, or when what was in flight and the sends
// look like one.
func (p *Phase) close(load string) {
	p.load = load
	calls := callsOf(p.obs)
	c := workload.ConcurrencyOf(calls)
	switch {
	case load == deploy.LoadClosed:
	case len(calls) >= leastCalls && c.Clients > 1 && c.IsClosed():
		p.load = deploy.LoadClosed
		p.findings = append(p.findings, trace.Findingf(ReplayAssumes,
			"run.yaml calls the load %s, but %d requests are always in flight and every answer is followed by the next: replayed as a closed loop",
			load, c.Clients))
	default:
		return
	}
	if _, err := workload.RecloseCalls(p.requests, calls, c.Clients); err != nil {
		p.load = deploy.LoadOpen
		p.findings = append(p.findings, trace.Findingf(NoReplay, "closed loop: %v", err))
	}
}

// callsOf are the calls of a client behind the requests, by the time they were sent.
func callsOf(obs []Request) []workload.Call {
	var calls []workload.Call
	byGroup := map[string]int{}
	for i := range obs {
		o := &obs[i]
		end := o.EndNs.Or(1 << 62) // no end: it stays in flight
		if o.E2EMs.OK {
			end = o.ArrivalNs + int64(o.E2EMs.V*1e3)*1000 // whole us: never after the request that followed it
		}
		k, known := byGroup[o.Group]
		if !known || o.Group == "" {
			byGroup[o.Group] = len(calls)
			calls = append(calls, workload.Call{Samples: []int{i}, SentNs: o.ArrivalNs, EndNs: end})
			continue
		}
		c := &calls[k]
		c.Samples, c.SentNs, c.EndNs = append(c.Samples, i), min(c.SentNs, o.ArrivalNs), max(c.EndNs, end)
	}
	slices.SortStableFunc(calls, func(a, b workload.Call) int { return cmp.Compare(a.SentNs, b.SentNs) })
	return calls
}
