package table

// This file checks an Arrow file before the library reads it.

import (
	"encoding/binary"
	"errors"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"
)

// checkFooter checks the schema of an Arrow IPC file of size bytes before the library reads it,
// because the library allocates memory for as many fields and metadata pairs as the file claims.
// The file ends with its footer, the length of the footer and a magic word. The footer is a
// FlatBuffer whose field numbers are those of Arrow's Schema.fbs and File.fbs.
func checkFooter(f io.ReaderAt, size int64) error {
	const magic = "ARROW1"
	tail := make([]byte, 4+len(magic))
	if size < int64(len(tail)) {
		return errors.New("no Arrow file")
	}
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil || string(tail[4:]) != magic {
		return errors.New("no Arrow file")
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > size-int64(len(tail)) {
		return errors.New("its footer is longer than the file")
	}
	b := make([]byte, n)
	left := maxFields
	if _, err := f.ReadAt(b, size-int64(len(tail))-n); err != nil {
		return err
	}
	footer := flat{flatbuffers.Table{Bytes: b, Pos: flatbuffers.GetUOffsetT(b)}}
	// Bounds of the lists of blocks, then the fields and metadata of the schema, at most left in all.
	footer.vector(2, 24) // dictionaries
	footer.vector(3, 24) // records
	if at := footer.field(1); at > 0 {
		footer.table(at).fields(1, 2, &left)
	}
	return nil
}

// maxFields is more than the columns of any table, nested ones included.
const maxFields = 10_000

// flat is a table of a FlatBuffer. Access outside of its bytes panics, of which Cursor.guard makes an
// error.
type flat struct{ flatbuffers.Table }

// field returns the position of field k of the table in the buffer; 0 if the table does not have
// the field.
func (t flat) field(k int) flatbuffers.UOffsetT {
	if off := t.Offset(flatbuffers.VOffsetT(4 + 2*k)); off > 0 {
		return t.Pos + flatbuffers.UOffsetT(off)
	}
	return 0
}

// table returns the table to which the offset at the position at refers.
func (t flat) table(at flatbuffers.UOffsetT) flat {
	return flat{flatbuffers.Table{Bytes: t.Bytes, Pos: t.Indirect(at)}}
}

// vector returns the position of the first element of the list in field k and the number of
// elements, which have so many bytes each. It panics if the list is longer than the rest of the
// buffer.
func (t flat) vector(k, bytes int) (first flatbuffers.UOffsetT, n int) {
	at := t.field(k)
	if at == 0 {
		return 0, 0
	}
	if first, n = t.Vector(at-t.Pos), t.VectorLen(at-t.Pos); n > (len(t.Bytes)-int(first))/bytes {
		panic("its footer is broken")
	}
	return first, n
}

// fields checks the list of schema fields in field k of the table, the fields nested in them, and
// the metadata in field pairs. It panics at types for which the library reads counts. left is the
// number of schema fields that may still follow.
func (t flat) fields(k, pairs int, left *int) {
	t.vector(pairs, 4)
	first, n := t.vector(k, 4)
	for i := range n {
		field := t.table(first + flatbuffers.UOffsetT(4*i))
		if at := field.field(2); at > 0 && !plainArrow(t.Bytes[at]) {
			panic("its footer is broken")
		}
		*left--
		if *left < 0 {
			panic("its footer claims too many columns")
		}
		field.fields(5, 6, left)
	}
}

// plainArrow reports whether a type of Schema.fbs is not a union, a run-end encoding or a view.
func plainArrow(id byte) bool { return id <= 13 || id >= 15 && id <= 21 }
