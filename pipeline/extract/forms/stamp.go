package forms

import (
	"bytes"
	"time"

	"github.com/blis-train/blis-train/pipeline/extract/source"
	"github.com/blis-train/blis-train/trace"
)

// stamp is when a line was written.
type stamp struct {
	ns   int64
	step int64 // resolution, ns; 0 for no stamp
	wall bool  // counts from 1970 UTC
}

func (s stamp) set(it *trace.Iteration) {
	if s.step > 0 {
		it.StampNs, it.StampStepNs, it.StampWall = trace.Some(s.ns), trace.Some(s.step), s.wall
	}
}

// better is the finer of two stamps of one line.
func (s stamp) better(o stamp) stamp {
	if s.step == 0 || o.step > 0 && o.step < s.step {
		return o
	}
	return s
}

// leading reads the stamp that a collector put before a line: RFC 3339 (docker,
// kubectl, CRI), ISO with a basic zone (journald's short-iso-precise), or
// seconds of the epoch with a fraction (ts '%.s').
func leading(line []byte) stamp {
	line = bytes.TrimLeft(line, " \t\ufeff")
	end := bytes.IndexByte(line, ' ')
	if end < 10 || end > 40 {
		return stamp{}
	}
	return parseStamp(line[:end])
}

// layouts of times with a date, those of numbers apart.
var layouts = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04:05.999999999Z0700",
	"2006-01-02T15:04:05,999999999Z07:00",
	"2006-01-02 15:04:05.999999999Z07:00",
}

// localLayouts have a date but no zone: Python's asctime.
var localLayouts = []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05,999999999", "2006-01-02 15:04:05.999999999"}

// parseStamp reads a time as collectors and JSON loggers write it.
func parseStamp(text []byte) stamp {
	if len(text) < 10 || len(text) > 40 {
		return stamp{}
	}
	if text[4] != '-' {
		return epochStamp(text)
	}
	s := string(text)
	for _, layout := range layouts {
		if t, err := time.Parse(layout, s); err == nil && inRange(t) {
			return stamp{t.UnixNano(), resolution(fraction(text)), true}
		}
	}
	for _, layout := range localLayouts {
		if t, err := time.Parse(layout, s); err == nil && inRange(t) {
			return stamp{t.Sub(time.Date(t.Year(), 1, 1, 0, 0, 0, 0, time.UTC)).Nanoseconds(), resolution(fraction(text)), false}
		}
	}
	return stamp{}
}

// inRange keeps stamps within what int64 nanoseconds can say.
func inRange(t time.Time) bool { return t.Year() >= 1971 && t.Year() <= 2200 }

// fraction is how many digits stand behind the seconds.
func fraction(text []byte) int {
	at := bytes.IndexAny(text, ".,")
	if at < 0 {
		return 0
	}
	n := 0
	for _, ch := range text[at+1:] {
		if ch < '0' || ch > '9' {
			break
		}
		n++
	}
	return n
}

// resolution of a time with so many digits behind the seconds, ns.
func resolution(digits int) int64 {
	step := int64(time.Second)
	for range min(digits, 9) {
		step /= 10
	}
	return step
}

// epochStamp reads seconds, milliseconds, microseconds or nanoseconds since 1970,
// told apart by their number of digits.
func epochStamp(text []byte) stamp {
	whole, n := source.QuickInt(text)
	if n < 10 || n > 18 { // 19 digits of nanoseconds do not fit QuickInt
		return stamp{}
	}
	unit := int64(time.Second)
	switch {
	case n >= 16:
		unit = int64(time.Microsecond)
	case n >= 13:
		unit = int64(time.Millisecond)
	}
	s := stamp{whole * unit, unit, true}
	if whole > (1<<63-1)/unit {
		return stamp{}
	}
	switch rest := text[n:]; {
	case len(rest) == 0:
	case rest[0] != '.' || unit != int64(time.Second):
		return stamp{}
	default:
		digits := fraction(rest)
		if digits == 0 || digits+1 != len(rest) {
			return stamp{}
		}
		s.step = resolution(digits)
		for i, scale := 1, unit/10; i <= min(digits, 9); i, scale = i+1, scale/10 {
			s.ns += int64(rest[i]-'0') * scale
		}
	}
	if !inRange(time.Unix(0, s.ns)) {
		return stamp{}
	}
	return s
}

// daysBefore the months of a leap year, so that 29 February has a place.
var daysBefore = [13]int64{0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335}

// vllmStamp reads the last stamp of vLLM's own prefix, `MM-DD HH:MM:SS [`, in
// text: local time in whole seconds, from 1 January of an unnamed leap year.
func vllmStamp(text []byte) stamp {
	for {
		at := bytes.LastIndex(text, []byte(" ["))
		const form = "MM-DD HH:MM:SS"
		if at < 0 {
			return stamp{}
		}
		if at >= len(form) {
			if s, ok := shortStamp(text[at-len(form) : at]); ok {
				return s
			}
		}
		text = text[:at]
	}
}

func shortStamp(t []byte) (stamp, bool) {
	if t[2] != '-' || t[5] != ' ' || t[8] != ':' || t[11] != ':' {
		return stamp{}, false
	}
	two := func(i int) int64 {
		a, b := t[i]-'0', t[i+1]-'0'
		if a > 9 || b > 9 {
			return -1
		}
		return int64(a)*10 + int64(b)
	}
	month, day, hour, minute, second := two(0), two(3), two(6), two(9), two(12)
	if month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60 {
		return stamp{}, false
	}
	s := ((daysBefore[month]+day-1)*24+hour)*3600 + minute*60 + second
	return stamp{s * int64(time.Second), int64(time.Second), false}, true
}
