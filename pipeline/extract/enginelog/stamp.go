package enginelog

import (
	"bytes"
	"strconv"
	"time"

	"github.com/blis-train/blis-train/trace"
)

// stamp is when a line was written.
type stamp struct {
	ns     int64
	stepNs int64 // resolution; 0 for no stamp
	isWall bool  // counts from 1970 UTC; else local time, from the start of the year
}

// set gives the stamp to a pass.
func (s stamp) set(it *trace.Iteration) {
	if s.stepNs > 0 {
		it.StampNs = trace.Some(s.ns)
		it.StampStepNs = trace.Some(s.stepNs)
		it.StampWall = s.isWall
	}
}

// finer returns the stamp with the better resolution of two.
func (s stamp) finer(o stamp) stamp {
	if s.stepNs == 0 || o.stepNs > 0 && o.stepNs < s.stepNs {
		return o
	}
	return s
}

// leadingStamp returns the stamp that a collector put before a line: RFC 3339 (docker, kubectl,
// CRI), ISO with a zone without colon (journald's short-iso-precise), seconds since 1970 with a
// fraction (ts '%.s'), or Python's asctime.
func leadingStamp(line []byte) stamp {
	line = bytes.TrimLeft(line, " \t\ufeff")
	end := bytes.IndexByte(line, ' ')
	if end == len("2006-01-02") { // asctime: the time of day follows a space
		end += 1 + bytes.IndexByte(line[end+1:], ' ')
	}
	if end < leastStamp || end > mostStamp {
		return stamp{}
	}
	return parseStamp(line[:end])
}

// Lengths of a stamp, bytes.
const (
	leastStamp = 10
	mostStamp  = 40
)

// stampLayouts are the layouts of times with a date. Those without a zone are local times, such
// as Python's asctime.
var stampLayouts = []struct {
	layout  string
	hasZone bool
}{
	{time.RFC3339Nano, true},
	{"2006-01-02T15:04:05.999999999Z0700", true},
	{"2006-01-02T15:04:05,999999999Z07:00", true},
	{"2006-01-02 15:04:05.999999999Z07:00", true},
	{"2006-01-02T15:04:05.999999999", false},
	{"2006-01-02 15:04:05,999999999", false},
	{"2006-01-02 15:04:05.999999999", false},
}

// parseStamp returns a time in a form that collectors and JSON loggers write.
func parseStamp(text []byte) stamp {
	if len(text) < leastStamp || len(text) > mostStamp {
		return stamp{}
	}
	if text[4] != '-' {
		return parseEpoch(text)
	}
	for _, l := range stampLayouts {
		t, err := time.Parse(l.layout, string(text))
		if err != nil || !isInt64(t) {
			continue
		}
		stepNs := resolutionNs(fractionDigits(text))
		if l.hasZone {
			return stamp{ns: t.UnixNano(), stepNs: stepNs, isWall: true}
		}
		return stamp{ns: sinceNewYear(t), stepNs: stepNs}
	}
	return stamp{}
}

// sinceNewYear returns a time from the start of its year, ns.
func sinceNewYear(t time.Time) int64 {
	return t.Sub(time.Date(t.Year(), 1, 1, 0, 0, 0, 0, time.UTC)).Nanoseconds()
}

// isInt64 reports whether int64 nanoseconds can hold a time.
func isInt64(t time.Time) bool { return t.Year() >= 1971 && t.Year() <= 2200 }

// fractionDigits returns how many digits a time has behind the seconds.
func fractionDigits(text []byte) int {
	at := bytes.IndexAny(text, ".,")
	if at < 0 {
		return 0
	}
	return digits(text[at+1:])
}

// resolutionNs returns the resolution of a time with so many digits behind the seconds.
func resolutionNs(digits int) int64 {
	step := int64(time.Second)
	for range min(digits, 9) {
		step /= 10
	}
	return step
}

// parseEpoch returns a time in seconds (with or without a fraction), milliseconds, microseconds or
// nanoseconds since 1970. The unit follows from the number of digits.
func parseEpoch(text []byte) stamp {
	whole, fraction, hasFraction := bytes.Cut(text, []byte("."))
	n := len(whole)
	if n < 10 || n > 18 || digits(whole) != n {
		return stamp{}
	}
	if hasFraction && (n >= 13 || len(fraction) == 0 || digits(fraction) != len(fraction)) {
		return stamp{}
	}
	zeros := 9 // that make the unit nanoseconds
	switch {
	case n >= 16:
		zeros = 3
	case n >= 13:
		zeros = 6
	}
	ns, err := strconv.ParseInt(string(whole)+(string(fraction) + "000000000")[:zeros], 10, 64)
	if err != nil || !isInt64(time.Unix(0, ns)) {
		return stamp{}
	}
	if hasFraction {
		return stamp{ns: ns, stepNs: resolutionNs(len(fraction)), isWall: true}
	}
	return stamp{ns: ns, stepNs: resolutionNs(9 - zeros), isWall: true}
}
