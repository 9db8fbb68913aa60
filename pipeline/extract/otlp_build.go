package extract

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// builder makes spans from the callbacks of a parser. One per worker.
type builder struct {
	ev       attrs // attributes of the event being read
	sp       attrs // attributes of the span being read
	interned map[string]string
	cur      *tracedSpan
	rows     *stepRows // of the span being read, or of the next one
	stepFrom int       // where the snapshots of the latest step begin in rows
	guess    int       // the snapshot of the step before that likely has the same request
	journey  []trace.JourneyEvent
}

func newBuilder() *builder {
	return &builder{interned: map[string]string{}, rows: rowPool.Get().(*stepRows)}
}

// maxInterned bounds the strings a worker remembers.
const maxInterned = 1 << 13

func (b *builder) intern(v []byte) string {
	if s, ok := b.interned[string(v)]; ok {
		return s
	}
	if len(b.interned) >= maxInterned {
		clear(b.interned)
	}
	s := string(v)
	b.interned[s] = s
	return s
}

// time stores a time in 63 bits; the tables hold no more.
func (b *builder) time(ns uint64) int64 {
	if ns > math.MaxInt64 {
		b.cur.Bad = "a time of more than 63 bits"
		return math.MaxInt64
	}
	return int64(ns)
}

func (b *builder) begin() {
	b.cur = &tracedSpan{FirstStep: math.MaxInt64, LastStep: math.MinInt64}
	b.rows.Steps = b.rows.Steps[:0]
	b.rows.Snaps = b.rows.Snaps[:0]
	b.stepFrom, b.guess = 0, 0
	b.journey = b.journey[:0]
	b.sp.reset(spanRequestID)
}

func (b *builder) drop(e eventName, msg string) {
	b.cur.Faults = append(b.cur.Faults, fault{e, source.CodeBadRecord, eventNames[e] + msg})
}

// event adds the event whose attributes stand in b.ev.
func (b *builder) event(name []byte, wallNs int64) {
	e, ok := eventByName[string(name)]
	if !ok {
		b.cur.Others = append(b.cur.Others, b.intern(name))
		return
	}
	b.addEvent(e, wallNs)
}

func (b *builder) addEvent(e eventName, wallNs int64) {
	b.cur.Counts[e]++
	switch {
	case e <= apiAborted:
		b.apiEvent(e)
	case e <= journeyFinished:
		b.journeyEvent(e, wallNs)
	case e == stepSummary:
		b.summary(wallNs)
	default:
		b.snapshot()
	}
}

// need drops the event unless every slot of want is there.
func (b *builder) need(e eventName, want uint64) bool {
	if b.ev.set&want == want && b.ev.wrong == 0 && b.ev.bad == "" {
		return true
	}
	if why := b.ev.badType(); why != "" {
		b.drop(e, ": "+why)
		return false
	}
	for s := range numSlots {
		if want&(1<<s) != 0 && !b.ev.has(s) {
			b.drop(e, ": attribute "+attrKeys[s].key+" is missing")
			return false
		}
	}
	return false
}

// badType says what is wrong: a key that stands twice, an attribute of another type, or without a value.
func (a *attrs) badType() string {
	if a.bad != "" {
		return a.bad
	}
	for s := range numSlots {
		switch {
		case a.wrong&a.set&(1<<s) != 0:
			return "got the attribute " + attrKeys[s].key + " twice"
		case a.wrong&(1<<s) != 0:
			return "attribute " + attrKeys[s].key + " has another type"
		}
	}
	return ""
}

func slots(from, to slot) uint64 { return (1<<(to+1) - 1) &^ (1<<from - 1) }

var (
	summaryNeeds  = slots(stepID, kvFree)
	snapshotNeeds = slots(snapRequest, snapComputed) | 1<<snapScheduled | 1<<stepID
)

func (b *builder) apiEvent(e eventName) {
	if !b.need(e, 1<<apiTs) {
		return
	}
	ev := apiEvent{Name: e, TsNs: secondsToNs(b.ev.float(apiTs)), Reason: b.word(&b.ev, apiReason)}
	if b.legal(e, stampRange.Check(attrKeys[apiTs].key, float64(ev.TsNs))) {
		b.cur.API = append(b.cur.API, ev)
	}
}

func secondsToNs(s float64) int64 { return trace.Int(s * 1e9) }

// Limits of what events say (spec#value-limits).
var (
	stepRanges    = trace.RangesOf[trace.Step]()
	snapRanges    = trace.RangesOf[trace.Snapshot]()
	journeyRanges = trace.RangesOf[trace.JourneyEvent]()
	stampRange, _ = trace.RangeOf("", "ns")

	durationRange, _ = trace.RangeOf("", "us")
)

// legal drops the event where a value of it cannot be.
func (b *builder) legal(e eventName, why string) bool {
	if why != "" {
		b.drop(e, ": "+why)
	}
	return why == ""
}

func (b *builder) journeyEvent(e eventName, wallNs int64) {
	if !b.need(e, 0) {
		return
	}
	a := &b.ev
	ev := trace.JourneyEvent{
		Kind: strings.TrimPrefix(eventNames[e], "journey."), WallNs: wallNs,
		Step: a.int(journeyStep), PrefillDone: a.int(journeyPrefillDone), PrefillTotal: a.int(journeyPrefillTotal),
		DecodeDone: a.int(journeyDecodeDone), DecodeMax: a.int(journeyDecodeMax), Preemptions: a.int(journeyPreemptions),
		Phase: b.word(a, journeyPhase), ScheduleKind: b.word(a, journeyKind), FinishStatus: b.word(a, journeyStatus),
	}
	switch {
	case a.has(journeyTsNs) && a.num[journeyTsNs] != 0:
		ev.TsNs = trace.Some(a.num[journeyTsNs])
	case a.has(journeyTs):
		ev.TsNs = trace.Some(secondsToNs(a.float(journeyTs)))
	}
	if b.legal(e, cmp.Or(journeyRanges.Check(&ev), a.contradiction(e))) {
		b.journey = append(b.journey, ev)
	}
}

// countPairs are counts of an event of which the first is no more than the second (spec#value-limits).
var countPairs = [...][2]slot{{journeyPrefillDone, journeyPrefillTotal}, {journeyDecodeDone, journeyDecodeMax}, {batchPrefillReqs,
	batchPrefill},
	{batchDecodeReqs, batchDecode}, {batchPrefillReqs, queueRunning}, {batchDecodeReqs, queueRunning}, {kvFree, kvTotal}}

// contradiction says what of an event contradicts the rest of it: its kind, its counts, or that it has no stamp.
func (a *attrs) contradiction(e eventName) string {
	n := &a.num
	name := strings.TrimPrefix(eventNames[e], "journey.")
	switch {
	case e == stepSummary && (n[batchPrefill]+n[batchDecode] != n[batchScheduled] || (n[batchPrefill] > 0) != (n[batchPrefillReqs] > 0) ||
		(n[batchDecode] > 0) != (n[batchDecodeReqs] > 0)):
		return fmt.Sprintf("batch: got %d prompt tokens of %d requests, %d decode tokens of %d, %d tokens in all, want counts that agree",
			n[batchPrefill], n[batchPrefillReqs], n[batchDecode], n[batchDecodeReqs], n[batchScheduled])
	case a.has(journeyType) && string(a.text[journeyType]) != name:
		return fmt.Sprintf("event.type: got %s, want %s", a.text[journeyType], name)
	case e != stepSummary && !a.has(journeyTs) && !a.has(journeyTsNs):
		return "attribute " + attrKeys[journeyTs].key + " is missing"
	}
	for _, p := range countPairs {
		if a.has(p[0]) && a.has(p[1]) && n[p[0]] > n[p[1]] {
			return fmt.Sprintf("%s: got %d, want at most %s, %d", attrKeys[p[0]].key, n[p[0]], attrKeys[p[1]].key, n[p[1]])
		}
	}
	return ""
}

func (a *attrs) int(s slot) trace.Opt[int64] {
	if a.has(s) {
		return trace.Some(a.num[s])
	}
	return trace.Opt[int64]{}
}

func (b *builder) word(a *attrs, s slot) trace.Opt[string] {
	if a.has(s) {
		return trace.Some(b.intern(a.text[s]))
	}
	return trace.Opt[string]{}
}

func (b *builder) summary(wallNs int64) {
	if !b.need(stepSummary, summaryNeeds) {
		return
	}
	n := &b.ev.num
	step := trace.Step{
		ID: n[stepID], TsStartNs: n[stepTsStart], TsEndNs: n[stepTsEnd], DurationUs: n[stepDuration],
		RunningDepth: n[queueRunning], WaitingDepth: n[queueWaiting],
		NumPrefillReqs: n[batchPrefillReqs], NumDecodeReqs: n[batchDecodeReqs],
		ScheduledTokens: n[batchScheduled], PrefillTokens: n[batchPrefill], DecodeTokens: n[batchDecode],
		NumFinished: n[batchFinished], NumPreempted: n[batchPreempted],
		KVUsage: b.ev.float(kvUsage), BlocksTotal: n[kvTotal], BlocksFree: n[kvFree], WallNs: wallNs,
	}
	why := stepRanges.Check(&step)
	if why == "" { // an end before its start, or a day later
		why = cmp.Or(durationRange.Check("step.ts_end_ns - step.ts_start_ns, us", float64(step.TsEndNs-step.TsStartNs)/1000),
			b.ev.contradiction(stepSummary))
	}
	if b.legal(stepSummary, why) {
		b.rows.Steps = append(b.rows.Steps, step)
		b.cur.covers(n[stepID])
	}
}

// covers notes a step id of the span.
func (s *tracedSpan) covers(id int64) {
	s.FirstStep = min(s.FirstStep, id)
	s.LastStep = max(s.LastStep, id)
}

func (b *builder) snapshot() {
	if !b.need(stepSnapshot, snapshotNeeds) {
		return
	}
	a := &b.ev
	n := &a.num
	snap := trace.Snapshot{
		StepID: n[stepID], CoreID: b.coreID(n[stepID]), Phase: b.phase(a.text[snapPhase]),
		PromptTokens: n[snapPrompt], ComputedTokens: n[snapComputed], OutputTokens: a.int(snapOutput).V,
		Preemptions: a.int(snapPreemptions).V, ScheduledTokens: n[snapScheduled],
		BlocksAllocated: a.int(snapAllocated).V, BlocksCached: a.int(snapCached).V, EffectivePromptLen: a.int(snapEffective),
	}
	if b.legal(stepSnapshot, snapRanges.Check(&snap)) {
		b.rows.Snaps = append(b.rows.Snaps, snap)
		b.cur.covers(n[stepID])
	}
}

// coreID is the request of the snapshot being read. Steps list their requests
// in the order of the step before, but for those that came and went, so the
// next one there is compared first.
func (b *builder) coreID(step int64) string {
	rows, id := b.rows.Snaps, b.ev.text[snapRequest]
	if n := len(rows); n > 0 && rows[n-1].StepID != step {
		b.guess, b.stepFrom = b.stepFrom, n
	}
	for at := b.guess; at < b.stepFrom && at < b.guess+2; at++ {
		if rows[at].CoreID == string(id) {
			b.guess = at + 1
			return rows[at].CoreID
		}
	}
	return b.intern(id)
}

// phase shares the two texts that nearly all snapshots have.
func (b *builder) phase(v []byte) string {
	switch string(v) {
	case phaseDecode:
		return phaseDecode
	case phasePrefill:
		return phasePrefill
	}
	return b.intern(v)
}

const phasePrefill, phaseDecode = "PREFILL", "DECODE"

// end fills the span from its own attributes and its scope, and keeps what
// belongs to its class.
func (b *builder) end(scope, name string) *tracedSpan {
	s, a := b.cur, &b.sp
	b.cur = nil
	if why := a.badType(); why != "" {
		s.Bad = why
	}
	s.Scope, s.Name = scope, name
	s.HasParent = s.Parent != [8]byte{} // all zeros are none
	s.RequestID, s.Route, s.Model = b.word(a, spanRequestID), b.word(a, spanRoute), b.word(a, spanModel)
	s.Prompt, s.Completion = a.int(spanPrompt), a.int(spanCompletion)
	s.MaxTokens, s.N = a.int(spanMaxTokens), a.int(spanN)
	for k := range s.Stock {
		if a.has(stockTTFT + slot(k)) {
			s.Stock[k] = trace.Some(a.float(stockTTFT + slot(k)))
		}
	}
	s.Sequence = a.int(spanSequence)
	if a.has(spanRangeStart) {
		s.FirstStep = min(s.FirstStep, a.num[spanRangeStart])
	}
	s.Class = classify(s, len(b.journey) > 0)
	switch s.Class {
	case classCore:
		s.Journey = slices.Clone(b.journey)
	case classStep:
		for i := range b.rows.Steps {
			b.rows.Steps[i].SpanSequence = s.Sequence.V
		}
		s.Rows, b.rows = b.rows, rowPool.Get().(*stepRows)
	}
	s.dropForeignEvents()
	return s
}

// Wrappers around OTLP documents: an array of them, and what Tempo answers,
// {"batches":[...]} and {"trace":{...}}, whose batches are resourceSpans by their
// older name.
var (
	tempoBatches = []byte(`batches`)
	tempoTrace   = []byte(`trace`)
	asSpans      = []byte(`{"resourceSpans":`)
)

// unwrapped calls use with every OTLP document of a text, which starts at the
// given byte of it; a text without wrapper is its own.
func unwrapped(text []byte, use func(document []byte, at int) *source.Error) *source.Error {
	c := source.Cursor{B: text}
	switch c.Peek() {
	case '[':
		c.Take('[')
		for first := true; c.More(']', &first); {
			c.Space()
			from := c.I
			if !c.Skip(0) {
				break
			}
			if err := unwrapped(text[from:c.I], func(d []byte, at int) *source.Error { return use(d, from+at) }); err != nil {
				return err
			}
		}
		if c.Space(); c.Err == nil && c.I < len(c.B) {
			c.Unexpected("the end of the array")
		}
		return c.Err
	case '{':
		if key, value, at, ok := onlyMember(text); ok && bytes.Equal(key, tempoTrace) {
			return unwrapped(value, func(d []byte, inner int) *source.Error { return use(d, at+inner) })
		} else if ok && bytes.Equal(key, tempoBatches) {
			return use(bytes.Join([][]byte{asSpans, value, {'}'}}, nil), at-len(asSpans))
		}
	}
	return use(text, 0)
}

// onlyMember is the first member of an object whose key may be a wrapper's, and
// where its value begins.
func onlyMember(text []byte) (key, value []byte, at int, ok bool) {
	c := source.Cursor{B: text}
	first := true
	if !c.Take('{') || !c.More('}', &first) {
		return nil, nil, 0, false
	}
	if key, ok = c.Key(); !ok || !bytes.Equal(key, tempoBatches) && !bytes.Equal(key, tempoTrace) {
		return nil, nil, 0, false
	}
	key = bytes.Clone(key)
	c.Space()
	at = c.I
	if !c.Skip(0) {
		return nil, nil, 0, false
	}
	return key, text[at:c.I], at, true
}

// parseProto reads one TracesData message with OpenTelemetry's own decoder.
func parseProto(data []byte, b *builder, out *otlpMessage) *source.Error {
	w := wireWalk{data: data}
	if err := w.message(msgTraces, 0, len(data), 0); err != nil {
		return err
	}
	var u ptrace.ProtoUnmarshaler
	t, err := u.UnmarshalTraces(data)
	if err != nil {
		return &source.Error{Msg: err.Error()}
	}
	from := len(out.Spans)
	readTraces(t, b, out)
	for i, s := range out.Spans[from:] {
		s.Hash = w.hashes[i]
	}
	return nil
}

// bytesOf views a string as bytes for functions that do not change them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func readTraces(t ptrace.Traces, b *builder, out *otlpMessage) {
	for _, rs := range t.ResourceSpans().All() {
		var id identity
		for k, v := range rs.Resource().Attributes().All() {
			if v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeInt {
				id.set(k, []byte(v.AsString()))
			}
		}
		resource := id.hash()
		for _, ss := range rs.ScopeSpans().All() {
			for _, sp := range ss.Spans().All() {
				s := readSpan(sp, ss.Scope().Name(), b)
				s.Resource = resource
				out.Spans = append(out.Spans, s)
			}
		}
	}
}

func readSpan(sp ptrace.Span, scope string, b *builder) *tracedSpan {
	b.begin()
	s := b.cur
	s.TraceID, s.SpanID, s.Parent = sp.TraceID(), sp.SpanID(), sp.ParentSpanID()
	s.StartNs, s.EndNs = b.time(uint64(sp.StartTimestamp())), b.time(uint64(sp.EndTimestamp()))
	s.DroppedEvents = int64(sp.DroppedEventsCount())
	readMap(sp.Attributes(), &b.sp)
	for _, e := range sp.Events().All() {
		name := bytesOf(e.Name())
		b.ev.reset(noSlot)
		if known, ok := eventByName[string(name)]; ok {
			b.ev.next = firstSlot[known]
		}
		readMap(e.Attributes(), &b.ev)
		b.event(name, b.time(uint64(e.Timestamp())))
	}
	return b.end(scope, b.intern(bytesOf(sp.Name())))
}

func readMap(m pcommon.Map, a *attrs) {
	for k, v := range m.All() {
		s := a.find(bytesOf(k))
		switch v.Type() {
		case pcommon.ValueTypeInt:
			a.store(s, wantInt, v.Int(), nil)
		case pcommon.ValueTypeDouble:
			a.storeFloat(s, v.Double())
		case pcommon.ValueTypeStr:
			a.store(s, wantText, 0, bytesOf(v.Str()))
		case pcommon.ValueTypeEmpty:
		default:
			a.store(s, wantOther, 0, nil)
		}
	}
}

// msgKind names the OTLP messages that hold other messages.
type msgKind uint8

const (
	msgTraces msgKind = iota + 1
	msgResourceSpans
	msgResource
	msgScopeSpans
	msgOldScopeSpans // of before OTLP 0.15, decoded and dropped
	msgScope
	msgSpan
	msgEvent
	msgLink
	msgPair
	msgValue
	msgArray
	msgList
)

// inner says which message stands in a field of another one (opentelemetry/proto/trace/v1 and common/v1).
var inner = [...]map[int32]msgKind{
	msgTraces: {1: msgResourceSpans}, msgResourceSpans: {1: msgResource, 2: msgScopeSpans, 1000: msgOldScopeSpans}, msgResource: {1: msgPair},
	msgScopeSpans: {1: msgScope, 2: msgSpan}, msgOldScopeSpans: {1: msgScope, 2: msgSpan}, msgScope: {3: msgPair},
	msgSpan: {9: msgPair, 11: msgEvent, 13: msgLink}, msgEvent: {3: msgPair}, msgLink: {4: msgPair}, msgPair: {2: msgValue},
	msgValue: {5: msgArray, 6: msgList}, msgArray: {1: msgValue}, msgList: {1: msgPair},
}

// wireWalk walks a message before it is decoded: OpenTelemetry's decoder recurses as deep as values
// nest, so a hostile message would exhaust the stack, which no program survives. On the way it hashes
// the bytes of each span.
type wireWalk struct {
	data   []byte
	hashes []uint64
}

// message walks the message in data[at:end].
func (w *wireWalk) message(kind msgKind, at, end, depth int) *source.Error {
	if depth > source.MaxDepth {
		return &source.Error{At: at, Msg: fmt.Sprintf("got values nested deeper than %d", source.MaxDepth)}
	}
	for at < end {
		start := at
		tag, n := binary.Uvarint(w.data[at:end])
		at += max(n, 0)
		size := uint64(0) // of the field behind its tag and length
		switch tag & 7 {
		case wireVarint:
			_, k := binary.Uvarint(w.data[at:end])
			n, size = min(n, k), uint64(max(k, 0))
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		case wireBytes:
			length, k := binary.Uvarint(w.data[at:end])
			at += max(k, 0)
			n, size = min(n, k), length
		default:
			return &source.Error{At: start, Msg: fmt.Sprintf("got the wire type %d, want 0, 1, 2 or 5", tag&7)}
		}
		if n <= 0 {
			return &source.Error{At: start, Msg: "got no whole varint of at most 10 bytes"}
		}
		if size > uint64(end-at) {
			return &source.Error{At: start, Msg: fmt.Sprintf("got a field of %d bytes, want at most the %d that are left", size, end-at)}
		}
		next := at + int(size)
		if tag&7 == wireBytes {
			field := int32(tag >> 3)
			if kind == msgScopeSpans && field == 2 {
				w.hashes = append(w.hashes, hashOf(w.data[at:next]))
			}
			if in := inner[kind][field]; in != 0 {
				if err := w.message(in, at, next, depth+1); err != nil {
					return err
				}
			}
		}
		at = next
	}
	return nil
}

// Wire types of protobuf; groups, 3 and 4, are not part of OTLP.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)
