package extract

import (
	"fmt"
	"strconv"
	"strings"
)

// The builders below write OTLP/JSON as the collector does, small enough to
// read in a failure and to mutate quickly.

func strAttr(key, value string) string {
	return fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, key, value)
}

func intAttr(key string, value int64) string {
	return fmt.Sprintf(`{"key":%q,"value":{"intValue":"%d"}}`, key, value)
}

func floatAttr(key string, value float64) string {
	return fmt.Sprintf(`{"key":%q,"value":{"doubleValue":%s}}`, key, strconv.FormatFloat(value, 'f', -1, 64))
}

func eventJSON(name string, wallNs int64, attrs ...string) string {
	return fmt.Sprintf(`{"timeUnixNano":"%d","name":%q,"attributes":[%s]}`, wallNs, name, strings.Join(attrs, ","))
}

// spanText is a span to write; ids are given by their last digits.
type spanText struct {
	scope, name       string
	trace, id, parent int64
	startNs, endNs    int64 // wall
	attrs, events     []string
	dropped           int64
}

func (s spanText) json() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"traceId":"%032x","spanId":"%016x",`, s.trace, s.id)
	if s.parent != 0 {
		fmt.Fprintf(&b, `"parentSpanId":"%016x",`, s.parent)
	}
	fmt.Fprintf(&b, `"flags":256,"name":%q,"kind":1,"startTimeUnixNano":"%d","endTimeUnixNano":"%d",`, s.name, s.startNs, s.endNs)
	fmt.Fprintf(&b, `"attributes":[%s],"events":[%s],`, strings.Join(s.attrs, ","), strings.Join(s.events, ","))
	if s.dropped != 0 {
		fmt.Fprintf(&b, `"droppedEventsCount":%d,`, s.dropped)
	}
	b.WriteString(`"status":{}}`)
	return b.String()
}

// lineOf is one line of a dump: the spans, each in a scope of its own.
func lineOf(service string, spans ...spanText) string {
	var scopes []string
	for _, s := range spans {
		scopes = append(scopes, fmt.Sprintf(`{"scope":{"name":%q},"spans":[%s]}`, s.scope, s.json()))
	}
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[%s]},"scopeSpans":[%s]}]}`, strAttr("service.name", service), strings.Join(scopes, ","))
}

// wallNs is the wall clock of a monotonic reading in these dumps.
func wallNs(monoNs int64) int64 { return 1_771_362_150_000_000_000 + monoNs }

func apiSpan(n int64, id string, arrivedNs, departedNs int64, attrs ...string) spanText {
	seconds := func(ns int64) string { return floatAttr("event.ts.monotonic", float64(ns)/1e9) }
	return spanText{scope: "vllm.api", name: "llm_request", trace: n, id: n<<8 | 1, startNs: wallNs(arrivedNs), endNs: wallNs(departedNs),
		attrs:  append([]string{strAttr("gen_ai.request.id", id), strAttr("http.route", "/v1/completions"), intAttr("gen_ai.usage.prompt_tokens", 4)}, attrs...),
		events: []string{eventJSON("api.ARRIVED", wallNs(arrivedNs), seconds(arrivedNs)), eventJSON("api.DEPARTED", wallNs(departedNs), seconds(departedNs))}}
}

// journeyText is one journey event to write.
type journeyText struct {
	name     string
	ns, step int64
	decoded  int64
	extra    []string
}

func (j journeyText) json() string {
	attrs := []string{strAttr("event.type", j.name), floatAttr("ts.monotonic", float64(j.ns)/1e9), intAttr("ts.monotonic_ns", j.ns),
		intAttr("scheduler.step", j.step), intAttr("prefill.total_tokens", 4), intAttr("decode.done_tokens", j.decoded), intAttr("decode.max_tokens", 2), intAttr("num_preemptions", 0)}
	return eventJSON("journey."+j.name, wallNs(j.ns), append(attrs, j.extra...)...)
}

// lifeOf is the journey of a request that runs in two steps from step first,
// steps of 10 ms that begin at startNs.
func lifeOf(startNs, first int64) []journeyText {
	return []journeyText{
		{name: "QUEUED", ns: startNs - 1e6, step: first - 1},
		{name: "SCHEDULED", ns: startNs + 1e5, step: first, extra: []string{strAttr("schedule.kind", "FIRST")}},
		{name: "FIRST_TOKEN", ns: startNs + 9e6, step: first, decoded: 1},
		{name: "FINISHED", ns: startNs + 19e6, step: first + 1, decoded: 2, extra: []string{strAttr("finish.status", "length")}},
	}
}

// coreSpan is sample k of request n; the parent is the API span of n.
func coreSpan(n, k int64, id string, life []journeyText) spanText {
	s := spanText{scope: "vllm.scheduler", name: "llm_core", trace: n, id: n<<8 | 2 + k, parent: n<<8 | 1,
		startNs: wallNs(life[0].ns), endNs: wallNs(life[len(life)-1].ns), attrs: []string{strAttr("gen_ai.request.id", id)}}
	for _, j := range life {
		s.events = append(s.events, j.json())
	}
	return s
}

// stepText is one step to write: a summary of a batch of one request, which is
// a prefill when first is set.
type stepText struct {
	id, startNs int64
	prefill     bool
}

func (s stepText) json() string {
	prefill, decode, tokens := int64(0), int64(1), int64(1)
	if s.prefill {
		prefill, decode, tokens = 1, 0, 4
	}
	return eventJSON("step.BATCH_SUMMARY", wallNs(s.startNs+5e5), intAttr("step.id", s.id), intAttr("step.ts_start_ns", s.startNs), intAttr("step.ts_end_ns", s.startNs+4e5),
		intAttr("step.duration_us", 400), intAttr("queue.running_depth", 1), intAttr("queue.waiting_depth", 0), intAttr("batch.num_prefill_reqs", prefill),
		intAttr("batch.num_decode_reqs", decode), intAttr("batch.scheduled_tokens", tokens), intAttr("batch.prefill_tokens", tokens*prefill), intAttr("batch.decode_tokens", decode),
		intAttr("batch.num_finished", 0), intAttr("batch.num_preempted", 0), floatAttr("kv.usage_gpu_ratio", 0.25), intAttr("kv.blocks_total_gpu", 100), intAttr("kv.blocks_free_gpu", 75))
}

func snapshotJSON(step int64, core string, computed, tokens int64) string {
	return eventJSON("step.REQUEST_SNAPSHOT", wallNs(step), intAttr("step.id", step), strAttr("request.id", core), strAttr("request.phase", "PREFILL"),
		intAttr("request.num_prompt_tokens", 4), intAttr("request.num_computed_tokens", computed), intAttr("request.num_output_tokens", 0), intAttr("request.num_preemptions", 0),
		intAttr("request.scheduled_tokens_this_step", tokens), intAttr("kv.blocks_allocated_gpu", 1), intAttr("kv.blocks_cached_gpu", 0))
}

// stepSpan is scheduler_steps_<seq> over the events.
func stepSpan(seq, from, to int64, events ...string) spanText {
	return spanText{scope: "vllm.scheduler.step", name: fmt.Sprintf("scheduler_steps_%d", seq), trace: 1<<40 | seq, id: 1<<40 | seq, startNs: wallNs(0), endNs: wallNs(from),
		attrs: []string{intAttr("scheduler.span_sequence", seq), intAttr("scheduler.step_range_start", from), intAttr("scheduler.closure_interval", 10), intAttr("scheduler.step_range_end", to)}, events: events}
}

func stockSpan(n int64, id string) spanText {
	return spanText{scope: "vllm.llm_engine", name: "llm_request", trace: n, id: n, startNs: wallNs(0), endNs: wallNs(3e8),
		attrs: []string{strAttr("gen_ai.request.id", id), intAttr("gen_ai.usage.prompt_tokens", 40), intAttr("gen_ai.usage.completion_tokens", 3), floatAttr("gen_ai.latency.time_to_first_token", 0.1),
			floatAttr("gen_ai.latency.e2e", 0.3), floatAttr("gen_ai.latency.time_in_queue", 0.01), floatAttr("gen_ai.latency.time_in_model_prefill", 0.08)}}
}
