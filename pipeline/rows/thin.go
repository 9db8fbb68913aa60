package rows

// This file thins the rows of long recordings to a limit (spec#max-rows).

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/blis-train/blis-train/trace"
)

// DefaultMaxRows is the default limit of rows in a fit or a validation (spec#max-rows).
const DefaultMaxRows = 500_000

// leastMaxRows is the smallest limit accepted: every block of every cross-validation fold needs rows.
const leastMaxRows = 1000

// CheckMaxRows returns an error for a limit that is too small for a fit; 0 means no limit.
func CheckMaxRows(n int) error {
	if n != 0 && n < leastMaxRows {
		return trace.Errorf(BadOption, "--max-rows: got %d, want 0 for all rows or at least %d", n, leastMaxRows)
	}
	return nil
}

// RecordedMaxRows returns the limit that a fit's document records; nil is the default.
func RecordedMaxRows(n *int) int {
	if n == nil {
		return DefaultMaxRows
	}
	return *n
}

// Expected returns how many of n rows thinning keeps, and a few more, because it keeps about one row in stride.
func Expected(n, stride int) int {
	if stride <= 1 {
		return n
	}
	kept := n / stride
	return kept + kept/64
}

// Strides returns for each run the stride with which its rows are thinned, one in stride kept, so
// that about maxRows remain. most[i] bounds the rows of run i, configs[i] is its configuration.
// maxRows is divided evenly among configurations; one with fewer rows keeps all, and the others
// share the remainder. A warning is returned if rows are thinned. maxRows 0 keeps all.
func Strides(most []int64, configs []string, maxRows int) (strides []int, found []trace.Finding) {
	rowsOf := map[string]int64{} // by configuration
	for i, n := range most {
		rowsOf[configs[i]] += n
	}
	left := int64(maxRows)
	level := int64(0) // rows for each configuration that has more
	// Smallest configurations first: what one leaves of its share goes to the larger ones.
	for i, n := range slices.Sorted(maps.Values(rowsOf)) {
		level = max(1, left/int64(len(rowsOf)-i))
		left -= min(n, level)
	}
	strides = make([]int, len(most))
	var all, kept int64
	for i, n := range most {
		strides[i] = 1
		if maxRows > 0 {
			strides[i] = int(max(1, (rowsOf[configs[i]]+level-1)/level))
		}
		all += n
		kept += n / int64(strides[i])
	}
	if kept < all {
		found = append(found, trace.Findingf(codeRowsThinned,
			"about %d rows, evenly chosen, of up to %d: the key max-rows takes more, 0 all", kept, all))
	}
	return strides, found
}

// IsThinned reports whether rows were dropped to keep the limit of rows.
func (t *Table) IsThinned() bool { return t.DroppedFor(codeRowsThinned) > 0 }

// survivesThinning reports whether a row is the one in stride that is kept (spec#max-rows): the
// 64-bit hash of its time is in the first of stride equal parts. Because it depends on nothing
// else, the same steps are kept in every table of a run, and the rows of a larger stride are a
// subset of those of a smaller one. A stride of at most 1 keeps all.
func survivesThinning(ns int64, stride int) bool {
	if stride <= 1 {
		return true
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(ns))
	part, _ := bits.Mul64(xxh3.Hash(b[:]), uint64(stride))
	return part == 0
}
