package extract

import (
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/blis-train/blis-train/pipeline/extract/otlp"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// edgeParser finds key-value pairs with a scalar value anywhere in a message,
// through the cursor of the JSON reader and OpenTelemetry's decoder.
type edgeParser struct{ out *edge }

func (p edgeParser) Records() *otlp.Message { return new(otlp.Message) }

func (p edgeParser) Line(text []byte, _ *otlp.Message) *source.Error {
	r := source.Cursor{B: text}
	for r.Err == nil && r.Peek() != 0 {
		p.anyJSON(&r)
	}
	return r.Err
}

func (p edgeParser) anyJSON(r *source.Cursor) {
	switch r.Peek() {
	case '[':
		r.I++
		for first := true; r.More(']', &first); {
			p.anyJSON(r)
		}
	case '{':
		p.object(r)
	default:
		r.Skip(0)
	}
}

func (p edgeParser) object(r *source.Cursor) {
	key := ""
	r.Take('{')
	for first := true; r.More('}', &first); {
		k, ok := r.Key()
		if !ok {
			return
		}
		r.Space()
		switch {
		case string(k) == "key" && r.Peek() == '"':
			v, _ := r.Str()
			key = string(v)
		case string(k) == "value" && r.Peek() == '{':
			p.value(r, key)
		default:
			p.anyJSON(r)
		}
	}
}

func (p edgeParser) value(r *source.Cursor, key string) {
	r.Take('{')
	for first := true; r.More('}', &first); {
		k, ok := r.Key()
		if !ok {
			return
		}
		r.Space()
		switch string(k) {
		case "intValue":
			v, _ := r.Int64()
			p.out.ints[key] = strconv.FormatInt(v, 10)
		case "doubleValue":
			p.out.floats[key], _ = r.Float()
		case "stringValue":
			v, _ := r.Str()
			p.out.strs[key] = string(v)
		default:
			p.anyJSON(r)
		}
	}
}

func (p edgeParser) Message(data []byte, _ *otlp.Message) *source.Error {
	var u ptrace.ProtoUnmarshaler
	traces, err := u.UnmarshalTraces(data)
	if err != nil {
		return &source.Error{Msg: err.Error()}
	}
	for _, rs := range traces.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				for key, v := range span.Attributes().All() {
					switch v.Type() {
					case pcommon.ValueTypeInt:
						p.out.ints[key] = v.AsString()
					case pcommon.ValueTypeDouble:
						p.out.floats[key] = v.Double()
					case pcommon.ValueTypeStr:
						p.out.strs[key] = v.Str()
					}
				}
			}
		}
	}
	return nil
}
