package report

// This file prints numbers for people.

import (
	"math"
	"strconv"
	"strings"

	"github.com/blis-train/blis-train/trace"
)

// Short returns a value with at most three significant digits.
func Short(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "n/a"
	case a >= 1e7 || a < 1e-3:
		s := strconv.FormatFloat(v, 'e', 2, 64)
		mant, exp, _ := strings.Cut(s, "e")
		n, _ := strconv.Atoi(exp)
		return minus(trimmed(mant)) + "e" + strconv.Itoa(n)
	case a >= 100:
		return grouped(strconv.FormatFloat(v, 'f', 0, 64))
	default:
		return minus(trimmed(strconv.FormatFloat(v, 'f', max(2-int(math.Floor(math.Log10(a))), 0), 64)))
	}
}

// trimmed returns a number without zeros at the end of its decimals.
func trimmed(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimRight(strings.TrimRight(s, "0"), ".")
}

// minus returns a number with a typographic minus sign; "-0" becomes "0".
func minus(s string) string {
	if strings.HasPrefix(s, "-") && strings.Trim(s, "-0.,") != "" {
		return "−" + s[1:]
	}
	return strings.TrimPrefix(s, "-")
}

// grouped returns a number with commas between thousands.
func grouped(s string) string {
	sign, frac := "", ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	if i := strings.IndexByte(s, '.'); i >= 0 {
		s, frac = s[:i], s[i:]
	}
	s = trace.Grouped(s)
	if sign != "" && strings.Trim(s+frac, "0.,") == "" {
		sign = ""
	}
	return minus(sign + s + frac)
}

// milli returns a value in us, or per us, converted to ms, and the new unit. Other units are
// returned unchanged.
func milli(v float64, unit string) (float64, string) {
	if rest, ok := strings.CutPrefix(unit, "us"); ok && (rest == "" || rest[0] == '/') {
		return v / 1000, "ms" + rest
	}
	return v, unit
}

// fourDigits returns a number with four significant digits, commas between thousands, and no
// exponent from 1e-4 on, so that the numbers of a column can be compared by eye.
func fourDigits(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "n/a"
	case a < 1e-4 || a >= 1e12:
		return Short(v)
	}
	return grouped(trimmed(strconv.FormatFloat(v, 'f', max(3-int(math.Floor(math.Log10(a))), 0), 64)))
}

// Range returns the text of an interval.
func Range(lo, hi float64) string { return fourDigits(lo) + " .. " + fourDigits(hi) }

// Unknown is the text of a null.
const Unknown = "–"

// Pct returns a fraction as percent: one decimal, or more for small ones. The space before the sign
// does not break.
func Pct(v float64) string {
	p := v * 100
	a := math.Abs(p)
	switch {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return "n/a"
	case a >= 99.95:
		return grouped(strconv.FormatFloat(p, 'f', 0, 64)) + percentSign
	case a >= 0.1 || a < 1e-9:
		return minus(strconv.FormatFloat(p, 'f', 1, 64)) + percentSign
	case a >= 0.001:
		return minus(strconv.FormatFloat(p, 'f', 3, 64)) + percentSign
	}
	return Short(p) + percentSign
}

// percentSign is a no-break space and a percent sign.
const percentSign = "\u00a0%"

// percentThreshold returns a fraction as percent without needless decimals.
func percentThreshold(v float64) string { return Short(v*100) + percentSign }

// threeDecimals returns a statistic between 0 and 1 with three decimals.
func threeDecimals(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// brief returns a number with two significant digits.
func brief(v float64) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 64)
	return Short(rounded)
}

// pctOr returns Pct of a number that may be unknown.
func pctOr(v *float64) string { return Shown(v, Pct).Text }

// ShortOr returns Short of a number that may be unknown.
func ShortOr(v *float64) string { return Shown(v, Short).Text }

// Signed returns a fraction as percent with its sign.
func Signed(v float64) string {
	if v*100 >= 1e-9 {
		return "+" + Pct(v)
	}
	return Pct(v)
}

// sortKey returns the text by which a column sorts a number.
func sortKey(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
