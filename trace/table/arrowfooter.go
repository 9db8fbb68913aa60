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
	// Field numbers count from 0 in the order of the tables Footer and Schema.
	const (
		footerSchema       = 1
		footerDictionaries = 2
		footerRecords      = 3
		schemaFields       = 1
		schemaMetadata     = 2

		blockBytes = 24 // of the struct Block: where a record batch is in the file
	)
	footer.vector(footerDictionaries, blockBytes)
	footer.vector(footerRecords, blockBytes)
	if at := footer.field(footerSchema); at > 0 {
		footer.table(at).fields(schemaFields, schemaMetadata, &left)
	}
	return nil
}

// maxFields is more than the columns of any table, nested ones included.
const maxFields = 10_000

// flat is a table of a FlatBuffer. Access outside of its bytes panics, of which Cursor.guard makes an
// error.
type flat struct{ flatbuffers.Table }

// field returns the position of field k of the table in the buffer; 0 if the table does not have
// the field. The places of fields are 2 bytes each, after 4 bytes of sizes.
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
// elements, which have size bytes each. It panics if the list is longer than the rest of the
// buffer.
func (t flat) vector(k, size int) (first flatbuffers.UOffsetT, n int) {
	at := t.field(k)
	if at == 0 {
		return 0, 0
	}
	first = t.Vector(at - t.Pos)
	n = t.VectorLen(at - t.Pos)
	if n > (len(t.Bytes)-int(first))/size {
		panic("its footer is broken")
	}
	return first, n
}

// fields checks the list of columns in field k of the table, which is a schema or a column, the columns
// nested in them, and the metadata in field pairs. It panics at types for which the library reads
// counts. left is the number of columns that may still follow, nested ones included.
func (t flat) fields(k, pairs int, left *int) {
	// Numbers of the fields of the table Field.
	const (
		fieldType     = 2 // which type of the union Type, one byte
		fieldChildren = 5
		fieldMetadata = 6

		offsetBytes = 4 // of the place of a table in a list
	)
	t.vector(pairs, offsetBytes)
	first, n := t.vector(k, offsetBytes)
	for i := range n {
		column := t.table(first + flatbuffers.UOffsetT(offsetBytes*i))
		if at := column.field(fieldType); at > 0 && !plainArrow(t.Bytes[at]) {
			panic("its footer is broken")
		}
		*left--
		if *left < 0 {
			panic("its footer claims too many columns")
		}
		column.fields(fieldChildren, fieldMetadata, left)
	}
}

// plainArrow reports whether a type of Schema.fbs is not a union (14), a run-end encoding (22) or a
// view (above). 0 is none.
func plainArrow(id byte) bool { return id <= 13 || id >= 15 && id <= 21 }
