package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// This file cuts the inputs of a run into batches.

// reader cuts the inputs of one run into batches, in order. If a file cannot be read to its end,
// that is a fault of the file, and the next file is read.
type reader struct {
	in      []Input
	limits  Limits
	stdin   io.Reader
	anyText bool     // see Options.AnyText
	file    int      // index of the current input
	src     *Source  // nil between inputs
	fresh   bool     // nothing has been read of src
	pos     int64    // offset in the decompressed stream of src
	skipped int64    // lines of src since the last batch that are in no batch
	rest    []byte   // unfinished line after the last batch, in the buffer of that batch
	carry   []byte   // unfinished last line of the previous file of a rotated set
	queue   []*batch // made but not yet returned by next
	sums    hashChain
	framed  messages // cuts src if it has length-prefixed messages

	awaitLong func() // waits until no other long line is in memory
}

// newReader returns a reader of the inputs.
func newReader(in []Input, o *Options) *reader {
	return &reader{in: in, limits: o.Limits, stdin: o.Stdin, anyText: o.AnyText, file: -1}
}

// next returns the next batch, or nil at the end of the last input. Its data is in buf, which grows
// as needed.
func (r *reader) next(buf *[]byte) (*batch, error) {
	for len(r.queue) == 0 {
		if r.src == nil {
			if r.file++; r.file >= len(r.in) {
				return nil, nil
			}
			if err := r.openInput(); err != nil {
				return nil, err
			}
			continue
		}
		b, err := r.cutBatch(buf)
		if b != nil {
			r.push(b)
		}
		isFatal := r.src.form == formStored || trace.CodeOf(err) == files.TooLarge
		switch broken := AsGap(err); {
		case err == nil:
		case broken != nil:
			r.push(r.gap(broken))
		case err != io.EOF && isFatal:
			return nil, err
		default:
			r.endInput(err)
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
	b.skipped = r.skipped
	r.skipped = 0
	r.queue = append(r.queue, b)
}

// openInput opens the current input.
func (r *reader) openInput() error {
	in := &r.in[r.file]
	src, err := Open(in, r.stdin, r.limits)
	if src == nil {
		return fmt.Errorf("open: %w", err)
	}
	r.src = src
	r.framed = messages{src: src, pos: src.start, awaitLong: func() { r.awaitLong() }}
	r.fresh = true
	r.pos = src.start
	r.skipped = 0
	syntax := AsSyntax(err)
	isText := err == nil || syntax != nil && syntax.Code == CodeNotOTLP
	startsInside := r.carry != nil // a line of the previous file may continue in this one
	// The beginning of such a file may have no known form, and logs never have one.
	if isText && (startsInside || r.anyText && src.form != formEmpty) {
		src.form = formLines
		err = nil
	}
	for _, g := range src.gaps {
		r.push(r.gap(g))
	}
	if err != nil {
		r.endInput(err)
	} else if src.form == formLines && src.raw.sum != nil {
		src.sumLater()
	}
	return nil
}

// endInput ends reading the current input. With an error other than io.EOF, the rest of the file is
// lost.
func (r *reader) endInput(err error) {
	if err != io.EOF {
		r.push(r.broken(err))
	}
	r.sums.endSource(r.src, &r.in[r.file])
	r.src = nil
}

// close releases the inputs, also if reading was given up before the end.
func (r *reader) close() {
	if r.src != nil {
		r.sums.endSource(r.src, &r.in[r.file])
	}
	r.sums.finish()
}

// broken returns a batch with the fault of a file whose rest cannot be read.
func (r *reader) broken(err error) *batch {
	f := fault{
		code:   CodeUnreadable,
		line:   1,
		offset: r.src.Offset(),
		bytes:  max(1, r.src.Size-r.src.Offset()),
		msg:    err.Error(),
	}
	if e := AsSyntax(err); e != nil {
		f.code = e.Code
		f.msg = e.Msg
		if e.Code == CodeNotOTLP {
			f.bytes = max(1, r.src.Size)
		}
	}
	return r.faultBatch(f)
}

// gap returns a batch with the fault of a broken place after which the stream continues. The line
// or message that contains the place is lost as well, and counts as one line or message of the file.
func (r *reader) gap(g *gap) *batch {
	b := r.faultBatch(fault{code: CodeUnreadable, line: 1, offset: g.at, bytes: max(1, g.Lost), msg: g.Error()})
	b.lost = 1
	return b
}

// faultBatch returns a batch with one fault and no data.
func (r *reader) faultBatch(f fault) *batch { return &batch{form: r.src.form, faults: []fault{f}} }

// AsSyntax returns the error with a place that err wraps, or nil.
func AsSyntax(err error) *trace.SyntaxError {
	e, _ := errors.AsType[*trace.SyntaxError](err)
	return e
}

// cutBatch makes the next batch of the current input. If it returns an error, io.EOF included, the
// batch is the last one.
func (r *reader) cutBatch(buf *[]byte) (*batch, error) {
	switch r.src.form {
	case formEmpty:
		return nil, io.EOF
	case formLines:
		return r.lines(buf)
	case formWhole:
		return r.whole(buf)
	case formStored:
		return r.stored(buf)
	case formRaw: // decoded like a stream of one message
		b, err := r.whole(buf)
		if b != nil && b.data != nil {
			b.form = formProto
			b.ends = []int{len(b.data)}
		}
		return b, err
	}
	return r.framed.next(buf)
}

// lines returns the next batch of whole lines: at least one block, up to the last newline in it. What
// follows that newline is kept in r.rest for the next batch, or, at the end of a file whose last line may
// continue in the next file, in r.carry.
func (r *reader) lines(buf *[]byte) (*batch, error) {
	if r.fresh {
		r.fresh = false
		r.rest = nil
		b, err := r.joinCarried()
		if b != nil || err != nil || len(r.queue) > 0 {
			return b, err // the buffer belongs to this batch now, so what follows needs the next call
		}
	}
	data := append((*buf)[:0], r.rest...)
	r.rest = nil
	defer func() { *buf = data[:0] }()
	for {
		have := len(data)
		if cap(data)-have < blockBytes { // the buffer is full with an unfinished line
			if cap(data) > longBytes {
				r.awaitLong()
			}
			data = append(make([]byte, 0, cap(data)+cap(data)/2+2*blockBytes), data...)
		}
		n, err := io.ReadFull(r.src.R, data[have:have+blockBytes])
		data = data[:have+n]
		r.sums.addBytes(r.src, data[have:])
		isEnd := err == io.EOF || err == io.ErrUnexpectedEOF
		cut := have + lastNewline(data[have:]) + 1
		if cut == have {
			cut = 0 // without a newline the line continues
		}
		switch {
		case err != nil && !isEnd:
			return r.lineBatch(data[:cut], have), r.src.ReadError(err)
		case isEnd && r.in[r.file].Joins && cut < len(data):
			r.carry = bytes.Clone(data[cut:])
			return r.lineBatch(data[:cut], have), io.EOF
		case isEnd:
			return r.lineBatch(data, have), io.EOF
		case cut > 0:
			r.rest = data[cut:] // a worker reads into its buffer again only when this was copied, since workers take turns
			return r.lineBatch(data[:cut], have), nil
		case int64(len(data)) > r.limits.MaxLine:
			return r.skipLine(int64(len(data)))
		}
	}
}

// Newline separates lines.
var Newline = []byte{'\n'}

// lastNewline returns what bytes.LastIndexByte does for '\n', for text with few newlines. It
// searches pages from the end, each forwards, because only bytes.IndexByte uses vector
// instructions.
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

// lineBatch returns a batch of whole lines, of which the first does not end in the first unbroken bytes; nil for no data.
func (r *reader) lineBatch(data []byte, unbroken int) *batch {
	if len(data) == 0 {
		return nil
	}
	b := &batch{form: formLines, data: data, unbroken: unbroken, offset: r.pos}
	r.pos += int64(len(data))
	return b
}

// skipLine skips the rest of a line that is too long, of which seen bytes were read, and returns a
// batch with its fault.
func (r *reader) skipLine(seen int64) (*batch, error) {
	f := lineTooLong(1, r.pos, 0, r.limits.MaxLine)
	for {
		part, err := r.src.R.ReadSlice('\n')
		r.sums.hashNow(r.src, part)
		seen += int64(len(part))
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		f.bytes = seen - int64(bytes.Count(part, Newline))
		r.pos += seen
		b := r.faultBatch(f)
		b.passed = seen
		if err != nil && err != io.EOF {
			err = r.src.ReadError(err)
		}
		return b, err
	}
}

// joinCarried decides what the unfinished last line of the previous file (r.carry) is, and returns or
// queues a batch with it: it may be whole and lack only its newline, continue in this file, or be cut. A
// batch of a cut line is decoded too, and gets its fault there.
func (r *reader) joinCarried() (*batch, error) {
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
		return r.tail(tail), nil // this file begins with a new line, so the carried one was cut
	}
	for {
		part, err := r.src.R.ReadSlice('\n')
		r.sums.hashNow(r.src, part)
		r.pos += int64(len(part))
		tail = append(tail, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && int64(len(tail)) > r.limits.MaxLine:
			return r.skipLine(int64(len(tail)))
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF && r.in[r.file].Joins: // the line may continue in the next file
			r.carry = tail
			return nil, io.EOF
		case err != nil && err != io.EOF:
			return nil, r.src.ReadError(err)
		default:
			r.push(r.tail(tail))
			r.skipped++ // the line belongs to the previous file
			return nil, nil
		}
	}
}

// tail returns a batch of a line that began in the previous file, to which push adds the number of this one.
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

// whole returns one batch of the whole input, which is a document of many lines or a single
// message.
func (r *reader) whole(buf *[]byte) (*batch, error) {
	if r.src.Size == 0 || r.src.Size > longBytes {
		r.awaitLong()
	}
	to := bytes.NewBuffer((*buf)[:0])
	n, err := io.Copy(to, io.LimitReader(r.src.R, r.limits.MaxLine+1))
	*buf = to.Bytes()
	if err != nil {
		return nil, r.src.ReadError(err)
	}
	if n > r.limits.MaxLine {
		return r.faultBatch(fault{
			code:  CodeOverLimit,
			line:  1,
			bytes: r.src.Size,
			msg: fmt.Sprintf("JSON document over many lines of more than %d bytes (--max-line); JSON lines are expected",
				r.limits.MaxLine),
		}), io.EOF
	}
	return &batch{form: formWhole, data: *buf}, io.EOF
}
