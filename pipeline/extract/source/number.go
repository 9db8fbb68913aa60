package source

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks the bytes of x that end the fast path of a string: quote,
// backslash, control characters.
func special(x uint64) uint64 {
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// PlainText is the length of the string body that b starts with, or -1 when it
// holds escapes, control characters or no end.
func PlainText(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			break
		}
	}
	for ; i < len(b); i++ {
		switch ch := b[i]; {
		case ch == '"':
			return i
		case ch == '\\' || ch < 0x20:
			return -1
		}
	}
	return -1
}

// Text views bytes as a string for functions that do not keep it.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Bytes views a string as bytes for functions that do not change them.
func Bytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
	1e21, 1e22}

// QuickFloat converts plain decimals whose digits fit 53 bits: both operands
// of the division are exact, so the result is correctly rounded (Clinger 1990).
func QuickFloat(s []byte) (float64, bool) {
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	if len(s) == 0 || len(s) > 17 {
		return 0, false
	}
	var mant uint64
	frac, seen := 0, false
	for _, ch := range s {
		switch {
		case ch-'0' <= 9:
			mant = mant*10 + uint64(ch-'0')
			if seen {
				frac++
			}
		case ch == '.' && !seen:
			seen = true
		default:
			return 0, false
		}
	}
	if mant > 1<<53 || seen && frac == 0 {
		return 0, false
	}
	v := float64(mant) / pow10[frac]
	if neg {
		v = -v
	}
	return v, true
}

// QuickInt reads up to 18 digits; the length is 0 for anything else.
func QuickInt(b []byte) (int64, int) {
	var v int64
	i, neg := 0, false
	if len(b) > 0 && b[0] == '-' {
		neg, i = true, 1
	}
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		v = v*10 + int64(b[i]-'0')
		i++
		if i-start > 18 {
			return 0, 0
		}
	}
	if i == start {
		return 0, 0
	}
	if neg {
		v = -v
	}
	return v, i
}

// powers of ten up to 10^8, for joining groups of digits.
var powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// Digits reads the decimal digits that b starts with, eight at a time, and
// their number; 0 for none, for more than 19, and when fewer than 24 bytes are
// left to look at.
func Digits(b []byte) (v uint64, n int) {
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
