// Spans become the tables of engine runs: they are gathered
// as requests (inputs.go, request.go), step spans told apart by engine and
// written as they come (engine.go, steps.go), requests linked to their
// API spans and to what clients saw (join.go), and the other tables
// written when the input ends (this file).

package extract

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"slices"
	"sync"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/extract/enginelog"
	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
)

// output is what writing one engine run found out.
type output struct {
	Dir      string // of its tables
	Steps    result.ExtractSteps
	Requests result.ExtractRequests
	Orphans  int64
	Tables   map[string]int64 // rows by table
	Warnings []trace.Finding
}

// writer writes the tables of one engine run.
type writer struct {
	c      *collector
	engine int32
	dep    *deploy.Deployment
	strays bool // some snapshots are of requests without a core span
	out    output

	backwards int64 // requests whose stamps run backwards
	first     source.Place
	tooLong   int64 // requests with a prompt above max_model_len
	longest   int64 // such a prompt, tokens
}

// rows notes the rows of a table that has any.
func (w *writer) rows(name string, n int64) {
	if n > 0 {
		w.out.Tables[name] = n
	}
}

// steps notes what the tables of steps and snapshots hold.
func (w *writer) steps(t *stepTables) {
	w.out.Steps = t.out.steps
	w.out.Orphans = t.out.orphans
	if t.out.conflicts > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(codeConflict,
			"%d step ids recorded twice with different stamps; the first record is kept", t.out.conflicts))
	}
	if size := t.out.blocks.contradicts(); size > 0 {
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(source.CodeRunContradicted, "vllm.block_size: run.yaml says %d tokens, the blocks of "+
			"requests in %d of %d snapshots %d", t.stated.BlockSize, t.out.blocks.seen-t.out.blocks.stated, t.out.blocks.seen, size))
	}
	w.out.Warnings = append(w.out.Warnings, t.out.beyond.Findings("steps")...)
	w.strays = w.strays || t.strays
	w.rows(table.Steps, t.steps.Rows())
	w.rows(table.Snapshots, t.snaps.Rows())
}

// requests writes the requests by arrival.
func (w *writer) requests() (int64, error) {
	keys, whole, err := w.c.requestKeys(w.engine)
	if err != nil {
		return 0, err
	}
	t, err := table.Create[trace.Request](w.out.Dir, table.Requests, w.c.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	overheads, err := w.overheads(keys, whole && w.sampledAll())
	if err != nil {
		return 0, err
	}
	str := files.NewInterner()
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

// overheads bounds the overheads of the requests (spec#overhead); complete says
// that every journey of the run is recorded, which exact ones need.
func (w *writer) overheads(keys []requestKey, complete bool) (out []trace.OverheadBound, err error) {
	known := func(ns int64) trace.Opt[int64] { return trace.Opt[int64]{V: ns, OK: ns != unknownNs} }
	stamps := func(i int) trace.OverheadStamps {
		k := &keys[i]
		return trace.OverheadStamps{ArrivedNs: known(k.arrived), QueuedNs: known(k.queued), FinishedNs: known(k.finished)}
	}
	type row struct { // of the steps' table
		StartNs int64 `col:"ts_start_ns"`
		Running int64 `col:"running_depth"`
		Waiting int64 `col:"waiting_depth"`
	}
	marks := func(yield func(trace.StepMark) bool) {
		for s, failed := range fileRows[row](w.out.Dir, table.Steps, w.c.format) {
			if err = failed; err != nil {
				return
			}
			step := trace.Step{TsStartNs: s.StartNs, RunningDepth: s.Running, WaitingDepth: s.Waiting}
			if !yield(step.Mark()) {
				return
			}
		}
	}
	out = trace.BoundOverheads(len(keys), stamps, marks, complete)
	return out, err
}

// sampledAll reports that every journey was sampled and the owner of every
// snapshot is known.
func (w *writer) sampledAll() bool {
	return w.dep.Tracing.JourneySampleRate.Or(1) == 1 && !w.strays
}

// journeys writes the journey events by core id, then emission order.
func (w *writer) journeys() (int64, error) {
	t, err := table.Create[trace.JourneyEvent](w.out.Dir, table.JourneyEvents, w.c.format)
	if err != nil {
		return 0, err
	}
	defer t.Abort()
	mem := &source.Memory{Dir: w.c.stage, Limit: w.c.mem.Limit}
	defer mem.Close()
	byRank := mem.Spool()
	order, err := w.c.journeysByID(w.engine, byRank)
	if err != nil {
		return 0, err
	}
	if int(w.engine) == w.c.Runs()-1 { // nobody reads them again
		w.c.journeys.Close()
	}
	str := files.NewInterner()
	id, last := "", int64(-1)
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
		return t.Append(ev)
	})
	if err != nil {
		return 0, err
	}
	return t.Rows(), t.Close()
}

// journeysByID sorts the cores of an engine by id and puts their journey
// events into out by that order.
func (c *collector) journeysByID(engine int32, out *source.Spool) (order []int32, err error) {
	for i := range c.cores {
		if c.cores[i].engine == engine {
			order = append(order, int32(i))
		}
	}
	slices.SortStableFunc(order, func(a, b int32) int { return bytes.Compare(c.ids.get(c.cores[a].id), c.ids.get(c.cores[b].id)) })
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

// engineOfKV places a KV event: with its request, else by the wall clock.
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
	n := &w.out.Requests
	if most := w.dep.Engine.MaxModelLen; most.OK && r.PromptTokens.V > most.V {
		if w.tooLong++; r.PromptTokens.V > w.longest {
			w.longest = r.PromptTokens.V
		}
	}
	if r.RunsBackwards() {
		if w.backwards++; w.backwards == 1 {
			w.first = source.Place{File: r.File, Line: r.CoreLine.Or(r.APILine.V)}
		}
	}
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

// coreRow is what the spans of a core say, packed on disk.
type coreRow struct {
	coreHead
	hashes  []uint64 // of its journey events, to find repeated ones
	request trace.Request
}

// coreHead is what joins and the placing of requests look at.
type coreHead struct {
	Key       spanKey
	Parent    [8]byte
	HasParent bool
	File      int32
	Line      int64
	Order     int64 // position of its first span in the input
	Resource  uint64
	LastNs    int64 // last event, monotonic
	LastStep  int64 // step of the last event
	SchedNs   int64 // first SCHEDULED
	SchedStep int64
}

// apiRow is what an API span says, packed on disk.
type apiRow struct {
	apiHead
	request trace.Request
}

type apiHead struct {
	Key   spanKey
	File  int32
	Line  int64
	Order int64
	Kept  int64 // records

	Resource uint64
}

// packing holds the codecs of what waits, and where it waits.
type packing struct {
	coreRows *files.Codec[coreRow]
	apiRows  *files.Codec[apiRow]
	events   *files.Codec[trace.JourneyEvent]
	cores    *source.RowFile
	apis     *source.RowFile
	row      coreRow // of the span at hand
	buf      []byte
}

// Codecs of what is read of a row without the rest, and of sightings.
var (
	coreHeads = files.NewCodec[coreHead]()
	apiHeads  = files.NewCodec[apiHead]()
	sightCode = files.NewCodec[sighting]()
)

func newPacking(mem *source.Memory) packing {
	return packing{coreRows: files.NewCodec[coreRow](), apiRows: files.NewCodec[apiRow](), events: files.NewCodec[trace.JourneyEvent](),
		cores: mem.RowFile(), apis: mem.RowFile()}
}

func (p *packing) putCore(r *coreRow) (at int64, err error) {
	p.buf = p.coreRows.Append(p.buf[:0], r)
	return p.cores.Put(p.buf)
}

// getCore reads what the spans of a core say.
func (p *packing) getCore(at int64, r *coreRow, str *files.Interner) error {
	row, err := p.cores.Get(at)
	if err != nil {
		return err
	}
	r.request = trace.Request{}
	return p.coreRows.Decode(row, r, str)
}

func (p *packing) putAPI(r *apiRow) (at int64, err error) {
	p.buf = p.apiRows.Append(p.buf[:0], r)
	return p.apis.Put(p.buf)
}

func (p *packing) getAPI(at int64, str *files.Interner) (r apiRow, err error) {
	row, err := p.apis.Get(at)
	if err == nil {
		err = p.apiRows.Decode(row, &r, str)
	}
	return r, err
}

func (p *packing) coreHead(at int64) (coreHead, error) { return headOf(p.cores, coreHeads, at) }

func (p *packing) apiHead(at int64) (apiHead, error) { return headOf(p.apis, apiHeads, at) }

// headOf reads what a row begins with.
func headOf[T any](rows *source.RowFile, codec *files.Codec[T], at int64) (head T, err error) {
	row, err := rows.Get(at)
	if err == nil {
		_, err = codec.Head(row, &head, nil)
	}
	return head, err
}

// digest stands for an id in maps: its hash of 96 bits, keyed anew in every process. Of a
// billion ids two share one at odds of 1e-11.
type digest [12]byte

var digestSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func digestID[T string | spanKey](id T) (d digest) {
	binary.LittleEndian.PutUint64(d[:], maphash.Comparable(digestSeeds[0], id))
	binary.LittleEndian.PutUint32(d[8:], uint32(maphash.Comparable(digestSeeds[1], id)))
	return d
}

// spanSet are the spans seen so far: of each 64 bits of a hash of its key and 32 of its content's.
// Of a billion spans two share the first at odds of 3 %; the later is then a counted conflict.
type spanSet map[[8]byte][4]byte

// add notes a span and reports whether one of its key was there before, with the same content.
func (s spanSet) add(key spanKey, content uint64) (isRepeated, isSame bool) {
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

// texts keeps texts one after another: a place takes less than a string and is nothing that
// the garbage collector follows.
type texts struct{ blocks [][]byte }

type text struct{ block, at uint32 }

const textBlock = 1 << 18 // bytes

func (t *texts) put(s string) text {
	if n := len(t.blocks); n == 0 || cap(t.blocks[n-1])-len(t.blocks[n-1]) < len(s)+binary.MaxVarintLen64 {
		t.blocks = append(t.blocks, make([]byte, 0, max(textBlock, len(s)+binary.MaxVarintLen64)))
	}
	b := &t.blocks[len(t.blocks)-1]
	at := text{uint32(len(t.blocks) - 1), uint32(len(*b))}
	*b = append(binary.AppendUvarint(*b, uint64(len(s))), s...)
	return at
}

func (t *texts) get(at text) []byte {
	b := t.blocks[at.block][at.at:]
	n, k := binary.Uvarint(b)
	return b[k : k+int(n)]
}

// Add takes the result of one batch.
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
func (c *collector) span(s *otlp.Span) error {
	c.order++
	a := c.acc
	c.count(s)
	if s.Class == otlp.ClassForeign {
		a.Drop(codeNotUsed, 1+s.Events(), c.at(s), "span %q of scope %q", s.Name, s.Scope)
		return nil
	}
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
	if s.Class != otlp.ClassStep {
		c.wall.See(s.StartNs)
		c.wall.See(s.EndNs)
	}
	switch s.Class {
	case otlp.ClassCore:
		return c.core(s, key)
	case otlp.ClassStep:
		return c.steps(s)
	}
	return c.api(s, key)
}

// setStockTimes copies what the span of an unmodified vLLM states into a request.
func setStockTimes(r *trace.Request, t *otlp.StockTimes) {
	r.StockTTFTUs = t.TTFTUs
	r.StockE2EUs = t.E2EUs
	r.StockQueueUs = t.QueueUs
	r.StockPrefillUs = t.PrefillUs
	r.StockDecodeUs = t.DecodeUs
	r.StockInferUs = t.InferUs
}

// ownKey is what tells a span from others: its ids or, where it has no span
// id, its content.
func ownKey(s *otlp.Span) spanKey {
	key := spanKey{s.TraceID, s.SpanID}
	if s.SpanID == ([8]byte{}) {
		binary.BigEndian.PutUint64(key.Trace[:], s.Hash)
	}
	return key
}

// NoIDs is how many spans of ours had no span id.
func (c *collector) NoIDs() int64 { return c.noIDs }

// count counts a span and its events by scope and name.
func (c *collector) count(s *otlp.Span) {
	c.acc.Read += 1 + s.Events()
	c.acc.Scope(s.Scope, "", 1)
	for e, n := range s.Counts {
		if n > 0 {
			c.acc.Scope(s.Scope, otlp.EventName(e).String(), int64(n))
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

// Write writes every table of an engine run, those of requests beside the
// others; kv is nil without KV events.
func (c *collector) Write(run int, dep *deploy.Deployment, kv *enginelog.KVCollector) (*output, error) {
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
		w.out.Warnings = append(w.out.Warnings, trace.Findingf(source.CodeRunContradicted, "vllm.max_model_len: run.yaml says %d tokens, %d prompts "+
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
