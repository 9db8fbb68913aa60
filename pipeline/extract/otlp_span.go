package extract

import (
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

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

// Kinds of journey events that say more than that one happened.
const (
	kindQueued     = "QUEUED"
	kindScheduled  = "SCHEDULED"
	kindFirstToken = "FIRST_TOKEN"
	kindFinished   = "FINISHED"
)

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
	Name   eventName
	TsNs   int64
	Reason trace.Opt[string]
}

// tracedSpan is one decoded span. Steps and snapshots are rows already, so that the
// one goroutine that collects spans has little to do.
type tracedSpan struct {
	Class              class
	Scope, Name        string
	TraceID            [16]byte
	SpanID, Parent     [8]byte
	HasParent          bool
	StartNs, EndNs     int64 // wall
	DroppedEvents      int64
	Bad                string // why it cannot be used
	Resource           uint64 // hash of the resource's attributes
	File               int32
	Line               int64
	Hash               uint64 // of the content, to tell a repeated export from a conflict
	RequestID          trace.Opt[string]
	Route, Model       trace.Opt[string]
	Prompt, Completion trace.Opt[int64]
	MaxTokens, N       trace.Opt[int64]
	Stock              [6]trace.Opt[float64] // seconds: ttft, e2e, queue, prefill, decode, inference
	Sequence           trace.Opt[int64]
	FirstStep          int64 // lowest step id of the span, or step_range_start
	LastStep           int64
	API                []apiEvent
	Journey            []trace.JourneyEvent
	Rows               *stepRows        // of a step span; the collector frees them
	Counts             [numEvents]int32 // events by name, kept or not
	Others             []string         // names of events outside our schema
	Faults             []fault          // dropped events
}

// fault is a dropped event of a span.
type fault struct {
	event eventName
	Code  trace.Code
	Msg   string
}

// classify decides what a span is from scope, name and content (spec#wire-versions).
func classify(s *tracedSpan, journey bool) class {
	steps := strings.HasPrefix(s.Name, "scheduler_steps")
	switch {
	case s.Scope == "vllm.api" && s.Name == "llm_request":
		return classAPI
	case s.Scope == "vllm.scheduler" && s.Name == "llm_core":
		return classCore
	case steps && (s.Scope == "vllm.scheduler.step" || s.Scope == "vllm.scheduler"):
		return classStep
	case s.Scope == "vllm.llm_engine" && s.Name == "llm_request":
		if journey {
			return classCore
		}
		return classStock
	case s.Scope == "vllm.tracing.otel" && s.Name == "llm_request": // unmodified vLLM from 0.25 on
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

// dropForeignEvents drops events that do not belong to the span's class.
func (s *tracedSpan) dropForeignEvents() {
	for e := range numEvents {
		if s.Class == classForeign || s.Class.allowed(e) || s.Counts[e] == 0 {
			continue
		}
		for range s.Counts[e] {
			s.Others = append(s.Others, eventNames[e])
		}
		s.Counts[e] = 0
	}
	if s.Class != classAPI {
		s.API = nil
	}
	s.Faults = slices.DeleteFunc(s.Faults, func(f fault) bool { return !s.Class.allowed(f.event) }) // they count as others
}

// Micros is the i-th time of a stock span, us.
func (s *tracedSpan) Micros(i int) trace.Opt[float64] {
	return trace.Opt[float64]{V: s.Stock[i].V * 1e6, OK: s.Stock[i].OK}
}

// summaryName and snapshotName are the events of steps.
var summaryName, snapshotName = eventNames[stepSummary], eventNames[stepSnapshot]

// Events is how many events the span holds, kept or not.
func (s *tracedSpan) Events() int64 {
	n := int64(len(s.Others))
	for _, c := range s.Counts {
		n += int64(c)
	}
	return n
}

// stepRows are summaries and snapshots: of one span, or of one step.
type stepRows struct {
	Steps []trace.Step
	Snaps []trace.Snapshot
}

// rowPool recycles the rows of spans: workers fill them, the collector writes them.
var rowPool = sync.Pool{New: func() any { return new(stepRows) }}

func (r *stepRows) Free() {
	r.Steps, r.Snaps = r.Steps[:0], r.Snaps[:0]
	rowPool.Put(r)
}

// slot numbers every attribute the tables need; all others are skipped.
type slot uint8

const (
	stepID slot = iota
	stepTsStart
	stepTsEnd
	stepDuration
	queueRunning
	queueWaiting
	batchPrefillReqs
	batchDecodeReqs
	batchScheduled
	batchPrefill
	batchDecode
	batchFinished
	batchPreempted
	kvUsage
	kvTotal
	kvFree

	snapRequest
	snapPhase
	snapPrompt
	snapComputed
	snapOutput
	snapPreemptions
	snapScheduled
	snapAllocated
	snapCached
	snapEffective

	journeyType
	journeyTs
	journeyTsNs
	journeyStep
	journeyPhase
	journeyPrefillDone
	journeyPrefillTotal
	journeyDecodeDone
	journeyDecodeMax
	journeyPreemptions
	journeyKind
	journeyStatus

	apiTs
	apiReason
	apiError

	spanRequestID
	spanRoute
	spanModel
	spanPrompt
	spanCompletion
	spanMaxTokens
	spanN
	stockTTFT
	stockE2E
	stockQueue
	stockPrefill
	stockDecode
	stockInference
	spanSequence
	spanRangeStart
	spanRangeEnd

	numSlots
	noSlot = numSlots
)

// attrType is what a slot wants to see in the value.
type attrType uint8

const (
	wantInt attrType = iota
	wantFloat
	wantText
	wantOther   // what no slot wants
	wantNothing // an empty value
)

// attrKeys spells the slots as they stand on the wire
// (spec#wire-summary, spec#wire-snapshot, spec#wire-journey-events, spec#wire-api-events, spec#wire-stock).
var attrKeys = [numSlots]struct {
	key  string
	want attrType
}{
	stepID: {"step.id", wantInt}, stepTsStart: {"step.ts_start_ns", wantInt}, stepTsEnd: {"step.ts_end_ns", wantInt},
	stepDuration: {"step.duration_us", wantInt}, queueRunning: {"queue.running_depth", wantInt},
	queueWaiting:     {"queue.waiting_depth", wantInt},
	batchPrefillReqs: {"batch.num_prefill_reqs", wantInt}, batchDecodeReqs: {"batch.num_decode_reqs", wantInt},
	batchScheduled: {"batch.scheduled_tokens", wantInt}, batchPrefill: {"batch.prefill_tokens", wantInt},
	batchDecode:   {"batch.decode_tokens", wantInt},
	batchFinished: {"batch.num_finished", wantInt}, batchPreempted: {"batch.num_preempted", wantInt},
	kvUsage: {"kv.usage_gpu_ratio", wantFloat}, kvTotal: {"kv.blocks_total_gpu", wantInt}, kvFree: {"kv.blocks_free_gpu", wantInt},

	snapRequest: {"request.id", wantText}, snapPhase: {"request.phase", wantText}, snapPrompt: {"request.num_prompt_tokens", wantInt},
	snapComputed: {"request.num_computed_tokens", wantInt}, snapOutput: {"request.num_output_tokens", wantInt},
	snapPreemptions: {"request.num_preemptions", wantInt}, snapScheduled: {"request.scheduled_tokens_this_step", wantInt},
	snapAllocated: {"kv.blocks_allocated_gpu", wantInt}, snapCached: {"kv.blocks_cached_gpu", wantInt},
	snapEffective: {"request.effective_prompt_len", wantInt},

	journeyType: {"event.type", wantText}, journeyTs: {"ts.monotonic", wantFloat}, journeyTsNs: {"ts.monotonic_ns", wantInt},
	journeyStep: {"scheduler.step", wantInt}, journeyPhase: {"phase", wantText},
	journeyPrefillDone: {"prefill.done_tokens", wantInt}, journeyPrefillTotal: {"prefill.total_tokens", wantInt},
	journeyDecodeDone: {"decode.done_tokens", wantInt}, journeyDecodeMax: {"decode.max_tokens", wantInt},
	journeyPreemptions: {"num_preemptions", wantInt}, journeyKind: {"schedule.kind", wantText}, journeyStatus: {"finish.status", wantText},

	apiTs: {"event.ts.monotonic", wantFloat}, apiReason: {"reason", wantText}, apiError: {"error", wantText},

	spanRequestID: {"gen_ai.request.id", wantText}, spanRoute: {"http.route", wantText}, spanModel: {"gen_ai.response.model", wantText},
	spanPrompt: {"gen_ai.usage.prompt_tokens", wantInt}, spanCompletion: {"gen_ai.usage.completion_tokens", wantInt},
	spanMaxTokens: {"gen_ai.request.max_tokens", wantInt}, spanN: {"gen_ai.request.n", wantInt},
	stockTTFT: {"gen_ai.latency.time_to_first_token", wantFloat}, stockE2E: {"gen_ai.latency.e2e", wantFloat},
	stockQueue: {"gen_ai.latency.time_in_queue", wantFloat}, stockPrefill: {"gen_ai.latency.time_in_model_prefill", wantFloat},
	stockDecode: {"gen_ai.latency.time_in_model_decode", wantFloat}, stockInference: {"gen_ai.latency.time_in_model_inference", wantFloat},
	spanSequence: {"scheduler.span_sequence", wantInt}, spanRangeStart: {"scheduler.step_range_start", wantInt},
	spanRangeEnd: {"scheduler.step_range_end", wantInt},
}

// slotOf finds the slot of a key that the guess missed.
var slotOf = func() map[string]slot {
	m := make(map[string]slot, numSlots)
	for s, a := range attrKeys {
		m[a.key] = slot(s)
	}
	return m
}()

// attrs collects the known attributes of one event or span. Producers write
// attributes in a fixed order, so the slot after the last one is guessed first.
type attrs struct {
	set   uint64 // slots with a value of the wanted type
	wrong uint64 // slots whose value had another type, or that came twice
	bad   string // what is wrong with the object around them
	next  slot
	num   [numSlots]int64 // integers, or the bits of a float
	text  [numSlots][]byte
}

func (a *attrs) reset(guess slot) {
	a.set = 0
	a.wrong = 0
	a.bad = ""
	a.next = guess
}

// find returns the slot of key, or noSlot.
func (a *attrs) find(key []byte) slot {
	if a.next < numSlots && string(key) == attrKeys[a.next].key {
		a.next++
		return a.next - 1
	}
	s, ok := slotOf[string(key)]
	if !ok {
		return noSlot
	}
	a.next = s + 1
	return s
}

func (a *attrs) has(s slot) bool { return a.set&(1<<s) != 0 }

// store puts a value into slot s: num an integer or the bits of a float. A float slot takes an
// integer too (an integral double may arrive as one).
func (a *attrs) store(s slot, is attrType, num int64, text []byte) {
	if s >= numSlots || is == wantNothing {
		return
	}
	want := attrKeys[s].want
	if is == wantInt && want == wantFloat {
		is = wantFloat
		num = int64(math.Float64bits(float64(num)))
	}
	if v := math.Float64frombits(uint64(num)); is != want || is == wantFloat && (math.IsNaN(v) || math.IsInf(v, 0)) {
		a.wrong |= 1 << s
		return
	}
	a.num[s], a.text[s] = num, text
	a.wrong |= a.set & (1 << s)
	a.set |= 1 << s
}

func (a *attrs) storeFloat(s slot, v float64) { a.store(s, wantFloat, int64(math.Float64bits(v)), nil) }

func (a *attrs) float(s slot) float64 { return math.Float64frombits(uint64(a.num[s])) }

// hashOf tells contents apart, the same in every process: spans may wait on disk for another.
func hashOf(b []byte) uint64 { return xxh3.Hash(b) }

// identityKeys are the resource attributes that tell one producing process
// from another. The fork writes none of its own; these come from the SDK, the
// environment or the collector.
var identityKeys = [...]string{
	"service.name", "service.instance.id", "service.namespace", "host.name", "host.id", "process.pid", "k8s.pod.name", "container.id",
}

// identity collects the identifying attributes of a resource.
type identity struct {
	values [len(identityKeys)]string
}

func (id *identity) set(key string, value []byte) {
	for i, k := range identityKeys {
		if k == key {
			id.values[i] = string(value)
		}
	}
}

func (id *identity) hash() uint64 {
	var text []byte
	for _, v := range id.values {
		text = append(append(text, v...), 0)
	}
	return hashOf(text)
}

// noIdentity is the hash of a resource that names nothing, or is missing.
var noIdentity = new(identity).hash()

// attributes reads a list of key-value pairs into a. Pairs written the way
// every exporter writes them take the short path.
func (r *jsonReader) attributes(a *attrs) {
	if r.Null() || !r.Take('[') {
		return
	}
	for first := true; r.More(']', &first); {
		if !r.quickRun(a) {
			r.pair(a)
		}
	}
}

// pair reads one key-value pair in any legal form.
func (r *jsonReader) pair(a *attrs) {
	s := noSlot
	valueAt := -1
	keyed := false
	var seen uint32
	for k := range r.Members {
		once(&seen, k, &a.bad)
		switch string(k) {
		case "key":
			r.Space()
			if v, ok := r.Str(); ok {
				s, keyed = a.find(v), true
			}
		case "value":
			if !keyed {
				r.Space()
				valueAt = r.I
				r.Skip(0)
				continue
			}
			r.value(a, s)
		default:
			r.Skip(0)
		}
	}
	if valueAt >= 0 && r.Err == nil {
		end := r.I
		r.I = valueAt
		r.value(a, s)
		r.I = end
	}
}

// value reads an AnyValue into slot s; the last of several kinds of value counts.
func (r *jsonReader) value(a *attrs, s slot) {
	is := wantNothing
	num := int64(0)
	text := []byte(nil)
	var seen uint32
	for k := range r.MembersOrNull {
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		once(&seen, k, &a.bad)
		switch string(k) {
		case "intValue", "int_value":
			at := r.I
			if n, ok := r.Int64(); ok {
				is = wantInt
				num = n
				text = nil
			} else if s < numSlots && r.Err.At == at {
				r.Err.Msg = attrKeys[s].key + ": " + r.Err.Msg
			}
		case "doubleValue", "double_value":
			f, _ := r.Float()
			is = wantFloat
			num = int64(math.Float64bits(f))
			text = nil
		case "stringValue", "string_value":
			t, _ := r.Str()
			is = wantText
			num = 0
			text = t
		default:
			r.Skip(0)
			if isValue(k) {
				is = wantOther
				if string(k) == "stringValueStrindex" || string(k) == "string_value_strindex" {
					is = wantNothing // an index into a table that traces do not have
				}
			}
		}
	}
	if r.Err == nil {
		a.store(s, is, num, text)
	}
}

// isValue reports that a key is one of the values of an AnyValue that no table needs.
func isValue(key []byte) bool {
	switch string(key) {
	case "boolValue", "bool_value", "arrayValue", "array_value", "kvlistValue", "kvlist_value", "bytesValue", "bytes_value",
		"stringValueStrindex", "string_value_strindex":
		return true
	}
	return false
}
