package otlp

import (
	"strings"
	"testing"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// repeatedSpans is a message with so many times the same span.
func repeatedSpans(scope, span string, n int) string {
	return `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"` + scope + `"},"spans":[` +
		strings.TrimSuffix(strings.Repeat(span+",", n), ",") + `]}]}]}`
}

// field is a protobuf field with a length.
func field(number int, content string) string {
	n := len(content)
	out := []byte{byte(number<<3 | wireBytes)}
	for ; n > 127; n >>= 7 {
		out = append(out, byte(n)|0x80)
	}
	return string(append(out, byte(n))) + content
}

// TestRecordsOfAMessageAreBounded: repeated spans and events that no table needs take no memory, whatever
// their number; a message whose other records would take many times its size is refused.
func TestRecordsOfAMessageAreBounded(t *testing.T) {
	const n = 150_000
	core := func(events string) string {
		return repeatedSpans("vllm.scheduler", `{"name":"llm_core","events":[`+strings.TrimSuffix(events, ",")+`]}`, 1)
	}
	proto := func(spans string) string { return field(1, field(2, field(1, field(1, "vllm.scheduler"))+spans)) }
	for _, c := range []struct {
		name, text string
		isProto    bool
		records    int64 // counted; 0: refused
		kept       int   // entries in memory
	}{
		{"empty spans", repeatedSpans("vllm.scheduler", `{}`, n), false, n, 1},
		{"foreign spans", repeatedSpans("app", `{"name":"GET","events":[{"name":"a"},{"name":"a"}]}`, n), false, 3 * n, 1},
		{"empty events", core(strings.Repeat(`{},`, n)), false, n + 1, 1},
		{"broken events", core(strings.Repeat(`{"name":"journey.QUEUED"},`, n)), false, n + 1, 1},
		{"two names of spans in turn", repeatedSpans("app", `{"name":"a"},{"name":"b"}`, n), false, 0, 0},
		{"core spans without content", repeatedSpans("vllm.scheduler", `{"name":"llm_core"}`, n), false, 0, 0},
		{"protobuf: empty spans", proto(strings.Repeat(field(2, ""), n)), true, n, 1},
		{"protobuf: empty events", proto(field(2, field(5, "llm_core")+strings.Repeat(field(11, ""), n))), true, n + 1, 1},
		{"protobuf: core spans without content", proto(strings.Repeat(field(2, field(5, "llm_core")), n)), true, 0, 0},
	} {
		var out Batch
		d := NewDecoder()
		read := d.Line
		if c.isProto {
			read = d.Message
		}
		out.Mark()
		err := read([]byte(c.text), &out)
		if c.records == 0 {
			out.Undo()
			if err == nil || err.Code != source.CodeOverLimit || len(out.Spans)+len(out.Unused) > 0 {
				t.Errorf("%s: got %v, want over_limit and nothing kept", c.name, err)
			}
			continue
		}
		records, kept := int64(0), len(out.Spans)+len(out.Unused)
		for _, s := range out.Spans {
			records += 1 + s.Events()
			kept += max(0, len(s.Others)-1) + max(0, len(s.Faults)-1)
		}
		for i := range out.Unused {
			records += out.Unused[i].Records()
		}
		if err != nil || records != c.records || kept != c.kept {
			t.Errorf("%s: got %d records, %d in memory, %v, want %d and %d", c.name, records, kept, err, c.records, c.kept)
		}
	}
}
