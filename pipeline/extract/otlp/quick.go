package otlp

import (
	"math"
	"strconv"

	"github.com/blis-train/blis-train/pipeline/extract/source"
)

// This file reads the usual form of events and attributes without parsing.
//
// Nearly all of a dump is attributes of span events, and exporters write them in one form,
//
//	[{"key":"K","value":{"intValue":"N"}},...]
//
// with the keys in the order of the producer. For speed, the functions of this file compare the fixed
// text of a pair, or of the start of an event, at once and parse only the value. If anything differs from this form, they leave the
// cursor where it is, and the general reader of json.go reads the text. They accept only text that the
// general reader accepts as well.

// quickForms are, for each slot, the text of its pair up to the value, and the type of the value.
var quickForms = func() (out [noSlot]quickForm) {
	forms := [...]string{wantInt: `intValue":"`, wantFloat: `doubleValue":`, wantText: `stringValue":"`}
	for s, a := range attrKeys {
		out[s] = quickForm{`{"key":"` + a.key + `","value":{"` + forms[a.want], a.want}
	}
	return out
}()

// quickForm is the usual form of the pair of one slot.
type quickForm struct {
	start string
	want  attrType
}

// beginsAt reports whether b[i:] begins with the pair and continues after its fixed text.
func (f *quickForm) beginsAt(b []byte, i int) bool {
	valueAt := i + len(f.start)
	return valueAt < len(b) && string(b[i:valueAt]) == f.start
}

// eventForms are, for each event, the text of an event between its time and its attributes.
var eventForms = func() (out [numEvents]string) {
	for e, name := range eventNames {
		out[e] = `","name":"` + name + `","attributes":[`
	}
	return out
}()

// quickEvent reads an event in the form
//
//	{"timeUnixNano":"N","name":"S","attributes":[...]}
//
// and adds it. It returns false, with the cursor where it was, for any other event.
func (r *jsonReader) quickEvent() bool {
	const timeHead = `{"timeUnixNano":"`
	start := r.I
	b := r.B
	i := start + len(timeHead)
	if i > len(b) || string(b[start:i]) != timeHead {
		return false
	}
	ns, n := source.Decimal(b[i:])
	i += n
	e, ok := r.eventAt(b[i:])
	if n == 0 || !ok {
		return false
	}
	r.I = i + len(eventForms[e])
	r.ev.reset(firstSlot[e])
	r.pairs(&r.ev)
	if r.Err != nil {
		return true // the general reader would find the same fault
	}
	if r.I >= len(b) || b[r.I] != '}' {
		r.I = start
		return false
	}
	r.I++
	r.addEvent(e, r.clampNs(ns))
	r.refuseOverBudget()
	return true
}

// eventAt returns the event whose text of eventForms b begins with. Most events are as the one before.
func (r *jsonReader) eventAt(b []byte) (EventName, bool) {
	if hasPrefix(b, eventForms[r.lastEvent]) {
		return r.lastEvent, true
	}
	for e, form := range eventForms {
		if hasPrefix(b, form) {
			r.lastEvent = EventName(e)
			return r.lastEvent, true
		}
	}
	return 0, false
}

// hasPrefix reports whether b begins with a text.
func hasPrefix(b []byte, text string) bool {
	return len(b) >= len(text) && string(b[:len(text)]) == text
}

// quickPairs reads consecutive pairs of known keys and leaves the cursor after the last one. It
// reports whether there was any.
func (r *jsonReader) quickPairs(a *attrs) bool {
	b := r.B
	from := r.I
	end := -1              // offset after the last pair
	last := slot(numSlots) // of the last pair
	for {
		s := a.next
		if s >= numSlots || !quickForms[s].beginsAt(b, from) {
			s = slotAt(b, from)
			if s >= numSlots || !quickForms[s].beginsAt(b, from) {
				break
			}
			if last < numSlots {
				a.skipped[last] = s - last - 1
			}
		}
		pairEnd := a.quickValue(s, b, from+len(quickForms[s].start))
		if pairEnd < 0 {
			break
		}
		a.wrong |= a.set & (1 << s)
		a.set |= 1 << s
		a.next = s + 1 + a.skipped[s]
		last = s
		end = pairEnd
		if b[end] != ',' {
			break
		}
		from = end + 1
	}
	if end < 0 {
		return false
	}
	r.I = end
	return true
}

// slotAt returns the slot of the pair that begins at b[i:], or noSlot if the general reader must read
// it.
func slotAt(b []byte, i int) slot {
	const head = `{"key":"`
	keyAt := i + len(head)
	if keyAt >= len(b) || string(b[i:keyAt]) != head {
		return noSlot
	}
	if n := source.PlainText(b[keyAt:]); n > 0 {
		if s, ok := slotOf[string(b[keyAt:keyAt+n])]; ok {
			return s
		}
	}
	return noSlot
}

// quickValue reads the value of slot s at b[i:], stores it, and returns the offset after its pair.
// It returns -1 for a value in another form, or if the text ends with the pair.
func (a *attrs) quickValue(s slot, b []byte, i int) int {
	const most = 18 // digits that certainly fit 64 bits
	const afterText, afterNumber = `"}}`, "}}"
	switch quickForms[s].want {
	case wantInt:
		isNegative := b[i] == '-'
		if isNegative {
			i++
		}
		digits, n := source.Decimal(b[i:])
		if n == 0 || n > most {
			return -1
		}
		v := int64(digits)
		if isNegative {
			v = -v
		}
		a.num[s] = v
		i += n
	case wantFloat:
		v, n := quickDouble(b[i:])
		end := i + n + len(afterNumber)
		if n == 0 || end >= len(b) || string(b[i+n:end]) != afterNumber {
			return -1
		}
		a.num[s] = int64(math.Float64bits(v))
		return end
	default:
		n := source.PlainText(b[i:])
		if n < 0 {
			return -1
		}
		a.text[s] = b[i : i+n]
		i += n
	}
	end := i + len(afterText)
	if end >= len(b) || string(b[i:end]) != afterText {
		return -1
	}
	return end
}

// quickDouble reads a number as JSON writes it and returns its length, 0 for anything else.
func quickDouble(b []byte) (v float64, n int) {
	const most = 24 // bytes
	for n < most && n < len(b) && (b[n]-'0' <= 9 || b[n] == '.') {
		n++
	}
	if n == 0 || b[0] == '.' || n > 1 && b[0] == '0' && b[1] != '.' {
		return 0, 0
	}
	if n == len(b) || b[n]|0x20 != 'e' {
		if v, ok := source.QuickFloat(b[:n]); ok {
			return v, n
		}
	}
	c := source.Cursor{B: b}
	text, ok := c.Number()
	if !ok {
		return 0, 0
	}
	v, err := strconv.ParseFloat(source.Text(text), 64)
	if err != nil {
		return 0, 0
	}
	return v, len(text)
}
