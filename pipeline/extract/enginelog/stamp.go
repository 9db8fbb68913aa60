package enginelog

import (
	"bytes"
	"strconv"
	"time"

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
	if end == len("2006-01-02") { // Python's asctime
		end += 1 + bytes.IndexByte(line[end+1:], ' ')
	}
	if end < 10 || end > 40 {
		return stamp{}
	}
	return parseStamp(line[:end])
}

// layouts of times with a date, those of numbers apart; from localFrom on without a zone: Python's asctime.
var layouts = []string{
	time.RFC3339Nano,
	"2006-01-02T15:04:05.999999999Z0700",
	"2006-01-02T15:04:05,999999999Z07:00",
	"2006-01-02 15:04:05.999999999Z07:00",
	"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05,999999999", "2006-01-02 15:04:05.999999999",
}

const localFrom = 4

// parseStamp reads a time as collectors and JSON loggers write it.
func parseStamp(text []byte) stamp {
	if len(text) < 10 || len(text) > 40 {
		return stamp{}
	}
	if text[4] != '-' {
		return epochStamp(text)
	}
	for i, layout := range layouts {
		t, err := time.Parse(layout, string(text))
		switch {
		case err != nil || !inRange(t):
		case i < localFrom:
			return stamp{t.UnixNano(), resolution(fraction(text)), true}
		default:
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
	return digits(text[at+1:])
}

// resolution of a time with so many digits behind the seconds, ns.
func resolution(digits int) int64 {
	step := int64(time.Second)
	for range min(digits, 9) {
		step /= 10
	}
	return step
}

// epochStamp reads seconds with or without a fraction, milliseconds, microseconds or nanoseconds since
// 1970, told apart by their number of digits.
func epochStamp(text []byte) stamp {
	whole, places, isFraction := bytes.Cut(text, []byte("."))
	n, rest := len(whole), 9 // digits of a unit that are nanoseconds
	switch {
	case n >= 16:
		rest = 3
	case n >= 13:
		rest = 6
	}
	if digits(whole) != n || n < 10 || n > 18 || isFraction && (n >= 13 || len(places) == 0 || digits(places) != len(places)) {
		return stamp{}
	}
	v, err := strconv.ParseInt(string(whole)+(string(places) + "000000000")[:rest], 10, 64)
	if err != nil || !inRange(time.Unix(0, v)) {
		return stamp{}
	}
	if isFraction {
		return stamp{v, resolution(len(places)), true}
	}
	return stamp{v, resolution(9 - rest), true}
}

// vllmStamp reads the last stamp of vLLM's own prefix, `MM-DD HH:MM:SS [`, in
// text: local time in whole seconds, from 1 January of an unnamed leap year.
func vllmStamp(text, _ []byte) stamp {
	const form, leap = "MM-DD HH:MM:SS", "2000-" // so that 29 February has a place
	for at := bytes.LastIndex(text, []byte(" [")); at >= len(form); at = bytes.LastIndex(text[:at], []byte(" [")) {
		if t, err := time.Parse(time.DateTime, leap+string(text[at-len(form):at])); err == nil {
			return stamp{t.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Nanoseconds(), int64(time.Second), false}
		}
	}
	return stamp{}
}
