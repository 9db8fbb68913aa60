package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/blis-train/blis-train/trace"
)

// tally adds the bytes read to a count.
type tally struct {
	r io.Reader
	n *int64
}

// finite reads JSON as Python's json module writes it: Infinity, -Infinity and NaN, which are no
// JSON, become null.
type finite struct {
	r               *bufio.Reader
	inText, escaped bool
	rest            string // of a null
}

func (f *finite) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if f.rest != "" {
			k := copy(p[n:], f.rest)
			f.rest = f.rest[k:]
			n += k
			continue
		}
		if n > 0 && f.r.Buffered() == 0 {
			return n, nil
		}
		b, err := f.r.ReadByte()
		if err != nil {
			return n, err
		}
		switch {
		case f.escaped:
			f.escaped = false
		case b == '"':
			f.inText = !f.inText
		case f.inText:
			f.escaped = b == '\\'
		case b == '-' || b == 'I' || b == 'N':
			for _, word := range []string{"-Infinity", "Infinity", "NaN"} {
				if more, _ := f.r.Peek(len(word) - 1); string(b)+string(more) == word {
					if _, err := f.r.Discard(len(more)); err != nil {
						return n, err
					}
					f.rest = "null"
				}
			}
			if f.rest != "" {
				continue
			}
		}
		p[n] = b
		n++
	}
	return n, nil
}

// numbers is a list of numbers; one that is null is NaN, not 0.
type numbers []float64

// UnmarshalJSON reads the list.
func (n *numbers) UnmarshalJSON(text []byte) error {
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

// walker walks a JSON document.
type walker struct{ dec *json.Decoder }

// decode reads a value in which no key stands twice.
func (w walker) decode(v any) error {
	var text json.RawMessage
	if err := w.dec.Decode(&text); err != nil {
		return err
	}
	return trace.UnmarshalJSON(text, v)
}

// enter takes the delimiter that opens a value; false for null.
func (w walker) enter(open json.Delim) (bool, error) {
	t, err := w.dec.Token()
	switch {
	case err != nil:
		return false, err
	case t == nil:
		return false, nil
	case t != open:
		return false, fmt.Errorf("got %.40v, want %s", t, open)
	}
	return true, nil
}

// object calls use for each key, whose value use reads.
func (w walker) object(use func(key string) error) error {
	in, err := w.enter('{')
	seen := map[string]bool{}
	for err == nil && in && w.dec.More() {
		var key json.Token
		if key, err = w.dec.Token(); err != nil {
			break
		}
		if k := key.(string); seen[k] {
			err = fmt.Errorf("got the key %.40q twice in one object", k)
		} else {
			seen[k] = true
			err = use(k)
		}
	}
	return w.leave(in, err)
}

// array calls use for each element, which use reads.
func (w walker) array(use func() error) error {
	in, err := w.enter('[')
	for err == nil && in && w.dec.More() {
		err = use()
	}
	return w.leave(in, err)
}

// leave takes the closing delimiter.
func (w walker) leave(in bool, err error) error {
	if err == nil && in {
		_, err = w.dec.Token()
	}
	return err
}

// skip reads over a value, whatever it is.
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

func (t *tally) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	*t.n += int64(n)
	return n, err
}
