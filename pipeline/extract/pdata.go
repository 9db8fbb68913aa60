package extract

import (
	"hash/maphash"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// pdataParser is the reference reader: OpenTelemetry's own decoder, which
// builds the whole object tree. It is the oracle of the fast reader's tests.
type pdataParser struct{}

// json decodes every object of text. OpenTelemetry's decoder stops after the
// first one and takes some text that is no JSON, so each object is walked
// first.
func (pdataParser) json(text []byte, b *builder, out *message) *parseError {
	c := cursor{b: text}
	for c.peek() != 0 {
		start := c.i
		if c.b[start] != '{' {
			c.unexpected("an OTLP/JSON object")
			return c.err
		}
		if !c.signals(out) {
			return c.err
		}
		if err := decodeJSON(text[start:c.i], b, out); err != nil {
			err.at += start
			return err
		}
	}
	if c.i < len(c.b) {
		c.unexpected("an OTLP/JSON object") // a raw NUL
	}
	out.texts = out.texts || c.surrogate
	return c.err
}

// signals walks one object and counts metrics and logs in it.
func (c *cursor) signals(out *message) bool {
	at := c.i
	c.take('{')
	var d documentKeys
	for first := true; c.more('}', &first); {
		k, ok := c.key()
		if !ok {
			return false
		}
		d.spans(k)
		if !c.skip(0) {
			return false
		}
	}
	out.ignored += d.others
	return c.checkDocument(&d, at)
}

func decodeJSON(text []byte, b *builder, out *message) *parseError {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(text)
	if err != nil {
		return &parseError{msg: err.Error()}
	}
	readTraces(t, b, out)
	return nil
}

// proto decodes a message whose form was walked first: OpenTelemetry's decoder
// recurses as deep as the message does, and takes the fields of a proto2 group
// for the message's own.
func (pdataParser) proto(data []byte, b *builder, out *message) *parseError {
	if err := checkAny(field{data: data}, kindTraces, 0); err != nil {
		return err
	}
	var u ptrace.ProtoUnmarshaler
	t, err := u.UnmarshalTraces(data)
	if err != nil {
		return &parseError{msg: err.Error()}
	}
	readTraces(t, b, out)
	return nil
}

func readTraces(t ptrace.Traces, b *builder, out *message) {
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
				s.resource = resource
				out.spans = append(out.spans, s)
			}
		}
	}
}

func readSpan(sp ptrace.Span, scope string, b *builder) *span {
	b.begin()
	s := b.cur
	s.traceID, s.spanID = sp.TraceID(), sp.SpanID()
	s.parent = sp.ParentSpanID()
	s.startNs, s.endNs = b.time(uint64(sp.StartTimestamp()), true), b.time(uint64(sp.EndTimestamp()), true)
	s.droppedEvents = int64(sp.DroppedEventsCount())
	readMap(sp.Attributes(), &b.sp)
	for _, e := range sp.Events().All() {
		b.ev.reset(noSlot)
		readMap(e.Attributes(), &b.ev)
		b.event([]byte(e.Name()), b.time(uint64(e.Timestamp()), true))
	}
	s = b.end(scope, b.intern([]byte(sp.Name())))
	s.hash = hashSpan(sp)
	return s
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
