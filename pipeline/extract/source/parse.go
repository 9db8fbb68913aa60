package source

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/internal/files"
)

// records are what a decoder finds in one batch. What a broken message gave is
// forgotten, the rest gets its place.
type records interface {
	Mark()               // a message begins
	Undo()               // it is broken
	Keep(line int64)     // it is whole and stands there
	Number(before int64) // lines count from the file's start: so many stand before the batch
}

// Decoder reads the messages of one form of input; a worker has one of its own.
type Decoder[R records] interface {
	Records() R // for a batch
	// line reads a line of text, or a document of several.
	Line(text []byte, out R) *Error
	// message reads a length-prefixed binary message.
	Message(data []byte, out R) *Error
}

// Parsed is what a worker makes of a batch.
type Parsed[R records] struct {
	Batch   *batch `packed:"-"`
	Records R
	form    form // of the batch, as it stands in the file
	faults  []fault
	lines   int64
	bytes   int64
	numbers int64 // lines or messages of the file that the batch used up
	err     error `packed:"-"` // what was stored cannot be read
}

// Number turns line numbers that count from the batch's start into those of
// the file, of which before were used up earlier.
func (p *Parsed[R]) Number(before int64) {
	for i := range p.faults {
		p.faults[i].line += before
	}
	p.Records.Number(before)
}

// parse decodes a batch.
func parse[R records](b *batch, d Decoder[R]) *Parsed[R] {
	out := &Parsed[R]{Batch: b, Records: d.Records(), form: b.form, bytes: int64(len(b.data)), faults: b.faults}
	switch {
	case b.form == formStored:
		out.err, b.data = files.NewCodec[Parsed[R]]().Decode(b.data, out, files.NewInterner()), nil
		return out
	case b.passed > 0:
		out.lines, out.bytes = 1, b.passed
	case b.form == formLines:
		out.parseLines(d)
	case b.form == formWhole:
		out.lines = int64(bytes.Count(b.data, Newline)) + 1
		out.one(b.data, 1, 0, d.Line)
		for i := range out.faults {
			if f := &out.faults[i]; f.col > 0 { // the column counts from the document's start
				before := b.data[:min(int(f.col-1), len(b.data))]
				f.line = 1 + int64(bytes.Count(before, Newline))
				f.col -= int64(bytes.LastIndexByte(before, '\n') + 1)
			}
		}
	default:
		start := 0
		for i, end := range b.ends {
			msg := b.data[start:end]
			if i > 0 && end == 0 || i > 1 && end == b.ends[i-2] { // empty like the one before, which tells of all
				out.lines++
				continue
			}
			run := d.Message
			if t := bytes.TrimLeft(msg, " \t\r\n"); len(t) > 0 && t[0] == '{' {
				run = d.Line // legacy zstd frames hold JSON too
			}
			out.lines++
			out.one(msg, 1+int64(i), b.offset, run)
			start = end
		}
	}
	slices.SortStableFunc(out.faults, func(a, b fault) int { return cmp.Compare(a.line, b.line) })
	out.numbers = out.lines + b.lost
	b.data = nil // the buffer is the worker's
	return out
}

func (p *Parsed[R]) parseLines(d Decoder[R]) {
	b := p.Batch
	line := int64(1)
	for pos := 0; pos < len(b.data); line++ {
		end := bytes.IndexByte(b.data[pos:], '\n')
		if end < 0 {
			end = len(b.data) - pos
		}
		text := b.data[pos : pos+end]
		switch {
		case len(bytes.Trim(text, " \t\r")) == 0:
		case b.maxLine > 0 && int64(len(text)) > b.maxLine:
			p.faults = append(p.faults, tooLong(line, b.offset+int64(pos), int64(len(text)), b.maxLine))
		default:
			p.one(text, line, b.offset+int64(pos), d.Line)
		}
		p.lines++
		pos += end + 1
	}
}

// one decodes one message and keeps its records, or none of them.
func (p *Parsed[R]) one(data []byte, line, offset int64, run func([]byte, R) *Error) {
	p.Records.Mark()
	err := run(data, p.Records)
	if err == nil {
		p.Records.Keep(line)
		return
	}
	p.Records.Undo()
	if len(bytes.Trim(data, "\x00")) == 0 {
		p.faults = append(p.faults, fault{code: CodeNulPadding, line: line, offset: offset,
			msg: fmt.Sprintf("%d trailing NUL bytes", len(data))})
		return
	}
	f := fault{code: CodeUnreadable, line: line, col: int64(err.At) + 1, offset: offset + int64(err.At), bytes: int64(len(data)),
		msg: err.Msg, byMessage: p.form == formProto}
	if n := len(p.faults); n > maxExamples { // there may be as many as there are messages
		if last := &p.faults[n-1]; last.code == f.code && last.col == f.col && last.bytes == f.bytes && last.msg == f.msg {
			last.more++
			return
		}
	}
	p.faults = append(p.faults, f)
}

// Account counts what the batch lost, apart from its records; name is its file's.
func (p *Parsed[R]) Account(a *Account, name string) {
	a.Lines += p.lines
	a.Bytes += p.bytes
	for _, f := range p.faults {
		n := 1 + f.more
		a.Read += n
		a.BadBytes += f.bytes * n
		if p.bytes == 0 || p.form == formProto {
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
