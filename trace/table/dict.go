package table

// This file finds the distinct values of a column, for the dictionary of a Parquet page.

import (
	"math/bits"
	"unsafe"
)

// dict has the distinct values of one column of a row group, in the order of their first
// appearance.
type dict[V comparable] struct {
	uniq []V
	idx  []int32 // place of each value in uniq
}

// intDict is a dict of integers. It is a hash table with open addressing, which is emptied by a new
// generation number.
type intDict struct {
	dict[int64]
	slots []intSlot // a power of two of them
	gen   uint32    // the current generation, from 1
	shift int       // of a hash of 64 bits, so that its highest bits are a place in slots
}

// intSlot is one slot of the table. It is used if gen is the current generation; idx is the place
// of key in uniq.
type intSlot struct {
	key int64
	idx int32
	gen uint32
}

// build returns the distinct values of a list in the order of appearance, and the place of each
// value of the list among them. Both are valid until the next call.
func (d *intDict) build(list []int64) (uniq []int64, idx []int32) {
	d.uniq = d.uniq[:0]
	d.idx = d.idx[:0]
	d.gen++
	size := 2 << bits.Len(uint(len(list))) // at most half of the slots are used
	if size > cap(d.slots) || d.gen == 0 { // also after 2^32 generations, because old slots would be current
		d.slots = make([]intSlot, size)
		d.gen = 1
		d.idx = make([]int32, 0, len(list))
	}
	d.slots = d.slots[:size]
	d.shift = 64 - bits.TrailingZeros(uint(size))
	for i, v := range list {
		if i > 0 && v == list[i-1] {
			d.idx = append(d.idx, d.idx[i-1])
			continue
		}
		d.addValue(v)
	}
	return d.uniq, d.idx
}

// addValue appends the place of v in d.uniq to d.idx, and appends v to d.uniq if it is new.
func (d *intDict) addValue(v int64) {
	const golden = 0x9e3779b97f4a7c15 // Fibonacci hashing (Knuth, vol. 3, 6.4)
	for at := uint64(v) * golden >> d.shift; ; at = (at + 1) & uint64(len(d.slots)-1) {
		s := &d.slots[at]
		if s.gen != d.gen {
			*s = intSlot{key: v, idx: int32(len(d.uniq)), gen: d.gen}
			d.uniq = append(d.uniq, v)
		} else if s.key != v {
			continue
		}
		d.idx = append(d.idx, s.idx)
		return
	}
}

// strDict is a dict of strings. Equal strings mostly share their bytes, so a small cache by address
// is looked up before the map.
type strDict struct {
	dict[string]
	index map[string]int32 // place of each string in uniq
	cache [1 << 10]strSlot
}

// strSlot is the address and the length of a string, and its place in uniq.
type strSlot struct {
	at  *byte
	n   int
	idx int32
}

// build returns the distinct values of a list in the order of appearance, and the place of each
// value of the list among them. If most of the first 1,024 strings are distinct, it returns the
// list itself and no places, because a dictionary would not pay.
func (d *strDict) build(list []string) (uniq []string, idx []int32) {
	d.uniq = d.uniq[:0]
	d.idx = d.idx[:0]
	if d.index == nil {
		d.index = map[string]int32{}
		d.idx = []int32{} // not nil, also for an empty list: nil is no dictionary
	}
	clear(d.index)
	clear(d.cache[:])
	for i, s := range list {
		d.addValue(s)
		if i == 1<<10 && len(d.uniq) > i/2 {
			return list, nil
		}
	}
	return d.uniq, d.idx
}

// addValue appends the place of s in d.uniq to d.idx, and appends s to d.uniq if it is new.
func (d *strDict) addValue(s string) {
	at := unsafe.StringData(s)
	slot := &d.cache[uintptr(unsafe.Pointer(at))>>4%uintptr(len(d.cache))] // the lowest bits of addresses differ little
	if slot.at != at || slot.n != len(s) || at == nil {                    // nil is also that of an unused slot
		i, ok := d.index[s]
		if !ok {
			i = int32(len(d.uniq))
			d.index[s] = i
			d.uniq = append(d.uniq, s)
		}
		*slot = strSlot{at: at, n: len(s), idx: i}
	}
	d.idx = append(d.idx, slot.idx)
}
