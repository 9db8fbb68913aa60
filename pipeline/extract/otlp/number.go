package otlp

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// bytesOf views a string as bytes for functions that do not change them.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// powers of ten up to 10^8, for joining groups of digits.
var powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// leadingDigits reads the decimal digits that b starts with, eight at a time, and
// their number; 0 for none, for more than 19, and when fewer than 24 bytes are
// left to look at.
func leadingDigits(b []byte) (v uint64, n int) {
	for len(b)-n >= 8 {
		part, k := eightDigits(binary.LittleEndian.Uint64(b[n:]))
		v = v*powers[k] + part
		n += k
		if k < 8 {
			if n > 19 {
				return 0, 0
			}
			return v, n
		}
		if n > 19 {
			break
		}
	}
	return 0, 0
}

// eightDigits reads the digits that the eight bytes of x, lowest first, begin
// with. Leading zeros are shifted in until there are eight, then neighbours are
// joined three times (Lemire, "Number parsing at a gigabyte per second", 2021).
func eightDigits(x uint64) (v uint64, n int) {
	x ^= ones * '0'
	other := (x + ones*(0x80-10) | x) & highs
	n = bits.TrailingZeros64(other) >> 3
	if n == 0 {
		return 0, 0
	}
	x <<= 8 * (8 - n)
	x = x*10 + x>>8
	return ((x&0x000000ff000000ff)*(100+1000000<<32) + (x>>16&0x000000ff000000ff)*(1+10000<<32)) >> 32, n
}
