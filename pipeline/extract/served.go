package extract

// This file divides the requests of clients among several engines that one load balancer served.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// assignServed divides the requests of clients among engines, if there are logs of several engines
// and no step traces. It uses the engines that counting found (findCached). In a phase in which too
// many requests have no engine, no request is assigned. Requests that are not assigned, and spans
// of requests without an engine, are in no table, because in a replay they would add load to the
// wrong engine.
func (x *extraction) assignServed() {
	if len(x.lives) < 2 || len(x.spans.engines)+len(x.spans.cores) > 0 {
		return
	}
	// drop turns n records that counted as kept into dropped ones. what describes them after the number.
	drop := func(n int64, what string) {
		if n > 0 {
			x.acc.Keep(-n)
			x.acc.Drop(source.CodeSeveralEngines, n, source.Place{File: x.lives[0].Engine}, "%s", what)
			x.clients = append(x.clients, trace.Findingf(source.CodeSeveralEngines,
				"%d %s: they are in no table and in no replay", n, what))
		}
	}
	drop(int64(len(x.spans.apis)), "spans of requests do not name the engine that served them")
	x.spans.apis = nil
	unknown := map[string]int64{} // requests without an engine, by phase
	all := map[string]int64{}     // all requests, by phase
	for i := range x.observed {
		r := &x.observed[i]
		all[r.Phase.V]++
		if !r.Engine.OK {
			unknown[r.Phase.V]++
		}
	}
	x.served = make([][]trace.ObservedRequest, len(x.lives))
	unassigned := map[string]int64{} // by phase
	for i := range x.observed {
		r := &x.observed[i]
		phase := r.Phase.V
		if !r.Engine.OK || float64(unknown[phase]) > trace.MostGuessed*float64(all[phase]) {
			r.Engine = trace.Opt[int64]{}
			unassigned[phase]++
		} else {
			life := r.Engine.V - 1 // Engine counts from 1
			x.served[life] = append(x.served[life], *r)
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(unassigned)) {
		drop(unassigned[phase], fmt.Sprintf("of %d requests of phase %q: for %d of them the passes do not show which "+
			"engine served them",
			all[phase], phase, unknown[phase]))
	}
	for _, rows := range x.served {
		stat.SortStable(rows, func(a, b trace.ObservedRequest) int {
			return cmp.Or(cmp.Compare(sendTime(&a), sendTime(&b)), cmp.Compare(a.ID, b.ID))
		})
	}
	x.observed = x.served[0] // the collector writes these with the first engine run; output writes the others
}
