package sorting

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRecords: the same order as the library's stable sort, of any length and with many
// equal rows.
func TestRecords(t *testing.T) {
	type record struct {
		key   int
		place int
		text  string
	}
	byKey := func(a, b record) int { return cmp.Compare(a.key, b.key) }
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 13, 500} {
		rows := make([]record, n)
		for i := range rows {
			rows[i] = record{rng.IntN(1 + n/3), i, "x"}
		}
		want := slices.Clone(rows)
		slices.SortStableFunc(want, byKey)
		if Records(rows, byKey); !slices.Equal(rows, want) {
			t.Errorf("%d rows: got %v, want %v", n, rows, want)
		}
	}
}
