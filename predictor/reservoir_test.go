package predictor

import (
	"runtime"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// Of 100,000 rows in one bucket each is kept with the same chance: over blocks of
// the stream the counts pass a chi-square test, for several seeds.
func TestReservoirIsUniform(t *testing.T) {
	const n, keep, blocks = 100_000, 5000, 100
	for seed := range uint64(5) {
		r := newReservoir[int](1, keep, seed)
		for i := range n {
			r.Add(0, i)
		}
		var count [blocks]float64
		seen := map[int]bool{}
		r.Each(func(_ int, i int, _ float64) {
			count[i*blocks/n]++
			seen[i] = true
		})
		if len(seen) != keep {
			t.Fatalf("seed %d: kept %d different rows, want %d", seed, len(seen), keep)
		}
		chi2 := 0.0
		for _, c := range count {
			chi2 += (c - keep/blocks) * (c - keep/blocks) / (keep / blocks * (1 - keep/float64(n)))
		}
		if chi2 > 149 { // 0.999 quantile at 99 degrees of freedom
			t.Errorf("seed %d: chi-square %.0f over %d blocks of the stream", seed, chi2, blocks)
		}
	}
}

// Weights add up to the rows seen, bucket by bucket and in all; what a bucket
// keeps does not depend on the rows of others.
func TestReservoirWeights(t *testing.T) {
	r := newReservoir[int](3, 10, 1)
	alone := newReservoir[int](3, 10, 1)
	for i := range 1000 {
		in := 0
		if i%10 == 3 {
			in = 2
			alone.Add(2, i)
		}
		r.Add(in, i)
	}
	var sums [3]float64
	var kept, keptAlone []int
	r.Each(func(in int, i int, w float64) {
		sums[in] += w
		if in == 2 {
			kept = append(kept, i)
		}
	})
	alone.Each(func(_ int, i int, _ float64) { keptAlone = append(keptAlone, i) })
	if sums != [3]float64{900, 0, 100} {
		t.Errorf("got weights %v, want 900, 0, 100", sums)
	}
	for k := range kept {
		if kept[k] != keptAlone[k] {
			t.Fatalf("got %v beside other buckets, %v alone", kept, keptAlone)
		}
	}
}

// Ten million rows over all buckets (one in go test) stay below 200 MB.
func TestEvalReservoirMemory(t *testing.T) {
	n := 1_000_000
	if repo.Eval() {
		n = 10_000_000
	}
	r := newReservoir[Row](buckets, bucketRows, 1)
	row := Row{RequestID: "x"}
	for i := range n {
		row.NumRequestWaiting, row.KVCachePercentage, row.PrefixCacheScore = int64(i%17), float64(i%101)/100, float64(i%7)/7
		r.Add(Bucket(&row), row)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d rows seen, heap %d MB", n, m.HeapAlloc>>20)
	if m.HeapAlloc > 200<<20 {
		t.Errorf("heap: got %d MB, want below 200", m.HeapAlloc>>20)
	}
	runtime.KeepAlive(r)
}
