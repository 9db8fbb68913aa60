// Package otlptest writes small trace dumps for tests: OTLP/JSON as the collector writes it, small
// enough to be read in a failure, and the compressed and protobuf forms of it.
package otlptest

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Str returns a key with a text.
func Str(key, value string) string {
	return fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, key, value)
}

// Int returns a key with an integer.
func Int(key string, value int64) string {
	return fmt.Sprintf(`{"key":%q,"value":{"intValue":"%d"}}`, key, value)
}

// Float returns a key with a double.
func Float(key string, value float64) string {
	return fmt.Sprintf(`{"key":%q,"value":{"doubleValue":%s}}`, key, strconv.FormatFloat(value, 'f', -1, 64))
}

// Event returns an event of a span.
func Event(name string, wallNs int64, attrs ...string) string {
	return fmt.Sprintf(`{"timeUnixNano":"%d","name":%q,"attributes":[%s]}`, wallNs, name, strings.Join(attrs, ","))
}

// Span is a span to write; ids are given by their last digits.
type Span struct {
	Scope, Name       string
	Trace, ID, Parent int64
	StartNs, EndNs    int64 // wall
	Attrs, Events     []string
}

// JSON returns the span as a dump has it.
func (s Span) JSON() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"traceId":"%032x","spanId":"%016x",`, s.Trace, s.ID)
	if s.Parent != 0 {
		fmt.Fprintf(&b, `"parentSpanId":"%016x",`, s.Parent)
	}
	fmt.Fprintf(&b, `"flags":256,"name":%q,"kind":1,"startTimeUnixNano":"%d","endTimeUnixNano":"%d",`, s.Name,
		s.StartNs, s.EndNs)
	fmt.Fprintf(&b, `"attributes":[%s],"events":[%s],"status":{}}`, strings.Join(s.Attrs, ","),
		strings.Join(s.Events, ","))
	return b.String()
}

// Line returns one line of a dump with the spans, each in a scope of its own.
func Line(service string, spans ...Span) string {
	var scopes []string
	for _, s := range spans {
		scopes = append(scopes, fmt.Sprintf(`{"scope":{"name":%q},"spans":[%s]}`, s.Scope, s.JSON()))
	}
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[%s]},"scopeSpans":[%s]}]}`,
		Str("service.name", service), strings.Join(scopes, ","))
}

// WallNs returns the wall clock of a monotonic stamp.
func WallNs(monoNs int64) int64 { return 1_771_362_150_000_000_000 + monoNs }

// API returns the API span of request n.
func API(n int64, id string, arrivedNs, departedNs int64, attrs ...string) Span {
	seconds := func(ns int64) string { return Float("event.ts.monotonic", float64(ns)/1e9) }
	return Span{
		Scope: "vllm.api", Name: "llm_request", Trace: n, ID: n<<8 | 1, StartNs: WallNs(arrivedNs), EndNs: WallNs(departedNs),
		Attrs: append([]string{Str("gen_ai.request.id", id), Str("http.route", "/v1/completions"),
			Int("gen_ai.usage.prompt_tokens", 4)},
			attrs...),
		Events: []string{
			Event("api.ARRIVED", WallNs(arrivedNs), seconds(arrivedNs)),
			Event("api.DEPARTED", WallNs(departedNs), seconds(departedNs)),
		},
	}
}

// Journey is one journey event to write.
type Journey struct {
	Name    string
	Ns      int64
	step    int64
	decoded int64
	extra   []string
}

// JSON returns the event as a dump has it.
func (j Journey) JSON() string {
	attrs := []string{
		Str("event.type", j.Name), Float("ts.monotonic", float64(j.Ns)/1e9), Int("ts.monotonic_ns", j.Ns),
		Int("scheduler.step", j.step),
		Int("prefill.total_tokens", 4), Int("decode.done_tokens", j.decoded), Int("decode.max_tokens", 2),
		Int("num_preemptions", 0),
	}
	return Event("journey."+j.Name, WallNs(j.Ns), append(attrs, j.extra...)...)
}

// Life returns the journey of a request that runs in two steps from step first,
// steps of 10 ms that begin at startNs.
func Life(startNs, first int64) []Journey {
	return []Journey{
		{Name: "QUEUED", Ns: startNs - 1e6, step: first - 1},
		{Name: "SCHEDULED", Ns: startNs + 1e5, step: first, extra: []string{Str("schedule.kind", "FIRST")}},
		{Name: "FIRST_TOKEN", Ns: startNs + 9e6, step: first, decoded: 1},
		{Name: "FINISHED", Ns: startNs + 19e6, step: first + 1, decoded: 2,
			extra: []string{Str("finish.status", "length")}},
	}
}

// Core returns the core span of sample k of request n. Its parent is the API span of n.
func Core(n, k int64, id string, life []Journey) Span {
	s := Span{
		Scope: "vllm.scheduler", Name: "llm_core", Trace: n, ID: n<<8 | 2 + k, Parent: n<<8 | 1,
		StartNs: WallNs(life[0].Ns), EndNs: WallNs(life[len(life)-1].Ns), Attrs: []string{Str("gen_ai.request.id", id)},
	}
	for _, j := range life {
		s.Events = append(s.Events, j.JSON())
	}
	return s
}

// Summary returns the BATCH_SUMMARY of a step with a batch of one request.
func Summary(id, startNs int64, isPrefill bool) string {
	prefill := int64(0)
	decode := int64(1)
	tokens := int64(1)
	if isPrefill {
		prefill = 1
		decode = 0
		tokens = 4
	}
	return Event("step.BATCH_SUMMARY", WallNs(startNs+5e5),
		Int("step.id", id), Int("step.ts_start_ns", startNs), Int("step.ts_end_ns",
			startNs+4e5), Int("step.duration_us", 400),
		Int("queue.running_depth", 1), Int("queue.waiting_depth", 0), Int("batch.num_prefill_reqs", prefill),
		Int("batch.num_decode_reqs", decode),
		Int("batch.scheduled_tokens", tokens), Int("batch.prefill_tokens",
			tokens*prefill), Int("batch.decode_tokens", decode),
		Int("batch.num_finished", 0), Int("batch.num_preempted", 0),
		Float("kv.usage_gpu_ratio", 0.25), Int("kv.blocks_total_gpu", 100), Int("kv.blocks_free_gpu", 75))
}

// Snapshot returns a REQUEST_SNAPSHOT of a step.
func Snapshot(step int64, core string, computed, tokens int64) string {
	return Event("step.REQUEST_SNAPSHOT", WallNs(step),
		Int("step.id", step), Str("request.id", core), Str("request.phase", "PREFILL"),
		Int("request.num_prompt_tokens", 4),
		Int("request.num_computed_tokens", computed), Int("request.num_output_tokens",
			0), Int("request.num_preemptions", 0),
		Int("request.scheduled_tokens_this_step", tokens), Int("kv.blocks_allocated_gpu",
			1), Int("kv.blocks_cached_gpu", 0))
}

// StepSpan returns a span scheduler_steps_<seq> with the events.
func StepSpan(seq, from, to int64, events ...string) Span {
	return Span{
		Scope: "vllm.scheduler.step", Name: fmt.Sprintf("scheduler_steps_%d", seq), Trace: 1<<40 | seq, ID: 1<<40 | seq,
		StartNs: WallNs(0), EndNs: WallNs(from),
		Attrs: []string{
			Int("scheduler.span_sequence", seq), Int("scheduler.step_range_start", from),
			Int("scheduler.closure_interval", 10), Int("scheduler.step_range_end", to),
		},
		Events: events,
	}
}

// Stock returns the span of a request as unmodified vLLM writes it.
func Stock(n int64, id string) Span {
	return Span{
		Scope: "vllm.llm_engine", Name: "llm_request", Trace: n, ID: n, StartNs: WallNs(0), EndNs: WallNs(3e8),
		Attrs: []string{
			Str("gen_ai.request.id", id), Int("gen_ai.usage.prompt_tokens",
				40), Int("gen_ai.usage.completion_tokens", 3),
			Float("gen_ai.latency.time_to_first_token", 0.1), Float("gen_ai.latency.e2e", 0.3),
			Float("gen_ai.latency.time_in_queue", 0.01),
			Float("gen_ai.latency.time_in_model_prefill", 0.08),
		},
	}
}

// Request returns a line of a dump with request n alone: its API and core
// span and a step span with its two steps.
func Request(n int64) string {
	start := n * 1e8
	return Line("engine",
		Core(n, 0, fmt.Sprintf("cmpl-%d-0-aaaaaaaa", n), Life(start, 2*n+1)),
		API(n, fmt.Sprintf("cmpl-%d", n), start-2e6, start+2e7),
		StepSpan(n+1, 2*n+1, 2*n+2, Summary(2*n+1, start, true), Summary(2*n+2, start+1e7, false)))
}

// encoder is made once: it takes longer to make than to write a frame of a test.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // options of our own
	}
	return enc
})

// Compress returns the text as one zstd frame.
func Compress(text []byte) []byte { return encoder().EncodeAll(text, nil) }

// Framed returns the text after its length in 4 bytes, big-endian.
func Framed(text []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// Proto returns a line of OTLP/JSON as protobuf, as the collector writes it; nil if the line is not
// OTLP.
func Proto(line []byte) []byte {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(line)
	if err != nil {
		return nil
	}
	var m ptrace.ProtoMarshaler
	b, _ := m.MarshalTraces(t)
	return b
}
