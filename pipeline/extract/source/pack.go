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

// vLLM's KV-event socket carries MessagePack: a batch is an array of two to
// four values that begins with a time. A recording of its messages, one after
// another or each behind its length in four bytes (big-endian), is read as the
// JSON lines that the same batches have: message n is line n. Formats of the
// bytes: https://github.com/msgpack/msgpack/blob/master/spec.md.

// isPack recognises a batch; framed ones stand behind their length.
func isPack(head []byte) (is, framed bool) {
	batch := func(b []byte) bool { return len(b) >= 2 && b[0] >= 0x92 && b[0] <= 0x94 && b[1] == 0xcb }
	if batch(head) {
		return true, false
	}
	return len(head) >= 6 && batch(head[4:]), true
}

const maxPackDepth = 16

// packLines turns messages into lines.
type packLines struct {
	r      *bufio.Reader
	framed bool
	limit  int64 // bytes of one text, and about of one line
	line   []byte
	at     int // read so far of line
	err    error
}

func (p *packLines) Read(dst []byte) (int, error) {
	for p.at == len(p.line) {
		if p.err != nil {
			return 0, p.err
		}
		p.line, p.at = p.line[:0], 0
		p.err = p.message()
		if p.err != nil && p.err != io.EOF {
			p.line = p.line[:0] // half a message is none
		}
	}
	n := copy(dst, p.line[p.at:])
	p.at += n
	return n, nil
}

// message reads one batch into the line; io.EOF before the first byte is the end.
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

func (p *packLines) uint(bytes int) (v uint64, err error) {
	var b [8]byte
	n, err := io.ReadFull(p.r, b[8-bytes:])
	if n > 0 && err != nil {
		err = errCut
	}
	return binary.BigEndian.Uint64(b[:]), err
}

var errPackType = errors.New("got a value of no known MessagePack type")

// value appends one value as JSON.
func (p *packLines) value(depth int) error {
	t, err := p.r.ReadByte()
	switch {
	case err != nil:
		return err
	case depth > maxPackDepth:
		return fmt.Errorf("got values nested deeper than %d", maxPackDepth)
	case int64(len(p.line)) > 4*p.limit: // the line is dropped as too long; a message without end is not read
		return fmt.Errorf("got a message of more than %d bytes (--max-line)", p.limit)
	case t <= 0x7f || t >= 0xe0:
		p.line = strconv.AppendInt(p.line, int64(int8(t)), 10)
	case t <= 0x8f:
		return p.list(uint64(t&15), depth, true)
	case t <= 0x9f:
		return p.list(uint64(t&15), depth, false)
	case t <= 0xbf:
		return p.text(uint64(t&31), false)
	case t == 0xc0:
		p.line = append(p.line, "null"...)
	case t == 0xc2 || t == 0xc3:
		p.line = strconv.AppendBool(p.line, t == 0xc3)
	case t == 0xca || t == 0xcb:
		return p.float(t)
	case t >= 0xcc && t <= 0xd3:
		return p.integer(t)
	default:
		return p.sized(t, depth)
	}
	return nil
}

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

func (p *packLines) integer(t byte) error {
	width := 1 << ((t - 0xcc) & 3)
	v, err := p.uint(width)
	if t < 0xd0 {
		p.line = strconv.AppendUint(p.line, v, 10)
	} else {
		shift := 64 - 8*width
		p.line = strconv.AppendInt(p.line, int64(v<<shift)>>shift, 10)
	}
	return err
}

// sized reads what has its length in front.
func (p *packLines) sized(t byte, depth int) error {
	form, ok := map[byte]struct {
		width int
		kind  byte
	}{
		0xc4: {1, 'b'}, 0xc5: {2, 'b'}, 0xc6: {4, 'b'}, 0xd9: {1, 's'}, 0xda: {2, 's'}, 0xdb: {4, 's'},
		0xdc: {2, 'l'}, 0xdd: {4, 'l'}, 0xde: {2, 'm'}, 0xdf: {4, 'm'},
	}[t]
	if !ok {
		return errPackType
	}
	n, err := p.uint(form.width)
	switch {
	case err != nil:
		return err
	case form.kind == 'b' || form.kind == 's':
		return p.text(n, form.kind == 'b')
	}
	return p.list(n, depth, form.kind == 'm')
}

// text appends a text, or bytes in base64 as JSON has them.
func (p *packLines) text(n uint64, isBytes bool) error {
	if n > uint64(p.limit) {
		return fmt.Errorf("got a text of %d bytes, want at most %d (--max-line)", n, p.limit)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, p.r, int64(n)); err != nil {
		return err
	}
	if isBytes {
		p.line = append(base64.StdEncoding.AppendEncode(append(p.line, '"'), b.Bytes()), '"')
		return nil
	}
	quoted, err := json.Marshal(b.String())
	p.line = append(p.line, quoted...)
	return err
}

// list appends n values, or pairs of a key and a value.
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

// key appends the key of a pair, which is a text in JSON.
func (p *packLines) key() error {
	from := len(p.line)
	if err := p.value(maxPackDepth); err != nil {
		return err
	}
	if p.line[from] != '"' {
		return errors.New("got a key that is no text")
	}
	p.line = append(p.line, ':')
	return nil
}
