package validate

// This file replays closed loops, in which each client sends its next request when it is answered.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// closeLoop makes the requests of a closed loop follow the simulator's answers (spec#closed-loops):
// as many clients as were in flight at once send their first request when they did in the
// recording, and every later one follows an answer of the simulator, after the time that its client
// took in the recording. If it were replayed with its recorded arrivals, the recorded server's
// speed would be in the load. A phase is a closed loop if run.yaml states it, or if the requests in
// flight and the times of sending look like one.
func (p *replayedPhase) closeLoop(load string) {
	p.load = load
	calls := callsOf(p.recorded)
	c := workload.ConcurrencyOf(calls)
	if load != deploy.LoadClosed {
		if len(calls) < stat.FewestCalls || !c.IsClosed() {
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
		return
	}
	p.clients = c.Clients
}

// capacity returns the comparison of the throughput of a closed loop, from the E2E of the compared
// requests that were sent while all clients were busy; nil if there are none.
func (p *replayedPhase) capacity(s *sample) *result.Capacity {
	const msPerS, usPerMs = 1e3, 1e3
	pauseMs := 0.0 // a sum, then the mean: from an answer to the client's next request
	queued := 0.0  // number of requests that follow an answer
	for i := range p.requests {
		if p.requests[i].Queued {
			pauseMs += float64(p.requests[i].ThinkUs) / usPerMs
			queued++
		}
	}
	var real, simulated []float64
	for k, i := range s.request[kindE2E] {
		allBusy := p.requests[i].Queued && i < len(p.requests)-p.clients
		if allBusy && k < len(s.sim[kindE2E]) {
			real = append(real, s.real[kindE2E][k])
			simulated = append(simulated, s.sim[kindE2E][k])
		}
	}
	if p.clients == 0 || len(real) == 0 {
		return nil
	}
	pauseMs /= queued
	realMs := stat.Mean(real) + pauseMs
	simulatedMs := stat.Mean(simulated) + pauseMs
	c := &result.Capacity{
		Clients:      p.clients,
		RecordedRPS:  msPerS * float64(p.clients) / realMs,
		SimulatedRPS: msPerS * float64(p.clients) / simulatedMs,
	}
	ratio := realMs / simulatedMs // simulated over recorded throughput
	// How much each request moves the ratio of both means (the delta method): the mean of these has the
	// interval of the ratio.
	influence := make([]float64, len(real))
	for i := range influence {
		influence[i] = ratio * ((real[i]+pauseMs)/realMs - (simulated[i]+pauseMs)/simulatedMs)
	}
	const trim = 0
	_, lo, hi := stat.TrimmedMean(influence, trim)
	c.Err = result.NewEstimate(ratio-1, ratio-1+lo, ratio-1+hi)
	return c
}

// callsOf returns the client's calls behind the requests, by the time they were sent.
func callsOf(requests []Request) []workload.Call {
	const neverEnds = 1 << 62
	var calls []workload.Call
	byGroup := map[string]int{} // position in calls
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
	stat.SortStable(calls, func(a, b workload.Call) int { return cmp.Compare(a.SentNs, b.SentNs) })
	return calls
}
