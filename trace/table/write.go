package table

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
)

// RowGroupRows is how many rows are encoded together at most; rows of large
// structs make smaller groups, so that a writer holds about groupBytes twice.
const (
	RowGroupRows = 1 << 16
	groupBytes   = 5 << 20
)

// Format is a file format of tables.
type Format string

// The two formats of tables; the value is also the file name's extension.
const (
	Parquet Format = "parquet"
	Arrow   Format = "arrow"
)

// encoder turns row groups into one file format.
type encoder[T any] interface {
	group(rows []T) error
	close() error
}

// Writer streams rows of type T into one table file. The zero Writer is not
// usable; see Create. A Writer is used by one
// goroutine; it encodes a full row group beside its caller.
type Writer[T any] struct {
	dir, name string
	format    Format
	cols      []column
	buf       []T
	tmp       *os.File
	out       *bufio.Writer
	enc       encoder[T]
	rows      int64
	spare     []T        // the other buffer: one fills while one is encoded
	busy      chan error // result of the encoding under way; nil for none
}

// Create prepares the table name in dir. Nothing touches the disk before the
// first row group, and Close of a writer without rows leaves no file.
func Create[T any](dir, name string, format Format) (*Writer[T], error) {
	if format != Parquet && format != Arrow {
		return nil, fmt.Errorf("table %s: format: got %q, want parquet or arrow", name, format)
	}
	return &Writer[T]{dir: dir, name: name, format: format, cols: columnsOf(reflect.TypeFor[T]())}, nil
}

// Write writes rows as the table name in dir.
func Write[T any](dir, name string, format Format, rows []T) error {
	w, err := Create[T](dir, name, format)
	if err != nil {
		return err
	}
	if err := w.Append(rows...); err != nil {
		w.Abort()
		return err
	}
	return w.Close()
}

// groupRows is the size of a full row group.
func (w *Writer[T]) groupRows() int {
	var row T
	return min(RowGroupRows, max(1, groupBytes/int(unsafe.Sizeof(row))))
}

// Rows is how many rows were appended.
func (w *Writer[T]) Rows() int64 { return w.rows }

// Append adds rows; it copies them.
func (w *Writer[T]) Append(rows ...T) error {
	for len(rows) > 0 {
		n := min(len(rows), w.groupRows()-len(w.buf))
		w.room(n)
		w.buf = append(w.buf, rows[:n]...)
		w.rows += int64(n)
		rows = rows[n:]
		if len(w.buf) == w.groupRows() {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// room grows the buffer for n more rows: a small table stays small, a large one
// gets its whole group at once.
func (w *Writer[T]) room(n int) {
	const small = 1 << 10
	need := len(w.buf) + n
	switch {
	case need <= cap(w.buf):
	case need <= small:
		w.buf = slices.Grow(w.buf, n)
	default:
		w.buf = append(make([]T, 0, w.groupRows()), w.buf...)
	}
}

// flush encodes the buffered rows as one row group.
func (w *Writer[T]) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if w.enc == nil {
		if err := w.open(); err != nil {
			return err
		}
	}
	if err := w.wait(); err != nil {
		return err
	}
	full := w.buf
	w.buf, w.spare = w.spare[:0], nil
	w.busy = make(chan error, 1)
	go func(done chan error) {
		err := w.enc.group(full)
		clear(full)
		done <- err
	}(w.busy)
	w.spare = full
	return nil
}

// wait ends the encoding under way.
func (w *Writer[T]) wait() error {
	if w.busy == nil {
		return nil
	}
	err := <-w.busy
	w.busy = nil
	if err != nil {
		return fmt.Errorf("write table %s: %w", w.name, err)
	}
	return nil
}

func (w *Writer[T]) open() error {
	if registered != nil {
		return registered
	}
	if err := os.MkdirAll(w.dir, 0o777); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(w.dir, "."+w.name+"-*.tmp")
	if err != nil {
		return err
	}
	w.tmp, w.out = tmp, bufio.NewWriterSize(tmp, 1<<18)
	if w.format == Arrow {
		w.enc, err = newArrowEncoder[T](w.name, w.out, w.cols)
		return err
	}
	w.enc = newParquetEncoder[T](w.name, w.out, w.cols)
	return nil
}

// Close encodes what is left and gives the file its final name.
func (w *Writer[T]) Close() error {
	if err := w.finish(); err != nil {
		w.Abort()
		return err
	}
	return nil
}

func (w *Writer[T]) finish() error {
	if err := errors.Join(w.flush(), w.wait()); err != nil {
		return err
	}
	if w.enc == nil {
		return nil
	}
	if err := w.enc.close(); err != nil {
		return fmt.Errorf("write table %s: %w", w.name, err)
	}
	if err := errors.Join(w.out.Flush(), w.tmp.Chmod(0o644), w.tmp.Close()); err != nil {
		return err
	}
	err := os.Rename(w.tmp.Name(), filepath.Join(w.dir, w.name+"."+string(w.format)))
	if err == nil {
		w.tmp = nil
	}
	return err
}

// Abort throws the file away. It is safe after Close.
func (w *Writer[T]) Abort() {
	w.wait()
	if w.tmp != nil {
		w.tmp.Close()
		os.Remove(w.tmp.Name())
		w.tmp = nil
	}
}

// parquetEncoder writes Parquet without going through Arrow arrays: columns
// are gathered from the row structs straight into the column writers.
type parquetEncoder[T any] struct {
	w          *file.Writer
	cols       []column
	ints       []int64
	floats     []float64
	bools      []bool
	strs       []string
	bytes      []parquet.ByteArray
	defs, reps []int16
	intDict    intDict
	strDict    strDict
}

// maxDictionary is more than a row group can fill. A column that gave up its
// dictionary halfway would have pages of two encodings, which the library
// lists in the footer in the order of a map, another one each time.
const maxDictionary = 1 << 30

func newParquetEncoder[T any](name string, out io.Writer, cols []column) *parquetEncoder[T] {
	opts := []parquet.WriterProperty{
		parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1),
		parquet.WithVersion(parquet.V2_LATEST), parquet.WithDataPageSize(pageBytes), parquet.WithBatchSize(RowGroupRows),
		parquet.WithCreatedBy("blis-train"), parquet.WithDictionaryPageSizeLimit(maxDictionary),
	}
	for _, c := range cols {
		if !c.repeats() {
			opts = append(opts, parquet.WithDictionaryFor(c.path(), false))
		}
	}
	meta := metadata.NewKeyValueMetadata()
	sc := arrowSchema(name, cols)
	for i, k := range sc.Metadata().Keys() {
		meta.Append(k, sc.Metadata().Values()[i])
	}
	var buf bytes.Buffer
	iw := ipc.NewWriter(&buf, ipc.WithSchema(sc))
	iw.Close()
	meta.Append(metaArrow, base64.StdEncoding.EncodeToString(buf.Bytes()))
	w := file.NewParquetWriter(out, parquetSchema(cols), file.WithWriterProps(parquet.NewWriterProperties(opts...)), file.WithWriteMetadata(meta))
	return &parquetEncoder[T]{w: w, cols: cols}
}

// repeats says that a column is worth a dictionary.
func (c *column) repeats() bool { return c.kind != kindFloat64 && c.Unit != "ns" }

// path is the column's Parquet path.
func (c *column) path() string {
	if c.list {
		return c.Name + ".list.element"
	}
	return c.Name
}

func (e *parquetEncoder[T]) close() error { return e.w.Close() }

func (e *parquetEncoder[T]) group(rows []T) error {
	rg := e.w.AppendRowGroup()
	for i := range e.cols {
		cw, err := rg.NextColumn()
		if err != nil {
			return err
		}
		if err := e.column(&e.cols[i], cw, rows); err != nil {
			return fmt.Errorf("column %s: %w", e.cols[i].Name, err)
		}
		if err := cw.Close(); err != nil {
			return err
		}
	}
	return rg.Close()
}

func (e *parquetEncoder[T]) column(c *column, cw file.ColumnChunkWriter, rows []T) (err error) {
	var reps []int16
	switch w := cw.(type) {
	case *file.Int64ColumnChunkWriter:
		if !c.Nullable && c.repeats() {
			return e.intColumn(c, w, rows)
		}
		e.ints, e.defs = gather(c, rows, e.ints, e.defs)
		_, err = w.WriteBatch(e.ints, e.levels(c), nil)
	case *file.Float64ColumnChunkWriter:
		if c.list {
			e.floats, e.defs, e.reps = gatherList(c, rows, e.floats, e.defs, e.reps)
			reps = e.reps
		} else {
			e.floats, e.defs = gather(c, rows, e.floats, e.defs)
		}
		_, err = w.WriteBatch(e.floats, e.levels(c), reps)
	case *file.BooleanColumnChunkWriter:
		e.bools, e.defs = gather(c, rows, e.bools, e.defs)
		_, err = w.WriteBatch(e.bools, e.levels(c), nil)
	case *file.ByteArrayColumnChunkWriter:
		if !c.Nullable && !c.list {
			return e.strColumn(c, w, rows)
		}
		if c.list {
			e.strs, e.defs, e.reps = gatherList(c, rows, e.strs, e.defs, e.reps)
			reps = e.reps
		} else {
			e.strs, e.defs = gather(c, rows, e.strs, e.defs)
		}
		_, err = w.WriteBatch(e.byteArrays(e.strs), e.levels(c), reps)
	default:
		err = fmt.Errorf("unexpected column writer %T", cw)
	}
	return err
}

// intColumn writes a required column of integers that repeat.
func (e *parquetEncoder[T]) intColumn(c *column, w *file.Int64ColumnChunkWriter, rows []T) error {
	d := &e.intDict
	d.reset(len(rows))
	for i := range rows {
		d.add(*at[int64](unsafe.Pointer(&rows[i]), c.offset))
	}
	w.PageStatistics().(*metadata.Int64Statistics).Update(d.uniq, 0)
	return writeDict(w, d.arrow(), d.idx)
}

// strColumn writes a required column of strings.
func (e *parquetEncoder[T]) strColumn(c *column, w *file.ByteArrayColumnChunkWriter, rows []T) error {
	d := &e.strDict
	d.reset()
	for i := range rows {
		d.add(*at[string](unsafe.Pointer(&rows[i]), c.offset))
	}
	w.PageStatistics().(*metadata.ByteArrayStatistics).Update(e.byteArrays(d.uniq), 0)
	return writeDict(w, d.arrow(), d.idx)
}

// byteArrays views strings as the library's byte arrays.
func (e *parquetEncoder[T]) byteArrays(list []string) []parquet.ByteArray {
	e.bytes = e.bytes[:0]
	for _, s := range list {
		e.bytes = append(e.bytes, unsafe.Slice(unsafe.StringData(s), len(s)))
	}
	return e.bytes
}

// levels are the definition levels WriteBatch wants: none for required columns.
func (e *parquetEncoder[T]) levels(c *column) []int16 {
	if c.Nullable || c.list {
		return e.defs
	}
	return nil
}
