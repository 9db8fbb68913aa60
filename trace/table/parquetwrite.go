package table

// This file writes Parquet tables.

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"sync"
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
)

// parquetEncoder writes a table as a Parquet file. It gathers columns from the row structs and
// writes their pages itself, because the library's column writers allocate for every value of a
// dictionary and for every page. The library writes page headers and the footer.
type parquetEncoder[T any] struct{ *parquetFile }

// parquetFile is the part of an encoder that does not depend on the type of its rows, so that a binary has it once.
type parquetFile struct {
	pages  pager
	out    *countingSeeker
	meta   *metadata.FileMetaDataBuilder
	groups int16
	cols   []column
}

// pager writes pages, one at a time.
type pager struct {
	file.PageWriter
	*columnBuffers
}

// columnBuffers have the values of one column of a row group, and a page before and after compression.
// All encoders share them, because few write at the same time.
type columnBuffers struct {
	ints    []int64 // the known values, in the slice of their type
	floats  []float64
	bools   []bool
	strs    []string
	lv      levels
	intDict intDict
	strDict strDict
	raw     []byte       // a page before compression
	packed  bytes.Buffer // and after
}

// columnPool has the columnBuffers that no encoder uses.
var columnPool = sync.Pool{New: func() any { return new(columnBuffers) }}

// release gives the buffers of columns to other encoders. The strings are those of rows, which must not
// stay in memory with the buffers.
func (p *pager) release() {
	clear(p.strs[:cap(p.strs)])
	columnPool.Put(p.columnBuffers)
	p.columnBuffers = nil
}

// RowGroupRows is the largest number of rows in a row group. Groups of large rows have fewer, so
// that the two buffers of a Writer have about groupBytes each.
const (
	RowGroupRows = 1 << 16
	groupBytes   = 5 << 20
)

// magic begins and ends a Parquet file.
var magic = []byte("PAR1")

// newParquetEncoder returns an encoder of the table name, whose rows have the type T and the
// columns cols, and writes the start of the file.
func newParquetEncoder[T any](name string, out io.Writer, cols []column) (parquetEncoder[T], error) {
	f, err := newParquetFile(name, out, cols)
	return parquetEncoder[T]{f}, err
}

// newParquetFile does what newParquetEncoder does.
func newParquetFile(name string, out io.Writer, cols []column) (*parquetFile, error) {
	keys := metadata.NewKeyValueMetadata()
	sc := arrowSchema(name, cols)
	for i, k := range sc.Metadata().Keys() {
		keys.Append(k, sc.Metadata().Values()[i])
	}
	var buf bytes.Buffer
	ipc.NewWriter(&buf, ipc.WithSchema(sc)).Close()
	keys.Append(metaArrow, base64.StdEncoding.EncodeToString(buf.Bytes()))
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithCreatedBy("blis-train"))
	e := &parquetFile{out: &countingSeeker{w: out}, cols: cols,
		meta: metadata.NewFileMetadataBuilder(schema.NewSchema(parquetSchema(cols)), props, keys)}
	var err error
	e.pages.PageWriter, err = file.NewPageWriter(e.out, compress.Codecs.Zstd, 1, nil, 0, 0, memory.DefaultAllocator,
		false, nil, nil)
	if err == nil {
		_, err = e.out.Write(magic)
	}
	return e, err
}

// repeats reports whether values of the column are likely to repeat, so that a dictionary makes it
// smaller.
func (c *column) repeats() bool { return c.kind != kindFloat64 && c.Unit != "ns" && c.Unit != "us" }

// close writes the footer of the file.
func (e *parquetFile) close() error {
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

// group writes rows as one row group.
func (e parquetEncoder[T]) group(rows []T) error { return e.write(placed(rows)) }

// write writes rows as one row group.
func (e *parquetFile) write(rows placedRows) error {
	e.pages.columnBuffers = columnPool.Get().(*columnBuffers)
	rg := e.meta.AppendRowGroup()
	written := int64(0)
	for i := range e.cols {
		meta := rg.NextColumnChunk()
		if err := e.pages.Reset(e.out, compress.Codecs.Zstd, 1, meta, e.groups, int16(i), nil, nil); err != nil {
			return err
		}
		n, err := e.pages.column(&e.cols[i], meta, rows)
		if err != nil {
			return fmt.Errorf("column %s: %w", e.cols[i].Name, err)
		}
		written += n
	}
	e.pages.release()
	rg.SetNumRows(rows.count)
	e.groups++
	return rg.Finish(written, e.groups-1)
}

// column writes one column of a row group and returns the number of bytes written.
func (p *pager) column(c *column, meta *metadata.ColumnChunkMetaDataBuilder, rows placedRows) (int64, error) {
	descr := meta.Descr()
	mem := memory.DefaultAllocator
	switch c.kind {
	case kindInt64:
		p.ints, p.lv = gatherInts(c, rows, p.ints, p.lv)
		distinct := p.intDict.build
		if !c.repeats() {
			distinct = nil
		}
		return writeChunk(p, meta, p.lv, p.ints, metadata.NewInt64Statistics(descr, mem), distinct,
			func(b []byte, v []int64) []byte { return append(b, arrow.Int64Traits.CastToBytes(v)...) })
	case kindFloat64:
		p.floats, p.lv = gather(c, rows, p.floats, p.lv)
		return writeChunk(p, meta, p.lv, p.floats, metadata.NewFloat64Statistics(descr, mem), nil,
			func(b []byte, v []float64) []byte { return append(b, arrow.Float64Traits.CastToBytes(v)...) })
	case kindBool:
		p.bools, p.lv = gather(c, rows, p.bools, p.lv)
		return writeChunk(p, meta, p.lv, p.bools, metadata.NewBooleanStatistics(descr, mem), nil, appendBools)
	}
	p.strs, p.lv = gather(c, rows, p.strs, p.lv)
	return writeChunk(p, meta, p.lv, p.strs, textStatistics{metadata.NewByteArrayStatistics(descr, mem)},
		p.strDict.build, appendTexts)
}

// statistics are the library's statistics of a column chunk (least value, greatest value, number of
// nulls), updated from values as they are gathered.
type statistics[V any] interface {
	Update(list []V, unknown int64)
	Encode() (metadata.EncodedStatistics, error)
}

// textStatistics are the statistics of strings.
type textStatistics struct{ *metadata.ByteArrayStatistics }

// Update adds the strings of list and a number of nulls to the statistics.
func (s textStatistics) Update(list []string, unknown int64) {
	views := make([]parquet.ByteArray, len(list))
	for i, text := range list {
		views[i] = unsafe.Slice(unsafe.StringData(text), len(text))
	}
	s.ByteArrayStatistics.Update(views, unknown)
}

// writeChunk writes the known values of one column of a row group, list, with their levels, and
// returns the bytes written. plain appends values in the encoding PLAIN. distinct, if not nil,
// returns the distinct values of a list and the place of each value among them, which are written
// as a dictionary and indices. It returns no places for a list that is smaller in the encoding
// PLAIN.
func writeChunk[V any](p *pager, meta *metadata.ColumnChunkMetaDataBuilder, lv levels, list []V, stats statistics[V],
	distinct func([]V) ([]V, []int32), plain func([]byte, []V) []byte) (written int64, err error) {
	known := len(list) // before list becomes that of the distinct values
	encoding := parquet.Encodings.Plain
	// values appends the known values from..to-1 to the page in p.raw, in the encoding.
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
	stats.Update(list, int64(max(0, len(lv.defs)-known))) // the distinct values have the same bounds
	bounds, err := stats.Encode()
	if err != nil {
		return written, err
	}
	bounds.ApplyStatSizeLimits(maxBound)
	bounds.Signed = meta.Descr().SortOrder() == schema.SortSIGNED
	meta.SetStats(bounds)
	all := max(known, len(lv.defs))                   // levels, or values of a required column
	at := 0                                           // the first value of the page
	for from := 0; from < all; from += RowGroupRows { // lists alone have more
		to := min(all, from+RowGroupRows)
		n := to - from // values of the page
		p.raw = p.raw[:0]
		if len(lv.reps) > 0 {
			p.raw = appendLevels(p.raw, lv.reps[from:to])
		}
		if len(lv.defs) > 0 {
			p.raw = appendLevels(p.raw, lv.defs[from:to])
			n = 0
			for _, def := range lv.defs[from:to] {
				n += int(def) // 0 or 1
			}
		}
		p.raw = values(at, at+n)
		at += n
		if all > RowGroupRows {
			bounds = metadata.EncodedStatistics{} // they are those of the chunk, not of the page
		}
		p.packed.Reset()
		page := file.NewDataPageV1WithStats(memory.NewBufferBytes(p.Compress(&p.packed, p.raw)), int32(to-from),
			encoding,
			parquet.Encodings.RLE, parquet.Encodings.RLE, int32(len(p.raw)), bounds)
		wrote, err := p.WriteDataPage(page)
		if written += wrote; err != nil {
			return written, err
		}
	}
	return written, p.Close(places != nil, false)
}

// maxBound is the largest size in bytes of a text that is written in the statistics as the least or
// the greatest value.
const maxBound = 4096

// appendLevels appends levels of 0 and 1 to b in the hybrid encoding, after their length of 4
// bytes.
func appendLevels(b []byte, list []int16) []byte {
	at := len(b)
	b = appendRuns(append(b, 0, 0, 0, 0), list, 1)
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

// appendRuns appends numbers of width bits to b in Parquet's hybrid encoding: runs of eight equal
// numbers or more, and between them bit-packed groups of eight, at most 63 groups under one head.
//
// The head of a run is its length times 2; that of packed groups is their number times 2, and 1 more.
func appendRuns[V int16 | int32](b []byte, list []V, width int) []byte {
	const most = 63<<1 | 1 // the head of 63 groups, the largest of one byte
	head := -1             // place of the head of the groups under way; -1 for none
	for len(list) > 0 {
		n := 1 // numbers equal to the first one
		for n < len(list) && list[n] == list[0] {
			n++
		}
		if n >= 8 || n == len(list) && head < 0 { // a shorter run pays if it needs no group
			b = binary.AppendUvarint(b, uint64(n)<<1)
			head = -1
			for k := 0; k < width; k += 8 {
				b = append(b, byte(list[0]>>k))
			}
			list = list[n:]
			continue
		}
		if head < 0 {
			head = len(b)
			b = append(b, 1) // no group yet
		}
		n = min(8, len(list)) // the last group is filled with zeros
		word := uint64(0)
		have := 0 // bits of word that are not yet in b
		for k := range 8 {
			if k < n {
				word |= uint64(list[k]) << have
			}
			for have += width; have >= 8; have -= 8 {
				b = append(b, byte(word))
				word >>= 8
			}
		}
		b[head] += 2 // one group more
		if b[head] == most {
			head = -1
		}
		list = list[n:]
	}
	return b
}

// appendBools appends booleans to b in the encoding PLAIN, one bit each.
func appendBools(b []byte, list []bool) []byte {
	at := len(b)
	b = append(b, make([]byte, (len(list)+7)/8)...)
	for i, v := range list {
		bitutil.SetBitTo(b[at:], i, v)
	}
	return b
}

// appendTexts appends strings to b in the encoding PLAIN, each after its length of 4 bytes.
func appendTexts(b []byte, list []string) []byte {
	for _, s := range list {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	return b
}
