package tables

import (
	"hash/maphash"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/extract/account"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/spool"
	"github.com/blis-train/blis-train/trace"
)

// A finished request waits for the end of the dump, for that is when engines
// are told apart and its table is sorted. So that a long dump fits into memory
// it waits packed on disk: what its spans say as a row of the requests table,
// known columns only, and its journey events in a spool. What the joins look at
// stays in memory.

// eventSeed serves hashes that never leave the process.
var eventSeed = maphash.MakeSeed()

// core collects an engine request.
func (c *Collector) core(s *otlp.Span, key spanKey) error {
	if !s.RequestID.OK {
		c.acc.Drop(account.CodeMissingID, 1+int64(len(s.Journey)), c.at(s), "llm_core without gen_ai.request.id")
		return nil
	}
	k, row, err := c.coreOf(s, key)
	if err != nil {
		return err
	}
	row.EndWallNs = trace.Some(max(row.EndWallNs.V, s.EndNs))
	row.DroppedEvents += s.DroppedEvents
	c.pack.spool.Reset()
	for i := range s.Journey {
		ev := &s.Journey[i]
		ev.CoreID = ""
		from := len(c.pack.spool.Data)
		data := c.pack.events.Append(c.pack.spool.Data, ev)
		hash := maphash.Bytes(eventSeed, data[from:])
		if slices.Contains(c.pack.hashes, hash) {
			c.acc.Drop(account.CodeRepeatedEvent, 1, c.at(s), "%s of %s", ev.Kind, k.id)
			continue
		}
		c.pack.hashes = append(c.pack.hashes, hash)
		k.take(ev)
		c.pack.spool.Add(int64(c.byID[k.id]), data)
		summarise(&row, ev)
		c.acc.Keep(1)
		if ev.TsNs.OK {
			c.offsets.add(ev.WallNs - ev.TsNs.V)
		}
	}
	c.acc.Keep(1)
	if k.row, err = c.pack.putCore(&row); err != nil {
		return err
	}
	return c.journeys.Add(&c.pack.spool)
}

// coreOf is the request of a core span and what is known of it: a new one, or
// the one of an earlier span with the same id.
func (c *Collector) coreOf(s *otlp.Span, key spanKey) (k *core, row trace.Request, err error) {
	id := s.RequestID.V
	if at, ok := c.byID[id]; ok && c.cores[at].resource == s.Resource {
		k = c.cores[at]
		return k, row, c.pack.getCore(k.row, &row, spool.NewInterner())
	}
	c.pack.hashes = c.pack.hashes[:0]
	for _, e := range c.engines { // snapshots have named it, mostly: one copy of the id serves both
		if o := e.tables.owners[id]; o != nil {
			id = o.id
		}
	}
	k = &core{id: id, key: key, parent: s.Parent, hasParent: s.HasParent, resource: s.Resource, order: c.order,
		file: s.File, line: s.Line, apiIndex: -1, lastNs: math.MinInt64, schedStep: -1}
	c.byID[id] = int32(len(c.cores))
	c.cores = append(c.cores, k)
	row = trace.Request{StartWallNs: trace.Some(s.StartNs), Model: s.Model, MaxTokens: s.MaxTokens}
	return k, row, nil
}

// take notes an event.
func (k *core) take(ev *trace.JourneyEvent) {
	if ev.TsNs.OK {
		k.lastNs = max(k.lastNs, ev.TsNs.V)
	}
	if ev.Step.OK {
		k.lastStep = ev.Step.V
	}
	if ev.Kind == trace.Scheduled && k.schedStep < 0 && ev.Step.OK && ev.TsNs.OK {
		k.schedNs, k.schedStep = ev.TsNs.V, ev.Step.V
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
	case trace.Queued:
		first(&r.QueuedNs, &r.QueuedStep)
	case trace.Scheduled:
		if e.ScheduleKind.Or("FIRST") == "FIRST" {
			first(&r.ScheduledNs, &r.ScheduledStep)
		}
	case trace.FirstToken:
		first(&r.FirstTokenNs, &r.FirstTokenStep)
	case trace.Finished:
		first(&r.FinishedNs, &r.FinishedStep)
		r.FinishStatus, r.OutputTokens = e.FinishStatus, e.DecodeDone
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
func (c *Collector) api(s *otlp.Span, key spanKey) (err error) {
	p := &api{key: key, id: s.RequestID.V, hasID: s.RequestID.OK, order: c.order, file: s.File, line: s.Line,
		isStock: s.Class == otlp.ClassStock, kept: 1}
	r := trace.Request{Route: s.Route, Model: s.Model, PromptTokens: s.Prompt, OutputTokens: s.Completion, MaxTokens: s.MaxTokens, N: s.N,
		StartWallNs: trace.Some(s.StartNs), EndWallNs: trace.Some(s.EndNs)}
	stamps := [...]*trace.Opt[int64]{otlp.APIArrived: &r.ArrivedNs, otlp.APIHandoff: &r.HandoffNs, otlp.APIFirst: &r.FirstResponseNs,
		otlp.APIDeparted: &r.DepartedNs, otlp.APIAborted: &r.AbortedNs}
	for _, e := range s.API {
		if stamps[e.Name].OK {
			c.acc.Drop(account.CodeRepeatedEvent, 1, c.at(s), "%s of %s", otlp.EventNames[e.Name], p.id)
			continue
		}
		*stamps[e.Name] = trace.Some(e.TsNs)
		if e.Name == otlp.APIAborted {
			r.AbortReason = e.Reason
		}
		p.kept++
	}
	if p.isStock {
		for i, dst := range []*trace.Opt[float64]{&r.StockTTFTUs, &r.StockE2EUs, &r.StockQueueUs, &r.StockPrefillUs, &r.StockDecodeUs,
			&r.StockInferUs} {
			if s.Stock[i].OK {
				*dst = trace.Some(s.Stock[i].V * 1e6)
			}
		}
	}
	c.pack.buf = c.pack.rows.Append(c.pack.buf[:0], &r)
	p.row, err = c.pack.apis.Put(c.pack.buf)
	c.acc.Keep(p.kept)
	c.apis = append(c.apis, p)
	return err
}
