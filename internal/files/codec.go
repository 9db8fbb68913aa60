package files

// This file packs values for temporary files.

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"unsafe"
)

// Codec packs values of one type into compact bytes and back, for values that wait on disk between
// two passes. It packs every field, unexported ones too, except those tagged `packed:"-"`. The form
// may change with every build and is not a file format.
type Codec[T any] struct{ value field }

// NewCodec returns the codec of type T. It panics for a type that cannot be packed.
func NewCodec[T any]() *Codec[T] { return &Codec[T]{fieldOf(reflect.TypeFor[T]())} }

// Append appends a packed value to dst and returns the result.
func (c *Codec[T]) Append(dst []byte, v *T) []byte {
	x := pen{b: dst}
	c.value(&x, unsafe.Pointer(v))
	return x.b
}

// Decode unpacks the value in src into v, which must be the zero value. It returns an error unless
// src is exactly one packed value.
func (c *Codec[T]) Decode(src []byte, v *T, texts *Interner) error {
	rest, err := c.Head(src, v, texts)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("got %d bytes behind a packed %T", len(rest), *v)
	}
	return err
}

// Head unpacks the value at the beginning of src into v and returns the bytes after it.
func (c *Codec[T]) Head(src []byte, v *T, texts *Interner) (rest []byte, err error) {
	x := pen{b: src, reads: true, texts: texts}
	c.value(&x, unsafe.Pointer(v))
	if x.bad {
		err = fmt.Errorf("got %d bytes that are no packed %T", len(src), *v)
	}
	return x.b, err
}

// pen appends fields to b, or reads them from the beginning of b if reads is set, so that one
// description of a type serves both. bad is set by the first field that cannot be read.
type pen struct {
	b     []byte
	reads bool
	texts *Interner // shares equal strings that are read
	bad   bool
}

// takeBytes returns the next n bytes; nil if there are fewer, which sets bad.
func (x *pen) takeBytes(n int64) []byte {
	if n < 0 || int64(len(x.b)) < n {
		x.bad, x.b = true, nil
		return nil
	}
	v := x.b[:n]
	x.b = x.b[n:]
	return v
}

// int packs or unpacks an integer as a varint.
func (x *pen) int(v *int64) {
	if !x.reads {
		x.b = binary.AppendVarint(x.b, *v)
		return
	}
	if len(x.b) > 0 && x.b[0] < 0x80 { // one byte, the usual case
		*v = int64(x.b[0]>>1) ^ -int64(x.b[0]&1)
		x.b = x.b[1:]
		return
	}
	n, k := binary.Varint(x.b)
	*v = n
	x.takeBytes(int64(k))
	if k == 0 {
		x.bad = true
	}
}

// narrow packs or unpacks an integer of another width than int64.
func narrow[V int | int32 | uint8](x *pen, v *V) {
	wide := int64(*v)
	x.int(&wide)
	*v = V(wide)
}

// fixed packs or unpacks bytes whose number follows from the type.
func (x *pen) fixed(b []byte) {
	if x.reads {
		copy(b, x.takeBytes(int64(len(b))))
		return
	}
	x.b = append(x.b, b...)
}

// flag packs or unpacks a boolean as one byte.
func (x *pen) flag(v *bool) {
	switch {
	case !x.reads && *v:
		x.b = append(x.b, 1)
	case !x.reads:
		x.b = append(x.b, 0)
	default:
		b := x.takeBytes(1)
		*v = b != nil && b[0] == 1
	}
}

// text packs or unpacks a string: its length, then its bytes.
func (x *pen) text(v *string) {
	n := int64(len(*v))
	x.int(&n)
	if x.reads {
		*v = x.texts.Get(x.takeBytes(n))
		return
	}
	x.b = append(x.b, *v...)
}

// field packs or unpacks the value at p. The offsets come from reflect, and the methods of Codec keep
// the value alive through their *T.
type field func(x *pen, p unsafe.Pointer)

// fieldOf returns the function that packs or unpacks values of a type.
func fieldOf(t reflect.Type) field {
	switch t.Kind() {
	case reflect.Bool:
		return func(x *pen, p unsafe.Pointer) { x.flag((*bool)(p)) }
	case reflect.Int64:
		return func(x *pen, p unsafe.Pointer) { x.int((*int64)(p)) }
	case reflect.Int:
		return func(x *pen, p unsafe.Pointer) { narrow(x, (*int)(p)) }
	case reflect.Int32:
		return func(x *pen, p unsafe.Pointer) { narrow(x, (*int32)(p)) }
	case reflect.Uint8:
		return func(x *pen, p unsafe.Pointer) { narrow(x, (*uint8)(p)) }
	case reflect.Uint64, reflect.Float64:
		return func(x *pen, p unsafe.Pointer) { x.fixed(unsafe.Slice((*byte)(p), 8)) }
	case reflect.String:
		return func(x *pen, p unsafe.Pointer) { x.text((*string)(p)) }
	case reflect.Array:
		return arrayOf(t)
	case reflect.Slice:
		return sliceOf(t)
	case reflect.Struct:
		return structOf(t)
	case reflect.Pointer:
		return pointerOf(t)
	}
	panic(fmt.Sprintf("files: a %s cannot be packed", t))
}

// arrayOf returns the function for an array: its elements in order, without their number.
func arrayOf(t reflect.Type) field {
	if t.Elem().Kind() == reflect.Uint8 {
		return func(x *pen, p unsafe.Pointer) { x.fixed(unsafe.Slice((*byte)(p), t.Len())) }
	}
	elem := fieldOf(t.Elem())
	n := t.Len()
	size := t.Elem().Size()
	return func(x *pen, p unsafe.Pointer) {
		for i := range n {
			elem(x, unsafe.Add(p, uintptr(i)*size))
		}
	}
}

// sliceOf returns the function for a slice: its length, then its elements.
func sliceOf(t reflect.Type) field {
	elem, size := fieldOf(t.Elem()), t.Elem().Size()
	return func(x *pen, p unsafe.Pointer) {
		list := reflect.NewAt(t, p).Elem()
		n := int64(list.Len())
		x.int(&n)
		if x.reads {
			// An element takes at least one byte, so a larger n is damage; it must not allocate.
			if n < 0 || n > int64(len(x.b)) {
				x.bad = true
				n = 0
			}
			list.SetLen(0)
			list.Grow(int(n))
			list.SetLen(int(n))
			list.Clear()
		}
		for i, first := 0, list.UnsafePointer(); i < int(n); i++ {
			elem(x, unsafe.Add(first, uintptr(i)*size))
		}
	}
}

// structOf returns the function for a struct: its fields in order. A trace.Opt is a flag, followed
// by the value only if it is known.
func structOf(t reflect.Type) field {
	type member struct {
		offset uintptr
		value  field
	}
	var list []member
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("packed") != "-" {
			list = append(list, member{f.Offset, fieldOf(f.Type)})
		}
	}
	if len(list) == 2 && t.Field(1).Name == "OK" {
		value, known := list[0].value, list[1].offset
		return func(x *pen, p unsafe.Pointer) {
			ok := (*bool)(unsafe.Add(p, known))
			x.flag(ok)
			if *ok {
				value(x, p)
			}
		}
	}
	return func(x *pen, p unsafe.Pointer) {
		for i := range list {
			list[i].value(x, unsafe.Add(p, list[i].offset))
		}
	}
}

// pointerOf returns the function for a pointer: whether it is set, and the value it points to.
func pointerOf(t reflect.Type) field {
	elem := fieldOf(t.Elem())
	return func(x *pen, p unsafe.Pointer) {
		to := (*unsafe.Pointer)(p)
		has := *to != nil
		x.flag(&has)
		if !has {
			return
		}
		if *to == nil {
			*to = reflect.New(t.Elem()).UnsafePointer()
		}
		elem(x, *to)
	}
}

// Interner returns the same string for equal bytes, so that repeated texts share memory. It forgets
// all strings when it has too many.
type Interner struct{ m map[string]string }

// NewInterner returns an empty Interner.
func NewInterner() *Interner { return &Interner{map[string]string{}} }

// Get returns the bytes as a string.
func (s *Interner) Get(b []byte) string {
	if v, ok := s.m[string(b)]; ok {
		return v
	}
	if len(s.m) >= 1<<16 {
		clear(s.m)
	}
	v := string(b)
	s.m[v] = v
	return v
}

// WriteJSON writes a value as one line of JSON, for ReadJSON.
func WriteJSON(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return Write(name, text)
}

// ReadJSON reads a file that WriteJSON wrote into v.
func ReadJSON(name string, v any) error {
	text, err := ReadAll(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
