package source

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Stream reads the inputs in order on several workers and calls sink with the
// results in input order, whatever the number of workers. Workers take turns
// at the input: who has the turn reads the next range, which ends at a line
// end, into its own buffer, and parses it while the next one reads. So every
// byte is read once, and memory is one buffer per worker.
func Stream[R records](ctx context.Context, in []Input, o Options, fresh func() Decoder[R], sink func(*Parsed[R]) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &turns[R]{r: newReader(in, &o), order: make(chan chan *Parsed[R], o.Workers+1), long: make(chan struct{}, 1), progress: o.Progress}
	if t.progress == nil {
		t.progress = func(int64) {}
	}
	var group sync.WaitGroup
	for range o.Workers {
		group.Go(func() { t.work(ctx, fresh()) })
	}
	err := t.collect(ctx, cancel, !o.unnumbered, sink)
	group.Wait()
	t.r.close()
	switch {
	case err != nil:
		return err
	case t.err != nil:
		return t.err
	}
	return ctx.Err()
}

// Options is how inputs are read.
type Options struct {
	Workers  int
	Limits   Limits
	Stdin    io.Reader
	AnyText  bool              // what is no OTLP is lines of text, not a foreign file
	Progress func(bytes int64) // so many more of the files were read; nil for nobody

	unnumbered bool // lines count from the start of batches
}

// turns hands the reader from worker to worker.
type turns[R records] struct {
	mu    sync.Mutex // held by the worker whose turn it is
	r     *reader
	order chan chan *Parsed[R] // results to come, in input order
	long  chan struct{}        // holds one while a long batch is read, parsed or waits for its turn
	ended bool
	err   error

	progress func(bytes int64)
}

// bufPool keeps the buffers of workers from file to file, but for the very large.
var bufPool = sync.Pool{New: func() any { return new([]byte) }}

const maxPooled = 32 << 20

// work takes turns until the input ends.
func (t *turns[R]) work(ctx context.Context, d Decoder[R]) {
	buf := bufPool.Get().(*[]byte)
	defer func() {
		if cap(*buf) <= maxPooled {
			bufPool.Put(buf)
		}
	}()
	for {
		b, done := t.take(ctx, buf)
		if b == nil {
			return
		}
		b.hash()
		done <- parse(b, d)
		if b.isLong {
			*buf = nil
		}
	}
}

// take reads the next batch into buf; nil at the end.
func (t *turns[R]) take(ctx context.Context, buf *[]byte) (*batch, chan *Parsed[R]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil, nil
	}
	var b *batch
	held := false
	t.r.long = func() {
		if held {
			return
		}
		select {
		case t.long <- struct{}{}:
			held = true
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		b, t.err = t.r.next(buf)
	}
	if b != nil {
		b.isLong = held
	}
	if b == nil {
		t.ended = true
		close(t.order)
		return nil, nil
	}
	done := make(chan *Parsed[R], 1)
	select {
	case t.order <- done:
	case <-ctx.Done(): // nobody collects any more
	}
	return b, done
}

// collect hands results to sink in input order, their lines numbered.
func (t *turns[R]) collect(ctx context.Context, cancel func(), isNumbered bool, sink func(*Parsed[R]) error) (err error) {
	numbers := make([]int64, len(t.r.in)) // lines or messages so far, by file
	last := int64(0)
	for done := range t.order {
		res := <-done
		if err == nil && ctx.Err() == nil {
			at := &numbers[res.Batch.File]
			if *at += res.Batch.skipped; isNumbered {
				res.Number(*at)
			}
			*at += res.numbers
			if res.Batch.read < last {
				last = 0 // another file
			}
			t.progress(res.Batch.read - last)
			last = res.Batch.read
			if err = res.err; err == nil {
				err = sink(res)
			}
			if err != nil {
				cancel()
			}
		}
		if res.Batch.isLong {
			<-t.long
		}
	}
	return err
}

var ZstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// frames reads a zstd stream. Where a frame is broken it says what is lost and
// goes on at the next frame's magic number: the collector's exporter writes
// many frames, and each can be read without those before it.
type frames struct {
	in   *bufio.Reader // compressed
	dec  *zstd.Decoder
	pos  int64  // compressed bytes the decoder took
	at   int64  // of them, where the frame begins that it reads
	tail []byte // last bytes before pos
	err  error  // to report before going on
}

func newFrames(in *bufio.Reader) (*frames, error) {
	f := &frames{in: in}
	dec, err := zstd.NewReader(compressed{f}, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
	if err != nil {
		return nil, err
	}
	f.dec = dec
	return f, nil
}

// compressed is what the decoder reads; it notes where frames begin.
type compressed struct{ f *frames }

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.f.in.Read(p)
	c.f.note(p[:n])
	return n, err
}

// note looks for a magic number in what the decoder took, which may lie across
// two reads.
func (f *frames) note(part []byte) {
	keep := len(ZstdMagic) - 1
	head := part[:min(len(part), keep)]
	seam := append(f.tail, head...)
	if i := bytes.LastIndex(part, ZstdMagic); i >= 0 {
		f.at = f.pos + int64(i)
	} else if i := bytes.LastIndex(seam, ZstdMagic); i >= 0 {
		f.at = f.pos + int64(len(head)-len(seam)+i)
	}
	if len(part) > keep {
		seam = part
	}
	f.tail = append(f.tail[:0], seam[max(0, len(seam)-keep):]...)
	f.pos += int64(len(part))
}

// gap is a broken place in a compressed stream that goes on behind it.
type gap struct {
	at, Lost int64 // compressed bytes
	err      error
}

func (g *gap) Error() string {
	return fmt.Sprintf("zstd frame at byte %d is broken, read on at byte %d: %v", g.at, g.at+g.Lost, g.err)
}

// AsGap is the gap that err reports, or nil.
func AsGap(err error) *gap {
	g, _ := errors.AsType[*gap](err)
	return g
}

func (f *frames) Read(p []byte) (int, error) {
	if err := f.err; err != nil {
		f.err = nil
		return 0, err
	}
	n, err := f.dec.Read(p)
	if err == nil || err == io.EOF {
		return n, err
	}
	if err = f.resume(err); n > 0 {
		f.err = err
		return n, nil
	}
	return 0, err
}

// resume finds the next frame and returns the gap, or broken when there is none.
func (f *frames) resume(broken error) error {
	g := &gap{at: f.at, err: broken}
	skipped, found := seekMagic(f.in)
	f.pos += skipped
	f.tail = f.tail[:0]
	if !found || f.dec.Reset(compressed{f}) != nil {
		return broken
	}
	g.Lost = f.pos - g.at
	return g
}

// seekMagic skips bytes up to the next frame's magic number.
func seekMagic(in *bufio.Reader) (skipped int64, found bool) {
	for {
		buf, err := in.Peek(in.Size())
		if i := bytes.Index(buf, ZstdMagic); i >= 0 {
			n, _ := in.Discard(i)
			return skipped + int64(n), true
		}
		keep := min(len(buf), len(ZstdMagic)-1) // the number may go on in the next block
		n, _ := in.Discard(len(buf) - keep)
		skipped += int64(n)
		if err != nil {
			return skipped, false
		}
	}
}

// vLLM's KV-event socket carries MessagePack: a batch is an array of two to
// four values that begins with a time. A recording of its messages, one after
// another or each behind its length in four bytes (big-endian), is read as the
// JSON lines that the same batches have: message n is line n. Formats of the
// bytes: https://github.com/msgpack/msgpack/blob/master/spec.md.

// isPack recognises a batch; framed ones stand behind their length.
func isPack(head []byte) (is, framed bool) {
	batch := func(b []byte) bool { return len(b) >= 2 && b[0] >= 0x92 && b[0] <= 0x94 && b[1] == 0xcb }
	if batch(head) {
		return true, false
	}
	return len(head) >= 6 && batch(head[4:]), true
}

const maxPackDepth = 16

// packLines turns messages into lines.
type packLines struct {
	r      *bufio.Reader
	framed bool
	limit  int64 // bytes of one text, and about of one line
	line   []byte
	at     int // read so far of line
	err    error
}

func (p *packLines) Read(dst []byte) (int, error) {
	for p.at == len(p.line) {
		if p.err != nil {
			return 0, p.err
		}
		p.line, p.at = p.line[:0], 0
		p.err = p.message()
		if p.err != nil && p.err != io.EOF {
			p.line = p.line[:0] // half a message is none
		}
	}
	n := copy(dst, p.line[p.at:])
	p.at += n
	return n, nil
}

// message reads one batch into the line; io.EOF before the first byte is the end.
func (p *packLines) message() error {
	if p.framed {
		if _, err := p.uint(4); err != nil {
			return err
		}
	} else if _, err := p.r.Peek(1); err != nil {
		return err
	}
	if err := p.value(0); err != nil {
		if err == io.EOF {
			err = errCut
		}
		return err
	}
	p.line = append(p.line, '\n')
	return nil
}

func (p *packLines) uint(bytes int) (v uint64, err error) {
	var b [8]byte
	n, err := io.ReadFull(p.r, b[8-bytes:])
	if n > 0 && err != nil {
		err = errCut
	}
	return binary.BigEndian.Uint64(b[:]), err
}

var errPackType = errors.New("got a value of no known MessagePack type")

// value appends one value as JSON.
func (p *packLines) value(depth int) error {
	t, err := p.r.ReadByte()
	switch {
	case err != nil:
		return err
	case depth > maxPackDepth:
		return fmt.Errorf("got values nested deeper than %d", maxPackDepth)
	case int64(len(p.line)) > 4*p.limit: // the line is dropped as too long; a message without end is not read
		return fmt.Errorf("got a message of more than %d bytes (--max-line)", p.limit)
	case t <= 0x7f || t >= 0xe0:
		p.line = strconv.AppendInt(p.line, int64(int8(t)), 10)
	case t <= 0x8f:
		return p.list(uint64(t&15), depth, true)
	case t <= 0x9f:
		return p.list(uint64(t&15), depth, false)
	case t <= 0xbf:
		return p.text(uint64(t&31), false)
	case t == 0xc0:
		p.line = append(p.line, "null"...)
	case t == 0xc2 || t == 0xc3:
		p.line = strconv.AppendBool(p.line, t == 0xc3)
	case t == 0xca || t == 0xcb:
		return p.float(t)
	case t >= 0xcc && t <= 0xd3:
		return p.integer(t)
	default:
		return p.sized(t, depth)
	}
	return nil
}

func (p *packLines) float(t byte) error {
	width := 4 << (t - 0xca)
	v, err := p.uint(width)
	f := math.Float64frombits(v)
	if width == 4 {
		f = float64(math.Float32frombits(uint32(v)))
	}
	if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return fmt.Errorf("got the number %v", f)
	}
	p.line = strconv.AppendFloat(p.line, f, 'f', -1, 64)
	return err
}

func (p *packLines) integer(t byte) error {
	width := 1 << ((t - 0xcc) & 3)
	v, err := p.uint(width)
	if t < 0xd0 {
		p.line = strconv.AppendUint(p.line, v, 10)
	} else {
		shift := 64 - 8*width
		p.line = strconv.AppendInt(p.line, int64(v<<shift)>>shift, 10)
	}
	return err
}

// sized reads what has its length in front.
func (p *packLines) sized(t byte, depth int) error {
	form, ok := map[byte]struct {
		width int
		kind  byte
	}{
		0xc4: {1, 'b'}, 0xc5: {2, 'b'}, 0xc6: {4, 'b'}, 0xd9: {1, 's'}, 0xda: {2, 's'}, 0xdb: {4, 's'},
		0xdc: {2, 'l'}, 0xdd: {4, 'l'}, 0xde: {2, 'm'}, 0xdf: {4, 'm'},
	}[t]
	if !ok {
		return errPackType
	}
	n, err := p.uint(form.width)
	switch {
	case err != nil:
		return err
	case form.kind == 'b' || form.kind == 's':
		return p.text(n, form.kind == 'b')
	}
	return p.list(n, depth, form.kind == 'm')
}

// text appends a text, or bytes in base64 as JSON has them.
func (p *packLines) text(n uint64, isBytes bool) error {
	if n > uint64(p.limit) {
		return fmt.Errorf("got a text of %d bytes, want at most %d (--max-line)", n, p.limit)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, p.r, int64(n)); err != nil {
		return err
	}
	if isBytes {
		p.line = append(base64.StdEncoding.AppendEncode(append(p.line, '"'), b.Bytes()), '"')
		return nil
	}
	quoted, err := json.Marshal(b.String())
	p.line = append(p.line, quoted...)
	return err
}

// list appends n values, or pairs of a key and a value.
func (p *packLines) list(n uint64, depth int, isMap bool) error {
	open, end := byte('['), byte(']')
	if isMap {
		open, end = '{', '}'
	}
	p.line = append(p.line, open)
	for i := range n {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		if isMap {
			if err := p.key(); err != nil {
				return err
			}
		}
		if err := p.value(depth + 1); err != nil {
			return err
		}
	}
	p.line = append(p.line, end)
	return nil
}

// key appends the key of a pair, which is a text in JSON.
func (p *packLines) key() error {
	from := len(p.line)
	if err := p.value(maxPackDepth); err != nil {
		return err
	}
	if p.line[from] != '"' {
		return errors.New("got a key that is no text")
	}
	p.line = append(p.line, ':')
	return nil
}
