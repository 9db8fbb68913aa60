package extract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// serve gives the clients' requests to the engines that served them, where logs hold several
// and no step traces tell: phase by phase, where the counts leave one way for nearly all.
// The others, and spans that name no engine, are in no table: a replay would meet another
// engine's load.
func (x *extraction) serve() {
	if len(x.lives) < 2 || len(x.col.engines)+len(x.col.cores) > 0 {
		return
	}
	drop := func(n int64, what string) {
		if n > 0 {
			x.acc.Keep(-n)
			x.acc.Drop(codeSeveralEngines, n, source.Place{File: x.lives[0].Engine}, "%s", what)
			x.clients = append(x.clients, trace.Findingf(codeSeveralEngines, "%d %s: they are in no table, and no replay has them", n, what))
		}
	}
	drop(int64(len(x.col.apis)), "spans of requests do not name which of the engines served them")
	x.col.apis = nil
	unknown := map[string]int64{}
	all := map[string]int64{}
	for i := range x.obs {
		r := &x.obs[i]
		if all[r.Phase.V]++; !r.Engine.OK {
			unknown[r.Phase.V]++
		}
	}
	x.served = make([][]trace.ObservedRequest, len(x.lives))
	left := map[string]int64{}
	for i := range x.obs {
		r := &x.obs[i]
		if p := r.Phase.V; !r.Engine.OK || float64(unknown[p]) > trace.MostGuessed*float64(all[p]) {
			r.Engine = trace.Opt[int64]{}
			left[p]++
		} else {
			x.served[r.Engine.V-1] = append(x.served[r.Engine.V-1], *r)
		}
	}
	for _, phase := range slices.Sorted(maps.Keys(left)) {
		drop(left[phase], fmt.Sprintf("of %d requests of phase %q: the passes of the engines do not tell for %d which engine served them",
			all[phase], phase, unknown[phase]))
	}
	for _, rows := range x.served {
		slices.SortStableFunc(rows, func(a, b trace.ObservedRequest) int {
			return cmp.Or(cmp.Compare(sendTime(&a), sendTime(&b)), cmp.Compare(a.ID, b.ID))
		})
	}
	x.obs = x.served[0]
}
