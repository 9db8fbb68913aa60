package extract

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/blis-train/blis-train/vllm"
)

// This file gathers the spans of a run folder as they are read, until they can be joined and written.

// collector gathers the spans of one run folder in input order and makes tables of them at the end
// of the input. A core span is the scheduler's view of a request, an API span that of the API
// process, and a stock span the only span that an unmodified vLLM writes of a request. Of each
// request only what is needed for joining them stays in memory. The rest is packed on disk
// (packing.go) until the end, because only then can requests be divided among engines and tables be
// sorted.
type collector struct {
	names    []source.Input // trace files; a span has the index of its own
	acc      *source.Account
	mem      *source.Memory // bounds the rows that wait in memory, and has their files on disk
	stage    string         // folder of the tables while they are written
	format   table.Format
	stock    *tokenTimes      // of the spans of an unmodified vLLM, once they are written; nil: no log counts tokens
	seen     spanSet          // to drop spans that come twice; nil after the last span
	cores    []core           // engine requests, in the order of their first core span
	byID     map[digest]int32 // index in cores by request id; the last of equal ones
	ids      texts            // request ids of cores
	apis     []api            // API and stock spans, in input order
	engines  []*engine        // engine runs that step spans show; none without step spans
	order    int64            // number of spans so far, which is the position in the input
	noIDs    int64            // spans without a span id
	pack     packing
	journeys *source.Spool // the scheduler's events of requests, with the index of their core as key
	offsets  source.Sample // wall clock - monotonic clock of journey events, ns
	clocks   map[clockKey]*source.Stamps
	wall     source.Stamps           // wall-clock stamps of spans and their events
	stepIDs  source.Stamps           // step ids of journey events; only their smallest and largest are used
	observed []trace.ObservedRequest // requests of clients, from Finish on

	stated vllm.Engine // settings in run.yaml, with which the spans are compared
}

// dir returns the folder in which the tables of the n-th engine are written.
func (c *collector) dir(n int) string { return filepath.Join(c.stage, strconv.Itoa(n)) }

// Runs returns the number of engine runs. Requests without any step span are one engine run.
func (c *collector) Runs() int { return max(1, len(c.engines)) }

// Clock returns the offset of the wall clock from the monotonic clock of the requests' events, ns.
func (c *collector) Clock() (median, spread int64, ok bool) { return c.offsets.Spread() }

// Close abandons tables that are still being written and frees the memory.
func (c *collector) Close() {
	for _, e := range c.engines {
		e.tables.abort()
	}
	c.mem.Close()
}

// placeOf returns the file and line of a span.
func (c *collector) placeOf(s *otlp.Span) source.Place {
	return source.Place{File: c.names[s.File].Name, Line: s.Line}
}

// spanKey identifies a span by its trace id and span id.
type spanKey struct {
	Trace [16]byte
	Span  [8]byte
}

// core is the part of an engine request that stays in memory. Its coreRow on disk has the rest.
type core struct {
	id     text
	row    int64 // place of its coreRow in the row file
	snap   int64 // place of the sighting (sightings.go) of its snapshots; -1 for none
	snapBy int32 // the engine that wrote these snapshots, an index in collector.engines
	engine int32 // its engine run, an index in collector.engines
	api    int32 // index of its API span in collector.apis; -1 for none
	link   linkWay
}

// api is the part of an API span or stock span that stays in memory. Its apiRow on disk has the
// rest.
type api struct {
	row      int64 // place of its apiRow in the row file
	engine   int32 // its engine run, an index in collector.engines
	isLinked bool  // a core span belongs to it
	isStock  bool
}

// linkWay is how the API span of a core span was found.
type linkWay uint8

const (
	linkNone   linkWay = iota
	linkParent         // it is the parent of the core span
	linkPrefix         // its request id is the beginning of the core span's
)

// String returns the word of the tables.
func (w linkWay) String() string { return [...]string{"none", "parent", "prefix"}[w] }

// Add collects the spans of one batch.
func (c *collector) Add(p *source.Parsed[*otlp.Batch]) error {
	name := c.names[p.Batch.File].Name
	p.Account(c.acc, name)
	for _, s := range p.Records.Ignored {
		c.acc.Read += s.N
		c.acc.Drop(codeIgnoredSignal, s.N, source.Place{File: name, Line: s.Line}, "metrics or logs")
	}
	for _, line := range p.Records.Texts {
		c.acc.BadText = append(c.acc.BadText, fmt.Sprintf("%s:%d", name, line))
	}
	for i := range p.Records.Unused {
		c.countUnused(&p.Records.Unused[i], name)
	}
	for _, s := range p.Records.Spans {
		s.File = p.Batch.File
		if err := c.span(s); err != nil {
			return err
		}
	}
	return c.acc.Err
}

// spanRanges are the limits of the attributes of spans (spec#value-limits).
var spanRanges = trace.RangesOf[trace.Request]()

// span counts one span and collects it by its class. It drops a span that is broken, repeated, or
// of no use to any table.
func (c *collector) span(s *otlp.Span) error {
	c.order++
	a := c.acc
	c.countSpan(s)
	values := trace.Request{
		StartWallNs:  trace.Some(s.StartNs),
		EndWallNs:    trace.Some(s.EndNs),
		PromptTokens: s.Prompt,
		OutputTokens: s.Completion,
		MaxTokens:    s.MaxTokens,
		N:            s.N,
	}
	setStockTimes(&values, &s.Stock)
	if why := cmp.Or(s.Bad, spanRanges.Check(&values)); why != "" {
		a.Drop(source.CodeBadRecord, 1+s.Events(), c.placeOf(s), "%s: %s", s.Name, why)
		return nil
	}
	c.names[s.File].Gave++
	key := spanKey{s.TraceID, s.SpanID}
	// An exporter that retries a batch writes its spans twice.
	if isRepeated, isSame := c.seen.addSpan(ownKey(s), s.Hash); isRepeated {
		code := codeConflict
		if isSame {
			code = source.CodeDuplicate
		}
		a.Duplicates++
		a.Drop(code, 1+s.Events(), c.placeOf(s), "span %x of trace %x (%s)", s.SpanID, s.TraceID, s.Name)
		return nil
	}
	if s.SpanID == ([8]byte{}) {
		c.noIDs++
	}
	a.LostEvents += s.DroppedEvents
	for _, e := range s.Others {
		a.Drop(codeNotUsed, e.N, c.placeOf(s), "event %q in %s", e.Name, s.Name)
	}
	for _, f := range s.Faults {
		a.Drop(f.Code, f.N, c.placeOf(s), "%s", f.Msg)
	}
	if s.Class != otlp.ClassStep { // stamps of steps are compared within their span (dropStrayRows)
		c.wall.See(s.StartNs)
		c.wall.See(s.EndNs)
	}
	switch s.Class {
	case otlp.ClassCore:
		return c.addCore(s, key)
	case otlp.ClassStep:
		return c.addSteps(s)
	}
	return c.addAPI(s, key)
}

// setStockTimes copies the durations of a stock span into a request.
func setStockTimes(r *trace.Request, t *otlp.StockTimes) {
	r.StockTTFTUs = t.TTFTUs
	r.StockE2EUs = t.E2EUs
	r.StockQueueUs = t.QueueUs
	r.StockPrefillUs = t.PrefillUs
	r.StockDecodeUs = t.DecodeUs
	r.StockInferUs = t.InferUs
}

// ownKey returns the identity of a span among all spans: its ids, or a hash of its content if it
// has no span id.
func ownKey(s *otlp.Span) spanKey {
	key := spanKey{s.TraceID, s.SpanID}
	if s.SpanID == ([8]byte{}) {
		binary.BigEndian.PutUint64(key.Trace[:], s.Hash)
	}
	return key
}

// NoIDs returns the number of used spans without a span id.
func (c *collector) NoIDs() int64 { return c.noIDs }

// countSpan counts a span and its events by scope and name.
func (c *collector) countSpan(s *otlp.Span) {
	c.acc.Read += 1 + s.Events()
	c.acc.Scope(s.Scope, "", 1)
	for e, n := range s.Counts {
		if n > 0 {
			c.acc.Scope(s.Scope, otlp.EventName(e).String(), int64(n))
		}
	}
	for _, e := range s.Others {
		c.acc.Scope(s.Scope, e.Name, e.N)
	}
}

// countUnused counts spans that no table needs, and their events, by scope and name.
func (c *collector) countUnused(u *otlp.Unused, file string) {
	a := c.acc
	a.Read += u.Records()
	a.Scope(u.Scope, "", u.Spans)
	for _, e := range u.Events {
		a.Scope(u.Scope, e.Name, e.N)
	}
	a.Drop(codeNotUsed, u.Records(), source.Place{File: file, Line: u.Line}, "span %q of scope %q", u.Name, u.Scope)
}

// Empty reports whether no span was used.
func (c *collector) Empty() bool { return len(c.cores)+len(c.apis)+len(c.engines) == 0 }

// Finish divides requests among engine runs and joins them with API spans and client requests. Engine
// runs that overlap in time are refused unless split accepts them.
func (c *collector) Finish(split bool, observed []trace.ObservedRequest) error {
	for _, e := range c.engines {
		if err := e.tables.close(); err != nil {
			return err
		}
	}
	c.seen = nil // no more spans will come
	// In this order: a stray stamp would send its request to a wrong engine run, and an API span goes to
	// the engine run of the core span to which joinSpans links it.
	if err := c.dropStrays(); err != nil {
		return err
	}
	if err := c.partition(split); err != nil {
		return err
	}
	if err := c.findSnapshots(); err != nil {
		return err
	}
	if err := c.joinSpans(); err != nil {
		return err
	}
	if err := c.assignAPIs(); err != nil {
		return err
	}
	c.observed = observed
	if len(c.engines) < 2 {
		c.byID = nil // frees its memory; from here on it only serves to find the engine of a request
	}
	return c.joinObserved(observed)
}

// findSnapshots stores for each request the place of its sighting: what its first snapshot shows
// (sightings.go). For each engine it stores whether it has snapshots of requests without a core span.
func (c *collector) findSnapshots() error {
	for n, e := range c.engines {
		t := e.tables
		err := t.eachSeen(func(at int64, o *sighting) {
			i, known := c.byID[o.ID]
			t.strays = t.strays || !known
			if known && o.IsSeen && c.cores[i].snap < 0 {
				c.cores[i].snap = at
				c.cores[i].snapBy = int32(n)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// spanSet is the spans seen so far: it maps 64 bits of a hash of a span's key to 32 bits of a hash
// of its content. Among a billion spans, two have equal key hashes with a probability of 3 %. The
// later one is then dropped as a conflict. The hashes are byte arrays, because an entry then takes 12
// bytes; with integers it would be aligned to 16.
type spanSet map[[8]byte][4]byte

// addSpan adds a span. It reports whether there was a span with its key before, and whether that had the
// same content.
func (s spanSet) addSpan(key spanKey, content uint64) (isRepeated, isSame bool) {
	var k [8]byte
	var c [4]byte
	binary.LittleEndian.PutUint64(k[:], maphash.Comparable(digestSeeds[0], key))
	binary.LittleEndian.PutUint32(c[:], uint32(content))
	first, ok := s[k]
	if !ok {
		s[k] = c
	}
	return ok, first == c
}

// Reasons for dropping spans.
const (
	codeConflict      trace.Code = "duplicate_conflict"
	codeIgnoredSignal trace.Code = "ignored_signal"
	codeNotUsed       trace.Code = "not_used"
)
