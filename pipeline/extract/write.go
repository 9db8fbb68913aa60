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
	strays   int64 // snapshots of requests without a core span
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
		e := w.c.engines[w.engine]
		if err := w.stepTables(e); err != nil {
			return err
		}
		brief = sortBriefs(e.brief)
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

// put writes a small table and notes its rows.
func put[T any](w *writer, name string, rows []T) error {
	if len(rows) > 0 {
		w.out.tables[name] = int64(len(rows))
	}
	return table.Write(w.dir, name, w.format, rows)
}

// stepTables merges the steps and snapshots of an engine by step id.
func (w *writer) stepTables(e *engine) error {
	steps, err := table.Create[trace.Step](w.dir, table.Steps, w.format)
	if err != nil {
		return err
	}
	defer steps.Abort()
	snaps, err := table.Create[trace.Snapshot](w.dir, table.Snapshots, w.format)
	if err != nil {
		return err
	}
	defer snaps.Abort()
	m := stepMerge{w: w, steps: steps, snaps: snaps, stepCodec: table.NewCodec[trace.Step](), snapCodec: table.NewCodec[trace.Snapshot](), str: newInterner(), seen: map[string]bool{}}
	if err := m.run(e); err != nil {
		return err
	}
	if err := steps.Close(); err != nil {
		return err
	}
	if err := snaps.Close(); err != nil {
		return err
	}
	for name, n := range map[string]int64{table.Steps: steps.Rows(), table.Snapshots: snaps.Rows()} {
		if n > 0 {
			w.out.tables[name] = n
		}
	}
	return nil
}

// stepMerge walks steps and snapshots side by side in step order.
type stepMerge struct {
	w         *writer
	steps     *table.Writer[trace.Step]
	snaps     *table.Writer[trace.Snapshot]
	stepCodec *table.Codec[trace.Step]
	snapCodec *table.Codec[trace.Snapshot]
	str       *interner
	group     []trace.Snapshot // snapshots of the current step
	seen      map[string]bool
	conflicts int64
}

func (m *stepMerge) run(e *engine) error {
	st, err := e.steps.read()
	if err != nil {
		return err
	}
	sn, err := e.snaps.read()
	if err != nil {
		return err
	}
	for {
		id, more := nextStep(st, sn)
		if !more {
			break
		}
		if err := m.snapshots(sn, id); err != nil {
			return err
		}
		step, has, err := m.summary(st, id)
		if err != nil {
			return err
		}
		if err := m.write(step, has); err != nil {
			return err
		}
	}
	if m.conflicts > 0 {
		m.w.out.warnings = append(m.w.out.warnings, trace.Findingf(CodeStepConflict, "%d step ids recorded twice with different stamps; the first record is kept", m.conflicts))
	}
	return nil
}

// nextStep is the smallest step id either side has.
func nextStep(a, b *spoolReader) (int64, bool) {
	x, okX := a.peek()
	y, okY := b.peek()
	switch {
	case okX && okY:
		return min(x, y), true
	case okX:
		return x, true
	}
	return y, okY
}

// snapshots gathers the snapshots of step id; a request counts once.
func (m *stepMerge) snapshots(rd *spoolReader, id int64) error {
	m.group = m.group[:0]
	clear(m.seen)
	for {
		key, ok := rd.peek()
		if !ok || key != id {
			return nil
		}
		var s trace.Snapshot
		if err := rd.next(func(_ int64, row []byte) error { return m.snapCodec.Decode(row, &s, m.str.get) }); err != nil {
			return err
		}
		if m.seen[s.CoreID] {
			m.w.c.acc.drop(CodeRepeatedEvent, 1, place{file: m.w.c.names[0].name}, "snapshot of %s in step %d", s.CoreID, id)
			continue
		}
		m.seen[s.CoreID] = true
		m.group = append(m.group, s)
	}
}

// summary reads the BATCH_SUMMARY of step id; the first of several stays.
func (m *stepMerge) summary(rd *spoolReader, id int64) (step trace.Step, has bool, err error) {
	for {
		key, ok := rd.peek()
		if !ok || key != id {
			return step, has, nil
		}
		var s trace.Step
		if err := rd.next(func(_ int64, row []byte) error { return m.stepCodec.Decode(row, &s, m.str.get) }); err != nil {
			return step, has, err
		}
		if !has {
			step, has = s, true
			continue
		}
		if s.TsStartNs != step.TsStartNs {
			m.conflicts++
		}
		m.w.c.acc.drop(CodeRepeatedEvent, 1, place{file: m.w.c.names[0].name}, "summary of step %d", id)
	}
}

func (m *stepMerge) write(step trace.Step, has bool) error {
	out := &m.w.out
	acc := m.w.c.acc
	for i := range m.group {
		s := &m.group[i]
		s.Orphan = !has
		m.cached(s)
	}
	acc.keep(int64(len(m.group)))
	if !has {
		out.orphans += int64(len(m.group))
		return m.snaps.Append(m.group...)
	}
	acc.keep(1)
	if out.steps.LastID.OK {
		out.steps.Missing += step.ID - out.steps.LastID.V - 1
	} else {
		out.steps.FirstID = trace.Some(step.ID)
	}
	out.steps.LastID = trace.Some(step.ID)
	out.steps.Summaries++
	if len(m.group) > 0 {
		out.steps.WithSnapshots++
	}
	step.NumSnapshots = int64(len(m.group))
	if err := m.steps.Append(step); err != nil {
		return err
	}
	return m.snaps.Append(m.group...)
}

// cached notes the cached tokens of a request from its first snapshot with
// scheduled tokens: num_computed_tokens when that is the step that admitted
// it, else what effective_prompt_len says (both are fixed at admission).
func (m *stepMerge) cached(s *trace.Snapshot) {
	c := m.w.c
	at, ok := c.byID[s.CoreID]
	if !ok {
		m.w.out.strays++
		return
	}
	k := c.cores[at]
	if k.snapSeen || s.ScheduledTokens == 0 {
		return
	}
	k.snapSeen = true
	if s.EffectivePromptLen.OK {
		k.hit = trace.Some(s.PromptTokens - s.EffectivePromptLen.V)
		k.cached = k.hit
	}
	if s.StepID == k.schedStep {
		k.cached = trace.Some(s.ComputedTokens)
	}
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
	if w.dep.Tracing.JourneySampleRate.Or(1) < 1 || w.out.strays > 0 {
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
