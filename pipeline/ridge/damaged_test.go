package ridge

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRowsThatCannotBeSolved: squares above the largest number are an error of every fit.
func TestRowsThatCannotBeSolved(t *testing.T) {
	rows := func(n int, x float64) *Data {
		d := &Data{P: 1}
		for range n {
			d.X = append(d.X, x)
			d.Y = append(d.Y, 100)
			d.Config = append(d.Config, 0)
			d.Regime = append(d.Regime, 0)
		}
		return d
	}
	o := DefaultOptions(1)
	for name, c := range map[string]struct {
		d     *Data
		fails bool
	}{"whole": {rows(100, 2), false}, "overflow": {rows(100, 1e200), true}} {
		if _, err := c.d.NoiseLambda(o, []float64{1}); (err != nil) != c.fails {
			t.Errorf("%s: got the error %v of NoiseLambda", name, err)
		}
		f, err := c.d.FitFrozen(o)
		if (err != nil) != c.fails || c.fails && (f.Beta != nil || f.Grid != nil) {
			t.Errorf("%s: got %+v, %v of FitFrozen", name, f, err)
		}
	}
}

// TestQuantileOfDraws: 0.95 of n+1 draws is the last of 19 and the one before it of 39, 0.9 that of 19. Draws without a
// number do not count: they are those of the last two blocks alone, whose mean is that of all and whose standard error is 0.
func TestQuantileOfDraws(t *testing.T) {
	noNumber := 0
	for _, c := range []struct {
		level     float64
		known     int // draws with a number
		fromAbove int // place of the quantile from the largest, which is 0
	}{{0, 5, 0}, {0, 19, 0}, {0, 20, 0}, {0, 38, 0}, {0, 39, 1}, {0.9, 18, 0}, {0.9, 19, 1}, {0.5, 19, 9}, {0.02, 99, 97}} {
		b := newBootstrap([]BlockGram{blockOf(0, 0, 1, 0), blockOf(0, 0, 1, 2), blockOf(0, 0, 1, 1), blockOf(0, 0, 1, 1)})
		if _, err := b.solveAll(); err != nil {
			t.Fatal(err)
		}
		var known []float64
		o := Options{Seed: 5, Level: c.level}
		for ; len(known) < c.known; o.Draws++ {
			v := b.studentised(newDraw(1), rand.New(rand.NewPCG(o.Seed, uint64(o.Draws))))
			if math.IsNaN(v[0]) {
				noNumber++
			} else {
				known = append(known, v[0])
			}
		}
		slices.Sort(known)
		if got, want := b.quantiles(o)[0], known[len(known)-1-c.fromAbove]; got != want {
			t.Errorf("level %g of %d draws: got %g, want %g of %v", c.level, o.Draws, got, want, known)
		}
	}
	if noNumber == 0 {
		t.Error("every draw has a number")
	}
	b := newBootstrap([]BlockGram{blockOf(0, 0, 1, 1)})
	if got := b.quantiles(Options{}); len(got) != 1 || !math.IsNaN(got[0]) {
		t.Errorf("no draw: got %v, want NaN", got)
	}
}

// TestScaledPrecision: precisions times the square of the mean time over both scales, and nothing for a column without data,
// also where an earlier fit had data for it.
func TestScaledPrecision(t *testing.T) {
	s := newSolver(3, &Options{Precision: []float64{4, 1, -2, 1, 3, 0.5, -2, 0.5, 5}})
	s.ybar = 10
	s.scale = []float64{2, 4, 5}
	s.setPrecision()
	Near(t, "three columns", s.prec, []float64{100, 12.5, -20, 12.5, 18.75, 2.5, -20, 2.5, 20}, 1e-12)
	s.scale[1] = 0
	s.setPrecision()
	Near(t, "two columns", s.prec, []float64{100, 0, -20, 0, 0, 0, -20, 0, 20}, 1e-12)
	for _, c := range []struct {
		o    Options
		want float64
	}{{Options{Penalty: []float64{7, 8, 9}}, 8}, {Options{Penalty: []float64{7, 8, 9}, Precision: []float64{0, 0, 0, 0, 3, 0, 0, 0, 0}}, 3}} {
		s := newSolver(3, &c.o)
		s.ybar, s.scale = 1, []float64{1, 1, 1}
		s.setPrecision()
		if got := s.penalty(1, 1); got != c.want || s.penalty(0, 1) != 0 {
			t.Errorf("got the penalties %g and %g, want %g and 0", got, s.penalty(0, 1), c.want)
		}
	}
}
