// Package otlp turns OTLP messages into spans, JSON (json.go, pair.go, quick.go)
// and protobuf (proto.go) alike. The fields that nobody reads are checked for
// their form (jsonform.go, wireform.go), so that the fast readers take and refuse
// what OpenTelemetry's own decoder does; that one (pdata.go) is the reference of
// their tests and can be chosen. What attributes mean is in attr.go, what events
// and spans mean in build.go and span.go.
package otlp

import (
	"unicode/utf8"

	"github.com/blis-train/blis-train/pipeline/extract/scan"
	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// parser names a way to decode OTLP messages.
type parser interface {
	Json(text []byte, b *builder, out *Message) *scan.Error
	proto(data []byte, b *builder, out *Message) *scan.Error
}

// fastParser is the default; see json.go and proto.go.
type fastParser struct{}

func (fastParser) Json(t []byte, b *builder, out *Message) *scan.Error  { return parseJSON(t, b, out) }
func (fastParser) proto(d []byte, b *builder, out *Message) *scan.Error { return parseProto(d, b, out) }

// otlpDecoder reads OTLP for one worker.
type otlpDecoder struct {
	parser
	b *builder
}

// NewDecoder makes the decoders of a parser, fast or pdata.
func NewDecoder(name string) func() source.Decoder[*Message] {
	p := parser(fastParser{})
	if name == "pdata" {
		p = pdataParser{}
	}
	return func() source.Decoder[*Message] { return &otlpDecoder{p, newBuilder()} }
}

func (d *otlpDecoder) Records() *Message { return new(Message) }

func (d *otlpDecoder) Line(text []byte, out *Message) *scan.Error {
	err := unwrapped(text, func(document []byte, at int) *scan.Error {
		err := d.Json(document, d.b, out)
		if err != nil {
			err.At = max(0, err.At+at)
		}
		return err
	})
	out.strange = out.strange || err == nil && len(out.Spans) > out.before.spans && !utf8.Valid(text)
	return err
}

func (d *otlpDecoder) Message(data []byte, out *Message) *scan.Error { return d.proto(data, d.b, out) }
