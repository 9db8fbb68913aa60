package ridge

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
)

// cellOf returns a cell of one row x = 1 with weight w and target y, so that its mass is w y^2.
func cellOf(config, run, regime, block, from int32, w, y float64) Cell {
	c := Cell{CellKey: CellKey{config, run, regime, block, from}, Gram: *New(1)}
	c.Gram.AddRow(w, []float64{1}, y)
	return c
}

// TestBlocksOfCells: configuration 1 has one regime and three blocks of two runs, configuration 4 two regimes of one
// row in one block. Each configuration counts half, each regime of it alike, and the sums of a block are over both.
func TestBlocksOfCells(t *testing.T) {
	c := &Cells{P: 1, List: []Cell{
		cellOf(1, 2, 0, 0, 0, 1, 1), cellOf(1, 2, 0, 1, 1, 3, 1), cellOf(1, 3, 0, 0, 0, 4, 1),
		cellOf(4, 7, 0, 0, 0, 2, 2), cellOf(4, 7, 1, 0, 0, 1, 4),
	}}
	// Masses: 8 in configuration 1; 8 and 16 in configuration 4. The factors make them 1/2, 1/4 and 1/4 of what they share.
	factor := c.Balance(1)
	unit := factor[0] * 8 // the share of configuration 1
	for i, want := range []float64{unit / 8, unit / 8, unit / 8, unit / 2 / 8, unit / 2 / 16} {
		if math.Abs(factor[i]-want) > 1e-12 || !(factor[i] > 0) {
			t.Fatalf("factor %d: got %g, want %g", i, factor[i], want)
		}
	}
	total := c.Total(1)
	if total.N != 5 || math.Abs(total.Q-2*unit) > 1e-12 || math.Abs(total.W-(8*factor[0]+2*factor[3]+factor[4])) > 1e-12 {
		t.Errorf("total: got %+v, want two shares of %g", total, unit)
	}
	got := c.Blocks(1)
	want := []struct {
		config, run int32
		n           int64
		w, b        float64
	}{
		{1, 2, 1, factor[0], factor[0]}, {1, 2, 1, 3 * factor[0], 3 * factor[0]}, {1, 3, 1, 4 * factor[0], 4 * factor[0]},
		{4, 7, 2, 2*factor[3] + factor[4], 4*factor[3] + 4*factor[4]},
	}
	if len(got) != len(want) {
		t.Fatalf("got %d blocks, want %d", len(got), len(want))
	}
	for i, w := range want {
		b := got[i]
		if b.Config != w.config || b.Run != w.run || b.Gram.N != w.n || math.Abs(b.Gram.W-w.w) > 1e-12 || math.Abs(b.Gram.B[0]-w.b) > 1e-12 {
			t.Errorf("block %d: got %+v of %+v, want %+v", i, b.Gram, b, w)
		}
	}
	left := c.Without(2)
	if len(left.List) != 3 || left.List[0].Run != 3 || left.List[2].Regime != 1 || len(c.List) != 5 {
		t.Errorf("without run 2: got %+v", left.List)
	}
	even := c.Sum([]float64{1, 2, 3, 4, 5}, func(k CellKey) bool { return k.Regime == 0 && k.Block == 0 })
	if even.N != 3 || even.W != 1+3*4+4*2 || even.Q != 1+3*4+4*8 || even.B[0] != 1+12+16 || even.G[0] != 1+12+8 {
		t.Errorf("sum of three cells: got %+v", even)
	}
	if got := c.Configs(); !slices.Equal(got, []int32{1, 4}) {
		t.Errorf("configurations: got %v", got)
	}
}

// TestTrainsWithout: the cells that train a fit which is scored on block 3.
func TestTrainsWithout(t *testing.T) {
	for _, c := range []struct {
		block, from int32
		want        bool
	}{{-1, Never, false}, {-1, 0, false}, {0, 0, true}, {2, 2, true}, {2, 3, false}, {0, Never, false}, {3, 3, false}, {3, 2, true}, {4, Never, true}} {
		if got := (CellKey{Block: c.block, From: c.from}).trainsWithout(3); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestBestOfPolish: the fit before the passes is published where the bias grew.
func TestBestOfPolish(t *testing.T) {
	p := Polish{Fit: Fit{Lambda: 1}, LS: Fit{Lambda: 2}}
	if got := p.Best().Lambda; got != 2 {
		t.Errorf("bias grew: got the fit with lambda %g", got)
	}
	if p.Kept = true; p.Best().Lambda != 1 {
		t.Errorf("kept: got the fit with lambda %g", p.Best().Lambda)
	}
}

// TestSubsetByHand: every column of the rows, in the order given, and of a subset of a subset.
func TestSubsetByHand(t *testing.T) {
	d := &Data{P: 2, X: []float64{1, 10, 2, 20, 3, 30, 4, 40}, Y: []float64{5, 6, 7, 8}, Steps: []float64{1, 2, 3, 4},
		Factor: []float64{.1, .2, .3, .4}, Config: []int32{0, 1, 2, 3}, Regime: []int32{4, 5, 6, 7}, Run: []int32{8, 9, 10, 11},
		Time: []int64{12, 13, 14, 15}, Variants: []Variant{{Gamma: 0.5, Cols: []int{1}, Values: [][]float64{{100, 200, 300, 400}}}}}
	s := d.Subset([]int32{3, 0, 2}).Subset([]int32{2, 0})
	if s.Len() != 2 || !slices.Equal(s.Row(0), []float64{3, 30}) || !slices.Equal(s.Row(1), []float64{4, 40}) || !slices.Equal(s.Y, []float64{7, 8}) ||
		s.StepsOf(0) != 3 || s.FactorOf(1) != .4 || !slices.Equal(s.Config, []int32{2, 3}) || !slices.Equal(s.Regime, []int32{6, 7}) ||
		s.RunOf(0) != 10 || !slices.Equal(s.Time, []int64{14, 15}) {
		t.Errorf("got %+v", s)
	}
	if v := s.Variants; len(v) != 1 || v[0].Gamma != 0.5 || !slices.Equal(v[0].Cols, []int{1}) || !slices.Equal(v[0].Values[0], []float64{300, 400}) {
		t.Errorf("variants: got %+v", v)
	}
	bare := (&Data{P: 1, X: []float64{1, 2}, Y: []float64{3, 4}, Config: []int32{5, 6}}).Subset([]int32{1})
	if bare.Steps != nil || bare.Factor != nil || bare.Run != nil || bare.Time != nil || bare.StepsOf(0) != 1 || bare.FactorOf(0) != 1 || bare.RunOf(0) != 6 {
		t.Errorf("without columns: got %+v", bare)
	}
}

// TestFrozenSolveByHand: (2+2) b = 8 and (6+2) b = 40; with a zero column and no lambda the eigenvalues give 0 over 0,
// and with an eigenvalue below zero lambda alone divides.
func TestFrozenSolveByHand(t *testing.T) {
	g := &Gram{P: 2, B: []float64{8, 40}, G: []float64{2, 0, 0, 6}}
	if got, err := frozenSolve(g, 2); err != nil || math.Abs(got[0]-2) > 1e-12 || math.Abs(got[1]-5) > 1e-12 {
		t.Errorf("got %v, %v, want 2 and 5", got, err)
	}
	g.G[0] = -4
	if got, err := frozenSolve(g, 2); err != nil || math.Abs(got[0]-8.0/2) > 1e-12 || math.Abs(got[1]-5) > 1e-12 {
		t.Errorf("not definite: got %v, %v, want 4 and 5", got, err)
	}
	if got, err := frozenDF(g, 2); err != nil || math.Abs(got-6.0/8) > 1e-12 {
		t.Errorf("degrees of freedom: got %v, %v, want 0.75", got, err)
	}
	d := &Data{P: 1, X: []float64{1, 2, 4}, Y: []float64{3, 9, 5}}
	if got := squares(d, []int32{0, 2}, []float64{2}); got != 1+9 {
		t.Errorf("squares: got %g, want 10", got)
	}
	if got := deviation(d.Y, []int32{0, 1}); got != 3 {
		t.Errorf("deviation: got %g, want 3", got)
	}
}

// TestSameSet: every label of a set of cells must be equal.
func TestSameSet(t *testing.T) {
	base := Cells{P: 3, EpsUs: 1, Folds: 4, Gamma: 0.5, Lag: 6}
	f := &File{Sets: []*Cells{{}, &base}}
	want := base
	if err := f.sameSet(1, &want, 2); err != nil {
		t.Error(err)
	}
	for _, n := range []int{1, 3} {
		if f.sameSet(1, &want, n) == nil {
			t.Errorf("two sets pass for %d", n)
		}
	}
	for name, change := range map[string]func(*Cells){
		"features": func(c *Cells) { c.P++ }, "eps": func(c *Cells) { c.EpsUs++ }, "folds": func(c *Cells) { c.Folds++ },
		"gamma": func(c *Cells) { c.Gamma++ }, "lag": func(c *Cells) { c.Lag++ },
	} {
		other := base
		if change(&other); f.sameSet(1, &other, 2) == nil {
			t.Errorf("%s: the set passes", name)
		}
	}
}

// TestSelectRefusesOtherCells: cells are chosen with the constants that they were cut with.
func TestSelectRefusesOtherCells(t *testing.T) {
	c := &Cells{P: 1, EpsUs: 100, Folds: 3}
	for _, o := range []Options{{EpsUs: 101, Folds: 3}, {EpsUs: 100, Folds: 4}} {
		if _, err := c.Select(o); err == nil {
			t.Errorf("eps %g and %d folds: passes", o.EpsUs, o.Folds)
		}
	}
}

// TestChooseVariantByHand: a variant within one standard error of the best mean difference, paired by fold, counts; the
// usual one is chosen among them.
func TestChooseVariantByHand(t *testing.T) {
	of := func(gamma float64, scores ...float64) Selection {
		return Selection{Gamma: gamma, MinWithin: 1, Grid: []Point{{Within: -9}, {Within: stat.Mean(scores), FoldScores: scores}}}
	}
	// Against the first the second differs by 1, 1 and 1 (no error), the third by 0, 0 and 3 (1 with an error of 1).
	sels := []Selection{of(1, 2, 3, 4), of(2, 3, 4, 5), of(3, 2, 3, 7)}
	for usual, want := range map[float64]int{1: 0, 2: 0, 3: 2, 9: 0} {
		chosen, within := ChooseVariant(sels, usual)
		if chosen != want || !slices.Equal(within, []int{0, 2}) {
			t.Errorf("usual %g: got %d within %v, want %d within 0 and 2", usual, chosen, within, want)
		}
	}
	// 0, 1, 3: 4/3 with an error of 0.88.
	if _, within := ChooseVariant([]Selection{of(3, 2, 4, 7), of(1, 2, 3, 4)}, 3); !slices.Equal(within, []int{1}) {
		t.Errorf("beyond its error: got %v", within)
	}
}

// TestLocalQuadratic: the minimum lies a slope over the curvature away, which is at least 0.001.
func TestLocalQuadratic(t *testing.T) {
	for _, c := range []struct{ v, slope, bend, y, want float64 }{
		{100, 6, 2, 97, 2}, {100, -6, 2, 103, 2}, {100, 6, 0, 100 - 6000, 0.001}, {100, 0, 0.0005, 100, 0.001},
	} {
		if y, bend := (Pull{Slope: c.slope, Bend: c.bend}).quadratic(c.v); math.Abs(y-c.y) > 1e-9 || bend != c.want {
			t.Errorf("%+v: got %g and %g", c, y, bend)
		}
	}
}

// TestSilent: an interval of 100 to 300 us exerts no pull on what lies more than 40 spreads of 2 us inside it; a lower
// end of 0 never does.
func TestSilent(t *testing.T) {
	b := Bounds{Lo: []float64{100, 0, 0, 0.9}, Hi: []float64{300, 300, 0, 2}}
	for _, c := range []struct {
		row       int
		v, spread float64
		want      bool
	}{
		{0, 200, 2, true}, {0, 219, 2, true}, {0, 220, 2, false}, {0, 181, 2, true}, {0, 180, 2, false}, {0, 200, 2.5, false},
		{1, 10, 2, true}, {1, 219, 2, true}, {1, 220, 2, false}, {2, -100, 2, false}, {2, -100, 0, false},
		{3, 1, 0.01, false}, {3, 1.45, 0.01, true},
		{0, 100, 0, true}, {0, 300, 0, true}, {0, 99, 0, false}, {0, 301, 0, false},
	} {
		if got := b.silent(c.row, c.v, c.spread); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
	for z, want := range map[float64]float64{0: 0.5, math.Log(3): 0.75, -math.Log(3): 0.25} {
		if got := beyond(z, math.Exp(-math.Abs(z))); math.Abs(got-want) > 1e-12 {
			t.Errorf("beyond %g: got %g, want %g", z, got, want)
		}
	}
}

// TestIntervalRows: a fold has its rows; a held-out pair has the rows of each as one set.
func TestIntervalRows(t *testing.T) {
	d := &Data{Config: []int32{5, 7, 9, 5, 7}}
	x := &trials{configs: []int32{5, 7, 9}}
	train, test := x.intervalRows(d, &trial{fold: -1, out: [2]int{0, 2}}, nil)
	if !slices.Equal(train, []int32{1, 4}) || len(test) != 3 || !slices.Equal(test[0], []int32{0, 3}) || test[1] != nil || !slices.Equal(test[2], []int32{2}) {
		t.Errorf("a pair: got %v and %v", train, test)
	}
	train, test = x.intervalRows(d, &trial{fold: 1, out: [2]int{-1, -1}}, []Fold{{}, {Train: []int32{1}, Test: []int32{2, 3}}})
	if !slices.Equal(train, []int32{1}) || len(test) != 1 || !slices.Equal(test[0], []int32{2, 3}) {
		t.Errorf("a fold: got %v and %v", train, test)
	}
}

// TestDiagnoseByHand: two columns with a correlation of 0.6 have eigenvalues of 1.6 and 0.4 and an inflation of
// 1/(1-0.36); a column of zeros has none.
func TestDiagnoseByHand(t *testing.T) {
	g := &Gram{P: 3, N: 9, W: 1, B: []float64{1, 1, 0}, G: []float64{8, 7.2, 0, 7.2, 18, 0, 0, 0, 0}}
	d := g.Diagnose(Fit{W: 2, Scale: []float64{2, 3, 0}, Gamma: []float64{1, 1, 0}, YBar: 1, Beta: []float64{1, 1, 0}})
	if !(math.Abs(d.Condition-4) < 1e-9 && math.Abs(d.VIF[0]-1/0.64) < 1e-9 && math.Abs(d.VIF[1]-1/0.64) < 1e-9) || !math.IsNaN(d.VIF[2]) || len(d.Null) != 0 {
		t.Errorf("got %+v", d)
	}
	if d := g.Diagnose(Fit{Scale: []float64{0, 0, 0}}); !math.IsNaN(d.Condition) || len(d.VIF) != 3 || !math.IsNaN(d.VIF[0]) {
		t.Errorf("zeros: got %+v", d)
	}
	same := &Gram{P: 2, N: 9, W: 1, B: []float64{1, 1}, G: []float64{4, 4, 4, 4}}
	if d := same.Diagnose(Fit{W: 1, Scale: []float64{2, 2}, Gamma: []float64{3, 4}, YBar: 10, Beta: []float64{1, 1}}); !(d.Condition > 1e14) || !math.IsInf(d.VIF[0], 1) ||
		len(d.Null) != 1 || !slices.Equal(d.Null[0].Terms, []int{0, 1}) || d.Null[0].Dim != 1 || math.Abs(d.Null[0].SumUs-70) > 1e-9 {
		t.Errorf("one column twice: got %+v", d)
	}
}
