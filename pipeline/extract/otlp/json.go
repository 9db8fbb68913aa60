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

// knownKey is a key that is read, the same for all its spellings, as a bit; 0 for other keys.
type knownKey uint32

// The keys that are read.
const (
	keyKey knownKey = 1 << iota
	keyValue
	keyInt
	keyDouble
	keyString
	keyBool
	keyArray
	keyKVList
	keyBytes
	keyStringIndex
	keyName
	keyTime
	keyAttributes
	keyEvents
	keyTraceID
	keySpanID
	keyParent
	keyStart
	keyEnd
	keyDroppedEvents
	keyResourceSpans
	keyResource
	keyScopeSpans
	keyScope
	keySpans
)

// otherValues are the keys of an AnyValue whose types no table needs.
const otherValues = keyBool | keyArray | keyKVList | keyBytes | keyStringIndex

// keyOf returns the key with one of its spellings, or 0. A switch takes half the time of a map, and the function
// is called for every key.
func keyOf(text []byte) knownKey {
	switch string(text) {
	case "key":
		return keyKey
	case "value":
		return keyValue
	case "intValue", "int_value":
		return keyInt
	case "doubleValue", "double_value":
		return keyDouble
	case "stringValue", "string_value":
		return keyString
	case "boolValue", "bool_value":
		return keyBool
	case "arrayValue", "array_value":
		return keyArray
	case "kvlistValue", "kvlist_value":
		return keyKVList
	case "bytesValue", "bytes_value":
		return keyBytes
	case "stringValueStrindex", "string_value_strindex":
		return keyStringIndex
	case "name":
		return keyName
	case "timeUnixNano", "time_unix_nano":
		return keyTime
	case "attributes":
		return keyAttributes
	case "events":
		return keyEvents
	case "traceId", "trace_id":
		return keyTraceID
	case "spanId", "span_id":
		return keySpanID
	case "parentSpanId", "parent_span_id":
		return keyParent
	case "startTimeUnixNano", "start_time_unix_nano":
		return keyStart
	case "endTimeUnixNano", "end_time_unix_nano":
		return keyEnd
	case "droppedEventsCount", "dropped_events_count":
		return keyDroppedEvents
	case "resourceSpans", "resource_spans":
		return keyResourceSpans
	case "resource":
		return keyResource
	case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
		return keyScopeSpans
	case "scope", "instrumentationLibrary", "instrumentation_library":
		return keyScope
	case "spans":
		return keySpans
	}
	return 0
}

// noteKey returns the key with a spelling and adds it to those seen in an object. It sets bad to a description where
// the key was seen before, because JSON does not define which of two equal keys counts. Keys that are not
// read have no bit and may repeat.
func noteKey(seen *knownKey, text []byte, bad *string) knownKey {
	key := keyOf(text)
	if *seen&key != 0 {
		*bad = fmt.Sprintf("got the key %.40q twice in one object", text)
	}
	*seen |= key
	return key
}

// noteKeyOrFail is noteKey for objects that contain many spans: a repeated key breaks the whole
// message.
func (r *jsonReader) noteKeyOrFail(seen *knownKey, text []byte) knownKey {
	bad := ""
	key := noteKey(seen, text, &bad)
	if bad != "" {
		r.Fail("%s", bad)
	}
	return key
}

// document reads one object of a dump. It refuses an object without any key of OTLP, except for an
// empty one, which is a batch without spans.
func (r *jsonReader) document() {
	start := r.I
	isOTLP := false
	firstKey := ""
	var seen knownKey
	for k := range r.Members {
		key := r.noteKeyOrFail(&seen, k)
		if firstKey == "" {
			firstKey = string(k)
		}
		if key == keyResourceSpans {
			isOTLP = true
			r.eachElement(r.resourceSpans)
			continue
		}
		if isOtherSignal(k) {
			isOTLP = true
			r.out.others++
		}
		r.Skip(0)
	}
	if r.Err == nil && !isOTLP && firstKey != "" {
		r.I = start
		r.Fail("got an object with the key %.40q, want resourceSpans", firstKey)
	}
}

// isOtherSignal reports whether a key of a dump has another signal of OTLP than spans.
func isOtherSignal(key []byte) bool {
	switch string(key) {
	case "resourceMetrics", "resource_metrics", "resourceLogs", "resource_logs", "resourceProfiles", "resource_profiles":
		return true
	}
	return false
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
	var seen knownKey
	for k := range r.Members {
		switch r.noteKeyOrFail(&seen, k) {
		case keyResource:
			resource = r.resource()
		case keyScopeSpans:
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
	var seen knownKey
	for k := range r.MembersOrNull {
		if r.noteKeyOrFail(&seen, k) == keyAttributes {
			r.eachElement(func() { r.identify(&id) })
			continue
		}
		r.Skip(0)
	}
	return id.hash()
}

// identify reads one attribute of a resource and stores it if it identifies the process.
func (r *jsonReader) identify(id *identity) {
	name := ""
	value := []byte(nil)
	has := false
	for k := range r.MembersOrNull {
		r.Space()
		switch key := keyOf(k); {
		case key == keyKey && r.Peek() == '"':
			v, _ := r.Str()
			name = string(v)
		case key == keyValue && r.Peek() == '{':
			value, has = r.textOfValue()
		default:
			r.Skip(0)
		}
	}
	if has {
		id.set(name, value)
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
		switch key := keyOf(k); key {
		case keyString:
			out, has = r.Str()
		case keyInt:
			v, ok := r.Int64()
			out, has = strconv.AppendInt(nil, v, 10), ok
		default:
			r.Skip(0)
			if key&otherValues != 0 { // the last of several values counts
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
	var seen knownKey
	for k := range r.Members {
		switch r.noteKeyOrFail(&seen, k) {
		case keyScope:
			scope = r.scope()
			known = true
		case keySpans:
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
	var seen knownKey
	for k := range r.MembersOrNull {
		key := r.noteKeyOrFail(&seen, k)
		if key == keyName && !r.Null() {
			r.Space()
			if v, ok := r.Str(); ok {
				name = r.intern(v)
			}
			continue
		}
		if key != keyName {
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
	var seen knownKey
	for k := range r.Members {
		key := noteKey(&seen, k, &s.Bad)
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch key {
		case keyTraceID:
			r.id(s.TraceID[:])
		case keySpanID:
			r.id(s.SpanID[:])
		case keyParent:
			r.id(s.Parent[:])
		case keyName:
			if v, ok := r.Str(); ok {
				name = r.intern(v)
			}
		case keyStart:
			s.StartNs = r.stamp()
		case keyEnd:
			s.EndNs = r.stamp()
		case keyDroppedEvents:
			s.DroppedEvents, _ = r.Count()
		case keyAttributes:
			r.attributes(&r.sp)
		case keyEvents:
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
	var seen knownKey
	for k := range r.Members {
		key := noteKey(&seen, k, &r.ev.bad)
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch key {
		case keyTime:
			wallNs = r.stamp()
		case keyName:
			if v, ok := r.Str(); ok {
				name = v
				isNamed = true
				if e, ok := r.eventOf(name); ok {
					r.ev.next = firstSlot[e]
				}
			}
		case keyAttributes:
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
	var seen knownKey
	for k := range r.Members {
		switch noteKey(&seen, k, &a.bad) {
		case keyKey:
			r.Space()
			if v, ok := r.Str(); ok {
				s = a.find(v)
				keyed = true
			}
		case keyValue:
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
	var seen knownKey
	for k := range r.MembersOrNull {
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch key := noteKey(&seen, k, &a.bad); key {
		case keyInt:
			at := r.I
			if n, ok := r.Int64(); ok {
				got = wantInt
				num = n
				text = nil
			} else if s < numSlots && r.Err.At == at {
				r.Err.Msg = attrKeys[s].key + ": " + r.Err.Msg
			}
		case keyDouble:
			f, _ := r.Float()
			got = wantFloat
			num = int64(math.Float64bits(f))
			text = nil
		case keyString:
			t, _ := r.Str()
			got = wantText
			num = 0
			text = t
		default:
			r.Skip(0)
			switch {
			case key == keyStringIndex:
				got = wantNothing // an index into a table of strings, which traces do not have
			case key&otherValues != 0:
				got = wantOther
			}
		}
	}
	if r.Err == nil {
		a.store(s, got, num, text)
	}
}
