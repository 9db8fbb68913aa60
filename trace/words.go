package trace

// This file writes numbers and lists for people.

import (
	"strconv"
	"strings"
)

// Thousands returns a count with a comma between the thousands: 1,234,567.
func Thousands(n int64) string {
	digits, isNegative := strings.CutPrefix(strconv.FormatInt(n, 10), "-") // -n does not exist for the least int64
	if isNegative {
		return "-" + Grouped(digits)
	}
	return Grouped(digits)
}

// Grouped returns a number in digits with a comma between the thousands.
func Grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// OneOf returns the names as an error lists them after "want": "a", "a or b", "a, b or c".
func OneOf[T ~string](names []T) string {
	var b strings.Builder
	for i, name := range names {
		switch {
		case i > 0 && i == len(names)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(string(name))
	}
	return b.String()
}
