package source

// This file has the byte-level tricks of the JSON reader: eight bytes at a time, and decimals without
// strconv.

import (
	"encoding/binary"
	"math/bits"
	"unsafe"
)

const (
	ones  = 0x0101010101010101 // times a byte: that byte in all eight places
	highs = 0x8080808080808080 // the high bit of each byte
)

// special returns x with the high bit of each byte that is a quote, a backslash or a control character
// set, and all other bits 0. The fast path of reading a string ends at such a byte. For a byte b,
// (b-n)&^b has its high bit set if b < n (n up to 0x80), so that b^quote < 1 finds the quote.
func special(x uint64) uint64 {
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return ((x-ones*0x20)&^x | (quote-ones)&^quote | (slash-ones)&^slash) & highs
}

// PlainText returns the length of the string body at the start of b. It is -1 if the string has escapes
// or control characters, or does not end.
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

// Decimal returns the number of the decimal digits at the start of b, and how many they are. Both are 0
// if there are more than 19, which may not fit.
func Decimal(b []byte) (v uint64, n int) {
	if len(b) < 24 { // the three words that are read below
		b = append(make([]byte, 0, 24), b...)[:24]
	}
	v, k := digits(binary.LittleEndian.Uint64(b))
	if k < 8 {
		return v, int(k)
	}
	more, k := digits(binary.LittleEndian.Uint64(b[8:]))
	v = v*pow10int[k&15] + more
	if k < 8 {
		return v, 8 + int(k)
	}
	more, k = digits(binary.LittleEndian.Uint64(b[16:]))
	if k > 3 { // more than 19 digits
		return 0, 0
	}
	return v*pow10int[k&15] + more, 16 + int(k)
}

// digits returns the number of the decimal digits at the low end of x, which has eight characters, and
// how many they are.
func digits(x uint64) (v uint64, n uint) {
	// The high half of a digit is 3, also after 6 was added to it.
	const halves = 0xf0f0f0f0f0f0f0f0
	other := (x&halves | (x+ones*6)&halves>>4) ^ ones*0x33
	n = uint(bits.TrailingZeros64(other)) >> 3
	// Missing digits at the front are zeros. Digits are added up in pairs, then pairs, then fours.
	x = x << (64 - 8*n) & (ones * 0xf)
	x = (x*10 + x>>8) & 0x00ff00ff00ff00ff
	x = (x*100 + x>>16) & 0x0000ffff0000ffff
	return (x*10000 + x>>32) & 0xffffffff, n
}

// Text returns a view of bytes as a string. Callers must not keep it.
func Text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// pow10 are the powers of ten of the decimals that QuickFloat reads.
var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16}

var pow10int = [16]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// QuickFloat returns the value of a plain decimal whose digits fit into 53 bits. Both operands of
// its only division are then exact, so the result is correctly rounded (Clinger 1990). It returns
// false for other numbers.
func QuickFloat(s []byte) (float64, bool) {
	isNegative := len(s) > 0 && s[0] == '-'
	if isNegative {
		s = s[1:]
	}
	if len(s) == 0 || len(s) > 17 {
		return 0, false
	}
	var mantissa uint64
	fracDigits := 0
	hasPoint := false
	for _, ch := range s {
		switch {
		case ch-'0' <= 9:
			mantissa = mantissa*10 + uint64(ch-'0')
			if hasPoint {
				fracDigits++
			}
		case ch == '.' && !hasPoint:
			hasPoint = true
		default:
			return 0, false
		}
	}
	if mantissa > 1<<53 || hasPoint && fracDigits == 0 {
		return 0, false
	}
	v := float64(mantissa) / pow10[fracDigits]
	if isNegative {
		v = -v
	}
	return v, true
}
