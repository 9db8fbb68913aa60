package extract

// This file joins the requests that clients recorded with the spans of the server, by request id.

import (
	"bytes"
	"cmp"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// joinObserved finds the core span of each client request by its id. A client sends its id as
// X-Request-Id, and vLLM makes the API id of it: cmpl-<id> or chatcmpl-<id>.
func (c *collector) joinObserved(rows []trace.ObservedRequest) error {
	if len(rows) == 0 {
		return nil
	}
	byAPI := map[digest]int32{} // index of the core span by its API request id
	str := files.NewInterner()
	for i := range c.cores {
		core := &c.cores[i]
		id := ""
		if core.api >= 0 {
			row, err := c.pack.getAPI(c.apis[core.api].row, str)
			if err != nil {
				return err
			}
			id = row.request.APIID.V
		} else {
			id = apiIDs(string(c.ids.get(core.id)))[0]
		}
		// Of several core spans of one API request (n > 1, several prompts) the one with the smallest id
		// is used.
		key := digestID(id)
		if first, ok := byAPI[key]; !ok || bytes.Compare(c.ids.get(core.id), c.ids.get(c.cores[first].id)) < 0 {
			byAPI[key] = int32(i)
		}
	}
	for i := range rows {
		for _, prefix := range []string{"", "cmpl-", "chatcmpl-"} { // some clients record the API id itself
			if at, ok := byAPI[digestID(prefix+rows[i].ID)]; ok {
				rows[i].CoreID = trace.Some(string(c.ids.get(c.cores[at].id)))
				break
			}
		}
	}
	stat.SortStable(rows, func(a, b trace.ObservedRequest) int {
		return cmp.Or(cmp.Compare(sendTime(&a), sendTime(&b)), cmp.Compare(a.ID, b.ID))
	})
	return nil
}

// sendTime returns the stamp by which client requests are sorted, ns: the first known of when it was
// sent, planned to be sent, sent by the wall clock, and queued.
func sendTime(r *trace.ObservedRequest) int64 {
	for _, t := range []trace.Opt[int64]{r.SendNs, r.ArrivalNs, r.SendWallNs, r.QueuedNs} {
		if t.OK {
			return t.V
		}
	}
	return 0
}

// observedOf returns the client requests of one engine run: those whose core span is of it. Requests
// without a core span are with the first engine run.
func (c *collector) observedOf(engine int32) []trace.ObservedRequest {
	if len(c.engines) < 2 {
		return c.observed
	}
	var out []trace.ObservedRequest
	for _, r := range c.observed {
		at := int32(0)
		if i, ok := c.byID[digestID(r.CoreID.V)]; ok && r.CoreID.OK {
			at = c.cores[i].engine
		}
		if at == engine {
			out = append(out, r)
		}
	}
	return out
}

// warnUnjoined warns of client requests for which no core span was found, if every request should
// have one: there are core spans, and all journeys were sampled.
func (w *writer) warnUnjoined(rows []trace.ObservedRequest) {
	lost := 0
	for i := range rows {
		if !rows[i].CoreID.OK {
			lost++
		}
	}
	if lost > 0 && len(w.c.cores) > 0 && w.sampledAll() {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(codeIncomplete,
			"%d of %d client requests have no core span", lost, len(rows)))
	}
}
