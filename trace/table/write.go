package table

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/klauspost/compress/zstd"
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
		w.grow(n)
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

// grow grows the buffer for n more rows: a small table stays small, a large one
// gets its whole group at once.
func (w *Writer[T]) grow(n int) {
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
	if err == nil { // what remains are the counts
		w.tmp, w.out, w.enc, w.buf, w.spare = nil, nil, nil, nil, nil
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
	w       *file.Writer
	cols    []column
	ints    []int64
	floats  []float64
	bools   []bool
	strs    []string
	bytes   []parquet.ByteArray
	lv      levels
	intDict intDict
	strDict strDict
}

// RowGroupRows is how many rows are encoded together at most; rows of large
// structs make smaller groups, so that a writer holds about groupBytes twice.
const (
	RowGroupRows = 1 << 16
	groupBytes   = 5 << 20
)

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
	ipc.NewWriter(&buf, ipc.WithSchema(sc)).Close()
	meta.Append(metaArrow, base64.StdEncoding.EncodeToString(buf.Bytes()))
	w := file.NewParquetWriter(out, parquetSchema(cols), file.WithWriterProps(parquet.NewWriterProperties(opts...)),
		file.WithWriteMetadata(meta))
	return &parquetEncoder[T]{w: w, cols: cols}
}

// repeats says that a column is worth a dictionary.
func (c *column) repeats() bool { return c.kind != kindFloat64 && c.Unit != "ns" && c.Unit != "us" }

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
	switch w := cw.(type) {
	case *file.Int64ColumnChunkWriter:
		if !c.Nullable && c.repeats() {
			return e.intColumn(c, w, rows)
		}
		e.ints, e.lv = gather(c, rows, e.ints, e.lv)
		_, err = w.WriteBatch(e.ints, some(e.lv.defs), some(e.lv.reps))
	case *file.Float64ColumnChunkWriter:
		e.floats, e.lv = gather(c, rows, e.floats, e.lv)
		_, err = w.WriteBatch(e.floats, some(e.lv.defs), some(e.lv.reps))
	case *file.BooleanColumnChunkWriter:
		e.bools, e.lv = gather(c, rows, e.bools, e.lv)
		_, err = w.WriteBatch(e.bools, some(e.lv.defs), some(e.lv.reps))
	case *file.ByteArrayColumnChunkWriter:
		if !c.Nullable && !c.list {
			return e.strColumn(c, w, rows)
		}
		e.strs, e.lv = gather(c, rows, e.strs, e.lv)
		_, err = w.WriteBatch(e.byteArrays(e.strs), some(e.lv.defs), some(e.lv.reps))
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

// The Parquet library builds dictionaries one boxed value at a time. Row
// groups are whole here, so their dictionaries are made first, in order of
// appearance, and the library is handed the dictionary and the indices.

// dict numbers the distinct values of one column of a row group.
type dict[V comparable] struct {
	uniq []V
	idx  []int32 // of each row, in uniq
}

// intDict is a dict of integers: open addressing, emptied by a new generation.
type intDict struct {
	dict[int64]
	slots []intSlot
	gen   uint32
	shift int
}

type intSlot struct {
	key int64
	idx int32
	gen uint32
}

// reset prepares for n rows.
func (d *intDict) reset(n int) {
	d.uniq, d.idx = d.uniq[:0], d.idx[:0]
	d.gen++
	if size := 2 << bits.Len(uint(n)); size > len(d.slots) || d.gen == 0 {
		d.slots, d.gen = make([]intSlot, size), 1
		d.shift = 64 - bits.TrailingZeros(uint(size))
	}
}

func (d *intDict) add(v int64) {
	const golden = 0x9e3779b97f4a7c15 // Fibonacci hashing (Knuth, vol. 3, 6.4)
	for at := uint64(v) * golden >> d.shift; ; at = (at + 1) & uint64(len(d.slots)-1) {
		s := &d.slots[at]
		if s.gen != d.gen {
			*s = intSlot{v, int32(len(d.uniq)), d.gen}
			d.uniq = append(d.uniq, v)
		} else if s.key != v {
			continue
		}
		d.idx = append(d.idx, s.idx)
		return
	}
}

// strDict is a dict of strings. Equal strings mostly share their bytes, so a
// small cache by address comes before the map.
type strDict struct {
	dict[string]
	index map[string]int32
	cache [1 << 10]strSlot
}

type strSlot struct {
	at  *byte
	n   int
	idx int32
}

func (d *strDict) reset() {
	d.uniq, d.idx = d.uniq[:0], d.idx[:0]
	if d.index == nil {
		d.index = map[string]int32{}
	}
	clear(d.index)
	clear(d.cache[:])
}

func (d *strDict) add(s string) {
	at := unsafe.StringData(s)
	slot := &d.cache[uintptr(unsafe.Pointer(at))>>4%uintptr(len(d.cache))]
	if slot.at != at || slot.n != len(s) || at == nil {
		i, ok := d.index[s]
		if !ok {
			i = int32(len(d.uniq))
			d.index[s] = i
			d.uniq = append(d.uniq, s)
		}
		*slot = strSlot{at, len(s), i}
	}
	d.idx = append(d.idx, slot.idx)
}

// dictColumn is a column writer that takes a dictionary and indices.
type dictColumn interface {
	file.ColumnChunkWriter
	WriteDictIndices(indices arrow.Array, defLevels, repLevels []int16) error
}

// writeDict writes a column of required values: its dictionary, then indices.
func writeDict(w dictColumn, values arrow.Array, idx []int32) error {
	defer values.Release()
	enc := w.CurrentEncoder().(interface{ PutDictionary(arrow.Array) error })
	if err := enc.PutDictionary(values); err != nil {
		return err
	}
	indices := array.NewInt32Data(arrayData(arrow.PrimitiveTypes.Int32, len(idx), arrow.Int32Traits.CastToBytes(idx)))
	defer indices.Release()
	return w.WriteDictIndices(indices, nil, nil)
}

func arrayData(t arrow.DataType, n int, b []byte) arrow.ArrayData {
	return array.NewData(t, n, []*memory.Buffer{nil, memory.NewBufferBytes(b)}, nil, 0, 0)
}

// arrow is the distinct values as an array.
func (d *intDict) arrow() arrow.Array {
	return array.NewInt64Data(arrayData(arrow.PrimitiveTypes.Int64, len(d.uniq), arrow.Int64Traits.CastToBytes(d.uniq)))
}

func (d *strDict) arrow() arrow.Array {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(d.uniq, nil)
	return b.NewArray()
}

// The Parquet library makes a new zstd encoder for every page when a level is
// asked for, which costs more than the compression. One encoder serves all
// pages; it is safe for concurrent use.
type sharedZstd struct {
	compress.Codec // for streams and bounds
	enc            *zstd.Encoder
}

func (c sharedZstd) Encode(dst, src []byte) []byte { return c.enc.EncodeAll(src, dst[:0]) }

func (c sharedZstd) EncodeLevel(dst, src []byte, _ int) []byte { return c.Encode(dst, src) }

// pageBytes is the usual size of a data page; an encoder keeps twice as much
// history.
const pageBytes = 1 << 18

// registered is made when the package is loaded, before any file is opened.
var registered = registerZstd()

func registerZstd() error {
	base, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		return err
	}
	enc, err := zstd.NewWriter(io.Discard, zstd.WithZeroFrames(true), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(4), zstd.WithWindowSize(pageBytes), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return err
	}
	compress.RegisterCodec(compress.Codecs.Zstd, sharedZstd{base, enc})
	return nil
}
