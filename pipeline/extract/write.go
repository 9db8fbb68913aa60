package extract

// This file writes the tables of one engine run from what the collector gathered, and counts them.

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"sync"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// output is what the tables of one engine run contain, in figures for extract.json.
type output struct {
	Dir      string // the folder of the tables
	Steps    result.ExtractSteps
	Requests result.ExtractRequests
	Orphans  int64            // snapshots without a summary of their step
	Tables   map[string]int64 // rows by table
	Warnings []trace.Finding
	offsets  source.Sample // wall clock - monotonic clock of its journey events, ns
}

// writer writes the tables of one engine run.
type writer struct {
	c      *collector
	engine int32 // the engine run: an index in c.engines, or 0 without step spans
	dep    *deploy.Deployment
	strays bool // some snapshots are of requests without a core span
	out    output

	backwards      int64        // requests whose stamps run backwards
	firstBackwards source.Place // place of the first such request
	tooLong        int64        // requests with a prompt above max_model_len
	longestPrompt  int64        // tokens of the longest such prompt
	prompts        int64        // requests whose prompt the journey and the API span count
	otherPrompts   int64        // of these, the ones with different counts
	promptsApart   int64        // by how many tokens these differ at most
}

// setRows stores the number of rows of a table, if it has any.
func (w *writer) setRows(name string, n int64) {
	if n > 0 {
		w.out.Tables[name] = n
	}
}

// setSteps copies the figures of the tables of steps and snapshots, which were written while spans
// were read.
func (w *writer) setSteps(t *stepTables) {
	w.out.Steps = t.out.steps
	w.out.Orphans = t.out.orphans
	if t.out.conflicts > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(codeConflict,
			"%d step ids recorded twice with different stamps; the first record is kept", t.out.conflicts))
	}
	if size := t.out.blocks.contradiction(); size > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(source.CodeRunContradicted,
			"vllm.block_size: run.yaml says %d tokens, the blocks of requests in %d of %d snapshots %d",
			t.stated.BlockSize, t.out.blocks.seen-t.out.blocks.fitsStated, t.out.blocks.seen, size).About("vllm.block_size"))
	}
	w.out.Warnings = append(w.out.Warnings, t.out.beyond.Findings("steps")...)
	w.strays = w.strays || t.strays
	w.setRows(table.Steps, t.steps.Rows())
	w.setRows(table.Snapshots, t.snaps.Rows())
}

// requests writes the table of requests, in the order of arrival, and returns the number of rows.
func (w *writer) requests() (int64, error) {
	keys, isWhole, err := w.c.requestKeys(w.engine)
	if err != nil {
		return 0, err
	}
	t, err := table.Create[trace.Request](w.out.Dir, table.Requests, w.c.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	// By the stamps of all requests, so it comes before any row is written.
	overheads, err := w.overheads(keys, isWhole && w.sampledAll())
	if err != nil {
		return 0, err
	}
	str := files.NewInterner()
	for i := range keys {
		r, apiPrompt, err := w.c.requestRow(keys[i].core, keys[i].api, str)
		if err != nil {
			return 0, err
		}
		if o := &overheads[i]; o.OK {
			r.OverheadLoUs = trace.Some(o.LoUs)
			r.OverheadHiUs = trace.Some(o.HiUs)
			r.OverheadExact = trace.Some(o.Exact)
		}
		w.setPhase(&r)
		w.countRequest(&r)
		w.comparePrompt(&r, apiPrompt)
		if err := t.Append(r); err != nil {
			return 0, err
		}
	}
	return t.Rows(), t.Close()
}

// overheads returns the bounds of the overhead of each request: the time between its arrival at the API
// process and its entry into the engine's input queue (spec#overhead). If complete is false some journeys
// are not recorded, and no bound is exact.
func (w *writer) overheads(keys []requestKey, complete bool) (out []trace.OverheadBound, err error) {
	known := func(ns int64) trace.Opt[int64] { return trace.Opt[int64]{V: ns, OK: ns != unknownNs} }
	stamps := func(i int) trace.OverheadStamps {
		k := &keys[i]
		return trace.OverheadStamps{ArrivedNs: known(k.arrived), QueuedNs: known(k.queued),
			FinishedNs: known(k.finished)}
	}
	type row struct { // the columns of the steps table that are needed
		StartNs int64 `col:"ts_start_ns"`
		Running int64 `col:"running_depth"`
		Waiting int64 `col:"waiting_depth"`
	}
	marks := func(yield func(trace.StepMark) bool) {
		for s, failed := range fileRows[row](w.out.Dir, table.Steps, w.c.format) {
			if err = failed; err != nil {
				return
			}
			step := trace.Step{TsStartNs: s.StartNs, RunningDepth: int32(s.Running), WaitingDepth: int32(s.Waiting)}
			if !yield(step.Mark()) {
				return
			}
		}
	}
	out = trace.BoundOverheads(len(keys), stamps, marks, complete)
	return out, err
}

// sampledAll reports whether every journey was sampled and the request of every snapshot is known.
func (w *writer) sampledAll() bool {
	return w.dep.Tracing.JourneySampleRate.Or(1) == 1 && !w.strays
}

// journeys writes the table of journey events, by core id and then in the order of the input, and
// returns the number of rows.
func (w *writer) journeys() (int64, error) {
	t, err := table.Create[trace.JourneyEvent](w.out.Dir, table.JourneyEvents, w.c.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	mem := &source.Memory{Dir: w.c.stage, Limit: w.c.mem.Limit}
	defer mem.Close()
	byRank := mem.Spool() // a rank is the place of a core among those of the run, sorted by id
	order, err := w.c.journeysByID(w.engine, byRank)
	if err != nil {
		return 0, err
	}
	if int(w.engine) == w.c.Runs()-1 { // no further engine run will read them
		w.c.journeys.Close()
	}
	str := files.NewInterner()
	id := "" // of the core of rank last
	last := int64(-1)
	err = byRank.Each(func(rank int64, row []byte) error {
		var ev trace.JourneyEvent
		if err := w.c.pack.events.Decode(row, &ev, str); err != nil {
			return err
		}
		if rank != last {
			id = string(w.c.ids.get(w.c.cores[order[rank]].id))
			last = rank
		}
		ev.CoreID = id
		if ev.TsNs.OK {
			w.out.offsets.Add(ev.WallNs - ev.TsNs.V)
		}
		return t.Append(ev)
	})
	if err != nil {
		return 0, err
	}
	return t.Rows(), t.Close()
}

// journeysByID adds the journey events of an engine run to out and returns the cores (spans of the
// engine core) of the run sorted by id. The key of an event is the place of its core in that order.
func (c *collector) journeysByID(engine int32, out *source.Spool) (order []int32, err error) {
	for i := range c.cores {
		if c.cores[i].engine == engine {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return bytes.Compare(c.ids.get(c.cores[a].id), c.ids.get(c.cores[b].id))
	})
	rank := make([]int32, len(c.cores))
	for r, i := range order {
		rank[i] = int32(r)
	}
	return order, c.journeys.Each(func(at int64, row []byte) error {
		if c.cores[at].engine != engine {
			return nil
		}
		return out.Add(int64(rank[at]), row)
	})
}

// kvEvents writes the table of KV events of one engine run and returns its number of rows.
func (w *writer) kvEvents(kv *enginelog.KVCollector) (int64, error) {
	if kv == nil {
		return 0, nil
	}
	t, err := table.Create[trace.KVEvent](w.out.Dir, table.KVEvents, w.c.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	mine := func(ev *trace.KVEvent) bool { return w.c.engineOfKV(ev) == w.engine }
	if err := kv.Write(t, mine); err != nil {
		return 0, err
	}
	return t.Rows(), t.Close()
}

// engineOfKV returns the engine run of a KV event: that of its request, or else the last one that had
// begun at the event's time. KV events have stamps of the wall clock, engine runs of the monotonic one.
func (c *collector) engineOfKV(ev *trace.KVEvent) int32 {
	if len(c.engines) < 2 {
		return 0
	}
	if at, ok := c.byID[digestID(ev.RequestID.V)]; ok && ev.RequestID.OK {
		return c.cores[at].engine
	}
	offset, _, _ := c.offsets.Spread()
	ns := trace.Int(ev.WallS*1e9) - offset
	best := int32(0)
	for i, e := range c.engines {
		if e.minNs <= ns {
			best = int32(i)
		}
	}
	return best
}

// setPhase sets the phase of run.yaml in which a request arrived, or, where that is unknown, entered the
// queue. A request without either has no phase.
func (w *writer) setPhase(r *trace.Request) {
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

// countRequest adds a request to the figures of the run.
func (w *writer) countRequest(r *trace.Request) {
	n := &w.out.Requests
	if most := w.dep.Engine.MaxModelLen; most.OK && r.PromptTokens.V > most.V {
		w.tooLong++
		w.longestPrompt = max(w.longestPrompt, r.PromptTokens.V)
	}
	if r.RunsBackwards() {
		if w.backwards == 0 {
			w.firstBackwards = source.Place{File: r.File, Line: r.CoreLine.Or(r.APILine.V)}
		}
		w.backwards++
	}
	switch {
	case r.Source == trace.SourceStock:
		n.Stock++
		if r.StartWallNs.OK && r.StockTTFTUs.OK && r.StockE2EUs.OK {
			w.c.stock.add(r.StartWallNs.V, r.StockTTFTUs.V, r.StockE2EUs.V, r.PromptTokens.V, r.OutputTokens.V)
		}
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
	case !r.Success.OK: // its end was not recorded
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

// mostOtherPrompts is the share of the requests whose prompt the API span may count in another way.
const mostOtherPrompts = 0.01

// comparePrompt compares the prompt tokens of a journey with those that its API span states. A preempted request computes
// its output tokens as a part of its prompt again, and is not compared.
func (w *writer) comparePrompt(r *trace.Request, apiPrompt trace.Opt[int64]) {
	if !r.CoreID.OK || !r.PromptTokens.OK || !apiPrompt.OK || r.Preemptions.Or(0) > 0 {
		return
	}
	w.prompts++
	if apart := apiPrompt.V - r.PromptTokens.V; apart != 0 {
		w.otherPrompts++
		w.promptsApart = max(w.promptsApart, apart, -apart)
	}
}

// Write writes every table of an engine run and returns what it wrote. kv is nil without KV events.
// Journeys and KV events are written at the same time as requests, which need none of them.
func (c *collector) Write(run int, dep *deploy.Deployment, kv *enginelog.KVCollector) (*output, error) {
	w := &writer{c: c, engine: int32(run), dep: dep, out: output{Dir: c.dir(run), Tables: map[string]int64{}}}
	if len(c.engines) > 0 {
		t := c.engines[run].tables
		w.out.Dir = t.dir
		w.setSteps(t)
	}
	if err := os.MkdirAll(w.out.Dir, 0o777); err != nil {
		return nil, err
	}
	var events, kvEvents int64
	var eventsErr error
	var group sync.WaitGroup
	group.Go(func() {
		if events, eventsErr = w.journeys(); eventsErr == nil {
			kvEvents, eventsErr = w.kvEvents(kv)
		}
	})
	observed := c.observedOf(w.engine)
	w.warnUnjoined(observed)
	requests, err := w.requests()
	if err == nil {
		err = table.Write(w.out.Dir, table.ObservedRequests, c.format, observed)
	}
	group.Wait()
	if w.tooLong > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(source.CodeRunContradicted,
			"vllm.max_model_len: run.yaml says %d tokens, %d prompts are longer, up to %d",
			dep.Engine.MaxModelLen.V, w.tooLong, w.longestPrompt).About("vllm.max_model_len"))
	}
	if float64(w.otherPrompts) > mostOtherPrompts*float64(w.prompts) {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(source.CodeAPITokens,
			"%d of %d API spans state other prompt tokens than the journeys of their requests, by up to %d: one of the two was changed, "+
				"is not in tokens, or is of another request", w.otherPrompts, w.prompts, w.promptsApart))
	}
	if w.backwards > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(codeClockOffset,
			"%d requests have stamps that run backwards, first %s",
			w.backwards, w.firstBackwards))
	}
	w.setRows(table.Requests, requests)
	w.setRows(table.JourneyEvents, events)
	w.setRows(table.KVEvents, kvEvents)
	w.setRows(table.ObservedRequests, int64(len(observed)))
	return &w.out, errors.Join(err, eventsErr)
}
