package tables

import (
	"cmp"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// joinObserved finds the core span of each client request: the client sends
// its id as X-Request-Id, so the API span's id is cmpl-<id> or chatcmpl-<id>.
func (c *Collector) joinObserved(rows []trace.ObservedRequest) {
	if len(rows) == 0 {
		return
	}
	byAPI := map[string]*core{}
	for _, k := range c.cores {
		id := ""
		if k.apiIndex >= 0 {
			id = c.apis[k.apiIndex].id
		} else if ids := apiIDs(k.id); len(ids) > 0 {
			id = ids[0]
		}
		if first, ok := byAPI[id]; !ok || k.id < first.id {
			byAPI[id] = k
		}
	}
	for i := range rows {
		for _, prefix := range []string{"", "cmpl-", "chatcmpl-"} {
			if k, ok := byAPI[prefix+rows[i].ID]; ok {
				rows[i].CoreID = trace.Some(k.id)
				break
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b trace.ObservedRequest) int {
		return cmp.Or(cmp.Compare(sendTime(&a), sendTime(&b)), cmp.Compare(a.ID, b.ID))
	})
}

// sendTime orders observed requests: sent, else planned, else on the wall clock.
func sendTime(r *trace.ObservedRequest) int64 {
	for _, t := range []trace.Opt[int64]{r.SendNs, r.ArrivalNs, r.SendWallNs, r.QueuedNs} {
		if t.OK {
			return t.V
		}
	}
	return 0
}

// observedOf are the client requests of one engine.
func (c *Collector) observedOf(engine int32) []trace.ObservedRequest {
	if len(c.engines) < 2 {
		return c.observed
	}
	var out []trace.ObservedRequest
	for _, r := range c.observed {
		at := int32(0)
		if i, ok := c.byID[r.CoreID.V]; ok && r.CoreID.OK {
			at = c.cores[i].engine
		}
		if at == engine {
			out = append(out, r)
		}
	}
	return out
}

// unjoined warns of client requests that the journeys of the run do not know.
func (w *writer) unjoined(rows []trace.ObservedRequest) {
	lost := 0
	for i := range rows {
		if !rows[i].CoreID.OK {
			lost++
		}
	}
	if lost > 0 && len(w.c.cores) > 0 && w.sampledAll() {
		w.out.Warnings = append(w.out.Warnings,
			trace.Findingf(CodeUnjoinedObserved, "%d of %d client requests have no core span", lost, len(rows)))
	}
}
