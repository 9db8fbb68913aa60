package validate

// This file measures the delays of the API server from requests that met an idle server.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// idleDelays are the times that the API adds before and after the engine, measured on requests that
// met an idle server, so that their stamps contain no delay by other requests. us, medians.
type idleDelays struct {
	OverheadUs float64
	EgressUs   float64 // 0: unknown
}

// measureIdle returns the delays of requests that arrived after every other one had left: of stock
// spans TTFT - queue - prefill, and E2E - queue - inference - overhead; of journeys QUEUED -
// ARRIVED, and DEPARTED - FINISHED. ok is false if there is no such request.
//
// With the passes of an unmodified engine on the clock of its clients there is one delay, TTFT less
// the pass of requests that met an idle server, and it is the overhead.
func measureIdle(run *trace.Run) (d idleDelays, ok bool) {
	if a := run.Aggregate; a != nil && len(a.DelaysUs) > 0 {
		return idleDelays{OverheadUs: max(0, stat.Median(a.DelaysUs))}, true
	}
	type stay struct {
		fromNs, toNs int64
		r            *trace.Request
	}
	var stays []stay
	for i := range run.Requests {
		r := &run.Requests[i]
		fromNs, known := r.ArrivalNs()
		if !known {
			continue
		}
		toNs := fromNs
		for _, at := range []trace.Opt[int64]{r.FinishedNs, r.DepartedNs, r.AbortedNs} {
			toNs = max(toNs, at.V)
		}
		if r.Source == trace.SourceStock {
			toNs = r.EndWallNs.Or(fromNs + trace.Ns(r.StockE2EUs.V))
		}
		stays = append(stays, stay{fromNs, toNs, r})
	}
	stat.SortStable(stays, func(a, b stay) int { return cmp.Compare(a.fromNs, b.fromNs) })
	var overhead, egress []float64
	busyUntilNs := int64(math.MinInt64)
	for i, s := range stays { // in order of arrival
		alone := s.fromNs >= busyUntilNs && (i+1 == len(stays) || stays[i+1].fromNs > s.fromNs)
		busyUntilNs = max(busyUntilNs, s.toNs)
		if !alone {
			continue
		}
		if before, after, known := delaysAround(s.r); known {
			overhead = append(overhead, before)
			egress = append(egress, after)
		}
	}
	if len(overhead) == 0 {
		return idleDelays{}, false
	}
	return idleDelays{OverheadUs: max(0, stat.Median(overhead)), EgressUs: max(0, stat.Median(egress))}, true
}

// delaysAround returns the times before and after the engine of one request, us.
func delaysAround(r *trace.Request) (overhead, egress float64, ok bool) {
	if r.Source == trace.SourceStock {
		if !r.StockTTFTUs.OK || !r.StockQueueUs.OK || !r.StockPrefillUs.OK || !r.StockE2EUs.OK || !r.StockInferUs.OK {
			return 0, 0, false
		}
		overhead = r.StockTTFTUs.V - r.StockQueueUs.V - r.StockPrefillUs.V
		egress = r.StockE2EUs.V - r.StockQueueUs.V - r.StockInferUs.V - overhead
		return overhead, egress, true
	}
	beforeMs, queued := trace.BetweenMs(r.ArrivedNs, r.QueuedNs)
	afterMs, departed := trace.BetweenMs(r.FinishedNs, r.DepartedNs)
	return beforeMs * 1e3, afterMs * 1e3, queued && departed
}
