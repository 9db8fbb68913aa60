package packed

import (
	"encoding/binary"
	"math"
)

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
