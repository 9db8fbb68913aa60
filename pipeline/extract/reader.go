package extract

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/trace"
)

// blockBytes is how much of a file is read at once, and the least size of a
// batch of lines: what one worker parses at a time.
const blockBytes = 1 << 20

// batch is a piece of one input that a worker can parse alone: whole lines, or
// whole messages.
type batch struct {
	file    int32
	form    form
	data    []byte
	skipped int64  // lines of the file that no batch holds, before this one
	ends    []int  // end of each message in data (proto, framed)
	offset  int64  // of data in the decompressed stream
	faults  []fail // what the reader could not hand over
	lost    int64  // lines or messages that are faults only
	maxLine int64  // bytes of a line
	read    int64  // bytes of the file consumed so far
	link    hashLink
}

// fail is a place in an input that could not be read.
type fail struct {
	code      trace.Code
	line      int64 // line or message, from 1 within the batch until it is numbered
	col       int64
	offset    int64
	bytes     int64 // lost
	msg       string
	byMessage bool // line counts messages
}

// input is one file of a run.
type input struct {
	path  string // as opened; "-" for standard input
	name  string // relative to the run folder, as reported
	joins bool   // the next file belongs to the same rotated set
	size  int64  // bytes, once read
	sum   string // SHA-256, once read
}

// reader cuts the inputs of one run into batches, in order. A broken file is a
// fault of that file, not the end of the run.
type reader struct {
	in      []input
	limits  Limits
	stdin   io.Reader
	file    int     // index of the current input
	src     *source // nil between inputs
	fresh   bool    // nothing of src was read yet
	pos     int64
	skipped int64
	rest    []byte // unfinished line after the last batch
	carry   []byte // unfinished last line of the file before, in a rotated set
	queue   []*batch
	sums    hashChain
	dec     *zstd.Decoder
}

func newReader(in []input, limits Limits, stdin io.Reader) *reader {
	return &reader{in: in, limits: limits, stdin: stdin, file: -1}
}

// next returns the next batch, its data in buf, which grows when it must; nil
// at the end of the last input.
func (r *reader) next(buf *[]byte) (*batch, error) {
	for len(r.queue) == 0 {
		if r.src == nil {
			if r.file++; r.file >= len(r.in) {
				return nil, nil
			}
			if err := r.open(); err != nil {
				return nil, err
			}
			continue
		}
		b, err := r.cut(buf)
		if b != nil {
			r.push(b)
		}
		switch g := asGap(err); {
		case g != nil:
			r.push(r.gap(g))
		case err != nil:
			r.end(err)
		}
	}
	b := r.queue[0]
	r.queue = r.queue[1:]
	b.link = r.sums.next()
	return b, nil
}

// push queues a batch of the current file.
func (r *reader) push(b *batch) {
	b.file += int32(r.file)
	b.maxLine = r.limits.MaxLine
	b.read = r.src.offset()
	b.skipped, r.skipped = r.skipped, 0
	r.queue = append(r.queue, b)
}

// open opens the current input.
func (r *reader) open() error {
	in := &r.in[r.file]
	src, err := openFile(in.path, in.name, r.stdin, r.limits)
	if src == nil {
		return fmt.Errorf("open: %w", err)
	}
	r.src, r.dec, r.fresh, r.pos, r.skipped = src, nil, true, 0, 0
	if e := asSyntax(err); r.carry != nil && (err == nil || e != nil && e.Code == CodeNotOTLP) {
		src.form, err = formLines, nil // the file goes on inside a line
	}
	for _, g := range src.gaps {
		r.push(r.gap(g))
	}
	if err != nil {
		r.end(err)
	} else if src.form == formLines {
		src.sumLater()
	}
	return nil
}

// end leaves the current input; err other than io.EOF says that its rest is lost.
func (r *reader) end(err error) {
	if err != io.EOF {
		r.push(r.broken(err))
	}
	r.sums.end(r.src, &r.in[r.file])
	r.src = nil
}

// close releases the inputs when reading is over or was given up.
func (r *reader) close() {
	if r.src != nil {
		r.sums.end(r.src, &r.in[r.file])
	}
	r.sums.settle()
}

// broken is the fault of a file whose rest is lost.
func (r *reader) broken(err error) *batch {
	f := fail{code: CodeUnreadable, line: 1, offset: r.src.offset(), bytes: max(1, r.src.size-r.src.offset()), msg: err.Error()}
	if e := asSyntax(err); e != nil {
		f.code, f.msg = e.Code, e.Msg
		if e.Code == CodeNotOTLP || e.Code == CodeNotUTF8 {
			f.bytes = max(1, r.src.size)
		}
	}
	return r.fault(f)
}

// gap is the fault of a broken place after which the input goes on; the line
// or message it cut is lost with it.
func (r *reader) gap(g *gap) *batch {
	b := r.fault(fail{code: CodeUnreadable, line: 1, offset: g.at, bytes: max(1, g.lost), msg: g.Error()})
	b.lost = 1
	return b
}

func (r *reader) fault(f fail) *batch { return &batch{form: r.src.form, faults: []fail{f}} }

func asSyntax(err error) *trace.SyntaxError {
	var e *trace.SyntaxError
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// cut makes the next batch of the current input. An error, io.EOF among them,
// ends the input after the batch.
func (r *reader) cut(buf *[]byte) (*batch, error) {
	switch r.src.form {
	case formEmpty:
		return nil, io.EOF
	case formLines:
		return r.lines(buf)
	case formWhole:
		return r.whole(buf)
	}
	return r.messages(buf)
}

// lines cuts at a newline.
func (r *reader) lines(buf *[]byte) (*batch, error) {
	if r.fresh {
		r.fresh, r.rest = false, r.rest[:0]
		if b, err := r.join(); b != nil || err != nil {
			return b, err
		}
	}
	data := append((*buf)[:0], r.rest...)
	r.rest = r.rest[:0]
	defer func() { *buf = data[:0] }()
	for {
		have := len(data)
		if cap(data)-have < blockBytes { // a long line
			data = append(make([]byte, 0, cap(data)+cap(data)/2+2*blockBytes), data...)
		}
		n, err := io.ReadFull(r.src.r, data[have:have+blockBytes])
		data = data[:have+n]
		r.sums.add(r.src, data[have:])
		end := err == io.EOF || err == io.ErrUnexpectedEOF
		cut := have + lastNewline(data[have:]) + 1
		if cut == have {
			cut = 0 // no newline: the line goes on
		}
		switch {
		case err != nil && !end:
			return r.lineBatch(data[:cut]), r.src.readError(err)
		case end && r.in[r.file].joins && cut < len(data):
			r.carry = bytes.Clone(data[cut:])
			return r.lineBatch(data[:cut]), io.EOF
		case end:
			return r.lineBatch(data), io.EOF
		case cut > 0:
			r.rest = append(r.rest, data[cut:]...)
			return r.lineBatch(data[:cut]), nil
		case int64(len(data)) > r.limits.MaxLine:
			return r.skipLine(int64(len(data)))
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

// lineBatch makes a batch of whole lines; nil of none.
func (r *reader) lineBatch(data []byte) *batch {
	if len(data) == 0 {
		return nil
	}
	b := &batch{form: formLines, data: data, offset: r.pos}
	r.pos += int64(len(data))
	return b
}

// tooLong is the fault of a line of more than limit bytes.
func tooLong(line, offset, bytes, limit int64) fail {
	return fail{code: CodeLineTooLong, line: line, offset: offset, bytes: bytes, msg: fmt.Sprintf("line of more than %d bytes (--max-line)", limit)}
}

// skipLine forgets a line that is too long, up to its newline.
func (r *reader) skipLine(seen int64) (*batch, error) {
	f := tooLong(1, r.pos, 0, r.limits.MaxLine)
	for {
		part, err := r.src.r.ReadSlice('\n')
		r.sums.now(r.src, part)
		seen += int64(len(part))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		f.bytes = seen
		r.pos += seen
		b := r.fault(f)
		b.lost = 1
		if err != nil && err != io.EOF {
			err = r.src.readError(err)
		}
		return b, err
	}
}

// join settles the unfinished last line of the file before: it is whole and
// only lacks its newline, or it goes on in this file, or it was cut for good.
func (r *reader) join() (*batch, error) {
	tail := r.carry
	if tail == nil {
		return nil, nil
	}
	r.carry = nil
	if wholeJSON(tail) {
		return r.tail(tail), nil
	}
	head, err := r.src.r.Peek(int(min(r.limits.MaxLine, 1<<16)))
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, r.src.readError(err)
	}
	if nl := bytes.IndexByte(head, '\n'); nl >= 0 && wholeJSON(head[:nl]) {
		return r.tail(tail), nil // cut for good: the worker reports it
	}
	for {
		part, err := r.src.r.ReadSlice('\n')
		r.sums.now(r.src, part)
		r.pos += int64(len(part))
		tail = append(tail, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && int64(len(tail)) > r.limits.MaxLine:
			return r.skipLine(int64(len(tail)))
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && r.in[r.file].joins: // it goes on in the file after this one
			r.carry = tail
			return nil, io.EOF
		case err != nil && err != io.EOF:
			return nil, r.src.readError(err)
		default:
			r.push(r.tail(tail))
			r.skipped++ // the line was begun in the file before
			return nil, nil
		}
	}
}

// tail is a batch of a line that began in the file before.
func (r *reader) tail(data []byte) *batch { return &batch{file: -1, form: formLines, data: data} }

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
func (r *reader) whole(buf *[]byte) (*batch, error) {
	to := bytes.NewBuffer((*buf)[:0])
	n, err := io.Copy(to, io.LimitReader(r.src.r, r.limits.MaxLine+1))
	*buf = to.Bytes()
	if err != nil {
		return nil, r.src.readError(err)
	}
	if n > r.limits.MaxLine {
		return r.fault(fail{code: CodeLineTooLong, line: 1, bytes: r.src.size,
			msg: fmt.Sprintf("JSON document over many lines of more than %d bytes (--max-line); JSON lines are expected", r.limits.MaxLine)}), io.EOF
	}
	return &batch{form: formWhole, data: *buf}, io.EOF
}
