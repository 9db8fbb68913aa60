package report

// This file has the forms of words and lists in texts.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// sentence returns the text with a capital first letter and a full stop at its end.
func sentence(s string) string {
	if s == "" {
		return ""
	}
	r, n := utf8.DecodeRuneInString(s)
	s = string(unicode.ToUpper(r)) + s[n:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}

// Reasons returns the counts of reasons as text, "no_arrival 12, aborted 3", the largest first and
// equal ones by name. The ninth and further ones are only counted. It returns "none" if all are 0.
func Reasons[N int | int64](m map[string]N) string {
	type pair struct {
		name string
		n    N
	}
	var ps []pair
	for k, n := range m {
		if n != 0 {
			ps = append(ps, pair{k, n})
		}
	}
	stat.SortStable(ps, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name))
	})
	var out []string
	const most = 8
	for i, p := range ps {
		if i == most {
			out = append(out, fmt.Sprintf("and %d other reasons", len(ps)-most))
			break
		}
		out = append(out, fmt.Sprintf("%s %s", p.name, trace.Thousands(int64(p.n))))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// Plural returns a number with its noun: 1 run, 2 runs.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// FirstOf returns the first n lines, and a line with the number of the others and the file in which
// they are (where).
func FirstOf(lines []string, n int, where string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more in %s", len(lines)-n, where))
}

// appendNew appends s to the list unless s is empty or in the list already.
func appendNew(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// listOf returns the first n names, joined by commas, and the number of the others.
func listOf(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}

// pluralVerb returns "1 " and the words for one thing, or the number n and the words for many.
func pluralVerb(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
