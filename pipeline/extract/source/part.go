package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/blis-train/blis-train/internal/files"
)

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
