package stat

// This file has the distance of two distributions beyond a tolerance.

import "math"

// DistanceBeyond returns how far apart the distributions of two samples of positive values are
// beyond a relative tolerance d of the values:
//
// sup over t of max(F_a(t) - F_b(t(1+d)), F_b(t) - F_a(t(1+d)))
//
// For d = 0 it is the Kolmogorov-Smirnov distance. It is 0 if one sample can be changed into the
// other by changing every value by at most the factor 1+d. Both samples are sorted and not empty.
func DistanceBeyond(a, b []float64, d float64) float64 {
	n, m := float64(len(a)), float64(len(b))
	most := 0.0
	above, below := 0, 0 // of the last searches: their values ascend
	// F_a rises at its values only, and between two of them F_b(t) is largest just before the next: one
	// search of b for each value of a and direction finds the supremum.
	for i, v := range a {
		if i+1 == len(a) || a[i+1] != v {
			above = searchFrom(b, above, math.Nextafter(v*(1+d), math.Inf(1)))
			most = max(most, float64(i+1)/n-float64(above)/m)
		}
		if i == 0 || a[i-1] != v {
			below = searchFrom(b, below, v/(1+d))
			most = max(most, float64(below)/m-float64(i)/n)
		}
	}
	return most
}

// LargestBeyond returns the largest DistanceBeyond of one of some lists from all of them together, for the
// tolerance d and for none. pool has the values of all lists, sorted; each list may be in any order.
func LargestBeyond(lists [][]float64, pool []float64, d float64) (beyond, plain float64) {
	m := float64(len(pool))
	// By place in the pool, the numbers that DistanceBeyond searches for.
	above, below := poolCounts(pool, d)
	upTo, _ := poolCounts(pool, 0)
	for _, list := range lists {
		n := float64(len(list))
		at := 0 // place of the first value of the pool that equals v
		for i, v := range Sorted(list) {
			at = searchFrom(pool, at, v)
			before := float64(i) / n
			after := float64(i+1) / n
			beyond = max(beyond, after-float64(above[at])/m, float64(below[at])/m-before)
			plain = max(plain, after-float64(upTo[at])/m, float64(at)/m-before)
		}
	}
	return beyond, plain
}

// poolCounts returns, for each value v of a sorted list, how many values are at most v(1+d), and how many are below v/(1+d).
func poolCounts(sorted []float64, d float64) (above, below []int32) {
	above = make([]int32, len(sorted))
	below = make([]int32, len(sorted))
	to, from := 0, 0
	for i, v := range sorted {
		for to < len(sorted) && sorted[to] <= v*(1+d) {
			to++
		}
		for sorted[from] < v/(1+d) {
			from++
		}
		above[i] = int32(to)
		below[i] = int32(from)
	}
	return above, below
}

// searchFrom returns the position of the first value >= x; those before from are smaller. It is fast when
// that position is near.
func searchFrom(sorted []float64, from int, x float64) int {
	step := 1
	for from+step < len(sorted) && sorted[from+step] < x {
		from += step
		step *= 2
	}
	to := min(from+step, len(sorted))
	for from < to {
		middle := int(uint(from+to) / 2)
		if sorted[middle] < x {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return from
}
