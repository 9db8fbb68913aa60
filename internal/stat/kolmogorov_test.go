package stat

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/repo"
)

// TestTiesAreResolvedAfterAllEqualValues: a gap inside a run of ties is no gap.
func TestTiesAreResolvedAfterAllEqualValues(t *testing.T) {
	k := KolmogorovSmirnov([]float64{1, 1, 1, 2}, []float64{1, 2, 2, 2})
	if k.D != 0.5 || k.At != 1 || k.AShare != 0.75 || k.BShare != 0.25 {
		t.Errorf("got D %v at %v (%v, %v), want 0.5 at 1 (0.75, 0.25)", k.D, k.At, k.AShare, k.BShare)
	}
}

// TestKSAgainstTheDumbTwin evaluates both ECDFs at every value.
func TestKSAgainstTheDumbTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		a, b := small(rng), small(rng)
		want := 0.0
		for _, v := range append(slices.Clone(a), b...) {
			want = math.Max(want, math.Abs(shareUpTo(a, v)-shareUpTo(b, v)))
		}
		if got := KolmogorovSmirnov(a, b); math.Abs(got.D-want) > 1e-15 {
			t.Fatalf("round %d: got %v, want %v", round, got.D, want)
		}
		if ab, ba := KolmogorovSmirnov(a, b), KolmogorovSmirnov(b, a); ab.D != ba.D || math.Abs(ab.PExact()-ba.PExact()) > 1e-14 {
			t.Fatalf("round %d: not symmetric: %v %v", round, ab, ba)
		}
	}
}

// TestExactPCountsPaths enumerates every order of 4 + 5 distinct values.
func TestExactPCountsPaths(t *testing.T) {
	const n, m = 4, 5
	for dist := int64(1); dist <= n*m; dist++ {
		total, hit := 0, 0
		for mask := 0; mask < 1<<(n+m); mask++ {
			i := int64(0)
			j := int64(0)
			far := int64(0)
			for bit := 0; bit < n+m; bit++ {
				if mask>>bit&1 == 1 {
					i++
				} else {
					j++
				}
				far = max(far, abs64(i*m-j*n))
			}
			if i != n {
				continue
			}
			total++
			if far >= dist {
				hit++
			}
		}
		want := float64(hit) / float64(total)
		if got := exactP(n, m, dist); math.Abs(got-want) > 1e-12 {
			t.Errorf("distance %d/20: got %v, want %v", dist, got, want)
		}
	}
}

// TestExactPRowByRow: rows that are computed together have the bits of rows that are computed one after the other.
func TestExactPRowByRow(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 3))
	for range 3000 {
		n, m := 1+rng.Int64N(60), 1+rng.Int64N(60)
		dist := 1 + rng.Int64N(n*m)
		q := slices.Repeat([]float64{1}, int(m+1))
		for i := range n + 1 {
			for j := range m + 1 {
				switch left := j - 1; {
				case abs64(i*m-j*n) >= dist:
					q[j] = 1
				case i+j == 0:
					q[j] = 0
				case left < 0:
					q[j] = (float64(i)*q[j] + 0) / float64(i)
				default:
					q[j] = (float64(i)*q[j] + float64(j)*q[left]) / float64(i+j)
				}
			}
		}
		if got := exactP(n, m, dist); got != q[m] {
			t.Fatalf("%d and %d values, distance %d: got %v, want %v", n, m, dist, got, q[m])
		}
	}
}

// BenchmarkExactP is the exact p-value of the largest samples that have one.
func BenchmarkExactP(b *testing.B) {
	for b.Loop() {
		exactP(4000, 4000, 16_000_000/8)
	}
}

// TestKolmogorovSurvivalIsContinuous where its two series meet, and hits the 5 % point.
func TestKolmogorovSurvivalIsContinuous(t *testing.T) {
	below := KolmogorovSurvival(1.18 - 1e-12)
	above := KolmogorovSurvival(1.18 + 1e-12)
	if math.Abs(below-above) > 1e-10 {
		t.Errorf("got %v below and %v above 1.18", below, above)
	}
	if p := KolmogorovSurvival(1.3581); math.Abs(p-0.05) > 1e-5 {
		t.Errorf("P(K >= 1.3581): got %v, want 0.05", p)
	}
}

func TestWassersteinOfAShiftIsTheShift(t *testing.T) {
	a := []float64{1, 5, 2, 9}
	b := []float64{4, 8, 5, 12}
	if w := Wasserstein(a, b); math.Abs(w-3) > 1e-12 {
		t.Errorf("got %v, want 3", w)
	}
	if w := Wasserstein(a, a); w != 0 {
		t.Errorf("itself: got %v, want 0", w)
	}
	if w := Wasserstein([]float64{0}, []float64{0, 1}); math.Abs(w-0.5) > 1e-12 {
		t.Errorf("unequal sizes: got %v, want 0.5", w)
	}
}

// TestEffectiveSizeFollowsTheAutocorrelation: an AR(1) series with correlation
// 0.8 is worth (1-0.8)/(1+0.8) = 1/9 of its length, in the median over series.
func TestEffectiveSizeFollowsTheAutocorrelation(t *testing.T) {
	const n = 4000
	var whites, reds []float64
	for seed := range uint64(15) {
		rng := rand.New(rand.NewPCG(seed, 7))
		white := make([]float64, n)
		red := make([]float64, n)
		x := 0.0
		for i := range white {
			white[i] = rng.NormFloat64()
			x = 0.8*x + white[i]
			red[i] = x
		}
		whites = append(whites, EffectiveSize(white))
		reds = append(reds, EffectiveSize(red))
	}
	if e := Median(whites); e < 0.85*n || e > n {
		t.Errorf("white: got %.0f of %d", e, n)
	}
	if e := Median(reds); e < n/9*0.85 || e > n/9*1.2 {
		t.Errorf("red: got %.0f, want about %d", e, n/9)
	}
	if e := EffectiveSize([]float64{3, 3, 3, 3, 3}); e != 5 {
		t.Errorf("constant: got %v, want 5", e)
	}
}

func small(rng *rand.Rand) []float64 {
	s := make([]float64, 1+rng.IntN(12))
	for i := range s {
		s[i] = float64(rng.IntN(8))
	}
	return s
}

func shareUpTo(s []float64, v float64) float64 {
	n := 0
	for _, x := range s {
		if x <= v {
			n++
		}
	}
	return float64(n) / float64(len(s))
}

// TestGolden checks the KS vectors of an independent implementation.
func TestGolden(t *testing.T) {
	dir := os.Getenv("BLIS_TRAIN_GOLDEN_RIDGE")
	if dir == "" {
		dir = "testdata"
	}
	var doc struct {
		Tolerance struct {
			Statistic float64 `json:"statistic_absolute"`
			PRel      float64 `json:"p_relative"`
			PAbs      float64 `json:"p_absolute"`
		}
		Cases []struct {
			ID         string
			A, B       []float64
			N, M       int
			Statistic  float64
			EffectiveN float64 `json:"effective_n"`
			PLimit     float64 `json:"p_kolmogorov_limit"`
			PExact     float64 `json:"p_exact"`
			Critical   float64 `json:"critical_5pct"`
			Enough     bool    `json:"enough_data_for_0_15"`
		}
	}
	data := repo.Read(t, dir, "ks.json")
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	near := func(got, want float64) bool {
		return math.Abs(got-want) <= math.Max(doc.Tolerance.PAbs, doc.Tolerance.PRel*math.Abs(want))
	}
	for _, c := range doc.Cases {
		k := KolmogorovSmirnov(c.A, c.B)
		if math.Abs(k.D-c.Statistic) > doc.Tolerance.Statistic {
			t.Errorf("%s: D: got %v, want %v", c.ID, k.D, c.Statistic)
		}
		if k.N != c.N || k.M != c.M || !near(effectiveN(k.N, k.M), c.EffectiveN) {
			t.Errorf("%s: n, m: got %d, %d, want %d, %d", c.ID, k.N, k.M, c.N, c.M)
		}
		if !near(k.PAsymptotic, c.PLimit) {
			t.Errorf("%s: asymptotic p: got %v, want %v", c.ID, k.PAsymptotic, c.PLimit)
		}
		if !near(k.PExact(), c.PExact) {
			t.Errorf("%s: exact p: got %v, want %v", c.ID, k.PExact(), c.PExact)
		}
	}
	fmt.Printf("golden: %d cases of two-sample KS\n", len(doc.Cases))
	if len(doc.Cases) == 0 {
		t.Error("no cases")
	}
}
