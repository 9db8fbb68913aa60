package table

import (
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/blis-train/blis-train/trace"
)

// Codec packs rows into compact bytes and back, for rows that wait on disk
// between two passes. The form is private to one build and not a file format.
type Codec[T any] struct{ cols []column }

// NewCodec makes the codec of row type T.
func NewCodec[T any]() *Codec[T] {
	return &Codec[T]{cols: columnsOf(reflect.TypeFor[T]())}
}

// Append packs row after dst.
func (c *Codec[T]) Append(dst []byte, row *T) []byte {
	x := Pen{B: dst}
	c.Fields(&x, row)
	return x.B
}

// Decode unpacks one row from src into the zero row. Strings come from intern.
// Bytes that Append did not write are our own bug.
func (c *Codec[T]) Decode(src []byte, row *T, intern func([]byte) string) error {
	x := Reading(src, intern)
	c.Fields(x, row)
	return x.End()
}

// Fields writes or reads the columns of a row.
func (c *Codec[T]) Fields(x *Pen, row *T) {
	p := unsafe.Pointer(row)
	for i := range c.cols {
		col := &c.cols[i]
		if col.Nullable {
			known := at[bool](p, col.known)
			if x.Flag(known); !*known {
				continue
			}
		}
		switch {
		case col.list && col.kind == kindString:
			Repeated(x, at[[]string](p, col.offset), x.Text)
		case col.list:
			Repeated(x, at[[]float64](p, col.offset), x.Float)
		case col.kind == kindInt64:
			x.Int(at[int64](p, col.offset))
		case col.kind == kindFloat64:
			x.Float(at[float64](p, col.offset))
		case col.kind == kindBool:
			x.Flag(at[bool](p, col.offset))
		default:
			x.Text(at[string](p, col.offset))
		}
	}
}

// Pen writes fields after B, or reads them from B, with one description for both. What does
// not fit is bad, and sticks.
type Pen struct {
	B      []byte
	intern func([]byte) string // of what is read; nil: fields are written
	bad    bool
}

// Reading is a pen that reads; its texts come from intern.
func Reading(b []byte, intern func([]byte) string) *Pen { return &Pen{B: b, intern: intern} }

// Stores reports that fields are written.
func (x *Pen) Stores() bool { return x.intern == nil }

// End is the error of fields that do not fit what was read.
func (x *Pen) End() error {
	if x.bad || len(x.B) > 0 {
		return fmt.Errorf("table: packed fields do not fit their type, %d bytes before their end", len(x.B))
	}
	return nil
}

// take is the next n bytes.
func (x *Pen) take(n int64) []byte {
	if n < 0 || int64(len(x.B)) < n {
		x.bad, x.B = true, nil
		return nil
	}
	v := x.B[:n]
	x.B = x.B[n:]
	return v
}

func (x *Pen) Int(v *int64) {
	if x.Stores() {
		x.B = binary.AppendVarint(x.B, *v)
		return
	}
	n, k := binary.Varint(x.B)
	*v = n
	if x.take(int64(k)); k == 0 {
		x.bad = true
	}
}

// Fixed is bytes whose number is known.
func (x *Pen) Fixed(b []byte) {
	if x.Stores() {
		x.B = append(x.B, b...)
		return
	}
	copy(b, x.take(int64(len(b))))
}

func (x *Pen) Word(v *uint64) {
	if x.Stores() {
		x.B = binary.LittleEndian.AppendUint64(x.B, *v)
	} else if b := x.take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

func (x *Pen) Float(v *float64) {
	w := math.Float64bits(*v)
	x.Word(&w)
	*v = math.Float64frombits(w)
}

func (x *Pen) Flag(v *bool) {
	n := int64(0)
	if *v {
		n = 1
	}
	x.Int(&n)
	*v = n == 1
}

func (x *Pen) Text(v *string) {
	n := int64(len(*v))
	if x.Int(&n); x.Stores() {
		x.B = append(x.B, *v...)
		return
	}
	*v = x.intern(x.take(n))
}

// Optional is a value that may be absent.
func Optional[T any](x *Pen, v *trace.Opt[T], value func(*T)) {
	if x.Flag(&v.OK); v.OK {
		value(&v.V)
	}
}

// Repeated is a list of values.
func Repeated[T any](x *Pen, list *[]T, value func(*T)) {
	n := int64(len(*list))
	if x.Int(&n); !x.Stores() {
		if n < 0 || n > int64(len(x.B)) { // a value takes a byte at least
			x.bad, n = true, 0
		}
		*list = append((*list)[:0], make([]T, n)...)
	}
	for i := range *list {
		value(&(*list)[i])
	}
}

// Rows is a list of rows of a table.
func Rows[T any](x *Pen, codec *Codec[T], list *[]T) {
	Repeated(x, list, func(row *T) { codec.Fields(x, row) })
}
