package extract

import (
	"cmp"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// engineOutput is what writing one engine run found out.
type engineOutput struct {
	steps    result.ExtractSteps
	requests result.ExtractRequests
	orphans  int64
	strays   bool // some snapshots are of requests without a core span
	tables   map[string]int64
	warnings []trace.Finding
}

// writer writes the tables of one engine run.
type writer struct {
	c      *collector
	engine int32
	dir    string
	format table.Format
	dep    *deploy.Deployment
	out    engineOutput
}

// all writes every table of the engine run.
func (w *writer) all(kv *kvCollector, observed []trace.ObservedRequest) error {
	w.out.tables = map[string]int64{}
	var brief []stepBrief
	if len(w.c.engines) > 0 {
		t := w.c.engines[w.engine].tables
		w.steps(t)
		brief = sortBriefs(t.out.brief)
	}
	rows, err := w.c.requests(w.engine)
	if err != nil {
		return err
	}
	overheads(rows, brief, w.complete(rows))
	w.phases(rows)
	w.countRequests(rows)
	if err := put(w, table.Requests, rows); err != nil {
		return err
	}
	if err := w.journeys(); err != nil {
		return err
	}
	if err := w.kvEvents(kv); err != nil {
		return err
	}
	return put(w, table.ObservedRequests, observed)
}

// steps notes what the tables of steps and snapshots hold.
func (w *writer) steps(t *stepTables) {
	w.out.steps, w.out.orphans = t.out.steps, t.out.orphans
	if t.out.conflicts > 0 {
		w.out.warnings = append(w.out.warnings, trace.Findingf(CodeStepConflict, "%d step ids recorded twice with different stamps; the first record is kept", t.out.conflicts))
	}
	for id := range t.owners {
		_, known := w.c.byID[id]
		w.out.strays = w.out.strays || !known
	}
	for name, n := range map[string]int64{table.Steps: t.steps.Rows(), table.Snapshots: t.snaps.Rows()} {
		if n > 0 {
			w.out.tables[name] = n
		}
	}
}

// put writes a small table and notes its rows.
func put[T any](w *writer, name string, rows []T) error {
	if len(rows) > 0 {
		w.out.tables[name] = int64(len(rows))
	}
	return table.Write(w.dir, name, w.format, rows)
}

// journeys writes the journey events by core id, then emission order.
func (w *writer) journeys() error {
	t, err := table.Create[trace.JourneyEvent](w.dir, table.JourneyEvents, w.format)
	if err != nil {
		return err
	}
	defer t.Abort()
	var mine []*core
	for _, k := range w.c.cores {
		if k.engine == w.engine {
			mine = append(mine, k)
		}
	}
	slices.SortStableFunc(mine, func(a, b *core) int { return cmp.Compare(a.id, b.id) })
	str := newInterner()
	for _, k := range mine {
		events, err := k.journey(w.c.codec, str.get)
		if err != nil {
			return err
		}
		if err := t.Append(events...); err != nil {
			return err
		}
	}
	if t.Rows() > 0 {
		w.out.tables[table.JourneyEvents] = t.Rows()
	}
	return t.Close()
}

func (w *writer) kvEvents(kv *kvCollector) error {
	if kv == nil {
		return nil
	}
	t, err := table.Create[trace.KVEvent](w.dir, table.KVEvents, w.format)
	if err != nil {
		return err
	}
	defer t.Abort()
	mine := func(ev *trace.KVEvent) bool { return w.c.engineOfKV(ev) == w.engine }
	if err := kv.write(t, mine); err != nil {
		return err
	}
	if t.Rows() > 0 {
		w.out.tables[table.KVEvents] = t.Rows()
	}
	return t.Close()
}

// engineOfKV places a KV event: with its request, else by the wall clock.
func (c *collector) engineOfKV(ev *trace.KVEvent) int32 {
	if len(c.engines) < 2 {
		return 0
	}
	if at, ok := c.byID[ev.RequestID.V]; ok && ev.RequestID.OK {
		return c.cores[at].engine
	}
	offset, _, _ := c.offsets.stats()
	ns := int64(ev.WallS*1e9) - offset
	best := int32(0)
	for i, e := range c.engines {
		if e.minNs <= ns {
			best = int32(i)
		}
	}
	return best
}

// complete reports that every journey of the run is recorded, which exact
// overheads need: sampled at 1.0, no event lost, every snapshot's owner and
// every answered API request known to the engine.
func (w *writer) complete(rows []trace.Request) bool {
	if w.dep.Tracing.JourneySampleRate.Or(1) < 1 || w.out.strays {
		return false
	}
	for i := range rows {
		r := &rows[i]
		if r.DroppedEvents > 0 || !r.CoreID.OK && r.Source == trace.SourceFork && r.DepartedNs.OK && !isPooling(r.Route.V) {
			return false
		}
	}
	return true
}

// isPooling says that a route never has core spans (design/02 4.6).
func isPooling(route string) bool {
	return !strings.HasSuffix(route, "completions") && route != ""
}

// phases puts each request into the phase of its ARRIVED.
func (w *writer) phases(rows []trace.Request) {
	for i := range rows {
		r := &rows[i]
		at := r.ArrivedNs
		if !at.OK {
			at = r.QueuedNs
		}
		if !at.OK {
			continue
		}
		if p := w.dep.PhaseAt(at.V); p != nil {
			r.Phase = trace.Some(p.Name)
		}
	}
}

func (w *writer) countRequests(rows []trace.Request) {
	n := &w.out.requests
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Source == trace.SourceStock:
			n.Stock++
		case !r.CoreID.OK:
			n.APIOnly++
		case r.Link == linkNone:
			n.Engine++
			n.APIUnlinked++
		default:
			n.Engine++
			n.APILinked++
		}
		switch {
		case !r.Success.OK:
			n.Open++
		case r.Success.V:
			n.Finished++
		default:
			n.Failed++
		}
		if r.AbortedNs.OK || !r.DepartedNs.OK && r.FinishStatus.V == trace.FinishAborted {
			n.Aborted++
		}
		if r.DepartedNs.OK && r.FinishStatus.V == trace.FinishAborted {
			n.StopString++
		}
	}
}

// joinObserved finds the core span of each client request: the client sends
// its id as X-Request-Id, so the API span's id is cmpl-<id> or chatcmpl-<id>.
func (c *collector) joinObserved(rows []trace.ObservedRequest) {
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
func (c *collector) observedOf(rows []trace.ObservedRequest, engine int32) []trace.ObservedRequest {
	if len(c.engines) < 2 {
		return rows
	}
	var out []trace.ObservedRequest
	for _, r := range rows {
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
