package predictor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff/forest"
)

// columnsOf makes n rows of p columns: the even ones continuous, the odd ones
// with six values.
func columnsOf(rng *rand.Rand, n, p int) [][]float64 {
	columns := make([][]float64, p)
	for c := range columns {
		columns[c] = make([]float64, n)
		for i := range columns[c] {
			columns[c][i] = rng.Float64()
			if c%2 == 1 {
				columns[c][i] = float64(rng.IntN(6))
			}
		}
	}
	return columns
}

// coarse leaves the columns 200 values each, so that every step falls on an edge.
func coarse(columns [][]float64) [][]float64 {
	for _, column := range columns {
		for i, v := range column {
			column[i] = math.Floor(200*v) / 200
		}
	}
	return columns
}

func row(columns [][]float64, i int) []float64 {
	x := make([]float64, len(columns))
	for c := range columns {
		x[c] = columns[c][i]
	}
	return x
}

// boostWith are the shipped settings with so many bins.
func boostWith(bins int) boostOptions {
	o := defaultBoost()
	o.Bins = bins
	return o
}

func grown(t testing.TB, columns [][]float64, y, w []float64, o boostOptions) (*forest.Forest, *forest.Evaluator) {
	t.Helper()
	m, err := newMatrix(columns, MaxBins)
	if err != nil {
		t.Fatal(err)
	}
	r, err := growForest(m, y, w, o)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Compile(len(columns))
	if err != nil {
		t.Fatal(err)
	}
	return r, e
}

// A step function of two columns is recovered exactly: one tree of depth 2 at
// rate 1 without penalties is the function.
func TestPlantedSteps(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	columns := coarse(columnsOf(rng, 2000, 3))
	step := func(x []float64) float64 {
		switch {
		case x[1] < 3 && x[0] < 0.25:
			return 1
		case x[1] < 3:
			return 7
		case x[0] < 0.5:
			return -2
		}
		return 4
	}
	y := make([]float64, 2000)
	for i := range y {
		y[i] = step(row(columns, i))
	}
	o := defaultBoost()
	o.Trees = 1
	o.Depth = 2
	o.Rate = 1
	o.RowFrac = 1
	o.ColFrac = 1
	o.Lambda = 0
	o.Alpha = 0
	o.MinChild = 1
	r, e := grown(t, columns, y, nil, o)
	if len(r.Trees[0]) != 7 {
		t.Errorf("got %d nodes, want 7: %v", len(r.Trees[0]), r.Trees[0])
	}
	for i := range y {
		if got := e.Margin(row(columns, i)); math.Abs(got-y[i]) > 1e-6 {
			t.Fatalf("row %d: got %g, want %g", i, got, y[i])
		}
	}
	if edge := r.Trees[0][0]; edge.Feature != 1 || edge.Value != 2.5 {
		t.Errorf("first split: got column %d at %g, want 1 at 2.5", edge.Feature, edge.Value)
	}
}

// Boosting recovers the sum of a step in each column, with the shipped settings
// but every row and no penalty, to what 0.95^200 leaves.
func TestPlantedStepsByBoosting(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	columns := coarse(columnsOf(rng, 3000, 4))
	y := make([]float64, 3000)
	for i := range y {
		for c, at := range []float64{0.3, 2, 0.7, 4} {
			if columns[c][i] >= at {
				y[i] += float64(c + 1)
			}
		}
	}
	o := defaultBoost()
	o.RowFrac = 1
	o.ColFrac = 1
	o.Lambda = 0
	o.Alpha = 0
	_, e := grown(t, columns, y, nil, o)
	for i := range y {
		if got := e.Margin(row(columns, i)); math.Abs(got-y[i]) > 0.01 {
			t.Fatalf("row %d: got %g, want %g", i, got, y[i])
		}
	}
}

// noisy is a smooth target with noise, rows of unequal weight.
func noisy(rng *rand.Rand, n, p int) (columns [][]float64, y, w []float64) {
	columns = columnsOf(rng, n, p)
	y, w = make([]float64, n), make([]float64, n)
	for i := range y {
		y[i] = 3*columns[0][i]*columns[1][i] + math.Sin(5*columns[2][i]) + 0.3*rng.NormFloat64()
		w[i] = 0.5 + rng.Float64()
	}
	return columns, y, w
}

// A quantile forest leaves its share of rows below, in every leaf's region.
func TestPinballCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	n := 4_000
	columns := columnsOf(rng, n, 2)
	y := make([]float64, n)
	for i := range y {
		y[i] = (1 + columns[1][i]) * rng.ExpFloat64()
	}
	for _, q := range []float64{0.5, 0.9, 0.99} {
		o := defaultBoost()
		o.Quantile, o.Depth = q, 3
		_, e := grown(t, columns, y, nil, o)
		for v := range 6 {
			below, rows := 0.0, 0.0
			for i := range y {
				if columns[1][i] == float64(v) {
					rows++
					if y[i] <= e.Margin(row(columns, i)) {
						below++
					}
				}
			}
			if got := below / rows; math.Abs(got-q) > 0.02 {
				t.Errorf("q %g, column value %d: got coverage %.3f", q, v, got)
			}
		}
	}
}

// A row of weight k is k rows.
func TestWeightIsRepetition(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 1))
	columns, y, _ := noisy(rng, 1000, 3)
	w := make([]float64, len(y))
	twice := make([][]float64, len(columns))
	var yTwice []float64
	for i := range y {
		w[i] = float64(1 + i%2)
		for range 1 + i%2 {
			yTwice = append(yTwice, y[i])
			for c := range columns {
				twice[c] = append(twice[c], columns[c][i])
			}
		}
	}
	o := defaultBoost()
	o.RowFrac = 1
	o.Lambda = 0
	o.Alpha = 0
	o.MinChild = 0
	o.Trees = 20
	_, a := grown(t, columns, y, w, o)
	// the same edges: bins of the doubled rows would lie elsewhere
	m, _ := newMatrix(columns, MaxBins)
	md := &matrix{rows: len(yTwice), edges: m.edges}
	for c := range twice {
		values := make([]float32, len(twice[c]))
		for i, v := range twice[c] {
			values[i] = float32(v)
		}
		md.bins = append(md.bins, binOf(values, m.edges[c]))
	}
	r, err := growForest(md, yTwice, nil, o)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := r.Compile(len(columns))
	for i := range y {
		if x := row(columns, i); math.Abs(a.Margin(x)-b.Margin(x)) > 1e-5 {
			t.Fatalf("row %d: weighted %g, repeated %g", i, a.Margin(x), b.Margin(x))
		}
	}
}

func TestBins(t *testing.T) {
	m, err := newMatrix([][]float64{{3, 1, 1, 2, 3}, {7, 7, 7, 7, 7}}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m.edges[0], m.edges[1], m.bins[0]); got != "[1.5 2.5] [] [2 0 0 1 2]" {
		t.Errorf("got %s", got)
	}
	m, err = newMatrix([][]float64{{2, math.NaN(), 1}}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m.edges[0], m.bins[0]); got != "[1 1.5] [2 0 1]" {
		t.Errorf("NaN: got %s, want a bin below all values", got)
	}
	lo := math.Nextafter32(1, 2)
	if got := thresholdBetween(1, lo); got != lo {
		t.Errorf("between neighbours: got %g, want the upper one", got)
	}
	values := make([]float64, 10_000)
	for i := range values {
		values[i] = float64(i * i)
	}
	m, _ = newMatrix([][]float64{values}, 256)
	count := make([]int, 256)
	for _, b := range m.bins[0] {
		count[b]++
	}
	for b, n := range count {
		if n < 30 || n > 50 {
			t.Errorf("bin %d of 256: got %d of 10,000 rows", b, n)
		}
	}
	for _, bad := range [][][]float64{{}, {{1e300}}, {{1, 2}, {1}}} {
		if _, err := newMatrix(bad, 256); err == nil {
			t.Errorf("%v: got no error", bad)
		}
	}
}

func BenchmarkTrain(b *testing.B) {
	columns, y, _ := noisy(rand.New(rand.NewPCG(7, 1)), 100_000, 13)
	for b.Loop() {
		m, err := newMatrix(columns, MaxBins)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := growForest(m, y, nil, defaultBoost()); err != nil {
			b.Fatal(err)
		}
	}
}

// planted are rows whose TTFT is a known function of waiting requests and prompt,
// times noise; physics knows the function up to a factor.
func planted(n int, noise float64) (*trainingColumns, []int) {
	rng := rand.New(rand.NewPCG(1, 2))
	rows := make([]*Row, n)
	run := make([]int32, n)
	physics := make([]float64, n)
	for i := range rows {
		r := &Row{InputTokenLength: 1 + rng.Int64N(1000), NumRequestWaiting: rng.Int64N(6), PrefixCacheScore: rng.Float64()}
		truth := 5 + 0.05*float64(r.InputTokenLength) + 20*float64(r.NumRequestWaiting)
		r.TTFTMs = truth * math.Exp(noise*rng.NormFloat64())
		rows[i], run[i], physics[i] = r, int32(i%2), truth*1.3
	}
	t := newTrainingColumns(targetTTFT, featuresLLMD, rows, run)
	t.Physics = physics
	return t, upto(n)
}

func upto(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func mape(t *trainingColumns, m model, rows []int) float64 {
	sum := 0.0
	for _, i := range rows {
		sum += math.Abs(m.Predict(t, i)/t.Y[i]-1) / float64(len(rows))
	}
	return sum
}

// Every model learns what it can: the line is a line, physics is off by its
// factor, and trees on its residuals take that away.
func TestModelsLearn(t *testing.T) {
	tab, rows := planted(3000, 0.05)
	train, test := rows[:2000], rows[2000:]
	for name, most := range map[string]float64{nameLinear: 0.05, nameTrees: 0.08, nameGated: 0.08, nameResidual: 0.06} {
		m, err := newRacer(name, tab, train, nil, boostWith(256))
		if err != nil {
			t.Fatal(err)
		}
		if got := mape(tab, m, test); got > most {
			t.Errorf("%s: MAPE %.3f, want at most %g", name, got, most)
		}
	}
	p, _ := newModel(namePhysics, tab, train, nil, boostOptions{})
	if got := mape(tab, p, test); math.Abs(got-0.3) > 0.02 {
		t.Errorf("physics: MAPE %.3f, want the planted 0.3", got)
	}
	c, _ := newRacer(nameConstant, tab, train, nil, boostOptions{})
	if got := mape(tab, c, test); got < 0.3 {
		t.Errorf("constant: MAPE %.3f, want more than 0.3: the test is too easy", got)
	}
}

// Where physics is right up to noise, no residual trees are used; where it is off
// by a factor, all of them.
func TestResidualKnowsWhenToStop(t *testing.T) {
	tab, rows := planted(600, 0.3)
	m, err := newModel(nameResidual, tab, rows, nil, boostWith(64))
	if err != nil || len(m.(*boosted).Forest.Trees) != 50 {
		t.Errorf("physics off by 1.3: got %d trees, %v, want 50", len(m.(*boosted).Forest.Trees), err)
	}
	for i := range tab.Physics {
		tab.Physics[i] = tab.Y[i]
	}
	m, err = newModel(nameResidual, tab, rows, nil, boostWith(64))
	if b := m.(*boosted); err != nil || b.Predict(tab, 3) != tab.Y[3] {
		t.Errorf("exact physics: got %g, %v, want %g", b.Predict(tab, 3), err, tab.Y[3])
	}
}

// A gated model is one forest for a side with fewer than 200 rows.
func TestGatedNeedsRows(t *testing.T) {
	tab, rows := planted(400, 0.05)
	m, err := newModel(nameGated, tab, rows, nil, boostWith(64))
	if err != nil {
		t.Fatal(err)
	}
	if g := m.(*gated); g.Idle != g.Queued {
		t.Error("got two forests from less than 200 idle rows, want one")
	}
}

// The constant of a run without rows is that of all.
func TestConstantByRun(t *testing.T) {
	tab := &trainingColumns{Y: []float64{1, 2, 3, 9}, Run: []int32{0, 0, 0, 1}, X: [][]float64{}}
	c := newConstant(tab, []int{0, 1, 2, 3})
	if a, b := c.Predict(tab, 0), c.Predict(tab, 3); a != 2 || b != 9 {
		t.Errorf("got %g and %g, want the medians 2 and 9", a, b)
	}
	other := &trainingColumns{Run: []int32{7}}
	if got := c.Predict(other, 0); got != 2 {
		t.Errorf("a run without rows: got %g, want the lower median of all, 2", got)
	}
}

// Calibrated quantiles cover what they say on fresh rows, group by group, and
// quantile forests never cross.
func TestConformalCovers(t *testing.T) {
	tab, rows := planted(6000, 0.4)
	train := rows[:2000]
	held := rows[2000:4000]
	test := rows[4000:]
	m, err := newRacer(nameLinear, tab, train, nil, boostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, level := range []float64{0.5, 0.9, 0.99} {
		f := conformal(tab, m, held, level)
		var y, p []float64
		for _, i := range test {
			y = append(y, tab.Y[i])
			p = append(p, calibrated(&f, tab, m, i))
		}
		if got, _ := coverageOf(y, p); math.Abs(got-level) > 0.03 {
			t.Errorf("level %g: covers %.3f", level, got)
		}
	}
}

// Latencies that double in the middle of the test break fixed factors; a level that
// follows the outcomes comes back, and uses none before it is known.
func TestAdaptiveFollowsDrift(t *testing.T) {
	tab, rows := planted(8000, 0.4)
	for i := range tab.Run {
		tab.Run[i] = 0
	}
	for i := 5000; i < 8000; i++ {
		tab.Y[i] *= 1.5
	}
	m, _ := newModel(namePhysics, tab, rows[:100], nil, boostOptions{})
	r := ratiosOf(tab, m, rows[:3000])
	test := rows[3000:]
	at := func(i int) int64 { return int64(i) }
	cover := func(pred []float64, from int) float64 {
		var y []float64
		for _, i := range test[from:] {
			y = append(y, tab.Y[i])
		}
		share, _ := coverageOf(y, pred[from:])
		return share
	}
	f := r.At(0.9)
	fixed := make([]float64, len(test))
	for k, i := range test {
		fixed[k] = calibrated(&f, tab, m, i)
	}
	follow := r.Adaptive(tab, m, test, 0.9, at, func(i int) int64 { return int64(i + 50) })
	if a, b := cover(fixed, 2000), cover(follow, 2000); a > 0.75 || math.Abs(b-0.9) > 0.03 {
		t.Errorf("after the drift: fixed factors cover %.3f, the adaptive level %.3f, want less than 0.75 and 0.9", a, b)
	}
	never := r.Adaptive(tab, m, test, 0.9, at, func(int) int64 { return math.MaxInt64 })
	for k := range never {
		if never[k] != fixed[k] {
			t.Fatal("an outcome that is never known moved the level")
		}
	}
}

// By hand: the ceil(11*0.9)-th of ten ratios is the tenth; of nineteen the 18th.
func TestUpperQuantileByHand(t *testing.T) {
	seq := func(n int) (v []float64) {
		for i := range n {
			v = append(v, float64(i+1))
		}
		return v
	}
	if got := upperQuantile(seq(10), 0.9); got != 10 {
		t.Errorf("10 values: got %g, want 10", got)
	}
	if got := upperQuantile(seq(19), 0.9); got != 18 {
		t.Errorf("19 values: got %g, want 18", got)
	}
	if got := pinball([]float64{10, 10}, []float64{8, 12}, 0.9); math.Abs(got-(0.9*2+0.1*2)/2) > 1e-12 {
		t.Errorf("pinball: got %g, want 1", got)
	}
}
