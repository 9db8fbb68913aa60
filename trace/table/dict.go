package table

import (
	"math/bits"
	"unsafe"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/apache/arrow/go/v17/parquet/file"
)

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
