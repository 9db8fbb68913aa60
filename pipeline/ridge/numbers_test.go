package ridge

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// TestCorrelationRows: the correlation time of residuals whose products are counted by hand.
func TestCorrelationRows(t *testing.T) {
	for name, c := range map[string]struct {
		signs string
		want  float64
	}{
		// Sixteen rows have lags 1 to 3; the sum of squares is 16.
		"one change":   {"++++++++--------", 1 + 2*(13.0/16+10.0/16+7.0/16)}, // products 14-1, 12-2, 10-3
		"pairs":        {"++--++--++--++--", 1 + 2*(1.0/16)},                 // 8-7, then -14 ends the sum
		"alternating":  {"+-+-+-+-+-+-+-+-", 1},
		"seven rows":   {"+++++++", 1}, // no variance
		"four rows":    {"++--", 1},    // no lag below 1
		"eight rows":   {"++++----", 1 + 2*(5.0/8)},
		"below 0.05":   {"+++--+---+-+--++-++-", 1}, // -1 of 20 at lag 1
		"twelve, once": {"++++++------", 1 + 2*(9.0/12+6.0/12)},
	} {
		d := &Data{P: 1}
		for _, sign := range c.signs {
			off := 0.125 // above the prediction by another 0.5 on average, which the mean takes away
			if sign == '-' {
				off = -0.125
			}
			d.X = append(d.X, 1)
			d.Y = append(d.Y, 64*(1.5+off))
		}
		rows := make([]int32, len(c.signs))
		for i := range rows {
			rows[i] = int32(i)
		}
		if got := correlationRows(d, rows, []float64{64}, 50); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: got %g rows, want %g", name, got, c.want)
		}
	}
}

// TestNumBlocks: ten correlation times to a block, at least 8 blocks and at most 40, each of four rows or more.
func TestNumBlocks(t *testing.T) {
	for _, c := range []struct {
		rows int
		tau  float64
		want int
	}{
		{1, 1, 1}, {3, 1, 1}, {7, 1, 1}, {8, 1, 2}, {31, 1, 7}, {32, 1, 8}, {899, 10, 8}, {900, 10, 9}, {1000, 10, 10},
		{399, 1, 39}, {400, 1, 40}, {401, 1, 40}, {1e6, 1, 40}, {1000, 2.5, 40}, {1000, 2.6, 38}, {1000, 1e9, 8},
	} {
		if got := numBlocks(c.rows, c.tau); got != c.want {
			t.Errorf("%d rows with %g: got %d blocks, want %d", c.rows, c.tau, got, c.want)
		}
	}
}

// blockOf is a block of one row with the feature 1 and a target, times a weight.
func blockOf(config, run int32, weight, y float64) BlockGram {
	g := New(1)
	g.AddRow(weight, []float64{1}, y)
	return BlockGram{Config: config, Run: run, Gram: g}
}

// TestJackknife: without one of three configurations the estimate is the mean of the other two targets.
func TestJackknife(t *testing.T) {
	blocks := []BlockGram{blockOf(4, 1, 1, 1), blockOf(5, 2, 1, 2), blockOf(9, 3, 1, 6)}
	b := newBootstrap(blocks)
	// 4, 3.5 and 1.5 about 3: 1 + 0.25 + 2.25, times 2/3.
	Near(t, "three configurations", b.jackknife(blocks, []int32{4, 5, 9}), []float64{math.Sqrt(3.5 * 2 / 3)}, 1e-6)
	if got := b.jackknife(blocks, []int32{4, 5}); len(got) != 1 || !math.IsNaN(got[0]) {
		t.Errorf("two configurations: got %v, want NaN", got)
	}
}

// TestBootstrapOfWholeRuns: the standard error of a run of two blocks, and of two runs of which one has a single
// block, which adds nothing; what no row determines is not known.
func TestBootstrapOfWholeRuns(t *testing.T) {
	for name, c := range map[string]struct {
		blocks []BlockGram
		beta   float64
		se     float64
	}{
		// The mean is 2 and each block moves it by a half: 2/1 * (0.25 + 0.25).
		"two blocks": {[]BlockGram{blockOf(0, 0, 1, 1), blockOf(0, 0, 1, 3)}, 2, 1},
		// The mean is 3; the first run's blocks move it by -2/3 and 0, which is +-1/3 about their mean: 2/1 * 2/9.
		"a run of one block": {[]BlockGram{blockOf(0, 0, 1, 1), blockOf(0, 1, 1, 5), blockOf(0, 0, 1, 3)}, 3, 2.0 / 3},
		// 1, 2, 6 with the mean 3: -2/3, -1/3 and 1: 3/2 * (4/9 + 1/9 + 1).
		"three blocks": {[]BlockGram{blockOf(0, 0, 1, 1), blockOf(0, 0, 1, 2), blockOf(0, 0, 1, 6)}, 3, math.Sqrt(1.5 * 14 / 9)},
	} {
		b := newBootstrap(c.blocks)
		known, err := b.solveAll()
		if err != nil || !slices.Equal(known, []bool{true}) {
			t.Fatalf("%s: got known %v, %v", name, known, err)
		}
		Near(t, name, []float64{b.beta(0), b.se[0] / b.scale[0]}, []float64{c.beta, c.se}, 1e-6)
		if name == "a run of one block" {
			continue // covariance takes that block about 0
		}
		cov := make([]float64, 1)
		b.covariance(cov)
		Near(t, name+": covariance", cov, []float64{c.se * c.se}, 1e-6)
	}
	twice, empty := New(3), New(3)
	twice.AddRow(1, []float64{1, 1, 0}, 2)
	twice.AddRow(1, []float64{2, 2, 0}, 3)
	b := newBootstrap([]BlockGram{{Gram: twice}, {Gram: twice}, {Gram: empty}})
	if known, err := b.solveAll(); err != nil || !slices.Equal(known, []bool{false, false, false}) {
		t.Errorf("one column twice and zeros: got known %v, %v", known, err)
	}
	noTarget := New(1)
	noTarget.AddRow(1, []float64{1}, 0)
	if newBootstrap([]BlockGram{{Gram: noTarget}}) != nil || newBootstrap([]BlockGram{{Gram: New(1)}}) != nil {
		t.Error("targets of 0, or no weight: want no bootstrap")
	}
}

// TestDefaultLambdas: 1 and 3 of each power of ten from 1e-6 to 1.
func TestDefaultLambdas(t *testing.T) {
	grid := DefaultLambdas()
	if len(grid) != 13 || grid[0] != 1e-6 || grid[12] != 1 {
		t.Fatalf("got %v", grid)
	}
	for k := 1; k < len(grid); k++ {
		want := 3.0
		if k%2 == 0 {
			want = 10.0 / 3
		}
		if got := grid[k] / grid[k-1]; math.Abs(got-want) > 1e-9 {
			t.Errorf("%g after %g: got a ratio of %g, want %g", grid[k], grid[k-1], got, want)
		}
	}
}

// TestEdgesOfTheGridAreSaid: a lambda at the first or the last point has a finding with what that means; a point
// between them and a grid of one point have none.
func TestEdgesOfTheGridAreSaid(t *testing.T) {
	grid := func(n int) (g []Point) {
		for k := range n {
			g = append(g, Point{Lambda: float64(k + 2), Fingerprints: []string{"a", "b"}})
		}
		return g
	}
	for _, c := range []struct {
		points, index int
		want          string
	}{
		{3, 0, "lambda 2 is an end of its grid 2..4: the measurements decide without a penalty"},
		{3, 1, ""},
		{3, 2, "lambda 4 is an end of its grid 2..4: the penalty decides more than the measurements, and predictions may be too small"},
		{2, 0, "lambda 2 is an end of its grid 2..3: the measurements decide without a penalty"},
		{2, 1, "lambda 3 is an end of its grid 2..3: the penalty decides more than the measurements, and predictions may be too small"},
		{1, 0, ""},
	} {
		s := Selection{Grid: grid(c.points), Index: c.index}
		s.Lambda = s.Grid[c.index].Lambda
		s.warn()
		got := ""
		for _, f := range s.Findings {
			if got += f.Message; f.Code != LambdaAtEdge || f.Config != -1 || f.Run != -1 {
				t.Errorf("%d of %d: got %+v", c.index, c.points, f)
			}
		}
		if got != c.want {
			t.Errorf("%d of %d: got %q, want %q", c.index, c.points, got, c.want)
		}
	}
}

// TestMergeOrdersCells: cells of two files by configuration, then by run, with the labels of the sorted names.
func TestMergeOrdersCells(t *testing.T) {
	file := func(configs, runs []string, cells ...Cell) File {
		return File{Configs: configs, Runs: runs, Regimes: []string{"r"}, Sets: []*Cells{{P: 1, List: cells}}}
	}
	a := file([]string{"z", "b"}, []string{"k", "a"}, cellOf(0, 0, 0, 0, 0, 1, 1), cellOf(1, 1, 0, 0, 0, 1, 2))
	b := file([]string{"b"}, []string{"m", "c"}, cellOf(0, 0, 0, 0, 0, 1, 3), cellOf(0, 1, 0, 0, 0, 1, 4))
	got, err := Merge(a, b)
	if err != nil || !slices.Equal(got.Configs, []string{"b", "z"}) || !slices.Equal(got.Runs, []string{"a", "c", "k", "m"}) {
		t.Fatalf("got %+v, %v", got, err)
	}
	var order []string
	for _, c := range got.Sets[0].List {
		order = append(order, got.Configs[c.Config]+got.Runs[c.Run])
	}
	if !slices.Equal(order, []string{"ba", "bc", "bm", "zk"}) {
		t.Errorf("got cells %v", order)
	}
	for run, want := range map[string][]string{"a": {"bc", "bm", "zk"}, "m": {"ba", "bc", "zk"}} {
		f := got
		f.Sets = slices.Clone(got.Sets)
		if err := f.WithoutRun(run); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, c := range f.Sets[0].List {
			left = append(left, got.Configs[c.Config]+got.Runs[c.Run])
		}
		if !slices.Equal(left, want) {
			t.Errorf("without %s: got cells %v, want %v", run, left, want)
		}
	}
	if err := got.WithoutRun("x"); err == nil || !strings.Contains(err.Error(), `gram: no run "x", want one of ["a" "c" "k" "m"]`) {
		t.Errorf("an unknown run: got %v", err)
	}
	if _, err := Merge(); err == nil || err.Error() != "merge grams: got no file, want one or more" {
		t.Errorf("no file: got %v", err)
	}
	if _, err := Merge(a, a); err == nil || !strings.Contains(err.Error(), `run "k" is in two files, want one`) {
		t.Errorf("one file twice: got %v", err)
	}
}

// TestEvaluateByHand: errors against two exact rows and three intervals.
func TestEvaluateByHand(t *testing.T) {
	b := Bounds{Lo: []float64{100, 50, 0, 0, 10}, Hi: []float64{100, 50, 3000, 2999, 20}}
	d := &Data{P: 1, X: []float64{1, 1, 1, 1, 1}, Y: make([]float64, 5), Config: []int32{0, 0, 0, 0, 0}, Regime: []int32{0, 0, 0, 0, 0}}
	e := b.Evaluate(d, []float64{1, 1, 1, 1, 1}, []float64{110, 45, 3000, 3001, 21})
	if e.Rows != 5 || e.Exact != 2 || e.Informative != 4 || e.MedianWidth != 2999 {
		t.Errorf("got %+v", e)
	}
	Near(t, "share inside and error of exact rows", []float64{e.Inside, e.ExactWAPE}, []float64{1.0 / 3, 15.0 / 150}, 1e-12)
	// (100 + 25 + 0 + 4 + 1) us^2 over (1000 us)^2.
	Near(t, "distance", []float64{e.Distance}, []float64{130e-6}, 1e-12)
	none := Bounds{Lo: []float64{0}, Hi: []float64{0}}.Evaluate(d, []float64{1, 1, 1, 1, 1}, []float64{1, 1, 1, 1, 1})
	if !math.IsNaN(none.Inside) || !math.IsNaN(none.MedianWidth) || !math.IsNaN(none.ExactWAPE) {
		t.Errorf("an exact row of 0: got %+v, want no shares", none)
	}
}

// TestToleranceOfASolution: gradients within 1e-8 show a minimum, blocks have one cut point more than their number, and the first of
// entries that are equal within rounding is the largest.
func TestToleranceOfASolution(t *testing.T) {
	for c, want := range map[Certificate]bool{{}: true, {MinZero: -1e-8, MaxActive: 1e-8}: true, {MinZero: -1.1e-8}: false, {MaxActive: 1.1e-8}: false, {MinZero: 5}: true} {
		if c.OK() != want {
			t.Errorf("%+v: got %v", c, !want)
		}
	}
	for n, want := range map[int][]int{10: {0, 4, 7, 10}, 3: {0, 1, 2, 3}, 9: {0, 3, 6, 9}, 2: nil, 0: nil} {
		if got := blockBounds(n, 3); !slices.Equal(got, want) {
			t.Errorf("%d rows in three blocks: got %v, want %v", n, got, want)
		}
	}
	for _, c := range []struct {
		v    []float64
		want float64
	}{{[]float64{1, -1 - 1e-10}, 1}, {[]float64{1, -1 - 1e-8}, -1 - 1e-8}, {[]float64{0, 2, -3, 1}, -3}} {
		if got := largestEntry(c.v); got != c.want {
			t.Errorf("%v: got %g, want %g", c.v, got, c.want)
		}
	}
	// Of terms in and out of the working set: two offend at a limit of 2, two by their gradient.
	const offends, stays = true, false
	for _, only := range []int{-1, 1, 4} {
		s := newSolver(7, &Options{})
		s.passive = []bool{true, true, true, false, false, false, false}
		s.gamma = []float64{1, 3, -1, 0, 0, 2, 2}
		s.grad = []float64{0, 0, 0, 5, -5, 5, -5}
		s.atUpper = []bool{false, false, false, false, false, true, true}
		for j := range s.upper {
			s.upper[j] = 2
		}
		want := []bool{stays, offends, offends, stays, offends, offends, stays}
		for j := range want {
			if got := s.offends(j); got != want[j] {
				t.Errorf("term %d: got offends %v", j, got)
			}
		}
		before := slices.Clone(s.passive)
		s.exchange(only)
		for j := range want {
			moves := want[j] && (only < 0 || j == only)
			if (s.passive[j] != before[j]) != moves || moves && s.atUpper[j] != (j == 1) {
				t.Errorf("exchange of %d, term %d: got passive %v at the limit %v", only, j, s.passive[j], s.atUpper[j])
			}
		}
	}
}
