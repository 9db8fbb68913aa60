package extract

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// Nearly all of a dump is attributes of span events, and every exporter writes them in one form:
//
//	[{"key":"K","value":{"intValue":"N"}},...]
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

// quickRun reads pairs of known keys and reports whether there was one; the cursor stands
// behind the last.
func (r *jsonReader) quickRun(a *attrs) bool {
	b, i, end := r.B, r.I, -1
	for {
		s := a.next
		if s >= numSlots || !starts(b, i, s) {
			if s = slotAt(b, i); s >= numSlots || !starts(b, i, s) {
				break
			}
		}
		j := a.quickValue(s, b, i+len(pairStart[s]))
		if j < 0 {
			break
		}
		a.wrong |= a.set & (1 << s)
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

// starts reports that the pair of a slot begins at b[i:], with a value behind it.
func starts(b []byte, i int, s slot) bool {
	j := i + len(pairStart[s])
	return j < len(b) && string(b[i:j]) == pairStart[s]
}

// slotAt is the slot of the pair that begins at b[i:]; noSlot where the general parser must look.
func slotAt(b []byte, i int) slot {
	const head = `{"key":"`
	if i += len(head); i >= len(b) || string(b[i-len(head):i]) != head {
		return noSlot
	}
	if n := source.PlainText(b[i:]); n > 0 {
		if s, ok := slotOf[string(b[i:i+n])]; ok {
			return s
		}
	}
	return noSlot
}

// quickValue reads the value of slot s at b[j:], stores it and returns where
// its pair ends, inside b; -1 when it is not of the plain form.
func (a *attrs) quickValue(s slot, b []byte, j int) int {
	closing := `"}}`
	switch attrKeys[s].want {
	case wantInt:
		v, sign := int64(0), int64(1)
		if b[j] == '-' {
			sign, j = -1, j+1
		}
		from := j
		for ; j < len(b) && b[j]-'0' <= 9; j++ {
			v = v*10 + int64(b[j]-'0')
		}
		if j == from || j > from+18 {
			return -1
		}
		a.num[s] = sign * v
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

func is(b []byte, start string) bool { return len(b) >= len(start) && string(b[:len(start)]) == start }
