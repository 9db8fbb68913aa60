package otlp

import (
	"math/bits"
	"regexp"
	"strings"
	"testing"
)

// TestKeysOfTheirOwn: of the keys that are read each has one bit, in both spellings, and no other key has it.
func TestKeysOfTheirOwn(t *testing.T) {
	seen := knownKey(0)
	for _, key := range []string{"key", "value", "intValue", "doubleValue", "stringValue", "boolValue", "arrayValue", "kvlistValue", "bytesValue",
		"stringValueStrindex", "name", "timeUnixNano", "attributes", "events", "traceId", "spanId", "parentSpanId", "startTimeUnixNano", "endTimeUnixNano",
		"droppedEventsCount", "resourceSpans", "resource", "scopeSpans", "scope", "spans"} {
		bit := keyOf([]byte(key))
		if bits.OnesCount32(uint32(bit)) != 1 || seen&bit != 0 {
			t.Errorf("%s: got the bits %b, with %b before", key, bit, seen)
		}
		seen |= bit
		snake := regexp.MustCompile("[A-Z]").ReplaceAllStringFunc(key, func(s string) string { return "_" + strings.ToLower(s) })
		if got := keyOf([]byte(snake)); got != bit {
			t.Errorf("%s: got the bits %b, want those of %s", snake, got, key)
		}
	}
}

// TestRepeatedKeys: JSON does not define which of two values of one key counts. An event or span
// with such a key is dropped with a reason; an object around many spans makes the line unreadable.
func TestRepeatedKeys(t *testing.T) {
	const doc = `{"resourceSpans":[{"resource":{"attributes":[]},"scopeSpans":[{"scope":{"name":"vllm.scheduler"},"spans":[{` +
		`"traceId":"b64e72c5037530df5c3c8c2e350a8d1b","spanId":"0000000000000001","name":"llm_core","startTimeUnixNano":"5",` +
		`"endTimeUnixNano":"9","attributes":[{"key":"gen_ai.request.id","value":{"stringValue":"r"}}],"events":[` +
		`{"timeUnixNano":"7","name":"journey.QUEUED","attributes":[{"key":"ts.monotonic_ns","value":{"intValue":"70"}},` +
		`{"key":"scheduler.step","value":{"intValue":"3"}}]}]}]}]}]}`
	for _, c := range []struct{ old, twice, in string }{
		{``, ``, "kept"},
		{`"startTimeUnixNano":"5"`, `"startTimeUnixNano":"5","start_time_unix_nano":"6"`, "span"},
		{`{"key":"gen_ai.request.id"`, `{"key":"gen_ai.request.id","value":{"stringValue":"q"}},{"key":"gen_ai.request.id"`, "span"},
		{`"value":{"stringValue":"r"}`, `"value":{"stringValue":"r"},"value":{"stringValue":"s"}`, "span"},
		{`{"timeUnixNano":"7",`, `{"timeUnixNano":"7","timeUnixNano":"8",`, "event"},
		{`{"key":"scheduler.step"`, `{"key":"ts.monotonic_ns","value":{"intValue":"71"}},{"key":"scheduler.step"`, "event"},
		{`{"key":"scheduler.step"`, `{"key":"ts.monotonic_ns","extra":1,"value":{"intValue":"71"}},{"key":"scheduler.step"`, "event"},
		{`{"intValue":"3"}`, `{"intValue":"3","int_value":"4"}`, "event"},
		{`"scope":{"name":"vllm.scheduler"}`, `"scope":{"name":"vllm.scheduler","name":"x"}`, "line"},
		{`"resource":{"attributes":[]},`, `"resource":{"attributes":[]},"resource":{},`, "line"},
		{`{"resourceSpans":[`, `{"resourceSpans":[],"resourceSpans":[`, "line"},
	} {
		got, words := "kept", ""
		spans, err := decoded(parseJSON, []byte(strings.Replace(doc, c.old, c.twice, 1)))
		switch {
		case err != nil:
			got, words = "line", err.Msg
		case spans[0].Bad != "":
			got, words = "span", spans[0].Bad
		case len(spans[0].Faults) > 0:
			got, words = "event", "twice"
		}
		if got != c.in || got != "kept" && !strings.Contains(words, "twice") {
			t.Errorf("%s: got %s (%s), want %s", c.twice, got, words, c.in)
		}
	}
}
