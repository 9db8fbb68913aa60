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
	o.Trees, o.Depth, o.Rate, o.RowFrac, o.ColFrac, o.Lambda, o.Alpha, o.MinChild = 1, 2, 1, 1, 1, 0, 0, 1
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
	o.RowFrac, o.ColFrac, o.Lambda, o.Alpha = 1, 1, 0, 0
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
	n := 8_000
	columns := columnsOf(rng, n, 2)
	y := make([]float64, n)
	for i := range y {
		y[i] = (1 + columns[1][i]) * rng.ExpFloat64()
	}
	for _, q := range []float64{0.5, 0.9, 0.99} {
		o := defaultBoost()
		o.Loss, o.Quantile, o.Depth = pinballLoss, q, 3
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
	o.RowFrac, o.Lambda, o.Alpha, o.MinChild, o.Trees = 1, 0, 0, 0, 20
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
	if got := between(1, lo); got != lo {
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
