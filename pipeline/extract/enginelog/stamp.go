package enginelog

// This file finds and parses the times in log lines, in the forms of collectors, loggers and engines.

import (
	"bytes"
	"strconv"
	"strings"
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

// finer returns the stamp with the better resolution of two; s of two equally fine ones, so that in a line with several
// the first wins. A local time with a finer resolution is preferred to a coarser one since 1970: stamps serve to measure
// intervals between passes of milliseconds, for which the resolution matters and neither the date nor the zone does.
// Without the coarser stamp only the date of the recording is unknown (trace.Step.WallNs).
func (s stamp) finer(o stamp) stamp {
	if s.stepNs == 0 || o.stepNs > 0 && o.stepNs < s.stepNs {
		return o
	}
	return s
}

// lineStamp returns the best stamp that collectors and loggers put anywhere into a line: RFC 3339 (docker,
// kubectl, CRI), ISO with a zone without colon (journald's short-iso-precise), Python's asctime,
// seconds since 1970 with a fraction (ts '%.s'), or syslog's month and day with a fraction of
// seconds. It may begin the line, or follow a prefix such as the name of a pod, a bracket or a
// logger's own words. A whole number counts only at the start of the line, because those behind it
// are figures.
func lineStamp(line []byte) stamp {
	line = bytes.TrimLeft(line, " \t\ufeff")
	first, _, _ := bytes.Cut(line, []byte(" "))
	best := parseStamp(bytes.Trim(first, "[]()<>\"'")) // a whole number too
	for at := 0; at < len(line); at++ {
		isStart := at == 0 || !isWordByte(line[at-1])
		if !isStart || line[at]-'0' > 9 && !hasMonth(line[at:]) {
			continue
		}
		best = best.finer(stampAt(line[at:]))
	}
	return best
}

// isWordByte reports whether a byte before a stamp makes it a part of a longer word or number.
func isWordByte(b byte) bool {
	return b-'0' <= 9 || b|0x20 >= 'a' && b|0x20 <= 'z' || b == '.' || b == '-' || b == '_' || b == '#'
}

// stampAt reads a stamp at the beginning of a text, whatever follows it; none for a text that begins with
// no stamp.
func stampAt(text []byte) stamp {
	switch {
	case hasMonth(text):
		return syslogStamp(text)
	case digits(text) == 4: // a year
		return datedStamp(text)
	case digits(text) == 10 && len(text) > 10 && text[10] == '.': // seconds since 1970 have ten digits until 2286
		n := len("1761955200.") + digits(text[len("1761955200."):])
		if n < len(text) && isWordByte(text[n]) {
			return stamp{}
		}
		return parseEpoch(text[:n])
	}
	return stamp{}
}

// datedStamp reads a date and a time at the beginning of a text, and the zone behind them.
func datedStamp(text []byte) stamp {
	const layout = "2006-01-02 15:04:05"
	if len(text) < len(layout) || text[10] != 'T' && text[10] != ' ' || text[13] != ':' {
		return stamp{}
	}
	if text[4] == '/' { // as Go's logger writes dates
		text = append(bytes.ReplaceAll(text[:10], []byte("/"), []byte("-")), text[10:]...)
	}
	end := len(layout) // of the stamp: behind the seconds, then their fraction, then the zone
	if end+1 < len(text) && (text[end] == '.' || text[end] == ',') && text[end+1]-'0' <= 9 {
		end += 1 + digits(text[end+1:])
	}
	for _, zone := range []string{"Z", "+00:00", "+0000"} { // forms: + is either sign, 0 any digit
		isZone := len(text) >= end+len(zone)
		for i := 0; isZone && i < len(zone); i++ {
			b := text[end+i]
			switch zone[i] {
			case '0':
				isZone = b-'0' <= 9
			case '+':
				isZone = b == '+' || b == '-'
			default:
				isZone = b == zone[i]
			}
		}
		if isZone {
			end += len(zone)
			break
		}
	}
	return parseStamp(text[:end])
}

// monthNames are the months as syslog abbreviates them.
const monthNames = "JanFebMarAprMayJunJulAugSepOctNovDec"

// hasMonth reports whether a text begins with the abbreviated name of a month and a space.
func hasMonth(text []byte) bool {
	return len(text) > 3 && text[3] == ' ' && strings.Index(monthNames, string(text[:3]))%3 == 0
}

// syslogStamp reads `Nov 01 00:00:00.123456` (journald's short-precise), local time of a year that is
// not named, at the beginning of a text.
func syslogStamp(text []byte) stamp {
	const layout = "Jan _2 15:04:05"
	const leapYear = "2000 " // so that 29 February exists
	if len(text) < len(layout) {
		return stamp{}
	}
	end := len(layout)
	if end < len(text) && text[end] == '.' {
		end += 1 + digits(text[end+1:])
	}
	t, err := time.Parse("2006 "+layout+".999999999", leapYear+string(text[:end]))
	if err != nil {
		return stamp{}
	}
	return stamp{ns: sinceNewYear(t), stepNs: resolutionNs(fractionDigits(text[:end]))}
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
	{"2006-01-02T15:04:05,999999999Z0700", true},
	{"2006-01-02 15:04:05.999999999Z07:00", true},
	{"2006-01-02 15:04:05.999999999Z0700", true},
	{"2006-01-02 15:04:05,999999999Z07:00", true},
	{"2006-01-02 15:04:05,999999999Z0700", true},
	{"2006-01-02T15:04:05.999999999", false},
	{"2006-01-02T15:04:05,999999999", false},
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
	zeros := 0 // that make the unit nanoseconds
	switch n {
	case 10: // seconds
		zeros = 9
	case 13: // ms
		zeros = 6
	case 16: // us
		zeros = 3
	case 19: // ns
	default: // of no time since 1971
		return stamp{}
	}
	if digits(whole) != n {
		return stamp{}
	}
	if hasFraction && (n != 10 || len(fraction) == 0 || digits(fraction) != len(fraction)) {
		return stamp{}
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
