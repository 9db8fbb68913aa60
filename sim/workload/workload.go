// Package workload makes the requests of a simulation: from an extracted run, from generators, and
// from the public formats Mooncake, Weka, Azure, TraceV2 and the workload specification of BLIS.
//
// [Read] recognises a file by its content and returns a [Workload], or a [Generator] that draws one
// for each seed. [FromRun] takes the arrivals of a recorded run; [ForceLater] also its step times.
// [Workload.Close] and [Workload.Reclose] turn arrivals into a closed loop of clients,
// [Workload.CloseSessions] waits for answers within sessions. [Point] and [Traffic] draw requests
// from a few numbers.
//
// Data is passed as bytes; the package reads no files. Times are in us of simulated time.
package workload

import (
	"bytes"

	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// Workload is a list of requests for sim.Run, with what is known of its origin.
type Workload struct {
	Requests []sim.Request
	// BaseNs is the monotonic stamp of simulated time 0 (extracted runs): us =
	// ceil((ns - BaseNs)/1000).
	BaseNs int64
	// Rows[i] is the row of trace.Run.Requests behind Requests[i] (extracted runs).
	Rows []int
	// Notes are findings about what was assumed or omitted.
	Notes []trace.Finding

	rounds []round // of sessions, by request; nil: the format has none
}

// Us converts a monotonic stamp to simulated time. It rounds up, so that no event is before the one
// that caused it.
func (w *Workload) Us(ns int64) int64 { return ceilDiv(ns-w.BaseNs, 1000) }

// ceilDiv returns a/b rounded up, for b > 0.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b > 0 {
		q++
	}
	return q
}

// Codes of this package.
const (
	CodeIncomplete    trace.Code = "workload_incomplete"
	CodePrefixUnknown trace.Code = "workload_prefix_unknown"
	codeBadWorkload   trace.Code = "bad_workload"
)

// Scale multiplies all arrival rates of open-loop requests by factor, so it divides arrivals and the
// times of aborts by it. No abort comes before its request.
func (w *Workload) Scale(factor float64) {
	for i := range w.Requests {
		ScaleRequest(&w.Requests[i], factor)
	}
}

// ScaleRequest does for one request what Scale does for all.
func ScaleRequest(q *sim.Request, factor float64) {
	q.ArrivalUs = sim.ToUs(float64(q.ArrivalUs) / factor)
	if q.AbortAtUs.OK {
		q.AbortAtUs.V = max(q.ArrivalUs, sim.ToUs(float64(q.AbortAtUs.V)/factor))
	}
}

// withRoom returns an empty workload with memory for one request per line of data.
func withRoom(data []byte) *Workload {
	return &Workload{Requests: make([]sim.Request, 0, bytes.Count(data, []byte("\n"))+1)}
}

// addRequest appends a request.
func (w *Workload) addRequest(q sim.Request) { w.Requests = append(w.Requests, q) }
