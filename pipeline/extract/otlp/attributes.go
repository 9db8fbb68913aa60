package otlp

// This file lists the attributes that a table needs. Each has a numbered slot, so that the attributes
// of an event are an array, without a map and without allocation.

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// slot is the number of an attribute that a table needs; all other attributes are skipped. The
// slots of one event are in the order in which producers write its attributes, so that find can
// guess the next.
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

// attrType is the type of an attribute's value: the one that a slot wants, or the one that a dump has.
type attrType uint8

const (
	wantInt attrType = iota
	wantFloat
	wantText
	wantOther   // bool, bytes, array or list: no slot has such a type
	wantNothing // an empty value
)

// attrKeys are the keys of the slots in a dump and the types of their values (spec#wire-summary,
// spec#wire-snapshot, spec#wire-journey-events, spec#wire-api-events, spec#wire-stock).
var attrKeys = [numSlots]struct {
	key  string
	want attrType
}{
	stepID:           {"step.id", wantInt},
	stepTsStart:      {"step.ts_start_ns", wantInt},
	stepTsEnd:        {"step.ts_end_ns", wantInt},
	stepDuration:     {"step.duration_us", wantInt},
	queueRunning:     {"queue.running_depth", wantInt},
	queueWaiting:     {"queue.waiting_depth", wantInt},
	batchPrefillReqs: {"batch.num_prefill_reqs", wantInt},
	batchDecodeReqs:  {"batch.num_decode_reqs", wantInt},
	batchScheduled:   {"batch.scheduled_tokens", wantInt},
	batchPrefill:     {"batch.prefill_tokens", wantInt},
	batchDecode:      {"batch.decode_tokens", wantInt},
	batchFinished:    {"batch.num_finished", wantInt},
	batchPreempted:   {"batch.num_preempted", wantInt},
	kvUsage:          {"kv.usage_gpu_ratio", wantFloat},
	kvTotal:          {"kv.blocks_total_gpu", wantInt},
	kvFree:           {"kv.blocks_free_gpu", wantInt},

	snapRequest:     {"request.id", wantText},
	snapPhase:       {"request.phase", wantText},
	snapPrompt:      {"request.num_prompt_tokens", wantInt},
	snapComputed:    {"request.num_computed_tokens", wantInt},
	snapOutput:      {"request.num_output_tokens", wantInt},
	snapPreemptions: {"request.num_preemptions", wantInt},
	snapScheduled:   {"request.scheduled_tokens_this_step", wantInt},
	snapAllocated:   {"kv.blocks_allocated_gpu", wantInt},
	snapCached:      {"kv.blocks_cached_gpu", wantInt},
	snapEffective:   {"request.effective_prompt_len", wantInt},

	journeyType:         {"event.type", wantText},
	journeyTs:           {"ts.monotonic", wantFloat},
	journeyTsNs:         {"ts.monotonic_ns", wantInt},
	journeyStep:         {"scheduler.step", wantInt},
	journeyPhase:        {"phase", wantText},
	journeyPrefillDone:  {"prefill.done_tokens", wantInt},
	journeyPrefillTotal: {"prefill.total_tokens", wantInt},
	journeyDecodeDone:   {"decode.done_tokens", wantInt},
	journeyDecodeMax:    {"decode.max_tokens", wantInt},
	journeyPreemptions:  {"num_preemptions", wantInt},
	journeyKind:         {"schedule.kind", wantText},
	journeyStatus:       {"finish.status", wantText},

	apiTs:     {"event.ts.monotonic", wantFloat},
	apiReason: {"reason", wantText},
	apiError:  {"error", wantText},

	spanRequestID:  {"gen_ai.request.id", wantText},
	spanRoute:      {"http.route", wantText},
	spanModel:      {"gen_ai.response.model", wantText},
	spanPrompt:     {"gen_ai.usage.prompt_tokens", wantInt},
	spanCompletion: {"gen_ai.usage.completion_tokens", wantInt},
	spanMaxTokens:  {"gen_ai.request.max_tokens", wantInt},
	spanN:          {"gen_ai.request.n", wantInt},

	stockTTFT:      {"gen_ai.latency.time_to_first_token", wantFloat},
	stockE2E:       {"gen_ai.latency.e2e", wantFloat},
	stockQueue:     {"gen_ai.latency.time_in_queue", wantFloat},
	stockPrefill:   {"gen_ai.latency.time_in_model_prefill", wantFloat},
	stockDecode:    {"gen_ai.latency.time_in_model_decode", wantFloat},
	stockInference: {"gen_ai.latency.time_in_model_inference", wantFloat},

	spanSequence:   {"scheduler.span_sequence", wantInt},
	spanRangeStart: {"scheduler.step_range_start", wantInt},
	spanRangeEnd:   {"scheduler.step_range_end", wantInt},
}

// slotOf maps the key of an attribute to its slot.
var slotOf = func() map[string]slot {
	m := make(map[string]slot, numSlots)
	for s, a := range attrKeys {
		m[a.key] = slot(s)
	}
	return m
}()

// attrs is the attributes of one event or span that have slots.
type attrs struct {
	set   uint64          // bit s is set if slot s has a value of the right type
	wrong uint64          // bit s is set if the value of slot s had another type, or came twice
	bad   string          // the fault of the JSON object around them; "" for none
	next  slot            // the slot that is tried first for the next key
	num   [numSlots]int64 // integers, or the bits of a float
	text  [numSlots][]byte
	// skipped is how many slots lay between each and the one that followed it the last time, for quickPairs: step.id is
	// followed by other attributes in a summary and in the snapshots of requests. Differences are modulo 256.
	skipped [numSlots]slot
}

// reset forgets all attributes. guess is the slot that the first key of the next span or event
// probably has.
func (a *attrs) reset(guess slot) {
	a.set = 0
	a.wrong = 0
	a.bad = ""
	a.next = guess
}

// find returns the slot of a key, or noSlot. Producers write attributes in a fixed order, so it
// tries the slot after the last one before it looks in the map.
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

// has reports whether slot s has a value.
func (a *attrs) has(s slot) bool { return a.set&(1<<s) != 0 }

// store sets slot s to a value of type got; num is an integer or the bits of a float. A float slot
// accepts an integer too, because some writers print 2.0 as 2.
func (a *attrs) store(s slot, got attrType, num int64, text []byte) {
	if s >= numSlots || got == wantNothing {
		return
	}
	want := attrKeys[s].want
	if got == wantInt && want == wantFloat {
		got = wantFloat
		num = int64(math.Float64bits(float64(num)))
	}
	v := math.Float64frombits(uint64(num))
	if got != want || got == wantFloat && (math.IsNaN(v) || math.IsInf(v, 0)) {
		a.wrong |= 1 << s
		return
	}
	a.num[s] = num
	a.text[s] = text
	a.wrong |= a.set & (1 << s) // the slot had a value
	a.set |= 1 << s
}

// float returns the float in slot s.
func (a *attrs) float(s slot) float64 { return math.Float64frombits(uint64(a.num[s])) }

// int returns the integer in slot s; unknown if the slot has no value.
func (a *attrs) int(s slot) trace.Opt[int64] {
	if a.has(s) {
		return trace.Some(a.num[s])
	}
	return trace.Opt[int64]{}
}

// fault returns a description of the first broken attribute: a value of the wrong type, or a key
// that occurs twice; "" if there is none.
func (a *attrs) fault() string {
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

// slotRange returns a bit mask of the slots from one to another, both included.
func slotRange(from, to slot) uint64 { return (1<<(to+1) - 1) &^ (1<<from - 1) }
