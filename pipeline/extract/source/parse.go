package source

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/internal/stat"
)

// This file decodes batches on the workers.

// records is what a decoder finds in one batch. Before each message Mark is called, and after it
// either Undo, which removes its records if the message is broken, or Keep, which sets their line.
type records interface {
	Mark()
	Undo()
	Keep(line int64)
	// Number makes lines count from the start of the file. before is the number of lines of the
	// file before the batch.
	Number(before int64)
}

// Decoder reads the messages of one form of input. Each worker has a Decoder of its own.
type Decoder[R records] interface {
	// Records makes the records of one batch.
	Records() R
	// Line reads a line of text, or a document of several lines.
	Line(text []byte, out R) *Error
	// Message reads a length-prefixed binary message.
	Message(data []byte, out R) *Error
}

// Parsed is a batch that a worker has decoded.
type Parsed[R records] struct {
	Batch   *batch `packed:"-"`
	Records R
	form    form // framing of the batch
	faults  []fault
	lines   int64 // lines or messages that were decoded, whether broken or not
	bytes   int64 // of them
	numbers int64 // lines or messages of the file, including those that were lost
	err     error `packed:"-"` // why a stored batch cannot be read
}

// Number makes line numbers count from the start of the file. before is the number of lines or
// messages of the file before the batch.
func (p *Parsed[R]) Number(before int64) {
	for i := range p.faults {
		p.faults[i].line += before
	}
	p.Records.Number(before)
}

// parse returns the decoded records of a batch.
func parse[R records](b *batch, d Decoder[R]) *Parsed[R] {
	out := &Parsed[R]{Batch: b, Records: d.Records(), form: b.form, bytes: int64(len(b.data)), faults: b.faults}
	switch {
	case b.form == formStored:
		out.err = files.NewCodec[Parsed[R]]().Decode(b.data, out, files.NewInterner())
		b.data = nil
		return out
	case b.passed > 0: // a line that was too long, whose fault the reader has noted
		out.lines = 1
		out.bytes = b.passed
	case b.form == formLines:
		out.parseLines(d)
	case b.form == formWhole:
		out.parseDocument(d)
	default:
		out.parseMessages(d)
	}
	stat.SortStable(out.faults, func(a, b fault) int { return cmp.Compare(a.line, b.line) })
	out.numbers = out.lines + b.lost
	b.data = nil // the worker reuses the buffer
	return out
}

// parseDocument decodes one document of many lines.
func (p *Parsed[R]) parseDocument(d Decoder[R]) {
	data := p.Batch.data
	if len(data) == 0 {
		return // the batch has only the fault of a document that could not be read
	}
	p.lines = int64(bytes.Count(data, Newline)) + 1
	p.decode(data, 1, 0, d.Line)
	for i := range p.faults {
		f := &p.faults[i]
		if f.col == 0 {
			continue
		}
		// The fault has the offset in the document as its column; find the line.
		before := data[:min(int(f.col-1), len(data))]
		f.line = 1 + int64(bytes.Count(before, Newline))
		f.col -= int64(bytes.LastIndexByte(before, '\n') + 1)
	}
}

// parseMessages decodes length-prefixed messages.
func (p *Parsed[R]) parseMessages(d Decoder[R]) {
	b := p.Batch
	start := 0
	for i, end := range b.ends {
		p.lines++
		// A file of NUL bytes looks like many empty messages. Only the first of several is decoded.
		if i > 0 && end == 0 || i > 1 && end == b.ends[i-2] {
			continue
		}
		msg := b.data[start:end]
		start = end
		read := d.Message
		if text := bytes.TrimLeft(msg, " \t\r\n"); len(text) > 0 && text[0] == '{' {
			read = d.Line // zstd frames of older exporters hold JSON
		}
		p.decode(msg, 1+int64(i), b.offset, read)
	}
}

// parseLines decodes each line of the batch.
func (p *Parsed[R]) parseLines(d Decoder[R]) {
	b := p.Batch
	line := int64(1)
	from := b.unbroken // where the line's end is looked for
	for pos := 0; pos < len(b.data); line++ {
		end := len(b.data)
		if i := bytes.IndexByte(b.data[from:], '\n'); i >= 0 {
			end = from + i
		}
		text := b.data[pos:end]
		switch {
		case len(bytes.Trim(text, " \t\r")) == 0:
		case b.maxLine > 0 && int64(len(text)) > b.maxLine:
			p.faults = append(p.faults, lineTooLong(line, b.offset+int64(pos), int64(len(text)), b.maxLine))
		default:
			p.decode(text, line, b.offset+int64(pos), d.Line)
		}
		p.lines++
		pos = end + 1
		from = pos
	}
}

// decode decodes one message with read, and keeps its records unless it is broken.
func (p *Parsed[R]) decode(data []byte, line, offset int64, read func([]byte, R) *Error) {
	p.Records.Mark()
	err := read(data, p.Records)
	if err == nil {
		p.Records.Keep(line)
		return
	}
	p.Records.Undo()
	if len(bytes.Trim(data, "\x00")) == 0 { // as a file system leaves behind a crash
		p.faults = append(p.faults, fault{
			code:   CodeNulPadding,
			line:   line,
			offset: offset,
			msg:    fmt.Sprintf("%d trailing NUL bytes", len(data)),
		})
		return
	}
	f := fault{
		code:      cmp.Or(err.Code, CodeUnreadable),
		line:      line,
		col:       int64(err.At) + 1,
		offset:    offset + int64(err.At),
		bytes:     int64(len(data)),
		msg:       err.Msg,
		byMessage: p.form == formProto,
	}
	// Every message may have a fault. To bound memory, equal faults are only counted once there are
	// enough examples.
	if n := len(p.faults); n > maxExamples {
		last := &p.faults[n-1]
		if last.code == f.code && last.col == f.col && last.bytes == f.bytes && last.msg == f.msg {
			last.more++
			return
		}
	}
	p.faults = append(p.faults, f)
}

// Account adds the lines, bytes and faults of the batch to a, but not its records, which the collector of
// the decoder's rows counts. name is the name of the file.
func (p *Parsed[R]) Account(a *Account, name string) {
	a.Lines += p.lines
	a.Bytes += p.bytes
	for _, f := range p.faults {
		n := 1 + f.more
		a.Read += n
		a.BadBytes += f.bytes * n
		if p.bytes == 0 || p.form == formProto { // p.bytes does not have them
			a.Bytes += f.bytes * n
		}
		if f.code == CodeUnreadable {
			a.Truncated += n
		}
		unit := ""
		if f.byMessage {
			unit = "message "
		}
		a.Drop(f.code, n, Place{File: name, Line: f.line, Col: f.col}, "%s(byte %d) %s", unit, f.offset, f.msg)
	}
}
