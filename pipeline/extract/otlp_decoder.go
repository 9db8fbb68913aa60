// OTLP messages are turned into spans. JSON is read in one pass over its
// bytes (otlp_json.go, otlp_pair.go, otlp_quick.go), protobuf by OpenTelemetry's own decoder
// (otlp_proto.go). Fields that nobody reads are skipped. What attributes mean is in
// otlp_attr.go, what events and spans mean in otlp_build.go and otlp_span.go.

package extract

import (
	"unicode/utf8"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

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

func (m *otlpMessage) Mark() { m.before.spans, m.others, m.strange = len(m.Spans), 0, false }

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
