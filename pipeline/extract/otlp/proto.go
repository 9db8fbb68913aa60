package otlp

// This file reads OTLP/protobuf in place (opentelemetry/proto/trace/v1/trace.proto). Field numbers are
// those of that schema; fieldTypes lists them.

import (
	"encoding/binary"
	"fmt"
	"iter"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// parseProto reads one TracesData message into out (spec#wire-proto). It first checks the whole
// message and returns the fault if there is one, so that reading meets none.
func parseProto(data []byte, b *builder, out *Batch) *source.Error {
	if err := checkMessage(msgTraces, data, 0, 0); err != nil {
		return err
	}
	for f := range protoFields(data) {
		if f.number == 1 {
			readResourceSpans(f.data, b, out)
		}
		if b.isOverBudget() {
			return errOverBudget(0)
		}
	}
	return nil
}

// readResourceSpans adds the spans of one resource to the batch. The resource may come after its
// spans.
func readResourceSpans(data []byte, b *builder, out *Batch) {
	from := len(out.Spans)
	var id identity
	for f := range protoFields(data) {
		switch f.number {
		case 1:
			readResource(f.data, &id)
		case 2:
			readScopeSpans(f.data, b, out)
		}
	}
	resource := id.hash()
	for _, s := range out.Spans[from:] {
		s.Resource = resource
	}
}

// readResource stores the attributes of a Resource that identify the process.
func readResource(data []byte, id *identity) {
	for f := range protoFields(data) {
		if f.number != 1 {
			continue
		}
		key, v := readPair(f.data)
		switch v.is {
		case wantText:
			id.set(string(key), v.text)
		case wantInt:
			id.set(string(key), strconv.AppendInt(nil, v.num, 10))
		}
	}
}

// readScopeSpans adds the spans of one scope to the batch. The scope may come after its spans, so
// its name is looked for first.
func readScopeSpans(data []byte, b *builder, out *Batch) {
	scope := ""
	for f := range protoFields(data) {
		if f.number != 1 {
			continue
		}
		for g := range protoFields(f.data) {
			if g.number == 1 {
				scope = b.intern(g.data)
			}
		}
	}
	for f := range protoFields(data) {
		if f.number == 2 {
			s := readSpan(f.data, scope, b)
			s.Hash = contentHash(f.data)
			if out.addSpan(s, &b.budget); b.isOverBudget() {
				return
			}
		}
	}
}

// readSpan returns the span in a message. scope is the name of its instrumentation scope.
func readSpan(data []byte, scope string, b *builder) *Span {
	b.beginSpan()
	s := b.cur
	name := ""
	var startNs, endNs uint64
	for f := range protoFields(data) {
		if b.isOverBudget() {
			break
		}
		switch f.number {
		case 1:
			setID(s.TraceID[:], f.data)
		case 2:
			setID(s.SpanID[:], f.data)
		case 4:
			setID(s.Parent[:], f.data)
		case 5:
			name = b.intern(f.data)
		case 7:
			startNs = f.num
		case 8:
			endNs = f.num
		case 9:
			readAttribute(f.data, &b.sp)
		case 11:
			readEvent(f.data, b)
		case 12:
			s.DroppedEvents = int64(uint32(f.num))
		}
	}
	s.StartNs = b.clampNs(startNs)
	s.EndNs = b.clampNs(endNs)
	return b.endSpan(scope, name)
}

// setID sets an id, of which an empty field is the zero one.
func setID(id, data []byte) {
	clear(id)
	copy(id, data)
}

// readEvent adds one event to the span that is being read.
func readEvent(data []byte, b *builder) {
	var name []byte
	var wallNs uint64
	b.ev.reset(noSlot)
	for f := range protoFields(data) {
		switch f.number {
		case 1:
			wallNs = f.num
		case 2:
			name = f.data
			if known, ok := b.eventOf(name); ok {
				b.ev.next = firstSlot[known]
			}
		case 3:
			readAttribute(f.data, &b.ev)
		}
	}
	b.addNamedEvent(name, b.clampNs(wallNs))
}

// readAttribute stores an attribute of a span or event that has a slot.
func readAttribute(data []byte, a *attrs) {
	key, v := readPair(data)
	a.store(a.find(key), v.is, v.num, v.text)
}

// protoValue is an AnyValue: num is an integer or the bits of a float.
type protoValue struct {
	is   attrType
	num  int64
	text []byte
}

// readPair returns the key and the value of a KeyValue. If it has several values, it returns the
// last one.
func readPair(data []byte) (key []byte, v protoValue) {
	v.is = wantNothing
	for f := range protoFields(data) {
		switch f.number {
		case 1:
			key = f.data
		case 2:
			for g := range protoFields(f.data) {
				switch g.number {
				case 1:
					v = protoValue{is: wantText, text: g.data}
				case 3:
					v = protoValue{is: wantInt, num: int64(g.num)}
				case 4:
					v = protoValue{is: wantFloat, num: int64(g.num)}
				case 2, 5, 6, 7:
					v = protoValue{is: wantOther}
				case 8: // an index into a table of strings, which traces do not have
					v = protoValue{is: wantNothing}
				}
			}
		}
	}
	return key, v
}

// msgKind is the kind of an OTLP message.
type msgKind uint8

const (
	msgTraces msgKind = iota + 1
	msgResourceSpans
	msgResource
	msgEntity
	msgScopeSpans
	msgScope
	msgSpan
	msgEvent
	msgLink
	msgStatus
	msgPair
	msgValue
	msgArray
	msgList
)

// fieldType is what a field of a message must be.
type fieldType struct {
	known  bool    // OTLP has the field
	wire   uint8   // wire type
	inner  msgKind // kind of the message in it; 0 for none
	length uint8   // bytes of an id, which may be empty too; 0 for any length
}

var (
	ofVarint  = fieldType{known: true, wire: wireVarint}
	ofFixed32 = fieldType{known: true, wire: wireFixed32}
	ofFixed64 = fieldType{known: true, wire: wireFixed64}
	ofText    = fieldType{known: true, wire: wireBytes}
	ofTraceID = fieldType{known: true, wire: wireBytes, length: 16}
	ofSpanID  = fieldType{known: true, wire: wireBytes, length: 8}
)

// ofMessage returns the type of a field that contains a message of the kind.
func ofMessage(kind msgKind) fieldType {
	return fieldType{known: true, wire: wireBytes, inner: kind}
}

// oldScopeSpans is the field of ResourceSpans that had the spans before OTLP 0.15. It is checked and
// dropped.
const oldScopeSpans = 1000

// fieldTypes are the fields of each kind of message by number (opentelemetry/proto/trace/v1,
// resource/v1 and common/v1).
var fieldTypes = [...][17]fieldType{
	msgTraces:        {1: ofMessage(msgResourceSpans)},
	msgResourceSpans: {1: ofMessage(msgResource), 2: ofMessage(msgScopeSpans), 3: ofText},
	msgResource:      {1: ofMessage(msgPair), 2: ofVarint, 3: ofMessage(msgEntity)},
	msgEntity:        {1: ofText, 2: ofText, 3: ofText, 4: ofText},
	msgScopeSpans:    {1: ofMessage(msgScope), 2: ofMessage(msgSpan), 3: ofText},
	msgScope:         {1: ofText, 2: ofText, 3: ofMessage(msgPair), 4: ofVarint},
	msgSpan: {1: ofTraceID, 2: ofSpanID, 3: ofText, 4: ofSpanID, 5: ofText, 6: ofVarint, 7: ofFixed64,
		8: ofFixed64, 9: ofMessage(msgPair), 10: ofVarint, 11: ofMessage(msgEvent), 12: ofVarint,
		13: ofMessage(msgLink), 14: ofVarint, 15: ofMessage(msgStatus), 16: ofFixed32},
	msgEvent:  {1: ofFixed64, 2: ofText, 3: ofMessage(msgPair), 4: ofVarint},
	msgLink:   {1: ofTraceID, 2: ofSpanID, 3: ofText, 4: ofMessage(msgPair), 5: ofVarint, 6: ofFixed32},
	msgStatus: {2: ofText, 3: ofVarint},
	msgPair:   {1: ofText, 2: ofMessage(msgValue), 3: ofVarint},
	msgValue: {1: ofText, 2: ofVarint, 3: ofVarint, 4: ofFixed64, 5: ofMessage(msgArray), 6: ofMessage(msgList),
		7: ofText, 8: ofVarint},
	msgArray: {1: ofMessage(msgValue)},
	msgList:  {1: ofMessage(msgPair)},
}

// typeOfField returns the type of a field; its known is false for a field that OTLP does not have.
func typeOfField(kind msgKind, number int32) fieldType {
	switch {
	case int(number) < len(fieldTypes[kind]):
		return fieldTypes[kind][number]
	case kind == msgResourceSpans && number == oldScopeSpans:
		return ofMessage(msgScopeSpans)
	}
	return fieldType{}
}

// Wire types of protobuf; groups, 3 and 4, are not part of OTLP.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// checkMessage returns an error unless the wire format of a message, the types of the fields that
// OTLP has, and the nesting are right: a hostile message could exhaust the stack, from which a Go
// program cannot recover. base is the offset of the message in the dump's message, for errors;
// depth is the number of messages around it. Fields that OTLP does not have are only measured.
func checkMessage(kind msgKind, data []byte, base, depth int) *source.Error {
	if depth > source.MaxDepth {
		return &source.Error{At: base, Msg: fmt.Sprintf("got values nested deeper than %d", source.MaxDepth)}
	}
	for at := 0; at < len(data); {
		fault := func(format string, args ...any) *source.Error {
			return &source.Error{At: base + at, Msg: fmt.Sprintf(format, args...)}
		}
		tag, n := binary.Uvarint(data[at:])
		if n <= 0 {
			return fault("got no whole varint of at most 10 bytes")
		}
		value := at + n   // offset of what comes after the tag, or after the length
		size := uint64(0) // bytes of the value
		switch tag & 7 {  // the wire type; the bits above it are the number of the field
		case wireVarint:
			_, n = binary.Uvarint(data[value:])
			size = uint64(max(n, 0))
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		case wireBytes:
			size, n = binary.Uvarint(data[value:])
			value += max(n, 0)
		default:
			return fault("got the wire type %d, want 0, 1, 2 or 5", tag&7)
		}
		if n <= 0 {
			return fault("got no whole varint of at most 10 bytes")
		}
		if left := len(data) - value; size > uint64(left) {
			return fault("got a field of %d bytes, want at most the %d that are left", size, left)
		}
		number := int32(tag >> 3)
		if number <= 0 {
			return fault("got the field number %d, want a positive one", number)
		}
		end := value + int(size)
		if want := typeOfField(kind, number); want.known {
			if uint8(tag&7) != want.wire {
				return fault("got field %d with the wire type %d, want %d", number, tag&7, want.wire)
			}
			if want.length > 0 && size > 0 && size != uint64(want.length) {
				return fault("got an id of %d bytes, want %d", size, want.length)
			}
			if want.inner != 0 {
				if err := checkMessage(want.inner, data[value:end], base+value, depth+1); err != nil {
					return err
				}
			}
		}
		at = end
	}
	return nil
}

// protoField is a field of a message: a number, or bytes.
type protoField struct {
	number int32  // of the field in the schema
	num    uint64 // value of a varint or fixed field
	data   []byte // value of a field of bytes: a text, an id or a message
}

// protoFields returns an iterator over the fields of a message that checkMessage has accepted.
func protoFields(data []byte) iter.Seq[protoField] {
	return func(yield func(protoField) bool) {
		for len(data) > 0 {
			tag, n := binary.Uvarint(data)
			data = data[n:]
			f := protoField{number: int32(tag >> 3)}
			switch tag & 7 {
			case wireVarint:
				f.num, n = binary.Uvarint(data)
			case wireFixed64:
				f.num = binary.LittleEndian.Uint64(data)
				n = 8
			case wireFixed32:
				f.num = uint64(binary.LittleEndian.Uint32(data))
				n = 4
			case wireBytes:
				length, k := binary.Uvarint(data)
				n = k + int(length)
				f.data = data[k:n]
			}
			data = data[n:]
			if !yield(f) {
				return
			}
		}
	}
}
