package otlp

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/blis-train/blis-train/pipeline/extract/scan"
)

// pdataParser is the reference reader: OpenTelemetry's own decoder, which
// builds the whole object tree. It is the oracle of the fast reader's tests.
type pdataParser struct{}

// Json decodes every object of text. OpenTelemetry's decoder stops after the
// first one and takes some text that is no JSON, so each object is walked
// first.
func (pdataParser) Json(text []byte, b *builder, out *Message) *scan.Error {
	c := textReader{scan.Cursor{B: text}}
	for c.Peek() != 0 {
		start := c.I
		if c.B[start] != '{' {
			c.Unexpected("an OTLP/JSON object")
			return c.Err
		}
		if !c.signals(out) {
			return c.Err
		}
		if err := decodeJSON(text[start:c.I], b, out); err != nil {
			err.At += start
			return err
		}
	}
	if c.I < len(c.B) {
		c.Unexpected("an OTLP/JSON object") // a raw NUL
	}
	out.strange = out.strange || c.Surrogate
	return c.Err
}

// signals walks one object and counts metrics and logs in it.
func (c *textReader) signals(out *Message) bool {
	at := c.I
	c.Take('{')
	var d documentKeys
	for first := true; c.More('}', &first); {
		k, ok := c.Key()
		if !ok {
			return false
		}
		d.spans(k)
		if !c.Skip(0) {
			return false
		}
	}
	out.others += d.others
	return c.checkDocument(&d, at)
}

func decodeJSON(text []byte, b *builder, out *Message) *scan.Error {
	var u ptrace.JSONUnmarshaler
	t, err := u.UnmarshalTraces(text)
	if err != nil {
		return &scan.Error{Msg: err.Error()}
	}
	readTraces(t, b, out)
	return nil
}

// proto decodes a message whose form was walked first: OpenTelemetry's decoder
// recurses as deep as the message does, and takes the fields of a proto2 group
// for the message's own.
func (pdataParser) proto(data []byte, b *builder, out *Message) *scan.Error {
	if err := checkAny(scan.Field{Data: data}, kindTraces, 0); err != nil {
		return err
	}
	var u ptrace.ProtoUnmarshaler
	t, err := u.UnmarshalTraces(data)
	if err != nil {
		return &scan.Error{Msg: err.Error()}
	}
	readTraces(t, b, out)
	return nil
}

func readTraces(t ptrace.Traces, b *builder, out *Message) {
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

func readSpan(sp ptrace.Span, scope string, b *builder) *Span {
	b.begin()
	s := b.cur
	s.TraceID, s.SpanID = sp.TraceID(), sp.SpanID()
	s.Parent = sp.ParentSpanID()
	s.StartNs, s.EndNs = b.time(uint64(sp.StartTimestamp()), true), b.time(uint64(sp.EndTimestamp()), true)
	s.DroppedEvents = int64(sp.DroppedEventsCount())
	readMap(sp.Attributes(), &b.sp)
	for _, e := range sp.Events().All() {
		b.ev.reset(noSlot)
		readMap(e.Attributes(), &b.ev)
		b.event([]byte(e.Name()), b.time(uint64(e.Timestamp()), true))
	}
	s = b.end(scope, b.intern([]byte(sp.Name())))
	s.Hash = hashSpan(sp)
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
	return hashOf(data)
}
