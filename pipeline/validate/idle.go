package validate

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// idle is what the API adds around the engine, measured on requests that met a
// server with nothing else in flight: nothing hides in their stamps.
type idle struct {
	OverheadUs float64 // median
	EgressUs   float64 // median, 0 when unknown
	Requests   int
}

// measureIdle looks at stock spans (time to first token - queue - prefill; e2e -
// queue - inference - overhead) and at journeys (QUEUED - ARRIVED; DEPARTED -
// FINISHED) of requests that arrived after every other one had left. ok is false
// when there is none.
//
// With the passes of an unmodified engine on the clock of its clients, both are
// one: TTFT less the pass of those that met an idle server.
func measureIdle(run *trace.Run) (idle, bool) {
	if a := run.Aggregate; a != nil && len(a.DelaysUs) > 0 {
		return idle{OverheadUs: max(0, stat.Median(a.DelaysUs)), Requests: len(a.DelaysUs)}, true
	}
	type span struct {
		from, to int64
		r        *trace.Request
	}
	var spans []span
	for i := range run.Requests {
		r := &run.Requests[i]
		from, ok := arrivalNs(r)
		if !ok {
			continue
		}
		to := from
		for _, at := range []trace.Opt[int64]{r.FinishedNs, r.DepartedNs, r.AbortedNs} {
			to = max(to, at.V)
		}
		if r.Source == trace.SourceStock {
			to = r.EndWallNs.Or(from + int64(r.StockE2EUs.V*1e3))
		}
		spans = append(spans, span{from, to, r})
	}
	slices.SortStableFunc(spans, func(a, b span) int { return int(max(-1, min(1, a.from-b.from))) })
	var overhead, egress []float64
	busyUntil := int64(-1 << 62)
	for i, s := range spans {
		alone := s.from >= busyUntil && (i+1 == len(spans) || spans[i+1].from > s.from)
		busyUntil = max(busyUntil, s.to)
		if !alone {
			continue
		}
		if o, e, ok := around(s.r); ok {
			overhead, egress = append(overhead, o), append(egress, e)
		}
	}
	if len(overhead) == 0 {
		return idle{}, false
	}
	return idle{OverheadUs: max(0, stat.Median(overhead)), EgressUs: max(0, stat.Median(egress)), Requests: len(overhead)}, true
}

// around is the time before and after the engine of one request, us.
func around(r *trace.Request) (overhead, egress float64, ok bool) {
	if r.Source == trace.SourceStock {
		if !r.StockTTFTUs.OK || !r.StockQueueUs.OK || !r.StockPrefillUs.OK || !r.StockE2EUs.OK || !r.StockInferUs.OK {
			return 0, 0, false
		}
		overhead = r.StockTTFTUs.V - r.StockQueueUs.V - r.StockPrefillUs.V
		return overhead, r.StockE2EUs.V - r.StockQueueUs.V - r.StockInferUs.V - overhead, true
	}
	before, known := betweenMs(r.ArrivedNs, r.QueuedNs)
	after, departed := betweenMs(r.FinishedNs, r.DepartedNs)
	return before * 1e3, after * 1e3, known && departed
}
