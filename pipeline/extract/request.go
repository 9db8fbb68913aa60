package extract

// This file collects spans of requests: it packs a row for each core and API span, and sets the row's
// columns from journey events (the scheduler's events of a request).

import (
	"hash/maphash"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// Kinds of journey events whose stamps are columns of the requests table.
const (
	kindQueued     = "QUEUED"
	kindScheduled  = "SCHEDULED"
	kindFirstToken = "FIRST_TOKEN"
	kindFinished   = "FINISHED"
)

// eventSeed is the seed of the hashes by which repeated journey events are found. They never leave the
// process.
var eventSeed = maphash.MakeSeed()

// addCore collects a core span: it joins it to the spans with the same request id, and stores the
// row and the journey events.
func (c *collector) addCore(s *otlp.Span, key spanKey) error {
	if !s.RequestID.OK {
		c.acc.Drop(source.CodeBadRecord, 1+int64(len(s.Journey)), c.placeOf(s), "llm_core without gen_ai.request.id")
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
		ev.CoreID = "" // the spool's key identifies the core; writer.journeys sets the id again
		c.pack.buf = c.pack.events.Append(c.pack.buf[:0], ev)
		hash := maphash.Bytes(eventSeed, c.pack.buf)
		if slices.Contains(row.hashes, hash) {
			c.acc.Drop(source.CodeDuplicate, 1, c.placeOf(s), "%s of %s", ev.Kind, s.RequestID.V)
			continue
		}
		row.hashes = append(row.hashes, hash)
		row.noteEvent(ev)
		if err := c.journeys.Add(int64(at), c.pack.buf); err != nil {
			return err
		}
		setFromEvent(&row.request, ev)
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

// coreOf returns the request of a core span, as the index of its core and its row. An earlier span
// with the same id and process is continued; otherwise the request is new. The row is c.pack.row, which
// the next call overwrites, so the caller packs it.
func (c *collector) coreOf(s *otlp.Span, key spanKey) (at int32, row *coreRow, err error) {
	id := digestID(s.RequestID.V)
	row = &c.pack.row
	if at, ok := c.byID[id]; ok {
		err = c.pack.getCore(c.cores[at].row, row, files.NewInterner())
		if err != nil || row.Resource == s.Resource {
			return at, row, err
		}
	}
	*row = coreRow{
		coreHead: coreHead{
			Key:       key,
			Parent:    s.Parent,
			HasParent: s.HasParent,
			Resource:  s.Resource,
			Order:     c.order,
			File:      s.File,
			Line:      s.Line,
			LastNs:    math.MinInt64,
			SchedStep: -1,
		},
		hashes:  row.hashes[:0], // keeps the memory of the row before
		request: trace.Request{StartWallNs: trace.Some(s.StartNs), Model: s.Model, MaxTokens: s.MaxTokens},
	}
	at = int32(len(c.cores))
	c.byID[id] = at
	c.cores = append(c.cores, core{id: c.ids.put(s.RequestID.V), api: -1, snap: -1})
	return at, row, nil
}

// noteEvent updates the fields of the head that help to find the engine of the request.
func (k *coreHead) noteEvent(ev *trace.JourneyEvent) {
	if ev.TsNs.OK {
		k.LastNs = max(k.LastNs, ev.TsNs.V)
	}
	if ev.Step.OK {
		k.LastStep = ev.Step.V
	}
	if ev.Kind == kindScheduled && k.SchedStep < 0 && ev.Step.OK && ev.TsNs.OK { // the first one
		k.SchedNs = ev.TsNs.V
		k.SchedStep = ev.Step.V
	}
}

// setFromEvent sets the fields of a request that one journey event determines
// (spec#wire-journey-events).
func setFromEvent(r *trace.Request, e *trace.JourneyEvent) {
	// If there are several events of one kind, the first is used.
	first := func(ns, step *trace.Opt[int64]) {
		if !ns.OK {
			*ns = e.TsNs
			*step = e.Step
		}
	}
	switch e.Kind {
	case kindQueued:
		first(&r.QueuedNs, &r.QueuedStep)
	case kindScheduled:
		if e.ScheduleKind.Or("FIRST") == "FIRST" { // not RESUME, after a preemption
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

// addAPI collects a span of the API process, or a stock span.
func (c *collector) addAPI(s *otlp.Span, key spanKey) (err error) {
	row := apiRow{apiHead: apiHead{Key: key, Order: c.order, File: s.File, Line: s.Line, Kept: 1, Resource: s.Resource}}
	p := api{isStock: s.Class == otlp.ClassStock}
	r := &row.request
	*r = trace.Request{
		APIID:        s.RequestID,
		Route:        s.Route,
		Model:        s.Model,
		PromptTokens: s.Prompt,
		OutputTokens: s.Completion,
		MaxTokens:    s.MaxTokens,
		N:            s.N,
		StartWallNs:  trace.Some(s.StartNs),
		EndWallNs:    trace.Some(s.EndNs),
	}
	// Which column each event of the API process sets.
	stamps := [...]*trace.Opt[int64]{
		otlp.APIArrived:       &r.ArrivedNs,
		otlp.APIHandoff:       &r.HandoffNs,
		otlp.APIFirstResponse: &r.FirstResponseNs,
		otlp.APIDeparted:      &r.DepartedNs,
		otlp.APIAborted:       &r.AbortedNs,
	}
	for _, e := range s.API {
		if stamps[e.Name].OK { // a span has each event once, so this one is a copy
			c.acc.Drop(source.CodeDuplicate, 1, c.placeOf(s), "%s of %s", e.Name, s.RequestID.V)
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
