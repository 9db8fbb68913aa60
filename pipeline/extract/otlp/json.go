package otlp

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// This file reads OTLP/JSON in any legal form; quick.go reads the form that exporters write.

// jsonReader reads OTLP/JSON in one pass over its bytes, without building a tree. It accepts what
// collectors and older writers write (spec#wire-json): snake_case names, unquoted integers, enum
// names, null, keys in any order. Fields that no table needs are skipped.
//
// Some values can only be read when another key of the same object is known: spans need their scope,
// attributes the name of their event, a value its key. If that key comes later, the value is skipped
// first, and read at the end of the object.
type jsonReader struct {
	source.Cursor
	*builder
	out *Batch
}

// parseJSON reads every object of a text into out and returns the first error. Several objects on
// one line are legal.
func parseJSON(text []byte, b *builder, out *Batch) *source.Error {
	r := jsonReader{Cursor: source.Cursor{B: text}, builder: b, out: out}
	for r.Err == nil && r.Peek() != 0 {
		r.document()
	}
	if r.Err == nil && r.I < len(r.B) {
		r.Unexpected("an OTLP/JSON object") // a NUL byte, which Peek returns at the end as well
	}
	if r.Surrogate {
		out.replaced = true
	}
	return r.Err
}

// keyBit is the bit of a key that is read, the same for all its spellings, or 0. A switch takes half
// the time of a map, and the function is called for every key.
func keyBit(key []byte) uint32 {
	switch string(key) {
	case "key":
		return 1 << 0
	case "value":
		return 1 << 1
	case "intValue", "int_value":
		return 1 << 2
	case "doubleValue", "double_value":
		return 1 << 3
	case "stringValue", "string_value":
		return 1 << 4
	case "boolValue", "bool_value":
		return 1 << 5
	case "arrayValue", "array_value":
		return 1 << 6
	case "kvlistValue", "kvlist_value":
		return 1 << 7
	case "bytesValue", "bytes_value":
		return 1 << 8
	case "stringValueStrindex", "string_value_strindex":
		return 1 << 9
	case "name":
		return 1 << 10
	case "timeUnixNano", "time_unix_nano":
		return 1 << 11
	case "attributes":
		return 1 << 12
	case "events":
		return 1 << 13
	case "traceId", "trace_id":
		return 1 << 14
	case "spanId", "span_id":
		return 1 << 15
	case "parentSpanId", "parent_span_id":
		return 1 << 16
	case "startTimeUnixNano", "start_time_unix_nano":
		return 1 << 17
	case "endTimeUnixNano", "end_time_unix_nano":
		return 1 << 18
	case "droppedEventsCount", "dropped_events_count":
		return 1 << 19
	case "resourceSpans", "resource_spans":
		return 1 << 20
	case "resource":
		return 1 << 21
	case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
		return 1 << 22
	case "scope", "instrumentationLibrary", "instrumentation_library":
		return 1 << 23
	case "spans":
		return 1 << 24
	}
	return 0
}

// noteKey adds a key to those seen in an object, as the bit of keyBit. It sets bad to a description where
// the key was seen before, because JSON does not define which of two equal keys counts. Keys that are not
// read have no bit and may repeat.
func noteKey(seen *uint32, key []byte, bad *string) {
	bit := keyBit(key)
	if *seen&bit != 0 {
		*bad = fmt.Sprintf("got the key %.40q twice in one object", key)
	}
	*seen |= bit
}

// noteKeyOrFail is noteKey for objects that contain many spans: a repeated key breaks the whole
// message.
func (r *jsonReader) noteKeyOrFail(seen *uint32, key []byte) {
	bad := ""
	noteKey(seen, key, &bad)
	if bad != "" {
		r.Fail("%s", bad)
	}
}

// document reads one object of a dump. It refuses an object without any key of OTLP, except for an
// empty one, which is a batch without spans.
func (r *jsonReader) document() {
	start := r.I
	isOTLP := false
	firstKey := ""
	var seen uint32
	for k := range r.Members {
		r.noteKeyOrFail(&seen, k)
		if firstKey == "" {
			firstKey = string(k)
		}
		switch string(k) {
		case "resourceSpans", "resource_spans":
			isOTLP = true
			r.eachElement(r.resourceSpans)
		case "resourceMetrics", "resource_metrics", "resourceLogs", "resource_logs", "resourceProfiles", "resource_profiles":
			isOTLP = true
			r.out.others++
			r.Skip(0)
		default:
			r.Skip(0)
		}
	}
	if r.Err == nil && !isOTLP && firstKey != "" {
		r.I = start
		r.Fail("got an object with the key %.40q, want resourceSpans", firstKey)
	}
}

// eachElement calls f at every element of an array; null is an empty one.
func (r *jsonReader) eachElement(f func()) {
	if r.Null() || !r.Take('[') {
		return
	}
	for first := true; r.More(']', &first); {
		r.Space()
		f()
	}
}

// resourceSpans reads the spans of one resource (process).
func (r *jsonReader) resourceSpans() {
	from := len(r.out.Spans)
	resource := noIdentity
	var seen uint32
	for k := range r.Members {
		r.noteKeyOrFail(&seen, k)
		switch string(k) {
		case "resource":
			resource = r.resource()
		case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
			r.eachElement(r.scopeSpans)
		default:
			r.Skip(0)
		}
	}
	for _, s := range r.out.Spans[from:] {
		s.Resource = resource
	}
}

// resource reads a resource and returns a hash of the attributes that identify the process.
func (r *jsonReader) resource() uint64 {
	var id identity
	var seen uint32
	for k := range r.MembersOrNull {
		r.noteKeyOrFail(&seen, k)
		if string(k) == "attributes" {
			r.eachElement(func() { r.identify(&id) })
			continue
		}
		r.Skip(0)
	}
	return id.hash()
}

// identify reads one attribute of a resource and stores it if it identifies the process.
func (r *jsonReader) identify(id *identity) {
	key := ""
	value := []byte(nil)
	has := false
	for k := range r.MembersOrNull {
		r.Space()
		switch {
		case string(k) == "key" && r.Peek() == '"':
			v, _ := r.Str()
			key = string(v)
		case string(k) == "value" && r.Peek() == '{':
			value, has = r.textOfValue()
		default:
			r.Skip(0)
		}
	}
	if has {
		id.set(key, value)
	}
}

// textOfValue reads an AnyValue and returns its text, or the digits of its integer. has is false for
// other types.
func (r *jsonReader) textOfValue() (out []byte, has bool) {
	for k := range r.Members {
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch string(k) {
		case "stringValue", "string_value":
			out, has = r.Str()
		case "intValue", "int_value":
			v, ok := r.Int64()
			out, has = strconv.AppendInt(nil, v, 10), ok
		default:
			r.Skip(0)
			if isOtherValue(k) { // the last of several values counts
				out = nil
				has = false
			}
		}
	}
	return out, has
}

// scopeSpans reads the spans of one scope.
func (r *jsonReader) scopeSpans() {
	scope := ""
	known := false // the scope was read
	spansAt := -1  // offset of spans that came before the scope
	var seen uint32
	for k := range r.Members {
		r.noteKeyOrFail(&seen, k)
		switch string(k) {
		case "scope", "instrumentationLibrary", "instrumentation_library":
			scope = r.scope()
			known = true
		case "spans":
			if known {
				r.eachElement(func() { r.span(scope) })
				continue
			}
			r.Space()
			spansAt = r.I
			r.Skip(0)
		default:
			r.Skip(0)
		}
	}
	if spansAt >= 0 && r.Err == nil { // the scope came after its spans, or there is none
		end := r.I
		r.I = spansAt
		r.eachElement(func() { r.span(scope) })
		r.I = end
	}
}

// scope reads a scope and returns its name.
func (r *jsonReader) scope() string {
	name := ""
	var seen uint32
	for k := range r.MembersOrNull {
		r.noteKeyOrFail(&seen, k)
		if string(k) == "name" && !r.Null() {
			r.Space()
			if v, ok := r.Str(); ok {
				name = r.intern(v)
			}
			continue
		}
		if string(k) != "name" {
			r.Skip(0)
		}
	}
	return name
}

// span reads one span and adds it to the batch. Keys may come in any order, so what kind
// of span it is (Class) is decided at its end (endSpan).
func (r *jsonReader) span(scope string) {
	start := r.I
	r.beginSpan()
	s := r.cur
	name := ""
	var seen uint32
	for k := range r.Members {
		noteKey(&seen, k, &s.Bad)
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch string(k) {
		case "traceId", "trace_id":
			r.id(s.TraceID[:])
		case "spanId", "span_id":
			r.id(s.SpanID[:])
		case "parentSpanId", "parent_span_id":
			r.id(s.Parent[:])
		case "name":
			if v, ok := r.Str(); ok {
				name = r.intern(v)
			}
		case "startTimeUnixNano", "start_time_unix_nano":
			s.StartNs = r.stamp()
		case "endTimeUnixNano", "end_time_unix_nano":
			s.EndNs = r.stamp()
		case "droppedEventsCount", "dropped_events_count":
			s.DroppedEvents, _ = r.Count()
		case "attributes":
			r.attributes(&r.sp)
		case "events":
			r.eachElement(r.spanEvent)
		default:
			r.Skip(0)
		}
	}
	if r.Err != nil {
		return
	}
	s = r.endSpan(scope, name)
	s.Hash = contentHash(r.B[start:r.I])
	r.out.addSpan(s, &r.budget)
	r.refuseOverBudget()
}

// refuseOverBudget records a fault for a message whose records take more memory than allowed, which
// ends its reading.
func (r *jsonReader) refuseOverBudget() {
	if r.isOverBudget() && r.Err == nil {
		r.Err = errOverBudget(r.I)
	}
}

// id reads a hexadecimal id into dst; an empty string is none.
func (r *jsonReader) id(dst []byte) {
	at := r.I
	v, ok := r.Str()
	if !ok || len(v) == 0 {
		return
	}
	if len(v) != 2*len(dst) {
		r.I = at
		r.Fail("got an id of %d characters, want %d hexadecimal digits", len(v), 2*len(dst))
	} else if _, err := hex.Decode(dst, v); err != nil {
		r.I = at
		r.Fail("got the id %.40q, want %d hexadecimal digits", v, 2*len(dst))
	}
}

// stamp returns a time in ns.
func (r *jsonReader) stamp() int64 {
	ns, _ := r.Stamp()
	return r.clampNs(ns)
}

// spanEvent reads one event of a span.
func (r *jsonReader) spanEvent() {
	if !r.quickEvent() {
		r.anyEvent()
	}
}

// anyEvent reads one event in any legal form.
func (r *jsonReader) anyEvent() {
	var name []byte
	var wallNs int64
	isNamed := false // the name was read
	attrsAt := -1    // offset of attributes that came before the name
	r.ev.reset(noSlot)
	var seen uint32
	for k := range r.Members {
		noteKey(&seen, k, &r.ev.bad)
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch string(k) {
		case "timeUnixNano", "time_unix_nano":
			wallNs = r.stamp()
		case "name":
			if v, ok := r.Str(); ok {
				name = v
				isNamed = true
				if e, ok := r.eventOf(name); ok {
					r.ev.next = firstSlot[e]
				}
			}
		case "attributes":
			if isNamed {
				r.attributes(&r.ev)
				continue
			}
			attrsAt = r.I
			r.Skip(0)
		default:
			r.Skip(0)
		}
	}
	if attrsAt >= 0 && r.Err == nil {
		end := r.I
		r.I = attrsAt
		r.attributes(&r.ev)
		r.I = end
	}
	if r.Err == nil {
		r.addNamedEvent(name, wallNs)
		r.refuseOverBudget()
	}
}

// attributes reads a list of key-value pairs into a.
func (r *jsonReader) attributes(a *attrs) {
	if !r.Null() && r.Take('[') {
		r.pairs(a)
	}
}

// pairs reads the key-value pairs of a list into a, up to the end of the list.
func (r *jsonReader) pairs(a *attrs) {
	for first := true; r.More(']', &first); {
		if !r.quickPairs(a) {
			r.pair(a)
		}
	}
}

// pair reads one key-value pair in any legal form.
func (r *jsonReader) pair(a *attrs) {
	s := noSlot
	keyed := false // the key was read
	valueAt := -1  // offset of a value that came before the key
	var seen uint32
	for k := range r.Members {
		noteKey(&seen, k, &a.bad)
		switch string(k) {
		case "key":
			r.Space()
			if v, ok := r.Str(); ok {
				s = a.find(v)
				keyed = true
			}
		case "value":
			if !keyed {
				r.Space()
				valueAt = r.I
				r.Skip(0)
				continue
			}
			r.value(a, s)
		default:
			r.Skip(0)
		}
	}
	if valueAt >= 0 && r.Err == nil {
		end := r.I
		r.I = valueAt
		r.value(a, s)
		r.I = end
	}
}

// value reads an AnyValue into slot s. If it has several values, the last one is used.
func (r *jsonReader) value(a *attrs, s slot) {
	got := wantNothing
	num := int64(0)
	text := []byte(nil)
	var seen uint32
	for k := range r.MembersOrNull {
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		noteKey(&seen, k, &a.bad)
		switch string(k) {
		case "intValue", "int_value":
			at := r.I
			if n, ok := r.Int64(); ok {
				got = wantInt
				num = n
				text = nil
			} else if s < numSlots && r.Err.At == at {
				r.Err.Msg = attrKeys[s].key + ": " + r.Err.Msg
			}
		case "doubleValue", "double_value":
			f, _ := r.Float()
			got = wantFloat
			num = int64(math.Float64bits(f))
			text = nil
		case "stringValue", "string_value":
			t, _ := r.Str()
			got = wantText
			num = 0
			text = t
		default:
			r.Skip(0)
			if isOtherValue(k) {
				got = wantOther
				if string(k) == "stringValueStrindex" || string(k) == "string_value_strindex" {
					got = wantNothing // an index into a table of strings, which traces do not have
				}
			}
		}
	}
	if r.Err == nil {
		a.store(s, got, num, text)
	}
}

// isOtherValue reports whether a key of an AnyValue is that of a type that no table needs.
func isOtherValue(key []byte) bool {
	switch string(key) {
	case "boolValue", "bool_value", "arrayValue", "array_value", "kvlistValue", "kvlist_value", "bytesValue", "bytes_value",
		"stringValueStrindex", "string_value_strindex":
		return true
	}
	return false
}
