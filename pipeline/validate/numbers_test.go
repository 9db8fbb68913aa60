package validate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQ5TiesAreResolvedAfterAllEqualValues: a gap inside a run of ties is no gap.
func TestQ5TiesAreResolvedAfterAllEqualValues(t *testing.T) {
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
		if ab, ba := KolmogorovSmirnov(a, b), KolmogorovSmirnov(b, a); ab.D != ba.D || math.Abs(ab.PExact-ba.PExact) > 1e-14 {
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
			i, j, far := int64(0), int64(0), int64(0)
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

// TestKolmogorovSurvivalIsContinuous where its two series meet, and hits the 5 % point.
func TestKolmogorovSurvivalIsContinuous(t *testing.T) {
	below, above := KolmogorovSurvival(1.18-1e-12), KolmogorovSurvival(1.18+1e-12)
	if math.Abs(below-above) > 1e-10 {
		t.Errorf("got %v below and %v above 1.18", below, above)
	}
	if p := KolmogorovSurvival(1.3581); math.Abs(p-0.05) > 1e-5 {
		t.Errorf("P(K >= 1.3581): got %v, want 0.05", p)
	}
}

// TestQ5NeedsAtLeast164Requests on each side for D < 0.15.
func TestQ5NeedsAtLeast164Requests(t *testing.T) {
	if CriticalD(163, 163) < 0.15 || CriticalD(164, 164) >= 0.15 {
		t.Errorf("got %v at 163 and %v at 164", CriticalD(163, 163), CriticalD(164, 164))
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
		white, red := make([]float64, n), make([]float64, n)
		x := 0.0
		for i := range white {
			white[i] = rng.NormFloat64()
			x = 0.8*x + white[i]
			red[i] = x
		}
		whites, reds = append(whites, EffectiveSize(white)), append(reds, EffectiveSize(red))
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

func TestCompareReportsBothMedians(t *testing.T) {
	real, sim := []float64{100, 200, 300, 400}, []float64{110, 180, 330, 400}
	m := Compare(real, sim, true)
	if math.Abs(m.MedianRelErr-5.0/250) > 1e-12 {
		t.Errorf("unpaired: got %v, want %v", m.MedianRelErr, 5.0/250)
	}
	if m.MedianRelErrPaired == nil || math.Abs(*m.MedianRelErrPaired-0.1) > 1e-12 {
		t.Errorf("paired: got %v, want 0.1", m.MedianRelErrPaired)
	}
	if m.RealVsRealD == nil || *m.RealVsRealD != 1 {
		t.Errorf("halves: got %v, want 1", m.RealVsRealD)
	}
	if Compare(real, sim, false).MedianRelErrPaired != nil {
		t.Error("unpaired comparison has a paired error")
	}
	if Compare(nil, sim, true) != nil {
		t.Error("a missing side must give null")
	}
}

func TestDriftCurveFollowsTheMachine(t *testing.T) {
	var at []int64
	var y, pred []float64
	for i := range int64(3000) { // 60 s at 20 ms, speed 1, 1.4, 0.95
		factor := []float64{1, 1.4, 0.95}[i/1000]
		at, y, pred = append(at, 5e9+i*20e6), append(y, 50e3*factor), append(pred, 50e3)
	}
	d := DriftOf(at, y, pred)
	if len(d.Points) != 3 || d.Points[1].StartS != 20 || math.Abs(d.Points[1].Factor-1.4) > 1e-12 {
		t.Fatalf("got %+v", d.Points)
	}
	for _, c := range []struct {
		ns   int64
		want float64
	}{{0, 1}, {5e9 + 19e9, 1}, {5e9 + 20e9, 1.4}, {5e9 + 200e9, 0.95}} {
		if got := d.At(c.ns); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("at %d ns: got %v, want %v", c.ns, got, c.want)
		}
	}
	if f := d.finding("r"); len(f) != 1 || f[0].Code != CodeMachineDrift {
		t.Errorf("finding: got %v, want %s", f, CodeMachineDrift)
	}
	if s := d.Swing(); math.Abs(s-1.4/0.95) > 1e-12 {
		t.Errorf("swing: got %v", s)
	}
}

// TestDriftGapsTakeTheBlockBefore: an idle block has no median of its own.
func TestDriftGapsTakeTheBlockBefore(t *testing.T) {
	var at []int64
	var y, pred []float64
	add := func(startS int64, factor float64) {
		for i := range int64(10) {
			at, y, pred = append(at, startS*1e9+i*1e8), append(y, factor), append(pred, 1)
		}
	}
	add(0, 1.05)
	add(40, 0.95)
	d := DriftOf(at, y, pred)
	if got := d.At(25e9); got != 1.05 {
		t.Errorf("gap: got %v, want 1.05", got)
	}
	if d.finding("r") != nil {
		t.Error("a curve inside 0.9-1.1 is no finding")
	}
	if empty := DriftOf(nil, nil, nil); empty.At(1) != 1 || len(empty.Points) != 0 {
		t.Error("no rows: want factor 1 and no points")
	}
}

func TestCurvesAreBounded(t *testing.T) {
	big := make([]float64, 100000)
	for i := range big {
		big[i] = float64(i * 7919 % 100003)
	}
	e := ecdf(big)
	if len(e) != maxECDFPoints || e[0][0] != 0 || e[len(e)-1][1] != 1 {
		t.Errorf("ecdf: got %d points, first %v, last %v", len(e), e[0], e[len(e)-1])
	}
	if q := quantilePairs(big, big[:50]); len(q) != 50 {
		t.Errorf("qq: got %d points, want 50", len(q))
	}
	b := bands("batch", "decode", big, big)
	if len(b) != maxBands || b[0].X > b[1].X {
		t.Errorf("bands: got %d", len(b))
	}
	if one := ecdf([]float64{4}); len(one) != 1 || one[0] != [2]float64{4, 1} {
		t.Errorf("single value: got %v", one)
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

// TestQ5EnoughFor: a limit of 0.15 needs 164 requests on each side, and the size
// is the least whose critical distance is below the limit.
func TestQ5EnoughFor(t *testing.T) {
	if n := EnoughFor(0.15); n != 164 {
		t.Errorf("got %d requests for 0.15, want 164", n)
	}
	for _, limit := range []float64{0.05, 0.1, 0.15, 0.3} {
		n := EnoughFor(limit)
		if CriticalD(n, n) >= limit || CriticalD(n-1, n-1) < limit {
			t.Errorf("%v: got %d requests with critical distance %v, before it %v", limit, n, CriticalD(n, n), CriticalD(n-1, n-1))
		}
	}
}
