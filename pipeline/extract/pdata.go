package extract

import (
	"hash/maphash"
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// pdataParser is the reference reader: OpenTelemetry's own decoder, which
// builds the whole object tree. It is the oracle of the fast reader's tests.
type pdataParser struct{}

func (pdataParser) json(text []byte, b *builder, out *message) *parseError {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(text)
	if err != nil {
		return &parseError{msg: err.Error()}
	}
	return readTraces(t, b, out)
}

func (pdataParser) proto(data []byte, b *builder, out *message) *parseError {
	var u ptrace.ProtoUnmarshaler
	t, err := u.UnmarshalTraces(data)
	if err != nil {
		return &parseError{msg: err.Error()}
	}
	return readTraces(t, b, out)
}

func readTraces(t ptrace.Traces, b *builder, out *message) *parseError {
	for _, rs := range t.ResourceSpans().All() {
		var h maphash.Hash
		h.SetSeed(hashSeed)
		for k, v := range rs.Resource().Attributes().All() {
			h.WriteString(k)
			h.WriteByte(0)
			h.WriteString(v.AsString())
			h.WriteByte(0)
		}
		resource := h.Sum64()
		for _, ss := range rs.ScopeSpans().All() {
			for _, sp := range ss.Spans().All() {
				s, err := readSpan(sp, ss.Scope().Name(), b)
				if err != nil {
					return err
				}
				s.resource = resource
				out.spans = append(out.spans, s)
			}
		}
	}
	return nil
}

func readSpan(sp ptrace.Span, scope string, b *builder) (*span, *parseError) {
	b.begin()
	s := b.cur
	s.traceID, s.spanID = sp.TraceID(), sp.SpanID()
	s.parent = sp.ParentSpanID()
	s.hasParent = !sp.ParentSpanID().IsEmpty()
	if uint64(sp.StartTimestamp()) > math.MaxInt64 || uint64(sp.EndTimestamp()) > math.MaxInt64 {
		return nil, &parseError{msg: "got a time of more than 63 bits"}
	}
	s.startNs, s.endNs = int64(sp.StartTimestamp()), int64(sp.EndTimestamp())
	s.droppedEvents = int64(sp.DroppedEventsCount())
	readMap(sp.Attributes(), &b.sp)
	for _, e := range sp.Events().All() {
		if uint64(e.Timestamp()) > math.MaxInt64 {
			return nil, &parseError{msg: "got a time of more than 63 bits"}
		}
		b.ev.reset(noSlot)
		readMap(e.Attributes(), &b.ev)
		b.event([]byte(e.Name()), int64(e.Timestamp()))
	}
	s = b.end(scope, b.intern([]byte(sp.Name())))
	s.hash = hashSpan(sp)
	return s, nil
}

func readMap(m pcommon.Map, a *attrs) {
	for k, v := range m.All() {
		s := a.find([]byte(k))
		switch v.Type() {
		case pcommon.ValueTypeInt:
			a.setInt(s, v.Int())
		case pcommon.ValueTypeDouble:
			a.setFloat(s, v.Double())
		case pcommon.ValueTypeStr:
			a.setText(s, []byte(v.Str()))
		case pcommon.ValueTypeEmpty:
		default:
			a.setOther(s)
		}
	}
}

// hashSpan hashes the span's encoded form.
func hashSpan(sp ptrace.Span) uint64 {
	t := ptrace.NewTraces()
	sp.CopyTo(t.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty())
	var m ptrace.ProtoMarshaler
	data, err := m.MarshalTraces(t)
	if err != nil {
		return 0
	}
	return maphash.Bytes(hashSeed, data)
}
