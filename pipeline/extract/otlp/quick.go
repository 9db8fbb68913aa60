package otlp

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// Nearly all of a dump is span events, and every exporter writes them in one form:
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

// valueRoom is what must be left of the text where a number begins: its
// digits and what closes its pair.
const valueRoom = 32

// quickRun reads the pairs that follow each other in the guessed order and
// reports whether there was one; the cursor stands behind the last.
func (r *jsonReader) quickRun(a *attrs) bool {
	b, i, end := r.B, r.I, -1
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
	r.I = end
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
		v, n := source.Digits(b[j:])
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
		n := source.PlainText(b[j:])
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
	v, ok := source.QuickFloat(b[:n])
	if !ok {
		return 0, 0
	}
	return v, n
}

const pairHead = `{"key":"`

// quickPair reads {"key":"K","value":{"intValue":"N"}} and its like without a
// general parser; it leaves the cursor alone when anything looks different.
func (r *jsonReader) quickPair(a *attrs) bool {
	b := r.B[r.I:]
	if len(b) < 32 || string(b[:8]) != pairHead {
		return false
	}
	b = b[8:]
	s, n := a.quickKey(b)
	if n == 0 || len(b) < n+32 || string(b[n:n+12]) != `","value":{"` {
		return false
	}
	b = b[n+12:]
	rest := len(b)
	switch {
	case string(b[:11]) == `intValue":"`:
		v, d := source.QuickInt(b[11:])
		if d == 0 || len(b) < d+14 || string(b[11+d:14+d]) != `"}}` {
			return false
		}
		a.setInt(s, v)
		b = b[14+d:]
	case string(b[:14]) == `stringValue":"`:
		d := source.PlainText(b[14:])
		if d < 0 || len(b) < d+17 || string(b[14+d:17+d]) != `"}}` {
			return false
		}
		a.setText(s, b[14:14+d])
		b = b[17+d:]
	case string(b[:13]) == `doubleValue":`:
		v, d := quickDouble(b[13:])
		if d == 0 || len(b) < d+15 || b[13+d] != '}' || b[14+d] != '}' {
			return false
		}
		a.setFloat(s, v)
		b = b[15+d:]
	default:
		return false
	}
	if s < numSlots {
		a.next = s + 1
	}
	r.I += 8 + n + 12 + rest - len(b)
	return true
}

// quickKey finds the slot of the key that b starts with and the key's length;
// length 0 means the key needs the general parser.
func (a *attrs) quickKey(b []byte) (slot, int) {
	if a.next < numSlots {
		want := attrKeys[a.next].key
		if len(b) > len(want) && b[len(want)] == '"' && string(b[:len(want)]) == want {
			return a.next, len(want)
		}
	}
	n := source.PlainText(b)
	if n <= 0 {
		return noSlot, 0
	}
	if s, ok := slotOf[string(b[:n])]; ok {
		return s, n
	}
	return noSlot, n
}

func is(b []byte, start string) bool { return len(b) >= len(start) && string(b[:len(start)]) == start }
