package extract

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Nearly all of a dump is span events, and every exporter writes them alike:
//
//	{"timeUnixNano":"N","name":"E","attributes":[{"key":"K","value":{"intValue":"N"}},...]}
//
// with the keys in the producer's order. The functions of this file compare
// whole stretches of that text at once and read only what lies between them.
// Where anything looks different they leave the cursor alone, and the general
// reader takes over; so they accept nothing that it would not.

// pairStart is how the pair of a slot begins, up to its value.
var pairStart = func() (out [numSlots]string) {
	forms := [...]string{wantInt: `intValue":"`, wantFloat: `doubleValue":`, wantText: `stringValue":"`}
	for s, a := range attrKeys {
		out[s] = `{"key":"` + a.key + `","value":{"` + forms[a.want]
	}
	return out
}()

const stampStart = `{"timeUnixNano":"`

// eventStart is how an event goes on after its stamp, up to its first pair.
var eventStart = func() (out [numEvents]string) {
	for e, name := range eventNames {
		out[e] = `","name":"` + name + `","attributes":[`
	}
	return out
}()

// eventAfter finds the event whose start b begins with, guess first.
func eventAfter(b []byte, guess eventName) (eventName, bool) {
	if is(b, eventStart[guess]) {
		return guess, true
	}
	for e := range numEvents {
		if is(b, eventStart[e]) {
			return e, true
		}
	}
	return 0, false
}

func is(b []byte, start string) bool { return len(b) >= len(start) && string(b[:len(start)]) == start }

// quickEvent reads an event of our schema; false leaves it to spanEvent.
func (r *jsonReader) quickEvent() bool {
	b := r.b[r.i:]
	if len(b) < len(stampStart)+valueRoom || string(b[:len(stampStart)]) != stampStart {
		return false
	}
	wall, n := digits(b[len(stampStart):])
	if n == 0 {
		return false
	}
	b = b[len(stampStart)+n:]
	e, ok := eventAfter(b, r.lastEvent)
	if !ok {
		return false
	}
	start := r.i
	r.lastEvent = e
	r.i = len(r.b) - len(b) + len(eventStart[e])
	r.ev.reset(firstSlot[e])
	r.pairs(&r.ev)
	if r.err != nil {
		return true
	}
	if r.i >= len(r.b) || r.b[r.i] != '}' { // more fields
		r.i = start
		return false
	}
	r.i++
	r.addEvent(e, r.time(wall, true))
	return true
}

// valueRoom is what must be left of the text where a number begins: its
// digits and what closes its pair.
const valueRoom = 32

// quickRun reads the pairs that follow each other in the guessed order and
// reports whether there was one; the cursor stands behind the last.
func (r *jsonReader) quickRun(a *attrs) bool {
	b, i, end := r.b, r.i, -1
	for s := a.next; s < numSlots; s++ {
		j := i + len(pairStart[s])
		if j+valueRoom > len(b) || string(b[i:j]) != pairStart[s] {
			break
		}
		if j = a.quickValue(s, b, j); j < 0 {
			break
		}
		a.set |= 1 << s
		a.next = s + 1
		end = j
		if b[j] != ',' {
			break
		}
		i = j + 1
	}
	if end < 0 {
		return false
	}
	r.i = end
	return true
}

// quickValue reads the value of slot s at b[j:], stores it and returns where
// its pair ends, inside b; -1 when it is not of the plain form.
func (a *attrs) quickValue(s slot, b []byte, j int) int {
	closing := `"}}`
	switch attrKeys[s].want {
	case wantInt:
		neg := b[j] == '-'
		if neg {
			j++
		}
		v, n := digits(b[j:])
		if n == 0 || n > 18 {
			return -1
		}
		if a.num[s] = int64(v); neg {
			a.num[s] = -int64(v)
		}
		j += n
	case wantFloat:
		v, n := quickDouble(b[j:])
		if n == 0 {
			return -1
		}
		a.num[s] = int64(math.Float64bits(v))
		j += n
		closing = "}}"
	default:
		n := plainText(b[j:])
		if n < 0 {
			return -1
		}
		a.text[s] = b[j : j+n]
		j += n
	}
	if !is(b[j:], closing) || j+len(closing) >= len(b) {
		return -1
	}
	return j + len(closing)
}

// quickDouble reads a plain decimal as JSON writes it; length 0 is for
// anything else.
func quickDouble(b []byte) (float64, int) {
	n := 0
	for n < 24 && n < len(b) && (b[n]-'0' <= 9 || b[n] == '.') {
		n++
	}
	if n == 0 || b[0] == '.' || n > 1 && b[0] == '0' && b[1] != '.' {
		return 0, 0
	}
	v, ok := quickFloat(b[:n])
	if !ok {
		return 0, 0
	}
	return v, n
}

// powers of ten up to 10^8, for joining groups of digits.
var powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}

// digits reads the decimal digits that b starts with, eight at a time, and
// their number; 0 for none, for more than 19, and when fewer than 24 bytes are
// left to look at.
func digits(b []byte) (v uint64, n int) {
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
