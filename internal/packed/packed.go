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
	"encoding/binary"
	"io"
	"math"
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

// Store writes the sealed list for RestoreFloats to read.
func (f *Floats) Store(w io.Writer) error {
	f.Seal()
	if err := binary.Write(w, binary.LittleEndian, []int64{int64(f.width), int64(f.n), int64(len(f.list))}); err != nil {
		return err
	}
	for _, b := range f.list {
		if err := binary.Write(w, binary.LittleEndian, []int64{int64(b.from), int64(len(b.data))}); err != nil {
			return err
		}
		if _, err := w.Write(b.data); err != nil {
			return err
		}
	}
	return nil
}

// RestoreFloats reads a list that Store wrote; nothing else may be given to it.
func RestoreFloats(r io.Reader) (*Floats, error) {
	head := make([]int64, 3)
	if err := binary.Read(r, binary.LittleEndian, head); err != nil {
		return nil, err
	}
	f := &Floats{width: int(head[0]), n: int(head[1]), list: make([]block, head[2])}
	for k := range f.list {
		if err := binary.Read(r, binary.LittleEndian, head[:2]); err != nil {
			return nil, err
		}
		f.list[k] = block{int(head[0]), make([]byte, head[1])}
		if _, err := io.ReadFull(r, f.list[k].data); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Kinds of columns. A distance has 1, 2 or 4 bytes by the kind's place behind
// kindWhole.
const (
	kindZero  = iota // every number is 0
	kindSame         // every number is the one that follows
	kindWhole        // and the next two: whole numbers, the smallest and their distances from it
	_                //
	_                //
	kindFew          // how many different numbers, the numbers, then a byte for each row
	kindPlain        // the numbers
)

// Of a kindFew column: the most numbers, and the table they are looked up in.
const (
	maxFew    = 96
	fewSlots  = 256
	slotShift = 56
)

// packColumn packs one column.
func packColumn(to []byte, col []float64) []byte {
	first, same := math.Float64bits(col[0]), true
	for _, v := range col {
		same = same && math.Float64bits(v) == first
	}
	switch {
	case same && first == 0:
		return append(to, kindZero)
	case same:
		return binary.LittleEndian.AppendUint64(append(to, kindSame), first)
	}
	if out, ok := packWhole(to, col); ok {
		return out
	}
	if out, ok := packFew(to, col); ok {
		return out
	}
	to = append(to, kindPlain)
	for _, v := range col {
		to = binary.LittleEndian.AppendUint64(to, math.Float64bits(v))
	}
	return to
}

// packWhole packs whole numbers as distances from the smallest, if 4 bytes hold the
// largest. Minus zero is none: it would come back as zero.
func packWhole(to []byte, col []float64) ([]byte, bool) {
	const exact = 1 << 53
	lo, hi := col[0], col[0]
	for _, v := range col {
		if !(math.Abs(v) < exact) || v != math.Trunc(v) || v == 0 && math.Signbit(v) {
			return to, false
		}
		lo, hi = min(lo, v), max(hi, v)
	}
	base := int64(lo)
	switch most := int64(hi) - base; {
	case most <= math.MaxUint8:
		to = binary.LittleEndian.AppendUint64(append(to, kindWhole), uint64(base))
		for _, v := range col {
			to = append(to, byte(int64(v)-base))
		}
	case most <= math.MaxUint16:
		to = binary.LittleEndian.AppendUint64(append(to, kindWhole+1), uint64(base))
		for _, v := range col {
			to = binary.LittleEndian.AppendUint16(to, uint16(int64(v)-base))
		}
	case most <= math.MaxUint32:
		to = binary.LittleEndian.AppendUint64(append(to, kindWhole+2), uint64(base))
		for _, v := range col {
			to = binary.LittleEndian.AppendUint32(to, uint32(int64(v)-base))
		}
	default:
		return to, false
	}
	return to, true
}

// packFew packs a column of few different numbers, if that is shorter.
func packFew(to []byte, col []float64) ([]byte, bool) {
	var slots [fewSlots]uint8 // 1 + place of a number
	var few [maxFew]uint64
	var places [blockRows]byte
	most, n := min(maxFew, len(col)/2), 0
	for r, x := range col {
		v := math.Float64bits(x)
		at := int(v * 0x9E3779B97F4A7C15 >> slotShift)
		for slots[at] != 0 && few[slots[at]-1] != v {
			at = (at + 1) % fewSlots
		}
		if slots[at] == 0 {
			if n == most {
				return to, false
			}
			few[n] = v
			n++
			slots[at] = uint8(n)
		}
		places[r] = slots[at] - 1
	}
	to = append(to, kindFew, byte(n))
	for _, v := range few[:n] {
		to = binary.LittleEndian.AppendUint64(to, v)
	}
	return append(to, places[:len(col)]...), true
}

// unpackColumn unpacks a column of len(col) numbers, not kindZero, and returns what
// follows it.
func unpackColumn(data []byte, col []float64) []byte {
	kind := data[0]
	data = data[1:]
	switch kind {
	case kindSame:
		v := math.Float64frombits(binary.LittleEndian.Uint64(data))
		for r := range col {
			col[r] = v
		}
		return data[8:]
	case kindFew:
		return unpackFew(data, col)
	case kindPlain:
		for r := range col {
			col[r] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*r:]))
		}
		return data[8*len(col):]
	}
	base := int64(binary.LittleEndian.Uint64(data))
	data = data[8:]
	switch kind {
	case kindWhole:
		for r, d := range data[:len(col)] {
			col[r] = float64(base + int64(d))
		}
		return data[len(col):]
	case kindWhole + 1:
		for r := range col {
			col[r] = float64(base + int64(binary.LittleEndian.Uint16(data[2*r:])))
		}
		return data[2*len(col):]
	}
	for r := range col {
		col[r] = float64(base + int64(binary.LittleEndian.Uint32(data[4*r:])))
	}
	return data[4*len(col):]
}

func unpackFew(data []byte, col []float64) []byte {
	var few [fewSlots]float64
	n := int(data[0])
	data = data[1:]
	for k := range n {
		few[k] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*k:]))
	}
	data = data[8*n:]
	for r, c := range data[:len(col)] {
		col[r] = few[c]
	}
	return data[len(col):]
}
