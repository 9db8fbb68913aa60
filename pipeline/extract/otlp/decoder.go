// Package otlp turns OTLP messages into spans. JSON is read in one pass over its
// bytes (json.go, pair.go, quick.go), protobuf by OpenTelemetry's own decoder
// (proto.go). Fields that nobody reads are skipped. What attributes mean is in
// attr.go, what events and spans mean in build.go and span.go.
package otlp

import (
	"unicode/utf8"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// decoder reads OTLP for one worker.
type decoder struct{ b *builder }

// NewDecoder makes the decoder of one worker.
func NewDecoder() source.Decoder[*Message] { return decoder{newBuilder()} }

func (decoder) Records() *Message { return new(Message) }

func (d decoder) Line(text []byte, out *Message) *source.Error {
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

func (d decoder) Message(data []byte, out *Message) *source.Error { return parseProto(data, d.b, out) }

// Message is what a decoder finds in the OTLP messages of one batch.
type Message struct {
	Spans   []*Span
	Ignored []signals
	Texts   []int64 // lines with invalid Unicode
	strange bool    // invalid Unicode was replaced in the message being read
	others  int64   // metrics or logs objects in it
	before  struct{ spans int }
}

// signals are metrics or logs objects of a line.
type signals struct{ Line, N int64 }

func (m *Message) Mark() { m.before.spans, m.others, m.strange = len(m.Spans), 0, false }

func (m *Message) Undo() { m.Spans = m.Spans[:m.before.spans] }

func (m *Message) Keep(line int64) {
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

func (m *Message) Number(before int64) {
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
func (m *Message) Free() {
	for _, s := range m.Spans {
		if s.Rows != nil {
			s.Rows.Free()
		}
	}
}
