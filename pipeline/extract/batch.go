package extract

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/trace"
)

// blockBytes is the usual size of a batch: what one worker parses at a time.
const blockBytes = 1 << 20

// batch is a piece of one input that a worker can parse alone: whole lines, or
// whole messages.
type batch struct {
	file   int32
	form   form
	data   []byte
	line   int64   // number of the first line (lines) or message (proto, framed)
	ends   []int   // end of each message in data (proto, framed)
	offset int64   // of data in the decompressed stream
	faults []fail  // what the reader could not hand over
	read   int64   // bytes of the file consumed so far
	pooled *[]byte // the buffer to give back
}

// fail is a place in an input that could not be read.
type fail struct {
	code      trace.Code
	line      int64 // line or message, 0 when unknown
	col       int64
	offset    int64
	bytes     int64 // lost
	msg       string
	byMessage bool // line counts messages
}

// reader cuts the inputs of one run into batches, in order.
type reader struct {
	src   *source
	file  int32
	out   func(*batch) bool // false: stop
	line  int64
	pos   int64
	carry []byte // unfinished last line of the file before, in a rotated set
	cline int64
	get   func(int) *[]byte
	hint  int // bytes of recent batches
	dec   *zstd.Decoder
}

// emit sends a batch on.
func (r *reader) emit(b *batch) bool {
	b.file = r.file
	b.read = r.src.offset()
	return r.out(b)
}

func (r *reader) fault(f fail) bool { return r.emit(&batch{form: r.src.form, faults: []fail{f}}) }

// read cuts one opened source. last says that no file of the same rotated set
// follows, so that an unfinished line is final.
func (r *reader) read(last bool) error {
	r.line, r.pos = 1, 0
	switch r.src.form {
	case formEmpty:
		return nil
	case formLines:
		return r.lines(last)
	case formWhole:
		return r.whole()
	}
	return r.messages()
}

// lines cuts at newlines.
func (r *reader) lines(last bool) error {
	if err := r.join(); err != nil {
		return err
	}
	buf := r.get(blockBytes + r.hint)
	data := (*buf)[:0] // unfinished line at its start, then what is read now
	for {
		have := len(data)
		if cap(data)-have < blockBytes { // a long line
			data = append(make([]byte, 0, 2*cap(data)+blockBytes), data...)
		}
		n, err := io.ReadFull(r.src.r, data[have:have+blockBytes])
		data = data[:have+n]
		end := err == io.EOF || err == io.ErrUnexpectedEOF
		cut := have + lastNewline(data[have:]) + 1
		if cut == have {
			cut = 0 // no newline: the line goes on
		}
		switch {
		case err != nil && !end:
			r.lineBatch(buf, data[:cut])
			return r.src.readError(err)
		case end && !last && cut < len(data):
			r.carry = bytes.Clone(data[cut:])
			r.cline = r.line + int64(bytes.Count(data[:cut], newline))
			r.lineBatch(buf, data[:cut])
			return nil
		case end:
			if !r.lineBatch(buf, data) {
				return errStopped
			}
			return nil
		case cut > 0:
			r.hint = max(len(data), r.hint-r.hint/16)
			next := r.get(blockBytes + r.hint)
			rest := append((*next)[:0], data[cut:]...)
			if !r.lineBatch(buf, data[:cut]) {
				return errStopped
			}
			buf, data = next, rest
		case int64(len(data)) > r.src.limits.MaxLine:
			if err := r.skipLine(int64(len(data))); err != nil {
				return err
			}
			data = data[:0]
		}
	}
}

var newline = []byte{'\n'}

// lastNewline is bytes.LastIndexByte for text with few newlines: it looks from
// the end, a page at a time, with the forward search the CPU is good at.
func lastNewline(data []byte) int {
	const page = 4096
	for end := len(data); end > 0; end -= page {
		from := max(0, end-page)
		if bytes.IndexByte(data[from:end], '\n') >= 0 {
			return from + bytes.LastIndexByte(data[from:end], '\n')
		}
	}
	return -1
}

// lineBatch sends whole lines on and counts them.
func (r *reader) lineBatch(buf *[]byte, data []byte) bool {
	*buf = data
	b := &batch{form: formLines, data: data, line: r.line, offset: r.pos, pooled: buf}
	r.line += int64(bytes.Count(data, newline))
	r.pos += int64(len(data))
	return r.emit(b)
}

// skipLine forgets a line that is too long, up to its newline.
func (r *reader) skipLine(seen int64) error {
	f := fail{code: CodeLineTooLong, line: r.line, offset: r.pos, msg: fmt.Sprintf("line of more than %d bytes (--max-line)", r.src.limits.MaxLine)}
	for {
		part, err := r.src.r.ReadSlice('\n')
		seen += int64(len(part))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		f.bytes = seen
		r.pos += seen
		r.line++
		r.fault(f)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return r.src.readError(err)
		}
		return nil
	}
}

// join settles the unfinished last line of the file before: it is whole and
// only lacks its newline, or it goes on in this file, or it was cut for good.
func (r *reader) join() error {
	tail := r.carry
	if tail == nil {
		return nil
	}
	r.carry = nil
	if wholeJSON(tail) {
		return r.sendTail(tail)
	}
	head, err := r.src.r.Peek(int(min(r.src.limits.MaxLine, 1<<16)))
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return r.src.readError(err)
	}
	if nl := bytes.IndexByte(head, '\n'); nl >= 0 && wholeJSON(head[:nl]) {
		return r.sendTail(tail) // cut for good: the worker reports it
	}
	rest, err := r.src.r.ReadBytes('\n')
	if err != nil && err != io.EOF {
		return r.src.readError(err)
	}
	r.pos += int64(len(rest))
	r.line++
	return r.sendTail(append(tail, rest...))
}

// sendTail sends a line that began in the file before.
func (r *reader) sendTail(tail []byte) error {
	r.file--
	defer func() { r.file++ }()
	if !r.emit(&batch{form: formLines, data: tail, line: r.cline}) {
		return errStopped
	}
	return nil
}

// wholeJSON reports whether text is one or more complete JSON values.
func wholeJSON(text []byte) bool {
	c := cursor{b: text}
	for c.peek() != 0 {
		if !c.skip(0) {
			return false
		}
	}
	return c.i == len(text)
}

// whole reads a document that is spread over many lines.
func (r *reader) whole() error {
	data, err := io.ReadAll(io.LimitReader(r.src.r, r.src.limits.MaxLine+1))
	if err != nil {
		return r.src.readError(err)
	}
	if int64(len(data)) > r.src.limits.MaxLine {
		r.fault(fail{code: CodeLineTooLong, line: 1, bytes: r.src.size,
			msg: fmt.Sprintf("JSON document over many lines of more than %d bytes (--max-line); JSON lines are expected", r.src.limits.MaxLine)})
		return nil
	}
	if !r.emit(&batch{form: formWhole, data: data, line: 1}) {
		return errStopped
	}
	return nil
}

// errStopped ends reading when nobody wants more.
var errStopped = errors.New("stopped")

// messages cuts a length-prefixed stream, unpacking framed messages.
func (r *reader) messages() error {
	b := &batch{form: formProto, line: 1}
	flush := func() bool {
		next := &batch{form: formProto, line: r.line}
		done := b
		b = next
		return len(done.data) == 0 && len(done.ends) == 0 && len(done.faults) == 0 || r.emit(done)
	}
	for {
		var prefix [4]byte
		n, err := io.ReadFull(r.src.r, prefix[:])
		if err == io.EOF {
			break
		}
		if err == io.ErrUnexpectedEOF {
			b.faults = append(b.faults, fail{code: CodeUnreadable, line: r.line, offset: r.pos, bytes: int64(n), byMessage: true,
				msg: fmt.Sprintf("truncated length at byte %d: got %d of 4 bytes", r.pos, n)})
			break
		}
		if err != nil {
			flush()
			return r.src.readError(err)
		}
		want := int64(binary.BigEndian.Uint32(prefix[:]))
		data, err := r.message(b.data, want)
		if err != nil {
			e, ok := err.(*messageError)
			if !ok {
				flush()
				return r.src.readError(err)
			}
			b.faults = append(b.faults, fail{code: e.code, line: r.line, offset: r.pos, bytes: e.lost, msg: e.msg, byMessage: true})
			if e.fatal {
				break
			}
		} else {
			b.data = data
			b.ends = append(b.ends, len(data))
		}
		r.pos += 4 + want
		r.line++
		if err != nil || len(b.data) >= blockBytes {
			// A lost message ends the batch, so that numbers stay consecutive in it.
			if !flush() {
				return errStopped
			}
		}
	}
	if !flush() {
		return errStopped
	}
	return nil
}

// messageError is a message that could not be read; fatal when the framing is
// lost with it.
type messageError struct {
	code  trace.Code
	msg   string
	lost  int64
	fatal bool
}

func (e *messageError) Error() string { return e.msg }

// message appends the next message of want bytes to dst. The length is never
// trusted for an allocation.
func (r *reader) message(dst []byte, want int64) ([]byte, error) {
	if want > r.src.limits.MaxLine {
		have, err := io.CopyN(io.Discard, r.src.r, want)
		if err == io.EOF {
			return dst, &messageError{code: CodeUnreadable, lost: have + 4, fatal: true,
				msg: fmt.Sprintf("truncated message at byte %d: got %d of %d bytes", r.pos, have, want)}
		}
		if err != nil {
			return dst, err
		}
		return dst, &messageError{code: CodeLineTooLong, lost: want + 4, msg: fmt.Sprintf("message of %d bytes, want at most %d (--max-line)", want, r.src.limits.MaxLine)}
	}
	start := len(dst)
	if r.src.form == formFramed {
		start = 0
	}
	buf := bytes.NewBuffer(nil)
	if r.src.form == formProto {
		buf = bytes.NewBuffer(dst)
	}
	have, err := io.CopyN(buf, r.src.r, want)
	if err == io.EOF {
		return dst, &messageError{code: CodeUnreadable, lost: have + 4, fatal: true,
			msg: fmt.Sprintf("truncated message at byte %d: got %d of %d bytes", r.pos, have, want)}
	}
	if err != nil {
		return dst, err
	}
	_ = start
	if r.src.form == formProto {
		return buf.Bytes(), nil
	}
	return r.unframe(dst, buf.Bytes())
}

// unframe appends the content of one zstd frame to dst.
func (r *reader) unframe(dst, frame []byte) ([]byte, error) {
	lost := int64(len(frame)) + 4
	if r.dec == nil {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
		if err != nil {
			return dst, err
		}
		r.dec = d
		r.src.close = append(r.src.close, d.Close)
	}
	if err := r.dec.Reset(bytes.NewReader(frame)); err != nil {
		return dst, &messageError{code: CodeUnreadable, lost: lost, msg: "zstd: " + err.Error()}
	}
	buf := bytes.NewBuffer(dst)
	n, err := io.Copy(buf, io.LimitReader(r.dec, r.src.limits.MaxLine+1))
	switch {
	case err != nil:
		return dst, &messageError{code: CodeUnreadable, lost: lost, msg: fmt.Sprintf("zstd frame at byte %d: %v", r.pos+4, err)}
	case n > r.src.limits.MaxLine:
		return dst, &messageError{code: CodeLineTooLong, lost: lost, msg: fmt.Sprintf("message expands to more than %d bytes (--max-line)", r.src.limits.MaxLine)}
	}
	return buf.Bytes(), nil
}

// parsed is what a worker makes of a batch.
type parsed struct {
	batch  *batch
	msg    message
	faults []fail
	lines  int64
	bytes  int64
	nul    int64      // bytes of NUL padding
	texts  []textSpot // lines with invalid Unicode
}

type textSpot struct{ line int64 }

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
	out := &parsed{batch: b, bytes: int64(len(b.data)), faults: b.faults}
	switch b.form {
	case formLines:
		parseLines(b, p, bld, out)
	case formWhole:
		out.lines = int64(bytes.Count(b.data, newline)) + 1
		out.one(b.data, b.line, 0, p.json, bld)
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
			out.one(msg, b.line+int64(i), b.offset, run, bld)
			start = end
		}
	}
	return out
}

func parseLines(b *batch, p parser, bld *builder, out *parsed) {
	line := b.line
	for pos := 0; pos < len(b.data); line++ {
		end := bytes.IndexByte(b.data[pos:], '\n')
		if end < 0 {
			end = len(b.data) - pos
		}
		text := b.data[pos : pos+end]
		if !blank(text) {
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
