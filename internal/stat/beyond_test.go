package stat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestDistanceBeyond: without a tolerance it is the distance of Kolmogorov and Smirnov; a sample moved by
// the tolerance is at 0, and a tail that one side lacks counts whatever the tolerance is.
func TestDistanceBeyond(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		a := make([]float64, 1+rng.IntN(40))
		b := make([]float64, 1+rng.IntN(40))
		for _, s := range [][]float64{a, b} {
			for i := range s {
				s[i] = 1 + math.Floor(10*rng.Float64())
			}
		}
		if got, want := DistanceBeyond(Sorted(a), Sorted(b), 0), Distance(a, b); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v, %v: got %v, want %v", a, b, got, want)
		}
		// By its definition, on a fine grid.
		const d = 0.1
		share := func(s []float64, limit float64) float64 {
			n := 0
			for _, v := range s {
				if v <= limit {
					n++
				}
			}
			return float64(n) / float64(len(s))
		}
		want := 0.0
		for v := 0.5; v < 14; v += 0.003 {
			want = max(want, share(a, v)-share(b, v*(1+d)), share(b, v)-share(a, v*(1+d)))
		}
		if got := DistanceBeyond(Sorted(a), Sorted(b), d); math.Abs(got-want) > 1e-12 {
			t.Fatalf("%v, %v: got %v, want %v", a, b, got, want)
		}
	}
	a := []float64{100, 101, 102, 103}
	if got := DistanceBeyond(a, []float64{104.9, 106, 107, 108}, 0.05); got != 0 {
		t.Errorf("moved by less than the tolerance: got %v", got)
	}
	if got := DistanceBeyond(a, []float64{100, 101, 102, 200}, 0.05); got != 0.25 {
		t.Errorf("a tail on one side: got %v", got)
	}
}

// TestLargestBeyond: it is the largest distance of a list from all lists, also where values are equal.
func TestLargestBeyond(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 100 {
		lists := make([][]float64, 1+rng.IntN(6))
		for k := range lists {
			lists[k] = make([]float64, 1+rng.IntN(30))
			for i := range lists[k] {
				lists[k][i] = 1 + math.Floor(20*rng.Float64())/8
			}
		}
		pool := Sorted(slices.Concat(lists...))
		wantBeyond, wantPlain := 0.0, 0.0
		for _, list := range lists {
			wantBeyond = max(wantBeyond, DistanceBeyond(Sorted(list), pool, 0.2))
			wantPlain = max(wantPlain, DistanceBeyond(Sorted(list), pool, 0))
		}
		if beyond, plain := LargestBeyond(lists, pool, 0.2); beyond != wantBeyond || plain != wantPlain {
			t.Fatalf("%v: got %v and %v, want %v and %v", lists, beyond, plain, wantBeyond, wantPlain)
		}
	}
}

// TestBlockIntervals: the 95 % interval of a correlated series holds the truth in at least 90 of 100, where
// an interval of independent values holds it in a third.
func TestBlockIntervals(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	trimmed, ratio := 0, 0
	const draws = 400
	for range draws {
		series := make([]float64, 400)
		ones := make([]float64, 400)
		z := rng.NormFloat64()
		for i := range series {
			z = 0.7*z + math.Sqrt(1-0.7*0.7)*rng.NormFloat64()
			series[i] = 1 + z
			ones[i] = 1
		}
		if _, lo, hi := TrimmedMean(series, 0.1); lo < 1 && hi > 1 {
			trimmed++
		}
		if _, lo, hi := RatioOfSums(series, ones); lo < 1 && hi > 1 {
			ratio++
		}
	}
	if trimmed < draws*90/100 || ratio < draws*90/100 || trimmed > draws*98/100 {
		t.Errorf("of %d intervals %d and %d hold the truth", draws, trimmed, ratio)
	}
	if mean, lo, hi := TrimmedMean([]float64{1, 2, 3}, 0.1); mean != 2 || !math.IsInf(lo, -1) || !math.IsInf(hi, 1) {
		t.Errorf("three values: got %v in %v to %v", mean, lo, hi)
	}
}
