package library

// This file packs a table into few bytes and reads it again: times as 16-bit logarithms, all numbers as differences from
// what the rows before let expect, and Brotli over all, which takes 8 % fewer bytes than zstd.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

const (
	perOctave = 64            // steps of a code in which a time doubles
	zeroTime  = math.MinInt16 // the code of a time of 0, which has no logarithm
)

// magics are the first lines of the files of a GPU, by their age (Table.age).
var magics = []string{
	present:     "BLISKERN3\n",
	withZstd:    "BLISKERN2\n",
	seriesAlone: "BLISKERN1\n",
}

// Ages of the format of a file. Older ones are read, and written in the present one.
const (
	present     = iota
	withZstd    // with zstd in place of Brotli, and the header as text
	seriesAlone // and times that are expected from their own series alone
)

// Limits of what a file may claim, so that a damaged one does not take the machine's memory.
const (
	maxHeader   = 1 << 20 // bytes
	maxRows     = 1 << 22 // of one table
	maxUnpacked = 1 << 28 // bytes of one table
)

// Quantized returns the code of a time in us: log2 in steps of 1/64 octave, so that it is off by at
// most 0.55 %.
func Quantized(us float64) int16 {
	if us <= 0 {
		return zeroTime
	}
	return int16(math.Round(perOctave * math.Log(us) / math.Ln2))
}

// Us returns the time in us of a code.
func Us(q int16) float64 {
	if q == zeroTime {
		return 0
	}
	return octaves()[int(q)-math.MinInt16]
}

// octaves has the times of all codes, computed once: binding a deployment reads thousands of rows.
var octaves = sync.OnceValue(func() []float64 {
	out := make([]float64, 1<<16)
	for i := range out {
		out[i] = math.Exp(float64(i+math.MinInt16) / perOctave * math.Ln2)
	}
	return out
})

// pack returns the table's rows, delta-coded and compressed. Series must be sorted by key, rows by
// size.
func (t *Table) pack() []byte { return compressed(t.encoded()) }

// compressed returns data as Brotli.
func compressed(data []byte) []byte {
	var out bytes.Buffer
	w := brotli.NewWriterLevel(&out, brotli.BestCompression)
	_, err := w.Write(data)
	if err = cmp.Or(err, w.Close()); err != nil { // a buffer in memory has no errors
		panic("library: " + err.Error())
	}
	return out.Bytes()
}

// decompressed returns the data of what compressed returned, at most so many bytes.
func decompressed(packed []byte, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(brotli.NewReader(bytes.NewReader(packed)), most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("got more than %d bytes", most)
	}
	return data, err
}

// encoded returns the table's rows, delta-coded.
func (t *Table) encoded() []byte {
	var out []byte
	put := func(v int64) { out = binary.AppendVarint(out, v) }
	// The keys, column by column.
	put(int64(len(t.Series)))
	for j := range len(t.Columns) - 1 {
		last := int64(0)
		for i := range t.Series {
			put(t.Series[i].Key[j] - last)
			last = t.Series[i].Key[j]
		}
	}
	// The sizes of each series: the index of its list of sizes among the lists that were written so
	// far. An index equal to their number announces a new list, which follows.
	var lists [][]int64 // most series share one
	for i := range t.Series {
		x := t.Series[i].X
		k := slices.IndexFunc(lists, func(l []int64) bool { return slices.Equal(l, x) })
		if k >= 0 {
			put(int64(k))
			continue
		}
		put(int64(len(lists)))
		lists = append(lists, x)
		put(int64(len(x)))
		last := int64(0)
		for _, v := range x {
			put(v - last)
			last = v
		}
	}
	for i := range t.Series {
		for j, q := range t.Series[i].Q {
			put(int64(q) - t.expected(i, j))
		}
	}
	return out
}

// decompress returns the bytes that encoded returned for the table of a file.
func (t *Table) decompress(packed []byte) ([]byte, error) {
	if t.age == present {
		return decompressed(packed, maxUnpacked)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxUnpacked))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	return dec.DecodeAll(packed, nil)
}

// expected returns the code of a time that is expected after those of the rows before: as much more than the time before
// as in the series before. The first time of a series is expected to be that of the series before.
func (t *Table) expected(series, row int) int64 {
	q := t.Series[series].Q
	var before []int16
	if series > 0 {
		before = t.Series[series-1].Q
	}
	switch {
	case row > 0 && row < len(before) && t.age < seriesAlone:
		return int64(q[row-1]) + int64(before[row]) - int64(before[row-1])
	case row > 0:
		return int64(q[row-1])
	case series > 0:
		return int64(before[0])
	}
	return 0
}

// unpack sets Series from the bytes that pack made.
func (t *Table) unpack(packed []byte) (err error) {
	data, err := t.decompress(packed)
	if err != nil {
		return err
	}
	bad := false
	get := func() int64 {
		v, length := binary.Varint(data)
		if length <= 0 { // no whole number is left
			bad = true
			return 0
		}
		data = data[length:]
		return v
	}
	seriesCount := get()
	if bad || seriesCount < 0 || seriesCount > maxRows {
		return fmt.Errorf("got %d series, want at most %d", seriesCount, maxRows)
	}
	t.Series = make([]Series, seriesCount)
	// Keys, sizes and times in the order in which pack writes them, with every count checked before
	// memory is taken for it.
	width := len(t.Columns) - 1 // of a key
	keys := make([]int64, int(seriesCount)*width)
	for i := range t.Series {
		t.Series[i].Key = keys[i*width : (i+1)*width]
	}
	for j := range width {
		last := int64(0)
		for i := range t.Series {
			last += get()
			t.Series[i].Key[j] = last
			if words := t.Columns[j].Words; words != nil && (last < 0 || last >= int64(len(words))) {
				return fmt.Errorf("column %s: got word %d, want one of %d", t.Columns[j].Name, last, len(words))
			}
		}
	}
	var lists [][]int64
	rows := 0
	for i := range t.Series {
		list := get()
		if list == int64(len(lists)) { // a new list of sizes
			rowsOfSeries := get()
			if rowsOfSeries < 1 || rowsOfSeries > maxRows {
				return fmt.Errorf("got %d rows of a series, want 1 to %d", rowsOfSeries, maxRows)
			}
			x := make([]int64, rowsOfSeries)
			last := int64(0)
			for j := range x {
				last += get()
				x[j] = last
			}
			lists = append(lists, x)
		}
		if bad || list < 0 || list >= int64(len(lists)) {
			return io.ErrUnexpectedEOF
		}
		t.Series[i].X = lists[list]
		rows += len(lists[list])
	}
	if rows != t.Rows || rows > maxRows {
		return fmt.Errorf("got %d rows, want %d", rows, t.Rows)
	}
	codes := make([]int16, rows) // one allocation, cut into the times of the series
	for i := range t.Series {
		t.Series[i].Q = codes[:len(t.Series[i].X)]
		codes = codes[len(t.Series[i].X):]
		for j := range t.Series[i].Q {
			t.Series[i].Q[j] = int16(get() + t.expected(i, j))
		}
	}
	if bad || len(data) > 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}
