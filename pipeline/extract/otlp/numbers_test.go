package otlp

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// attribute is a key-value pair of OTLP/JSON: of a whole number, a fraction or a text.
func attribute(key string, value any) string {
	switch v := value.(type) {
	case int:
		return fmt.Sprintf(`{"key":"%s","value":{"intValue":"%d"}}`, key, v)
	case float64:
		return fmt.Sprintf(`{"key":"%s","value":{"doubleValue":%v}}`, key, v)
	}
	return fmt.Sprintf(`{"key":"%s","value":{"stringValue":"%s"}}`, key, value)
}

// attributesOf are pairs from keys and values in turn.
func attributesOf(keysAndValues ...any) string {
	var pairs []string
	for i := 0; i < len(keysAndValues); i += 2 {
		pairs = append(pairs, attribute(keysAndValues[i].(string), keysAndValues[i+1]))
	}
	return "[" + strings.Join(pairs, ",") + "]"
}

// event is an event of a span at a time in ns.
func event(ns int, name string, keysAndValues ...any) string {
	return fmt.Sprintf(`{"timeUnixNano":"%d","name":"%s","attributes":%s}`, ns, name, attributesOf(keysAndValues...))
}

// document is a dump of one span.
func document(scope, span string, events ...string) string {
	return `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"` + scope + `"},"spans":[{` + span + `,"events":[` + strings.Join(events, ",") + `]}]}]}]}`
}

// spanOf is the only span of a dump.
func spanOf(t *testing.T, text string) *Span {
	t.Helper()
	var out Batch
	if err := NewDecoder().Line([]byte(text), &out); err != nil || len(out.Spans) != 1 {
		t.Fatalf("%s: got %d spans, %v", text, len(out.Spans), err)
	}
	return out.Spans[0]
}

// TestEveryValueOfASpan: each attribute and time of a span of each class has a value of its own.
func TestEveryValueOfASpan(t *testing.T) {
	const head = `"traceId":"000102030405060708090a0b0c0d0e0f","spanId":"1011121314151617","parentSpanId":"2021222324252627","startTimeUnixNano":"5","endTimeUnixNano":"9","droppedEventsCount":3`
	some := trace.Some[int64]
	text := trace.Some[string]
	api := spanOf(t, document("vllm.api", head+`,"name":"llm_request","attributes":`+attributesOf("gen_ai.request.id", "r1", "http.route", "/v1", "gen_ai.response.model", "m",
		"gen_ai.usage.prompt_tokens", 11, "gen_ai.usage.completion_tokens", 12, "gen_ai.request.max_tokens", 13, "gen_ai.request.n", 14),
		event(1, "api.ARRIVED", "event.ts.monotonic", 1.5), event(2, "api.ABORTED", "event.ts.monotonic", 2.25, "reason", "gone")))
	want := &Span{Class: ClassAPI, Scope: "vllm.api", Name: "llm_request", HasParent: true, StartNs: 5, EndNs: 9, DroppedEvents: 3, Resource: noIdentity, Hash: api.Hash,
		TraceID: [16]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, SpanID: [8]byte{16, 17, 18, 19, 20, 21, 22, 23}, Parent: [8]byte{32, 33, 34, 35, 36, 37, 38, 39},
		RequestID: text("r1"), Route: text("/v1"), Model: text("m"), Prompt: some(11), Completion: some(12), MaxTokens: some(13), N: some(14),
		FirstStep: math.MaxInt64, LastStep: math.MinInt64,
		API: []APIEvent{{Name: APIArrived, TsNs: 1500000000}, {Name: APIAborted, TsNs: 2250000000, Reason: text("gone")}}}
	want.Counts[APIArrived], want.Counts[APIAborted] = 1, 1
	if api.Faults = nil; !reflect.DeepEqual(api, want) {
		t.Errorf("got %+v\nwant %+v", api, want)
	}

	core := spanOf(t, document("vllm.scheduler", `"name":"llm_core"`,
		event(7, "journey.SCHEDULED", "event.type", "SCHEDULED", "ts.monotonic", 3.5, "ts.monotonic_ns", 3500000001, "scheduler.step", 21, "phase", "DECODE",
			"prefill.done_tokens", 22, "prefill.total_tokens", 23, "decode.done_tokens", 24, "decode.max_tokens", 25, "num_preemptions", 26, "schedule.kind", "RESUME", "finish.status", "length"),
		event(8, "journey.QUEUED", "ts.monotonic", 0.5),
		event(9, "journey.FINISHED", "ts.monotonic", 0.25, "ts.monotonic_ns", 0)))
	journey := []trace.JourneyEvent{
		{Kind: "SCHEDULED", WallNs: 7, TsNs: some(3500000001), Step: some(21), Phase: text("DECODE"), PrefillDone: some(22), PrefillTotal: some(23), DecodeDone: some(24), DecodeMax: some(25),
			Preemptions: some(26), ScheduleKind: text("RESUME"), FinishStatus: text("length")},
		{Kind: "QUEUED", WallNs: 8, TsNs: some(500000000)},
		{Kind: "FINISHED", WallNs: 9, TsNs: some(250000000)}, // 0 ns: of a version that did not write them
	}
	if !reflect.DeepEqual(core.Journey, journey) || core.HasParent || core.Class != ClassCore || core.Events() != 3 {
		t.Errorf("got %+v\nwant %+v", core.Journey, journey)
	}

	snapshot := func(step, n int, more ...any) string {
		return event(n, "step.REQUEST_SNAPSHOT", append([]any{"step.id", step, "request.id", fmt.Sprintf("r%d", n), "request.phase", "PREFILL", "request.num_prompt_tokens", 100 + n,
			"request.num_computed_tokens", 200 + n, "request.scheduled_tokens_this_step", 300 + n}, more...)...)
	}
	steps := spanOf(t, document("vllm.scheduler.step", `"name":"scheduler_steps_2","attributes":`+attributesOf("scheduler.span_sequence", 31, "scheduler.step_range_start", 40, "scheduler.step_range_end", 50),
		snapshot(42, 1, "request.num_output_tokens", 1, "request.num_preemptions", 2, "kv.blocks_allocated_gpu", 3, "kv.blocks_cached_gpu", 4, "request.effective_prompt_len", 5),
		snapshot(42, 2), snapshot(43, 1), snapshot(43, 3), snapshot(44, 3), snapshot(44, 1)))
	snap := func(step, n int64) trace.Snapshot {
		return trace.Snapshot{StepID: step, CoreID: fmt.Sprintf("r%d", n), Phase: "PREFILL", PromptTokens: 100 + n, ComputedTokens: 200 + n, ScheduledTokens: 300 + n}
	}
	snaps := []trace.Snapshot{snap(42, 1), snap(42, 2), snap(43, 1), snap(43, 3), snap(44, 3), snap(44, 1)}
	snaps[0].OutputTokens, snaps[0].Preemptions, snaps[0].BlocksAllocated, snaps[0].BlocksCached, snaps[0].EffectivePromptLen = 1, 2, 3, 4, some(5)
	if !reflect.DeepEqual(steps.Rows.Snaps, snaps) || len(steps.Rows.Steps) != 0 || steps.FirstStep != 40 || steps.LastStep != 44 || steps.Sequence != some(31) {
		t.Errorf("got %+v, steps %d to %d\nwant %+v", steps.Rows.Snaps, steps.FirstStep, steps.LastStep, snaps)
	}
	stock := spanOf(t, document("vllm.llm_engine", `"name":"llm_request","attributes":`+attributesOf("gen_ai.latency.e2e", 2.5, "gen_ai.latency.time_in_queue", 3)))
	if stock.Class != ClassStock || stock.Stock != (StockTimes{E2EUs: trace.Some(2.5e6), QueueUs: trace.Some(3e6)}) {
		t.Errorf("got %+v", stock)
	}
}

// TestAttributesAreOfOneEvent: an event has nothing of the one before, in the usual form and in any other.
func TestAttributesAreOfOneEvent(t *testing.T) {
	for _, key := range []string{"event.type", "extra"} {
		s := spanOf(t, document("vllm.scheduler", `"name":"llm_core"`, event(7, "journey.QUEUED", "ts.monotonic", 1.5, "scheduler.step", 3),
			event(8, "journey.FIRST_TOKEN", key, "FIRST_TOKEN", "ts.monotonic", 2.5), event(9, "journey.FINISHED", "ts.monotonic", 3.5)))
		if len(s.Journey) != 3 || len(s.Faults) != 0 || s.Journey[1].Step.OK || s.Journey[2].TsNs.V != 3500000000 {
			t.Errorf("%s: got %+v and %+v", key, s.Journey, s.Faults)
		}
	}
}

// TestFaultsOfEvents: what is said about an event that is dropped, and how many there were in a row.
func TestFaultsOfEvents(t *testing.T) {
	for _, c := range []struct {
		event string
		want  string
	}{
		{event(7, "journey.QUEUED"), "journey.QUEUED: attribute ts.monotonic is missing"},
		{event(7, "journey.QUEUED", "ts.monotonic", "x"), "journey.QUEUED: attribute ts.monotonic has another type"},
		{event(7, "journey.QUEUED", "ts.monotonic", 1.5, "ts.monotonic", 1.5), "journey.QUEUED: got the attribute ts.monotonic twice"},
		{event(7, "journey.QUEUED", "event.type", "FINISHED", "ts.monotonic", 1.5), "journey.QUEUED: event.type: got FINISHED, want QUEUED"},
		{event(7, "journey.QUEUED", "ts.monotonic", 1.5, "prefill.done_tokens", 8, "prefill.total_tokens", 7), "journey.QUEUED: prefill.done_tokens: got 8, want at most prefill.total_tokens, 7"},
		{event(7, "journey.QUEUED", "ts.monotonic", 1.5, "decode.done_tokens", 8, "decode.max_tokens", 7), "journey.QUEUED: decode.done_tokens: got 8, want at most decode.max_tokens, 7"},
		{event(7, "journey.QUEUED", "ts.monotonic", 1.5, "decode.done_tokens", 7, "decode.max_tokens", 7), ""},
		{event(7, "journey.QUEUED", "ts.monotonic", 1.5, "decode.done_tokens", 7), ""},
	} {
		s := spanOf(t, document("vllm.scheduler", `"name":"llm_core"`, c.event, c.event))
		got := ""
		for _, f := range s.Faults {
			got += f.Msg
			if f.N != 2 || f.Code != source.CodeBadRecord {
				t.Errorf("%s: got %+v", c.event, f)
			}
		}
		if got != c.want || s.Counts[JourneyQueued] != 2 || (len(s.Journey) == 2) != (c.want == "") {
			t.Errorf("%s:\ngot %q, want %q", c.event, got, c.want)
		}
	}
	// Faults of other events between them are not joined.
	a, b := event(7, "journey.QUEUED"), event(7, "journey.FINISHED")
	if s := spanOf(t, document("vllm.scheduler", `"name":"llm_core"`, a, b, a)); len(s.Faults) != 3 || s.Faults[2].N != 1 {
		t.Errorf("got %+v", s.Faults)
	}
	s := spanOf(t, document("vllm.scheduler.step", `"name":"scheduler_steps"`, event(7, "step.REQUEST_SNAPSHOT", "step.id", 3), event(7, "step.BATCH_SUMMARY", "step.id", 3), event(7, "api.ARRIVED")))
	if len(s.Faults) != 2 || s.Faults[0].Msg != "step.REQUEST_SNAPSHOT: attribute request.id is missing" || s.Faults[1].Msg != "step.BATCH_SUMMARY: attribute step.ts_start_ns is missing" {
		t.Errorf("got %+v", s.Faults)
	}
	summary := func(prompts int) string {
		return event(7, "step.BATCH_SUMMARY", "step.id", 3, "step.ts_start_ns", 10, "step.ts_end_ns", 20, "step.duration_us", 1, "queue.running_depth", 4, "queue.waiting_depth", 0,
			"batch.num_prefill_reqs", prompts, "batch.num_decode_reqs", 2, "batch.scheduled_tokens", 9, "batch.prefill_tokens", 7, "batch.decode_tokens", 2, "batch.num_finished", 0,
			"batch.num_preempted", 0, "kv.usage_gpu_ratio", 0.5, "kv.blocks_total_gpu", 8, "kv.blocks_free_gpu", 4)
	}
	for prompts, want := range map[int]string{3: "", 0: "step.BATCH_SUMMARY: batch: got 7 prompt tokens of 0 requests, 2 decode tokens of 2, 9 tokens in all, want counts that agree",
		5: "step.BATCH_SUMMARY: batch.num_prefill_reqs: got 5, want at most queue.running_depth, 4", 8: "step.BATCH_SUMMARY: batch.num_prefill_reqs: got 8, want at most batch.prefill_tokens, 7"} {
		s := spanOf(t, document("vllm.scheduler", `"name":"scheduler_steps","attributes":`+attributesOf("scheduler.span_sequence", 6), summary(prompts)))
		got := ""
		for _, f := range s.Faults {
			got += f.Msg
		}
		if got != want || want == "" && (len(s.Rows.Steps) != 1 || s.Rows.Steps[0].SpanSequence != 6 || s.FirstStep != 3 || s.LastStep != 3) {
			t.Errorf("%d prompts: got %q, want %q", prompts, got, want)
		}
	}
}

// TestBudgets: what a message's records may take by its size, and what each record takes of it.
func TestBudgets(t *testing.T) {
	b := newBuilder()
	for bytes, want := range map[int]int64{0: 16 << 20, 1000: 16<<20 + 3000, 80 << 20: 256 << 20, 79 << 20: 253 << 20} {
		if b.beginMessage(bytes); b.budget != want {
			t.Errorf("%d bytes: got %d, want %d", bytes, b.budget, want)
		}
	}
	b.budget = 0
	if b.isOverBudget() {
		t.Error("0 bytes are left, which is not over")
	}
	b.budget = -1
	if err := errOverBudget(7); !b.isOverBudget() || err.At != 7 || err.Code != source.CodeOverLimit ||
		err.Msg != "got a message whose records would take more than 16 MB and 3 times its size, want batches of fewer spans" {
		t.Errorf("got %+v", err)
	}
	takes := func(name string, want int64, add func()) {
		t.Helper()
		b.budget = 1 << 20
		if add(); 1<<20-b.budget != want {
			t.Errorf("%s: got %d bytes, want %d", name, 1<<20-b.budget, want)
		}
	}
	b.beginSpan()
	takes("a name", nameBytes, func() { b.addNamedEvent([]byte("x"), 1) })
	takes("the same name", 0, func() { b.addNamedEvent([]byte("x"), 1) })
	takes("another", nameBytes, func() { b.addNamedEvent([]byte("y"), 1) })
	b.ev.reset(noSlot)
	takes("a fault", faultBytes, func() { b.addEvent(APIArrived, 1) })
	takes("the same fault", 0, func() { b.addEvent(APIArrived, 1) })
	b.ev.storeFloat(apiTs, 1)
	takes("an event of the API", apiBytes, func() { b.addEvent(APIArrived, 1) })
	b.ev.reset(noSlot)
	b.ev.storeFloat(journeyTs, 1)
	takes("an event of a journey, which is copied", 2*journeyBytes, func() { b.addEvent(JourneyQueued, 1) })
	b.ev = *summary(nil)
	takes("a step", stepBytes, func() { b.addEvent(StepSummary, 1) })
	var out Batch
	takes("a span", spanBytes, func() { out.addSpan(&Span{Class: ClassAPI}, &b.budget) })
	foreign := &Span{Scope: "a", Others: []NamedCount{{"x", 2}, {"y", 3}}}
	foreign.Counts[APIArrived] = 4
	takes("a span that is not used, with three names", unusedBytes+3*nameBytes, func() { out.addSpan(foreign, &b.budget) })
	takes("one more", 3*nameBytes, func() { out.addSpan(foreign, &b.budget) })
	if u := out.Unused; len(u) != 1 || u[0].Spans != 2 || u[0].Records() != 2+2*9 {
		t.Errorf("got %+v", u)
	}
}

// TestBatches: lines of spans, of others and of replaced text, a message that is undone, and lines of a file.
func TestBatches(t *testing.T) {
	var out Batch
	d := NewDecoder()
	core := document("vllm.scheduler", `"name":"llm_core"`)
	other := document("app", `"name":"GET"`)
	add := func(text string, line int64, isKept bool) {
		t.Helper()
		out.Mark()
		err := d.Line([]byte(text), &out)
		switch {
		case (err == nil) != isKept:
			t.Errorf("%s: got %v", text, err)
		case isKept:
			out.Keep(line)
		default:
			out.Undo()
		}
	}
	add(core, 3, true)
	add(other, 4, true)
	add(core+other+other+"x", 5, false)
	add(strings.Replace(core, `"llm_core"`, "\"llm_core\",\"traceState\":\"\xff\"", 1), 6, true)
	add(strings.Replace(core, `"llm_core"`, `"llm_core","kind":"\ud800"`, 1), 7, true)
	add(`{"resourceMetrics":[]}{"resourceLogs":[],"resource_profiles":[]}`, 8, true)
	add(strings.Replace(other, "GET", "\xff", 1), 9, true) // no span is kept of it
	out.Number(100)
	var lines []int64
	for _, s := range out.Spans {
		lines = append(lines, s.Line)
	}
	var unused []int64
	for _, u := range out.Unused {
		unused = append(unused, u.Line)
	}
	if !slices.Equal(lines, []int64{103, 106, 107}) || !slices.Equal(unused, []int64{104, 109}) || !slices.Equal(out.Texts, []int64{106, 107}) ||
		!reflect.DeepEqual(out.Ignored, []Signals{{108, 3}}) {
		t.Errorf("got lines %v, unused %v, texts %v, ignored %v", lines, unused, out.Texts, out.Ignored)
	}
}

// TestProcesses: the resource attributes that tell processes apart, in JSON and in protobuf; others do not.
func TestProcesses(t *testing.T) {
	resourceOf := func(attributes string) uint64 {
		text := strings.Replace(document("vllm.scheduler", `"name":"llm_core"`), `"scopeSpans"`, `"resource":{"attributes":`+attributes+`},"scopeSpans"`, 1)
		return spanOf(t, text).Resource
	}
	protoOf := func(key, value string) uint64 {
		pair := field(1, field(1, key)+field(2, value))
		var out Batch
		text := field(1, field(1, pair)+field(2, field(1, field(1, "vllm.scheduler"))+field(2, field(5, "llm_core"))))
		if err := NewDecoder().Message([]byte(text), &out); err != nil || len(out.Spans) != 1 {
			t.Fatalf("got %d spans, %v", len(out.Spans), err)
		}
		return out.Spans[0].Resource
	}
	seen := map[uint64]string{noIdentity: "none"}
	for _, key := range []string{"service.name", "service.instance.id", "service.namespace", "host.name", "host.id", "process.pid", "k8s.pod.name", "container.id"} {
		got := resourceOf(attributesOf(key, "7"))
		if seen[got] != "" {
			t.Errorf("%s is as %s", key, seen[got])
		}
		seen[got] = key
		if number := resourceOf(attributesOf(key, 7)); number != got {
			t.Errorf("%s: the number 7 is not the text", key)
		}
		if protoOf(key, field(1, "7")) != got || protoOf(key, "\x18\x07") != got || protoOf(key, field(1, "8")) == got {
			t.Errorf("%s: protobuf has another", key)
		}
		if got := resourceOf(fmt.Sprintf(`[{"key":"%s","value":{"intValue":"7","boolValue":true}}]`, key)); got != noIdentity {
			t.Errorf("%s: a value of another type counts", key)
		}
	}
	if got := resourceOf(attributesOf("service.version", "7")); got != noIdentity {
		t.Error("service.version tells processes apart")
	}
}

// TestFaultsOfText: what is said about a text that cannot be read, and where.
func TestFaultsOfText(t *testing.T) {
	const core = `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.scheduler"},"spans":[{"name":"llm_core",`
	for _, c := range []struct {
		text, want string
		at         int
	}{
		{`  {"x":1}`, `got an object with the key "x", want resourceSpans`, 2},
		{core + `"traceId":"ab"}]}]}]}`, "got an id of 2 characters, want 32 hexadecimal digits", len(core) + len(`"traceId":`)},
		{core + `"spanId":"000000000000000x"}]}]}]}`, `got the id "000000000000000x", want 16 hexadecimal digits`, len(core) + len(`"spanId":`)},
		{`[` + core + `"spanId":"1"}]}]}]}]`, `got an id of 1 characters, want 16 hexadecimal digits`, 1 + len(core) + len(`"spanId":`)},
		{`{"trace":` + core + `"spanId":"1"}]}]}]}}`, `got an id of 1 characters, want 16 hexadecimal digits`, 9 + len(core) + len(`"spanId":`)},
		{core + `"events":[{"name":"journey.QUEUED","attributes":[{"key":"scheduler.step","value":{"intValue":"1.5"}}]}]}]}]}]}`, `scheduler.step: got "1.5", want an integer of 64 bits`, -1},
		{core + `"events":[{"name":"journey.QUEUED","attributes":[{"key":"other","value":{"intValue":"1.5"}}]}]}]}]}]}`, `got "1.5", want an integer of 64 bits`, -1},
		{core + `"events":[{"name":"journey.QUEUED","attributes":[{"key":"scheduler.step","value":{"intValue":true}}]}]}]}]}]}`, "scheduler.step: got 't', want an integer", -1},
		{`{"resourceSpans":[],"resource_spans":[]}`, `got the key "resource_spans" twice in one object`, -1},
	} {
		var out Batch
		err := NewDecoder().Line([]byte(c.text), &out)
		if err == nil || err.Msg != c.want || c.at >= 0 && err.At != c.at {
			t.Errorf("%s:\ngot %+v, want %q at %d", c.text, err, c.want, c.at)
		}
	}
	for _, c := range []struct {
		message, want string
		at            int
	}{
		{"\x0a\x03\x12\x05x", "got a field of 5 bytes, want at most the 1 that are left", 2},
		{"\x0a\x05\x12\x05x", "got a field of 5 bytes, want at most the 3 that are left", 0},
		{"\x0b", "got the wire type 3, want 0, 1, 2 or 5", 0},
		{"\x00\x01", "got the field number 0, want a positive one", 0},
		{"\xff", "got no whole varint of at most 10 bytes", 0},
		{"\x10\xff", "got no whole varint of at most 10 bytes", 0},
		{"\x08\x01", "got field 1 with the wire type 0, want 2", 0},
		{field(1, field(2, field(2, field(1, "12345")))), "got an id of 5 bytes, want 16", 6},
		{field(1, field(2, field(2, field(2, "12345")))), "got an id of 5 bytes, want 8", 6},
		{field(1, field(2, field(2, field(2, "1")))), "got an id of 1 bytes, want 8", 6},
		{field(1, field(2, field(2, field(2, "")+field(2, "12345678")))), "", 0},
	} {
		var out Batch
		err := NewDecoder().Message([]byte(c.message), &out)
		if c.want == "" && err == nil {
			continue
		}
		if err == nil || err.Msg != c.want || err.At != c.at {
			t.Errorf("%q: got %+v, want %q at %d", c.message, err, c.want, c.at)
		}
	}
}
