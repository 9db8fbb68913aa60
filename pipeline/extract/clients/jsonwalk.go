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

// newWalker returns a walker over the JSON of a file, which counts its bytes and its line.
func (c *Reader) newWalker(f *clientFile) walker {
	c.Acc.Lines++
	return newWalkerOf(&countingReader{c, f.src.R}, func(n int64) { c.countMemory(f.src, n) })
}

// walker walks a JSON document.
type walker struct {
	dec  *json.Decoder
	hold func(bytes int64) // counts the memory of what is kept; may be nil
}

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
// an error. Keys count as memory until the object ends, so that an object of very many is refused.
func (w walker) object(use func(key string) error) error {
	isOpen, err := w.open('{')
	if err != nil || !isOpen {
		return err
	}
	seen := map[string]bool{}
	held := int64(0) // memory of seen, bytes
	defer func() { w.keep(-held) }()
	for w.dec.More() {
		token, err := w.dec.Token()
		if err != nil {
			return asCut(err)
		}
		key := token.(string)
		if seen[key] {
			return fmt.Errorf("got the key %.40q twice in one object", key)
		}
		seen[key] = true
		w.keep(keyBytes + int64(len(key)))
		held += keyBytes + int64(len(key))
		if err := use(key); err != nil {
			return asCut(err)
		}
	}
	_, err = w.dec.Token() // the closing brace
	return asCut(err)
}

// array calls use for each element of an array; use must read it.
func (w walker) array(use func() error) error {
	isOpen, err := w.open('[')
	if err != nil || !isOpen {
		return err
	}
	for w.dec.More() {
		if err := use(); err != nil {
			return asCut(err)
		}
	}
	_, err = w.dec.Token() // the closing bracket
	return asCut(err)
}

// asCut returns the error inside an object or array. There the end of the text is a cut, which a decoder
// between two values reports as io.EOF.
func asCut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// keep counts memory that is kept, or given back with a negative number.
func (w walker) keep(bytes int64) {
	if w.hold != nil {
		w.hold(bytes)
	}
}

// keyBytes is the memory of a key of an object without its text.
const keyBytes = 48

// list appends the elements of a list to out. each is the memory of an element, in bytes.
func list[T any](w walker, out *[]T, each func(*T) int64) error {
	return w.array(func() error {
		var v T
		err := w.dec.Decode(&v)
		w.keep(each(&v))
		*out = append(*out, v)
		return err
	})
}

// numbers appends the numbers of a list to out; null is NaN.
func (w walker) numbers(out *numberList) error {
	var values []trace.Opt[float64]
	err := list(w, &values, func(*trace.Opt[float64]) int64 { return numberBytes })
	for _, v := range values {
		*out = append(*out, nanOr(v))
	}
	return err
}

// numberBytes is the memory of a number while a list of them is read: of 16 bytes in the list that may hold
// null, and of 8 in the result, each twice for the room of a growing list.
const numberBytes = 2 * (16 + 8)

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
