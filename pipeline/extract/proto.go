package extract

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"strconv"
)

// Field numbers of the OTLP messages (opentelemetry/proto/trace/v1).
const (
	fTracesResourceSpans = 1
	fResource            = 1
	fScopeSpans          = 2
	fOldScopeSpans       = 1000 // instrumentation_library_spans
	fScope               = 1
	fSpans               = 2
	fScopeName           = 1
	fSpanTraceID         = 1
	fSpanSpanID          = 2
	fSpanParentID        = 4
	fSpanName            = 5
	fSpanStart           = 7
	fSpanEnd             = 8
	fSpanAttributes      = 9
	fSpanEvents          = 11
	fSpanDroppedEvents   = 12
	fEventTime           = 1
	fEventName           = 2
	fEventAttributes     = 3
	fPairKey             = 1
	fPairValue           = 2
	fValueString         = 1
	fValueBool           = 2
	fValueInt            = 3
	fValueDouble         = 4
	fValueArray          = 5
	fValueList           = 6
	fValueStrindex       = 8 // a reference into a table of strings
	fValueBytes          = 7
)

// Protobuf wire types.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireGroup   = 3
	wireEnd     = 4
	wireFixed32 = 5
)

// field is one field of a protobuf message: data for bytes, num otherwise.
type field struct {
	number int
	wire   int
	data   []byte
	num    uint64
	at     int // offset of data in the whole message
}

// fields walks the fields of one protobuf message without building anything.
type fields struct {
	b    []byte
	base int // offset of b in the whole message
	i    int
	err  *parseError
}

func (f *fields) fail(format string, args ...any) bool {
	if f.err == nil {
		f.err = &parseError{at: f.base + f.i, msg: fmt.Sprintf(format, args...)}
	}
	return false
}

func (f *fields) varint() (uint64, bool) {
	if f.i < len(f.b) && f.b[f.i] < 0x80 {
		f.i++
		return uint64(f.b[f.i-1]), true
	}
	v, n := binary.Uvarint(f.b[f.i:])
	if n <= 0 {
		if n == 0 && len(f.b)-f.i < 10 {
			return 0, f.fail("got the end of the message inside a varint")
		}
		return 0, f.fail("got a varint of more than 64 bits")
	}
	f.i += n
	return v, true
}

// next reads one field into out.
func (f *fields) next(out *field) bool {
	if f.err != nil || f.i >= len(f.b) {
		return false
	}
	tag, ok := f.varint()
	if !ok {
		return false
	}
	out.number, out.wire = int(tag>>3), int(tag&7)
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f.fail("got the illegal field number %d", tag>>3)
	}
	switch out.wire {
	case wireVarint:
		out.num, ok = f.varint()
		return ok
	case wireFixed64:
		if len(f.b)-f.i < 8 {
			return f.fail("got the end of the message inside a fixed64")
		}
		out.num = binary.LittleEndian.Uint64(f.b[f.i:])
		f.i += 8
	case wireFixed32:
		if len(f.b)-f.i < 4 {
			return f.fail("got the end of the message inside a fixed32")
		}
		out.num = uint64(binary.LittleEndian.Uint32(f.b[f.i:]))
		f.i += 4
	case wireBytes:
		n, ok := f.varint()
		if !ok {
			return false
		}
		if n > uint64(len(f.b)-f.i) {
			return f.fail("got a field of %d bytes, want at most the %d that are left", n, len(f.b)-f.i)
		}
		out.at = f.base + f.i
		out.data = f.b[f.i : f.i+int(n)]
		f.i += int(n)
	default:
		return f.fail("got the wire type %d, want 0, 1, 2 or 5", out.wire)
	}
	return true
}

// is fails when a known field has another wire type.
func (f *fields) is(v *field, wire int) bool {
	return v.wire == wire || f.fail("field %d: got the wire type %d, want %d", v.number, v.wire, wire)
}

func (v *field) walk() fields { return fields{b: v.data, base: v.at} }

// protoReader is the fast OTLP/protobuf reader: it walks the bytes and never
// builds the message. The collector writes fields in descending order, so a
// scope's name and an event's name come after what they name; both are looked
// up first.
type protoReader struct {
	*builder
	out *message
}

// parseProto reads one TracesData message.
func parseProto(data []byte, b *builder, out *message) *parseError {
	r := protoReader{builder: b, out: out}
	f := fields{b: data}
	var v field
	for f.next(&v) {
		if v.number == fTracesResourceSpans && f.is(&v, wireBytes) {
			f.adopt(r.resourceSpans(v))
		}
	}
	return f.err
}

// adopt takes over the fault of an inner message.
func (f *fields) adopt(err *parseError) {
	if f.err == nil {
		f.err = err
	}
}

func (r *protoReader) resourceSpans(msg field) *parseError {
	from := len(r.out.spans)
	resource := uint64(0)
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fResource:
			if f.is(&v, wireBytes) {
				f.adopt(checkAny(v, kindResource, 0))
				resource = protoIdentity(v)
			}
		case fScopeSpans, fOldScopeSpans:
			if f.is(&v, wireBytes) {
				f.adopt(r.scopeSpans(v))
			}
		default:
			f.adopt(f.ignored(v, kindResourceSpans))
		}
	}
	for _, s := range r.out.spans[from:] {
		s.resource = resource
	}
	return f.err
}

// protoIdentity hashes what identifies the process of a resource; its form has
// been checked.
func protoIdentity(resource field) uint64 {
	var id identity
	f := resource.walk()
	var v, w field
	for f.next(&v) {
		if v.number != 1 {
			continue
		}
		key, value := "", []byte(nil)
		pair := v.walk()
		for pair.next(&w) {
			switch w.number {
			case fPairKey:
				key = string(w.data)
			case fPairValue:
				value = protoText(w)
			}
		}
		id.set(key, value)
	}
	return id.hash()
}

// protoText is the text of an AnyValue, or its integer's digits.
func protoText(value field) []byte {
	var out []byte
	f := value.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fValueString:
			out = v.data
		case fValueInt:
			out = strconv.AppendInt(nil, int64(v.num), 10)
		}
	}
	return out
}

func (r *protoReader) scopeSpans(msg field) *parseError {
	scope := ""
	f := msg.walk()
	var v field
	for f.next(&v) {
		if v.number == fScope && f.is(&v, wireBytes) {
			f.adopt(checkAny(v, kindScope, 0))
			in := v.walk()
			var w field
			for in.next(&w) {
				if w.number == fScopeName && in.is(&w, wireBytes) {
					scope = r.intern(w.data)
				}
			}
		}
	}
	if f.err != nil {
		return f.err
	}
	f = msg.walk()
	for f.next(&v) {
		switch v.number {
		case fSpans:
			if f.is(&v, wireBytes) {
				f.adopt(r.span(v, scope))
			}
		case fScope:
		default:
			f.adopt(f.ignored(v, kindScopeSpans))
		}
	}
	return f.err
}

func (r *protoReader) span(msg field, scope string) *parseError {
	r.begin()
	s := r.cur
	name := ""
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fSpanTraceID:
			f.id(&v, s.traceID[:])
		case fSpanSpanID:
			f.id(&v, s.spanID[:])
		case fSpanParentID:
			s.hasParent = f.id(&v, s.parent[:])
		case fSpanName:
			if f.is(&v, wireBytes) {
				name = r.intern(v.data)
			}
		case fSpanStart:
			f.is(&v, wireFixed64)
			s.startNs = r.time(v.num, true)
		case fSpanEnd:
			f.is(&v, wireFixed64)
			s.endNs = r.time(v.num, true)
		case fSpanDroppedEvents:
			f.is(&v, wireVarint)
			s.droppedEvents = int64(uint32(v.num))
		case fSpanAttributes:
			if f.is(&v, wireBytes) {
				f.adopt(readPair(v, &r.sp))
			}
		case fSpanEvents:
			if f.is(&v, wireBytes) {
				f.adopt(r.spanEvent(v))
			}
		default:
			f.adopt(f.ignored(v, kindSpan))
		}
	}
	if f.err != nil {
		return f.err
	}
	s = r.end(scope, name)
	s.hash = maphash.Bytes(hashSeed, msg.data)
	r.out.spans = append(r.out.spans, s)
	return nil
}

// id copies an id field and reports whether there was one.
func (f *fields) id(v *field, dst []byte) bool {
	if !f.is(v, wireBytes) || len(v.data) == 0 {
		return false
	}
	if len(v.data) != len(dst) {
		return f.fail("got an id of %d bytes, want %d", len(v.data), len(dst))
	}
	copy(dst, v.data)
	return true
}

func (r *protoReader) spanEvent(msg field) *parseError {
	var name []byte
	var wall int64
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fEventTime:
			f.is(&v, wireFixed64)
			wall = r.time(v.num, true)
		case fEventName:
			if f.is(&v, wireBytes) {
				name = v.data
			}
		}
	}
	r.ev.reset(noSlot)
	if e, ok := eventByName[string(name)]; ok {
		r.ev.next = firstSlot[e]
	}
	if f.err != nil {
		return f.err
	}
	f = msg.walk()
	for f.next(&v) {
		switch v.number {
		case fEventAttributes:
			if f.is(&v, wireBytes) {
				f.adopt(readPair(v, &r.ev))
			}
		case fEventTime, fEventName:
		default:
			f.adopt(f.ignored(v, kindEvent))
		}
	}
	if f.err == nil {
		r.event(name, wall)
	}
	return f.err
}

// readPair reads one KeyValue into a.
func readPair(msg field, a *attrs) *parseError {
	var key, v, value field
	has := false
	f := msg.walk()
	for f.next(&v) {
		switch v.number {
		case fPairKey:
			if f.is(&v, wireBytes) {
				key = v
			}
		case fPairValue:
			if f.is(&v, wireBytes) {
				value, has = v, true
			}
		default:
			f.adopt(f.ignored(v, kindPair))
		}
	}
	if f.err != nil || !has {
		return f.err
	}
	return readValue(value, a, a.find(key.data))
}

// readValue reads an AnyValue into slot s.
func readValue(msg field, a *attrs, s slot) *parseError {
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fValueInt:
			f.is(&v, wireVarint)
			a.setInt(s, int64(v.num))
		case fValueDouble:
			f.is(&v, wireFixed64)
			a.setFloat(s, math.Float64frombits(v.num))
		case fValueString:
			if f.is(&v, wireBytes) {
				a.setText(s, v.data)
			}
		case fValueArray, fValueList:
			if f.is(&v, wireBytes) {
				a.setOther(s)
				f.adopt(checkAny(v, map[int]msgKind{fValueArray: kindArray, fValueList: kindList}[v.number], 0))
			}
		case fValueBool, fValueBytes, fValueStrindex:
			a.setOther(s)
			f.adopt(f.ignored(v, kindAny))
		}
	}
	return f.err
}

// msgKind names the messages that are checked but not read.
type msgKind uint8

const (
	kindResource msgKind = iota + 1
	kindScope
	kindLink
	kindStatus
	kindPair
	kindAny
	kindArray
	kindList
	kindEvent
	kindSpan
	kindScopeSpans
	kindResourceSpans
	kindEntity
)

// known lists the fields of each message: wire type, and the message inside.
var known = map[msgKind]map[int]struct {
	wire  int
	inner msgKind
}{
	kindResource: {1: {wireBytes, kindPair}, 2: {wireVarint, 0}, 3: {wireBytes, kindEntity}},
	kindEntity:   {1: {wireBytes, 0}, 2: {wireBytes, 0}, 3: {wireBytes, 0}, 4: {wireBytes, 0}},
	kindScope:    {1: {wireBytes, 0}, 2: {wireBytes, 0}, 3: {wireBytes, kindPair}, 4: {wireVarint, 0}},
	kindLink:     {1: {wireBytes, 0}, 2: {wireBytes, 0}, 3: {wireBytes, 0}, 4: {wireBytes, kindPair}, 5: {wireVarint, 0}, 6: {wireFixed32, 0}},
	kindStatus:   {2: {wireBytes, 0}, 3: {wireVarint, 0}},
	kindPair:     {1: {wireBytes, 0}, 2: {wireBytes, kindAny}, 3: {wireVarint, 0}},
	kindAny:      {1: {wireBytes, 0}, 2: {wireVarint, 0}, 3: {wireVarint, 0}, 4: {wireFixed64, 0}, 5: {wireBytes, kindArray}, 6: {wireBytes, kindList}, 7: {wireBytes, 0}, 8: {wireVarint, 0}},
	kindArray:    {1: {wireBytes, kindAny}},
	kindList:     {1: {wireBytes, kindPair}},
	// Fields of the messages above that nobody reads.
	kindEvent:         {4: {wireVarint, 0}},
	kindSpan:          {3: {wireBytes, 0}, 6: {wireVarint, 0}, 10: {wireVarint, 0}, 13: {wireBytes, kindLink}, 14: {wireVarint, 0}, 15: {wireBytes, kindStatus}, 16: {wireFixed32, 0}},
	kindScopeSpans:    {3: {wireBytes, 0}},
	kindResourceSpans: {3: {wireBytes, 0}},
}

// ignored checks the wire form of a field nobody reads.
func (f *fields) ignored(v field, kind msgKind) *parseError {
	k, ok := known[kind][v.number]
	if !ok || !f.is(&v, k.wire) || k.inner == 0 {
		return f.err
	}
	return checkAny(v, k.inner, 0)
}

// checkAny checks the wire form of a message nobody reads.
func checkAny(msg field, kind msgKind, depth int) *parseError {
	if depth > maxDepth {
		return &parseError{at: msg.at, msg: fmt.Sprintf("got values nested deeper than %d", maxDepth)}
	}
	f := msg.walk()
	var v field
	for f.next(&v) {
		k, ok := known[kind][v.number]
		if !ok || !f.is(&v, k.wire) || k.inner == 0 {
			continue
		}
		f.adopt(checkAny(v, k.inner, depth+1))
	}
	return f.err
}
