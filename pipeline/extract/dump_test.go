package extract

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Dumps of tests: OTLP/JSON as the collector writes it, small enough to read in a failure, and its other forms.

// otlpStr is a key with a text.
func otlpStr(key, value string) string {
	return fmt.Sprintf(`{"key":%q,"value":{"stringValue":%q}}`, key, value)
}

// otlpInt is a key with an integer.
func otlpInt(key string, value int64) string {
	return fmt.Sprintf(`{"key":%q,"value":{"intValue":"%d"}}`, key, value)
}

// otlpFloat is a key with a double.
func otlpFloat(key string, value float64) string {
	return fmt.Sprintf(`{"key":%q,"value":{"doubleValue":%s}}`, key, strconv.FormatFloat(value, 'f', -1, 64))
}

// otlpEvent is an event of a span.
func otlpEvent(name string, wallNs int64, attrs ...string) string {
	return fmt.Sprintf(`{"timeUnixNano":"%d","name":%q,"attributes":[%s]}`, wallNs, name, strings.Join(attrs, ","))
}

// otlpSpan is a span to write; ids are given by their last digits.
type otlpSpan struct {
	Scope, Name       string
	Trace, ID, Parent int64
	StartNs, EndNs    int64 // wall
	Attrs, Events     []string
}

// JSON is the span as it stands in a dump.
func (s otlpSpan) JSON() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"traceId":"%032x","spanId":"%016x",`, s.Trace, s.ID)
	if s.Parent != 0 {
		fmt.Fprintf(&b, `"parentSpanId":"%016x",`, s.Parent)
	}
	fmt.Fprintf(&b, `"flags":256,"name":%q,"kind":1,"startTimeUnixNano":"%d","endTimeUnixNano":"%d",`, s.Name, s.StartNs, s.EndNs)
	fmt.Fprintf(&b, `"attributes":[%s],"events":[%s],"status":{}}`, strings.Join(s.Attrs, ","), strings.Join(s.Events, ","))
	return b.String()
}

// otlpLine is one line of a dump: the spans, each in a scope of its own.
func otlpLine(service string, spans ...otlpSpan) string {
	var scopes []string
	for _, s := range spans {
		scopes = append(scopes, fmt.Sprintf(`{"scope":{"name":%q},"spans":[%s]}`, s.Scope, s.JSON()))
	}
	return fmt.Sprintf(`{"resourceSpans":[{"resource":{"attributes":[%s]},"scopeSpans":[%s]}]}`,
		otlpStr("service.name", service), strings.Join(scopes, ","))
}

// otlpWallNs is the wall clock of a monotonic stamp.
func otlpWallNs(monoNs int64) int64 { return 1_771_362_150_000_000_000 + monoNs }

// otlpAPI is the API span of request n.
func otlpAPI(n int64, id string, arrivedNs, departedNs int64, attrs ...string) otlpSpan {
	seconds := func(ns int64) string { return otlpFloat("event.ts.monotonic", float64(ns)/1e9) }
	return otlpSpan{
		Scope: "vllm.api", Name: "llm_request", Trace: n, ID: n<<8 | 1, StartNs: otlpWallNs(arrivedNs), EndNs: otlpWallNs(departedNs),
		Attrs: append([]string{otlpStr("gen_ai.request.id", id), otlpStr("http.route", "/v1/completions"),
			otlpInt("gen_ai.usage.prompt_tokens", 4)},
			attrs...),
		Events: []string{
			otlpEvent("api.ARRIVED", otlpWallNs(arrivedNs), seconds(arrivedNs)),
			otlpEvent("api.DEPARTED", otlpWallNs(departedNs), seconds(departedNs)),
		},
	}
}

// otlpJourney is one journey event to write.
type otlpJourney struct {
	Name    string
	Ns      int64
	step    int64
	decoded int64
	extra   []string
}

// JSON is the event as it stands in a dump.
func (j otlpJourney) JSON() string {
	attrs := []string{
		otlpStr("event.type", j.Name), otlpFloat("ts.monotonic", float64(j.Ns)/1e9), otlpInt("ts.monotonic_ns", j.Ns),
		otlpInt("scheduler.step", j.step),
		otlpInt("prefill.total_tokens", 4), otlpInt("decode.done_tokens", j.decoded), otlpInt("decode.max_tokens", 2),
		otlpInt("num_preemptions", 0),
	}
	return otlpEvent("journey."+j.Name, otlpWallNs(j.Ns), append(attrs, j.extra...)...)
}

// otlpLife is the journey of a request that runs in two steps from step first,
// steps of 10 ms that begin at startNs.
func otlpLife(startNs, first int64) []otlpJourney {
	return []otlpJourney{
		{Name: "QUEUED", Ns: startNs - 1e6, step: first - 1},
		{Name: "SCHEDULED", Ns: startNs + 1e5, step: first, extra: []string{otlpStr("schedule.kind", "FIRST")}},
		{Name: "FIRST_TOKEN", Ns: startNs + 9e6, step: first, decoded: 1},
		{Name: "FINISHED", Ns: startNs + 19e6, step: first + 1, decoded: 2, extra: []string{otlpStr("finish.status", "length")}},
	}
}

// otlpCore is sample k of request n; the parent is the API span of n.
func otlpCore(n, k int64, id string, life []otlpJourney) otlpSpan {
	s := otlpSpan{
		Scope: "vllm.scheduler", Name: "llm_core", Trace: n, ID: n<<8 | 2 + k, Parent: n<<8 | 1,
		StartNs: otlpWallNs(life[0].Ns), EndNs: otlpWallNs(life[len(life)-1].Ns), Attrs: []string{otlpStr("gen_ai.request.id", id)},
	}
	for _, j := range life {
		s.Events = append(s.Events, j.JSON())
	}
	return s
}

// otlpSummary is the BATCH_SUMMARY of a step with a batch of one request.
func otlpSummary(id, startNs int64, isPrefill bool) string {
	prefill := int64(0)
	decode := int64(1)
	tokens := int64(1)
	if isPrefill {
		prefill = 1
		decode = 0
		tokens = 4
	}
	return otlpEvent("step.BATCH_SUMMARY", otlpWallNs(startNs+5e5),
		otlpInt("step.id", id), otlpInt("step.ts_start_ns", startNs), otlpInt("step.ts_end_ns", startNs+4e5), otlpInt("step.duration_us", 400),
		otlpInt("queue.running_depth", 1), otlpInt("queue.waiting_depth", 0), otlpInt("batch.num_prefill_reqs", prefill),
		otlpInt("batch.num_decode_reqs", decode),
		otlpInt("batch.scheduled_tokens", tokens), otlpInt("batch.prefill_tokens", tokens*prefill), otlpInt("batch.decode_tokens", decode),
		otlpInt("batch.num_finished", 0), otlpInt("batch.num_preempted", 0),
		otlpFloat("kv.usage_gpu_ratio", 0.25), otlpInt("kv.blocks_total_gpu", 100), otlpInt("kv.blocks_free_gpu", 75))
}

// otlpSnapshot is a REQUEST_SNAPSHOT of a step.
func otlpSnapshot(step int64, core string, computed, tokens int64) string {
	return otlpEvent("step.REQUEST_SNAPSHOT", otlpWallNs(step),
		otlpInt("step.id", step), otlpStr("request.id", core), otlpStr("request.phase", "PREFILL"),
		otlpInt("request.num_prompt_tokens", 4),
		otlpInt("request.num_computed_tokens", computed), otlpInt("request.num_output_tokens", 0), otlpInt("request.num_preemptions", 0),
		otlpInt("request.scheduled_tokens_this_step", tokens), otlpInt("kv.blocks_allocated_gpu", 1), otlpInt("kv.blocks_cached_gpu", 0))
}

// otlpStepSpan is scheduler_steps_<seq> over the events.
func otlpStepSpan(seq, from, to int64, events ...string) otlpSpan {
	return otlpSpan{
		Scope: "vllm.scheduler.step", Name: fmt.Sprintf("scheduler_steps_%d", seq), Trace: 1<<40 | seq, ID: 1<<40 | seq,
		StartNs: otlpWallNs(0), EndNs: otlpWallNs(from),
		Attrs: []string{
			otlpInt("scheduler.span_sequence", seq), otlpInt("scheduler.step_range_start", from),
			otlpInt("scheduler.closure_interval", 10), otlpInt("scheduler.step_range_end", to),
		},
		Events: events,
	}
}

// otlpStock is the span of a request as unmodified vLLM writes it.
func otlpStock(n int64, id string) otlpSpan {
	return otlpSpan{
		Scope: "vllm.llm_engine", Name: "llm_request", Trace: n, ID: n, StartNs: otlpWallNs(0), EndNs: otlpWallNs(3e8),
		Attrs: []string{
			otlpStr("gen_ai.request.id", id), otlpInt("gen_ai.usage.prompt_tokens", 40), otlpInt("gen_ai.usage.completion_tokens", 3),
			otlpFloat("gen_ai.latency.time_to_first_token", 0.1), otlpFloat("gen_ai.latency.e2e", 0.3),
			otlpFloat("gen_ai.latency.time_in_queue", 0.01),
			otlpFloat("gen_ai.latency.time_in_model_prefill", 0.08),
		},
	}
}

// otlpRequest is a line of a dump that holds request n alone: its API and core
// span and a step span with its two steps.
func otlpRequest(n int64) string {
	start := n * 1e8
	return otlpLine("engine",
		otlpCore(n, 0, fmt.Sprintf("cmpl-%d-0-aaaaaaaa", n), otlpLife(start, 2*n+1)),
		otlpAPI(n, fmt.Sprintf("cmpl-%d", n), start-2e6, start+2e7),
		otlpStepSpan(n+1, 2*n+1, 2*n+2, otlpSummary(2*n+1, start, true), otlpSummary(2*n+2, start+1e7, false)))
}

// encoder is made once: it takes longer to make than to write a frame of a test.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err) // options of our own
	}
	return enc
})

// otlpCompress is text as one zstd frame.
func otlpCompress(text []byte) []byte { return encoder().EncodeAll(text, nil) }

// otlpFramed is text behind its length as 4 bytes, big-endian.
func otlpFramed(text []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
}

// otlpProto turns a line of OTLP/JSON into protobuf as the collector writes it; nil
// when the line is no OTLP.
func otlpProto(line []byte) []byte {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(line)
	if err != nil {
		return nil
	}
	var m ptrace.ProtoMarshaler
	b, _ := m.MarshalTraces(t)
	return b
}

// damaged is an entry of corrupted/expected.json.
type damaged struct {
	Good       *content `json:"good_records"`
	BadLine    int64    `json:"bad_line"`
	BadMessage int64    `json:"bad_message"`
	Duplicates *content `json:"duplicates"`
	Should     string   `json:"should"`
}

// accepted are the damaged inputs that are read without any complaint.
var accepted = map[string]bool{
	"blank_lines.json": true, "bomb_many_lines.json.zst": true, "concatenated_frames.json.zst": true, "crlf.json": true,
	"line_split_over_rotation/": true, "no_final_newline.json": true, "not_traces.json": true, "pretty_printed.json": true,
	"single_line_30mb.json.zst": true, "skippable_frame.json.zst": true, "snake_case.json": true, "two_lines_glued.json": true,
	"unquoted_ints.json": true, "utf8_bom.json": true, "wrong_extension.json": true, "wrong_extension.json.zst": true,
	"zero_length_message.pb": true,
	"duplicate_export.json":  true, "duplicate_conflicting.json": true, "nul_tail.json": true, "invalid_utf8.json": true,
	"lone_surrogate.json": true,
	"empty.json":          true, "only_newlines.json": true,
}

// slow are inputs that expand to gigabytes. bomb_legacy.pb.zst does too, and is always tried.
var slow = map[string]bool{"bomb_many_lines.json.zst": true, "bomb_one_line.json.zst": true}

func testCorrupted(t *testing.T, dir string) int {
	b := repo.Read(t, dir, "expected.json")
	var doc struct {
		Files map[string]damaged `json:"files"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range doc.Files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Run("corrupted/"+strings.TrimSuffix(name, "/"), func(t *testing.T) {
			if slow[name] {
				repo.NeedEval(t)
				t.Parallel()
			}
			testDamaged(t, filepath.Join(dir, name), name, doc.Files[name])
		})
	}
	return len(names)
}

func testDamaged(t *testing.T, path, name string, want damaged) {
	files := []string{path}
	if strings.HasSuffix(name, "/") {
		files = dumpFiles(t, path)
	}
	doc, _, err := dumpRun(t, files, nil)
	if want.Good != nil && len(want.Good.Spans) == 0 {
		wantNoSpans(t, err, name)
		return
	}
	if err != nil {
		t.Fatalf("got %v, want the good records (%s)", err, want.Should)
	}
	spans, events := spanCounts(doc)
	if want.Good != nil {
		all := content{Spans: map[string]int64{}, Events: map[string]int64{}}
		merge(all.Spans, want.Good.Spans)
		merge(all.Events, want.Good.Events)
		if want.Duplicates != nil {
			merge(all.Spans, want.Duplicates.Spans)
			merge(all.Events, want.Duplicates.Events)
			n := int64(0)
			for _, c := range want.Duplicates.Spans {
				n += c
			}
			diff(t, "duplicate spans", n, doc.Totals.Losses.DuplicateSpans)
		}
		if name == "duplicate_conflicting.json" {
			if doc.Runs[0].Records.Dropped[string(codeConflict)] == 0 {
				t.Error("the conflict is not reported")
			}
		} else {
			diff(t, "spans", all.Spans, spans)
			diff(t, "events", all.Events, events)
		}
	}
	lost := doc.Totals.Records.Dropped[string(source.CodeUnreadable)] + doc.Totals.Records.Dropped[string(source.CodeOverLimit)]
	switch {
	case accepted[name] && lost > 0:
		t.Errorf("got complaints %v, want none (%s)", doc.Runs[0].Examples, want.Should)
	case !accepted[name] && lost == 0 && name != "flipped_byte.pb":
		t.Errorf("got no complaint, want one (%s)", want.Should)
	}
	if at := max(want.BadLine, want.BadMessage); at > 0 && lost > 0 {
		for _, e := range doc.Runs[0].Examples {
			if source.ByError[e.Reason] {
				wantPlace(t, e.Place, name, at)
				break
			}
		}
	}
}

// wantPlace checks that the first example names the file and the line or message.
func wantPlace(t *testing.T, place, name string, line int64) {
	t.Helper()
	e := trace.SyntaxError{File: filepath.Base(name), Line: line}
	prefix := strings.TrimSuffix(e.Error(), ": ")
	if place != prefix && !strings.HasPrefix(place, prefix+":") {
		t.Errorf("got the place %s, want %s", place, prefix)
	}
}

func wantNoSpans(t *testing.T, err error, name string) {
	t.Helper()
	if trace.CodeOf(err) != codeNoInput || !strings.Contains(err.Error(), filepath.Base(name)) {
		t.Errorf("got %v, want %s naming %s", err, codeNoInput, name)
	}
}

// testEdge compares the attributes of the edge.values scope inside the reader;
// its spans are skipped from the tables.
func testEdge(t *testing.T, files []string, want content) {
	if want.EdgeInts == nil {
		return
	}
	got := edgeValues(t, files)
	for k, v := range want.EdgeInts {
		if got.ints[k] != v {
			t.Errorf("edge %s: got %q, want %q", k, got.ints[k], v)
		}
	}
	for k, v := range want.EdgeStrings {
		if g, ok := got.strs[k]; !ok || g != v {
			t.Errorf("edge %s: got %q, want %q", k, g, v)
		}
	}
	for k, v := range want.EdgeDoubles {
		if f, ok := v.(float64); ok && got.floats[k] != f {
			t.Errorf("edge %s: got %v, want %v", k, got.floats[k], f)
		}
	}
}

// edge is what the low-level readers decode of one span's attributes.
type edge struct {
	ints, strs map[string]string
	floats     map[string]float64
}

// edgeValues walks the dump with the readers' own primitives and collects the
// attributes of the edge.values scope.
func edgeValues(t *testing.T, files []string) edge {
	t.Helper()
	out := edge{map[string]string{}, map[string]string{}, map[string]float64{}}
	err := source.Stream(context.Background(), inReadingOrder(asInputs(files)),
		source.Options{Workers: 1, Limits: source.Limits{MaxLine: 1 << 27, MaxExpansion: 20000}},
		func() source.Decoder[*otlpMessage] { return edgeParser{&out} }, func(*source.Parsed[*otlpMessage]) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func asInputs(files []string) []source.Input {
	var in []source.Input
	for _, f := range files {
		in = append(in, source.Input{Path: f, Name: filepath.Base(f)})
	}
	return in
}

// readAll reads every run of an output folder, sorted by id.
func readAll(out string) ([]*trace.Run, error) {
	ids, err := table.RunIDs(out)
	if err != nil {
		return nil, err
	}
	runs := make([]*trace.Run, len(ids))
	for i, id := range ids {
		if runs[i], err = table.Read(table.RunDir(out, id)); err != nil {
			return nil, err
		}
	}
	return runs, nil
}
