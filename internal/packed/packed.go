// Package packed keeps long lists of rows of numbers in little memory, bit for bit:
// blocks of 256 rows, column by column, each column in the fewest bytes that give the
// same numbers back.
//
// Columns of a recording repeat themselves: zeros, constants, small counts, a few
// different values. Of a column whose numbers are alike one stays, of whole numbers
// their distance from the smallest in 1, 2 or 4 bytes, of a few different numbers
// their places in a list; other columns stand as they are.
//
//	f := packed.NewFloats(3)
//	f.Append([]float64{1, 2, 3})
//	row := f.Reader().Row(0) // valid until the next Row
//
// A list is written by one goroutine; any number may read it afterwards, each with a
// reader of its own.
package packed

import (
	"slices"
	"sort"
)

// blockRows is how many rows are packed together: unpacked, a block of 20 columns
// fits a first-level cache. Unpacked columns are stride numbers apart: at a power of
// two those of one row would all fall on the same lines of a cache.
const (
	blockRows = 256
	stride    = blockRows + 8
)

// Floats is a list of rows of float64.
type Floats struct {
	width int
	n     int
	list  []block
	tail  []float64 // rows that are not packed yet, by column
	count int       // their number
}

// block is packed rows; from is the number of the first.
type block struct {
	from int
	data []byte
}

// NewFloats is an empty list of rows of width numbers.
func NewFloats(width int) *Floats { return &Floats{width: width} }

// Len is the number of rows.
func (f *Floats) Len() int { return f.n }

// Append adds a row.
func (f *Floats) Append(row []float64) {
	if f.tail == nil {
		f.tail = make([]float64, f.width*stride)
	}
	for j, v := range row[:f.width] {
		f.tail[j*stride+f.count] = v
	}
	f.n++
	if f.count++; f.count == blockRows {
		f.pack()
	}
}

// Seal ends the list: what is left of its last block is packed.
func (f *Floats) Seal() {
	if f.count > 0 {
		f.pack()
	}
	f.tail = nil
}

// pack makes a block of the tail.
func (f *Floats) pack() {
	data := make([]byte, 0, f.count*f.width)
	for j := range f.width {
		data = packColumn(data, f.tail[j*stride:j*stride+f.count])
	}
	f.list = append(f.list, block{f.n - f.count, slices.Clone(data)})
	f.count = 0
}

// Joined are the rows of all lists, of the same width, one after the other. They are
// shared.
func Joined(lists ...*Floats) *Floats {
	out := NewFloats(lists[0].width)
	for _, l := range lists {
		l.Seal()
		for _, b := range l.list {
			out.list = append(out.list, block{out.n + b.from, b.data})
		}
		out.n += l.n
	}
	return out
}

// Filtered are the rows that keep says yes to. The list loses its blocks on the way,
// so that two never stand beside each other; it is empty afterwards.
func (f *Floats) Filtered(keep func(i int) bool) *Floats {
	f.Seal()
	out, r := NewFloats(f.width), f.Reader()
	for k := range f.list {
		for i := f.list[k].from; i < f.end(k); i++ {
			if keep(i) {
				out.Append(r.Row(i))
			}
		}
		f.list[k].data = nil
	}
	*f = Floats{width: f.width}
	out.Seal()
	return out
}

// end is the row behind block k.
func (f *Floats) end(k int) int {
	if k+1 < len(f.list) {
		return f.list[k+1].from
	}
	return f.n - f.count
}

// find is the block of row i, guess or the next where it is right; len(f.list) for a
// row that is not packed.
func (f *Floats) find(i, guess int) int {
	for k := max(0, guess); k < min(guess+2, len(f.list)); k++ {
		if i >= f.list[k].from && i < f.end(k) {
			return k
		}
	}
	k := sort.Search(len(f.list), func(k int) bool { return f.list[k].from > i }) - 1
	if k >= 0 && i < f.end(k) {
		return k
	}
	return len(f.list)
}

// Reader reads a list, best in order.
type Reader struct {
	f      *Floats
	at     int // the block that is unpacked
	lo, hi int // its rows
	cols   []float64
	zero   []bool // columns of cols that are zero
	row    []float64
}

// Reader begins to read the list.
func (f *Floats) Reader() *Reader {
	return &Reader{f: f, at: -1, zero: make([]bool, f.width), row: make([]float64, f.width)}
}

// Row is row i, valid until the next call.
func (r *Reader) Row(i int) []float64 {
	if i < r.lo || i >= r.hi {
		r.open(i)
	}
	at := i - r.lo
	for j := range r.row {
		r.row[j] = r.cols[at]
		at += stride
	}
	return r.row
}

// At is row i of column j.
func (r *Reader) At(i, j int) float64 {
	if i < r.lo || i >= r.hi {
		r.open(i)
	}
	return r.cols[j*stride+i-r.lo]
}

// Block unpacks the rows around row i: lo to hi (exclusive), for Column.
func (r *Reader) Block(i int) (lo, hi int) {
	if i < r.lo || i >= r.hi {
		r.open(i)
	}
	return r.lo, r.hi
}

// Column is column j of the block, nil where it is zero throughout; valid until the
// next call of another method.
func (r *Reader) Column(j int) []float64 {
	if r.zero[j] {
		return nil
	}
	return r.cols[j*stride : j*stride+r.hi-r.lo]
}

// open unpacks the block of row i, or takes over the rows that are not packed.
func (r *Reader) open(i int) {
	f := r.f
	if r.cols == nil {
		r.cols = make([]float64, f.width*stride)
		for j := range r.zero {
			r.zero[j] = true
		}
	}
	k := f.find(i, r.at)
	if k == len(f.list) {
		r.at, r.lo, r.hi = -1, f.n-f.count, f.n
		copy(r.cols, f.tail)
		clear(r.zero)
		return
	}
	r.at, r.lo, r.hi = k, f.list[k].from, f.end(k)
	data := f.list[k].data
	for j := range f.width {
		col := r.cols[j*stride : j*stride+r.hi-r.lo]
		if data[0] != kindZero {
			data, r.zero[j] = unpackColumn(data, col), false
			continue
		}
		if data = data[1:]; !r.zero[j] {
			clear(r.cols[j*stride : (j+1)*stride])
			r.zero[j] = true
		}
	}
}
