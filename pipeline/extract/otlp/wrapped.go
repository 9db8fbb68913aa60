package otlp

import (
	"bytes"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// Wrappers around OTLP documents: an array of them, and what Tempo answers,
// {"batches":[...]} and {"trace":{...}}, whose batches are resourceSpans by their
// older name.
var (
	tempoBatches = []byte(`batches`)
	tempoTrace   = []byte(`trace`)
	asSpans      = []byte(`{"resourceSpans":`)
)

// unwrapped calls use with every OTLP document of a text, which starts at the
// given byte of it; a text without wrapper is its own.
func unwrapped(text []byte, use func(document []byte, at int) *source.Error) *source.Error {
	c := source.Cursor{B: text}
	switch c.Peek() {
	case '[':
		c.Take('[')
		for first := true; c.More(']', &first); {
			c.Space()
			from := c.I
			if !c.Skip(0) {
				break
			}
			if err := unwrapped(text[from:c.I], func(d []byte, at int) *source.Error { return use(d, from+at) }); err != nil {
				return err
			}
		}
		if c.Space(); c.Err == nil && c.I < len(c.B) {
			c.Unexpected("the end of the array")
		}
		return c.Err
	case '{':
		if key, value, at, ok := onlyMember(text); ok && bytes.Equal(key, tempoTrace) {
			return unwrapped(value, func(d []byte, inner int) *source.Error { return use(d, at+inner) })
		} else if ok && bytes.Equal(key, tempoBatches) {
			return use(bytes.Join([][]byte{asSpans, value, {'}'}}, nil), at-len(asSpans))
		}
	}
	return use(text, 0)
}

// onlyMember is the first member of an object whose key may be a wrapper's, and
// where its value begins.
func onlyMember(text []byte) (key, value []byte, at int, ok bool) {
	c := source.Cursor{B: text}
	first := true
	if !c.Take('{') || !c.More('}', &first) {
		return nil, nil, 0, false
	}
	if key, ok = c.Key(); !ok || !bytes.Equal(key, tempoBatches) && !bytes.Equal(key, tempoTrace) {
		return nil, nil, 0, false
	}
	key = bytes.Clone(key)
	c.Space()
	at = c.I
	if !c.Skip(0) {
		return nil, nil, 0, false
	}
	return key, text[at:c.I], at, true
}
