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
