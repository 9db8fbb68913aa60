package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"github.com/blis-train/blis-train/internal/files"
)

// This file cuts large files into parts that several processes decode, and reads one part.

// Part is a piece of a file: the lines that start in [From, To), or the messages between these
// offsets. A file of lines may be cut anywhere, and each line belongs to exactly one part. Messages
// may only be cut between messages.
type Part struct {
	Form string `json:"form"` // a key of cutForms
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// partOfLines is the form of a part of lines.
const partOfLines = "lines"

// OfLines reports whether the part consists of lines. The last of them may end after To.
func (p *Part) OfLines() bool { return p.Form == partOfLines }

// cutForms maps the form of a part to the framing in which it is read.
var cutForms = map[string]form{partOfLines: formLines, "messages": formProto, "frames": formFramed}

// Cut cuts each input into parts of about every bytes. It returns no parts for an input that has to
// be read whole: it is short, compressed as a stream, one document, begins with a byte order mark,
// or belongs to a rotated set in which a line may continue in the next file.
func Cut(in []Input, every int64) ([][]Part, error) {
	out := make([][]Part, len(in))
	continues := false // the last line of the previous file may continue in this one
	for i := range in {
		startsInside := continues // this file may begin with the end of a line
		parts, endsLine, err := cutFile(&in[i], every)
		if err != nil {
			return nil, err
		}
		continues = in[i].Joins && !endsLine
		if !startsInside && !continues {
			out[i] = parts
		}
	}
	return out, nil
}

// cutFile returns the parts of an input, of about every bytes. endsLine is set if the file ends
// with a whole line or message.
func cutFile(in *Input, every int64) (parts []Part, endsLine bool, err error) {
	if st, err := os.Stat(in.Path); err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return nil, false, nil // the error is reported when the file is read
	}
	src, err := Open(in, nil, Limits{MaxLine: longBytes, MaxExpansion: 1}) // only its form is looked at
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
	endsLine = last[0] == '\n'
	switch {
	case err != nil || src.bom || src.Size <= every:
		return nil, endsLine, nil
	case src.form == formLines:
		return cutLines(src.Size, every), endsLine, nil
	case src.form == formProto || src.form == formFramed:
		parts, err = cutMessages(f, src.form, src.Size, every)
		return parts, true, err
	}
	return nil, endsLine, nil
}

// cutLines returns the parts of a file of lines.
func cutLines(size, every int64) (out []Part) {
	for at := int64(0); at < size; at += every {
		out = append(out, Part{Form: partOfLines, From: at, To: min(at+every, size)})
	}
	return out
}

// cutMessages cuts length-prefixed messages, following their lengths. Every part but the last has
// at least every bytes. A length that leads beyond the end of the file stays in the last part,
// whose reader reports it.
func cutMessages(f io.ReaderAt, framing form, size, every int64) (out []Part, err error) {
	name := "messages"
	if framing == formFramed {
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
		at = next
		if at-from >= every {
			out = append(out, Part{Form: name, From: from, To: at})
			from = at
		}
	}
	if from < size {
		out = append(out, Part{Form: name, From: from, To: size})
	}
	return out, nil
}

// openPart opens a part of a file. The part states its framing, so nothing has to be recognised.
func openPart(from *Input, limits Limits) (*Source, error) {
	f, err := files.Open(from.Path, false)
	if err != nil {
		return nil, err
	}
	s := &Source{
		Name:   from.Name,
		Limits: limits,
		form:   cutForms[from.Part.Form],
		start:  from.Part.From,
		close:  []func(){func() { f.Close() }},
	}
	in := io.Reader(io.NewSectionReader(f, from.Part.From, from.Part.To-from.Part.From))
	if s.form == formLines {
		lines := &partReader{f: f, part: *from.Part, at: from.Part.From}
		if err := lines.begin(); err != nil {
			return s, s.ReadError(err)
		}
		in = lines
		s.start = lines.at
	}
	s.readFrom(in)
	return s, nil
}

// partReader reads the lines of a part. It begins after the first newline at From-1 or later, and
// ends with the first newline at To-1 or later, or with the file. It looks for the beginning up to
// To only, because a line that begins after To belongs to another part.
type partReader struct {
	f     io.ReaderAt
	part  Part
	at    int64 // offset in the file at which it continues to read
	ended bool  // the last line of the part was returned, or no line begins in it
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
		at += int64(n)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	r.ended = true
	return nil
}

// Read returns bytes of the part, to the end of the line that its last byte belongs to.
func (r *partReader) Read(p []byte) (int, error) {
	if r.ended || len(p) == 0 {
		return 0, io.EOF
	}
	n, err := r.f.ReadAt(p, r.at)
	if last := r.part.To - 1 - r.at; last < int64(n) { // p may contain the newline that ends the part
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
