package extract

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/trace"
)

// class is what a span means to us.
type class uint8

const (
	classForeign class = iota
	classAPI           // vllm.api/llm_request
	classCore          // vllm.scheduler/llm_core, and llm_request with journey events of the oldest forks
	classStep          // scheduler_steps, scheduler_steps_<N>
	classStock         // vllm.llm_engine/llm_request with gen_ai.latency.*
)

// eventName numbers the events of our schema.
type eventName uint8

const (
	apiArrived eventName = iota
	apiHandoff
	apiFirst
	apiDeparted
	apiAborted
	journeyQueued
	journeyScheduled
	journeyFirst
	journeyPreempted
	journeyFinished
	stepSummary
	stepSnapshot
	numEvents
)

var eventNames = [numEvents]string{
	"api.ARRIVED", "api.HANDOFF_TO_CORE", "api.FIRST_RESPONSE_FROM_CORE", "api.DEPARTED", "api.ABORTED",
	"journey.QUEUED", "journey.SCHEDULED", "journey.FIRST_TOKEN", "journey.PREEMPTED", "journey.FINISHED",
	"step.BATCH_SUMMARY", "step.REQUEST_SNAPSHOT",
}

var journeyKinds = [numEvents]string{
	journeyQueued: trace.Queued, journeyScheduled: trace.Scheduled, journeyFirst: trace.FirstToken,
	journeyPreempted: trace.Preempted, journeyFinished: trace.Finished,
}

var eventByName = func() map[string]eventName {
	m := map[string]eventName{}
	for e, n := range eventNames {
		m[n] = eventName(e)
	}
	return m
}()

// firstSlot is the attribute each event begins with, the first guess of attrs.
var firstSlot = [numEvents]slot{
	apiTs, apiTs, apiTs, apiTs, apiTs,
	journeyType, journeyType, journeyType, journeyType, journeyType,
	stepID, stepID,
}

// apiEvent is one api.* event.
type apiEvent struct {
	name   eventName
	tsNs   int64
	wallNs int64
	reason trace.Opt[string]
}

// span is one decoded span. Steps and snapshots are rows already, so that the
// one goroutine that collects spans has little to do.
type span struct {
	class              class
	scope, name        string
	traceID            [16]byte
	spanID, parent     [8]byte
	hasParent          bool
	startNs, endNs     int64 // wall
	droppedEvents      int64
	farTime            bool   // a time of more than 63 bits
	resource           uint64 // hash of the resource's attributes
	file               int32
	line               int64
	hash               uint64 // of the content, to tell a repeated export from a conflict
	requestID          trace.Opt[string]
	route, model       trace.Opt[string]
	prompt, completion trace.Opt[int64]
	maxTokens, n       trace.Opt[int64]
	stock              [6]trace.Opt[float64] // seconds: ttft, e2e, queue, prefill, decode, inference
	sequence           trace.Opt[int64]
	firstStep          int64 // lowest step id of the span, or step_range_start
	lastStep           int64
	api                []apiEvent
	journey            []trace.JourneyEvent
	rows               *stepRows        // of a step span; the collector frees them
	counts             [numEvents]int32 // events by name, kept or not
	others             []string         // names of events outside our schema
	faults             []fault          // dropped events
}

// fault is a dropped event of a span.
type fault struct {
	event eventName
	code  trace.Code
	msg   string
}

// packed holds rows in the codec's form with their sort keys.
type packed struct {
	data []byte
	keys []int64
	ends []uint32
}

func (p *packed) reset() { p.data, p.keys, p.ends = p.data[:0], p.keys[:0], p.ends[:0] }

func (p *packed) add(key int64, data []byte) {
	p.data = data
	p.keys = append(p.keys, key)
	p.ends = append(p.ends, uint32(len(data)))
}

// builder makes spans from the callbacks of a parser. One per worker.
type builder struct {
	ev        attrs // attributes of the event being read
	sp        attrs // attributes of the span being read
	interned  map[string]string
	cur       *span
	rows      *stepRows // of the span being read, or of the next one
	stepFrom  int       // where the snapshots of the latest step begin in rows
	guess     int       // the snapshot of the step before that likely has the same request
	lastEvent eventName
	journey   []trace.JourneyEvent
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

// time stores a time in 63 bits; the tables have no room for more.
func (b *builder) time(ns uint64, ok bool) int64 {
	if ns > math.MaxInt64 {
		b.cur.farTime = true
		return math.MaxInt64
	}
	return int64(ns)
}

func (b *builder) begin() {
	b.cur = &span{firstStep: math.MaxInt64, lastStep: math.MinInt64}
	b.rows.steps, b.rows.snaps = b.rows.steps[:0], b.rows.snaps[:0]
	b.stepFrom, b.guess = 0, 0
	b.journey = b.journey[:0]
	b.sp.reset(spanRequestID)
}

func (b *builder) drop(e eventName, code trace.Code, msg string) {
	b.cur.faults = append(b.cur.faults, fault{e, code, eventNames[e] + msg})
}

// event adds the event whose attributes stand in b.ev.
func (b *builder) event(name []byte, wallNs int64) {
	e, ok := eventByName[string(name)]
	if !ok {
		b.cur.others = append(b.cur.others, b.intern(name))
		return
	}
	b.addEvent(e, wallNs)
}

func (b *builder) addEvent(e eventName, wallNs int64) {
	b.cur.counts[e]++
	switch {
	case e <= apiAborted:
		b.apiEvent(e, wallNs)
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
	if b.ev.set&want == want && b.ev.wrong == 0 {
		return true
	}
	for s := range numSlots {
		if b.ev.wrong&(1<<s) != 0 {
			b.drop(e, CodeBadAttribute, ": attribute "+attrKeys[s].key+" has another type")
			return false
		}
	}
	for s := range numSlots {
		if want&(1<<s) != 0 && !b.ev.has(s) {
			b.drop(e, CodeMissingAttribute, ": attribute "+attrKeys[s].key+" is missing")
			return false
		}
	}
	return false
}

func slots(from, to slot) uint64 { return (1<<(to+1) - 1) &^ (1<<from - 1) }

var (
	summaryNeeds  = slots(stepID, kvFree)
	snapshotNeeds = slots(snapRequest, snapComputed) | 1<<snapScheduled | 1<<stepID
)

func (b *builder) apiEvent(e eventName, wallNs int64) {
	if !b.need(e, 1<<apiTs) {
		return
	}
	ev := apiEvent{name: e, tsNs: secondsToNs(b.ev.float(apiTs)), wallNs: wallNs}
	if b.ev.has(apiReason) {
		ev.reason = trace.Some(b.intern(b.ev.text[apiReason]))
	}
	b.cur.api = append(b.cur.api, ev)
}

func secondsToNs(s float64) int64 { return int64(math.Round(s * 1e9)) }

func (b *builder) journeyEvent(e eventName, wallNs int64) {
	if !b.need(e, 0) {
		return
	}
	a := &b.ev
	ev := trace.JourneyEvent{
		Kind: journeyKinds[e], WallNs: wallNs,
		Step: a.int(journeyStep), PrefillDone: a.int(journeyPrefillDone), PrefillTotal: a.int(journeyPrefillTotal),
		DecodeDone: a.int(journeyDecodeDone), DecodeMax: a.int(journeyDecodeMax), Preemptions: a.int(journeyPreemptions),
		Phase: b.optText(journeyPhase), ScheduleKind: b.optText(journeyKind), FinishStatus: b.optText(journeyStatus),
	}
	switch {
	case a.has(journeyTsNs) && a.num[journeyTsNs] != 0:
		ev.TsNs = trace.Some(a.num[journeyTsNs])
	case a.has(journeyTs):
		ev.TsNs = trace.Some(secondsToNs(a.float(journeyTs)))
	}
	b.journey = append(b.journey, ev)
}

func (a *attrs) int(s slot) trace.Opt[int64] {
	if a.has(s) {
		return trace.Some(a.num[s])
	}
	return trace.Opt[int64]{}
}

func (b *builder) optText(s slot) trace.Opt[string] {
	if b.ev.has(s) {
		return trace.Some(b.intern(b.ev.text[s]))
	}
	return trace.Opt[string]{}
}

func (b *builder) summary(wallNs int64) {
	if !b.need(stepSummary, summaryNeeds) {
		return
	}
	n := &b.ev.num
	b.rows.steps = append(b.rows.steps, trace.Step{
		ID: n[stepID], TsStartNs: n[stepTsStart], TsEndNs: n[stepTsEnd], DurationUs: n[stepDuration],
		RunningDepth: n[queueRunning], WaitingDepth: n[queueWaiting],
		NumPrefillReqs: n[batchPrefillReqs], NumDecodeReqs: n[batchDecodeReqs],
		ScheduledTokens: n[batchScheduled], PrefillTokens: n[batchPrefill], DecodeTokens: n[batchDecode],
		NumFinished: n[batchFinished], NumPreempted: n[batchPreempted],
		KVUsage: b.ev.float(kvUsage), BlocksTotal: n[kvTotal], BlocksFree: n[kvFree], WallNs: wallNs,
	})
	b.cur.covers(n[stepID])
}

// covers notes a step id of the span.
func (s *span) covers(id int64) { s.firstStep, s.lastStep = min(s.firstStep, id), max(s.lastStep, id) }

func (b *builder) snapshot() {
	if !b.need(stepSnapshot, snapshotNeeds) {
		return
	}
	a := &b.ev
	n := &a.num
	opt := func(s slot) int64 {
		if a.has(s) {
			return n[s]
		}
		return 0
	}
	b.rows.snaps = append(b.rows.snaps, trace.Snapshot{
		StepID: n[stepID], CoreID: b.coreID(n[stepID]), Phase: b.phase(a.text[snapPhase]),
		PromptTokens: n[snapPrompt], ComputedTokens: n[snapComputed], OutputTokens: opt(snapOutput),
		Preemptions: opt(snapPreemptions), ScheduledTokens: n[snapScheduled],
		BlocksAllocated: opt(snapAllocated), BlocksCached: opt(snapCached), EffectivePromptLen: a.int(snapEffective),
	})
	b.cur.covers(n[stepID])
}

// coreID is the request of the snapshot being read. Steps list their requests
// in the order of the step before, but for those that came and went, so the
// next one there is compared first.
func (b *builder) coreID(step int64) string {
	rows, id := b.rows.snaps, b.ev.text[snapRequest]
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
func (b *builder) end(scope, name string) *span {
	s, a := b.cur, &b.sp
	b.cur = nil
	s.scope, s.name = scope, name
	s.hasParent = s.parent != [8]byte{} // all zeros are none
	word := func(k slot) trace.Opt[string] {
		if a.has(k) {
			return trace.Some(b.intern(a.text[k]))
		}
		return trace.Opt[string]{}
	}
	s.requestID, s.route, s.model = word(spanRequestID), word(spanRoute), word(spanModel)
	s.prompt, s.completion = a.int(spanPrompt), a.int(spanCompletion)
	s.maxTokens, s.n = a.int(spanMaxTokens), a.int(spanN)
	for k := range s.stock {
		if a.has(stockTTFT + slot(k)) {
			s.stock[k] = trace.Some(a.float(stockTTFT + slot(k)))
		}
	}
	s.sequence = a.int(spanSequence)
	if a.has(spanRangeStart) {
		s.firstStep = min(s.firstStep, a.num[spanRangeStart])
	}
	s.class = classify(s, len(b.journey) > 0)
	switch s.class {
	case classCore:
		s.journey = slices.Clone(b.journey)
	case classStep:
		for i := range b.rows.steps {
			b.rows.steps[i].SpanSequence = s.sequence.V
		}
		s.rows, b.rows = b.rows, rowPool.Get().(*stepRows)
	}
	s.settle()
	return s
}

// classify decides what a span is from scope, name and content (design/02 1.1, 4.7, 8).
func classify(s *span, journey bool) class {
	steps := len(s.name) >= len("scheduler_steps") && s.name[:len("scheduler_steps")] == "scheduler_steps"
	switch {
	case s.scope == "vllm.api" && s.name == "llm_request":
		return classAPI
	case s.scope == "vllm.scheduler" && s.name == "llm_core":
		return classCore
	case steps && (s.scope == "vllm.scheduler.step" || s.scope == "vllm.scheduler"):
		return classStep
	case s.scope == "vllm.llm_engine" && s.name == "llm_request":
		if journey {
			return classCore
		}
		return classStock
	}
	return classForeign
}

// allowed are the events that belong to a class.
func (c class) allowed(e eventName) bool {
	switch c {
	case classAPI:
		return e <= apiAborted
	case classCore:
		return e >= journeyQueued && e <= journeyFinished
	case classStep:
		return e >= stepSummary
	}
	return false
}

// settle drops events that do not belong to the span's class.
func (s *span) settle() {
	for e := range numEvents {
		if s.class == classForeign || s.class.allowed(e) || s.counts[e] == 0 {
			continue
		}
		for range s.counts[e] {
			s.others = append(s.others, eventNames[e])
		}
		s.counts[e] = 0
	}
	if s.class != classAPI {
		s.api = nil
	}
	s.faults = slices.DeleteFunc(s.faults, func(f fault) bool { return !s.class.allowed(f.event) }) // they count as others
}

// events is how many events the span holds, kept or not.
func (s *span) events() int64 {
	n := int64(len(s.others))
	for _, c := range s.counts {
		n += int64(c)
	}
	return n
}
