package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// decoded is what a reader kept of one message, without what differs by design:
// the content's hash and the words of a fault.
func decoded(run func([]byte, *builder, *Batch) *source.Error, data []byte) ([]Span, *source.Error) {
	var out Batch
	if err := run(bytes.Clone(data), newBuilder(), &out); err != nil {
		return nil, err
	}
	spans := make([]Span, len(out.Spans))
	for i, s := range out.Spans {
		spans[i] = *s
		spans[i].Hash = 0
		if s.Rows != nil {
			spans[i].Rows = &StepRows{append([]trace.Step(nil), s.Rows.Steps...), append([]trace.Snapshot(nil), s.Rows.Snaps...)}
		}
		for k := range spans[i].Faults {
			spans[i].Faults[k].Msg = ""
		}
	}
	for _, u := range out.Unused {
		spans = append(spans, Span{Scope: u.Scope, Name: u.Name, Sequence: trace.Some(u.Spans), Others: u.Events})
	}
	return spans, nil
}

// render writes spans for comparison and for the reader of a failure.
func render(spans []Span) string {
	var b strings.Builder
	for i := range spans {
		s := spans[i]
		rows := s.Rows
		s.Rows = nil // an address
		fmt.Fprintf(&b, "%+v\n", s)
		if rows != nil {
			fmt.Fprintf(&b, "rows %+v\n", *rows)
		}
	}
	return b.String()
}

// same compares decoded spans; a missing list equals an empty one.
func same(a, b []Span) bool { return reflect.DeepEqual(a, b) || render(a) == render(b) }

// smallLines are lines of OTLP/JSON, one or two spans each: every kind of span
// and attribute, and every way of writing them.
func smallLines(t testing.TB) []string {
	out := []string{
		// forms of values, of attributes nobody reads and of one somebody does
		pairLine(`{"key":"num_preemptions","value":{"intValue":3}}`), pairLine(`{"key":"num_preemptions","value":{"int_value":"-3"}}`),
		pairLine(`{"key":"num_preemptions","value":{"intValue":"9223372036854775808"}}`), pairLine(`{"key":"ts.monotonic","value":{"doubleValue":"NaN"}}`),
		pairLine(`{"key":"ts.monotonic","value":{"doubleValue":1.5e-3}}`), pairLine(`{"key":"ts.monotonic","value":{"intValue":"12"}}`),
		pairLine(`{"key":"ts.monotonic","value":{"stringValue":"12"}}`), pairLine(`{"key":"phase","value":{"boolValue":true}}`),
		pairLine(`{"key":"x","value":{"bytesValue":"3q0="}}`), pairLine(`{"key":"x","value":{"stringValueStrindex":2}}`), pairLine(`{"key":"phase","value":{}}`),
		pairLine(`{"key":"x","value":{"arrayValue":{"values":[{"intValue":"1"},{"stringValue":"b"},{}]}}}`),
		pairLine(`{"key":"x","value":{"kvlistValue":{"values":[{"key":"y","value":{"doubleValue":2}}]}}}`),
		pairLine(`{"value":{"stringValue":"PREFILL"},"key":"phase"}`), pairLine(`{"key":"phase","value":{"stringValue":"a","intValue":"1"}}`),
		pairLine(`{"key":"phase","value":null}`), pairLine(`{"key":"ph\u0061se","value":{"stringValue":"\ud83d\ude00\ud83d \"\\\/\b\f\n\r\t"}}`),
		pairLine(`{"key":"x","value":` + strings.Repeat(`{"arrayValue":{"values":[`, 12) + strings.Repeat(`]}}`, 12) + `}`),
		// forms of messages
		`{"resource_spans":[{"scope_spans":[{"spans":[{"trace_id":"374E6EE57C92377D5D2DF595574DAC92","span_id":"","parent_span_id":"0a5d2f346baa9455","name":"llm_core","kind":"SPAN_KIND_INTERNAL","start_time_unix_nano":1771362150002000000,"end_time_unix_nano":18446744073709551615}],"scope":{"name":"vllm.scheduler"}}]}]}`,
		`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"a"}},{"key":"process.pid","value":{"intValue":"7"}}],"droppedAttributesCount":1,"entityRefs":[{"type":"t","idKeys":["a"]}]},"scopeSpans":[{"scope":{"name":"s","version":"1","attributes":[{}]},"schemaUrl":"u","spans":[{"name":"n","traceState":"a=b","flags":256,"kind":3,"droppedEventsCount":2,"droppedAttributesCount":"1","droppedLinksCount":0,"links":[{"traceId":"","spanId":"0a5d2f346baa9455","attributes":[],"flags":1}],"status":{"code":"STATUS_CODE_ERROR","message":"m"}}]}],"schemaUrl":""}]}`,
		`{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.api"},"spans":[{"name":"llm_request","events":[{"attributes":[{"key":"event.ts.monotonic","value":{"doubleValue":1}}],"droppedAttributesCount":1,"name":"api.ARRIVED","timeUnixNano":"1"},{"name":"other"},{}]}]}]}]}`,
		`{"resourceSpans":[],"unknown":[1,-0.5e+3,true,false,null,"\u00e9",{"a":{}}]}`, `{"resourceSpans":[{"scopeSpans":[],"resource":{}},{}]}`, `{"resourceSpans":null}`, `{}`, ` {} {} `, ``,
		`{"resourceMetrics":[{"scopeMetrics":[]}]}`, `{"id":"1","status":200}`, `{"resourceLogs":[]}{"resourceSpans":[]}`, "{\"resourceSpans\":[]}\x00", `{"resourceSpans":[{"resourceSpans":[]}],"resourceSpans":[]}`,
	}
	for _, line := range testLines(t) {
		out = append(out, string(line))
	}
	return out
}

// pairLine is a dump of one QUEUED event with one attribute.
func pairLine(pair string) string {
	return `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.scheduler"},"spans":[{"name":"llm_core","events":[{"name":"journey.QUEUED","attributes":[` + pair + `]}]}]}]}]}`
}

// reference reads every object of a text with OpenTelemetry's own JSON decoder.
func reference(text []byte, b *builder, out *Batch) *source.Error {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var document json.RawMessage
		if err := dec.Decode(&document); err == io.EOF {
			return nil
		} else if err != nil || document[0] != '{' {
			return &source.Error{Msg: fmt.Sprintf("no object: %v", err)}
		}
		var u ptrace.JSONUnmarshaler
		t, err := u.UnmarshalTraces(document)
		if err != nil {
			return &source.Error{Msg: err.Error()}
		}
		referenceTraces(t, b, out)
	}
}

// FuzzJSON: our reader takes what OpenTelemetry's takes, keeps the same of it, and
// takes nothing that is not JSON. It may take more, since it does not look into fields
// that nobody reads. Where the reference is no guide, only the last holds: keys that
// repeat or are empty (it takes the empty one for the end of the object), escapes in
// ids and base64, the names of before OTLP 0.15, which it does not know, and nesting
// beyond our bound. An object of unknown keys alone is no dump to us.
func FuzzJSON(f *testing.F) {
	for _, line := range smallLines(f) {
		f.Add([]byte(line))
		f.Add([]byte(line[:len(line)*2/3]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.IndexByte(data, '\n') >= 0 {
			return
		}
		checkJSON(t, data)
	})
}

func checkJSON(t *testing.T, data []byte) {
	t.Helper()
	got, err := decoded(parseJSON, data)
	if err != nil && (err.At < 0 || err.At > len(data)) {
		t.Errorf("error outside the text: byte %d of %d", err.At, len(data))
	}
	if err == nil && !manyValid(data) {
		t.Errorf("%q: taken, and is not JSON", data)
	}
	checkSpaced(t, data, got, err)
	want, errRef := decoded(reference, data)
	switch {
	case errRef != nil || !comparable(data):
	case err == nil && !same(got, want):
		t.Errorf("%q:\ngot %s\nreference %s", data, render(got), render(want))
	case err != nil && !strings.Contains(err.Msg, "want resourceSpans"):
		t.Errorf("%q: refused (%v), the reference takes it", data, err)
	}
}

// checkSpaced: with white space between all tokens, which the readers of the usual form refuse, the same is kept of a text,
// or the same fault found.
func checkSpaced(t *testing.T, data []byte, want []Span, errWant *source.Error) {
	t.Helper()
	var spaced bytes.Buffer
	if json.Indent(&spaced, data, "", " ") != nil {
		return
	}
	got, err := decoded(parseJSON, spaced.Bytes())
	switch {
	case (err == nil) != (errWant == nil) || err != nil && err.Msg != errWant.Msg:
		t.Errorf("%q: got %v, with white space %v", data, errWant, err)
	case err == nil && !same(got, want):
		t.Errorf("%q:\ngot %s\nwith white space %s", data, render(want), render(got))
	}
}

// comparable reports that the reference is a guide for data.
func comparable(data []byte) bool {
	if !utf8.Valid(data) {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	for dec.More() {
		if err := guided(dec, data, 0); err != nil {
			return err != errUnguided // broken text is a guide: both must refuse it
		}
	}
	return true
}

// raw are the keys whose text the reference reads as it stands, escapes and all.
var raw = map[string]bool{"traceid": true, "spanid": true, "parentspanid": true, "bytesvalue": true}

var errUnguided = errors.New("the reference is no guide")

// guided walks one value.
func guided(dec *json.Decoder, data []byte, depth int) error {
	tok, err := dec.Token()
	if err != nil {
		return err
	}
	d, ok := tok.(json.Delim)
	if !ok && tok != nil {
		return nil
	}
	if !ok || depth > source.MaxDepth/4 {
		return errUnguided
	}
	seen := map[string]bool{}
	name := ""
	for dec.More() {
		if d == '{' {
			k, err := dec.Token()
			if err != nil {
				return err
			}
			name = strings.ToLower(strings.ReplaceAll(k.(string), "_", ""))
			if seen[name] || name == "" || strings.HasPrefix(name, "instrumentationlibrary") || strings.HasPrefix(name, "deprecated") {
				return errUnguided
			}
			seen[name] = true
		}
		from := dec.InputOffset()
		if err := guided(dec, data, depth+1); err != nil {
			return err
		}
		if raw[name] && bytes.IndexByte(data[from:dec.InputOffset()], '\\') >= 0 {
			return errUnguided
		}
	}
	_, err = dec.Token()
	return err
}

// manyValid reports that data is a sequence of JSON values.
func manyValid(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	for dec.More() {
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return false
		}
	}
	return true
}

// FuzzProto: our reader takes what OpenTelemetry's decoder takes, except for deep nesting, proto2
// groups and varints beyond 64 bits, and keeps the same of it.
func FuzzProto(f *testing.F) {
	for _, line := range smallLines(f) {
		if msg := otlptest.Proto([]byte(line)); len(msg) > 0 {
			f.Add(msg)
			f.Add(msg[:len(msg)*2/3])
		}
	}
	f.Fuzz(checkProto)
}

// referenceProto reads a message with OpenTelemetry's own decoder.
func referenceProto(data []byte, b *builder, out *Batch) *source.Error {
	var u ptrace.ProtoUnmarshaler
	t, err := u.UnmarshalTraces(data)
	if err != nil {
		return &source.Error{Msg: err.Error()}
	}
	referenceTraces(t, b, out)
	return nil
}

// referenceTraces adds the spans of a decoded message to the batch.
func referenceTraces(t ptrace.Traces, b *builder, out *Batch) {
	for _, rs := range t.ResourceSpans().All() {
		var id identity
		for k, v := range rs.Resource().Attributes().All() {
			if v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeInt {
				id.set(k, []byte(v.AsString()))
			}
		}
		resource := id.hash()
		for _, ss := range rs.ScopeSpans().All() {
			for _, sp := range ss.Spans().All() {
				s := referenceSpan(sp, ss.Scope().Name(), b)
				s.Resource = resource
				out.addSpan(s, &b.budget)
			}
		}
	}
}

// referenceSpan converts one decoded span.
func referenceSpan(sp ptrace.Span, scope string, b *builder) *Span {
	b.beginSpan()
	s := b.cur
	s.TraceID, s.SpanID, s.Parent = sp.TraceID(), sp.SpanID(), sp.ParentSpanID()
	s.StartNs, s.EndNs = b.clampNs(uint64(sp.StartTimestamp())), b.clampNs(uint64(sp.EndTimestamp()))
	s.DroppedEvents = int64(sp.DroppedEventsCount())
	referenceMap(sp.Attributes(), &b.sp)
	for _, e := range sp.Events().All() {
		name := []byte(e.Name())
		b.ev.reset(noSlot)
		if known, ok := eventByName[string(name)]; ok {
			b.ev.next = firstSlot[known]
		}
		referenceMap(e.Attributes(), &b.ev)
		b.addNamedEvent(name, b.clampNs(uint64(e.Timestamp())))
	}
	return b.endSpan(scope, b.intern([]byte(sp.Name())))
}

// referenceMap stores the attributes of a span or event that have slots.
func referenceMap(m pcommon.Map, a *attrs) {
	for k, v := range m.All() {
		s := a.find([]byte(k))
		switch v.Type() {
		case pcommon.ValueTypeInt:
			a.store(s, wantInt, v.Int(), nil)
		case pcommon.ValueTypeDouble:
			a.storeFloat(s, v.Double())
		case pcommon.ValueTypeStr:
			a.store(s, wantText, 0, []byte(v.Str()))
		case pcommon.ValueTypeEmpty:
		default:
			a.store(s, wantOther, 0, nil)
		}
	}
}

func checkProto(t *testing.T, data []byte) {
	t.Helper()
	got, err := decoded(parseProto, data)
	if err != nil && (err.At < 0 || err.At > len(data)) {
		t.Errorf("error outside the message: byte %d of %d", err.At, len(data))
	}
	if err != nil && (strings.Contains(err.Msg, "nested") || strings.Contains(err.Msg, "want 0, 1, 2 or 5") ||
		strings.Contains(err.Msg, "varint")) {
		return
	}
	want, errRef := decoded(referenceProto, data)
	switch {
	case (err == nil) != (errRef == nil):
		t.Errorf("%x: got the error %v, the reference has %v", data, err, errRef)
	case err == nil && !same(got, want):
		t.Errorf("%x:\ngot %s\nreference %s", data, render(got), render(want))
	}
}

// TestRoundTripThroughProtobuf: JSON and protobuf of the same spans decode alike.
func TestRoundTripThroughProtobuf(t *testing.T) {
	for _, line := range testLines(t) {
		fromJSON, err := decoded(parseJSON, line)
		if err != nil {
			t.Fatal(err)
		}
		fromProto, err := decoded(parseProto, otlptest.Proto(line))
		if err != nil {
			t.Fatal(err)
		}
		if !same(fromJSON, fromProto) {
			t.Errorf("JSON %s\nprotobuf %s", render(fromJSON), render(fromProto))
		}
		checkJSON(t, line)
	}
}

func testLines(t testing.TB) [][]byte {
	t.Helper()
	var out [][]byte
	for _, name := range []string{"smoke.json", "edge.json", "stock.json"} {
		b := repo.Read(t, "testdata", name)
		out = append(out, bytes.Split(bytes.TrimSpace(b), source.Newline)...)
	}
	return out
}

// TestReadersAgreeOnRecordings: on lines of real dumps our JSON reader keeps what OpenTelemetry's keeps.
func TestReadersAgreeOnRecordings(t *testing.T) {
	lines := 0
	for _, name := range []string{"smoke/traces.jsonl", "collector_formats/json/traces.json", "real_vllm_cpu/gqa-overflow/traces.jsonl.zst"} {
		f, err := os.Open(repo.Shared(t, "data", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		in := io.Reader(f)
		if filepath.Ext(name) == ".zst" {
			z, err := zstd.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			in = z
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			checkJSON(t, bytes.TrimRight(line, "\n"))
			lines++
		}
	}
	if lines < 100 {
		t.Errorf("got %d lines, want 100 or more", lines)
	}
}

// BenchmarkProto reads the spans of a real recording as protobuf, beside OpenTelemetry's decoder.
func BenchmarkProto(b *testing.B) {
	text, err := os.ReadFile(repo.Shared(b, "data", "smoke", "traces.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	var messages [][]byte
	size := 0
	for line := range bytes.Lines(text) {
		msg := otlptest.Proto(line)
		messages = append(messages, msg)
		size += len(msg)
	}
	for name, read := range map[string]func([]byte, *builder, *Batch) *source.Error{"own": parseProto, "pdata": referenceProto} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(size))
			b.ReportAllocs()
			builder := newBuilder()
			for range b.N {
				for _, msg := range messages {
					var out Batch
					if err := read(msg, builder, &out); err != nil {
						b.Fatal(err)
					}
					out.Free()
				}
			}
		})
	}
}

// storeFloat sets slot s to a float.
func (a *attrs) storeFloat(s slot, v float64) {
	a.store(s, wantFloat, int64(math.Float64bits(v)), nil)
}
