package scan

import (
	"encoding/binary"
	"fmt"
)

// Protobuf wire types.
const (
	WireVarint  = 0
	WireFixed64 = 1
	WireBytes   = 2
	wireGroup   = 3
	wireEnd     = 4
	WireFixed32 = 5
)

// Field is one field of a protobuf message: data for bytes, num otherwise.
type Field struct {
	Number int
	Wire   int
	Data   []byte
	Num    uint64
	At     int // offset of data in the whole message
}

// Fields walks the fields of one protobuf message without building anything.
type Fields struct {
	B    []byte
	base int // offset of b in the whole message
	i    int
	Err  *Error
}

func (f *Fields) Fail(format string, args ...any) bool {
	if f.Err == nil {
		f.Err = &Error{At: f.base + f.i, Msg: fmt.Sprintf(format, args...)}
	}
	return false
}

func (f *Fields) varint() (uint64, bool) {
	if f.i < len(f.B) && f.B[f.i] < 0x80 {
		f.i++
		return uint64(f.B[f.i-1]), true
	}
	var v uint64
	for n, ch := range f.B[f.i:min(len(f.B), f.i+maxVarint)] {
		v |= uint64(ch&0x7f) << (7 * n)
		if ch < 0x80 {
			f.i += n + 1
			return v, true
		}
	}
	if len(f.B)-f.i < maxVarint {
		return 0, f.Fail("got the end of the message inside a varint")
	}
	return 0, f.Fail("got a varint of more than %d bytes", maxVarint)
}

// maxVarint is the length of the longest varint. Bits of its last byte beyond
// the 64th are dropped, as protobuf decoders do.
const maxVarint = 10

// Next reads one field into out.
func (f *Fields) Next(out *Field) bool {
	if f.Err != nil || f.i >= len(f.B) {
		return false
	}
	tag, ok := f.varint()
	if !ok {
		return false
	}
	out.Number, out.Wire = int(int32(tag>>3)), int(tag&7)
	if out.Number <= 0 {
		return f.Fail("got the illegal field number %d", out.Number)
	}
	switch out.Wire {
	case WireVarint:
		out.Num, ok = f.varint()
		return ok
	case WireFixed64:
		if len(f.B)-f.i < 8 {
			return f.Fail("got the end of the message inside a fixed64")
		}
		out.Num = binary.LittleEndian.Uint64(f.B[f.i:])
		f.i += 8
	case WireFixed32:
		if len(f.B)-f.i < 4 {
			return f.Fail("got the end of the message inside a fixed32")
		}
		out.Num = uint64(binary.LittleEndian.Uint32(f.B[f.i:]))
		f.i += 4
	case WireBytes:
		n, ok := f.varint()
		if !ok {
			return false
		}
		if n > uint64(len(f.B)-f.i) {
			return f.Fail("got a field of %d bytes, want at most the %d that are left", n, len(f.B)-f.i)
		}
		out.At = f.base + f.i
		out.Data = f.B[f.i : f.i+int(n)]
		f.i += int(n)
	default:
		return f.Fail("got the wire type %d, want 0, 1, 2 or 5", out.Wire)
	}
	return true
}

// Is fails when a known field has another wire type.
func (f *Fields) Is(v *Field, wire int) bool {
	return v.Wire == wire || f.Fail("field %d: got the wire type %d, want %d", v.Number, v.Wire, wire)
}

func (v *Field) Walk() Fields { return Fields{B: v.Data, base: v.At} }

// Adopt takes over the fault of an inner message.
func (f *Fields) Adopt(err *Error) {
	if f.Err == nil {
		f.Err = err
	}
}

// ID copies an id field; an empty one is all zeros.
func (f *Fields) ID(v *Field, dst []byte) {
	clear(dst)
	if !f.Is(v, WireBytes) || len(v.Data) == 0 {
		return
	}
	if len(v.Data) != len(dst) {
		f.Fail("got an id of %d bytes, want %d", len(v.Data), len(dst))
		return
	}
	copy(dst, v.Data)
}
