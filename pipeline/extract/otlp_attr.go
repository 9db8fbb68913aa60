package extract

import (
	"math"

	"github.com/zeebo/xxh3"
)

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

func (a *attrs) reset(guess slot) { a.set, a.wrong, a.bad, a.next = 0, 0, "", guess }

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
		is, num = wantFloat, int64(math.Float64bits(float64(num)))
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
