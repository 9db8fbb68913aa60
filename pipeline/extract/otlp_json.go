// OTLP messages are turned into spans. JSON is read in one pass over its
// bytes (this file), protobuf by OpenTelemetry's own decoder (otlp_build.go, with what events mean).
// Fields that nobody reads are skipped. What attributes and spans mean is in otlp_span.go.

package extract

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// jsonReader is the fast OTLP/JSON reader: one pass over the bytes, known keys
// by comparison, values by position. It accepts what collectors and older
// writers write (spec#wire-json): snake_case names, unquoted integers, enum
// names, null, keys in any order.
type jsonReader struct {
	source.Cursor
	*builder
	out *otlpMessage
}

// parseJSON reads every object of text; several objects on one line are legal.
func parseJSON(text []byte, b *builder, out *otlpMessage) *source.Error {
	r := jsonReader{Cursor: source.Cursor{B: text}, builder: b, out: out}
	for r.Err == nil && r.Peek() != 0 {
		r.document()
	}
	if r.Err == nil && r.I < len(r.B) {
		r.Unexpected("an OTLP/JSON object") // a raw NUL
	}
	out.strange = out.strange || r.Surrogate
	return r.Err
}

// keyBit numbers the keys that are read, in all their spellings.
var keyBit = func() map[string]uint32 {
	m := map[string]uint32{}
	for i, names := range strings.Fields("resourceSpans,resource_spans resource scopeSpans,scope_spans,instrumentationLibrarySpans," +
		"instrumentation_library_spans scope,instrumentationLibrary,instrumentation_library spans traceId,trace_id spanId,span_id " +
		"parentSpanId,parent_span_id name startTimeUnixNano,start_time_unix_nano endTimeUnixNano,end_time_unix_nano " +
		"droppedEventsCount,dropped_events_count attributes events timeUnixNano,time_unix_nano key value intValue,int_value " +
		"doubleValue,double_value stringValue,string_value boolValue,bool_value arrayValue,array_value kvlistValue,kvlist_value " +
		"bytesValue,bytes_value stringValueStrindex,string_value_strindex") {
		for name := range strings.SplitSeq(names, ",") {
			m[name] = 1 << i
		}
	}
	return m
}()

// once notes a key of an object, and in bad that it stands twice: JSON leaves open which counts.
func once(seen *uint32, k []byte, bad *string) {
	bit := keyBit[string(k)]
	if *seen&bit != 0 {
		*bad = fmt.Sprintf("got the key %.40q twice in one object", k)
	}
	*seen |= bit
}

// whole fails where a key of what holds many spans stands twice.
func (r *jsonReader) whole(seen *uint32, k []byte) {
	bad := ""
	if once(seen, k, &bad); bad != "" {
		r.Fail("%s", bad)
	}
}

func (r *jsonReader) document() {
	at := r.I
	var d documentKeys
	var seen uint32
	for k := range r.Members {
		r.whole(&seen, k)
		if d.spans(k) {
			r.each(r.resourceSpans)
			continue
		}
		r.Skip(0)
	}
	r.out.others += d.others
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
func (c *jsonReader) checkDocument(d *documentKeys, at int) {
	if c.Err == nil && !d.known && d.first != "" {
		c.I = at
		c.Fail("got an object with the key %.40q, want resourceSpans", d.first)
	}
}

// each calls f at every element of an array; null is an empty one.
func (r *jsonReader) each(f func()) {
	if r.Null() || !r.Take('[') {
		return
	}
	for first := true; r.More(']', &first); {
		r.Space()
		f()
	}
}

func (r *jsonReader) resourceSpans() {
	from := len(r.out.Spans)
	resource := noIdentity
	var seen uint32
	for k := range r.Members {
		r.whole(&seen, k)
		switch string(k) {
		case "resource":
			resource = r.resource()
		case "scopeSpans", "scope_spans", "instrumentationLibrarySpans", "instrumentation_library_spans":
			r.each(r.scopeSpans)
		default:
			r.Skip(0)
		}
	}
	for _, s := range r.out.Spans[from:] {
		s.Resource = resource
	}
}

// resource hashes what identifies the process that wrote the spans.
func (r *jsonReader) resource() uint64 {
	var id identity
	var seen uint32
	for k := range r.MembersOrNull {
		r.whole(&seen, k)
		if string(k) == "attributes" {
			r.each(func() { r.identify(&id) })
			continue
		}
		r.Skip(0)
	}
	return id.hash()
}

// identify reads one resource attribute.
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
			value, has = r.firstText()
		default:
			r.Skip(0)
		}
	}
	if has {
		id.set(key, value)
	}
}

// firstText reads an AnyValue and returns its text, or its integer's digits.
func (r *jsonReader) firstText() (out []byte, has bool) {
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
			if isValue(k) { // the last of several values counts
				out, has = nil, false
			}
		}
	}
	return out, has
}

func (r *jsonReader) scopeSpans() {
	scope, spansAt := "", -1
	known := false
	var seen uint32
	for k := range r.Members {
		r.whole(&seen, k)
		switch string(k) {
		case "scope", "instrumentationLibrary", "instrumentation_library":
			scope, known = r.scope(), true
		case "spans":
			if known {
				r.each(func() { r.span(scope) })
				continue
			}
			r.Space()
			spansAt = r.I
			r.Skip(0)
		default:
			r.Skip(0)
		}
	}
	if spansAt >= 0 && r.Err == nil { // the scope came after its spans, or never
		end := r.I
		r.I = spansAt
		r.each(func() { r.span(scope) })
		r.I = end
	}
}

func (r *jsonReader) scope() string {
	name := ""
	var seen uint32
	for k := range r.MembersOrNull {
		r.whole(&seen, k)
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

func (r *jsonReader) span(scope string) {
	start := r.I
	r.begin()
	s := r.cur
	name := ""
	var seen uint32
	for k := range r.Members {
		once(&seen, k, &s.Bad)
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
			r.each(r.spanEvent)
		default:
			r.Skip(0)
		}
	}
	if r.Err != nil {
		return
	}
	s = r.end(scope, name)
	s.Hash = hashOf(r.B[start:r.I])
	r.out.Spans = append(r.out.Spans, s)
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

func (r *jsonReader) stamp() int64 {
	ns, _ := r.Stamp()
	return r.time(ns)
}

func (r *jsonReader) spanEvent() {
	var name []byte
	var wall int64
	attrsAt, named := -1, false
	r.ev.reset(noSlot)
	var seen uint32
	for k := range r.Members {
		once(&seen, k, &r.ev.bad)
		if r.Peek() == 'n' {
			r.Word("null")
			continue
		}
		switch string(k) {
		case "timeUnixNano", "time_unix_nano":
			wall = r.stamp()
		case "name":
			if v, ok := r.Str(); ok {
				name, named = v, true
				if e, ok := eventByName[string(name)]; ok {
					r.ev.next = firstSlot[e]
				}
			}
		case "attributes":
			if named {
				r.attributes(&r.ev)
				continue
			}
			attrsAt = r.I
			r.Skip(0)
		default:
			r.Skip(0)
		}
	}
	if attrsAt >= 0 && r.Err == nil { // attributes before the name
		end := r.I
		r.I = attrsAt
		r.attributes(&r.ev)
		r.I = end
	}
	if r.Err == nil {
		r.event(name, wall)
	}
}

// Nearly all of a dump is attributes of span events, and every exporter writes them in one form:
//
//	[{"key":"K","value":{"intValue":"N"}},...]
//
// with the keys in the producer's order. The functions of this file compare
// whole stretches of that text at once and read only what lies between them.
// Where anything looks different they leave the cursor alone, and the general
// reader takes over; so they accept nothing that it would not.

// pairStart is how the pair of a slot begins, up to its value.
var pairStart = func() (out [numSlots]string) {
	forms := [...]string{wantInt: `intValue":"`, wantFloat: `doubleValue":`, wantText: `stringValue":"`}
	for s, a := range attrKeys {
		out[s] = `{"key":"` + a.key + `","value":{"` + forms[a.want]
	}
	return out
}()

// quickRun reads pairs of known keys and reports whether there was one; the cursor stands
// behind the last.
func (r *jsonReader) quickRun(a *attrs) bool {
	b := r.B
	i := r.I
	end := -1
	for {
		s := a.next
		if s >= numSlots || !starts(b, i, s) {
			if s = slotAt(b, i); s >= numSlots || !starts(b, i, s) {
				break
			}
		}
		j := a.quickValue(s, b, i+len(pairStart[s]))
		if j < 0 {
			break
		}
		a.wrong |= a.set & (1 << s)
		a.set |= 1 << s
		a.next = s + 1
		end = j
		if b[j] != ',' {
			break
		}
		i = j + 1
	}
	if end < 0 {
		return false
	}
	r.I = end
	return true
}

// starts reports that the pair of a slot begins at b[i:], with a value behind it.
func starts(b []byte, i int, s slot) bool {
	j := i + len(pairStart[s])
	return j < len(b) && string(b[i:j]) == pairStart[s]
}

// slotAt is the slot of the pair that begins at b[i:]; noSlot where the general parser must look.
func slotAt(b []byte, i int) slot {
	const head = `{"key":"`
	if i += len(head); i >= len(b) || string(b[i-len(head):i]) != head {
		return noSlot
	}
	if n := source.PlainText(b[i:]); n > 0 {
		if s, ok := slotOf[string(b[i:i+n])]; ok {
			return s
		}
	}
	return noSlot
}

// quickValue reads the value of slot s at b[j:], stores it and returns where
// its pair ends, inside b; -1 when it is not of the plain form.
func (a *attrs) quickValue(s slot, b []byte, j int) int {
	closing := `"}}`
	switch attrKeys[s].want {
	case wantInt:
		v, sign := int64(0), int64(1)
		if b[j] == '-' {
			sign, j = -1, j+1
		}
		from := j
		for ; j < len(b) && b[j]-'0' <= 9; j++ {
			v = v*10 + int64(b[j]-'0')
		}
		if j == from || j > from+18 {
			return -1
		}
		a.num[s] = sign * v
	case wantFloat:
		v, n := quickDouble(b[j:])
		if n == 0 {
			return -1
		}
		a.num[s] = int64(math.Float64bits(v))
		j += n
		closing = "}}"
	default:
		n := source.PlainText(b[j:])
		if n < 0 {
			return -1
		}
		a.text[s] = b[j : j+n]
		j += n
	}
	if !is(b[j:], closing) || j+len(closing) >= len(b) {
		return -1
	}
	return j + len(closing)
}

// quickDouble reads a plain decimal as JSON writes it; length 0 is for
// anything else.
func quickDouble(b []byte) (float64, int) {
	n := 0
	for n < 24 && n < len(b) && (b[n]-'0' <= 9 || b[n] == '.') {
		n++
	}
	if n == 0 || b[0] == '.' || n > 1 && b[0] == '0' && b[1] != '.' {
		return 0, 0
	}
	v, ok := source.QuickFloat(b[:n])
	if !ok {
		return 0, 0
	}
	return v, n
}

func is(b []byte, start string) bool { return len(b) >= len(start) && string(b[:len(start)]) == start }

// decoder reads OTLP for one worker.
type decoder struct{ b *builder }

// newDecoder makes the decoder of one worker.
func newDecoder() source.Decoder[*otlpMessage] { return decoder{newBuilder()} }

func (decoder) Records() *otlpMessage { return new(otlpMessage) }

func (d decoder) Line(text []byte, out *otlpMessage) *source.Error {
	err := unwrapped(text, func(document []byte, at int) *source.Error {
		err := parseJSON(document, d.b, out)
		if err != nil {
			err.At = max(0, err.At+at)
		}
		return err
	})
	out.strange = out.strange || err == nil && len(out.Spans) > out.before.spans && !utf8.Valid(text)
	return err
}

func (d decoder) Message(data []byte, out *otlpMessage) *source.Error {
	return parseProto(data, d.b, out)
}

// otlpMessage is what a decoder finds in the OTLP messages of one batch.
type otlpMessage struct {
	Spans   []*tracedSpan
	Ignored []signals
	Texts   []int64 // lines with invalid Unicode
	strange bool    // invalid Unicode was replaced in the message being read
	others  int64   // metrics or logs objects in it
	before  struct{ spans int }
}

// signals are metrics or logs objects of a line.
type signals struct{ Line, N int64 }

func (m *otlpMessage) Mark() {
	m.before.spans = len(m.Spans)
	m.others = 0
	m.strange = false
}

func (m *otlpMessage) Undo() { m.Spans = m.Spans[:m.before.spans] }

func (m *otlpMessage) Keep(line int64) {
	for _, s := range m.Spans[m.before.spans:] {
		s.Line = line
	}
	if m.strange {
		m.Texts = append(m.Texts, line)
	}
	if m.others > 0 {
		m.Ignored = append(m.Ignored, signals{line, m.others})
	}
}

func (m *otlpMessage) Number(before int64) {
	for _, s := range m.Spans {
		s.Line += before
	}
	for i := range m.Texts {
		m.Texts[i] += before
	}
	for i := range m.Ignored {
		m.Ignored[i].Line += before
	}
}

// Free gives the rows of spans back that nobody collects.
func (m *otlpMessage) Free() {
	for _, s := range m.Spans {
		if s.Rows != nil {
			s.Rows.Free()
		}
	}
}
