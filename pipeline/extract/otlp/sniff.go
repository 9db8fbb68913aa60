package otlp

import (
	"bytes"
	"encoding/binary"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// This file recognises dumps of spans by their beginning.

// IsDump reports whether a JSON text, of which head is the beginning without leading space, is a dump of spans: one of its
// first objects, or the first element of an array, has a list of resourceSpans at its top level, or is an answer of Tempo.
func IsDump(head []byte) bool {
	c := source.Cursor{B: head}
	for c.Peek() == '[' {
		c.Take('[')
	}
	for c.Err == nil && c.Peek() == '{' {
		isFirst := true
		for key := range c.Members {
			switch string(key) {
			case "resourceSpans", "resource_spans":
				return c.Peek() == '['
			case string(tempoTrace):
				if isFirst && c.Peek() == '{' {
					return IsDump(head[c.I:])
				}
			case string(tempoBatches):
				if isFirst && c.Peek() == '[' {
					return hasScopeSpans(head)
				}
			}
			isFirst = false
			c.Skip(0)
		}
	}
	return false
}

// hasScopeSpans reports whether a text has a key of OTLP/JSON for the spans of one scope.
func hasScopeSpans(text []byte) bool {
	for _, key := range []string{`"scopeSpans"`, `"scope_spans"`, `"instrumentationLibrarySpans"`, `"instrumentation_library_spans"`} {
		if bytes.Contains(text, []byte(key)) {
			return true
		}
	}
	return false
}

// IsDumpMessage reports whether a message of a stream, of which head is the beginning, has spans: as JSON, or as protobuf.
// Metrics, logs and profiles have the same frame and other fields.
func IsDumpMessage(head []byte) bool {
	if IsDump(head) {
		return true
	}
	var p protoHead
	return p.conforms(msgTraces, head, 0) && p.hasSpan
}

// protoHead is the beginning of a protobuf message that is looked at.
type protoHead struct {
	hasSpan bool // a span has a field that metrics, logs and profiles do not have with this type
}

// conforms reports whether the beginning of a message of the kind has the fields that OTLP has, of their types. Writers put
// them in ascending or in descending order, and data may end anywhere.
func (p *protoHead) conforms(kind msgKind, data []byte, depth int) bool {
	if depth > source.MaxDepth {
		return false
	}
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n == 0 {
			return true // data ends here
		}
		if n < 0 {
			return false
		}
		data = data[n:]
		number, wire := int32(tag>>3), uint8(tag&7)
		size := uint64(0) // bytes of the value after its length
		n = 0             // bytes of a varint, which is the value or its length
		switch wire {
		case wireVarint:
			_, n = binary.Uvarint(data)
		case wireBytes:
			size, n = binary.Uvarint(data)
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		default:
			return false
		}
		is := typeOfField(kind, number)
		if number <= 0 || n < 0 || is.known && is.wire != wire {
			return false
		}
		data = data[n:]
		if is.length > 0 && size != uint64(is.length) && size > 0 {
			return false
		}
		value := data[:min(size, uint64(len(data)))]
		if is.inner != 0 && !p.conforms(is.inner, value, depth+1) {
			return false
		}
		// Of the fields of a span these have other types, or none, in a metric and in a record of a log.
		if kind == msgSpan && is.known && number >= 6 && number != 9 {
			p.hasSpan = true
		}
		data = data[len(value):]
	}
	return true
}
