package source

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// This file reads recordings of vLLM's KV-event socket, which sends batches in MessagePack
// (https://github.com/msgpack/msgpack/blob/master/spec.md). A batch is an array of two to four values,
// the first of which is a time. A recording has its batches one after another, or each after its
// length in four bytes (big-endian). packLines converts such a recording to the JSON lines in which
// these batches are also recorded: message n becomes line n.

// isMessagePack reports whether a recording begins with a batch in MessagePack: an array of two to four
// values (0x92 to 0x94), then a double (0xcb). framed is set if each batch follows its length.
func isMessagePack(head []byte) (isPack, framed bool) {
	isBatch := func(b []byte) bool { return len(b) >= 2 && b[0] >= 0x92 && b[0] <= 0x94 && b[1] == 0xcb }
	if isBatch(head) {
		return true, false
	}
	return len(head) >= 6 && isBatch(head[4:]), true
}

// maxPackDepth is the deepest nesting of values that is read; batches nest four deep.
const maxPackDepth = 16

// packLines is a reader that converts MessagePack messages to lines of JSON.
type packLines struct {
	r      *bufio.Reader
	framed bool
	limit  int64  // most bytes of one text, and about a quarter of those of one line
	line   []byte // the current message as JSON
	at     int    // number of bytes of line that Read has returned
	err    error  // Read returns it after line
}

// Read returns the JSON lines.
func (p *packLines) Read(dst []byte) (int, error) {
	for p.at == len(p.line) {
		if p.err != nil {
			return 0, p.err
		}
		p.line = p.line[:0]
		p.at = 0
		p.err = p.message()
		if p.err != nil && p.err != io.EOF {
			p.line = p.line[:0] // a message that is not whole is dropped
		}
	}
	n := copy(dst, p.line[p.at:])
	p.at += n
	return n, nil
}

// message converts one batch and stores it in line. It returns io.EOF at the end of the input.
func (p *packLines) message() error {
	if p.framed {
		if _, err := p.uint(4); err != nil {
			return err
		}
	} else if _, err := p.r.Peek(1); err != nil {
		return err
	}
	if err := p.value(0); err != nil {
		if err == io.EOF {
			err = errCut
		}
		return err
	}
	p.line = append(p.line, '\n')
	return nil
}

// uint returns an unsigned big-endian integer of so many bytes.
func (p *packLines) uint(bytes int) (v uint64, err error) {
	var b [8]byte
	n, err := io.ReadFull(p.r, b[8-bytes:])
	if n > 0 && err != nil {
		err = errCut
	}
	return binary.BigEndian.Uint64(b[:]), err
}

var errPackType = errors.New("got a value of no known MessagePack type")

// value converts one value and appends it to line.
func (p *packLines) value(depth int) error {
	t, err := p.r.ReadByte()
	switch {
	case err != nil:
		return err
	case depth > maxPackDepth:
		return fmt.Errorf("got values nested deeper than %d", maxPackDepth)
	case int64(len(p.line)) > 4*p.limit: // the line will be dropped as too long; here only memory is bounded
		return fmt.Errorf("got a message of more than %d bytes (--max-line)", p.limit)
	// The first byte is the type, as the specification calls it here; that of small values has the value too.
	case t <= 0x7f || t >= 0xe0: // fixint, positive and negative
		p.line = strconv.AppendInt(p.line, int64(int8(t)), 10)
	case t <= 0x8f: // fixmap
		return p.list(uint64(t&15), depth, true)
	case t <= 0x9f: // fixarray
		return p.list(uint64(t&15), depth, false)
	case t <= 0xbf: // fixstr
		return p.text(uint64(t&31), false)
	case t == 0xc0: // nil
		p.line = append(p.line, "null"...)
	case t == 0xc2 || t == 0xc3: // false, true
		p.line = strconv.AppendBool(p.line, t == 0xc3)
	case t == 0xca || t == 0xcb: // float 32, float 64
		return p.float(t)
	case t >= 0xcc && t <= 0xd3: // uint 8 to uint 64, int 8 to int 64
		return p.integer(t)
	default: // bin, str, array and map with a length; others are not read
		return p.sized(t, depth)
	}
	return nil
}

// float converts a float of type byte t.
func (p *packLines) float(t byte) error {
	width := 4 << (t - 0xca)
	v, err := p.uint(width)
	f := math.Float64frombits(v)
	if width == 4 {
		f = float64(math.Float32frombits(uint32(v)))
	}
	if err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
		return fmt.Errorf("got the number %v", f)
	}
	p.line = strconv.AppendFloat(p.line, f, 'f', -1, 64)
	return err
}

// integer converts an integer of type byte t.
func (p *packLines) integer(t byte) error {
	width := 1 << ((t - 0xcc) & 3) // bytes
	v, err := p.uint(width)
	if t < 0xd0 { // unsigned
		p.line = strconv.AppendUint(p.line, v, 10)
	} else { // extend the sign
		shift := 64 - 8*width
		p.line = strconv.AppendInt(p.line, int64(v<<shift)>>shift, 10)
	}
	return err
}

// packSized lists the types whose values begin with a length, and the number of bytes of that
// length.
var packSized = map[byte]struct {
	width int
	kind  packKind
}{
	0xc4: {1, packBytes}, 0xc5: {2, packBytes}, 0xc6: {4, packBytes},
	0xd9: {1, packText}, 0xda: {2, packText}, 0xdb: {4, packText},
	0xdc: {2, packList}, 0xdd: {4, packList},
	0xde: {2, packMap}, 0xdf: {4, packMap},
}

// packKind is what a MessagePack value with a length in front holds.
type packKind uint8

const (
	packBytes packKind = iota
	packText
	packList
	packMap
)

// sized converts a value of a type in packSized.
func (p *packLines) sized(t byte, depth int) error {
	form, ok := packSized[t]
	if !ok {
		return errPackType
	}
	n, err := p.uint(form.width)
	if err != nil {
		return err
	}
	switch form.kind {
	case packBytes, packText:
		return p.text(n, form.kind == packBytes)
	}
	return p.list(n, depth, form.kind == packMap)
}

// text converts a text of n bytes, or n bytes of binary data to base64.
func (p *packLines) text(n uint64, isBytes bool) error {
	if n > uint64(p.limit) {
		return fmt.Errorf("got a text of %d bytes, want at most %d (--max-line)", n, p.limit)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, p.r, int64(n)); err != nil {
		return err
	}
	if isBytes {
		p.line = append(p.line, '"')
		p.line = base64.StdEncoding.AppendEncode(p.line, b.Bytes())
		p.line = append(p.line, '"')
		return nil
	}
	quoted, err := json.Marshal(b.String())
	p.line = append(p.line, quoted...)
	return err
}

// list converts n values, or n pairs of a key and a value.
func (p *packLines) list(n uint64, depth int, isMap bool) error {
	open, end := byte('['), byte(']')
	if isMap {
		open, end = '{', '}'
	}
	p.line = append(p.line, open)
	for i := range n {
		if i > 0 {
			p.line = append(p.line, ',')
		}
		if isMap {
			if err := p.key(); err != nil {
				return err
			}
		}
		if err := p.value(depth + 1); err != nil {
			return err
		}
	}
	p.line = append(p.line, end)
	return nil
}

// key converts the key of a pair, which must be a text in JSON, and appends a colon.
func (p *packLines) key() error {
	from := len(p.line)
	if err := p.value(maxPackDepth); err != nil { // at this depth a list or map is refused
		return err
	}
	if p.line[from] != '"' {
		return errors.New("got a key that is no text")
	}
	p.line = append(p.line, ':')
	return nil
}
