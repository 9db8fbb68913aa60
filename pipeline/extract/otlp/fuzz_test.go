package otlp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/blis-train/blis-train/pipeline/extract/otlp/otlptest"
	"github.com/blis-train/blis-train/pipeline/extract/scan"
	"github.com/blis-train/blis-train/trace"
)

// decoded is what a reader kept of one message, without what differs by design:
// the content's hash and the words of a fault.
func decoded(run func([]byte, *builder, *Message) *scan.Error, data []byte) ([]Span, *scan.Error) {
	var out Message
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
func smallLines() []string {
	life := otlptest.Life(2e7, 6)
	return []string{
		otlptest.Line("a", otlptest.API(1, "cmpl-1", 1e7, 5e7, otlptest.Int("gen_ai.request.n", 2),
			otlptest.Float("gen_ai.request.temperature", 0.7))),
		otlptest.Line("a", otlptest.Core(1, 0, "cmpl-1-0-aaaaaaaa", life[:2])),
		otlptest.Line("a", otlptest.Core(1, 0, "cmpl-1-0-aaaaaaaa", life[3:])),
		otlptest.Line("a", otlptest.StepSpan(1, 1, 10, otlptest.Summary(6, 2e7, true))),
		otlptest.Line("a", otlptest.StepSpan(2, 11, 20, otlptest.Snapshot(12, "cmpl-1-0-aaaaaaaa", 0, 4))),
		otlptest.Line("", otlptest.Stock(7, "cmpl-7-0")),
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
}

// pairLine is a dump of one QUEUED event with one attribute.
func pairLine(pair string) string {
	return `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.scheduler"},"spans":[{"name":"llm_core","events":[{"name":"journey.QUEUED","attributes":[` + pair + `]}]}]}]}]}`
}

// FuzzJSON: on a line of JSON, both readers keep the same or both refuse it,
// and the fast one takes nothing that is not JSON. Where the reference is no
// guide, only the second half counts: keys that repeat or are empty (it takes
// the empty one for the end of the object), null in place of a number (an error
// to it, the default to us), escapes in ids and base64, the names of before OTLP 0.15, which it does not
// know, and nesting beyond our bound. An object of unknown keys alone is no
// dump to us.
func FuzzJSON(f *testing.F) {
	for _, line := range smallLines() {
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
	fast, errFast := decoded(fastParser{}.Json, data)
	if errFast != nil && (errFast.At < 0 || errFast.At > len(data)) {
		t.Errorf("error outside the text: byte %d of %d", errFast.At, len(data))
	}
	if errFast == nil && !manyValid(data) {
		t.Errorf("%q: the fast reader took what is not JSON", data)
	}
	ref, errRef := decoded(pdataParser{}.Json, data)
	if !comparable(data) {
		return
	}
	if errRef == nil != (errFast == nil) {
		t.Errorf("%q:\nfast %v\npdata %v", data, errFast, errRef)
	}
	if errFast == nil && errRef == nil && !same(fast, ref) {
		t.Errorf("%q:\nfast %s\npdata %s", data, render(fast), render(ref))
	}
	if _, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data); err == nil && errFast != nil && json.Valid(data) && data[0] == '{' &&
		!strings.Contains(errFast.Msg, "want resourceSpans") {
		t.Errorf("%q: the fast reader refuses (%v) what the bare reference takes", data, errFast)
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
	if !ok || depth > scan.MaxDepth/4 {
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

// FuzzProto: both readers keep the same of a message, or both refuse it. What
// the bare reference takes is refused for deep nesting alone, and for proto2
// groups: OTLP has none, and the reference takes a group's fields for the
// message's own.
func FuzzProto(f *testing.F) {
	for _, line := range smallLines() {
		if msg := otlptest.Proto([]byte(line)); len(msg) > 0 {
			f.Add(msg)
			f.Add(msg[:len(msg)*2/3])
		}
	}
	f.Fuzz(checkProto)
}

func checkProto(t *testing.T, data []byte) {
	fast, errFast := decoded(fastParser{}.proto, data)
	ref, errRef := decoded(pdataParser{}.proto, data)
	if errFast != nil && (errFast.At < 0 || errFast.At > len(data)) {
		t.Errorf("error outside the message: byte %d of %d", errFast.At, len(data))
	}
	if _, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data); err == nil && errFast != nil &&
		!strings.Contains(errFast.Msg, "nested") && !strings.Contains(errFast.Msg, "want 0, 1, 2 or 5") {
		t.Errorf("%x: the fast reader refuses (%v) what the bare reference takes", data, errFast)
	}
	if errFast == nil != (errRef == nil) {
		t.Errorf("%x:\nfast %v\npdata %v", data, errFast, errRef)
	}
	if errFast == nil && errRef == nil && !same(fast, ref) {
		t.Errorf("%x:\nfast %s\npdata %s", data, render(fast), render(ref))
	}
}
