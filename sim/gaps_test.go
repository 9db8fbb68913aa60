package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestGapQuantilesAreNearestRanks compares the quantiles of a request's gaps with those of the sorted
// list: the smallest gap that at least half, or 99 %, of the gaps do not exceed. At whole hundreds
// the rank is exact, and one more or less would be another gap.
func TestGapQuantilesAreNearestRanks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 4, 99, 100, 101, 199, 200, 201, 300, 1000} {
		gaps := make([]int32, n)
		for i := range gaps {
			gaps[i] = int32(1000 + 10*i) // all different, so that a rank is one gap
		}
		sorted := slices.Clone(gaps)
		rng.Shuffle(n, func(i, k int) { gaps[i], gaps[k] = gaps[k], gaps[i] })
		rank := func(share float64) float64 {
			return (float64(sorted[int(math.Ceil(share*float64(n)-1e-9))-1]) + 250) / 1000
		}
		g := &gapLog{tokenUs: 250}
		p50, p99 := g.quantiles(&seq{gaps: gaps})
		if !p50.OK || !p99.OK || p50.V != rank(0.5) || p99.V != rank(0.99) {
			t.Errorf("%d gaps: got %v and %v ms, want %g and %g", n, p50, p99, rank(0.5), rank(0.99))
		}
	}
	if p50, p99 := new(gapLog).quantiles(&seq{}); p50.OK || p99.OK {
		t.Errorf("no gaps: got %v and %v, want both unknown", p50, p99)
	}
}
