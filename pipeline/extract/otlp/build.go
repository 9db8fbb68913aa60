package otlp

// This file makes rows of events and spans, the same for JSON and protobuf, or drops them with a
// reason.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// builder makes spans from what the JSON reader and the protobuf reader read. Each worker has one.
type builder struct {
	ev       attrs             // attributes of the event being read
	sp       attrs             // attributes of the span being read
	interned map[string]string // each text by itself: see intern
	cur      *Span             // the span being read
	rows     *StepRows         // rows of that span; unused ones are kept for the next span
	journey  []trace.JourneyEvent

	lastEvent EventName // the event of the schema that was looked up last

	// Where coreID looks first for the request of a snapshot:
	stepFrom int // index in rows at which the snapshots of the latest step begin, and those of the step before end
	guess    int // index of the previous step's snapshot that likely has the same request

	budget int64 // bytes that the records of the current message may still take
}

// Records of one message may take freeRecordBytes and recordBytes times its own size, at most
// maxRecordBytes; those of traces take about one time its size. The bound is for messages of many
// records of a few bytes each, of which a compressed file can hold millions (spec#cost-limits).
const (
	freeRecordBytes = 16 << 20
	recordBytes     = 3
	maxRecordBytes  = 256 << 20
)

// beginMessage allows the records of a message of so many bytes.
func (b *builder) beginMessage(bytes int) {
	b.budget = min(freeRecordBytes+recordBytes*int64(bytes), maxRecordBytes)
}

// isOverBudget reports whether the records of the message take more memory than it may.
func (b *builder) isOverBudget() bool { return b.budget < 0 }

// errOverBudget returns the error of a message whose records take too much memory. at is the offset
// of the place.
func errOverBudget(at int) *source.Error {
	return &source.Error{At: at, Code: source.CodeOverLimit,
		Msg: fmt.Sprintf("got a message whose records would take more than %d MB and %d times its size, want batches of fewer spans",
			freeRecordBytes>>20, recordBytes)}
}

// Memory of records, bytes; the strings they refer to are mostly shared.
const (
	spanBytes    = int64(unsafe.Sizeof(Span{}))
	apiBytes     = int64(unsafe.Sizeof(APIEvent{}))
	journeyBytes = int64(unsafe.Sizeof(trace.JourneyEvent{}))
	stepBytes    = int64(unsafe.Sizeof(trace.Step{}))
	snapBytes    = int64(unsafe.Sizeof(trace.Snapshot{}))
	faultBytes   = int64(unsafe.Sizeof(Fault{})) + 100 // with its text
	nameBytes    = int64(unsafe.Sizeof(NamedCount{})) + 32
	unusedBytes  = int64(unsafe.Sizeof(Unused{})) + 64
)

// newBuilder returns the builder of one worker.
func newBuilder() *builder {
	return &builder{interned: map[string]string{}, rows: rowPool.Get().(*StepRows), budget: maxRecordBytes}
}

// maxInterned bounds the strings that a worker remembers.
const maxInterned = 1 << 13

// intern returns a text as a string of which equal texts share one copy.
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

// clampNs returns an unsigned time as the signed 64 bits of the tables, ns. A time that does not
// fit makes the span bad.
func (b *builder) clampNs(ns uint64) int64 {
	if ns > math.MaxInt64 {
		b.cur.Bad = "a time of more than 63 bits"
		return math.MaxInt64
	}
	return int64(ns)
}

// beginSpan starts a new span. The reader then puts the span's attributes into b.sp, calls
// addNamedEvent or addEvent for each event, and calls endSpan.
func (b *builder) beginSpan() {
	b.cur = &Span{FirstStep: math.MaxInt64, LastStep: math.MinInt64}
	b.rows.Steps = b.rows.Steps[:0]
	b.rows.Snaps = b.rows.Snaps[:0]
	b.stepFrom = 0
	b.guess = 0
	b.journey = b.journey[:0]
	b.sp.reset(spanRequestID)
}

// eventOf returns the event of a name, if the schema has it. Most events have the name of the one before.
func (b *builder) eventOf(name []byte) (EventName, bool) {
	if string(name) == b.lastEvent.String() {
		return b.lastEvent, true
	}
	e, ok := eventByName[string(name)]
	if ok {
		b.lastEvent = e
	}
	return e, ok
}

// drop records that an event of the span was dropped. Consecutive drops for one reason are one Fault.
func (b *builder) drop(e EventName, why string) {
	msg := e.String() + ": " + why
	if n := len(b.cur.Faults); n > 0 && b.cur.Faults[n-1].event == e && b.cur.Faults[n-1].Msg == msg {
		b.cur.Faults[n-1].N++
		return
	}
	b.budget -= faultBytes
	b.cur.Faults = append(b.cur.Faults, Fault{event: e, Code: source.CodeBadRecord, Msg: msg, N: 1})
}

// addNamedEvent adds the event of a name whose attributes are in b.ev.
func (b *builder) addNamedEvent(name []byte, wallNs int64) {
	if e, ok := b.eventOf(name); ok {
		b.addEvent(e, wallNs)
		return
	}
	before := len(b.cur.Others)
	b.cur.Others = countName(b.cur.Others, b.intern(name), 1)
	b.budget -= nameBytes * int64(len(b.cur.Others)-before)
}

// addEvent adds an event of the schema whose attributes are in b.ev.
func (b *builder) addEvent(e EventName, wallNs int64) {
	b.cur.Counts[e]++
	switch {
	case e <= APIAborted:
		b.addAPIEvent(e)
	case e <= JourneyFinished:
		b.addJourneyEvent(e, wallNs)
	case e == StepSummary:
		b.addSummary(wallNs)
	default:
		b.addSnapshot()
	}
}

// requireSlots reports whether the event has all slots of the mask want (bit s for slot s) and no broken
// attribute. If not, it drops the event.
func (b *builder) requireSlots(e EventName, want uint64) bool {
	if b.ev.set&want == want && b.ev.wrong == 0 && b.ev.bad == "" {
		return true
	}
	if why := b.ev.fault(); why != "" {
		b.drop(e, why)
		return false
	}
	for s := range numSlots {
		if want&(1<<s) != 0 && !b.ev.has(s) {
			b.drop(e, "attribute "+attrKeys[s].key+" is missing")
			return false
		}
	}
	return false
}

var (
	summaryNeeds  = slotRange(stepID, kvFree)
	snapshotNeeds = slotRange(snapRequest, snapComputed) | 1<<snapScheduled | 1<<stepID
)

// Limits of the values of events (spec#value-limits).
var (
	stepRanges       = trace.RangesOf[trace.Step]()
	snapRanges       = trace.RangesOf[trace.Snapshot]()
	journeyRanges    = trace.RangesOf[trace.JourneyEvent]()
	stampRange, _    = trace.RangeOf("", "ns")
	durationRange, _ = trace.RangeOf("", "us")
)

// acceptable reports whether why, the description of a value outside of its limits, is empty. If
// not, it drops the event.
func (b *builder) acceptable(e EventName, why string) bool {
	if why != "" {
		b.drop(e, why)
	}
	return why == ""
}

// addAPIEvent adds an event of the API process.
func (b *builder) addAPIEvent(e EventName) {
	if !b.requireSlots(e, 1<<apiTs) {
		return
	}
	ev := APIEvent{
		Name:   e,
		TsNs:   secondsToNs(b.ev.float(apiTs)),
		Reason: b.optText(&b.ev, apiReason),
	}
	if b.acceptable(e, stampRange.Check(attrKeys[apiTs].key, float64(ev.TsNs))) {
		b.budget -= apiBytes
		b.cur.API = append(b.cur.API, ev)
	}
}

// secondsToNs returns a time in s as whole ns.
func secondsToNs(s float64) int64 { return trace.Int(s * 1e9) }

// addJourneyEvent adds an event of a request's journey through the scheduler.
func (b *builder) addJourneyEvent(e EventName, wallNs int64) {
	if !b.requireSlots(e, 0) {
		return
	}
	a := &b.ev
	ev := trace.JourneyEvent{
		Kind:         strings.TrimPrefix(e.String(), "journey."),
		WallNs:       wallNs,
		Step:         a.int(journeyStep),
		PrefillDone:  a.int(journeyPrefillDone),
		PrefillTotal: a.int(journeyPrefillTotal),
		DecodeDone:   a.int(journeyDecodeDone),
		DecodeMax:    a.int(journeyDecodeMax),
		Preemptions:  a.int(journeyPreemptions),
		Phase:        b.optText(a, journeyPhase),
		ScheduleKind: b.optText(a, journeyKind),
		FinishStatus: b.optText(a, journeyStatus),
	}
	// Older versions of the tracing fork wrote float seconds only, which are less precise.
	switch {
	case a.has(journeyTsNs) && a.num[journeyTsNs] != 0:
		ev.TsNs = trace.Some(a.num[journeyTsNs])
	case a.has(journeyTs):
		ev.TsNs = trace.Some(secondsToNs(a.float(journeyTs)))
	}
	if b.acceptable(e, cmp.Or(journeyRanges.Check(&ev), a.contradiction(e))) {
		b.budget -= 2 * journeyBytes // endSpan copies them
		b.journey = append(b.journey, ev)
	}
}

// countPairs are counts of an event of which the first cannot be larger than the second
// (spec#value-limits).
var countPairs = [...][2]slot{
	{journeyPrefillDone, journeyPrefillTotal},
	{journeyDecodeDone, journeyDecodeMax},
	{batchPrefillReqs, batchPrefill},
	{batchDecodeReqs, batchDecode},
	{batchPrefillReqs, queueRunning},
	{batchDecodeReqs, queueRunning},
	{kvFree, kvTotal},
}

// contradiction returns a description of how the values of an event contradict each other: in the
// counts of its batch, in its kind, or because it has no stamp; "" if they do not.
func (a *attrs) contradiction(e EventName) string {
	n := &a.num
	name := strings.TrimPrefix(e.String(), "journey.")
	switch {
	case e == StepSummary && !a.batchAgrees():
		return fmt.Sprintf("batch: got %d prompt tokens of %d requests, %d decode tokens of %d, %d tokens in all, "+
			"want counts that agree",
			n[batchPrefill], n[batchPrefillReqs], n[batchDecode], n[batchDecodeReqs], n[batchScheduled])
	case a.has(journeyType) && string(a.text[journeyType]) != name:
		return fmt.Sprintf("event.type: got %s, want %s", a.text[journeyType], name)
	case e != StepSummary && !a.has(journeyTs) && !a.has(journeyTsNs):
		return "attribute " + attrKeys[journeyTs].key + " is missing"
	}
	for _, pair := range countPairs {
		part, whole := pair[0], pair[1]
		if a.has(part) && a.has(whole) && n[part] > n[whole] {
			return fmt.Sprintf("%s: got %d, want at most %s, %d", attrKeys[part].key, n[part], attrKeys[whole].key, n[whole])
		}
	}
	return ""
}

// batchAgrees reports whether the counts of a summary describe one batch: prompt and decode tokens
// add up to the scheduled ones, and there are tokens exactly where there are requests.
func (a *attrs) batchAgrees() bool {
	n := &a.num
	return n[batchPrefill]+n[batchDecode] == n[batchScheduled] &&
		(n[batchPrefill] > 0) == (n[batchPrefillReqs] > 0) &&
		(n[batchDecode] > 0) == (n[batchDecodeReqs] > 0)
}

// stepCounts are the counts of a summary with their columns and limits.
var stepCounts = func() (list []stepCount) {
	add := func(s slot, column, unit string) {
		limits, _ := trace.RangeOf(column, unit)
		list = append(list, stepCount{slot: s, column: column, Range: limits})
	}
	add(queueRunning, "running_depth", "requests")
	add(queueWaiting, "waiting_depth", "requests")
	add(batchPrefillReqs, "num_prefill_reqs", "requests")
	add(batchDecodeReqs, "num_decode_reqs", "requests")
	add(batchScheduled, "scheduled_tokens", "tokens")
	add(batchPrefill, "prefill_tokens", "tokens")
	add(batchDecode, "decode_tokens", "tokens")
	add(batchFinished, "num_finished", "requests")
	add(batchPreempted, "num_preempted", "requests")
	return list
}()

// stepCount is a slot with a count of a summary.
type stepCount struct {
	slot   slot
	column string
	trace.Range
}

// countsOutOfRange returns a description of the first count of a summary beyond its limits; "" if there is none.
func (a *attrs) countsOutOfRange() string {
	for i := range stepCounts {
		c := &stepCounts[i]
		if v := float64(a.num[c.slot]); v < c.From || v > c.To {
			return c.Check(c.column, v)
		}
	}
	return ""
}

// optText returns the text of a slot, unknown if the event does not have it.
func (b *builder) optText(a *attrs, s slot) trace.Opt[string] {
	if a.has(s) {
		return trace.Some(b.intern(a.text[s]))
	}
	return trace.Opt[string]{}
}

// addSummary adds a BATCH_SUMMARY event as a row of the steps table.
func (b *builder) addSummary(wallNs int64) {
	if !b.requireSlots(StepSummary, summaryNeeds) {
		return
	}
	n := &b.ev.num
	if why := b.ev.countsOutOfRange(); why != "" { // before they are stored in four bytes
		b.drop(StepSummary, why)
		return
	}
	step := trace.Step{
		ID:              n[stepID],
		TsStartNs:       n[stepTsStart],
		TsEndNs:         n[stepTsEnd],
		DurationUs:      n[stepDuration],
		RunningDepth:    int32(n[queueRunning]),
		WaitingDepth:    int32(n[queueWaiting]),
		NumPrefillReqs:  int32(n[batchPrefillReqs]),
		NumDecodeReqs:   int32(n[batchDecodeReqs]),
		ScheduledTokens: int32(n[batchScheduled]),
		PrefillTokens:   int32(n[batchPrefill]),
		DecodeTokens:    int32(n[batchDecode]),
		NumFinished:     int32(n[batchFinished]),
		NumPreempted:    int32(n[batchPreempted]),
		KVUsage:         b.ev.float(kvUsage),
		BlocksTotal:     n[kvTotal],
		BlocksFree:      n[kvFree],
		WallNs:          wallNs,
	}
	why := stepRanges.Check(&step)
	if why == "" { // refuse an end before the start, or a day after it
		durationUs := float64(step.TsEndNs-step.TsStartNs) / 1000
		why = cmp.Or(durationRange.Check("step.ts_end_ns - step.ts_start_ns, us", durationUs),
			b.ev.contradiction(StepSummary))
	}
	if b.acceptable(StepSummary, why) {
		b.budget -= stepBytes
		b.rows.Steps = append(b.rows.Steps, step)
		b.cur.includeStep(n[stepID])
	}
}

// includeStep extends the range of the span's step ids to one more id.
func (s *Span) includeStep(id int64) {
	s.FirstStep = min(s.FirstStep, id)
	s.LastStep = max(s.LastStep, id)
}

// fewSnaps is the number of snapshots up to which room for them doubles when it is full; append would
// grow it by less.
const fewSnaps = 1 << 14

// addSnapshot adds a REQUEST_SNAPSHOT event as a row of the snapshots table.
func (b *builder) addSnapshot() {
	if !b.requireSlots(StepSnapshot, snapshotNeeds) {
		return
	}
	a := &b.ev
	n := &a.num
	snap := trace.Snapshot{
		StepID:             n[stepID],
		CoreID:             b.coreID(n[stepID]),
		Phase:              b.phase(a.text[snapPhase]),
		PromptTokens:       n[snapPrompt],
		ComputedTokens:     n[snapComputed],
		OutputTokens:       a.int(snapOutput).V,
		Preemptions:        a.int(snapPreemptions).V,
		ScheduledTokens:    n[snapScheduled],
		BlocksAllocated:    a.int(snapAllocated).V,
		BlocksCached:       a.int(snapCached).V,
		EffectivePromptLen: a.int(snapEffective),
	}
	if b.acceptable(StepSnapshot, snapRanges.Check(&snap)) {
		b.budget -= snapBytes
		if n := len(b.rows.Snaps); n == cap(b.rows.Snaps) && n < fewSnaps {
			b.rows.Snaps = slices.Grow(b.rows.Snaps, n+64)
		}
		b.rows.Snaps = append(b.rows.Snaps, snap)
		b.cur.includeStep(n[stepID])
	}
}

// coreID returns the request id of the snapshot being read. A step lists its requests in the order of
// the step before, except for those that came or left. So the id is first compared with that of the
// request after the last one found there, and of one more in case a request left. Most ids then need
// neither hashing nor copying.
func (b *builder) coreID(step int64) string {
	rows := b.rows.Snaps
	id := b.ev.text[snapRequest]
	if n := len(rows); n > 0 && rows[n-1].StepID != step { // the first snapshot of a step
		b.guess = b.stepFrom
		b.stepFrom = n
	}
	for i := b.guess; i < b.stepFrom && i < b.guess+2; i++ {
		if rows[i].CoreID == string(id) {
			b.guess = i + 1
			return rows[i].CoreID
		}
	}
	return b.intern(id)
}

const (
	phasePrefill = "PREFILL"
	phaseDecode  = "DECODE"
)

// phase returns a phase as a string; the two usual ones share one copy.
func (b *builder) phase(v []byte) string {
	switch string(v) {
	case phaseDecode:
		return phaseDecode
	case phasePrefill:
		return phasePrefill
	}
	return b.intern(v)
}

// endSpan completes the current span and returns it: it sets its class by its scope, name and
// attributes, and removes events that do not belong to that class.
func (b *builder) endSpan(scope, name string) *Span {
	s := b.cur
	b.cur = nil
	a := &b.sp
	if why := a.fault(); why != "" {
		s.Bad = why
	}
	s.Scope = scope
	s.Name = name
	s.HasParent = s.Parent != [8]byte{}
	s.RequestID = b.optText(a, spanRequestID)
	s.Route = b.optText(a, spanRoute)
	s.Model = b.optText(a, spanModel)
	s.Prompt = a.int(spanPrompt)
	s.Completion = a.int(spanCompletion)
	s.MaxTokens = a.int(spanMaxTokens)
	s.N = a.int(spanN)
	s.Sequence = a.int(spanSequence)
	s.Stock = a.stockTimes()
	if a.has(spanRangeStart) {
		s.FirstStep = min(s.FirstStep, a.num[spanRangeStart])
	}
	s.Class = classify(s, len(b.journey) > 0)
	switch s.Class {
	case ClassCore:
		s.Journey = slices.Clone(b.journey)
	case ClassStep:
		for i := range b.rows.Steps {
			b.rows.Steps[i].SpanSequence = s.Sequence.V
		}
		s.Rows = b.rows
		b.rows = rowPool.Get().(*StepRows)
	}
	s.dropForeignEvents()
	return s
}

// stockTimes returns the durations of a stock span, a span of unmodified vLLM, converted from
// seconds.
func (a *attrs) stockTimes() StockTimes {
	us := func(s slot) trace.Opt[float64] {
		if !a.has(s) {
			return trace.Opt[float64]{}
		}
		return trace.Some(a.float(s) * 1e6)
	}
	return StockTimes{
		TTFTUs:    us(stockTTFT),
		E2EUs:     us(stockE2E),
		QueueUs:   us(stockQueue),
		PrefillUs: us(stockPrefill),
		DecodeUs:  us(stockDecode),
		InferUs:   us(stockInference),
	}
}
