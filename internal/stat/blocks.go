package stat

// This file has intervals of means over series in time order, from the scatter of block means.

import (
	"math"
)

// mostBlocks and leastBlocks bound the number of blocks into which a series in time order is
// divided. The means of the blocks are treated as independent.
const (
	mostBlocks  = 20
	leastBlocks = 5
	// blockValues is how many values a block has at least, where that leaves leastBlocks.
	blockValues = 8
	// FewestInBlocks is the shortest series that has an interval.
	FewestInBlocks = 4 * leastBlocks
)

// TrimmedMean returns the mean of the values without the given share of the smallest and of the
// largest, with its 95 % interval; the values are in time order. Neighbours may be correlated: the
// interval is Student's t of the means of blocks of neighbours, of the trimmed mean's influence
// function. It is infinite for fewer than FewestInBlocks values, and all is NaN without values.
//
// Source: Tukey and McLaughlin, Sankhya A 25 (1963), for the winsorised variance of a trimmed mean;
// Alexopoulos and Seila, Handbook of Simulation (1998), chapter 7, for batch means.
func TrimmedMean(series []float64, share float64) (mean, lo, hi float64) {
	n := len(series)
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	sorted := Sorted(series)
	cut := int(share * float64(n))
	mean = Mean(sorted[cut : n-cut])
	if n < FewestInBlocks {
		return mean, math.Inf(-1), math.Inf(1)
	}
	// The trimmed mean scatters like the mean of the values cut off at the quantiles (winsorised), over the
	// share of values that are kept.
	least, most := sorted[cut], sorted[n-1-cut]
	influence := make([]float64, n)
	for i, v := range series {
		influence[i] = math.Min(math.Max(v, least), most)
	}
	kept := float64(n-2*cut) / float64(n)
	half := blockHalfWidth(influence) / kept
	return mean, mean - half, mean + half
}

// blockHalfWidth returns half the width of the 95 % interval of the mean of a series.
func blockHalfWidth(series []float64) float64 {
	means := blockMeans(series)
	return StudentT(0.975, float64(len(means)-1)) * StdErr(means)
}

// blockMeans returns the means of blocks of neighbours.
func blockMeans(series []float64) []float64 {
	n := len(series)
	blocks := max(leastBlocks, min(mostBlocks, n/blockValues))
	means := make([]float64, blocks)
	for k := range means {
		means[k] = Mean(series[k*n/blocks : (k+1)*n/blocks])
	}
	return means
}

// RatioOfSums returns sum(a)/sum(b) with its 95 % interval by blocks of neighbours, as
// TrimmedMean's.
func RatioOfSums(a, b []float64) (ratio, lo, hi float64) {
	n := len(a)
	if n == 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	meanB := Mean(b)
	ratio = Mean(a) / meanB
	if n < FewestInBlocks {
		return ratio, math.Inf(-1), math.Inf(1)
	}
	influence := make([]float64, n)
	for i := range a {
		influence[i] = (a[i] - ratio*b[i]) / meanB
	}
	half := blockHalfWidth(influence)
	return ratio, ratio - half, ratio + half
}
