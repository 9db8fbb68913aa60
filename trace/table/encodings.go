package table

// This file decodes the encodings of values in Parquet pages.

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow/go/v17/parquet"
)

// plain reads values of Parquet's encoding PLAIN, and booleans of the encoding RLE.
type plain struct {
	b      []byte // not yet read
	bit    int    // of b: the next boolean
	runs   runs   // of booleans, in place of b
	isRuns bool
}

// readValues reads the next n values of column l into the slice of v for their type.
func (p *plain) readValues(v *values, l leaf, n int) error {
	width := 0
	switch l.physical {
	case parquet.Types.Int64, parquet.Types.Double:
		width = 8
	case parquet.Types.Int32:
		width = 4
	}
	if len(p.b) < n*width {
		return errShort
	}
	switch l.physical {
	case parquet.Types.Int64:
		v.ints = resize(v.ints, n)
		for i := range v.ints {
			v.ints[i] = int64(binary.LittleEndian.Uint64(p.b[8*i:]))
			if l.unsigned && v.ints[i] < 0 {
				return fmt.Errorf("got %d, want at most %d", uint64(v.ints[i]), int64(math.MaxInt64))
			}
		}
	case parquet.Types.Int32:
		v.ints = resize(v.ints, n)
		for i := range v.ints {
			u := binary.LittleEndian.Uint32(p.b[4*i:])
			if l.unsigned {
				v.ints[i] = int64(u)
			} else {
				v.ints[i] = int64(int32(u))
			}
		}
	case parquet.Types.Double:
		v.floats = resize(v.floats, n)
		for i := range v.floats {
			v.floats[i] = math.Float64frombits(binary.LittleEndian.Uint64(p.b[8*i:]))
		}
	case parquet.Types.Boolean:
		v.bools = resize(v.bools, n)
		return p.fillBools(v.bools)
	default:
		v.texts = resize(v.texts, n)
		return p.fillTexts(v.texts)
	}
	p.b = p.b[n*width:]
	return nil
}

// fillBools reads len(dst) booleans, from runs or from single bits.
func (p *plain) fillBools(dst []bool) error {
	if p.isRuns {
		ints := make([]int32, len(dst))
		if !p.runs.readInto(ints) {
			return errShort
		}
		for i, v := range ints {
			dst[i] = v == 1
		}
		return nil
	}
	if len(p.b)*8-p.bit < len(dst) {
		return errShort
	}
	for i := range dst {
		dst[i] = p.b[p.bit>>3]>>(p.bit&7)&1 == 1
		p.bit++
	}
	return nil
}

// fillTexts reads len(dst) strings, each after its length of 4 bytes.
func (p *plain) fillTexts(dst []string) error {
	for i := range dst {
		if len(p.b) < 4 {
			return errShort
		}
		n := int64(binary.LittleEndian.Uint32(p.b))
		if n > int64(len(p.b)-4) {
			return errShort
		}
		dst[i] = string(p.b[4 : 4+n])
		p.b = p.b[4+n:]
	}
	return nil
}

// runs reads integers in Parquet's hybrid encoding: runs of one value, and bit-packed runs of
// several values.
type runs struct {
	b      []byte
	width  int    // bits of a value
	left   int    // values of the current run that were not yet read
	isSame bool   // the run is of one value
	value  int32  // that value
	packed []byte // of a bit-packed run
	bit    int    // of packed: the next value
}

// readInto reads the next len(dst) values. It returns false if there are fewer.
func (r *runs) readInto(dst []int32) bool {
	for len(dst) > 0 {
		if r.left == 0 && !r.nextRun() {
			return false
		}
		n := min(r.left, len(dst))
		r.left -= n
		if r.isSame {
			for i := range dst[:n] {
				dst[i] = r.value
			}
		} else {
			r.unpack(dst[:n])
		}
		dst = dst[n:]
	}
	return true
}

// nextRun begins the next run. It returns false if there is none, or if it is damaged.
func (r *runs) nextRun() bool {
	head, n := binary.Uvarint(r.b)
	if n <= 0 || head>>1 == 0 || head>>1 > math.MaxInt32/8 {
		return false
	}
	r.b = r.b[n:]
	// An even head begins a run of one value, an odd one groups of eight packed values.
	if head&1 == 0 {
		size := (r.width + 7) / 8
		if len(r.b) < size {
			return false
		}
		var v [4]byte
		copy(v[:], r.b[:size])
		r.left = int(head >> 1)
		r.value = int32(binary.LittleEndian.Uint32(v[:]))
		r.isSame = true
		r.b = r.b[size:]
		return true
	}
	size := int(head>>1) * r.width // a group of eight values has width bytes
	if size > len(r.b) {           // writers may omit the end of the last group
		size = len(r.b)
	}
	r.left = int(head>>1) * 8
	r.packed = r.b[:size]
	r.bit = 0
	r.isSame = false
	if r.width > 0 {
		r.left = min(r.left, size*8/r.width)
	}
	r.b = r.b[size:]
	return r.left > 0
}

// unpack reads the next len(dst) values of a bit-packed run, which must have as many. The values lie
// one after another from the lowest bit of a byte on. One of at most 32 bits is in the 8 bytes from
// the byte of its first bit.
func (r *runs) unpack(dst []int32) {
	mask := uint64(1)<<r.width - 1
	for i := range dst {
		at, shift := r.bit>>3, r.bit&7
		var word uint64
		if at+8 <= len(r.packed) {
			word = binary.LittleEndian.Uint64(r.packed[at:])
		} else {
			var tail [8]byte
			copy(tail[:], r.packed[at:])
			word = binary.LittleEndian.Uint64(tail[:])
		}
		dst[i] = int32(word >> shift & mask)
		r.bit += r.width
	}
}
