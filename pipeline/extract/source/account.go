// This file counts what an extraction reads: every record is kept, or
// dropped for a reason with a place. read = kept + the sum of dropped.

package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"sort"
	"unsafe"

	"github.com/blis-train/blis-train/internal/files"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/trace"
)

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
			out, from = append(out, Part{name, from, at}), at
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
			n, err, r.ended = int(from)+k+1, nil, true
		}
	}
	r.at += int64(n)
	return n, err
}
