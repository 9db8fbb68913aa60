package predictor

import (
	"cmp"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
)

// Streams of draws.
const (
	streamRows uint64 = iota + 1
	streamCols
)

// drawColumns picks share of the columns, at least one, in ascending order.
func drawColumns(n int, share float64, seed, tree uint64) []int {
	columns := make([]int, n)
	keys := make([]float64, n)
	for c := range columns {
		columns[c], keys[c] = c, stat.Draw(seed, streamCols, tree, uint64(c))
	}
	slices.SortFunc(columns, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	columns = columns[:max(1, int(math.Round(share*float64(n))))]
	slices.Sort(columns)
	return columns
}
