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
	fOldScopeSpans       = 1000 // for a time, instrumentation_library_spans; receivers move them to field 2
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
	var v uint64
	for n, ch := range f.b[f.i:min(len(f.b), f.i+maxVarint)] {
		v |= uint64(ch&0x7f) << (7 * n)
		if ch < 0x80 {
			f.i += n + 1
			return v, true
		}
	}
	if len(f.b)-f.i < maxVarint {
		return 0, f.fail("got the end of the message inside a varint")
	}
	return 0, f.fail("got a varint of more than %d bytes", maxVarint)
}

// maxVarint is the length of the longest varint. Bits of its last byte beyond
// the 64th are dropped, as protobuf decoders do.
const maxVarint = 10

// next reads one field into out.
func (f *fields) next(out *field) bool {
	if f.err != nil || f.i >= len(f.b) {
		return false
	}
	tag, ok := f.varint()
	if !ok {
		return false
	}
	out.number, out.wire = int(int32(tag>>3)), int(tag&7)
	if out.number <= 0 {
		return f.fail("got the illegal field number %d", out.number)
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
	var id identity
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fResource:
			if f.is(&v, wireBytes) {
				f.adopt(checkAny(v, kindResource, 0))
				protoIdentity(v, &id)
			}
		case fScopeSpans:
			if f.is(&v, wireBytes) {
				f.adopt(r.scopeSpans(v))
			}
		default:
			f.adopt(f.ignored(v, kindResourceSpans))
		}
	}
	resource := id.hash()
	for _, s := range r.out.spans[from:] {
		s.resource = resource
	}
	return f.err
}

// protoIdentity collects what identifies the process of a resource; its form
// has been checked.
func protoIdentity(resource field, id *identity) {
	f := resource.walk()
	var v, w field
	for f.next(&v) {
		if v.number != 1 {
			continue
		}
		key := ""
		var value anyValue
		pair := v.walk()
		for pair.next(&w) {
			switch w.number {
			case fPairKey:
				key = string(w.data)
			case fPairValue:
				value.read(w)
			}
		}
		switch value.kind {
		case anyText:
			id.set(key, value.text)
		case anyInt:
			id.set(key, strconv.AppendInt(nil, value.num, 10))
		}
	}
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
	var start, end uint64
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fSpanTraceID:
			f.id(&v, s.traceID[:])
		case fSpanSpanID:
			f.id(&v, s.spanID[:])
		case fSpanParentID:
			f.id(&v, s.parent[:])
		case fSpanName:
			if f.is(&v, wireBytes) {
				name = r.intern(v.data)
			}
		case fSpanStart:
			f.is(&v, wireFixed64)
			start = v.num
		case fSpanEnd:
			f.is(&v, wireFixed64)
			end = v.num
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
	s.startNs, s.endNs = r.time(start, true), r.time(end, true)
	s = r.end(scope, name)
	s.hash = maphash.Bytes(hashSeed, msg.data)
	r.out.spans = append(r.out.spans, s)
	return nil
}

// id copies an id field; an empty one is all zeros.
func (f *fields) id(v *field, dst []byte) {
	clear(dst)
	if !f.is(v, wireBytes) || len(v.data) == 0 {
		return
	}
	if len(v.data) != len(dst) {
		f.fail("got an id of %d bytes, want %d", len(v.data), len(dst))
		return
	}
	copy(dst, v.data)
}

func (r *protoReader) spanEvent(msg field) *parseError {
	var name []byte
	var wall uint64
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fEventTime:
			f.is(&v, wireFixed64)
			wall = v.num
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
		r.event(name, r.time(wall, true))
	}
	return f.err
}

// readPair reads one KeyValue into a. A value that is written in several
// pieces is merged, as protobuf wants it.
func readPair(msg field, a *attrs) *parseError {
	var key, v field
	var value anyValue
	f := msg.walk()
	for f.next(&v) {
		switch v.number {
		case fPairKey:
			if f.is(&v, wireBytes) {
				key = v
			}
		case fPairValue:
			if f.is(&v, wireBytes) {
				f.adopt(value.read(v))
			}
		default:
			f.adopt(f.ignored(v, kindPair))
		}
	}
	if f.err == nil {
		a.store(a.find(key.data), &value)
	}
	return f.err
}

// read decodes an AnyValue; the last of several values counts.
func (out *anyValue) read(msg field) *parseError {
	f := msg.walk()
	var v field
	for f.next(&v) {
		switch v.number {
		case fValueInt:
			f.is(&v, wireVarint)
			*out = anyValue{kind: anyInt, num: int64(v.num)}
		case fValueDouble:
			f.is(&v, wireFixed64)
			*out = anyValue{kind: anyFloat, float: math.Float64frombits(v.num)}
		case fValueString:
			f.is(&v, wireBytes)
			*out = anyValue{kind: anyText, text: v.data}
		case fValueBool, fValueBytes, fValueArray, fValueList:
			*out = anyValue{kind: anyOther}
			f.adopt(f.ignored(v, kindAny))
		case fValueStrindex:
			*out = anyValue{} // an index into a table that traces do not have
			f.adopt(f.ignored(v, kindAny))
		}
	}
	return f.err
}

// msgKind names the messages whose form is checked apart from reading them.
type msgKind uint8

const (
	kindTraces msgKind = iota + 1
	kindResource
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

// wireForm is how a field that nobody reads is written.
type wireForm struct {
	wire  int
	inner msgKind // of the message inside
	size  int     // of an id, when there is one
}

// known lists the fields of each message.
var known = map[msgKind]map[int]wireForm{
	kindResource: {1: {wire: wireBytes, inner: kindPair}, 2: {wire: wireVarint}, 3: {wire: wireBytes, inner: kindEntity}},
	kindEntity:   {1: {wire: wireBytes}, 2: {wire: wireBytes}, 3: {wire: wireBytes}, 4: {wire: wireBytes}},
	kindScope:    {1: {wire: wireBytes}, 2: {wire: wireBytes}, 3: {wire: wireBytes, inner: kindPair}, 4: {wire: wireVarint}},
	kindLink: {1: {wire: wireBytes, size: 16}, 2: {wire: wireBytes, size: 8}, 3: {wire: wireBytes}, 4: {wire: wireBytes, inner: kindPair},
		5: {wire: wireVarint}, 6: {wire: wireFixed32}},
	kindStatus: {2: {wire: wireBytes}, 3: {wire: wireVarint}},
	kindPair:   {1: {wire: wireBytes}, 2: {wire: wireBytes, inner: kindAny}, 3: {wire: wireVarint}},
	kindAny: {1: {wire: wireBytes}, 2: {wire: wireVarint}, 3: {wire: wireVarint}, 4: {wire: wireFixed64}, 5: {wire: wireBytes, inner: kindArray},
		6: {wire: wireBytes, inner: kindList}, 7: {wire: wireBytes}, 8: {wire: wireVarint}},
	kindArray: {1: {wire: wireBytes, inner: kindAny}},
	kindList:  {1: {wire: wireBytes, inner: kindPair}},
	kindEvent: {1: {wire: wireFixed64}, 2: {wire: wireBytes}, 3: {wire: wireBytes, inner: kindPair}, 4: {wire: wireVarint}},
	kindSpan: {1: {wire: wireBytes, size: 16}, 2: {wire: wireBytes, size: 8}, 3: {wire: wireBytes}, 4: {wire: wireBytes, size: 8}, 5: {wire: wireBytes},
		6: {wire: wireVarint}, 7: {wire: wireFixed64}, 8: {wire: wireFixed64}, 9: {wire: wireBytes, inner: kindPair}, 10: {wire: wireVarint},
		11: {wire: wireBytes, inner: kindEvent}, 12: {wire: wireVarint}, 13: {wire: wireBytes, inner: kindLink}, 14: {wire: wireVarint},
		15: {wire: wireBytes, inner: kindStatus}, 16: {wire: wireFixed32}},
	kindScopeSpans: {1: {wire: wireBytes, inner: kindScope}, 2: {wire: wireBytes, inner: kindSpan}, 3: {wire: wireBytes}},
	kindResourceSpans: {1: {wire: wireBytes, inner: kindResource}, 2: {wire: wireBytes, inner: kindScopeSpans}, 3: {wire: wireBytes},
		fOldScopeSpans: {wire: wireBytes, inner: kindScopeSpans}},
	kindTraces: {1: {wire: wireBytes, inner: kindResourceSpans}},
}

// ignored checks the wire form of a field nobody reads.
func (f *fields) ignored(v field, kind msgKind) *parseError {
	f.check(&v, kind, 0)
	return f.err
}

// check checks one field of a message of the kind; unknown ones are free.
func (f *fields) check(v *field, kind msgKind, depth int) {
	k, ok := known[kind][v.number]
	if !ok || !f.is(v, k.wire) {
		return
	}
	if k.inner != 0 {
		f.adopt(checkAny(*v, k.inner, depth))
	}
	if k.size > 0 && len(v.data) > 0 && len(v.data) != k.size {
		f.fail("got an id of %d bytes, want %d", len(v.data), k.size)
	}
}

// checkAny checks the wire form of a message nobody reads.
func checkAny(msg field, kind msgKind, depth int) *parseError {
	if depth > maxDepth {
		return &parseError{at: msg.at, msg: fmt.Sprintf("got values nested deeper than %d", maxDepth)}
	}
	f := msg.walk()
	var v field
	for f.next(&v) {
		f.check(&v, kind, depth+1)
	}
	return f.err
}
