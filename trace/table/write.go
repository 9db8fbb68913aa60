package table

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
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
	"github.com/apache/arrow/go/v17/arrow/bitutil"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet"
	"github.com/apache/arrow/go/v17/parquet/compress"
	"github.com/apache/arrow/go/v17/parquet/file"
	"github.com/apache/arrow/go/v17/parquet/metadata"
	"github.com/apache/arrow/go/v17/parquet/schema"
	"github.com/klauspost/compress/zstd"

	"github.com/blis-train/blis-train/internal/stat"
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
	w.enc, err = newParquetEncoder[T](w.name, w.out, w.cols)
	return err
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
		w.tmp = nil
		w.out = nil
		w.enc = nil
		w.buf = nil
		w.spare = nil
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

// parquetEncoder writes Parquet: columns are gathered from the row structs straight into pages. The library's column
// writers box every value of a dictionary and make new buffers for every page; it writes headers and the footer here.
type parquetEncoder[T any] struct {
	pager
	out     *countingSeeker
	meta    *metadata.FileMetaDataBuilder
	groups  int16
	cols    []column
	ints    []int64
	floats  []float64
	bools   []bool
	strs    []string
	lv      levels
	intDict intDict
	strDict strDict
}

// pager writes pages, one at a time.
type pager struct {
	file.PageWriter
	raw    []byte
	packed bytes.Buffer
}

// RowGroupRows is how many rows are encoded together at most; rows of large
// structs make smaller groups, so that a writer holds about groupBytes twice.
const (
	RowGroupRows = 1 << 16
	groupBytes   = 5 << 20
)

var magic = []byte("PAR1")

func newParquetEncoder[T any](name string, out io.Writer, cols []column) (*parquetEncoder[T], error) {
	keys := metadata.NewKeyValueMetadata()
	sc := arrowSchema(name, cols)
	for i, k := range sc.Metadata().Keys() {
		keys.Append(k, sc.Metadata().Values()[i])
	}
	var buf bytes.Buffer
	ipc.NewWriter(&buf, ipc.WithSchema(sc)).Close()
	keys.Append(metaArrow, base64.StdEncoding.EncodeToString(buf.Bytes()))
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithCreatedBy("blis-train"))
	e := &parquetEncoder[T]{out: &countingSeeker{w: out}, cols: cols,
		meta: metadata.NewFileMetadataBuilder(schema.NewSchema(parquetSchema(cols)), props, keys)}
	var err error
	e.PageWriter, err = file.NewPageWriter(e.out, compress.Codecs.Zstd, 1, nil, 0, 0, memory.DefaultAllocator, false, nil, nil)
	if err == nil {
		_, err = e.out.Write(magic)
	}
	return e, err
}

// repeats says that a column is worth a dictionary.
func (c *column) repeats() bool { return c.kind != kindFloat64 && c.Unit != "ns" && c.Unit != "us" }

func (e *parquetEncoder[T]) close() error {
	meta, err := e.meta.Finish()
	if err != nil {
		return err
	}
	n, err := meta.WriteTo(e.out, nil)
	if err == nil {
		_, err = e.out.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(n)), magic...))
	}
	return err
}

func (e *parquetEncoder[T]) group(rows []T) error {
	rg, written := e.meta.AppendRowGroup(), int64(0)
	for i := range e.cols {
		meta := rg.NextColumnChunk()
		if err := e.Reset(e.out, compress.Codecs.Zstd, 1, meta, e.groups, int16(i), nil, nil); err != nil {
			return err
		}
		n, err := e.column(&e.cols[i], meta, rows)
		if err != nil {
			return fmt.Errorf("column %s: %w", e.cols[i].Name, err)
		}
		written += n
	}
	rg.SetNumRows(len(rows))
	e.groups++
	return rg.Finish(written, e.groups-1)
}

// column writes one column of a row group and returns its bytes.
func (e *parquetEncoder[T]) column(c *column, meta *metadata.ColumnChunkMetaDataBuilder, rows []T) (int64, error) {
	descr := meta.Descr()
	mem := memory.DefaultAllocator
	switch c.kind {
	case kindInt64:
		e.ints, e.lv = gather(c, rows, e.ints, e.lv)
		distinct := e.intDict.of
		if !c.repeats() {
			distinct = nil
		}
		return writeChunk(&e.pager, meta, e.lv, e.ints, metadata.NewInt64Statistics(descr, mem), distinct,
			func(b []byte, v []int64) []byte { return append(b, arrow.Int64Traits.CastToBytes(v)...) })
	case kindFloat64:
		e.floats, e.lv = gather(c, rows, e.floats, e.lv)
		return writeChunk(&e.pager, meta, e.lv, e.floats, metadata.NewFloat64Statistics(descr, mem), nil,
			func(b []byte, v []float64) []byte { return append(b, arrow.Float64Traits.CastToBytes(v)...) })
	case kindBool:
		e.bools, e.lv = gather(c, rows, e.bools, e.lv)
		return writeChunk(&e.pager, meta, e.lv, e.bools, metadata.NewBooleanStatistics(descr, mem), nil, appendBools)
	}
	e.strs, e.lv = gather(c, rows, e.strs, e.lv)
	return writeChunk(&e.pager, meta, e.lv, e.strs, textStatistics{metadata.NewByteArrayStatistics(descr, mem)}, e.strDict.of, appendTexts)
}

// statistics are the library's, of values as they are gathered.
type statistics[V any] interface {
	Update(list []V, unknown int64)
	Encode() (metadata.EncodedStatistics, error)
}

// textStatistics are those of strings.
type textStatistics struct{ *metadata.ByteArrayStatistics }

func (s textStatistics) Update(list []string, unknown int64) {
	view := func(s string) parquet.ByteArray { return unsafe.Slice(unsafe.StringData(s), len(s)) }
	s.ByteArrayStatistics.Update(stat.Map(list, view), unknown)
}

// writeChunk writes the known values of one column of a row group, in the coding that plain appends or, where distinct gives
// places, as a dictionary and those, and returns its bytes.
func writeChunk[V any](p *pager, meta *metadata.ColumnChunkMetaDataBuilder, lv levels, list []V, stats statistics[V],
	distinct func([]V) ([]V, []int32), plain func([]byte, []V) []byte) (written int64, err error) {
	known := len(list)
	encoding := parquet.Encodings.Plain
	values := func(from, to int) []byte { return plain(p.raw, list[from:to]) }
	var places []int32 // nil without a dictionary
	if distinct != nil {
		list, places = distinct(list)
	}
	if places != nil {
		p.raw = plain(p.raw[:0], list)
		page := file.NewDictionaryPage(memory.NewBufferBytes(p.raw), int32(len(list)), encoding)
		if written, err = p.WriteDictionaryPage(page); err != nil {
			return written, err
		}
		width := min(len(list), max(1, bits.Len(uint(len(list)-1)))) // 0 where nothing is known
		encoding = parquet.Encodings.RLEDict
		values = func(from, to int) []byte { return appendRuns(append(p.raw, byte(width)), places[from:to], width) }
	}
	stats.Update(list, int64(max(0, len(lv.defs)-known)))
	said, err := stats.Encode()
	if err != nil {
		return written, err
	}
	said.ApplyStatSizeLimits(maxBound)
	said.Signed = meta.Descr().SortOrder() == schema.SortSIGNED
	meta.SetStats(said)
	all, at := max(known, len(lv.defs)), 0
	for from := 0; from < all; from += RowGroupRows { // lists alone have more
		to := min(all, from+RowGroupRows)
		n := to - from
		if p.raw = p.raw[:0]; len(lv.reps) > 0 {
			p.raw = appendLevels(p.raw, lv.reps[from:to])
		}
		if len(lv.defs) > 0 {
			p.raw = appendLevels(p.raw, lv.defs[from:to])
			n = int(stat.Sum(lv.defs[from:to], func(d int16) int64 { return int64(d) }))
		}
		p.raw, at = values(at, at+n), at+n
		if all > RowGroupRows {
			said = metadata.EncodedStatistics{} // they are the chunk's
		}
		p.packed.Reset()
		page := file.NewDataPageV1WithStats(memory.NewBufferBytes(p.Compress(&p.packed, p.raw)), int32(to-from), encoding,
			parquet.Encodings.RLE, parquet.Encodings.RLE, int32(len(p.raw)), said)
		wrote, err := p.WriteDataPage(page)
		if written += wrote; err != nil {
			return written, err
		}
	}
	return written, p.Close(places != nil, false)
}

// maxBound is how long a text may be that stands in the statistics as the least or the largest, bytes.
const maxBound = 4096

// appendLevels appends levels of 0 and 1 and in front of them their length.
func appendLevels(b []byte, list []int16) []byte {
	at := len(b)
	b = appendRuns(append(b, 0, 0, 0, 0), list, 1)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// appendRuns appends numbers of width bits: runs of eight equal ones or more, and between them groups of eight, packed, at
// most 63 under one head.
func appendRuns[V int16 | int32](b []byte, list []V, width int) []byte {
	const most = 63<<1 | 1
	head := -1 // of the groups under way
	for len(list) > 0 {
		n := 1
		for n < len(list) && list[n] == list[0] {
			n++
		}
		if n >= 8 || n == len(list) && head < 0 {
			b = binary.AppendUvarint(b, uint64(n)<<1)
			head = -1
			for k := 0; k < width; k += 8 {
				b = append(b, byte(list[0]>>k))
			}
			list = list[n:]
			continue
		}
		if head < 0 {
			b, head = append(b, 1), len(b)
		}
		n = min(8, len(list))
		word, have := uint64(0), 0
		for k := range 8 {
			if k < n {
				word |= uint64(list[k]) << have
			}
			for have += width; have >= 8; have -= 8 {
				b, word = append(b, byte(word)), word>>8
			}
		}
		if b[head] += 2; b[head] == most {
			head = -1
		}
		list = list[n:]
	}
	return b
}

func appendBools(b []byte, list []bool) []byte {
	at := len(b)
	b = append(b, make([]byte, (len(list)+7)/8)...)
	for i, v := range list {
		bitutil.SetBitTo(b[at:], i, v)
	}
	return b
}

func appendTexts(b []byte, list []string) []byte {
	for _, s := range list {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}

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

// of is the dictionary of a list, in order of appearance, and where in it each value stands.
func (d *intDict) of(list []int64) (uniq []int64, idx []int32) {
	d.uniq, d.idx = d.uniq[:0], d.idx[:0]
	d.gen++
	if size := 2 << bits.Len(uint(len(list))); size > len(d.slots) || d.gen == 0 {
		d.slots = make([]intSlot, size)
		d.gen = 1
		d.idx = make([]int32, 0, len(list))
		d.shift = 64 - bits.TrailingZeros(uint(size))
	}
	for _, v := range list {
		d.add(v)
	}
	return d.uniq, d.idx
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

// of is that of a list, or the list itself and nil where most of its first texts are unlike.
func (d *strDict) of(list []string) (uniq []string, idx []int32) {
	d.uniq, d.idx = d.uniq[:0], d.idx[:0]
	if d.index == nil {
		d.index, d.idx = map[string]int32{}, []int32{}
	}
	clear(d.index)
	clear(d.cache[:])
	for i, s := range list {
		if d.add(s); i == 1<<10 && len(d.uniq) > i/2 {
			return list, nil
		}
	}
	return d.uniq, d.idx
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
