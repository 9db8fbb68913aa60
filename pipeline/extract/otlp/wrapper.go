package otlp

import (
	"bytes"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// This file finds OTLP documents inside of other ones (spec#wire-wrapped): in an array, or in an answer
// of Tempo, {"batches":[...]} or {"trace":{...}}. batches is an older name of resourceSpans.

var (
	tempoBatches = []byte(`batches`)
	tempoTrace   = []byte(`trace`)
	spansStart   = []byte(`{"resourceSpans":`)
)

// eachDocument calls use with every OTLP document in a text and the offset at which it begins, and
// returns the first error. A text without a wrapper (the JSON that a log collector puts around
// documents) is one document.
func eachDocument(text []byte, use func(document []byte, at int) *source.Error) *source.Error {
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
			err := eachDocument(text[from:c.I], func(document []byte, at int) *source.Error {
				return use(document, from+at)
			})
			if err != nil {
				return err
			}
		}
		if c.Space(); c.Err == nil && c.I < len(c.B) {
			c.Unexpected("the end of the array")
		}
		return c.Err
	case '{':
		key, value, valueAt := wrapperMember(text)
		switch {
		case bytes.Equal(key, tempoTrace):
			return eachDocument(value, func(document []byte, at int) *source.Error {
				return use(document, valueAt+at)
			})
		case bytes.Equal(key, tempoBatches):
			renamed := bytes.Join([][]byte{spansStart, value, {'}'}}, nil)
			return use(renamed, valueAt-len(spansStart)) // offsets of errors stay those in text
		}
	}
	return use(text, 0)
}

// wrapperMember returns the first member of an object and the offset of its value, if its key is
// that of a wrapper. Otherwise key is nil.
func wrapperMember(text []byte) (key, value []byte, valueAt int) {
	c := source.Cursor{B: text}
	first := true
	if !c.Take('{') || !c.More('}', &first) {
		return nil, nil, 0
	}
	key, ok := c.Key()
	if !ok || !bytes.Equal(key, tempoBatches) && !bytes.Equal(key, tempoTrace) {
		return nil, nil, 0
	}
	key = bytes.Clone(key)
	c.Space()
	valueAt = c.I
	if !c.Skip(0) {
		return nil, nil, 0
	}
	return key, text[valueAt:c.I], valueAt
}
