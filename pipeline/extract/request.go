package extract

import (
	"hash/maphash"
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// A finished request waits for the end of the dump, for that is when engines
// are told apart and its table is sorted. So that a long dump fits into memory
// it waits packed: what its spans say as a row of the requests table, known
// columns only, and its journey events in a spool. What the joins look at
// stays beside it.

// core is one engine request as collected.
type core struct {
	id        string
	key       spanKey
	parent    [8]byte
	hasParent bool
	link      linkWay
	file      int32
	engine    int32
	apiIndex  int32 // -1 for none
	resource  uint64
	order     int64 // position of the span in the input
	line      int64
	lastNs    int64 // last event, monotonic
	schedNs   int64 // first SCHEDULED
	schedStep int64
	lastStep  int64    // step of the last event
	row       []byte   // packed trace.Request
	events    []uint64 // hashes of its journey events, to find repeated ones
	snap      *owner   // what snapshots say, nil for nothing
}

// api is one llm_request span of the API process, or a stock span.
type api struct {
	key     spanKey
	id      string
	order   int64
	line    int64
	kept    int64
	file    int32
	engine  int32
	hasID   bool
	linked  bool
	isStock bool
	row     []byte // packed trace.Request
}

// packing holds the codecs of what waits.
type packing struct {
	rows   *table.Codec[trace.Request]
	events *table.Codec[trace.JourneyEvent]
	buf    []byte
	spool  packed
}

func newPacking() packing {
	return packing{rows: table.NewCodec[trace.Request](), events: table.NewCodec[trace.JourneyEvent]()}
}

func (p *packing) row(r *trace.Request) []byte {
	p.buf = p.rows.Append(p.buf[:0], r)
	return slices.Clone(p.buf)
}

// unpack reads a packed row into a zero one.
func (p *packing) unpack(row []byte, r *trace.Request, str *interner) error {
	return p.rows.Decode(row, r, str.get)
}

// core collects an engine request.
func (c *collector) core(s *span, key spanKey) error {
	if !s.requestID.OK {
		c.acc.drop(CodeMissingID, 1+int64(len(s.journey)), c.at(s), "llm_core without gen_ai.request.id")
		return nil
	}
	k, row, err := c.coreOf(s, key)
	if err != nil {
		return err
	}
	row.EndWallNs = trace.Some(max(row.EndWallNs.V, s.endNs))
	row.DroppedEvents += s.droppedEvents
	c.pack.spool.reset()
	for i := range s.journey {
		ev := &s.journey[i]
		ev.CoreID = ""
		from := len(c.pack.spool.data)
		data := c.pack.events.Append(c.pack.spool.data, ev)
		if !k.take(ev, maphash.Bytes(hashSeed, data[from:])) {
			c.acc.drop(CodeRepeatedEvent, 1, c.at(s), "%s of %s", ev.Kind, k.id)
			continue
		}
		c.pack.spool.add(int64(c.byID[k.id]), data)
		summarise(&row, ev)
		c.acc.keep(1)
		if ev.TsNs.OK {
			c.offsets.add(ev.WallNs - ev.TsNs.V)
		}
	}
	c.acc.keep(1)
	k.row = c.pack.row(&row)
	return c.journeys.add(&c.pack.spool)
}

// coreOf is the request of a core span and what is known of it: a new one, or
// the one of an earlier span with the same id.
func (c *collector) coreOf(s *span, key spanKey) (k *core, row trace.Request, err error) {
	id := s.requestID.V
	if at, ok := c.byID[id]; ok && c.cores[at].resource == s.resource {
		k = c.cores[at]
		return k, row, c.pack.unpack(k.row, &row, newInterner())
	}
	k = &core{id: id, key: key, parent: s.parent, hasParent: s.hasParent, resource: s.resource, order: c.order,
		file: s.file, line: s.line, apiIndex: -1, lastNs: math.MinInt64, schedStep: -1, events: make([]uint64, 0, len(s.journey))}
	c.byID[id] = int32(len(c.cores))
	c.cores = append(c.cores, k)
	row = trace.Request{StartWallNs: trace.Some(s.startNs), Model: s.model, MaxTokens: s.maxTokens}
	return k, row, nil
}

// take notes an event; false means that the request has the same one already.
func (k *core) take(ev *trace.JourneyEvent, hash uint64) bool {
	if slices.Contains(k.events, hash) {
		return false
	}
	k.events = append(k.events, hash)
	if ev.TsNs.OK {
		k.lastNs = max(k.lastNs, ev.TsNs.V)
	}
	if ev.Step.OK {
		k.lastStep = ev.Step.V
	}
	if ev.Kind == trace.Scheduled && k.schedStep < 0 && ev.Step.OK && ev.TsNs.OK {
		k.schedNs, k.schedStep = ev.TsNs.V, ev.Step.V
	}
	return true
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
func (c *collector) api(s *span, key spanKey) {
	p := &api{key: key, id: s.requestID.V, hasID: s.requestID.OK, order: c.order, file: s.file, line: s.line, isStock: s.class == classStock, kept: 1}
	r := trace.Request{Route: s.route, Model: s.model, PromptTokens: s.prompt, OutputTokens: s.completion, MaxTokens: s.maxTokens, N: s.n,
		StartWallNs: trace.Some(s.startNs), EndWallNs: trace.Some(s.endNs)}
	stamps := [...]*trace.Opt[int64]{apiArrived: &r.ArrivedNs, apiHandoff: &r.HandoffNs, apiFirst: &r.FirstResponseNs, apiDeparted: &r.DepartedNs, apiAborted: &r.AbortedNs}
	for _, e := range s.api {
		if stamps[e.name].OK {
			c.acc.drop(CodeRepeatedEvent, 1, c.at(s), "%s of %s", eventNames[e.name], p.id)
			continue
		}
		*stamps[e.name] = trace.Some(e.tsNs)
		if e.name == apiAborted {
			r.AbortReason = e.reason
		}
		p.kept++
	}
	if p.isStock {
		for i, dst := range []*trace.Opt[float64]{&r.StockTTFTUs, &r.StockE2EUs, &r.StockQueueUs, &r.StockPrefillUs, &r.StockDecodeUs, &r.StockInferUs} {
			if s.stock[i].OK {
				*dst = trace.Some(s.stock[i].V * 1e6)
			}
		}
	}
	p.row = c.pack.row(&r)
	c.acc.keep(p.kept)
	c.apis = append(c.apis, p)
}
