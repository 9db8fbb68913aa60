package otlptest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// span is a span of a dump, with its attributes and those of its events as text.
type span struct {
	scope, name, trace, id, parent, start, end string
	attrs                                      map[string]string
	events                                     []event
}

type event struct {
	name, wall string
	attrs      map[string]string
}

type keyValue struct {
	Key   string
	Value map[string]any
}

func textOf(list []keyValue) map[string]string {
	out := map[string]string{}
	for _, kv := range list {
		for _, v := range kv.Value {
			text, _ := json.Marshal(v)
			out[kv.Key] = strings.Trim(string(text), `"`)
		}
	}
	return out
}

// spansOf reads a line of a dump.
func spansOf(t *testing.T, line string) (service string, spans []span) {
	t.Helper()
	var dump struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []keyValue }
			ScopeSpans []struct {
				Scope struct{ Name string }
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name string
					StartTimeUnixNano, EndTimeUnixNano  string
					Attributes                          []keyValue
					Events                              []struct {
						TimeUnixNano, Name string
						Attributes         []keyValue
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(line), &dump); err != nil {
		t.Fatal(err)
	}
	for _, r := range dump.ResourceSpans {
		service = textOf(r.Resource.Attributes)["service.name"]
		for _, sc := range r.ScopeSpans {
			for _, s := range sc.Spans {
				one := span{sc.Scope.Name, s.Name, strings.TrimLeft(s.TraceID, "0"), strings.TrimLeft(s.SpanID, "0"), strings.TrimLeft(s.ParentSpanID, "0"),
					s.StartTimeUnixNano, s.EndTimeUnixNano, textOf(s.Attributes), nil}
				for _, e := range s.Events {
					one.events = append(one.events, event{e.Name, e.TimeUnixNano, textOf(e.Attributes)})
				}
				spans = append(spans, one)
			}
		}
	}
	return service, spans
}

// TestRequest: request 3 begins at 0.3 s with step 7. Its two steps last 10 ms each and the recorded work of a step
// 0.4 ms; it arrives 2 ms before its first step and departs 20 ms after it.
func TestRequest(t *testing.T) {
	service, got := spansOf(t, Request(3))
	const id = "cmpl-3-0-aaaaaaaa"
	journey := func(name, wall, mono, seconds, step, done string, more ...string) event {
		e := event{"journey." + name, wall, map[string]string{"event.type": name, "ts.monotonic": seconds, "ts.monotonic_ns": mono,
			"scheduler.step": step, "prefill.total_tokens": "4", "decode.done_tokens": done, "decode.max_tokens": "2", "num_preemptions": "0"}}
		for i := 0; i < len(more); i += 2 {
			e.attrs[more[i]] = more[i+1]
		}
		return e
	}
	step := func(wall, id, start, end, prefills, decodes, tokens, prefill, decode string) event {
		return event{"step.BATCH_SUMMARY", wall, map[string]string{"step.id": id, "step.ts_start_ns": start, "step.ts_end_ns": end,
			"step.duration_us": "400", "queue.running_depth": "1", "queue.waiting_depth": "0", "batch.num_prefill_reqs": prefills,
			"batch.num_decode_reqs": decodes, "batch.scheduled_tokens": tokens, "batch.prefill_tokens": prefill, "batch.decode_tokens": decode,
			"batch.num_finished": "0", "batch.num_preempted": "0", "kv.usage_gpu_ratio": "0.25", "kv.blocks_total_gpu": "100", "kv.blocks_free_gpu": "75"}}
	}
	want := []span{
		{"vllm.scheduler", "llm_core", "3", "302", "301", "1771362150299000000", "1771362150319000000",
			map[string]string{"gen_ai.request.id": id}, []event{
				journey("QUEUED", "1771362150299000000", "299000000", "0.299", "6", "0"),
				journey("SCHEDULED", "1771362150300100000", "300100000", "0.3001", "7", "0", "schedule.kind", "FIRST"),
				journey("FIRST_TOKEN", "1771362150309000000", "309000000", "0.309", "7", "1"),
				journey("FINISHED", "1771362150319000000", "319000000", "0.319", "8", "2", "finish.status", "length"),
			}},
		{"vllm.api", "llm_request", "3", "301", "", "1771362150298000000", "1771362150320000000",
			map[string]string{"gen_ai.request.id": "cmpl-3", "http.route": "/v1/completions", "gen_ai.usage.prompt_tokens": "4"}, []event{
				{"api.ARRIVED", "1771362150298000000", map[string]string{"event.ts.monotonic": "0.298"}},
				{"api.DEPARTED", "1771362150320000000", map[string]string{"event.ts.monotonic": "0.32"}},
			}},
		{"vllm.scheduler.step", "scheduler_steps_4", "10000000004", "10000000004", "", "1771362150000000000", "1771362150000000007",
			map[string]string{"scheduler.span_sequence": "4", "scheduler.step_range_start": "7", "scheduler.closure_interval": "10",
				"scheduler.step_range_end": "8"}, []event{
				step("1771362150300500000", "7", "300000000", "300400000", "1", "0", "4", "4", "0"),
				step("1771362150310500000", "8", "310000000", "310400000", "0", "1", "1", "0", "1"),
			}},
	}
	if service != "engine" || len(got) != len(want) {
		t.Fatalf("got %d spans of %q", len(got), service)
	}
	for i := range want {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("got %+v\nwant %+v", got[i], want[i])
		}
	}
}

// TestOtherSpans: the span of unmodified vLLM, a snapshot, a further sample of a request and more attributes of an API span.
func TestOtherSpans(t *testing.T) {
	service, got := spansOf(t, Line("stock", Stock(5, "cmpl-5"), StepSpan(1, 2, 3, Snapshot(2, "core", 16, 8)),
		Core(5, 1, "cmpl-5-1", []Journey{{Name: "QUEUED", Ns: 1e6, step: 9}}), API(5, "cmpl-5", 1e6, 4e6, Int("n", 2))))
	stock := span{"vllm.llm_engine", "llm_request", "5", "5", "", "1771362150000000000", "1771362150300000000", map[string]string{
		"gen_ai.request.id": "cmpl-5", "gen_ai.usage.prompt_tokens": "40", "gen_ai.usage.completion_tokens": "3",
		"gen_ai.latency.time_to_first_token": "0.1", "gen_ai.latency.e2e": "0.3", "gen_ai.latency.time_in_queue": "0.01",
		"gen_ai.latency.time_in_model_prefill": "0.08"}, nil}
	if service != "stock" || !reflect.DeepEqual(got[0], stock) {
		t.Errorf("got %q, %+v\nwant %+v", service, got[0], stock)
	}
	snapshot := []event{{"step.REQUEST_SNAPSHOT", "1771362150000000002", map[string]string{"step.id": "2", "request.id": "core",
		"request.phase": "PREFILL", "request.num_prompt_tokens": "4", "request.num_computed_tokens": "16", "request.num_output_tokens": "0",
		"request.num_preemptions": "0", "request.scheduled_tokens_this_step": "8", "kv.blocks_allocated_gpu": "1", "kv.blocks_cached_gpu": "0"}}}
	if !reflect.DeepEqual(got[1].events, snapshot) {
		t.Errorf("got %+v\nwant %+v", got[1].events, snapshot)
	}
	if got[2].id != "503" || got[2].parent != "501" || got[3].id != "501" || got[3].attrs["n"] != "2" {
		t.Errorf("got %+v", got[2:])
	}
}

// TestForms: a line reads back from its frame, its compressed and its protobuf form.
func TestForms(t *testing.T) {
	line := []byte(Request(1))
	if got := Framed([]byte("abc")); !slices.Equal(got, []byte{0, 0, 0, 3, 'a', 'b', 'c'}) {
		t.Errorf("got %v", got)
	}
	r, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := r.DecodeAll(Compress(line), nil); err != nil || !slices.Equal(got, line) {
		t.Errorf("got %q and %v", got, err)
	}
	var u ptrace.ProtoUnmarshaler
	traces, err := u.UnmarshalTraces(Proto(line))
	if err != nil || traces.SpanCount() != 3 {
		t.Errorf("got %d spans and %v", traces.SpanCount(), err)
	}
	if got := Proto([]byte("no OTLP")); got != nil {
		t.Errorf("got %q", got)
	}
}
