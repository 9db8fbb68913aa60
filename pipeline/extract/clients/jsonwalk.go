package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/trace"
)

// This file reads JSON documents piece by piece, so that a result file of gigabytes takes the
// memory of one request, and accepts the numbers that Python writes.

// byteCounter adds the bytes that are read to a count.
type byteCounter struct {
	r io.Reader
	n *int64
}

// Read reads from r and counts the bytes.
func (b *byteCounter) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	*b.n += int64(n)
	return n, err
}

// newWalker returns a walker over the JSON of a file, which counts its bytes and its line.
func (c *Reader) newWalker(f *clientFile) walker {
	c.Acc.Lines++
	return walker{json.NewDecoder(&byteCounter{f.src.R, &c.Acc.Bytes})}
}

// walker walks a JSON document.
type walker struct{ dec *json.Decoder }

// decode reads a value. A key that occurs twice in an object is an error.
func (w walker) decode(v any) error {
	var text json.RawMessage
	if err := w.dec.Decode(&text); err != nil {
		return err
	}
	return trace.UnmarshalJSON(text, v)
}

// open reads the delimiter that opens a value. It returns false for null.
func (w walker) open(want json.Delim) (bool, error) {
	t, err := w.dec.Token()
	switch {
	case err != nil:
		return false, err
	case t == nil:
		return false, nil
	case t != want:
		return false, fmt.Errorf("got %.40v, want %s", t, want)
	}
	return true, nil
}

// object calls use for each key of an object; use must read the value. A key that occurs twice is
// an error.
func (w walker) object(use func(key string) error) error {
	isOpen, err := w.open('{')
	if err != nil || !isOpen {
		return err
	}
	seen := map[string]bool{}
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return err
		}
		key := token.(string)
		if seen[key] {
			return fmt.Errorf("got the key %.40q twice in one object", key)
		}
		seen[key] = true
		if err := use(key); err != nil {
			return err
		}
	}
	_, err = w.dec.Token() // the closing brace
	return err
}

// array calls use for each element of an array; use must read it.
func (w walker) array(use func() error) error {
	isOpen, err := w.open('[')
	if err != nil || !isOpen {
		return err
	}
	for w.dec.More() {
		if err := use(); err != nil {
			return err
		}
	}
	_, err = w.dec.Token() // the closing bracket
	return err
}

// skip reads over a value without keeping it in memory.
func (w walker) skip() error {
	for depth := 0; ; {
		t, err := w.dec.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

// numberList is a list of numbers of which null is NaN, not 0.
type numberList []float64

// UnmarshalJSON reads a list of numbers, in which null becomes NaN.
func (n *numberList) UnmarshalJSON(text []byte) error {
	if !bytes.Contains(text, []byte("null")) {
		return json.Unmarshal(text, (*[]float64)(n))
	}
	var list []trace.Opt[float64]
	err := json.Unmarshal(text, &list)
	for _, v := range list {
		*n = append(*n, nanOr(v))
	}
	return err
}

// pythonJSON turns what Python's json module writes into JSON: Infinity, -Infinity and NaN
// become null, outside of strings.
type pythonJSON struct {
	r         *bufio.Reader
	inString  bool
	isEscaped bool   // the byte before was a backslash in a string
	rest      string // of a null that did not fit into the last Read
}

// Read returns the JSON with Python's Infinity and NaN replaced by null.
func (f *pythonJSON) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if f.rest != "" {
			k := copy(p[n:], f.rest)
			f.rest = f.rest[k:]
			n += k
			continue
		}
		if n > 0 && f.r.Buffered() == 0 {
			return n, nil // return what there is before waiting for more
		}
		b, err := f.r.ReadByte()
		if err != nil {
			return n, err
		}
		switch {
		case f.isEscaped:
			f.isEscaped = false
		case b == '"':
			f.inString = !f.inString
		case f.inString:
			f.isEscaped = b == '\\'
		case b == '-' || b == 'I' || b == 'N':
			isWord, err := f.skipWord(b)
			if err != nil {
				return n, err
			}
			if isWord {
				f.rest = "null"
				continue
			}
		}
		p[n] = b
		n++
	}
	return n, nil
}

// skipWord reads over the rest of Infinity, -Infinity or NaN if one begins with first, and returns
// whether it did.
func (f *pythonJSON) skipWord(first byte) (bool, error) {
	for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
		if word[0] != first {
			continue
		}
		if rest, _ := f.r.Peek(len(word) - 1); string(rest) == word[1:] {
			_, err := f.r.Discard(len(rest))
			return true, err
		}
	}
	return false, nil
}
