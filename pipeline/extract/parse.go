package extract

import (
	"bytes"
	"unicode/utf8"
)

// parsed is what a worker makes of a batch.
type parsed struct {
	batch   *batch
	msg     message
	faults  []fail
	first   int64 // number of the first line or message
	lines   int64
	bytes   int64
	nul     int64   // bytes of NUL padding
	texts   []int64 // lines with invalid Unicode
	numbers int64   // lines or messages of the file that the batch used up
}

// number turns line numbers that count from the batch's start into those of
// the file, of which before were used up earlier.
func (p *parsed) number(before int64) {
	for i := range p.faults {
		p.faults[i].line += before
	}
	for _, s := range p.msg.spans {
		s.line += before
	}
	for i := range p.msg.kv {
		p.msg.kv[i].Line += before
	}
	for i := range p.msg.bad {
		p.msg.bad[i].line += before
	}
	for i := range p.texts {
		p.texts[i] += before
	}
	p.first = 1 + before
}

// parser names a way to decode messages.
type parser interface {
	json(text []byte, b *builder, out *message) *parseError
	proto(data []byte, b *builder, out *message) *parseError
}

// fastParser is the default; see json.go and proto.go.
type fastParser struct{}

func (fastParser) json(t []byte, b *builder, out *message) *parseError  { return parseJSON(t, b, out) }
func (fastParser) proto(d []byte, b *builder, out *message) *parseError { return parseProto(d, b, out) }

// parse decodes a batch.
func parse(b *batch, p parser, bld *builder) *parsed {
	out := &parsed{batch: b, first: 1, bytes: int64(len(b.data)), faults: b.faults}
	switch b.form {
	case formLines:
		parseLines(b, p, bld, out)
	case formWhole:
		out.lines = int64(bytes.Count(b.data, newline)) + 1
		out.one(b.data, 1, 0, p.json, bld)
		for i := range out.faults {
			if f := &out.faults[i]; f.col > 0 { // the column counts from the document's start
				before := b.data[:min(int(f.col-1), len(b.data))]
				f.line = 1 + int64(bytes.Count(before, newline))
				f.col -= int64(bytes.LastIndexByte(before, '\n') + 1)
			}
		}
	default:
		start := 0
		for i, end := range b.ends {
			msg := b.data[start:end]
			run := p.proto
			if t := bytes.TrimLeft(msg, " \t\r\n"); len(t) > 0 && t[0] == '{' {
				run = p.json // legacy zstd frames hold JSON too
			}
			out.lines++
			out.one(msg, 1+int64(i), b.offset, run, bld)
			start = end
		}
	}
	out.numbers = out.lines + b.lost
	b.data = nil // the buffer is the worker's
	return out
}

func parseLines(b *batch, p parser, bld *builder, out *parsed) {
	line := int64(1)
	for pos := 0; pos < len(b.data); line++ {
		end := bytes.IndexByte(b.data[pos:], '\n')
		if end < 0 {
			end = len(b.data) - pos
		}
		text := b.data[pos : pos+end]
		switch {
		case blank(text):
		case b.maxLine > 0 && int64(len(text)) > b.maxLine:
			out.faults = append(out.faults, tooLong(line, b.offset+int64(pos), int64(len(text)), b.maxLine))
		default:
			out.one(text, line, b.offset+int64(pos), p.json, bld)
		}
		out.lines++
		pos += end + 1
	}
}

func blank(t []byte) bool {
	for _, ch := range t {
		if ch != ' ' && ch != '\t' && ch != '\r' {
			return false
		}
	}
	return true
}

// one decodes one message and keeps its spans, or none of them.
func (p *parsed) one(data []byte, line, offset int64, run func([]byte, *builder, *message) *parseError, bld *builder) {
	from, ignored, kv, bad := len(p.msg.spans), p.msg.ignored, len(p.msg.kv), len(p.msg.bad)
	p.msg.texts = false
	err := run(data, bld, &p.msg)
	if err != nil {
		p.msg.spans, p.msg.ignored, p.msg.kv = p.msg.spans[:from], ignored, p.msg.kv[:kv]
		p.msg.bad = p.msg.bad[:bad]
		if len(bytes.Trim(data, "\x00")) == 0 {
			p.nul += int64(len(data))
			return
		}
		p.faults = append(p.faults, fail{
			code: CodeUnreadable, line: line, col: int64(err.at) + 1, offset: offset + int64(err.at), bytes: int64(len(data)),
			msg: err.msg, byMessage: p.batch.form == formProto,
		})
		return
	}
	for _, s := range p.msg.spans[from:] {
		s.file, s.line = p.batch.file, line
	}
	for i := range p.msg.kv[kv:] {
		p.msg.kv[kv+i].Line = line
	}
	for i := range p.msg.bad[bad:] {
		p.msg.bad[bad+i].line = line
	}
	if p.msg.texts || len(p.msg.spans) > from && !utf8.Valid(data) && p.batch.form == formLines {
		p.texts = append(p.texts, line)
	}
}
