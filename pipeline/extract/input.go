package extract

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"github.com/blis-train/blis-train/trace"
)

// form is how messages stand in a decompressed stream.
type form uint8

const (
	formLines  form = iota // JSON, one or more objects a line
	formWhole              // JSON, one document over many lines
	formProto              // 4-byte big-endian length, protobuf message
	formFramed             // 4-byte big-endian length, zstd frame
	formEmpty
)

var utf8BOM = []byte{0xef, 0xbb, 0xbf}

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// counter counts the bytes read from the file itself, for progress and places.
type counter struct {
	r   io.Reader
	n   int64
	sum hash.Hash // of everything read; nil for none
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	return n, err
}

// source is an opened input: decompressed bytes and their form.
type source struct {
	name   string
	size   int64 // bytes of the file, 0 when unknown
	raw    *counter
	first  *bufio.Reader // of raw
	gaps   []*gap        // before any content
	r      *bufio.Reader
	form   form
	packed bool      // compressed as a stream
	bom    bool      // a byte order mark was taken
	sum    hash.Hash // of the bytes taken from r, instead of raw.sum (sumLater)
	limits Limits
	out    int64 // decompressed bytes
	close  []func()
}

// Limits bound what one input may make us hold.
type Limits struct {
	MaxLine      int64 // bytes of one line or message
	MaxExpansion int64 // decompressed bytes per compressed byte
}

// openFile opens path (or stdin for "-") and finds out what it is by content.
func openFile(path, name string, stdin io.Reader, limits Limits) (*source, error) {
	s := &source{name: name, limits: limits}
	var in io.Reader = stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, func() { f.Close() })
		if st, err := f.Stat(); err == nil {
			if st.IsDir() {
				f.Close()
				return nil, fmt.Errorf("%s: is a folder", name)
			}
			s.size = st.Size()
		}
		in = f
	}
	s.raw = &counter{r: bufio.NewReaderSize(in, 1<<18), sum: sha256.New()}
	s.r = bufio.NewReaderSize(s.raw, 1<<16)
	s.first = s.r
	if err := s.unpack(); err != nil {
		return s, err
	}
	return s, s.sniff()
}

func (s *source) Close() {
	for _, f := range s.close {
		f()
	}
}

// unpack puts decompressors in front until the content is not compressed.
func (s *source) unpack() error {
	for range 3 {
		head, _ := s.peek(8)
		switch {
		case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
			z, err := gzip.NewReader(s.r)
			if err != nil {
				return s.errorf(CodeUnreadable, "gzip: %v", err)
			}
			s.wrap(z)
		case isZstd(head):
			z, err := newFrames(s)
			if err != nil {
				return s.errorf(CodeUnreadable, "zstd: %v", err)
			}
			s.wrap(z)
		default:
			return nil
		}
	}
	return s.errorf(CodeUnreadable, "compressed more than three times over")
}

func (s *source) wrap(r io.Reader) {
	s.packed = true
	s.r = bufio.NewReaderSize(&expansionGuard{s: s, r: r}, 1<<18)
}

// expansionGuard stops a stream that expands beyond the limit.
type expansionGuard struct {
	s *source
	r io.Reader
}

func (g *expansionGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.s.out += int64(n)
	if g.s.out > 1<<26 && g.s.out/max(1, g.s.raw.n) > g.s.limits.MaxExpansion {
		return 0, g.s.errorf(CodeExpansion, "expands beyond %d times its size (--max-expansion)", g.s.limits.MaxExpansion)
	}
	if err == io.ErrUnexpectedEOF { // not to be taken for the end of a short read
		err = errCut
	}
	return n, err
}

var errCut = errors.New("unexpected end of the compressed stream")

// isZstd recognises a frame or a skippable frame.
func isZstd(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	m := binary.LittleEndian.Uint32(head)
	return bytes.Equal(head[:4], zstdMagic) || m >= 0x184d2a50 && m <= 0x184d2a5f
}

func (s *source) errorf(code trace.Code, format string, args ...any) *trace.SyntaxError {
	return &trace.SyntaxError{File: s.name, Code: code, Msg: fmt.Sprintf(format, args...)}
}

// sniff decides the form by the first bytes. JSON starts with a brace after
// white space; a length prefix starts with a small number.
func (s *source) sniff() error {
	head, err := s.peek(4096)
	if len(head) == 0 {
		s.form = formEmpty
		if err != nil && err != io.EOF {
			return s.readError(err)
		}
		return nil
	}
	if bytes.HasPrefix(head, utf8BOM) {
		s.bom = true
		s.r.Discard(3)
		head = head[3:]
	}
	if bytes.HasPrefix(head, []byte{0xff, 0xfe}) || bytes.HasPrefix(head, []byte{0xfe, 0xff}) {
		return &trace.SyntaxError{File: s.name, Line: 1, Code: CodeNotUTF8, Msg: "UTF-16 byte order mark, want UTF-8", Hint: "iconv -f UTF-16 -t UTF-8"}
	}
	body := bytes.TrimLeft(head, " \t\r\n")
	switch {
	case len(body) == 0 && len(head) < 4096:
		s.form = formEmpty
	case len(body) == 0, body[0] == '{', body[0] == '[' && len(head) > 4 && head[4] != 0x0a:
		s.form = formLines
		if spread(body, len(head) < 4096) {
			s.form = formWhole
		}
	case len(head) >= 8 && isZstd(head[4:]):
		s.form = formFramed
	case len(head) >= 4 && (len(head) == 4 || head[4] == 0x0a || binary.BigEndian.Uint32(head) == 0):
		s.form = formProto
	default:
		return &trace.SyntaxError{File: s.name, Line: 1, Code: CodeNotOTLP, Msg: fmt.Sprintf("not OTLP JSON or length-prefixed protobuf, starts with %.40q", head),
			Hint: "point at the output of the collector's file exporter"}
	}
	return nil
}

// spread reports whether the first line opens a document that goes on: it ends
// in a brace, a bracket or a comma, as a pretty-printed one does.
func spread(body []byte, all bool) bool {
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

// readError gives an error of the decompressor its place.
func (s *source) readError(err error) error {
	if e, ok := err.(*trace.SyntaxError); ok {
		return e
	}
	if g := asGap(err); g != nil {
		return g
	}
	if s.packed {
		return s.errorf(CodeUnreadable, "compressed stream broken near byte %d of the file: %v", s.offset(), err)
	}
	return s.errorf(CodeUnreadable, "read: %v", err)
}

// offset is how much of the file has been consumed, as near as buffers allow.
func (s *source) offset() int64 { return s.raw.n - int64(s.first.Buffered()) }
