package source

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/blis-train/blis-train/trace"
)

// This file has the JSON reader of all decoders.

// Cursor walks one JSON text in place: no tree is built, and only strings with escapes are copied.
// At a fault a method returns false and Err has its byte. More returns false from then on; callers of other methods stop
// at the first false.
//
// docs/decisions/0013-own-cursor.md compares it with libraries.
type Cursor struct {
	B         []byte // the text
	I         int    // the next byte
	Err       *Error // the first fault
	scratch   []byte // unescaped strings of this text
	Surrogate bool   // half of a surrogate pair was replaced
}

// Fail records a fault at the cursor, unless there was one before. It returns false.
func (c *Cursor) Fail(format string, args ...any) bool {
	if c.Err == nil {
		c.Err = &Error{At: c.I, Msg: fmt.Sprintf(format, args...)}
	}
	return false
}

// Unexpected records the fault that the byte at the cursor is not what is wanted. It returns false.
func (c *Cursor) Unexpected(want string) bool {
	if c.I >= len(c.B) {
		return c.Fail("got the end of the text, want %s", want)
	}
	return c.Fail("got %q, want %s", c.B[c.I], want)
}

// Space skips white space.
func (c *Cursor) Space() {
	for c.I+8 <= len(c.B) && binary.LittleEndian.Uint64(c.B[c.I:]) == ones*' ' {
		c.I += 8
	}
	for c.I < len(c.B) {
		switch c.B[c.I] {
		case ' ', '\t', '\n', '\r':
			c.I++
		default:
			return
		}
	}
}

// Take skips white space and reads the byte ch. It returns false and records a fault if another
// byte is there.
func (c *Cursor) Take(ch byte) bool {
	if c.I < len(c.B) && c.B[c.I] == ch {
		c.I++
		return true
	}
	c.Space()
	if c.I < len(c.B) && c.B[c.I] == ch {
		c.I++
		return true
	}
	return c.Unexpected(strconv.QuoteRune(rune(ch)))
}

// Peek skips white space and returns the next byte, or 0 at the end of the text.
func (c *Cursor) Peek() byte {
	c.Space()
	if c.I < len(c.B) {
		return c.B[c.I]
	}
	return 0
}

// More moves to the next element of an array or object that closes with end, and reports whether
// there is one. first must be true before the first element.
func (c *Cursor) More(end byte, first *bool) bool {
	if c.Err != nil {
		return false
	}
	ch := c.Peek()
	if ch == end {
		c.I++
		return false
	}
	if *first {
		*first = false
		return true
	}
	if ch != ',' {
		return c.Unexpected("',' or " + strconv.QuoteRune(rune(end)))
	}
	c.I++
	if c.Peek() == end {
		return c.Unexpected("a value after ','")
	}
	return true
}

// Key returns an object key, after it has read the colon behind it.
func (c *Cursor) Key() ([]byte, bool) {
	c.Space()
	k, ok := c.Str()
	if !ok || !c.Take(':') {
		return nil, false
	}
	return k, true
}

// Members iterates over the keys of an object. The caller must read the value after each key. The
// iteration ends at a fault.
func (c *Cursor) Members(yield func(key []byte) bool) {
	if !c.Take('{') {
		return
	}
	for first := true; c.More('}', &first); {
		if k, ok := c.Key(); !ok || !yield(k) {
			return
		}
	}
}

// MembersOrNull is Members for a value that may also be null, which has no members.
func (c *Cursor) MembersOrNull(yield func(key []byte) bool) {
	if !c.Null() {
		c.Members(yield)
	}
}

// Str returns a string. The result refers to the text or, if the string has escapes, to a buffer of
// the cursor.
func (c *Cursor) Str() ([]byte, bool) {
	if c.I >= len(c.B) || c.B[c.I] != '"' {
		return nil, c.Unexpected("a string")
	}
	c.I++
	start := c.I
	// Eight bytes at a time, up to the first quote, backslash or control character.
	for c.I+8 <= len(c.B) {
		if m := special(binary.LittleEndian.Uint64(c.B[c.I:])); m != 0 {
			c.I += bits.TrailingZeros64(m) >> 3
			break
		}
		c.I += 8
	}
	for ; c.I < len(c.B); c.I++ {
		switch ch := c.B[c.I]; {
		case ch == '"':
			c.I++
			return c.B[start : c.I-1], true
		case ch == '\\':
			return c.escaped(start)
		case ch < 0x20:
			return nil, c.Fail("got the raw control character %q in a string", ch)
		}
	}
	return nil, c.Fail("got the end of the text inside a string")
}

// escaped returns a string whose first escape is at the cursor; start is where the string begins.
func (c *Cursor) escaped(start int) ([]byte, bool) {
	from := len(c.scratch)
	c.scratch = append(c.scratch, c.B[start:c.I]...)
	for c.I < len(c.B) {
		ch := c.B[c.I]
		switch {
		case ch == '"':
			c.I++
			return c.scratch[from:len(c.scratch):len(c.scratch)], true
		case ch < 0x20:
			return nil, c.Fail("got the raw control character %q in a string", ch)
		case ch != '\\':
			c.scratch = append(c.scratch, ch)
			c.I++
		case !c.escape():
			return nil, false
		}
	}
	return nil, c.Fail("got the end of the text inside a string")
}

// escape appends the character of one escape sequence to scratch. It returns false for a fault.
func (c *Cursor) escape() bool {
	if c.I+1 >= len(c.B) {
		c.I = len(c.B)
		return c.Fail("got the end of the text inside a string")
	}
	const from, to = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	ch := c.B[c.I+1]
	for k := range len(from) {
		if from[k] == ch {
			c.scratch = append(c.scratch, to[k])
			c.I += 2
			return true
		}
	}
	if ch != 'u' {
		return c.Fail("got the escape \\%c, want one of JSON's", ch)
	}
	r, ok := c.hex4(c.I + 2)
	if !ok {
		return false
	}
	c.I += 6
	// A character beyond 16 bits is two escapes, a surrogate pair. Half a pair becomes U+FFFD.
	if utf16.IsSurrogate(r) {
		if c.I+1 < len(c.B) && c.B[c.I] == '\\' && c.B[c.I+1] == 'u' {
			low, ok := c.hex4(c.I + 2)
			if !ok {
				return false
			}
			if full := utf16.DecodeRune(r, low); full != utf8.RuneError {
				c.I += 6
				c.scratch = utf8.AppendRune(c.scratch, full)
				return true
			}
		}
		c.Surrogate = true
		r = utf8.RuneError
	}
	c.scratch = utf8.AppendRune(c.scratch, r)
	return true
}

// hex4 returns the number of the four hexadecimal digits of a \u escape at an offset.
func (c *Cursor) hex4(at int) (rune, bool) {
	if at+4 > len(c.B) {
		c.I = len(c.B)
		return 0, c.Fail("got the end of the text inside a string")
	}
	var r rune
	for _, ch := range c.B[at : at+4] {
		d := hexDigit(ch)
		if d < 0 {
			return 0, c.Fail("got %q in a \\u escape, want four hexadecimal digits", ch)
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

// hexDigit returns the value of a hexadecimal digit, or -1.
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

// Number reads a JSON number and returns its text.
func (c *Cursor) Number() ([]byte, bool) {
	start := c.I
	if c.I < len(c.B) && c.B[c.I] == '-' {
		c.I++
	}
	lead := c.I
	n := c.digits()
	if n == 0 {
		return nil, c.Unexpected("a number")
	}
	if n > 1 && c.B[lead] == '0' {
		return nil, c.Fail("got a number with a leading zero")
	}
	if c.I < len(c.B) && c.B[c.I] == '.' {
		c.I++
		if c.digits() == 0 {
			return nil, c.Unexpected("a digit after '.'")
		}
	}
	if c.I < len(c.B) && c.B[c.I]|0x20 == 'e' {
		c.I++
		if c.I < len(c.B) && (c.B[c.I] == '+' || c.B[c.I] == '-') {
			c.I++
		}
		if c.digits() == 0 {
			return nil, c.Unexpected("a digit in the exponent")
		}
	}
	return c.B[start:c.I], true
}

// digits skips decimal digits and returns their number.
func (c *Cursor) digits() int {
	start := c.I
	for c.I < len(c.B) && c.B[c.I]-'0' <= 9 {
		c.I++
	}
	return c.I - start
}

// Int64 returns an integer of 64 bits, quoted or not, without loss of precision.
func (c *Cursor) Int64() (int64, bool) {
	at := c.I
	raw, ok := c.Scalar("an integer")
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(Text(raw), 10, 64)
	if err != nil {
		c.I = at
		return 0, c.Fail("got %.40q, want an integer of 64 bits", raw)
	}
	return v, true
}

// Stamp returns an unsigned time in ns, quoted or not.
func (c *Cursor) Stamp() (uint64, bool) { return c.unsigned("a time in ns", 64) }

// Count returns an unsigned integer of 32 bits, quoted or not.
func (c *Cursor) Count() (int64, bool) {
	c.Space()
	v, ok := c.unsigned("a count", 32)
	return int64(v), ok
}

// unsigned returns an unsigned integer of so many bits, quoted or not. want describes it in a
// fault.
func (c *Cursor) unsigned(want string, bits int) (uint64, bool) {
	at := c.I
	raw, ok := c.Scalar(want)
	if !ok {
		return 0, false
	}
	v, err := strconv.ParseUint(Text(raw), 10, bits)
	if err != nil {
		c.I = at
		return 0, c.Fail("got %.40q, want %s of %d bits", raw, want, bits)
	}
	return v, true
}

// Scalar returns a string or a number as text. Anything else, null included, is a fault.
func (c *Cursor) Scalar(want string) ([]byte, bool) {
	switch ch := c.Peek(); {
	case ch == '"':
		return c.Str()
	case ch == '-' || ch-'0' <= 9:
		return c.Number()
	}
	return nil, c.Unexpected(want)
}

// Float returns a double: a number, or a string that strconv accepts, such as NaN or Infinity.
func (c *Cursor) Float() (float64, bool) {
	c.Space()
	at := c.I
	raw, ok := c.Scalar("a number")
	if !ok {
		return 0, false
	}
	if v, ok := QuickFloat(raw); ok {
		return v, true
	}
	v, err := strconv.ParseFloat(Text(raw), 64)
	if err != nil {
		c.I = at
		return 0, c.Fail("got %.40q, want a double", raw)
	}
	return v, true
}

// Skip reads over any value and checks its syntax. It returns false for a fault. depth is the
// number of values around it.
func (c *Cursor) Skip(depth int) bool {
	if depth > MaxDepth {
		return c.Fail("got values nested deeper than %d", MaxDepth)
	}
	switch ch := c.Peek(); ch {
	case '"':
		_, ok := c.Str()
		return ok
	case '{':
		for range c.Members {
			c.Skip(depth + 1)
		}
	case '[':
		c.I++
		for first := true; c.More(']', &first); {
			if !c.Skip(depth + 1) {
				return false
			}
		}
	case 't':
		return c.Word("true")
	case 'f':
		return c.Word("false")
	case 'n':
		return c.Word("null")
	default:
		if ch == '-' || ch-'0' <= 9 {
			return c.skipNumber()
		}
		return c.Unexpected("a value")
	}
	return c.Err == nil
}

// skipNumber reads over a number. A number whose exponent overflows a double is a fault too: OpenTelemetry's decoder
// converts even numbers that it does not use.
func (c *Cursor) skipNumber() bool {
	at := c.I
	raw, ok := c.Number()
	if !ok || !bytes.ContainsAny(raw, "eE") {
		return ok
	}
	if _, err := strconv.ParseFloat(Text(raw), 64); err != nil {
		c.I = at
		return c.Fail("got %.40q, want a double", raw)
	}
	return true
}

// Word reads w, which is true, false or null. It returns false for a fault.
func (c *Cursor) Word(w string) bool {
	if len(c.B)-c.I >= len(w) && string(c.B[c.I:c.I+len(w)]) == w {
		c.I += len(w)
		return true
	}
	return c.Unexpected(w)
}

// Null reports whether the next value is null, and reads it if so.
func (c *Cursor) Null() bool { return c.Peek() == 'n' && c.Word("null") }

// MaxDepth is the deepest nesting of JSON and protobuf values that is read. Real dumps nest about
// 12 deep.
const MaxDepth = 512

// Error is a fault inside one message.
type Error struct {
	At   int // offset in the message
	Msg  string
	Code trace.Code // CodeUnreadable if empty
}

// Error returns the message.
func (e *Error) Error() string { return e.Msg }
