package extract

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"math/bits"
	"strconv"

	"github.com/blis-train/blis-train/trace"
)

// message is what a parser makes of one JSON object or protobuf message.
type message struct {
	spans   []*span
	ignored int64 // metrics or logs objects
	kv      []trace.KVEvent
	bad     []badKV
	texts   bool // invalid Unicode was replaced
}

// hashSeed serves hashes that never leave the process.
var hashSeed = maphash.MakeSeed()

// jsonReader is the fast OTLP/JSON reader: one pass over the bytes, known keys
// by comparison, values by position. It accepts what collectors and older
// writers write (design/02 4.1): snake_case names, unquoted integers, enum
// names, null, keys in any order.
type jsonReader struct {
	cursor
	*builder
	out *message
}

// parseJSON reads every object of text; several objects on one line are legal.
func parseJSON(text []byte, b *builder, out *message) *parseError {
	r := jsonReader{cursor: cursor{b: text}, builder: b, out: out}
	for r.err == nil && r.peek() != 0 {
		r.document()
	}
	if r.err == nil && r.i < len(r.b) {
		r.unexpected("an OTLP/JSON object") // a raw NUL
	}
	out.texts = out.texts || r.surrogate
	return r.err
}

func (r *jsonReader) document() {
	at := r.i
	if !r.take('{') {
		return
	}
	var d documentKeys
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		if d.spans(k) {
			r.each(r.resourceSpans)
			continue
		}
		r.skip(0)
	}
	r.out.ignored += d.others
	r.checkDocument(&d, at)
}

// documentKeys are the keys met in one object of a dump.
type documentKeys struct {
	known  bool
	others int64 // metrics, logs and profiles
	first  string
}

// spans reports whether a key holds the spans, and notes it.
func (d *documentKeys) spans(k []byte) bool {
	switch string(k) {
	case "resourceSpans", "resource_spans":
		d.known = true
		return true
	case "resourceMetrics", "resource_metrics", "resourceLogs", "resource_logs", "resourceProfiles", "resource_profiles":
		d.known = true
		d.others++
	}
	if d.first == "" {
		d.first = string(k)
	}
	return false
}

// checkDocument fails for an object, which began at byte at, of unknown keys
// alone: it is no OTLP. An empty one is a batch without spans.
func (c *cursor) checkDocument(d *documentKeys, at int) bool {
	if c.err != nil || d.known || d.first == "" {
		return c.err == nil
	}
	c.i = at
	return c.fail("got an object with the key %.40q, want resourceSpans", d.first)
}

// each calls f at every element of an array; null is an empty one.
func (r *jsonReader) each(f func()) {
	if r.null() || !r.take('[') {
		return
	}
	for first := true; r.more(']', &first); {
		r.ws()
		f()
	}
}

func (r *jsonReader) resourceSpans() {
	if !r.take('{') {
		return
	}
	from := len(r.out.spans)
	resource := noIdentity
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		switch string(k) {
		case "resource":
			resource = r.resource()
		case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
			r.each(r.scopeSpans)
		default:
			r.unread(kindResourceSpans, k, 0)
		}
	}
	for _, s := range r.out.spans[from:] {
		s.resource = resource
	}
}

// resource hashes what identifies the process that wrote the spans.
func (r *jsonReader) resource() uint64 {
	var id identity
	if r.null() || !r.take('{') {
		return noIdentity
	}
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return noIdentity
		}
		if string(k) == "attributes" {
			r.each(func() { r.identify(&id) })
			continue
		}
		r.unread(kindResource, k, 0)
	}
	return id.hash()
}

// identify reads one resource attribute.
func (r *jsonReader) identify(id *identity) {
	if r.null() || !r.take('{') {
		return
	}
	key, value, has := "", []byte(nil), false
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		r.ws()
		switch {
		case string(k) == "key" && r.peek() == '"':
			v, _ := r.str()
			key = string(v)
		case string(k) == "value" && r.peek() == '{':
			value, has = r.firstText()
		default:
			r.unread(kindPair, k, 0)
		}
	}
	if has {
		id.set(key, value)
	}
}

// firstText reads an AnyValue and returns its text, or its integer's digits.
func (r *jsonReader) firstText() (out []byte, has bool) {
	r.take('{')
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return nil, false
		}
		if r.peek() == 'n' {
			r.word("null")
			continue
		}
		switch string(k) {
		case "stringValue", "string_value":
			out, has = r.str()
		case "intValue", "int_value":
			v, ok := r.int64()
			out, has = strconv.AppendInt(nil, v, 10), ok
		default:
			if r.unread(kindAny, k, 0) { // the last of several values counts
				out, has = nil, false
			}
		}
	}
	return out, has
}

func (r *jsonReader) scopeSpans() {
	if !r.take('{') {
		return
	}
	scope, spansAt := "", -1
	known := false
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		switch string(k) {
		case "scope", "instrumentationLibrary", "instrumentation_library":
			scope, known = r.scope(), true
		case "spans":
			if known {
				r.each(func() { r.span(scope) })
				continue
			}
			r.ws()
			spansAt = r.i
			r.skip(0)
		default:
			r.unread(kindScopeSpans, k, 0)
		}
	}
	if spansAt >= 0 && r.err == nil { // the scope came after its spans, or never
		end := r.i
		r.i = spansAt
		r.each(func() { r.span(scope) })
		r.i = end
	}
}

func (r *jsonReader) scope() string {
	name := ""
	if r.null() || !r.take('{') {
		return name
	}
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return ""
		}
		if string(k) == "name" && !r.null() {
			r.ws()
			if v, ok := r.str(); ok {
				name = r.intern(v)
			}
			continue
		}
		if string(k) != "name" {
			r.unread(kindScope, k, 0)
		}
	}
	return name
}

func (r *jsonReader) span(scope string) {
	start := r.i
	if !r.take('{') {
		return
	}
	r.begin()
	s := r.cur
	name := ""
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		if r.peek() == 'n' {
			r.word("null")
			continue
		}
		switch string(k) {
		case "traceId", "trace_id":
			r.id(s.traceID[:])
		case "spanId", "span_id":
			r.id(s.spanID[:])
		case "parentSpanId", "parent_span_id":
			r.id(s.parent[:])
		case "name":
			if v, ok := r.str(); ok {
				name = r.intern(v)
			}
		case "startTimeUnixNano", "start_time_unix_nano":
			s.startNs = r.time(r.stamp())
		case "endTimeUnixNano", "end_time_unix_nano":
			s.endNs = r.time(r.stamp())
		case "droppedEventsCount", "dropped_events_count":
			s.droppedEvents, _ = r.uint32()
		case "attributes":
			r.attributes(&r.sp)
		case "events":
			r.each(r.spanEvent)
		default:
			r.unread(kindSpan, k, 0)
		}
	}
	if r.err != nil {
		return
	}
	s = r.end(scope, name)
	s.hash = maphash.Bytes(hashSeed, r.b[start:r.i])
	r.out.spans = append(r.out.spans, s)
}

// id reads a hexadecimal id into dst and reports whether there was one; an
// empty string is none.
func (r *jsonReader) id(dst []byte) bool {
	at := r.i
	v, ok := r.str()
	if !ok || len(v) == 0 {
		return false
	}
	if len(v) != 2*len(dst) {
		r.i = at
		return r.fail("got an id of %d characters, want %d hexadecimal digits", len(v), 2*len(dst))
	}
	if _, err := hex.Decode(dst, v); err != nil {
		r.i = at
		return r.fail("got the id %.40q, want %d hexadecimal digits", v, 2*len(dst))
	}
	return true
}

func (r *jsonReader) spanEvent() {
	if r.quickEvent() || !r.take('{') {
		return
	}
	var name []byte
	var wall int64
	attrsAt, named := -1, false
	r.ev.reset(noSlot)
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		if r.peek() == 'n' {
			r.word("null")
			continue
		}
		switch string(k) {
		case "timeUnixNano", "time_unix_nano":
			wall = r.time(r.stamp())
		case "name":
			if name, ok = r.str(); ok {
				named = true
				if e, ok := eventByName[string(name)]; ok {
					r.ev.next = firstSlot[e]
				}
			}
		case "attributes":
			if named {
				r.attributes(&r.ev)
				continue
			}
			attrsAt = r.i
			r.skip(0)
		default:
			r.unread(kindEvent, k, 0)
		}
	}
	if attrsAt >= 0 && r.err == nil { // attributes before the name
		end := r.i
		r.i = attrsAt
		r.attributes(&r.ev)
		r.i = end
	}
	if r.err == nil {
		r.event(name, wall)
	}
}

// attributes reads a list of key-value pairs into a. Pairs written the way
// every exporter writes them take the short path.
func (r *jsonReader) attributes(a *attrs) {
	if r.null() || !r.take('[') {
		return
	}
	r.pairs(a)
}

// pairs reads pairs up to the end of their list.
func (r *jsonReader) pairs(a *attrs) {
	for first := true; r.more(']', &first); {
		if !r.quickRun(a) && !r.quickPair(a) {
			r.pair(a)
		}
	}
}

const pairHead = `{"key":"`

// quickPair reads {"key":"K","value":{"intValue":"N"}} and its like without a
// general parser; it leaves the cursor alone when anything looks different.
func (r *jsonReader) quickPair(a *attrs) bool {
	b := r.b[r.i:]
	if len(b) < 32 || string(b[:8]) != pairHead {
		return false
	}
	b = b[8:]
	s, n := a.quickKey(b)
	if n == 0 || len(b) < n+32 || string(b[n:n+12]) != `","value":{"` {
		return false
	}
	b = b[n+12:]
	rest := len(b)
	switch {
	case string(b[:11]) == `intValue":"`:
		v, d := quickInt(b[11:])
		if d == 0 || len(b) < d+14 || string(b[11+d:14+d]) != `"}}` {
			return false
		}
		a.setInt(s, v)
		b = b[14+d:]
	case string(b[:14]) == `stringValue":"`:
		d := plainText(b[14:])
		if d < 0 || len(b) < d+17 || string(b[14+d:17+d]) != `"}}` {
			return false
		}
		a.setText(s, b[14:14+d])
		b = b[17+d:]
	case string(b[:13]) == `doubleValue":`:
		v, d := quickDouble(b[13:])
		if d == 0 || len(b) < d+15 || b[13+d] != '}' || b[14+d] != '}' {
			return false
		}
		a.setFloat(s, v)
		b = b[15+d:]
	default:
		return false
	}
	if s < numSlots {
		a.next = s + 1
	}
	r.i += 8 + n + 12 + rest - len(b)
	return true
}

// quickKey finds the slot of the key that b starts with and the key's length;
// length 0 means the key needs the general parser.
func (a *attrs) quickKey(b []byte) (slot, int) {
	if a.next < numSlots {
		want := attrKeys[a.next].key
		if len(b) > len(want) && b[len(want)] == '"' && string(b[:len(want)]) == want {
			return a.next, len(want)
		}
	}
	n := plainText(b)
	if n <= 0 {
		return noSlot, 0
	}
	if s, ok := slotOf[string(b[:n])]; ok {
		return s, n
	}
	return noSlot, n
}

// plainText is the length of the string body that b starts with, or -1 when it
// holds escapes, control characters or no end.
func plainText(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			break
		}
	}
	for ; i < len(b); i++ {
		switch ch := b[i]; {
		case ch == '"':
			return i
		case ch == '\\' || ch < 0x20:
			return -1
		}
	}
	return -1
}

// quickInt reads up to 18 digits; the length is 0 for anything else.
func quickInt(b []byte) (int64, int) {
	var v int64
	i, neg := 0, false
	if len(b) > 0 && b[0] == '-' {
		neg, i = true, 1
	}
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		v = v*10 + int64(b[i]-'0')
		i++
		if i-start > 18 {
			return 0, 0
		}
	}
	if i == start {
		return 0, 0
	}
	if neg {
		v = -v
	}
	return v, i
}

// pair reads one key-value pair in any legal form.
func (r *jsonReader) pair(a *attrs) {
	if !r.take('{') {
		return
	}
	s, valueAt, keyed := noSlot, -1, false
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		switch string(k) {
		case "key":
			r.ws()
			if v, ok := r.str(); ok {
				s, keyed = a.find(v), true
			}
		case "value":
			if !keyed {
				r.ws()
				valueAt = r.i
				r.skip(0)
				continue
			}
			r.value(a, s)
		default:
			r.unread(kindPair, k, 0)
		}
	}
	if valueAt >= 0 && r.err == nil {
		end := r.i
		r.i = valueAt
		r.value(a, s)
		r.i = end
	}
}

// value reads an AnyValue into slot s; the last of several values counts.
func (r *jsonReader) value(a *attrs, s slot) {
	if r.null() || !r.take('{') {
		return
	}
	var v anyValue
	for first := true; r.more('}', &first); {
		k, ok := r.key()
		if !ok {
			return
		}
		if r.peek() == 'n' {
			r.word("null")
			continue
		}
		switch string(k) {
		case "intValue", "int_value":
			at := r.i
			if n, ok := r.int64(); ok {
				v = anyValue{kind: anyInt, num: n}
			} else if s < numSlots && r.err.at == at {
				r.err.msg = attrKeys[s].key + ": " + r.err.msg
			}
		case "doubleValue", "double_value":
			f, _ := r.float()
			v = anyValue{kind: anyFloat, float: f}
		case "stringValue", "string_value":
			t, _ := r.str()
			v = anyValue{kind: anyText, text: t}
		default:
			if r.unread(kindAny, k, 0) {
				v = anyValue{kind: anyOther}
				if string(k) == "stringValueStrindex" || string(k) == "string_value_strindex" {
					v.kind = anyEmpty // an index into a table that traces do not have
				}
			}
		}
	}
	if r.err == nil {
		a.store(s, &v)
	}
}
