package rows

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"slices"

	"github.com/zeebo/xxh3"

	"github.com/blis-train/blis-train/trace"
)

// DefaultMaxRows is how many rows a fit learns from at most, and a validation judges (spec#max-rows).
const DefaultMaxRows = 500_000

// leastMaxRows is the least that may be asked for: every piece of every fold needs rows.
const leastMaxRows = 1000

// CheckMaxRows refuses a number of rows that nothing can be learned from; 0 is all of them.
func CheckMaxRows(n int) error {
	if n != 0 && n < leastMaxRows {
		return trace.Errorf(BadOption, "--max-rows: got %d, want 0 for all rows or at least %d", n, leastMaxRows)
	}
	return nil
}

// RecordedMaxRows is the number of rows that a document of a fit names; nil: it was the default.
func RecordedMaxRows(n *int) int {
	if n == nil {
		return DefaultMaxRows
	}
	return *n
}

// Strides are one row of how many stays of each of several runs, which have a configuration and may have so many
// rows, so that no more than maxRows stay: a configuration with few rows keeps them all, the others as many as each
// other. Where that leaves rows out a warning says so; maxRows 0 leaves out none.
func Strides(most []int64, configs []string, maxRows int) (strides []int, found []trace.Finding) {
	of := map[string]int64{}
	for i, n := range most {
		of[configs[i]] += n
	}
	left, level := int64(maxRows), int64(0)
	for i, n := range slices.Sorted(maps.Values(of)) {
		level = max(1, left/int64(len(of)-i))
		left -= min(n, level)
	}
	strides = make([]int, len(most))
	var all, kept int64
	for i, n := range most {
		if strides[i] = 1; maxRows > 0 {
			strides[i] = int(max(1, (of[configs[i]]+level-1)/level))
		}
		all, kept = all+n, kept+n/int64(strides[i])
	}
	if kept < all {
		found = append(found, trace.Findingf(codeRowsThinned, "about %d rows, evenly chosen, of up to %d: the key max-rows takes more, 0 all",
			kept, all))
	}
	return strides, found
}

// IsThinned reports whether rows were left out.
func (t *Table) IsThinned() bool { return t.DroppedFor(codeRowsThinned) > 0 }

// survivesThinning reports whether a row is among the one in stride that stays (spec#max-rows): the hash of its time, of 2^64
// values, falls into the first of stride parts. It depends on the time alone: the same steps stay in every table of a
// run, however it was cut, and of two strides the longer one's rows are among those of the shorter. A stride up to 1
// keeps all.
func survivesThinning(ns int64, stride int) bool {
	if stride <= 1 {
		return true
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(ns))
	part, _ := bits.Mul64(xxh3.Hash(b[:]), uint64(stride))
	return part == 0
}
