package sim

// This file encodes OTLP JSON.

import (
	"encoding/json"
	"strconv"
)

// buffer is OTLP JSON being written. As OTLP requires, 64-bit integers and wall-clock stamps are
// strings, and doubles are numbers.
type buffer []byte

// raw appends text as it is.
func (b *buffer) raw(s string) { *b = append(*b, s...) }

// num appends an integer without quotes.
func (b *buffer) num(n int64) { *b = strconv.AppendInt(*b, n, 10) }

// quoted appends a JSON string. strconv.Quote is not used because it has escapes that JSON does not
// have.
func (b *buffer) quoted(s string) {
	if !needsEscape(s) {
		*b = append(*b, '"')
		*b = append(*b, s...)
		*b = append(*b, '"')
		return
	}
	text, _ := json.Marshal(s) // no string fails
	*b = append(*b, text...)
}

// needsEscape reports whether s cannot be written as a JSON string by adding quotes.
func needsEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return true
		}
	}
	return false
}

// key begins an attribute, after a comma if another attribute is before it. The value and "}}" must
// follow.
func (b *buffer) key(name string) {
	if n := len(*b); n > 0 && (*b)[n-1] == '}' {
		b.raw(",")
	}
	b.raw(`{"key":"`)
	b.raw(name)
	b.raw(`","value":{"`)
}

// int appends an integer attribute.
func (b *buffer) int(name string, v int64) {
	b.key(name)
	b.raw(`intValue":"`)
	b.num(v)
	b.raw(`"}}`)
}

// text appends a string attribute.
func (b *buffer) text(name, v string) {
	b.key(name)
	b.raw(`stringValue":`)
	b.quoted(v)
	b.raw(`}}`)
}

// double appends an attribute of type double.
func (b *buffer) double(name string, v float64) {
	b.key(name)
	b.raw(`doubleValue":`)
	*b = strconv.AppendFloat(*b, v, 'g', -1, 64)
	b.raw(`}}`)
}

// event begins an event at a wall-clock time. Its attributes and end must follow.
func (b *buffer) event(wallNs int64, name string) {
	b.raw(`{"timeUnixNano":"`)
	b.num(wallNs)
	b.raw(`","name":"`)
	b.raw(name)
	b.raw(`","attributes":[`)
}

// end ends an event.
func (b *buffer) end() { b.raw(`]}`) }

// decimal returns n in decimal digits.
func decimal(n int64) string { return strconv.FormatInt(n, 10) }

// span is an ended span in three parts: up to the list of events, the events, and the rest. The
// parts are not joined, because the events of a step span are large.
type span struct{ head, events, tail buffer }

// Flags of a span in OTLP (SpanFlags of trace.proto). OpenTelemetry's SDK always states whether the parent is
// in another process.
const (
	hasIsRemote  = 0x100 // parentRemote is meaningful
	parentRemote = 0x200 // the parent is in another process
)

// Kinds of spans in OTLP (SpanKind of trace.proto).
const (
	kindInternal = 1
	kindServer   = 2
)

// Salts of the ids of spans and traces, so that no two of them are equal. A trace id is two words.
const (
	saltTraceHigh = 1 + iota
	saltTraceLow
	saltAPISpan
	saltCoreSpan
	saltStepTraceHigh
	saltStepTraceLow
	saltStepSpan
)

// spanHead is a span up to its attributes.
type spanHead struct {
	traceID, spanID string
	parent          string // span id; "" for none
	flags           int64  // hasIsRemote, parentRemote
	name            string
	kind            int64 // kindInternal or kindServer
	startNs, endNs  int64 // wall clock
}

// appendTo appends the span up to its attributes.
func (h *spanHead) appendTo(b *buffer) {
	b.raw(`{"traceId":"` + h.traceID + `","spanId":"` + h.spanID + `"`)
	if h.parent != "" {
		b.raw(`,"parentSpanId":"` + h.parent + `"`)
	}
	b.raw(`,"flags":` + decimal(h.flags) + `,"name":"` + h.name + `","kind":` + decimal(h.kind))
	b.raw(`,"startTimeUnixNano":"` + decimal(h.startNs) + `","endTimeUnixNano":"` + decimal(max(h.startNs, h.endNs)) + `"`)
}

// spanTail appends the end of a span after its attributes and events.
func spanTail(b *buffer, dropped int64) {
	if dropped > 0 {
		b.raw(`,"droppedEventsCount":` + decimal(dropped))
	}
	b.raw(`,"status":{}}`)
}
