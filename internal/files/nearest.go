package files

import (
	"slices"
	"strings"
)

// maxName is longer than any key or flag.
const maxName = 100

// Nearest returns the legal word that word ends as, or is the beginning of (a unit left out), else the one within
// a third of its length in edits, as a whole or cut short, else "".
func Nearest(word string, legal []string) string {
	if i := slices.IndexFunc(legal, func(c string) bool {
		return len(word) > 2 && !slices.Contains(legal, word) && (strings.HasSuffix(c, "-"+word) || strings.HasSuffix(word, "-"+c))
	}); i >= 0 {
		return legal[i]
	}
	for _, candidate := range legal {
		if rest, begins := strings.CutPrefix(candidate, word); begins && len(word) > 2 && strings.IndexAny(rest, "_-") == 0 {
			return candidate
		}
	}
	best, bestDist := "", len(word)/3+1
	for _, candidate := range legal {
		d := editDistance(word, candidate)
		if n := len(word); n >= 6 && len(candidate) > n+2 {
			d = min(d, 1+editDistance(word, candidate[:n]), 1+editDistance(word, candidate[:n+1]))
		}
		if d < bestDist {
			best, bestDist = candidate, d
		}
	}
	return best
}

// editDistance is the Levenshtein distance in bytes, two neighbours exchanged counting as one edit; of texts too long
// for a name it is the length of the longer one.
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
			} else if row[j] = min(row[j], above[j-1]+1); i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
