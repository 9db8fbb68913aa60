package forest

import (
	"cmp"
	"math"
	"slices"
)

// Streams of draws.
const (
	streamRows uint64 = iota + 1
	streamCols
)

// draw is a uniform number in [0, 1) that depends on its arguments alone.
//
// Source: the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) over a
// chain of the arguments.
func draw(seed, stream, tree, index uint64) float64 {
	return float64(mix(mix(mix(mix(seed)^stream)^tree)^index)>>11) / (1 << 53)
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// drawColumns picks share of the columns, at least one, in ascending order.
func drawColumns(n int, share float64, seed, tree uint64) []int {
	columns := make([]int, n)
	keys := make([]float64, n)
	for c := range columns {
		columns[c], keys[c] = c, draw(seed, streamCols, tree, uint64(c))
	}
	slices.SortFunc(columns, func(a, b int) int { return cmp.Or(cmp.Compare(keys[a], keys[b]), cmp.Compare(a, b)) })
	columns = columns[:max(1, int(math.Round(share*float64(n))))]
	slices.Sort(columns)
	return columns
}
