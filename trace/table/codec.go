package table

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"unsafe"
)

// Codec packs rows into compact bytes and back, for rows that wait on disk
// between two passes. The form is private to one process and not a file format.
type Codec[T any] struct{ cols []column }

// NewCodec makes the codec of row type T.
func NewCodec[T any]() *Codec[T] {
	return &Codec[T]{cols: columnsOf(reflect.TypeFor[T]())}
}

// Append packs row after dst.
func (c *Codec[T]) Append(dst []byte, row *T) []byte {
	p := unsafe.Pointer(row)
	for i := range c.cols {
		col := &c.cols[i]
		if col.Nullable {
			if !*at[bool](p, col.known) {
				dst = append(dst, 0)
				continue
			}
			dst = append(dst, 1)
		}
		dst = appendField(dst, col, p)
	}
	return dst
}

func appendField(dst []byte, col *column, p unsafe.Pointer) []byte {
	switch {
	case col.list && col.kind == kindString:
		list := *at[[]string](p, col.offset)
		dst = binary.AppendUvarint(dst, uint64(len(list)))
		for _, s := range list {
			dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
		}
	case col.list:
		list := *at[[]float64](p, col.offset)
		dst = binary.AppendUvarint(dst, uint64(len(list)))
		for _, v := range list {
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
		}
	case col.kind == kindInt64:
		dst = binary.AppendVarint(dst, *at[int64](p, col.offset))
	case col.kind == kindFloat64:
		dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(*at[float64](p, col.offset)))
	case col.kind == kindBool:
		b := byte(0)
		if *at[bool](p, col.offset) {
			b = 1
		}
		dst = append(dst, b)
	default:
		s := *at[string](p, col.offset)
		dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...)
	}
	return dst
}

// Decode unpacks one row from src into the zero row. Strings come from intern.
// Bytes that Append did not write are our own bug.
func (c *Codec[T]) Decode(src []byte, row *T, intern func([]byte) string) error {
	r := unpacker{b: src, intern: intern}
	p := unsafe.Pointer(row)
	for i := range c.cols {
		col := &c.cols[i]
		if col.Nullable {
			if r.byte() == 0 {
				continue
			}
			*at[bool](p, col.known) = true
		}
		r.field(col, p)
	}
	if r.bad || len(r.b) != 0 {
		return fmt.Errorf("table: packed row of %d bytes does not fit its type", len(src))
	}
	return nil
}

// unpacker reads packed fields; bad sticks.
type unpacker struct {
	b      []byte
	intern func([]byte) string
	bad    bool
}

func (r *unpacker) take(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.bad, r.b = true, nil
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *unpacker) byte() byte {
	if v := r.take(1); v != nil {
		return v[0]
	}
	return 0
}

func (r *unpacker) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *unpacker) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *unpacker) float() float64 {
	if v := r.take(8); v != nil {
		return math.Float64frombits(binary.LittleEndian.Uint64(v))
	}
	return 0
}

func (r *unpacker) text() string { return r.intern(r.take(r.uvarint())) }

func (r *unpacker) field(col *column, p unsafe.Pointer) {
	switch {
	case col.list && col.kind == kindString:
		list := at[[]string](p, col.offset)
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			*list = append(*list, r.text())
		}
	case col.list:
		list := at[[]float64](p, col.offset)
		for n := r.uvarint(); n > 0 && !r.bad; n-- {
			*list = append(*list, r.float())
		}
	case col.kind == kindInt64:
		*at[int64](p, col.offset) = r.varint()
	case col.kind == kindFloat64:
		*at[float64](p, col.offset) = r.float()
	case col.kind == kindBool:
		*at[bool](p, col.offset) = r.byte() == 1
	default:
		*at[string](p, col.offset) = r.text()
	}
}
