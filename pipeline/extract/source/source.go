package source

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/trace"
)

// This file opens an input: it finds compression and framing from the first bytes.

// form is how records are separated in a decompressed stream.
type form uint8

const (
	formLines  form = iota // JSON, one or more objects a line
	formWhole              // JSON, one document over many lines
	formProto              // 4-byte big-endian length, protobuf message
	formFramed             // 4-byte big-endian length, zstd frame
	formRaw                // one protobuf message without a length: an ExportTraceServiceRequest as sent
	formEmpty
	formStored // batches that were decoded before and written by Store
)

var utf8BOM = []byte{0xef, 0xbb, 0xbf}

// counter counts and hashes the bytes read from the file itself, before decompression. They are
// needed for progress, places and the digest.
type counter struct {
	r   io.Reader
	n   int64
	sum hash.Hash // hash of all bytes read; nil if not wanted
}

// Read reads from the file, counts the bytes and adds them to the hash.
func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	return n, err
}

// Input is one file of a run.
type Input struct {
	Path   string   // path to open; "-" for standard input
	Name   string   // relative to the run folder, for reports
	Joins  bool     // the next file of the list belongs to the same rotated set
	IsPipe bool     // the path may be a pipe or a device
	Part   *Part    // only this part of the file is read; nil: all of it
	Stored []string // decoded parts, written by Store, to read instead of Path; Size and Sum are known then
	Asked  string   // pattern in run.yaml or on the command line that named it; "" if it was found
	Gave   int64    // number of records in it that were recognised, also those not kept, once read; 0: it is of no use
	Size   int64    // bytes, once read
	Sum    string   // SHA-256 in hexadecimal, once read
}

// Source is an opened input: decompressed bytes and their form.
type Source struct {
	Name   string
	Size   int64 // bytes of the file, 0 when unknown
	raw    *counter
	first  *bufio.Reader // buffer of raw
	gaps   []*gap        // broken places before the first content
	R      *bufio.Reader // the decompressed bytes
	form   form
	packed bool      // compressed as a stream
	bom    bool      // a byte order mark was skipped
	sum    hash.Hash // hash of the bytes read from R, which replaces raw.sum (sumLater)
	Limits Limits
	out    int64 // decompressed bytes so far, summed over the layers of a file compressed more than once
	start  int64 // offset of the part in the file
	close  []func()
}

// Limits bound the memory and the work that one input can cause.
type Limits struct {
	MaxLine      int64 // bytes of one line or message
	MaxExpansion int64 // decompressed bytes per compressed byte, beyond files.FreeExpansion bytes
}

// Open opens an input (standard input for "-") and finds its compression and framing from its
// content. If it returns an error, the Source is nil only if the file cannot be opened. Codes:
// those of files.Open.
func Open(from *Input, stdin io.Reader, limits Limits) (*Source, error) {
	switch {
	case from.Stored != nil:
		return openStored(from)
	case from.Part != nil:
		return openPart(from, limits)
	}
	s := &Source{Name: from.Name, Limits: limits}
	in := stdin
	if from.Path != "-" {
		f, err := files.Open(from.Path, from.IsPipe)
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, func() { f.Close() })
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			s.Size = st.Size()
		}
		in = f
	}
	readAtOnce := 1 << 18
	if s.Size > 0 { // a folder may have many small files
		readAtOnce = int(min(int64(readAtOnce), s.Size+1))
	}
	s.readFrom(bufio.NewReaderSize(in, readAtOnce))
	s.raw.sum = sha256.New()
	if err := s.unpack(); err != nil {
		return s, err
	}
	return s, s.sniff()
}

// readFrom makes in the file that the source reads.
func (s *Source) readFrom(in io.Reader) {
	s.raw = &counter{r: in}
	s.R = bufio.NewReaderSize(s.raw, 1<<16)
	s.first = s.R
}

// Close closes the file and the decompressors.
func (s *Source) Close() {
	for _, f := range s.close {
		f()
	}
}

// unpack adds decompressors until the content is not compressed. A log may be compressed by the exporter
// and again by rotation, but not without end.
func (s *Source) unpack() error {
	for range 3 {
		head, _ := s.peek(8)
		switch {
		case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
			z, err := gzip.NewReader(s.R)
			if err != nil {
				return s.Errorf(CodeUnreadable, "gzip: %v", err)
			}
			s.wrap(z)
		case isZstd(head):
			z, err := newFrames(s.R)
			if err != nil {
				return s.Errorf(CodeUnreadable, "zstd: %v", err)
			}
			s.close = append(s.close, z.dec.Close)
			s.wrap(z)
		default:
			return nil
		}
	}
	return s.Errorf(CodeUnreadable, "compressed more than three times over")
}

// wrap makes r the decompressed stream, guarded against excessive expansion.
func (s *Source) wrap(r io.Reader) {
	s.packed = true
	s.R = bufio.NewReaderSize(&expansionGuard{s: s, r: r}, 1<<18)
}

// expansionGuard returns an error if a stream expands beyond Limits.MaxExpansion: a small file made to
// expand without end must not fill the memory or the disk.
type expansionGuard struct {
	s *Source
	r io.Reader
}

// Read returns decompressed bytes, or an error if they exceed the bounds.
func (g *expansionGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.s.out += int64(n)
	if most := g.s.Limits.MaxExpansion; g.s.out > files.FreeExpansion && g.s.out/max(1, g.s.raw.n) > most {
		return 0, g.s.Errorf(files.TooLarge, "expands to more than %.0f MB and %d times its size (--max-expansion)",
			files.FreeExpansion/1e6, most)
	}
	if err == io.ErrUnexpectedEOF { // a caller of io.ReadFull could not distinguish it from a short read
		err = errCut
	}
	return n, err
}

// errCut is the error of a compressed stream that ends too early.
var errCut = errors.New("unexpected end of the stream")

// IsCut reports whether an error means that a compressed stream or a JSON document ended too early.
func IsCut(err error) bool { return errors.Is(err, errCut) || errors.Is(err, io.ErrUnexpectedEOF) }

// cutMessage describes a file that ends too early.
const cutMessage = "the file is cut off, and how much is missing is unknown: copy it again"

// Errorf returns an error of the file without a line.
func (s *Source) Errorf(code trace.Code, format string, args ...any) *trace.SyntaxError {
	return &trace.SyntaxError{File: s.Name, Code: code, Msg: fmt.Sprintf(format, args...)}
}

// sniff finds the framing from the first bytes. JSON begins with a brace after white space, a
// length prefix with zeros.
func (s *Source) sniff() error {
	head, err := s.peek(4096)
	if len(head) == 0 {
		s.form = formEmpty
		if err != nil && err != io.EOF {
			return s.ReadError(err)
		}
		return nil
	}
	if bytes.HasPrefix(head, utf8BOM) {
		s.bom = true
		s.R.Discard(3)
		head = head[3:]
	}
	if bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}) {
		return &trace.SyntaxError{File: s.Name, Line: 1, Code: CodeNotOTLP, Msg: "UTF-16 byte order mark, want UTF-8",
			Hint: "iconv -f UTF-16 -t UTF-8"}
	}
	if isPack, framed := isMessagePack(head); isPack {
		s.packed = true
		s.form = formLines
		s.R = bufio.NewReaderSize(&packLines{r: s.R, framed: framed, limit: s.Limits.MaxLine}, 1<<18)
		return nil
	}
	text := bytes.TrimLeft(head, " \t\r\n")
	// '[' may also be the first byte of a length; then byte 4 is the 0x0a with which an OTLP message begins.
	switch {
	case len(text) == 0 && len(head) < 4096:
		s.form = formEmpty
	case len(text) == 0, text[0] == '{', text[0] == '[' && len(head) > 4 && head[4] != 0x0a:
		s.form = formLines
		if isSpread(text) {
			s.form = formWhole
		}
	case isRequest(head):
		s.form = formRaw
	case len(head) >= 8 && isZstd(head[4:]):
		s.form = formFramed
	case len(head) >= 4 && (len(head) == 4 || head[4] == 0x0a || binary.BigEndian.Uint32(head) == 0):
		s.form = formProto
	default:
		return &trace.SyntaxError{File: s.Name, Line: 1, Code: CodeNotOTLP,
			Msg:  fmt.Sprintf("not OTLP JSON or length-prefixed protobuf, starts with %.40q", head),
			Hint: "point at the output of the collector's file exporter"}
	}
	return nil
}

// FirstMessage returns the beginning of the first protobuf message of a stream, decompressed, at most n bytes; nil for text
// and for what is broken. It takes nothing out of the stream.
func (s *Source) FirstMessage(n int) []byte {
	const prefix = len(lengthPrefix{})
	switch s.form {
	case formRaw:
		head, _ := s.peek(n)
		return bytes.Clone(head)
	case formProto, formFramed:
		head, _ := s.peek(prefix + n)
		if len(head) < prefix {
			return nil
		}
		message := head[prefix:]
		if size := binary.BigEndian.Uint32(head); uint64(size) < uint64(len(message)) {
			message = message[:size]
		}
		if s.form == formProto {
			return bytes.Clone(message)
		}
		frame, err := zstd.NewReader(bytes.NewReader(message), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(1<<27))
		if err != nil {
			return nil
		}
		defer frame.Close()
		out := make([]byte, n)
		got, _ := io.ReadFull(frame, out) // the frame may be longer than what was peeked
		return out[:got]
	}
	return nil
}

// isRequest reports whether a message begins like an ExportTraceServiceRequest without a length
// before it: field 1 with a length, and in it a resource or spans. Read as a length prefix, these
// bytes would mean more than 160 MB.
func isRequest(head []byte) bool {
	if len(head) < 4 || head[0] != 0x0a {
		return false
	}
	n, used := binary.Uvarint(head[1:])
	return used > 0 && n > 1 && len(head) > 1+used && (head[1+used] == 0x0a || head[1+used] == 0x12)
}

// isSpread reports whether a JSON document is printed over several lines, that is, whether its
// first line ends in an opening brace or bracket, a comma or a colon.
func isSpread(body []byte) bool {
	nl := bytes.IndexByte(body, '\n')
	if nl < 0 {
		return false
	}
	line := bytes.TrimRight(body[:nl], " \t\r")
	switch line[len(line)-1] {
	case '{', '[', ',', ':':
		return true
	}
	return false
}

// ReadError adds the place in the file to an error of reading or decompressing.
func (s *Source) ReadError(err error) error {
	if e, ok := err.(*trace.SyntaxError); ok {
		return e
	}
	if g := AsGap(err); g != nil {
		return g
	}
	if IsCut(err) {
		return s.Errorf(CodeCut, "%v: %s", err, cutMessage)
	}
	if s.packed {
		return s.Errorf(CodeUnreadable, "broken near byte %d of the file: %v", s.Offset(), err)
	}
	return s.Errorf(CodeUnreadable, "read: %v", err)
}

// Offset returns the number of bytes of the file that were consumed, to within the size of buffers.
func (s *Source) Offset() int64 { return s.raw.n - int64(s.first.Buffered()) }

// peek returns the first n bytes of the content. Gaps before the first content are added to s.gaps.
// A gap after that is reported when reading arrives there.
func (s *Source) peek(n int) ([]byte, error) {
	for {
		head, err := s.R.Peek(n)
		g := AsGap(err)
		if g == nil {
			return head, err
		}
		if len(head) == 0 {
			s.gaps = append(s.gaps, g)
			continue
		}
		// Put the gap back: reading then gives the content before it, the gap, and the rest.
		rest := s.R
		before := make([]byte, rest.Buffered())
		io.ReadFull(rest, before)
		s.R = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(before), &errOnce{g}, rest), 1<<18)
		return before, nil
	}
}

// errOnce is a reader that returns an error once and io.EOF afterwards.
type errOnce struct{ err error }

// Read returns the error once, then io.EOF.
func (e *errOnce) Read([]byte) (int, error) {
	err := e.err
	e.err = io.EOF
	return 0, err
}
