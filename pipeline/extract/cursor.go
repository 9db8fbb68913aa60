package extract

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// maxDepth bounds the nesting of skipped JSON and protobuf values. Real dumps
// nest to about 12.
const maxDepth = 512

// parseError is a fault inside one message: what, at which byte of it.
type parseError struct {
	at  int // offset in the message
	msg string
}

func (e *parseError) Error() string { return e.msg }

// cursor walks one JSON text. The first fault sticks; every method reports
// false from then on.
type cursor struct {
	b         []byte
	i         int
	err       *parseError
	scratch   []byte // unescaped strings of this message
	cut       bool   // the text ended too early
	surrogate bool   // a lone surrogate was replaced
}

func (c *cursor) fail(format string, args ...any) bool {
	if c.err == nil {
		c.err = &parseError{at: c.i, msg: fmt.Sprintf(format, args...)}
		c.cut = c.i >= len(c.b)
	}
	return false
}

// unexpected fails with what stands at the cursor.
func (c *cursor) unexpected(want string) bool {
	if c.i >= len(c.b) {
		return c.fail("got the end of the text, want %s", want)
	}
	return c.fail("got %q, want %s", c.b[c.i], want)
}

func (c *cursor) ws() {
	for c.i+8 <= len(c.b) && binary.LittleEndian.Uint64(c.b[c.i:]) == ones*' ' {
		c.i += 8
	}
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return
		}
	}
}

// take consumes the byte ch after white space.
func (c *cursor) take(ch byte) bool {
	if c.i < len(c.b) && c.b[c.i] == ch {
		c.i++
		return true
	}
	c.ws()
	if c.i < len(c.b) && c.b[c.i] == ch {
		c.i++
		return true
	}
	return c.unexpected(strconv.QuoteRune(rune(ch)))
}

// peek is the next byte after white space, 0 at the end.
func (c *cursor) peek() byte {
	c.ws()
	if c.i < len(c.b) {
		return c.b[c.i]
	}
	return 0
}

// more reports whether another element follows in an array or object that
// closes with end; first is set before the first element.
func (c *cursor) more(end byte, first *bool) bool {
	if c.err != nil {
		return false
	}
	ch := c.peek()
	if ch == end {
		c.i++
		return false
	}
	if *first {
		*first = false
		return true
	}
	if ch != ',' {
		return c.unexpected("',' or " + strconv.QuoteRune(rune(end)))
	}
	c.i++
	if c.peek() == end {
		return c.unexpected("a value after ','")
	}
	return true
}

// key reads an object key and its colon.
func (c *cursor) key() ([]byte, bool) {
	c.ws()
	k, ok := c.str()
	if !ok || !c.take(':') {
		return nil, false
	}
	return k, true
}

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

// str reads a string. Without escapes it is a part of the text, otherwise a
// part of scratch; both live until the next message.
func (c *cursor) str() ([]byte, bool) {
	if c.i >= len(c.b) || c.b[c.i] != '"' {
		return nil, c.unexpected("a string")
	}
	c.i++
	start := c.i
	for c.i+8 <= len(c.b) {
		if m := special(binary.LittleEndian.Uint64(c.b[c.i:])); m != 0 {
			c.i += bits.TrailingZeros64(m) >> 3
			break
		}
		c.i += 8
	}
	for ; c.i < len(c.b); c.i++ {
		switch ch := c.b[c.i]; {
		case ch == '"':
			c.i++
			return c.b[start : c.i-1], true
		case ch == '\\':
			return c.escaped(start)
		case ch < 0x20:
			return nil, c.fail("got the raw control character %q in a string", ch)
		}
	}
	return nil, c.fail("got the end of the text inside a string")
}

// escaped finishes a string with escapes; the cursor stands on the first one.
func (c *cursor) escaped(start int) ([]byte, bool) {
	from := len(c.scratch)
	c.scratch = append(c.scratch, c.b[start:c.i]...)
	for c.i < len(c.b) {
		ch := c.b[c.i]
		switch {
		case ch == '"':
			c.i++
			return c.scratch[from:len(c.scratch):len(c.scratch)], true
		case ch < 0x20:
			return nil, c.fail("got the raw control character %q in a string", ch)
		case ch != '\\':
			c.scratch = append(c.scratch, ch)
			c.i++
		case !c.escape():
			return nil, false
		}
	}
	return nil, c.fail("got the end of the text inside a string")
}

// escape decodes one escape sequence into scratch.
func (c *cursor) escape() bool {
	if c.i+1 >= len(c.b) {
		c.i = len(c.b)
		return c.fail("got the end of the text inside a string")
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	ch := c.b[c.i+1]
	for k := range len(from) {
		if from[k] == ch {
			c.scratch = append(c.scratch, to[k])
			c.i += 2
			return true
		}
	}
	if ch != 'u' {
		return c.fail("got the escape \\%c, want one of JSON's", ch)
	}
	r, ok := c.hex4(c.i + 2)
	if !ok {
		return false
	}
	c.i += 6
	if utf16.IsSurrogate(r) {
		if c.i+1 < len(c.b) && c.b[c.i] == '\\' && c.b[c.i+1] == 'u' {
			low, ok := c.hex4(c.i + 2)
			if !ok {
				return false
			}
			if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
				c.i += 6
				c.scratch = utf8.AppendRune(c.scratch, full)
				return true
			}
		}
		c.surrogate, r = true, utf8.RuneError
	}
	c.scratch = utf8.AppendRune(c.scratch, r)
	return true
}

func (c *cursor) hex4(at int) (rune, bool) {
	if at+4 > len(c.b) {
		c.i = len(c.b)
		return 0, c.fail("got the end of the text inside a string")
	}
	var r rune
	for _, ch := range c.b[at : at+4] {
		d := hexDigit(ch)
		if d < 0 {
			return 0, c.fail("got %q in a \\u escape, want four hexadecimal digits", ch)
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func hexDigit(ch byte) int {
	switch {
	case ch >= '0' && ch <= '9':
		return int(ch - '0')
	case ch >= 'a' && ch <= 'f':
		return int(ch-'a') + 10
	case ch >= 'A' && ch <= 'F':
		return int(ch-'A') + 10
	}
	return -1
}

// number reads the text of a JSON number.
func (c *cursor) number() ([]byte, bool) {
	start := c.i
	if c.i < len(c.b) && c.b[c.i] == '-' {
		c.i++
	}
	lead := c.i
	n := c.digits()
	if n == 0 {
		return nil, c.unexpected("a number")
	}
	if n > 1 && c.b[lead] == '0' {
		return nil, c.fail("got a number with a leading zero")
	}
	if c.i < len(c.b) && c.b[c.i] == '.' {
		c.i++
		if c.digits() == 0 {
			return nil, c.unexpected("a digit after '.'")
		}
	}
	if c.i < len(c.b) && c.b[c.i]|0x20 == 'e' {
		c.i++
		if c.i < len(c.b) && (c.b[c.i] == '+' || c.b[c.i] == '-') {
			c.i++
		}
		if c.digits() == 0 {
			return nil, c.unexpected("a digit in the exponent")
		}
	}
	return c.b[start:c.i], true
}

func (c *cursor) digits() int {
	start := c.i
	for c.i < len(c.b) && c.b[c.i]-'0' <= 9 {
		c.i++
	}
	return c.i - start
}

// text views bytes as a string for functions that do not keep it.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// int64 reads an integer, quoted or not, exact to 64 bits.
func (c *cursor) int64() (int64, bool) {
	at := c.i
	raw, ok := c.scalar("an integer")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(text(raw), 10, 64)
	if err != nil {
		c.i = at
		return 0, c.fail("got %.40q, want an integer of 64 bits", raw)
	}
	return v, true
}

// stamp reads a time in ns, unsigned on the wire, quoted or not.
func (c *cursor) stamp() (uint64, bool) {
	at := c.i
	raw, ok := c.scalar("a time in ns")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(text(raw), 10, 64)
	if err != nil {
		c.i = at
		return 0, c.fail("got %.40q, want a time in ns of 64 bits", raw)
	}
	return v, true
}

// scalar reads a string or a number as text; null and the rest are faults.
func (c *cursor) scalar(want string) ([]byte, bool) {
	switch ch := c.peek(); {
	case ch == '"':
		return c.str()
	case ch == '-' || ch-'0' <= 9:
		return c.number()
	}
	return nil, c.unexpected(want)
}

// float reads a double: a number, or whatever strconv takes as text.
func (c *cursor) float() (float64, bool) {
	c.ws()
	at := c.i
	raw, ok := c.scalar("a number")
	if !ok {
		return 0, false
	}
	if v, ok := quickFloat(raw); ok {
		return v, true
	}
	v, err := strconv.ParseFloat(text(raw), 64) // takes NaN, Infinity and -Infinity
	if err != nil {
		c.i = at
		return 0, c.fail("got %.40q, want a double", raw)
	}
	return v, true
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// quickFloat converts plain decimals whose digits fit 53 bits: both operands
// of the division are exact, so the result is correctly rounded (Clinger 1990).
func quickFloat(s []byte) (float64, bool) {
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

// skip walks over any value, checking its grammar.
func (c *cursor) skip(depth int) bool {
	if depth > maxDepth {
		return c.fail("got values nested deeper than %d", maxDepth)
	}
	switch ch := c.peek(); ch {
	case '"':
		_, ok := c.str()
		return ok
	case '{':
		c.i++
		for first := true; c.more('}', &first); {
			if _, ok := c.key(); !ok || !c.skip(depth+1) {
				return false
			}
		}
	case '[':
		c.i++
		for first := true; c.more(']', &first); {
			if !c.skip(depth + 1) {
				return false
			}
		}
	case 't':
		return c.word("true")
	case 'f':
		return c.word("false")
	case 'n':
		return c.word("null")
	default:
		if ch == '-' || ch-'0' <= 9 {
			return c.skipNumber()
		}
		return c.unexpected("a value")
	}
	return c.err == nil
}

// skipNumber walks over a number; one with an exponent must be a double, as the
// reference wants it.
func (c *cursor) skipNumber() bool {
	at := c.i
	raw, ok := c.number()
	if !ok || !bytes.ContainsAny(raw, "eE") {
		return ok
	}
	if _, err := strconv.ParseFloat(text(raw), 64); err != nil {
		c.i = at
		return c.fail("got %.40q, want a double", raw)
	}
	return true
}

func (c *cursor) word(w string) bool {
	if len(c.b)-c.i >= len(w) && string(c.b[c.i:c.i+len(w)]) == w {
		c.i += len(w)
		return true
	}
	return c.unexpected(w)
}

// null consumes null when it stands next.
func (c *cursor) null() bool { return c.peek() == 'n' && c.word("null") }
