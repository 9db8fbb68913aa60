// Package tables turns spans into the tables of engine runs: spans are gathered
// as requests (collect.go, request.go, pack.go), step spans told apart by engine and
// written as they come (engine.go, steps.go), requests linked to their
// API spans and to what clients saw (join.go, observed.go), and the other tables
// written when the input ends (write.go).
package extract

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/extract/forms"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// Add takes the result of one batch.
func (c *collector) Add(p *source.Parsed[*otlpMessage]) error {
	name := c.names[p.Batch.File].Name
	p.Account(c.acc, name)
	for _, s := range p.Records.Ignored {
		c.acc.Read += s.N
		c.acc.Drop(codeIgnoredSignal, s.N, source.Place{File: name, Line: s.Line}, "metrics or logs")
	}
	for _, line := range p.Records.Texts {
		c.acc.BadText = append(c.acc.BadText, fmt.Sprintf("%s:%d", name, line))
	}
	for _, s := range p.Records.Spans {
		s.File = p.Batch.File
		if err := c.span(s); err != nil {
			return err
		}
	}
	return c.acc.Err
}

// spanRanges are the limits of what spans say themselves (spec#value-limits).
var spanRanges = trace.RangesOf[trace.Request]()

// span takes one span.
func (c *collector) span(s *tracedSpan) error {
	c.order++
	a := c.acc
	c.count(s)
	if s.Class == classForeign {
		a.Drop(codeNotUsed, 1+s.Events(), c.at(s), "span %q of scope %q", s.Name, s.Scope)
		return nil
	}
	why := spanRanges.Check(&trace.Request{StartWallNs: trace.Some(s.StartNs), EndWallNs: trace.Some(s.EndNs), PromptTokens: s.Prompt,
		OutputTokens: s.Completion, MaxTokens: s.MaxTokens, N: s.N, StockTTFTUs: s.Micros(0), StockE2EUs: s.Micros(1),
		StockQueueUs: s.Micros(2), StockPrefillUs: s.Micros(3), StockDecodeUs: s.Micros(4), StockInferUs: s.Micros(5)})
	if why = cmp.Or(s.Bad, why); why != "" {
		a.Drop(source.CodeBadRecord, 1+s.Events(), c.at(s), "%s: %s", s.Name, why)
		return nil
	}
	c.names[s.File].Gave++
	key := spanKey{s.TraceID, s.SpanID}
	if isRepeated, isSame := c.seen.add(ownKey(s), s.Hash); isRepeated {
		code := codeConflict
		if isSame {
			code = source.CodeDuplicate
		}
		a.Duplicates++
		a.Drop(code, 1+s.Events(), c.at(s), "span %x of trace %x (%s)", s.SpanID, s.TraceID, s.Name)
		return nil
	}
	if s.SpanID == ([8]byte{}) {
		c.noIDs++
	}
	a.LostEvents += s.DroppedEvents
	for _, n := range s.Others {
		a.Drop(codeNotUsed, 1, c.at(s), "event %q in %s", n, s.Name)
	}
	for _, f := range s.Faults {
		a.Drop(f.Code, 1, c.at(s), "%s", f.Msg)
	}
	if s.Class != classStep {
		c.wall.See(s.StartNs)
		c.wall.See(s.EndNs)
	}
	switch s.Class {
	case classCore:
		return c.core(s, key)
	case classStep:
		return c.steps(s)
	}
	return c.api(s, key)
}

// ownKey is what tells a span from others: its ids or, where it has no span
// id, its content.
func ownKey(s *tracedSpan) spanKey {
	key := spanKey{s.TraceID, s.SpanID}
	if s.SpanID == ([8]byte{}) {
		binary.BigEndian.PutUint64(key.Trace[:], s.Hash)
	}
	return key
}

// NoIDs is how many spans of ours had no span id.
func (c *collector) NoIDs() int64 { return c.noIDs }

// count counts a span and its events by scope and name.
func (c *collector) count(s *tracedSpan) {
	c.acc.Read += 1 + s.Events()
	c.acc.Scope(s.Scope, "", 1)
	for e, n := range s.Counts {
		if n > 0 {
			c.acc.Scope(s.Scope, eventNames[e], int64(n))
		}
	}
	for _, name := range s.Others {
		c.acc.Scope(s.Scope, name, 1)
	}
}

// Empty reports that no span was of use.
func (c *collector) Empty() bool { return len(c.cores)+len(c.apis)+len(c.engines) == 0 }

// Finish tells engine runs apart and joins requests, spans and what clients
// saw. Engine runs that overlap in time are refused unless split says to go on.
func (c *collector) Finish(split bool, observed []trace.ObservedRequest) error {
	for _, e := range c.engines {
		if err := e.tables.close(); err != nil {
			return err
		}
	}
	c.seen = nil // every span was told from the others
	if err := c.strays(); err != nil {
		return err
	}
	if err := c.partition(split); err != nil {
		return err
	}
	if err := c.snapped(); err != nil {
		return err
	}
	if err := c.join(); err != nil {
		return err
	}
	if err := c.placeAPIs(); err != nil {
		return err
	}
	c.observed = observed
	if len(c.engines) < 2 {
		c.byID = nil // all are of one engine
	}
	return c.joinObserved(observed)
}

// snapped tells requests where stands what their snapshots say first.
func (c *collector) snapped() error {
	for n, e := range c.engines {
		t := e.tables
		err := t.sighted(func(at int64, o *sighting) {
			i, known := c.byID[o.ID]
			t.strays = t.strays || !known
			if known && o.IsSeen && c.cores[i].snap < 0 {
				c.cores[i].snap, c.cores[i].snapBy = at, int32(n)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Write writes every table of an engine run, those of requests beside the
// others; kv is nil without KV events.
func (c *collector) Write(run int, dep *deploy.Deployment, kv *forms.Collector) (*output, error) {
	w := &writer{c: c, engine: int32(run), dep: dep, out: output{Dir: c.dir(run), Tables: map[string]int64{}}}
	if len(c.engines) > 0 {
		t := c.engines[run].tables
		w.out.Dir = t.dir
		w.steps(t)
	}
	if err := os.MkdirAll(w.out.Dir, 0o777); err != nil {
		return nil, err
	}
	var events, caches int64
	var beside error
	var group sync.WaitGroup
	group.Go(func() {
		if events, beside = w.journeys(); beside == nil {
			caches, beside = w.kvEvents(kv)
		}
	})
	observed := c.observedOf(w.engine)
	w.unjoined(observed)
	requests, err := w.requests()
	if err == nil {
		err = table.Write(w.out.Dir, table.ObservedRequests, c.format, observed)
	}
	group.Wait()
	if w.tooLong > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(forms.RunContradicted, "vllm.max_model_len: run.yaml says %d tokens, %d prompts "+
			"are longer, up to %d", dep.Engine.MaxModelLen.V, w.tooLong, w.longest))
	}
	if w.backwards > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(codeClockOffset, "%d requests have stamps that run backwards, first %s",
			w.backwards, w.first))
	}
	w.rows(table.Requests, requests)
	w.rows(table.JourneyEvents, events)
	w.rows(table.KVEvents, caches)
	w.rows(table.ObservedRequests, int64(len(observed)))
	return &w.out, errors.Join(err, beside)
}

// Codes of what spans hold.
const (
	codeConflict      trace.Code = "duplicate_conflict"
	codeIgnoredSignal trace.Code = "ignored_signal"
	codeNotUsed       trace.Code = "not_used"
)
