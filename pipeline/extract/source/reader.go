package source

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// reader cuts the inputs of one run into batches, in order. A broken file is a
// fault of that file, not the end of the run.
type reader struct {
	in      []Input
	limits  Limits
	stdin   io.Reader
	anyText bool
	file    int     // index of the current input
	src     *Source // nil between inputs
	fresh   bool    // nothing of src was read yet
	pos     int64
	skipped int64
	rest    []byte // unfinished line after the last batch
	carry   []byte // unfinished last line of the file before, in a rotated set
	queue   []*batch
	sums    hashChain
	framed  messages // of src
	long    func()   // waits for the one place for long lines
}

func newReader(in []Input, o *Options) *reader {
	return &reader{in: in, limits: o.Limits, stdin: o.Stdin, anyText: o.AnyText, file: -1}
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
		switch g := AsGap(err); {
		case g != nil:
			r.push(r.gap(g))
		case err != nil && err != io.EOF && (r.src.form == formStored || trace.CodeOf(err) == files.TooLarge):
			return nil, err
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
	b.File += int32(r.file)
	b.maxLine = r.limits.MaxLine
	b.read = r.src.Offset()
	b.skipped, r.skipped = r.skipped, 0
	r.queue = append(r.queue, b)
}

// open opens the current input.
func (r *reader) open() error {
	in := &r.in[r.file]
	src, err := Open(in, r.stdin, r.limits)
	if src == nil {
		return fmt.Errorf("open: %w", err)
	}
	r.src, r.framed, r.fresh, r.pos, r.skipped = src, messages{src: src, pos: src.start, long: func() { r.long() }}, true, src.start, 0
	e := AsSyntax(err)
	isText := err == nil || e != nil && e.Code == CodeNotOTLP
	if isText && (r.carry != nil || r.anyText && src.form != formEmpty) {
		src.form, err = formLines, nil // the file goes on inside a line, or any text is taken for lines
	}
	for _, g := range src.gaps {
		r.push(r.gap(g))
	}
	if err != nil {
		r.end(err)
	} else if src.form == formLines && src.raw.sum != nil {
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
	r.sums.finish()
}

// broken is the fault of a file whose rest is lost.
func (r *reader) broken(err error) *batch {
	f := fault{code: CodeUnreadable, line: 1, offset: r.src.Offset(), bytes: max(1, r.src.Size-r.src.Offset()), msg: err.Error()}
	if e := AsSyntax(err); e != nil {
		f.code, f.msg = e.Code, e.Msg
		if e.Code == CodeNotOTLP {
			f.bytes = max(1, r.src.Size)
		}
	}
	return r.fault(f)
}

// gap is the fault of a broken place after which the input goes on; the line
// or message it cut is lost with it.
func (r *reader) gap(g *gap) *batch {
	b := r.fault(fault{code: CodeUnreadable, line: 1, offset: g.at, bytes: max(1, g.Lost), msg: g.Error()})
	b.lost = 1
	return b
}

func (r *reader) fault(f fault) *batch { return &batch{form: r.src.form, faults: []fault{f}} }

func AsSyntax(err error) *trace.SyntaxError {
	e, _ := errors.AsType[*trace.SyntaxError](err)
	return e
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
	case formStored:
		return r.stored(buf)
	case formRaw:
		b, err := r.whole(buf)
		if b != nil && b.data != nil {
			b.form, b.ends = formProto, []int{len(b.data)}
		}
		return b, err
	}
	return r.framed.next(buf)
}

// lines cuts at a newline.
func (r *reader) lines(buf *[]byte) (*batch, error) {
	if r.fresh {
		r.fresh, r.rest = false, r.rest[:0]
		if b, err := r.join(); b != nil || err != nil || len(r.queue) > 0 {
			return b, err // a worker has one batch and one buffer at a time
		}
	}
	data := append((*buf)[:0], r.rest...)
	r.rest = r.rest[:0]
	defer func() { *buf = data[:0] }()
	for {
		have := len(data)
		if cap(data)-have < blockBytes { // a long line
			if cap(data) > longBytes {
				r.long()
			}
			data = append(make([]byte, 0, cap(data)+cap(data)/2+2*blockBytes), data...)
		}
		n, err := io.ReadFull(r.src.R, data[have:have+blockBytes])
		data = data[:have+n]
		r.sums.add(r.src, data[have:])
		end := err == io.EOF || err == io.ErrUnexpectedEOF
		cut := have + lastNewline(data[have:]) + 1
		if cut == have {
			cut = 0 // no newline: the line goes on
		}
		switch {
		case err != nil && !end:
			return r.lineBatch(data[:cut]), r.src.ReadError(err)
		case end && r.in[r.file].Joins && cut < len(data):
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

var Newline = []byte{'\n'}

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

// skipLine forgets a line that is too long, up to its newline.
func (r *reader) skipLine(seen int64) (*batch, error) {
	f := tooLong(1, r.pos, 0, r.limits.MaxLine)
	for {
		part, err := r.src.R.ReadSlice('\n')
		r.sums.now(r.src, part)
		seen += int64(len(part))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		f.bytes = seen - int64(bytes.Count(part, Newline))
		r.pos += seen
		b := r.fault(f)
		b.passed = seen
		if err != nil && err != io.EOF {
			err = r.src.ReadError(err)
		}
		return b, err
	}
}

// join decides about the unfinished last line of the file before: it is whole and
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
	head, err := r.src.R.Peek(int(min(r.limits.MaxLine, 1<<16)))
	if err != nil && err != io.EOF && err != bufio.ErrBufferFull {
		return nil, r.src.ReadError(err)
	}
	if nl := bytes.IndexByte(head, '\n'); nl >= 0 && wholeJSON(head[:nl]) {
		return r.tail(tail), nil // cut for good: the worker reports it
	}
	for {
		part, err := r.src.R.ReadSlice('\n')
		r.sums.now(r.src, part)
		r.pos += int64(len(part))
		tail = append(tail, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && int64(len(tail)) > r.limits.MaxLine:
			return r.skipLine(int64(len(tail)))
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && r.in[r.file].Joins: // it goes on in the file after this one
			r.carry = tail
			return nil, io.EOF
		case err != nil && err != io.EOF:
			return nil, r.src.ReadError(err)
		default:
			r.push(r.tail(tail))
			r.skipped++ // the line began in the file before
			return nil, nil
		}
	}
}

// tail is a batch of a line that began in the file before.
func (r *reader) tail(data []byte) *batch { return &batch{File: -1, form: formLines, data: data} }

// wholeJSON reports whether text is one or more complete JSON values.
func wholeJSON(text []byte) bool {
	c := Cursor{B: text}
	for c.Peek() != 0 {
		if !c.Skip(0) {
			return false
		}
	}
	return c.I == len(text)
}

// whole reads a document that is spread over many lines.
func (r *reader) whole(buf *[]byte) (*batch, error) {
	if r.src.Size == 0 || r.src.Size > longBytes {
		r.long()
	}
	to := bytes.NewBuffer((*buf)[:0])
	n, err := io.Copy(to, io.LimitReader(r.src.R, r.limits.MaxLine+1))
	*buf = to.Bytes()
	if err != nil {
		return nil, r.src.ReadError(err)
	}
	if n > r.limits.MaxLine {
		return r.fault(fault{code: CodeOverLimit, line: 1, bytes: r.src.Size,
			msg: fmt.Sprintf("JSON document over many lines of more than %d bytes (--max-line); JSON lines are expected", r.limits.MaxLine)}), io.EOF
	}
	return &batch{form: formWhole, data: *buf}, io.EOF
}

// interruptible reads from r until the context ends, so that a pipe whose
// writer is silent does not hold up an interrupt.
type interruptible struct {
	ctx   context.Context
	r     io.Reader
	block []byte
	rest  []byte // of block, read and not yet taken
	err   error  // behind rest
}

func UntilDone(ctx context.Context, r io.Reader) io.Reader {
	if r == nil {
		return nil
	}
	return &interruptible{ctx: ctx, r: r, block: make([]byte, 1<<18)}
}

func (i *interruptible) Read(p []byte) (int, error) {
	for len(i.rest) == 0 {
		if i.err == nil {
			i.err = i.ctx.Err()
		}
		if i.err != nil {
			return 0, i.err
		}
		i.fetch()
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// fetch reads the next block. A read under way when the context ends is left
// alone with its block.
func (i *interruptible) fetch() {
	done := make(chan func(), 1)
	go func() {
		n, err := i.r.Read(i.block)
		done <- func() { i.rest, i.err = i.block[:n], err }
	}()
	select {
	case take := <-done:
		take()
	case <-i.ctx.Done():
		i.err = i.ctx.Err()
	}
}

// Lines are what a decoder finds in a batch of lines.
type Lines[T any] struct {
	Rows   []T
	Bad    []BadLine
	Other  int64           // lines that hold nothing of use
	line   func(*T) *int64 `packed:"-"`
	before struct {
		rows, bad int
		other     int64
	}
}

// BadLine is a record that could not be read whole.
type BadLine struct {
	Line int64
	What string
}

// Mark notes where a message begins.
func (l *Lines[T]) Mark() {
	l.before.rows = len(l.Rows)
	l.before.bad = len(l.Bad)
	l.before.other = l.Other
}

// Undo forgets what a broken message gave.
func (l *Lines[T]) Undo() {
	l.Rows = l.Rows[:l.before.rows]
	l.Bad = l.Bad[:l.before.bad]
	l.Other = l.before.other
}

// Keep gives what a message gave its line.
func (l *Lines[T]) Keep(line int64) {
	for i := l.before.rows; i < len(l.Rows); i++ {
		*l.line(&l.Rows[i]) = line
	}
	for i := l.before.bad; i < len(l.Bad); i++ {
		l.Bad[i].Line = line
	}
}

// Number makes lines count from the file's start: so many stand before the batch.
func (l *Lines[T]) Number(before int64) {
	for i := range l.Rows {
		*l.line(&l.Rows[i]) += before
	}
	for i := range l.Bad {
		l.Bad[i].Line += before
	}
}

// LineDecoder is the part of a [Decoder] that those of lines share; it finds the line of a row.
type LineDecoder[T any] func(*T) *int64

// Records is what a batch gives.
func (d LineDecoder[T]) Records() *Lines[T] { return &Lines[T]{line: d} }

// Message refuses what is no line.
func (LineDecoder[T]) Message([]byte, *Lines[T]) *Error {
	return &Error{Msg: "got a length-prefixed message, want lines of text"}
}

// blockBytes is how much of a file is read at once, and the least size of a
// batch of lines: what one worker parses at a time.
const blockBytes = 1 << 20

// batch is a piece of one input that a worker can parse alone: whole lines, or
// whole messages.
type batch struct {
	File    int32
	form    form
	data    []byte
	skipped int64   // lines of the file that no batch holds, before this one
	ends    []int   // end of each message in data (proto, framed)
	offset  int64   // of data in the decompressed stream
	faults  []fault // what the reader could not hand over
	lost    int64   // lines or messages that are faults only
	maxLine int64   // bytes of a line
	passed  int64   // bytes of a line that is a fault only
	read    int64   // bytes of the file consumed so far
	link    hashLink
	isLong  bool // it holds the one place for long lines
}

// longBytes is where a line or message is long: one of them at a time is in
// memory, however many workers there are.
const longBytes = 8 << 20

// fault is a place in an input that could not be read.
type fault struct {
	code      trace.Code
	line      int64 // line or message, from 1 within the batch until it is numbered
	col       int64
	offset    int64
	bytes     int64 // lost
	msg       string
	byMessage bool  // line counts messages
	isLast    bool  // the framing is lost with it
	more      int64 // faults of the same words and length behind it
}

func (f *fault) Error() string { return f.msg }

// orNil is the batch, nil when it is empty.
func (b *batch) orNil() *batch {
	if len(b.ends) == 0 {
		return nil
	}
	return b
}

// lose adds a message that could not be read.
func (b *batch) lose(f fault) {
	f.line, f.byMessage = int64(len(b.ends))+1, true
	b.faults = append(b.faults, f)
	b.lost++
}

// tooLong is the fault of a line of more than limit bytes.
func tooLong(line, offset, bytes, limit int64) fault {
	return fault{code: CodeOverLimit, line: line, offset: offset, bytes: bytes,
		msg: fmt.Sprintf("line of more than %d bytes (--max-line)", limit)}
}

func (b *batch) hash() { b.link.finish() }
