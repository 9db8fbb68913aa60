package table

// This file writes tables as Arrow files.

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
)

// arrowEncoder writes a table as an Arrow IPC file, uncompressed, so that readers can map it into
// memory. Each row group becomes one record batch.
type arrowEncoder[T any] struct {
	w      *ipc.FileWriter
	schema *arrow.Schema
	cols   []column
}

// newArrowEncoder returns an encoder of the table name, whose rows have the type T and the columns
// cols.
func newArrowEncoder[T any](name string, out io.Writer, cols []column) (*arrowEncoder[T], error) {
	sc := arrowSchema(name, cols)
	w, err := ipc.NewFileWriter(&countingSeeker{w: out}, ipc.WithSchema(sc))
	return &arrowEncoder[T]{w: w, schema: sc, cols: cols}, err
}

// countingSeeker counts the bytes written to a stream. ipc.FileWriter asks for the position by
// Seek.
type countingSeeker struct {
	w io.Writer
	n int64
}

// Write writes b to the stream.
func (s *countingSeeker) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.n += int64(n)
	return n, err
}

// Tell returns the position in bytes. A writer of Parquet pages asks for it.
func (s *countingSeeker) Tell() int64 { return s.n }

// Seek returns the position in bytes if it is asked for the current one, and an error otherwise.
func (s *countingSeeker) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, fmt.Errorf("table: cannot seek in a stream")
	}
	return s.n, nil
}

// close writes the footer of the file.
func (e *arrowEncoder[T]) close() error { return e.w.Close() }

// group writes rows as one record batch.
func (e *arrowEncoder[T]) group(rows []T) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, e.schema)
	defer b.Release()
	for i := range e.cols {
		appendColumn(&e.cols[i], b.Field(i), rows)
	}
	rec := b.NewRecord()
	defer rec.Release()
	return e.w.Write(rec)
}

// appendColumn appends the values of one column of rows to the Arrow array under construction in b.
func appendColumn[T any](c *column, b array.Builder, rows []T) {
	for i := range rows {
		p := unsafe.Pointer(&rows[i])
		if !c.isKnown(p) {
			b.AppendNull()
			continue
		}
		switch b := b.(type) {
		case *array.Int64Builder:
			if c.inFourBytes {
				b.Append(int64(*at[int32](p, c.offset)))
			} else {
				b.Append(*at[int64](p, c.offset))
			}
		case *array.Float64Builder:
			b.Append(*at[float64](p, c.offset))
		case *array.BooleanBuilder:
			b.Append(*at[bool](p, c.offset))
		case *array.StringBuilder:
			b.Append(*at[string](p, c.offset))
		case *array.ListBuilder:
			appendList(c, b, p)
		}
	}
}

// appendList appends the list of a column in the row at p.
func appendList(c *column, b *array.ListBuilder, p unsafe.Pointer) {
	b.Append(true)
	if v, ok := b.ValueBuilder().(*array.Float64Builder); ok {
		v.AppendValues(*at[[]float64](p, c.offset), nil)
		return
	}
	v := b.ValueBuilder().(*array.StringBuilder)
	for _, s := range *at[[]string](p, c.offset) {
		v.Append(s)
	}
}

// arrowRows reads the rows of an Arrow IPC file, one record batch after another.
type arrowRows[T any] struct {
	rd     *ipc.FileReader
	cols   []column
	fields []int        // of each of cols, its place among the columns of the file
	record int          // place of the next record batch in the file
	rec    arrow.Record // the current record batch; nil before the first
	done   int          // rows of rec that were read
}

// openArrow reads the footer of an Arrow IPC file of size bytes and finds each of cols in it. It
// returns an error if the file is damaged, has another schema version, or a column is missing or
// has another type.
func openArrow[T any](f io.ReaderAt, size int64, cols []column) (rows[T], error) {
	if err := checkFooter(f, size); err != nil {
		return nil, damaged(err)
	}
	bounded := boundedMemory{Allocator: memory.DefaultAllocator, most: int(size) + maxPage}
	rd, err := ipc.NewFileReader(io.NewSectionReader(f, 0, size), ipc.WithAllocator(bounded))
	if err != nil {
		return nil, damaged(err)
	}
	version, _ := rd.Schema().Metadata().GetValue(metaVersion)
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	d := &arrowRows[T]{rd: rd, cols: cols}
	for i := range cols {
		places := rd.Schema().FieldIndices(cols[i].Name)
		switch {
		case len(places) == 0:
			return nil, columnError(&cols[i], errMissing)
		case len(places) > 1:
			return nil, columnError(&cols[i], errRepeated)
		}
		if t := rd.Schema().Field(places[0]).Type; !holdsArrow(&cols[i], t) {
			return nil, columnError(&cols[i], fmt.Errorf("got %s, want %s", t, cols[i].Type))
		}
		d.fields = append(d.fields, places[0])
	}
	return d, nil
}

// boundedMemory is an allocator that panics for a size above most bytes, which only a damaged
// length can have. Cursor.guard makes an error of the panic.
type boundedMemory struct {
	memory.Allocator
	most int
}

// Allocate returns size bytes.
func (m boundedMemory) Allocate(size int) []byte {
	m.checkSize(size)
	return m.Allocator.Allocate(size)
}

// Reallocate returns b with size bytes.
func (m boundedMemory) Reallocate(size int, b []byte) []byte {
	m.checkSize(size)
	return m.Allocator.Reallocate(size, b)
}

// checkSize panics for a negative size and for one above the limit.
func (m boundedMemory) checkSize(size int) {
	if size < 0 || size > m.most {
		panic(fmt.Errorf("a buffer claims %d bytes", size))
	}
}

// holdsArrow reports whether an Arrow array of type t can have the values of column c.
func holdsArrow(c *column, t arrow.DataType) bool {
	if l, ok := t.(arrow.ListLikeType); ok {
		if id := t.ID(); !c.list || id != arrow.LIST && id != arrow.LARGE_LIST {
			return false
		}
		t = l.Elem()
	} else if c.list {
		return false
	}
	switch c.kind {
	case kindInt64:
		return arrow.IsInteger(t.ID())
	case kindFloat64:
		return t.ID() == arrow.FLOAT64
	case kindBool:
		return t.ID() == arrow.BOOL
	}
	return t.ID() == arrow.STRING || t.ID() == arrow.LARGE_STRING
}

// rowCount returns 0, for unknown: the footer of Arrow IPC does not have the number of rows.
func (d *arrowRows[T]) rowCount() int { return 0 }

// next fills rows and returns how many it filled; 0 at the end of the file.
func (d *arrowRows[T]) next(rows []T) (int, error) {
	for d.rec == nil || d.done == int(d.rec.NumRows()) {
		if d.record == d.rd.NumRecords() {
			return 0, nil
		}
		rec, err := d.rd.Record(d.record)
		if err != nil {
			return 0, damaged(err)
		}
		d.rec = rec
		d.done = 0
		d.record++
	}
	n := min(len(rows), int(d.rec.NumRows())-d.done)
	for i := range d.cols {
		if err := loadColumn(&d.cols[i], d.rec.Column(d.fields[i]), d.done, rows[:n]); err != nil {
			return 0, columnError(&d.cols[i], err)
		}
	}
	d.done += n
	return n, nil
}

// loadColumn copies values of column c from the Arrow array a, from its element row on, into the
// field of the column in rows.
func loadColumn[T any](c *column, a arrow.Array, row int, rows []T) error {
	if c.inFourBytes {
		value, err := integers(a)
		if err != nil {
			return err
		}
		return loadEach(c, a, row, rows, func(i int) int32 { return fourBytes(value(i)) })
	}
	switch v := a.(type) {
	case *array.Int64:
		return loadValues(c, a, row, rows, v.Int64Values())
	case *array.Float64:
		return loadValues(c, a, row, rows, v.Float64Values())
	case *array.Boolean:
		return loadEach(c, a, row, rows, v.Value)
	case *array.String:
		return loadEach(c, a, row, rows, func(i int) string { return strings.Clone(v.Value(i)) })
	case *array.LargeString:
		return loadEach(c, a, row, rows, func(i int) string { return strings.Clone(v.Value(i)) })
	case array.ListLike:
		return loadLists(c, v, row, rows)
	}
	value, err := integers(a)
	if err != nil {
		return err
	}
	return loadEach(c, a, row, rows, value)
}

// loadValues copies values as loadColumn does, from an array of which the library gives the slice
// `values`.
func loadValues[T, V any](c *column, a arrow.Array, row int, rows []T, values []V) error {
	if a.NullN() > 0 {
		return loadEach(c, a, row, rows, func(i int) V { return values[i] })
	}
	scatter(c, placed(rows), columnPart{}, values[row:row+len(rows)])
	return nil
}

// integers returns a function that returns element i of an array of integers of any width. It
// returns an error if a value is above the largest int64.
func integers(a arrow.Array) (func(i int) int64, error) {
	switch v := a.(type) {
	case *array.Int64:
		return v.Value, nil
	case *array.Int8:
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	case *array.Int16:
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	case *array.Int32:
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	case *array.Uint8:
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	case *array.Uint16:
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	case *array.Uint32:
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	case *array.Uint64:
		for i := range v.Len() {
			if v.IsValid(i) && v.Value(i) > math.MaxInt64 {
				return nil, fmt.Errorf("got %d, want at most %d", v.Value(i), int64(math.MaxInt64))
			}
		}
		return func(i int) int64 { return int64(v.Value(i)) }, nil
	}
	return nil, fmt.Errorf("unexpected array %T", a)
}

// loadEach copies the values from the array element by element; value returns element i. Rows are
// zero before, so a null needs no more than that.
func loadEach[T, V any](c *column, a arrow.Array, row int, rows []T, value func(i int) V) error {
	for i := range rows {
		p := unsafe.Pointer(&rows[i])
		switch isNull := a.IsNull(row + i); {
		case isNull && c.Nullable:
			continue
		case isNull:
			return errNull
		case c.Nullable:
			*at[bool](p, c.known) = true
		}
		*at[V](p, c.offset) = value(row + i)
	}
	return nil
}

// loadLists copies the lists of a list column. A null list becomes an empty one.
func loadLists[T any](c *column, a array.ListLike, row int, rows []T) error {
	all := a.ListValues()
	for i := range rows {
		if a.IsNull(row + i) {
			continue
		}
		from, to := a.ValueOffsets(row + i)
		for k := int(from); k < int(to); k++ {
			if all.IsNull(k) {
				return errNullInList
			}
			p := unsafe.Pointer(&rows[i])
			switch v := all.(type) {
			case *array.Float64:
				list := at[[]float64](p, c.offset)
				*list = append(*list, v.Value(k))
			case array.StringLike:
				list := at[[]string](p, c.offset)
				*list = append(*list, strings.Clone(v.Value(k)))
			}
		}
	}
	return nil
}
