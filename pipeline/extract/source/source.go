// Package source reads the files of a run: it opens a file by its content,
// unpacks it within limits (source.go), cuts it into batches of whole lines or
// messages (reader.go, parse.go), and hands the batches to decoders on several
// workers, whose results come back in input order (stream.go). Each file's
// SHA-256 is taken on the way.
//
// A broken place costs what it broke: the records before and after it survive
// where the framing tells where they are. Every record is kept, or dropped for a
// reason with a place: read = kept + the sum of dropped.
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
	"math/bits"
	"os"
	"sort"
	"unsafe"

	"github.com/klauspost/compress/gzip"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// form is how messages stand in a decompressed stream.
type form uint8

const (
	formLines  form = iota // JSON, one or more objects a line
	formWhole              // JSON, one document over many lines
	formProto              // 4-byte big-endian length, protobuf message
	formFramed             // 4-byte big-endian length, zstd frame
	formRaw                // one protobuf message without a length: an ExportTraceServiceRequest as sent
	formEmpty
	formStored // what decoders made of it before
)

var utf8BOM = []byte{0xef, 0xbb, 0xbf}

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

// Input is one file of a run.
type Input struct {
	Path   string   // as opened; "-" for standard input
	Name   string   // relative to the run folder, as reported
	Joins  bool     // the next file belongs to the same rotated set
	IsPipe bool     // a pipe or a device is meant
	Part   *Part    // of the file, whose form is known; nil: all of it
	Stored []string // read in place of the file: what Store wrote of its parts; Size and Sum are given
	Asked  string   // the pattern that named it; "" for one found by its name
	Gave   int64    // records of ours, once read
	Size   int64    // bytes, once read
	Sum    string   // SHA-256, once read
}

// Source is an opened input: decompressed bytes and their form.
type Source struct {
	Name   string
	Size   int64 // bytes of the file, 0 when unknown
	raw    *counter
	first  *bufio.Reader // of raw
	gaps   []*gap        // before any content
	R      *bufio.Reader
	form   form
	packed bool      // compressed as a stream
	bom    bool      // a byte order mark was taken
	sum    hash.Hash // of the bytes taken from r, instead of raw.sum (sumLater)
	Limits Limits
	out    int64 // decompressed bytes
	start  int64 // where a part begins, in the file
	close  []func()
}

// Limits bound what one input may make us hold.
type Limits struct {
	MaxLine      int64 // bytes of one line or message
	MaxExpansion int64 // decompressed bytes per compressed byte, of what is longer than Free
	Free         int64 // decompressed bytes that any file may grow to
}

// Open opens an input (standard input for "-") and finds out what it is by
// content. Codes: those of files.Open, for what is no file.
func Open(from *Input, stdin io.Reader, limits Limits) (*Source, error) {
	switch {
	case from.Stored != nil:
		return openStored(from)
	case from.Part != nil:
		return openPart(from, limits)
	}
	path := from.Path
	name := from.Name
	isPipe := from.IsPipe
	s := &Source{Name: name, Limits: limits}
	var in io.Reader = stdin
	if path != "-" {
		f, err := files.Open(path, isPipe)
		if err != nil {
			return nil, err
		}
		s.close = append(s.close, func() { f.Close() })
		if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
			s.Size = st.Size()
		}
		in = f
	}
	s.over(bufio.NewReaderSize(in, 1<<18))
	s.raw.sum = sha256.New()
	if err := s.unpack(); err != nil {
		return s, err
	}
	return s, s.sniff()
}

// over has the source read from in.
func (s *Source) over(in io.Reader) {
	s.raw = &counter{r: in}
	s.R = bufio.NewReaderSize(s.raw, 1<<16)
	s.first = s.R
}

func (s *Source) Close() {
	for _, f := range s.close {
		f()
	}
}

// unpack puts decompressors in front until the content is not compressed.
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

func (s *Source) wrap(r io.Reader) {
	s.packed = true
	s.R = bufio.NewReaderSize(&expansionGuard{s: s, r: r}, 1<<18)
}

// expansionGuard stops a stream that expands beyond the limit.
type expansionGuard struct {
	s *Source
	r io.Reader
}

func (g *expansionGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	g.s.out += int64(n)
	if l := g.s.Limits; g.s.out > l.Free && g.s.out/max(1, g.s.raw.n) > l.MaxExpansion {
		return 0, g.s.Errorf(files.TooLarge, "expands to more than %d MB and %d times its size (--max-expansion)", l.Free/1e6, l.MaxExpansion)
	}
	if err == io.ErrUnexpectedEOF { // not to be taken for the end of a short read
		err = errCut
	}
	return n, err
}

var errCut = errors.New("unexpected end of the stream")

// IsCut reports that a packed stream ended too early.
func IsCut(err error) bool { return errors.Is(err, errCut) }

// isZstd recognises a frame or a skippable frame.
func isZstd(head []byte) bool {
	if len(head) < 4 {
		return false
	}
	m := binary.LittleEndian.Uint32(head)
	return bytes.Equal(head[:4], ZstdMagic) || m >= 0x184d2a50 && m <= 0x184d2a5f
}

func (s *Source) Errorf(code trace.Code, format string, args ...any) *trace.SyntaxError {
	return &trace.SyntaxError{File: s.Name, Code: code, Msg: fmt.Sprintf(format, args...)}
}

// sniff decides the form by the first bytes. JSON starts with a brace after
// white space; a length prefix starts with a small number.
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
	if is, framed := isPack(head); is {
		s.packed, s.form = true, formLines
		s.R = bufio.NewReaderSize(&packLines{r: s.R, framed: framed, limit: s.Limits.MaxLine}, 1<<18)
		return nil
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

// isRequest recognises a bare ExportTraceServiceRequest: field 1 with a length, and
// in it a resource or spans. A length prefix of four bytes that begins like this
// would announce more than 160 MB.
func isRequest(head []byte) bool {
	if len(head) < 4 || head[0] != 0x0a {
		return false
	}
	n, used := binary.Uvarint(head[1:])
	return used > 0 && n > 1 && len(head) > 1+used && (head[1+used] == 0x0a || head[1+used] == 0x12)
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

// ReadError gives an error of the decompressor its place.
func (s *Source) ReadError(err error) error {
	if e, ok := err.(*trace.SyntaxError); ok {
		return e
	}
	if g := AsGap(err); g != nil {
		return g
	}
	if s.packed {
		return s.Errorf(CodeUnreadable, "broken near byte %d of the file: %v", s.Offset(), err)
	}
	return s.Errorf(CodeUnreadable, "read: %v", err)
}

// Offset is how much of the file has been consumed, as near as buffers allow.
func (s *Source) Offset() int64 { return s.raw.n - int64(s.first.Buffered()) }

// peek is the head of the content. A gap met while looking is reported again
// when reading gets there; one before any content is noted at once.
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
		rest := s.R
		before := make([]byte, rest.Buffered())
		io.ReadFull(rest, before)
		s.R = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(before), &errOnce{g}, rest), 1<<18)
		return before, nil
	}
}

// errOnce reports an error, then its end.
type errOnce struct{ err error }

func (e *errOnce) Read([]byte) (int, error) {
	err := e.err
	e.err = io.EOF
	return 0, err
}

// ByError are the reasons that count towards the bad fraction; the others are
// drops by rule.
var ByError = map[trace.Code]bool{CodeUnreadable: true, CodeOverLimit: true, CodeBadRecord: true, CodeNotOTLP: true}

// maxExamples is how many drops of each reason extract.json shows.
const maxExamples = 3

// Account counts the records of one run folder.
type Account struct {
	Read, Kept int64
	Dropped    map[trace.Code]int64
	examples   map[trace.Code][]result.Example
	scopes     map[scopeKey]int64
	Bytes      int64 // decompressed
	BadBytes   int64
	Lines      int64
	Truncated  int64
	Duplicates int64
	LostEvents int64
	BadText    []string // places of replaced Unicode
	Reject     func(Rejected) error
	Err        error
}

type scopeKey struct{ scope, event string }

// Rejected is one line of --why-rejected: one or more records dropped for one
// reason at one place.
type Rejected struct {
	Run     string     `json:"run"`
	File    string     `json:"file"`
	Line    int64      `json:"line"`
	Col     int64      `json:"col,omitempty"`
	Reason  trace.Code `json:"reason"`
	What    string     `json:"what"`
	Records int64      `json:"records"`
}

func New(reject func(Rejected) error) *Account {
	return &Account{Dropped: map[trace.Code]int64{}, examples: map[trace.Code][]result.Example{}, scopes: map[scopeKey]int64{}, Reject: reject}
}

// Place names where a record stands.
type Place struct {
	File      string
	Line, Col int64
}

func (p Place) String() string {
	e := trace.SyntaxError{File: p.File, Line: p.Line, Col: p.Col}
	s := e.Error()
	return s[:len(s)-2] // without the ": " before an empty message
}

// Drop counts n records dropped for one reason.
func (a *Account) Drop(code trace.Code, n int64, at Place, format string, args ...any) {
	if n == 0 {
		return
	}
	a.Dropped[code] += n
	want := len(a.examples[code]) < maxExamples
	if !want && a.Reject == nil {
		return
	}
	what := fmt.Sprintf(format, args...)
	if want {
		a.examples[code] = append(a.examples[code], result.Example{Reason: code, Place: at.String(), What: what})
	}
	if a.Reject != nil && a.Err == nil {
		a.Err = a.Reject(Rejected{File: at.File, Line: at.Line, Col: at.Col, Reason: code, What: what, Records: n})
	}
}

// Keep counts n records that made it into a table.
func (a *Account) Keep(n int64) { a.Kept += n }

// Scope counts what stands in a scope; an empty event name counts its spans.
func (a *Account) Scope(scope, event string, n int64) { a.scopes[scopeKey{scope, event}] += n }

// Records is the account as it stands in extract.json.
func (a *Account) Records() result.Records {
	r := result.Records{Read: a.Read, Kept: a.Kept, Dropped: map[string]int64{}}
	bad := int64(0)
	for code, n := range a.Dropped {
		r.Dropped[string(code)] = n
		if ByError[code] {
			bad += n
		}
	}
	r.BadFrac = max(float64(a.BadBytes)/float64(max(1, a.Bytes)), float64(bad)/float64(max(1, a.Read)))
	return r
}

func (a *Account) ScopeCounts() []result.ScopeCount {
	out := []result.ScopeCount{}
	for k, n := range a.scopes {
		out = append(out, result.ScopeCount{Scope: k.scope, Event: k.event, Count: n})
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Scope != out[j].Scope {
			return out[i].Scope < out[j].Scope
		}
		return out[i].Event < out[j].Event
	})
	return out
}

func (a *Account) ExampleList() []result.Example {
	out := []result.Example{}
	for _, list := range a.examples {
		out = append(out, list...)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Reason < out[j].Reason })
	return out
}

// Drops: every record that is read and not kept has one of these reasons; the
// last one also refuses a file.
const (
	CodeUnreadable trace.Code = "unreadable"
	CodeOverLimit  trace.Code = "over_limit"
	CodeBadRecord  trace.Code = "bad_record"
	CodeDuplicate  trace.Code = "duplicate"
	CodeNulPadding trace.Code = "nul_padding"
	CodeNotOTLP    trace.Code = "not_otlp"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks the bytes of x that end the fast path of a string: quote,
// backslash, control characters.
func special(x uint64) uint64 {
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// PlainText is the length of the string body that b starts with, or -1 when it
// holds escapes, control characters or no end.
func PlainText(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			break
		}
	}
	for ; i < len(b); i++ {
		switch ch := b[i]; {
		case ch == '"':
			return i
		case ch == '\\' || ch < 0x20:
			return -1
		}
	}
	return -1
}

// Text views bytes as a string for functions that do not keep it.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
	1e19, 1e20, 1e21, 1e22}

// QuickFloat converts plain decimals whose digits fit 53 bits: both operands
// of the division are exact, so the result is correctly rounded (Clinger 1990).
func QuickFloat(s []byte) (float64, bool) {
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	if len(s) == 0 || len(s) > 17 {
		return 0, false
	}
	var mant uint64
	frac, seen := 0, false
	for _, ch := range s {
		switch {
		case ch-'0' <= 9:
			mant = mant*10 + uint64(ch-'0')
			if seen {
				frac++
			}
		case ch == '.' && !seen:
			seen = true
		default:
			return 0, false
		}
	}
	if mant > 1<<53 || seen && frac == 0 {
		return 0, false
	}
	v := float64(mant) / pow10[frac]
	if neg {
		v = -v
	}
	return v, true
}

// Part is a piece of a file: the lines that start in [From, To), or the messages that stand
// there. Parts of lines may cut a file anywhere and hold every line once, whatever stands at
// the cuts; those of messages begin and end between messages.
type Part struct {
	Form string `json:"form"` // a key of cutForms
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// partOfLines is the form of a part of lines.
const partOfLines = "lines"

// OfLines reports that the part is the lines that begin in it: the last one may end behind it.
func (p *Part) OfLines() bool { return p.Form == partOfLines }

// cutForms are the forms that can be cut.
var cutForms = map[string]form{partOfLines: formLines, "messages": formProto, "frames": formFramed}

// Cut cuts each input into parts of about every bytes; no parts for one that is read whole:
// because it is short, compressed as a stream or one document, begins with a byte order mark,
// or because a line may go on from one file of a rotated set in the next.
func Cut(in []Input, every int64) ([][]Part, error) {
	out := make([][]Part, len(in))
	carries := false // the file before may end inside a line
	for i := range in {
		joined := carries
		parts, ends, err := cutOne(&in[i], every)
		if err != nil {
			return nil, err
		}
		carries = in[i].Joins && !ends
		if !joined && !carries {
			out[i] = parts
		}
	}
	return out, nil
}

// cutOne cuts an input; ends reports that it is known to end behind a line.
func cutOne(in *Input, every int64) (parts []Part, ends bool, err error) {
	if st, err := os.Stat(in.Path); err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return nil, false, nil // whoever reads it says why
	}
	src, err := Open(in, nil, Limits{MaxLine: longBytes, MaxExpansion: 1})
	if src == nil {
		return nil, false, nil
	}
	defer src.Close()
	if src.packed || src.gaps != nil {
		return nil, false, nil
	}
	f, openErr := files.Open(in.Path, false)
	if openErr != nil {
		return nil, false, openErr
	}
	defer f.Close()
	var last [1]byte
	if _, err := f.ReadAt(last[:], src.Size-1); err != nil {
		return nil, false, err
	}
	ends = last[0] == '\n'
	switch {
	case err != nil || src.bom || src.Size <= every:
		return nil, ends, nil
	case src.form == formLines:
		return linesOf(src.Size, every), ends, nil
	case src.form == formProto || src.form == formFramed:
		parts, err = messagesOf(f, src.form, src.Size, every)
		return parts, true, err
	}
	return nil, ends, nil
}

// linesOf cuts a file of lines.
func linesOf(size, every int64) (out []Part) {
	for at := int64(0); at < size; at += every {
		out = append(out, Part{partOfLines, at, min(at+every, size)})
	}
	return out
}

// messagesOf cuts length-prefixed messages by hopping from length to length: every part but
// the last has at least every bytes. A length that leads beyond the end stays in the last
// part, for its reader to report.
func messagesOf(f io.ReaderAt, is form, size, every int64) (out []Part, err error) {
	name := "messages"
	if is == formFramed {
		name = "frames"
	}
	var prefix [4]byte
	from := int64(0)
	for at := int64(0); at+int64(len(prefix)) <= size; {
		if _, err := f.ReadAt(prefix[:], at); err != nil {
			return nil, err
		}
		next := at + int64(len(prefix)) + int64(binary.BigEndian.Uint32(prefix[:]))
		if next > size {
			break
		}
		if at = next; at-from >= every {
			out = append(out, Part{name, from, at})
			from = at
		}
	}
	if from < size {
		out = append(out, Part{name, from, size})
	}
	return out, nil
}

// openPart opens a piece of a file, whose form is known.
func openPart(from *Input, limits Limits) (*Source, error) {
	f, err := files.Open(from.Path, false)
	if err != nil {
		return nil, err
	}
	s := &Source{Name: from.Name, Limits: limits, form: cutForms[from.Part.Form], start: from.Part.From, close: []func(){func() { f.Close() }}}
	in := io.Reader(io.NewSectionReader(f, from.Part.From, from.Part.To-from.Part.From))
	if s.form == formLines {
		lines := &partReader{f: f, part: *from.Part, at: from.Part.From}
		if err := lines.begin(); err != nil {
			return s, s.ReadError(err)
		}
		in, s.start = lines, lines.at
	}
	s.over(in)
	return s, nil
}

// partReader reads the lines of a part: from behind the first newline at From-1 or later to
// the first one at To-1 or later, or to the end of the file. It looks no further than To for
// the former: a line that is longer than the part belongs to another.
type partReader struct {
	f     io.ReaderAt
	part  Part
	at    int64 // what is read next
	ended bool
}

// begin finds the first line of the part.
func (r *partReader) begin() error {
	if r.part.From == 0 {
		r.ended = r.part.To <= 0
		return nil
	}
	buf := make([]byte, max(0, min(1<<16, r.part.To-r.part.From)))
	for at := r.part.From - 1; at < r.part.To-1; {
		n, err := r.f.ReadAt(buf[:min(int64(len(buf)), r.part.To-1-at)], at)
		if k := bytes.IndexByte(buf[:n], '\n'); k >= 0 {
			r.at = at + int64(k) + 1
			return nil
		}
		if at += int64(n); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
	}
	r.ended = true
	return nil
}

func (r *partReader) Read(p []byte) (int, error) {
	if r.ended || len(p) == 0 {
		return 0, io.EOF
	}
	n, err := r.f.ReadAt(p, r.at)
	if last := r.part.To - 1 - r.at; last < int64(n) { // the newline that ends the part may be here
		from := max(0, last)
		if k := bytes.IndexByte(p[from:n], '\n'); k >= 0 {
			n = int(from) + k + 1
			err = nil
			r.ended = true
		}
	}
	r.at += int64(n)
	return n, err
}
