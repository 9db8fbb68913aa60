package otlp

import (
	"unicode/utf8"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// decoder implements source.Decoder for one worker.
type decoder struct{ b *builder }

// NewDecoder returns the decoder of one worker.
func NewDecoder() source.Decoder[*Batch] { return decoder{newBuilder()} }

// Records returns an empty batch.
func (decoder) Records() *Batch { return new(Batch) }

// Line decodes a line of OTLP/JSON, or a document of several lines, into out. It returns the first
// fault.
func (d decoder) Line(text []byte, out *Batch) *source.Error {
	d.b.beginMessage(len(text))
	err := eachDocument(text, func(document []byte, at int) *source.Error {
		err := parseJSON(document, d.b, out)
		if err != nil {
			err.At = max(0, err.At+at)
		}
		return err
	})
	if err == nil && len(out.Spans) > out.before && !utf8.Valid(text) {
		out.replaced = true
	}
	return err
}

// Message decodes a protobuf TracesData message into out. It returns the first fault.
func (d decoder) Message(data []byte, out *Batch) *source.Error {
	d.b.beginMessage(len(data))
	return parseProto(data, d.b, out)
}

// Batch is the spans in one batch of lines or messages. Its methods are those that package source
// requires of records.
type Batch struct {
	Spans   []*Span  // those that a table may need
	Unused  []Unused // the others
	Ignored []Signals
	Texts   []int64 // lines in which invalid Unicode was replaced

	// Of the message being read:
	before   int   // number of spans of earlier messages
	unused   int   // number of entries of Unused of earlier messages
	replaced bool  // invalid Unicode was replaced
	others   int64 // objects of metrics, logs or profiles
}

// Signals is the number of objects of metrics, logs or profiles in one line of a dump.
type Signals struct{ Line, N int64 }

// Mark is called before each message.
func (b *Batch) Mark() {
	b.before = len(b.Spans)
	b.unused = len(b.Unused)
	b.others = 0
	b.replaced = false
}

// Undo removes the spans of the current message, because it turned out to be broken.
func (b *Batch) Undo() {
	clear(b.Spans[b.before:])
	b.Spans = b.Spans[:b.before]
	clear(b.Unused[b.unused:])
	b.Unused = b.Unused[:b.unused]
}

// Unused is consecutive spans of one message that have the same scope and name and are of another
// program, or of no use to any table.
type Unused struct {
	Line        int64
	Scope, Name string
	Spans       int64
	Events      []NamedCount
}

// Records returns the number of spans and events.
func (u *Unused) Records() int64 {
	n := u.Spans
	for _, e := range u.Events {
		n += e.N
	}
	return n
}

// addSpan adds a span to the batch. Those of no use are only counted, so that they take no memory.
func (b *Batch) addSpan(s *Span, budget *int64) {
	if s.Class != ClassForeign {
		*budget -= spanBytes
		b.Spans = append(b.Spans, s)
		return
	}
	var u *Unused
	if n := len(b.Unused); n > b.unused && b.Unused[n-1].Scope == s.Scope && b.Unused[n-1].Name == s.Name {
		u = &b.Unused[n-1]
	} else {
		*budget -= unusedBytes
		b.Unused = append(b.Unused, Unused{Scope: s.Scope, Name: s.Name})
		u = &b.Unused[n]
	}
	u.Spans++
	before := len(u.Events)
	for e, n := range s.Counts {
		if n > 0 {
			u.Events = countName(u.Events, EventName(e).String(), int64(n))
		}
	}
	for _, other := range s.Others {
		u.Events = countName(u.Events, other.Name, other.N)
	}
	*budget -= nameBytes * int64(len(u.Events)-before)
}

// Keep sets the line of the records of the current message, which turned out to be whole.
func (b *Batch) Keep(line int64) {
	for _, s := range b.Spans[b.before:] {
		s.Line = line
	}
	for i := range b.Unused[b.unused:] {
		b.Unused[b.unused+i].Line = line
	}
	if b.replaced {
		b.Texts = append(b.Texts, line)
	}
	if b.others > 0 {
		b.Ignored = append(b.Ignored, Signals{line, b.others})
	}
}

// Number makes lines count from the start of the file. before is the number of lines of the file
// before the batch.
func (b *Batch) Number(before int64) {
	for _, s := range b.Spans {
		s.Line += before
	}
	for i := range b.Unused {
		b.Unused[i].Line += before
	}
	for i := range b.Texts {
		b.Texts[i] += before
	}
	for i := range b.Ignored {
		b.Ignored[i].Line += before
	}
}

// Free recycles the rows of all spans, if the batch will not be collected.
func (b *Batch) Free() {
	for _, s := range b.Spans {
		if s.Rows != nil {
			s.Rows.Free()
		}
	}
}
