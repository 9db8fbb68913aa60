package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// sentence starts with a capital and ends with a full stop.
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

// Reasons prints counts by reason, largest first, ties by name.
func Reasons(m map[string]int) string {
	type pair struct {
		name string
		n    int
	}
	var ps []pair
	for k, n := range m {
		if n != 0 {
			ps = append(ps, pair{k, n})
		}
	}
	slices.SortStableFunc(ps, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.n, a.n), strings.Compare(a.name, b.name))
	})
	var out []string
	for i, p := range ps {
		if i == 8 {
			out = append(out, fmt.Sprintf("and %d other reasons", len(ps)-8))
			break
		}
		out = append(out, fmt.Sprintf("%s %s", p.name, grouped(strconv.Itoa(p.n))))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// FirstOf is the first n lines and a count of the rest.
func FirstOf(lines []string, n int, where string) []string {
	if len(lines) <= n {
		return lines
	}
	return append(slices.Clone(lines[:n]), fmt.Sprintf("and %d more in %s", len(lines)-n, where))
}

func AppendNew(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// listOf joins the first n names and counts the rest.
func listOf(names []string, n int) string {
	if len(names) > n {
		return strings.Join(names[:n], ", ") + fmt.Sprintf(" and %d more", len(names)-n)
	}
	return strings.Join(names, ", ")
}

func pluralVerb(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func reasons64(m map[string]int64) string {
	out := make(map[string]int, len(m))
	for k, n := range m {
		out[k] = int(n)
	}
	return Reasons(out)
}
