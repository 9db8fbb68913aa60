package extract

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// A finished request waits for the end of the dump, for that is when engines
// are told apart and its table is sorted. So that a long dump fits into memory
// it waits packed on disk: what its spans say as a row of the requests table,
// known columns only, and its journey events in a spool. In memory stand its id
// and where the rest is.

// Kinds of journey events with a stamp of their own in a request.
const (
	kindQueued     = "QUEUED"
	kindScheduled  = "SCHEDULED"
	kindFirstToken = "FIRST_TOKEN"
	kindFinished   = "FINISHED"
)

// eventSeed serves hashes that never leave the process.
var eventSeed = maphash.MakeSeed()

// core collects an engine request.
func (c *collector) core(s *otlp.Span, key spanKey) error {
	if !s.RequestID.OK {
		c.acc.Drop(source.CodeBadRecord, 1+int64(len(s.Journey)), c.at(s), "llm_core without gen_ai.request.id")
		return nil
	}
	at, row, err := c.coreOf(s, key)
	if err != nil {
		return err
	}
	row.request.EndWallNs = trace.Some(max(row.request.EndWallNs.V, s.EndNs))
	row.request.DroppedEvents += s.DroppedEvents
	for i := range s.Journey {
		ev := &s.Journey[i]
		ev.CoreID = ""
		c.pack.buf = c.pack.events.Append(c.pack.buf[:0], ev)
		hash := maphash.Bytes(eventSeed, c.pack.buf)
		if slices.Contains(row.hashes, hash) {
			c.acc.Drop(source.CodeDuplicate, 1, c.at(s), "%s of %s", ev.Kind, s.RequestID.V)
			continue
		}
		row.hashes = append(row.hashes, hash)
		row.take(ev)
		if err := c.journeys.Add(int64(at), c.pack.buf); err != nil {
			return err
		}
		summarise(&row.request, ev)
		c.acc.Keep(1)
		c.wall.See(ev.WallNs)
		if ev.TsNs.OK {
			c.offsets.Add(ev.WallNs - ev.TsNs.V)
			c.clock(s.Resource, ofCores).See(ev.TsNs.V)
		}
		if ev.Step.OK {
			c.stepIDs.See(ev.Step.V)
		}
	}
	c.acc.Keep(1)
	c.cores[at].row, err = c.pack.putCore(row)
	return err
}

// coreOf is the request of a core span, by its place among the cores, and what is known of it:
// a new one, or the one of an earlier span with the same id.
func (c *collector) coreOf(s *otlp.Span, key spanKey) (at int32, row *coreRow, err error) {
	id, row := digestID(s.RequestID.V), &c.pack.row
	if at, ok := c.byID[id]; ok {
		if err = c.pack.getCore(c.cores[at].row, row, files.NewInterner()); err != nil || row.Resource == s.Resource {
			return at, row, err
		}
	}
	*row = coreRow{hashes: row.hashes[:0],
		coreHead: coreHead{Key: key, Parent: s.Parent, HasParent: s.HasParent, Resource: s.Resource, Order: c.order,
			File: s.File, Line: s.Line, LastNs: math.MinInt64, SchedStep: -1},
		request: trace.Request{StartWallNs: trace.Some(s.StartNs), Model: s.Model, MaxTokens: s.MaxTokens}}
	at = int32(len(c.cores))
	c.byID[id] = at
	c.cores = append(c.cores, core{id: c.ids.put(s.RequestID.V), api: -1, snap: -1})
	return at, row, nil
}

// take notes an event.
func (k *coreHead) take(ev *trace.JourneyEvent) {
	if ev.TsNs.OK {
		k.LastNs = max(k.LastNs, ev.TsNs.V)
	}
	if ev.Step.OK {
		k.LastStep = ev.Step.V
	}
	if ev.Kind == kindScheduled && k.SchedStep < 0 && ev.Step.OK && ev.TsNs.OK {
		k.SchedNs, k.SchedStep = ev.TsNs.V, ev.Step.V
	}
}

// summarise folds one journey event into the request.
func summarise(r *trace.Request, e *trace.JourneyEvent) {
	first := func(at, step *trace.Opt[int64]) {
		if !at.OK {
			*at, *step = e.TsNs, e.Step
		}
	}
	switch e.Kind {
	case kindQueued:
		first(&r.QueuedNs, &r.QueuedStep)
	case kindScheduled:
		if e.ScheduleKind.Or("FIRST") == "FIRST" {
			first(&r.ScheduledNs, &r.ScheduledStep)
		}
	case kindFirstToken:
		first(&r.FirstTokenNs, &r.FirstTokenStep)
	case kindFinished:
		first(&r.FinishedNs, &r.FinishedStep)
		r.FinishStatus = e.FinishStatus
		r.OutputTokens = e.DecodeDone
	}
	if e.PrefillTotal.OK {
		r.PromptTokens = e.PrefillTotal
	}
	if e.DecodeMax.OK {
		r.MaxTokens = e.DecodeMax
	}
	if e.Preemptions.OK {
		r.Preemptions = e.Preemptions
	}
}

// api collects a request as the API process saw it, or a stock span.
func (c *collector) api(s *otlp.Span, key spanKey) (err error) {
	row := apiRow{apiHead: apiHead{Key: key, Order: c.order, File: s.File, Line: s.Line, Kept: 1, Resource: s.Resource}}
	p := api{isStock: s.Class == otlp.ClassStock}
	r := &row.request
	*r = trace.Request{APIID: s.RequestID, Route: s.Route, Model: s.Model, PromptTokens: s.Prompt, OutputTokens: s.Completion,
		MaxTokens: s.MaxTokens, N: s.N, StartWallNs: trace.Some(s.StartNs), EndWallNs: trace.Some(s.EndNs)}
	stamps := [...]*trace.Opt[int64]{otlp.APIArrived: &r.ArrivedNs, otlp.APIHandoff: &r.HandoffNs, otlp.APIFirstResponse: &r.FirstResponseNs,
		otlp.APIDeparted: &r.DepartedNs, otlp.APIAborted: &r.AbortedNs}
	for _, e := range s.API {
		if stamps[e.Name].OK {
			c.acc.Drop(source.CodeDuplicate, 1, c.at(s), "%s of %s", e.Name, s.RequestID.V)
			continue
		}
		*stamps[e.Name] = trace.Some(e.TsNs)
		c.clock(s.Resource, ofAPIs).See(e.TsNs)
		if e.Name == otlp.APIAborted {
			r.AbortReason = e.Reason
		}
		row.Kept++
	}
	if p.isStock {
		setStockTimes(r, &s.Stock)
	}
	p.row, err = c.pack.putAPI(&row)
	c.acc.Keep(row.Kept)
	c.apis = append(c.apis, p)
	return err
}

// What a record says alone has its limits where it is read; stamps and step ids have those of the
// records around them (spec#value-limits), which are known when all were read.

const (
	shortStepNs = 100_000 // no step is shorter: so many ids fit between two stamps
	unstamped   = 4096    // ids beyond the recorded ones that a record without a stamp may have
)

// clock is the monotonic clock of the records of a process.
func (c *collector) clock(resource uint64, class int) *source.Stamps {
	key := clockKey{resource, class}
	if c.clocks[key] == nil {
		c.clocks[key] = &source.Stamps{}
	}
	return c.clocks[key]
}

type clockKey struct {
	resource uint64
	class    int
}

const (
	ofCores = iota
	ofAPIs
)

// strayRows drops what of a step span cannot stand beside the rest of it: its middle summary says
// when its steps ran, and which ids fit there.
func (c *collector) strayRows(s *otlp.Span) {
	rows := s.Rows.Steps
	if len(rows) < 3 {
		return
	}
	mid := rows[len(rows)/2]
	away := func(a, b int64) int64 { return max(a-b, b-a) }
	first, last := mid.ID, mid.ID
	s.Rows.Steps = slices.DeleteFunc(rows, func(r trace.Step) bool {
		why := ""
		switch {
		case away(r.TsStartNs, mid.TsStartNs) > source.StrayNs || away(r.WallNs, mid.WallNs) > source.StrayNs:
			why = fmt.Sprintf("step %d: got the stamps %d and %d ns (wall), want at most 24 h from the %d and %d of step %d", r.ID, r.TsStartNs,
				r.WallNs, mid.TsStartNs, mid.WallNs, mid.ID)
		case away(r.ID, mid.ID) > unstamped+away(r.TsStartNs, mid.TsStartNs)/shortStepNs:
			why = fmt.Sprintf("step_id: got %d beside %d, want at most one in %d us between their stamps", r.ID, mid.ID, shortStepNs/1000)
		default:
			first, last = min(first, r.ID), max(last, r.ID)
			return false
		}
		c.acc.Drop(source.CodeBadRecord, 1, c.at(s), "%s: %s", otlp.StepSummary, why)
		return true
	})
	s.Rows.Snaps = slices.DeleteFunc(s.Rows.Snaps, func(r trace.Snapshot) bool {
		if r.StepID >= first-unstamped && r.StepID <= last+unstamped {
			return false
		}
		c.acc.Drop(source.CodeBadRecord, 1, c.at(s), "%s: step_id: got %d, want %d to %d", otlp.StepSnapshot, r.StepID, first-unstamped,
			last+unstamped)
		return true
	})
	if len(s.Rows.Steps) < len(rows) || s.FirstStep < first-unstamped || s.LastStep > last+unstamped {
		s.FirstStep, s.LastStep = first, last
	}
}

// strays drops events of requests whose stamps or step ids cannot be of this run, once all are
// read, and forgets what they said.
func (c *collector) strays() error {
	found := c.wall.AnyStray()
	for _, s := range c.clocks {
		found = found || s.AnyStray()
	}
	for _, e := range c.engines {
		n := e.tables.out.steps
		found = found || n.FirstID.OK && c.stepIDs.Any() && (c.stepIDs.Lo < n.FirstID.V-1 || c.stepIDs.Hi > n.LastID.V+1)
	}
	if !found {
		return nil
	}
	if err := c.strayEvents(); err != nil {
		return err
	}
	for i := range c.cores {
		row := &c.pack.row
		if err := c.pack.getCore(c.cores[i].row, row, files.NewInterner()); err != nil {
			return err
		}
		if c.strayWall(&row.request, source.Place{File: c.names[row.File].Name, Line: row.Line}) {
			at, err := c.pack.putCore(row)
			if err != nil {
				return err
			}
			c.cores[i].row = at
		}
	}
	return c.strayAPIs()
}

// strayWall forgets the wall clock of a span that is not of this run.
func (c *collector) strayWall(r *trace.Request, at source.Place) bool {
	why := c.wall.Check("start of the span", r.StartWallNs.V) + c.wall.Check("end of the span", r.EndWallNs.V)
	if why == "" {
		return false
	}
	c.acc.Keep(-1)
	c.acc.Drop(source.CodeBadRecord, 1, at, "%s", why)
	r.StartWallNs = trace.Opt[int64]{}
	r.EndWallNs = trace.Opt[int64]{}
	return true
}

// strayEvents does the journeys.
func (c *collector) strayEvents() error {
	kept, str := c.mem.Spool(), files.NewInterner()
	var of []trace.JourneyEvent // of core at, those that stay
	at, isLess := int64(-1), false
	row := &c.pack.row
	flush := func() (err error) {
		if isLess {
			r := &row.request
			row.LastNs = math.MinInt64
			row.LastStep = 0
			row.SchedNs = 0
			row.SchedStep = -1
			row.request = trace.Request{StartWallNs: r.StartWallNs, EndWallNs: r.EndWallNs, DroppedEvents: r.DroppedEvents, Model: r.Model,
				MaxTokens: r.MaxTokens}
			for i := range of {
				row.take(&of[i])
				summarise(&row.request, &of[i])
			}
			c.cores[at].row, err = c.pack.putCore(row)
		}
		of, isLess = of[:0], false
		return err
	}
	err := c.journeys.Each(func(key int64, packed []byte) error {
		if key != at {
			if err := flush(); err != nil {
				return err
			}
			if at = key; c.pack.getCore(c.cores[at].row, row, str) != nil {
				return fmt.Errorf("extract: core %d cannot be read again", at)
			}
		}
		var ev trace.JourneyEvent
		if err := c.pack.events.Decode(packed, &ev, str); err != nil {
			return err
		}
		if why := c.strayEvent(&ev, row.Resource); why != "" {
			isLess = true
			c.acc.Keep(-1)
			c.acc.Drop(source.CodeBadRecord, 1, source.Place{File: c.names[row.File].Name, Line: row.Line}, "journey.%s of %s: %s", ev.Kind,
				c.ids.get(c.cores[at].id), why)
			return nil
		}
		of = append(of, ev)
		return kept.Add(key, packed)
	})
	if err == nil {
		err = flush()
	}
	c.journeys.Close()
	c.journeys = kept
	return err
}

// strayEvent says why an event is not of this run.
func (c *collector) strayEvent(ev *trace.JourneyEvent, resource uint64) string {
	why := c.wall.Check("wall_ns", ev.WallNs)
	if ev.TsNs.OK && why == "" {
		why = c.clock(resource, ofCores).Check("ts_ns", ev.TsNs.V)
	}
	if why != "" || !ev.Step.OK {
		return why
	}
	for _, i := range c.siblings(resource) {
		e := c.engines[i]
		n := &e.tables.out.steps
		if !n.FirstID.OK {
			return ""
		}
		lo := n.FirstID.V - 1 - unstamped
		hi := n.LastID.V + 1 + unstamped
		if ev.TsNs.OK {
			lo = n.FirstID.V - 1 - max(0, e.minNs-ev.TsNs.V)/shortStepNs
			hi = n.LastID.V + 1 + max(0, ev.TsNs.V-e.maxNs)/shortStepNs
		}
		if ev.Step.V >= lo && ev.Step.V <= hi {
			return ""
		}
		why = fmt.Sprintf("step: got %d, want %d to %d, the recorded ones", ev.Step.V, lo, hi)
	}
	return why
}

// strayAPIs does API and stock spans.
func (c *collector) strayAPIs() error {
	for i := range c.apis {
		row, err := c.pack.getAPI(c.apis[i].row, files.NewInterner())
		if err != nil {
			return err
		}
		r := &row.request
		at := source.Place{File: c.names[row.File].Name, Line: row.Line}
		isLess := c.strayWall(r, at)
		for _, s := range []struct {
			name string
			ns   *trace.Opt[int64]
		}{{"ARRIVED", &r.ArrivedNs}, {"HANDOFF_TO_CORE", &r.HandoffNs}, {"FIRST_RESPONSE_FROM_CORE", &r.FirstResponseNs},
			{"DEPARTED", &r.DepartedNs}, {"ABORTED", &r.AbortedNs}} {
			if why := c.clock(row.Resource, ofAPIs).Check("ts", s.ns.V); s.ns.OK && why != "" {
				c.acc.Keep(-1)
				c.acc.Drop(source.CodeBadRecord, 1, at, "api.%s of %s: %s", s.name, r.APIID.V, why)
				*s.ns, isLess = trace.Opt[int64]{}, true
			}
		}
		if isLess {
			if c.apis[i].row, err = c.pack.putAPI(&row); err != nil {
				return err
			}
		}
	}
	return nil
}

// stretch is a step span, or several whose numbers follow one another.
type stretch struct {
	firstStep, lastStep int64
	firstSeq, lastSeq   int64 // 0: not numbered
	fromNs, toNs        int64 // when its first and its last step began; 0: unknown
	endNs               int64 // when its last step ended
}

// stretchOf is one span, its rows sorted.
func stretchOf(s *otlp.Span) stretch {
	p := stretch{firstStep: s.FirstStep, lastStep: s.LastStep, firstSeq: s.Sequence.V, lastSeq: s.Sequence.V}
	if n := len(s.Rows.Steps); n > 0 {
		p.fromNs = s.Rows.Steps[0].TsStartNs
		p.toNs = max(p.fromNs, s.Rows.Steps[n-1].TsStartNs)
		p.endNs = s.Rows.Steps[n-1].TsEndNs
	}
	return p
}

// insertStretch adds a span to those of an engine, which are in the order of
// their steps, and joins what follows one another.
func insertStretch(list []stretch, p stretch) []stretch {
	at := after(list, &p)
	list = slices.Insert(list, at, p)
	if at+1 < len(list) && list[at].meets(&list[at+1]) {
		list[at].join(&list[at+1])
		list = slices.Delete(list, at+1, at+2)
	}
	if at > 0 && list[at-1].meets(&list[at]) {
		list[at-1].join(&list[at])
		list = slices.Delete(list, at, at+1)
	}
	return list
}

// after is the place in the list behind everything that begins with or before p.
func after(list []stretch, p *stretch) int {
	at, _ := slices.BinarySearchFunc(list, p, func(a stretch, p *stretch) int { return cmp.Or(cmp.Compare(a.firstStep, p.firstStep), -1) })
	return at
}

// meets reports that b is the next of a's engine, as far as numbers say.
func (a *stretch) meets(b *stretch) bool {
	if a.lastSeq != 0 && b.firstSeq != 0 {
		return a.lastSeq+1 == b.firstSeq
	}
	return a.lastSeq == 0 && b.firstSeq == 0 && a.lastStep+1 == b.firstStep
}

func (a *stretch) join(b *stretch) {
	a.lastStep = max(a.lastStep, b.lastStep)
	a.lastSeq = b.lastSeq
	if b.toNs != 0 {
		a.toNs, a.endNs = b.toNs, b.endNs
	}
}

// before reports whether a may stand before b in one engine: numbers, steps and
// stamps ascend. The events of one step may be in two spans.
func (a *stretch) before(b *stretch) bool {
	return a.lastStep <= b.firstStep && (a.lastSeq == 0 || b.firstSeq == 0 || a.lastSeq < b.firstSeq)
}

func (a *stretch) inTime(b *stretch) bool { return a.toNs == 0 || b.fromNs == 0 || a.toNs <= b.fromNs }

// fit is how well a span belongs to an engine.
type fit struct {
	outOfTime bool  // its stamps say no, its numbers say that it is the very next
	overlaps  bool  // it begins before the last step of the span before ended, as with asynchronous scheduling
	gap       int64 // sequence numbers, or steps, that are missing before it
	gapNs     int64 // since the span before
}

// better compares two engines that a span may belong to.
func (f fit) better(g fit) bool {
	if f.outOfTime != g.outOfTime {
		return g.outOfTime
	}
	if f.overlaps != g.overlaps {
		return g.overlaps
	}
	return cmp.Or(cmp.Compare(f.gap, g.gap), cmp.Compare(f.gapNs, g.gapNs)) < 0
}

// fitOf reports whether a span may belong to the engine of the list.
func fitOf(list []stretch, p *stretch) (f fit, ok bool) {
	at := after(list, p)
	f = fit{gap: max(p.firstSeq, 1) - 1, gapNs: math.MaxInt64}
	if p.firstSeq == 0 {
		f.gap = max(p.firstStep, 1) - 1
	}
	isNext := false
	if at > 0 {
		a := &list[at-1]
		if !a.before(p) {
			return f, false
		}
		f.outOfTime = !a.inTime(p)
		f.gap, isNext = p.firstStep-a.lastStep-1, a.meets(p) && a.lastStep+1 >= p.firstStep
		if p.firstSeq != 0 && a.lastSeq != 0 {
			f.gap = p.firstSeq - a.lastSeq - 1
		}
		if p.fromNs != 0 && a.toNs != 0 {
			f.gapNs = p.fromNs - a.toNs
			f.overlaps = p.fromNs < a.endNs
		}
	}
	if at < len(list) {
		b := &list[at]
		if !p.before(b) {
			return f, false
		}
		f.outOfTime = f.outOfTime || !p.inTime(b)
		isNext = isNext || p.meets(b) && p.lastStep+1 >= b.firstStep
	}
	return f, !f.outOfTime || isNext
}
