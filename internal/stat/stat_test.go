package stat

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"
	gonum "gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.IsNaN(got) != math.IsNaN(want) || math.Abs(got-want) > tol {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// The values are numpy's: numpy.quantile([1, 2, 4, 8], p).
func TestQuantileIsType7(t *testing.T) {
	s := []float64{1, 2, 4, 8}
	for p, want := range map[float64]float64{0: 1, 0.1: 1.3, 0.25: 1.75, 0.5: 3, 0.9: 6.8, 1: 8} {
		near(t, "quantile", Quantile(s, p), want, 1e-14)
	}
	near(t, "one value", Quantile([]float64{7}, 0.3), 7, 0)
	infinite := []float64{1, 2, math.Inf(1), math.Inf(1), math.Inf(1)}
	for p, want := range map[float64]float64{0.25: 2, 0.3: math.Inf(1), 0.5: math.Inf(1), 0.8: math.Inf(1), 1: math.Inf(1)} {
		if got := Quantile(infinite, p); got != want {
			t.Errorf("quantile %g beside infinite values: got %g, want %g", p, got, want)
		}
	}
	near(t, "no values", Quantile(nil, 0.5), math.NaN(), 0)
	v := []float64{9, 1, 5, 3}
	near(t, "median", Median(v), 4, 0)
	if v[0] != 9 {
		t.Error("Median sorted its argument")
	}
	near(t, "median in place", MedianInPlace(v), 4, 0)
	if !slices.Equal(v, []float64{1, 3, 5, 9}) {
		t.Errorf("MedianInPlace left %v, want the values sorted", v)
	}
	near(t, "no values in place", MedianInPlace(nil), math.NaN(), 0)
}

// TestNearestRank: the quantile is the smallest value that is not below the share of the values.
func TestNearestRank(t *testing.T) {
	s := []float64{1, 2, 4, 8}
	for q, want := range map[float64]float64{0: 1, 0.25: 1, 0.26: 2, 0.5: 2, 0.51: 4, 0.75: 4, 0.76: 8, 0.99: 8, 1: 8} {
		near(t, "nearest rank", NearestRank(s, q), want, 0)
	}
	near(t, "no values", NearestRank(nil, 0.5), math.NaN(), 0)
}

// TestWeightedMedianIsTheBestConstant: no other value has a smaller weighted
// distance.
func TestWeightedMedianIsTheBestConstant(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		v := make([]float64, 1+rng.IntN(9))
		w := []float64(nil)
		for i := range v {
			v[i] = float64(rng.IntN(6))
			w = append(w, rng.Float64())
		}
		loss := func(c float64) (sum float64) {
			for i := range v {
				sum += w[i] * math.Abs(v[i]-c)
			}
			return sum
		}
		best := WeightedMedian(v, w)
		for _, c := range v {
			if loss(c) < loss(best)-1e-12 {
				t.Fatalf("%v with weights %v: got %v, but %v is nearer", v, w, best, c)
			}
		}
	}
	near(t, "no values", WeightedMedian(nil, nil), math.NaN(), 0)
}

func TestMeanLeavesUnknownOut(t *testing.T) {
	nan := math.NaN()
	near(t, "mean", Mean([]float64{1, nan, 3}), 2, 0)
	near(t, "none", Mean([]float64{nan}), nan, 0)
	near(t, "standard error", StdErr([]float64{1, nan, 3}), 1, 1e-15)
	near(t, "of one", StdErr([]float64{3}), 0, 0)
}

func TestThin(t *testing.T) {
	v := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	if got := Thin(v, 4); !slices.Equal(got, []int{0, 2, 5, 7}) {
		t.Errorf("got %v", got)
	}
	if got := Thin(v, 10); len(got) != 10 {
		t.Errorf("got %v", got)
	}
}

// TestAgainstGonum compares what gonum has too.
func TestAgainstGonum(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		a, b := small(rng), small(rng)
		near(t, "Wasserstein", Wasserstein(a, b), gonum.WassersteinDistance(a, b, nil, nil), 1e-12)
		near(t, "KS distance", KolmogorovSmirnov(a, b).D, gonum.KolmogorovSmirnov(Sorted(a), nil, Sorted(b), nil), 1e-12)
	}
	const m = 6
	x := mat.NewDense(40, m, nil)
	for i := range 40 {
		for j := range m {
			x.Set(i, j, rng.NormFloat64())
		}
	}
	var g mat.SymDense
	g.SymOuterK(1, x.T())
	var want mat.Cholesky
	var lower mat.TriDense
	if !want.Factorize(&g) {
		t.Fatal("gonum: not positive definite")
	}
	want.LTo(&lower)
	a := make([]float64, m*m)
	for i := range m {
		for j := range m {
			a[i*m+j] = g.At(i, j)
		}
	}
	if rank := Cholesky(a, m); rank != m {
		t.Fatalf("rank: got %d, want %d", rank, m)
	}
	for i := range m {
		for j := range i + 1 {
			near(t, "factor", a[i*m+j], lower.At(i, j), 1e-12)
		}
	}
}

// TestCholeskyOfASemidefiniteMatrix still reproduces it, and says its rank.
func TestCholeskyOfASemidefiniteMatrix(t *testing.T) {
	u := []float64{1, 2, 0, -1}
	v := []float64{0, 1, 0, 3}
	const m = 4
	a := make([]float64, m*m)
	for i := range m {
		for j := range m {
			a[i*m+j] = u[i]*u[j] + v[i]*v[j]
		}
	}
	l := slices.Clone(a)
	if rank := Cholesky(l, m); rank != 2 {
		t.Errorf("rank: got %d, want 2", rank)
	}
	for i := range m {
		for j := range i + 1 {
			var sum float64
			for k := range j + 1 {
				sum += l[i*m+k] * l[j*m+k]
			}
			near(t, "product", sum, a[i*m+j], 1e-12)
		}
	}
}

// Quantiles with one, two and four degrees of freedom have closed forms; the others are
// gonum's, which is good to 1e-9 below a thousand of them.
func TestStudentT(t *testing.T) {
	for _, p := range []float64{0.5, 0.501, 0.6, 0.9, 0.975, 0.9999} {
		four := 4 * p * (1 - p)
		root := math.Cos(math.Acos(math.Sqrt(four))/3) / math.Sqrt(four)
		for df, want := range map[float64]float64{
			1: 1 / math.Tan(math.Pi*(1-p)), 2: (2*p - 1) / math.Sqrt(2*p*(1-p)), 4: 2 * math.Sqrt(math.Max(0, root-1)),
		} {
			near(t, fmt.Sprintf("t(%g) at %g", df, p), StudentT(p, df), want, 1e-11*(want+1))
			near(t, "its mirror", StudentT(1-p, df), -StudentT(1-(1-p), df), 0)
		}
		for _, df := range []float64{0.3, 0.7, 3, 3.5, 9, 30, 317.2} {
			want := distuv.StudentsT{Sigma: 1, Nu: df}.Quantile(p)
			near(t, fmt.Sprintf("t(%g) at %g", df, p), StudentT(p, df), want, 1e-9*(want+1))
		}
	}
	near(t, "no freedom", StudentT(0.975, 0), math.NaN(), 0)
}

func TestBands(t *testing.T) {
	x := make([]float64, 100)
	v := make([]float64, 100)
	for i := range x {
		x[i], v[i] = float64(99-i), float64(i%10)
	}
	b := Bands(x, v, 4, 5)
	if len(b) != 4 || b[0].N != 25 || b[0].X != 12 || b[3].X != 87 {
		t.Fatalf("got %+v", b)
	}
	if b := Bands(x[:12], v[:12], 4, 5); len(b) != 2 {
		t.Errorf("12 values in groups of at least 5: got %d groups, want 2", len(b))
	}
	if b := Bands(x[:4], v[:4], 4, 5); len(b) != 0 {
		t.Errorf("too few values: got %+v", b)
	}
}

// TestNeighboursMatchTheSlowSearch, ties included.
func TestNeighboursMatchTheSlowSearch(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, dim := range []int{0, 1, 3} {
		const n = 400
		points := make([]float64, n*dim)
		level := make([]float64, n)
		for i := range points {
			points[i] = float64(rng.IntN(12)) // coarse values make many equal distances
		}
		for i := range level {
			level[i] = rng.Float64()
		}
		tree := NewNeighbours(points, dim, level)
		for k := range n {
			dist := make([]float64, n)
			for i := range n {
				dist[i] = squaredDistance(points[k*dim:(k+1)*dim], points[i*dim:(i+1)*dim])
			}
			var near10 []float64
			for _, i := range Order(dist) {
				if i != k && len(near10) < 10 {
					near10 = append(near10, level[i])
				}
			}
			if got, want := tree.Median(k), Median(near10); got != want {
				t.Fatalf("dimension %d, point %d: got %v, want %v", dim, k, got, want)
			}
		}
	}
}

// FuzzCholesky: whatever the numbers, no panic, and a full rank means that the
// factor is finite and solves.
func FuzzCholesky(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v []float64
		for ; len(data) >= 8; data = data[8:] {
			v = append(v, math.Float64frombits(binary.LittleEndian.Uint64(data)))
		}
		m := int(math.Sqrt(float64(len(v))))
		a := v[:m*m]
		if Cholesky(a, m) < m {
			return
		}
		for r := range m {
			if !(a[r*m+r] > 0) {
				t.Fatalf("full rank with pivot %v", a[r*m+r])
			}
		}
	})
}

// TestFarErrors: an error of less than 0.4 of a row's own time counts over that time, where it is above the median;
// errors that are larger, and those of short rows, count over the median.
func TestFarErrors(t *testing.T) {
	for name, c := range map[string]struct{ y, pred, want float64 }{
		"a long row that scatters":         {5000, 4500, 500. / 4500},
		"a long row half as long again":    {4500, 3000, 1500. / 100},
		"a long row predicted for a short": {100, 5000, 4900. / 100},
		"a stall":                          {5000, 100, 4900. / 100},
		"a short row":                      {60, 80, 20. / 100},
	} {
		r := Rows{Y: []float64{100, 100, 100, 100, c.y}, Pred: []float64{100, 100, 100, 100, c.pred}}
		near(t, name, r.Errors(nil).FarErrorRatio, c.want, 1e-12)
	}
	r := Rows{Y: make([]float64, 200), Pred: make([]float64, 200), Outlier: make([]bool, 200)}
	for i := range r.Y {
		r.Y[i], r.Pred[i] = 100, 90
	}
	r.Y[7], r.Outlier[7] = 2000, true
	near(t, "few outliers", r.Errors(nil).FarErrorRatio, .1, 1e-12)
	for i := range 10 {
		r.Y[i], r.Outlier[i] = 2000, true
	}
	near(t, "many outliers", r.Errors(nil).FarErrorRatio, 19.1, 1e-12)
}

func TestErrors(t *testing.T) {
	nan := math.NaN()
	r := Rows{
		Y: []float64{100, 200, 400, .5, 1000}, Pred: []float64{110, 180, 400, 1.5, nan},
		Const: []float64{200, 200, 200, 200, 200}, Floor: []float64{105, nan, 380, nan, nan},
	}
	e := r.Errors(nil)
	if e.Rows != 4 || e.Excluded != 1 {
		t.Errorf("rows: got %d with %d excluded, want 4 with 1", e.Rows, e.Excluded)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"MAPE", e.MAPE, .2 / 3}, {"WAPE", e.WAPE, 31 / 700.5}, {"median APE", e.MedianAPE, .1}, {"bias", e.Bias, -9 / 700.5},
		{"P95 APE", e.P95APE, .1}, {"RMSE", e.RMSEUs, math.Sqrt(501. / 4)}, {"largest", e.MaxErrorRatio, 20. / 150},
		{"constant", e.MAPEConst, 2.3 / 4}, {"floor", e.MAPEFloor, .1 / 2}, {"skill", e.Skill, 1 - (.2/3-.05)/(2.3/4-.05)},
	} {
		near(t, c.name, c.got, c.want, 1e-12)
	}
	if none := r.Errors(func(int) bool { return false }); !math.IsNaN(none.MAPE) || none.Rows != 0 {
		t.Errorf("no rows: got %+v", none)
	}
	near(t, "at the floor", skill(.05, .15, .05), 1, 1e-12)
	near(t, "at the constant", skill(.15, .15, .05), 0, 1e-12)
	near(t, "no room", skill(.1, .1, .1), nan, 0)
}

// TestBestConstant: no other time per step has a smaller MAPE.
func TestBestConstant(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var r Rows
	for i := range 301 {
		steps := float64(1 + i%3)
		r.Y = append(r.Y, steps*(50+100*rng.ExpFloat64()))
		r.Steps = append(r.Steps, steps)
	}
	level := r.BestConstant(nil)
	mape := func(level float64) float64 {
		r.Pred = nil
		for _, steps := range r.Steps {
			r.Pred = append(r.Pred, level*steps)
		}
		return r.Errors(nil).MAPE
	}
	for _, scale := range []float64{.8, .95, .999, 1.001, 1.05, 1.2} {
		if mape(scale*level) < mape(level) {
			t.Errorf("%g times the constant has a smaller MAPE", scale)
		}
	}
}

func TestRound(t *testing.T) {
	for v, want := range map[float64]float64{123456: 123460, -0.00123456: -0.0012346, 0: 0} {
		near(t, "rounded", Round(v, 5), want, 1e-12*math.Abs(want))
	}
}

// BenchmarkNeighbours answers every fifth of 20,000 rows that drift.
func BenchmarkNeighbours(b *testing.B) {
	const n, dim = 20_000, 8
	rng := rand.New(rand.NewPCG(1, 1))
	points := make([]float64, n*dim)
	level := make([]float64, n)
	walk := make([]float64, dim)
	for i := range n {
		for j := range walk {
			walk[j] += rng.NormFloat64()
			points[i*dim+j] = walk[j]
		}
		level[i] = rng.Float64()
	}
	for b.Loop() {
		tree := NewNeighbours(points, dim, level)
		for k := 0; k < n; k += 5 {
			tree.Median(k)
		}
	}
}

func TestInverse(t *testing.T) {
	a := []float64{4, 2, 2, 3}
	got := Inverse(a, 2)
	for k, want := range []float64{0.375, -0.25, -0.25, 0.5} {
		near(t, "inverse", got[k], want, 1e-15)
	}
	if got := Inverse([]float64{1, 2, 2, 1}, 2); got != nil {
		t.Errorf("got %v of an indefinite matrix, want nothing", got)
	}
}

// BenchmarkOrder is beside a stable sort of the positions alone, on step times.
func BenchmarkOrder(b *testing.B) {
	v := stepTimes()
	b.Run("order", func(b *testing.B) {
		for range b.N {
			Order(v)
		}
	})
	b.Run("positions", func(b *testing.B) {
		for range b.N {
			order := make([]int, len(v))
			for i := range order {
				order[i] = i
			}
			slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(v[i], v[j]) })
		}
	})
}

// stepTimes are a million: few values, many ties.
func stepTimes() []float64 {
	v := make([]float64, 1_000_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range v {
		v[i] = math.Round(1e4 * math.Exp(rng.NormFloat64()))
	}
	return v
}

// Draws are uniform over cells and do not follow their index, for keys that
// differ in the last place, in the first, or in both.
func TestDraw(t *testing.T) {
	const n, cells = 100_000, 100
	for name, key := range map[string]func(i uint64) float64{
		"index":  func(i uint64) float64 { return Draw(1, 2, i) },
		"seed":   func(i uint64) float64 { return Draw(i, 2, 3) },
		"both":   func(i uint64) float64 { return Draw(i, i) },
		"number": func(i uint64) float64 { return (float64(DrawN(1000, 7, i)) + 0.5) / 1000 },
	} {
		var count [cells]float64
		last, together := 0.0, 0.0
		for i := range uint64(n) {
			u := key(i)
			if !(u >= 0 && u < 1) {
				t.Fatalf("%s: got %g, want in [0, 1)", name, u)
			}
			count[int(u*cells)]++
			together += (u - 0.5) * (last - 0.5)
			last = u
		}
		chi2 := 0.0
		for _, c := range count {
			chi2 += (c - n/cells) * (c - n/cells) / (n / cells)
		}
		if chi2 > 149 { // 0.999 quantile at 99 degrees of freedom
			t.Errorf("%s: chi-square %.0f over %d cells", name, chi2, cells)
		}
		if r := together / n * 12; math.Abs(r) > 4/math.Sqrt(n) {
			t.Errorf("%s: neighbours correlate by %.4f", name, r)
		}
	}
	if Draw(1, 2) == Draw(2, 1) {
		t.Error("the order of keys does not matter, want it to")
	}
}

// Histogram quantiles are within half a percent of the exact ones.
func TestHistogramQuantilesAreClose(t *testing.T) {
	q := NewHistogram()
	var v []float64
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50000 {
		x := math.Exp(8 + 2*rng.NormFloat64())
		q.Add(x, 1)
		v = append(v, x)
	}
	slices.Sort(v)
	for _, p := range []float64{0.01, 0.5, 0.9, 0.99, 0.999} {
		exact := v[int(math.Ceil(p*float64(len(v))))-1]
		if got := q.Quantile(p); math.Abs(got/exact-1) > 0.005 {
			t.Errorf("p%g: got %g, want %g", p*100, got, exact)
		}
	}
	if q.N() != 50000 || q.max != v[len(v)-1] {
		t.Error("count or maximum")
	}
}

func TestPaired(t *testing.T) {
	zero := make([]float64, 20)
	for _, c := range []struct {
		d []float64
		p float64
	}{
		{[]float64{1, 2, 3}, 0.25}, // two of eight patterns; one-sided it would be 0.125
		{[]float64{1, -1}, 1},
		{[]float64{3, 1, -1}, 0.75}, // |sum| = 3 or more: +3+1-1, +3-1+1, +3+1+1 and their opposites: 6 of 8
		{[]float64{0, 0, 0}, 1},
	} {
		got := Paired(c.d, zero[:len(c.d)])
		if got.P != c.p {
			t.Errorf("%v: got p %g, want %g", c.d, got.P, c.p)
		}
	}
	d := Paired([]float64{1, 2, 3, 4}, zero[:4])
	if half := 3.182446 * math.Sqrt(5.0/12); math.Abs(d.Mean-2.5) > 1e-12 || math.Abs(d.Hi-2.5-half) > 1e-5 || math.Abs(d.Lo-2.5+half) > 1e-5 {
		t.Errorf("got %+v, want 2.5 +- %g", d, half)
	}
	all := Paired([]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, zero)
	if all.P != 2.0/(1<<20) {
		t.Errorf("twenty alike: got p %g, want 2 of 2^20", all.P)
	}
	if long := Paired(make([]float64, 30), make([]float64, 30)); long.P != 1 {
		t.Errorf("thirty zeros: got p %g, want 1", long.P)
	}
}

func TestHolm(t *testing.T) {
	got := Holm([]float64{0.01, 0.04, 0.03, math.NaN()})
	for i, want := range []float64{0.03, 0.06, 0.06} { // 3*0.01, then 2*0.03, then max(0.06, 0.04)
		if math.Abs(got[i]-want) > 1e-12 {
			t.Errorf("got %v, want 0.03, 0.06, 0.06", got)
		}
	}
	if !math.IsNaN(got[3]) {
		t.Error("NaN did not stay")
	}
}

// TestHistogramBins: a bin found by the first bits of a value is that of its logarithm.
func TestHistogramBins(t *testing.T) {
	h := NewHistogram()
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		x := math.Exp2(50 * rng.Float64())
		if edge := math.Exp2(float64(rng.IntN(50*177)) / 177); rng.IntN(2) == 0 {
			x = math.Nextafter(edge, float64(rng.IntN(3)-1)*math.MaxFloat64)
		}
		want := 0
		if x > 1 {
			want = min(len(h.count)-1, 1+int(math.Log2(x)*177))
		}
		if got := h.binOf(x); got != want {
			t.Fatalf("%v: got bin %d, want %d", x, got, want)
		}
	}
}
