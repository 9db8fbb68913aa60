package files

// This file finds the legal word that a misspelled one is nearest to.

import (
	"slices"
	"strings"
)

// maxName is longer than any key or flag.
const maxName = 100

// Nearest returns the legal word for the hint "did you mean", "" if there is none. It prefers a
// word that shares its last parts with word (--rate for --request-rate), then one that word begins
// (timeout for timeout_s, without the unit). Otherwise it is the nearest within a third of word's
// length in edits, compared as a whole or cut to word's length.
func Nearest(word string, legal []string) string {
	if len(word) > 2 && !slices.Contains(legal, word) {
		for _, candidate := range legal {
			if strings.HasSuffix(candidate, "-"+word) || strings.HasSuffix(word, "-"+candidate) {
				return candidate
			}
		}
	}
	for _, candidate := range legal { // without the unit
		rest, begins := strings.CutPrefix(candidate, word)
		if begins && len(word) > 2 && strings.IndexAny(rest, "_-") == 0 {
			return candidate
		}
	}
	best := ""
	bestDist := len(word)/3 + 1 // a third of the length is near enough
	for _, candidate := range legal {
		d := editDistance(word, candidate)
		// A misspelled beginning of a longer word; the cut is one more edit. Short words begin too many others.
		if n := len(word); n >= 6 && len(candidate) > n+2 {
			d = min(d, 1+editDistance(word, candidate[:n]), 1+editDistance(word, candidate[:n+1]))
		}
		if d < bestDist {
			best, bestDist = candidate, d
		}
	}
	return best
}

// editDistance returns the Damerau-Levenshtein distance in bytes: an exchange of two neighbours is
// one edit. For texts longer than any name it returns the length of the longer one, to bound the
// cost.
func editDistance(a, b string) int {
	if longest := max(len(a), len(b)); longest > maxName {
		return longest
	}
	before := make([]int, len(b)+1)
	above := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row = above, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(above[j], row[j-1]) + 1
			if a[i-1] == b[j-1] {
				row[j] = above[j-1]
				continue
			}
			row[j] = min(row[j], above[j-1]+1)
			isExchange := i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1]
			if isExchange {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
