package rows

import (
	"encoding/binary"
	"math/bits"

	"github.com/blis-train/blis-train/trace"

	"github.com/zeebo/xxh3"
)

// DefaultMaxRows is how many rows a fit learns from at most, and a validation judges (spec#max-rows).
const DefaultMaxRows = 10_000_000

// leastMaxRows is the least that may be asked for: every piece of every fold needs rows.
const leastMaxRows = 1000

// CheckMaxRows refuses a number of rows that nothing can be learned from; 0 is all of them.
func CheckMaxRows(n int) error {
	if n != 0 && n < leastMaxRows {
		return trace.Errorf(codeBadOption, "--max-rows: got %d, want 0 for all rows or at least %d", n, leastMaxRows)
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

// Stride is one row of how many stays where there may be most, so that no more than maxRows do: 1 where all
// of them stay, as with maxRows 0.
func Stride(most int64, maxRows int) int {
	if maxRows <= 0 {
		return 1
	}
	return int(max(1, (most+int64(maxRows)-1)/int64(maxRows)))
}

// Thinned says that one row in stride is used where there may be most; nothing of all of them.
func Thinned(most int64, stride int) []trace.Finding {
	if stride <= 1 {
		return nil
	}
	return []trace.Finding{trace.Findingf(codeRowsThinned, "one row in %d, evenly chosen: there are up to %d; --max-rows N takes more, 0 all",
		stride, most)}
}

// Thin keeps about one row in stride and drops the others (spec#max-rows). What stays depends on a row's
// time alone: the same steps in every table of a run, however it was cut, and of two strides the longer one's
// rows are among those of the shorter. Columns get memory of their own. A stride up to 1 keeps all; t may be nil.
func (t *Table) Thin(stride int) {
	if t == nil || stride <= 1 {
		return
	}
	thin := t.Select(func(i int) bool { return stays(t.TimeNs[i], stride) })
	thin.Read, thin.Dropped = t.Read, t.Dropped
	if gone := t.Kept - thin.Kept; gone > 0 {
		thin.drop(codeThinned, gone)
	}
	thin.check()
	*t = *thin
}

// stays reports whether the hash of a time, of 2^64 values, falls into the first of stride parts.
func stays(ns int64, stride int) bool {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(ns))
	part, _ := bits.Mul64(xxh3.Hash(b[:]), uint64(stride))
	return part == 0
}
