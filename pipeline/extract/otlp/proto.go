package otlp

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// parseProto reads one TracesData message with OpenTelemetry's own decoder (spec#wire-proto).
func parseProto(data []byte, b *builder, out *Batch) *source.Error {
	w := wireWalk{data: data}
	if err := w.message(msgTraces, 0, len(data), 0); err != nil {
		return err
	}
	var u ptrace.ProtoUnmarshaler
	t, err := u.UnmarshalTraces(data)
	if err != nil {
		return &source.Error{Msg: err.Error()}
	}
	from := len(out.Spans)
	readTraces(t, b, out)
	for i, s := range out.Spans[from:] {
		s.Hash = w.hashes[i]
	}
	return nil
}

// readTraces adds the spans of a decoded message to the batch.
func readTraces(t ptrace.Traces, b *builder, out *Batch) {
	for _, rs := range t.ResourceSpans().All() {
		var id identity
		for k, v := range rs.Resource().Attributes().All() {
			if v.Type() == pcommon.ValueTypeStr || v.Type() == pcommon.ValueTypeInt {
				id.set(k, []byte(v.AsString()))
			}
		}
		resource := id.hash()
		for _, ss := range rs.ScopeSpans().All() {
			for _, sp := range ss.Spans().All() {
				s := readSpan(sp, ss.Scope().Name(), b)
				s.Resource = resource
				out.Spans = append(out.Spans, s)
			}
		}
	}
}

// readSpan converts one decoded span.
func readSpan(sp ptrace.Span, scope string, b *builder) *Span {
	b.beginSpan()
	s := b.cur
	s.TraceID, s.SpanID, s.Parent = sp.TraceID(), sp.SpanID(), sp.ParentSpanID()
	s.StartNs, s.EndNs = b.clampNs(uint64(sp.StartTimestamp())), b.clampNs(uint64(sp.EndTimestamp()))
	s.DroppedEvents = int64(sp.DroppedEventsCount())
	readMap(sp.Attributes(), &b.sp)
	for _, e := range sp.Events().All() {
		name := bytesOf(e.Name())
		b.ev.reset(noSlot)
		if known, ok := eventByName[string(name)]; ok {
			b.ev.next = firstSlot[known]
		}
		readMap(e.Attributes(), &b.ev)
		b.addNamedEvent(name, b.clampNs(uint64(e.Timestamp())))
	}
	return b.endSpan(scope, b.intern(bytesOf(sp.Name())))
}

// readMap stores the attributes of a span or event that have slots.
func readMap(m pcommon.Map, a *attrs) {
	for k, v := range m.All() {
		s := a.find(bytesOf(k))
		switch v.Type() {
		case pcommon.ValueTypeInt:
			a.store(s, wantInt, v.Int(), nil)
		case pcommon.ValueTypeDouble:
			a.storeFloat(s, v.Double())
		case pcommon.ValueTypeStr:
			a.store(s, wantText, 0, bytesOf(v.Str()))
		case pcommon.ValueTypeEmpty:
		default:
			a.store(s, wantOther, 0, nil)
		}
	}
}

// bytesOf is a view of a string as bytes. Callers must not change or keep them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// msgKind is the kind of an OTLP message that contains other messages.
type msgKind uint8

const (
	msgTraces msgKind = iota + 1
	msgResourceSpans
	msgResource
	msgScopeSpans
	msgOldScopeSpans // from before OTLP 0.15; it is decoded and dropped
	msgScope
	msgSpan
	msgEvent
	msgLink
	msgPair
	msgValue
	msgArray
	msgList
)

// innerMessages lists for each kind of message which fields, by number, contain another message
// (opentelemetry/proto/trace/v1 and common/v1).
var innerMessages = [...]map[int32]msgKind{
	msgTraces:        {1: msgResourceSpans},
	msgResourceSpans: {1: msgResource, 2: msgScopeSpans, 1000: msgOldScopeSpans},
	msgResource:      {1: msgPair},
	msgScopeSpans:    {1: msgScope, 2: msgSpan},
	msgOldScopeSpans: {1: msgScope, 2: msgSpan},
	msgScope:         {3: msgPair},
	msgSpan:          {9: msgPair, 11: msgEvent, 13: msgLink},
	msgEvent:         {3: msgPair},
	msgLink:          {4: msgPair},
	msgPair:          {2: msgValue},
	msgValue:         {5: msgArray, 6: msgList},
	msgArray:         {1: msgValue},
	msgList:          {1: msgPair},
}

// wireWalk checks the nesting of a message before it is decoded, and hashes the bytes of each span.
// OpenTelemetry's decoder recurses for each nested value, so a hostile message could exhaust the
// stack, from which a Go program cannot recover.
type wireWalk struct {
	data   []byte
	hashes []uint64
}

// message walks the message of a kind that is data[at:end], nested in depth others.
func (w *wireWalk) message(kind msgKind, at, end, depth int) *source.Error {
	if depth > source.MaxDepth {
		return &source.Error{At: at, Msg: fmt.Sprintf("got values nested deeper than %d", source.MaxDepth)}
	}
	for at < end {
		start := at
		tag, n := binary.Uvarint(w.data[at:end])
		at += max(n, 0)
		size := uint64(0) // of the field after its tag and length
		switch tag & 7 {
		case wireVarint:
			_, k := binary.Uvarint(w.data[at:end])
			n, size = min(n, k), uint64(max(k, 0))
		case wireFixed64:
			size = 8
		case wireFixed32:
			size = 4
		case wireBytes:
			length, k := binary.Uvarint(w.data[at:end])
			at += max(k, 0)
			n, size = min(n, k), length
		default:
			return &source.Error{At: start, Msg: fmt.Sprintf("got the wire type %d, want 0, 1, 2 or 5", tag&7)}
		}
		if n <= 0 {
			return &source.Error{At: start, Msg: "got no whole varint of at most 10 bytes"}
		}
		if size > uint64(end-at) {
			return &source.Error{At: start,
				Msg: fmt.Sprintf("got a field of %d bytes, want at most the %d that are left", size, end-at)}
		}
		next := at + int(size)
		if tag&7 == wireBytes {
			field := int32(tag >> 3)
			if kind == msgScopeSpans && field == 2 {
				w.hashes = append(w.hashes, contentHash(w.data[at:next]))
			}
			if in := innerMessages[kind][field]; in != 0 {
				if err := w.message(in, at, next, depth+1); err != nil {
					return err
				}
			}
		}
		at = next
	}
	return nil
}

// Wire types of protobuf; groups, 3 and 4, are not part of OTLP.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)
