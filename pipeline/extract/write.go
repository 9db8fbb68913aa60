package extract

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"

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

// all writes every table of the engine run, those of requests beside the others.
func (w *writer) all(kv *kvCollector, observed []trace.ObservedRequest) error {
	w.out.tables = map[string]int64{}
	var marks []trace.StepMark
	if len(w.c.engines) > 0 {
		t := w.c.engines[w.engine].tables
		w.steps(t)
		marks = t.out.marks
	}
	var events, caches int64
	var beside error
	var group sync.WaitGroup
	group.Go(func() {
		if events, beside = w.journeys(); beside == nil {
			caches, beside = w.kvEvents(kv)
		}
	})
	requests, err := w.requests(marks)
	if err == nil {
		err = table.Write(w.dir, table.ObservedRequests, w.format, observed)
	}
	group.Wait()
	w.rows(table.Requests, requests)
	w.rows(table.JourneyEvents, events)
	w.rows(table.KVEvents, caches)
	w.rows(table.ObservedRequests, int64(len(observed)))
	return errors.Join(err, beside)
}

// rows notes the rows of a table that has any.
func (w *writer) rows(name string, n int64) {
	if n > 0 {
		w.out.tables[name] = n
	}
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
	w.rows(table.Steps, t.steps.Rows())
	w.rows(table.Snapshots, t.snaps.Rows())
}

// requests writes the requests by arrival.
func (w *writer) requests(marks []trace.StepMark) (int64, error) {
	keys, whole, err := w.c.requestKeys(w.engine)
	if err != nil {
		return 0, err
	}
	t, err := table.Create[trace.Request](w.dir, table.Requests, w.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	overheads := boundOverheads(keys, marks, whole && w.sampledAll())
	str := newInterner()
	for i := range keys {
		r, err := w.c.requestRow(keys[i].core, keys[i].api, str)
		if err != nil {
			return 0, err
		}
		if o := &overheads[i]; o.OK {
			r.OverheadLoUs, r.OverheadHiUs, r.OverheadExact = trace.Some(o.LoUs), trace.Some(o.HiUs), trace.Some(o.Exact)
		}
		w.phase(&r)
		w.count(&r)
		if err := t.Append(r); err != nil {
			return 0, err
		}
	}
	return t.Rows(), t.Close()
}

// boundOverheads bounds the overheads of the requests (01 T-5); complete says
// that every journey of the run is recorded, which exact ones need.
func boundOverheads(keys []requestKey, marks []trace.StepMark, complete bool) []trace.OverheadBound {
	known := func(ns int64) trace.Opt[int64] { return trace.Opt[int64]{V: ns, OK: ns != unknownNs} }
	stamps := make([]trace.OverheadStamps, len(keys))
	for i := range keys {
		k := &keys[i]
		stamps[i] = trace.OverheadStamps{ArrivedNs: known(k.arrived), QueuedNs: known(k.queued), FinishedNs: known(k.finished)}
	}
	return trace.BoundOverheads(stamps, marks, complete)
}

// sampledAll reports that every journey was sampled and the owner of every
// snapshot is known.
func (w *writer) sampledAll() bool {
	return w.dep.Tracing.JourneySampleRate.Or(1) == 1 && !w.out.strays
}

// journeys writes the journey events by core id, then emission order.
func (w *writer) journeys() (int64, error) {
	t, err := table.Create[trace.JourneyEvent](w.dir, table.JourneyEvents, w.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	mem := &memory{dir: w.c.stage, limit: w.c.mem.limit}
	defer mem.close()
	byRank := mem.spool()
	cores, err := w.c.journeysByID(w.engine, byRank)
	if err != nil {
		return 0, err
	}
	rd, err := byRank.read()
	if err != nil {
		return 0, err
	}
	str := newInterner()
	for {
		rank, ok := rd.peek()
		if !ok {
			return t.Rows(), t.Close()
		}
		var ev trace.JourneyEvent
		if err := rd.next(func(_ int64, row []byte) error { return w.c.pack.events.Decode(row, &ev, str.get) }); err != nil {
			return 0, err
		}
		ev.CoreID = cores[rank].id
		if err := t.Append(ev); err != nil {
			return 0, err
		}
	}
}

// journeysByID sorts the cores of an engine by id and puts their journey
// events into out by that order.
func (c *collector) journeysByID(engine int32, out *spool) ([]*core, error) {
	var order []int32
	for i, k := range c.cores {
		if k.engine == engine {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(c.cores[a].id, c.cores[b].id) })
	cores, rank := make([]*core, len(order)), make([]int64, len(c.cores))
	for r, i := range order {
		cores[r], rank[i] = c.cores[i], int64(r)
	}
	rd, err := c.journeys.read()
	if err != nil {
		return nil, err
	}
	var one packed
	for {
		at, ok := rd.peek()
		if !ok {
			return cores, nil
		}
		one.reset()
		if err := rd.next(func(_ int64, row []byte) error { one.add(rank[at], append(one.data, row...)); return nil }); err != nil {
			return nil, err
		}
		if c.cores[at].engine != engine {
			continue
		}
		if err := out.add(&one); err != nil {
			return nil, err
		}
	}
}

func (w *writer) kvEvents(kv *kvCollector) (int64, error) {
	if kv == nil {
		return 0, nil
	}
	t, err := table.Create[trace.KVEvent](w.dir, table.KVEvents, w.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	mine := func(ev *trace.KVEvent) bool { return w.c.engineOfKV(ev) == w.engine }
	if err := kv.write(t, mine); err != nil {
		return 0, err
	}
	return t.Rows(), t.Close()
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

// isPooling says that a route never has core spans (design/02 4.6).
func isPooling(route string) bool {
	return !strings.HasSuffix(route, "completions") && route != ""
}

// phase puts a request into the phase of its ARRIVED.
func (w *writer) phase(r *trace.Request) {
	at := r.ArrivedNs
	if !at.OK {
		at = r.QueuedNs
	}
	if !at.OK {
		return
	}
	if p := w.dep.PhaseAt(at.V); p != nil {
		r.Phase = trace.Some(p.Name)
	}
}

// count adds a request to the figures of the run.
func (w *writer) count(r *trace.Request) {
	n := &w.out.requests
	switch {
	case r.Source == trace.SourceStock:
		n.Stock++
	case !r.CoreID.OK:
		n.APIOnly++
	case r.Link == linkNone.String():
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

// joinObserved finds the core span of each client request: the client sends
// its id as X-Request-Id, so the API span's id is cmpl-<id> or chatcmpl-<id>.
func (c *collector) joinObserved(rows []trace.ObservedRequest) {
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
