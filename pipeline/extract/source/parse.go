package source

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"

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
		out.err = files.NewCodec[Parsed[R]]().Decode(b.data, out, files.NewInterner())
		b.data = nil
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
		p.faults = append(p.faults, fault{code: CodeNulPadding, line: line, offset: offset, msg: fmt.Sprintf("%d trailing NUL bytes", len(data))})
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

// Sample holds at most 4096 of the values it is given, evenly thinned as more arrive.
type Sample struct {
	vals  []int64
	n     int64
	every int64
}

func (o *Sample) Add(v int64) {
	if o.every == 0 {
		o.every = 1
	}
	if o.n%o.every == 0 {
		if len(o.vals) == 4096 {
			for i := range 2048 {
				o.vals[i] = o.vals[2*i]
			}
			o.vals = o.vals[:2048]
			o.every *= 2
		}
		if o.n%o.every == 0 {
			o.vals = append(o.vals, v)
		}
	}
	o.n++
}

// Any reports whether there are values.
func (o *Sample) Any() bool { return o.n > 0 }

// Spread are the median and the distance of the 10th and 90th percentile; ok is false when it is empty.
func (o *Sample) Spread() (median, spread int64, ok bool) {
	if len(o.vals) == 0 {
		return 0, 0, false
	}
	v := slices.Sorted(slices.Values(o.vals))
	at := func(p float64) int64 { return v[int(math.Round(p*float64(len(v)-1)))] }
	return at(0.5), at(0.9) - at(0.1), true
}

// StrayNs is how far a stamp may lie from the 1st or 99th percentile of its clock's (spec#value-limits).
const StrayNs = 24 * 3600e9

// Stamps are those of one clock: a sample of them, and the ends.
type Stamps struct {
	Sample
	Lo, Hi   int64
	from, to int64 // bounds, once they were asked for
	isKnown  bool
}

func (s *Stamps) See(ns int64) {
	if s.n == 0 {
		s.Lo, s.Hi = ns, ns
	}
	s.Lo = min(s.Lo, ns)
	s.Hi = max(s.Hi, ns)
	s.isKnown = false
	s.Add(ns)
}

// bounds are 24 h around the 1st and the 99th percentile; of a few stamps around all but the
// first and the last.
func (s *Stamps) bounds() (from, to int64) {
	if s.n == 0 {
		return math.MinInt64, math.MaxInt64
	}
	if !s.isKnown {
		v, k := slices.Sorted(slices.Values(s.vals)), 0
		if len(v) > 2 {
			k = max(1, len(v)/100)
		}
		s.from = v[k] - StrayNs
		s.to = v[len(v)-1-k] + StrayNs
		s.isKnown = true
	}
	return s.from, s.to
}

// Check says how a stamp is outside; "" where it is not.
func (s *Stamps) Check(name string, ns int64) string {
	from, to := s.bounds()
	if ns >= from && ns <= to {
		return ""
	}
	return fmt.Sprintf("%s: got %d ns, want %d to %d, 24 h around the run", name, ns, from, to)
}

// AnyStray reports whether some stamp is outside.
func (s *Stamps) AnyStray() bool { return s.n > 0 && s.Check("", s.Lo)+s.Check("", s.Hi) != "" }

// A file has one SHA-256, taken in order. So that it does not hold up reading,
// workers take it one after another over what each of them read, right after
// reading it and before parsing it.

// hashChain collects what the next link has to hash.
type hashChain struct {
	pieces []piece
	last   chan struct{} // closed when the link before is done
}

// piece is one thing to do for a hash: bytes of src, or its end.
type piece struct {
	src  *Source
	data []byte
	in   *Input // at the end
}

// hashLink is the share of one batch in the hashes of its files.
type hashLink struct {
	pieces       []piece
	before, done chan struct{}
}

// add leaves bytes of src to the next link; they must not change until then.
func (c *hashChain) add(src *Source, data []byte) {
	if src.sum != nil {
		c.pieces = append(c.pieces, piece{src: src, data: data})
	}
}

// now hashes bytes of src at once, after everything before them.
func (c *hashChain) now(src *Source, data []byte) {
	if src.sum != nil {
		c.finish()
		src.sum.Write(data)
	}
}

// end leaves the rest of src, its hash and its closing to the next link.
func (c *hashChain) end(src *Source, in *Input) { c.pieces = append(c.pieces, piece{src: src, in: in}) }

func (c *hashChain) next() hashLink {
	l := hashLink{c.pieces, c.last, make(chan struct{})}
	c.pieces, c.last = nil, l.done
	return l
}

func (c *hashChain) finish() {
	l := c.next()
	l.finish()
}

// finish does the work of the link when its turn has come.
func (l *hashLink) finish() {
	if l.before != nil {
		<-l.before
	}
	for _, p := range l.pieces {
		if p.in == nil {
			p.src.sum.Write(p.data)
			continue
		}
		if p.src.sum != nil || p.src.raw.sum != nil {
			p.in.Size, p.in.Sum = p.src.Digest()
		}
		p.src.Close()
	}
	l.pieces = nil
	close(l.done)
}

// sumLater leaves the hash of a plain file to those who read it.
func (s *Source) sumLater() {
	if s.packed {
		return
	}
	s.sum, s.raw.sum = sha256.New(), nil
	if s.bom {
		s.sum.Write(utf8BOM)
	}
}

// Digest reads what is left of the file and returns its bytes and SHA-256.
func (s *Source) Digest() (int64, string) {
	sum := s.raw.sum
	if s.sum != nil {
		sum = s.sum
		io.Copy(sum, s.R)
	} else {
		io.Copy(io.Discard, s.raw)
	}
	return s.raw.n, hex.EncodeToString(sum.Sum(nil))
}

// messages cuts a length-prefixed stream into batches.
type messages struct {
	src *Source
	pos int64 // in the stream
	dec *zstd.Decoder

	long func() // waits for the one place for long messages
}

// lengthPrefix stands before each message.
type lengthPrefix [4]byte

// next makes the next batch, unpacking framed messages. A lost message ends the
// batch, so that numbers stay consecutive in it.
func (r *messages) next(buf *[]byte) (*batch, error) {
	b := &batch{form: formProto, data: (*buf)[:0]}
	defer func() { *buf = b.data[:0] }()
	for len(b.data)+len(b.ends)*len(lengthPrefix{}) < blockBytes { // empty messages fill a batch too
		var prefix lengthPrefix
		n, err := io.ReadFull(r.src.R, prefix[:])
		switch {
		case err == io.EOF:
			return b.orNil(), io.EOF
		case err == io.ErrUnexpectedEOF:
			b.lose(fault{code: CodeUnreadable, offset: r.pos, bytes: int64(n),
				msg: fmt.Sprintf("truncated length at byte %d: got %d of 4 bytes", r.pos, n)})
			return b, io.EOF
		case err != nil:
			return b.orNil(), r.src.ReadError(err)
		}
		want := int64(binary.BigEndian.Uint32(prefix[:]))
		data := b.data
		if want > 0 {
			data, err = r.message(b.data, want)
		}
		if err == nil {
			b.data, b.ends = data, append(b.ends, len(data))
			r.pos += 4 + want
			continue
		}
		lost, ok := err.(*fault)
		if !ok {
			return b.orNil(), r.src.ReadError(err)
		}
		lost.offset = r.pos
		b.lose(*lost)
		r.pos += 4 + want
		if lost.isLast {
			return b, io.EOF
		}
		return b, nil
	}
	return b, nil
}

// smallMessage is a length that is believed before the bytes are there.
const smallMessage = 1 << 16

// cut is the fault of a message that the stream ends in.
func (r *messages) cut(have, want int64) *fault {
	return &fault{code: CodeUnreadable, bytes: have + 4, isLast: true,
		msg: fmt.Sprintf("truncated message at byte %d: got %d of %d bytes", r.pos, have, want)}
}

// message appends the next message of want bytes to dst. The length is never
// trusted for an allocation.
func (r *messages) message(dst []byte, want int64) ([]byte, error) {
	if want > r.src.Limits.MaxLine {
		have, err := io.CopyN(io.Discard, r.src.R, want)
		if err == io.EOF {
			return dst, r.cut(have, want)
		}
		if err != nil {
			return dst, err
		}
		return dst, &fault{code: CodeOverLimit, bytes: want + 4,
			msg: fmt.Sprintf("message of %d bytes, want at most %d (--max-line)", want, r.src.Limits.MaxLine)}
	}
	if have := len(dst); want <= smallMessage && r.src.form == formProto {
		dst = slices.Grow(dst, int(want))[:have+int(want)]
		n, err := io.ReadFull(r.src.R, dst[have:])
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return dst[:have], r.cut(int64(n), want)
		}
		return dst[:have+n], err
	}
	if want > longBytes {
		r.long()
	}
	buf := bytes.NewBuffer(nil)
	if r.src.form == formProto {
		buf = bytes.NewBuffer(dst)
	}
	have, err := io.CopyN(buf, r.src.R, want)
	if err == io.EOF {
		return dst, r.cut(have, want)
	}
	if err != nil {
		return dst, err
	}
	if r.src.form == formProto {
		return buf.Bytes(), nil
	}
	return r.unframe(dst, buf.Bytes())
}

// unframe appends the content of one zstd frame to dst.
func (r *messages) unframe(dst, frame []byte) ([]byte, error) {
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
		return dst, &fault{code: CodeUnreadable, bytes: lost, msg: "zstd: " + err.Error()}
	}
	buf := bytes.NewBuffer(dst)
	n, err := io.Copy(buf, io.LimitReader(r.dec, r.src.Limits.MaxLine+1))
	switch {
	case err != nil:
		return dst, &fault{code: CodeUnreadable, bytes: lost, msg: fmt.Sprintf("zstd frame at byte %d: %v", r.pos+4, err)}
	case n > r.src.Limits.MaxLine:
		return dst, &fault{code: CodeOverLimit, bytes: lost,
			msg: fmt.Sprintf("message expands to more than %d bytes (--max-line)", r.src.Limits.MaxLine)}
	}
	return buf.Bytes(), nil
}
