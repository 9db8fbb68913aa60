package ridge

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// noisy returns rows y = 3 x + 5 z with an error of 2 % in ten blocks of ten rows of one run, or without error.
func noisy(noise float64) *Data {
	rng := rand.New(rand.NewPCG(1, 5))
	d := &Data{P: 2}
	for i := range 100 {
		x, z := 10+float64(i%7), 4+float64(i%5)
		d.X = append(d.X, x, z)
		d.Y = append(d.Y, (3*x+5*z)*(1+noise*rng.NormFloat64()))
		d.Config = append(d.Config, 0)
		d.Regime = append(d.Regime, 0)
		d.Run = append(d.Run, 0)
		d.Time = append(d.Time, int64(i))
	}
	return d
}

// TestMeanIntervals: the mean of x.beta over some rows and its interval, which includes the true mean and is no wider than 4 %
// of it; and the arithmetic of the change of columns behind it.
func TestMeanIntervals(t *testing.T) {
	d := noisy(0.02)
	o := DefaultOptions(2)
	o.Workers = 1
	fit, err := FitRows(d, Weights(d, o), nil, 1e-8, o)
	if err != nil {
		t.Fatal(err)
	}
	sets := [][]int32{{0, 1, 2, 3}, {50}, {}}
	got := d.MeanIntervals(fit, sets, o)
	for k, rows := range sets[:2] {
		want := 0.0
		for _, i := range rows {
			want += (3*d.X[2*i] + 5*d.X[2*i+1]) / float64(len(rows))
		}
		if g := got[k]; !(g.Lo < want && want < g.Hi) || g.Hi-g.Lo > 0.04*want || g.Method != FromBlocks {
			t.Errorf("set %d: got %+v, want %g in it", k, g, want)
		}
	}
	if got[2].Method != FromNothing {
		t.Errorf("no rows: got %+v", got[2])
	}
	mean := d.meanRow([]int32{0, 1})
	if !reflect.DeepEqual(mean, []float64{10.5, 4.5}) {
		t.Errorf("got the mean row %v", mean)
	}
	if pivotOf([]float64{3, -8, 1}, []float64{1, 2, 0}) != 1 || pivotOf([]float64{0, 0}, []float64{1, 1}) != -1 {
		t.Error("the pivot is the column with the largest mean for its scale")
	}
	// In the columns u = x/m and w = z - x n/m of the means m = 2 and n = 6, the Gram of the row (4, 5) with y = 7 is that of
	// (2, 5 - 12 = -7).
	g := New(2)
	g.AddRow(1, []float64{4, 5}, 7)
	moved := g.withMean([]float64{2, 6}, 0)
	want := New(2)
	want.AddRow(1, []float64{2, -7}, 7)
	for k := range want.G {
		if math.Abs(moved.G[k]-want.G[k]) > 1e-9 {
			t.Errorf("got G %v, want %v", moved.G, want.G)
			break
		}
	}
	for k := range want.B {
		if math.Abs(moved.B[k]-want.B[k]) > 1e-9 {
			t.Errorf("got B %v, want %v", moved.B, want.B)
			break
		}
	}
	if moved.W != g.W || moved.Q != g.Q || moved.N != g.N {
		t.Errorf("got %+v", moved)
	}
}

// TestNoiseLambda: for n independent rows of relative error e the lambda is e^2/n: 4e-6 of 100 rows with 2 %, within the
// uncertainty of an estimate from few blocks; without noise it is the least.
func TestNoiseLambda(t *testing.T) {
	o := DefaultOptions(2)
	o.Workers = 1
	cov := []float64{1, 0, 0, 1}
	got, err := noisy(0.02).NoiseLambda(o, cov)
	if err != nil || got < 1e-6 || got > 1.6e-5 {
		t.Errorf("got %g and %v, want about 4e-6", got, err)
	}
	larger, err := noisy(0.04).NoiseLambda(o, cov)
	if err != nil || math.Abs(larger/got-4) > 0.3 {
		t.Errorf("twice the error: got %g, %v, want four times %g", larger, err, got)
	}
	if exact, err := noisy(0).NoiseLambda(o, cov); err != nil || exact > 1e-8 {
		t.Errorf("without noise: got %g and %v", exact, err)
	}
}

// TestPublishedFits: which of the three means is published, and that each finds the true coefficients.
func TestPublishedFits(t *testing.T) {
	d := noisy(0.02)
	for name, c := range map[string]struct {
		change   func(o *Options)
		polished bool
	}{"least squares": {func(o *Options) {}, true}, "posterior": {func(o *Options) { o.Posterior = true }, false}, "robust": {func(o *Options) { o.Proportional = true }, false}} {
		o := DefaultOptions(2)
		o.Workers = 1
		c.change(&o)
		fit, polish, err := FitPublished(d, Weights(d, o), 1e-8, o)
		if err != nil || (polish != nil) != c.polished || math.Abs(fit.Beta[0]-3) > 0.3 || math.Abs(fit.Beta[1]-5) > 0.6 {
			t.Errorf("%s: got %v, polished %t, %v", name, fit.Beta, polish != nil, err)
		}
	}
	// The errors of y = 10 and 20 predicted as 12 and 15 are +2 and -5: -3 of 30.
	two := &Data{P: 1, X: []float64{12, 15}, Y: []float64{10, 20}}
	if got := bias(two, []float64{1}); math.Abs(got+0.1) > 1e-12 {
		t.Errorf("got a bias of %g, want -0.1", got)
	}
	if got := bias(&Data{P: 1, X: []float64{12, 15}, Y: []float64{0, 0}}, []float64{1}); !math.IsNaN(got) {
		t.Errorf("targets of 0: got a bias of %g, want NaN, which documents write as null", got)
	}
	out := make([]float64, 2)
	o := DefaultOptions(1)
	o.EpsUs, o.Workers = 0, 1
	reweight(two, []float64{6, 8}, []float64{1}, o, out)
	if math.Abs(out[0]-6/0.2) > 1e-9 || math.Abs(out[1]-8/0.25) > 1e-9 {
		t.Errorf("got the weights %v, want 30 and 32", out)
	}
}

// TestSelections: the lambda without a configuration, the scores that decided, and the mean of nested choices.
func TestSelections(t *testing.T) {
	s := Selection{Lambda: 7, Index: 1, Objective: Within, Grid: []Point{{}, {FoldScores: []float64{1, 2}, Loco: []float64{3}}}, Nested: []Nested{{Config: 4, Lambda: 9, Outer: 0.2}, {Config: 5, Lambda: 8, Outer: 0.4}}}
	if s.LambdaWithout(5) != 8 || s.LambdaWithout(6) != 7 || math.Abs(s.NestedMean()-0.3) > 1e-12 || !math.IsNaN((&Selection{}).NestedMean()) {
		t.Errorf("got %g and %g", s.LambdaWithout(5), s.NestedMean())
	}
	if !reflect.DeepEqual(s.ScoresHeldOut(), []float64{1, 2}) {
		t.Errorf("got %v", s.ScoresHeldOut())
	}
	s.Objective = Cross
	if !reflect.DeepEqual(s.ScoresHeldOut(), []float64{3}) {
		t.Errorf("got %v", s.ScoresHeldOut())
	}
	if lo, hi := (Interval{Lo: 1, Hi: 2}).Holding(3); lo != 1 || hi != 3 {
		t.Errorf("got %g to %g", lo, hi)
	}
	if lo, hi := (Interval{Lo: 1, Hi: 2}).Holding(0); lo != 0 || hi != 2 {
		t.Errorf("got %g to %g", lo, hi)
	}
	b := Bounds{Lo: []float64{1, 2, 3}, Hi: []float64{4, 5, 6}}
	if got := b.Subset([]int32{2, 0}); !reflect.DeepEqual(got, Bounds{Lo: []float64{3, 1}, Hi: []float64{6, 4}}) {
		t.Errorf("got %+v", got)
	}
	for v, want := range map[float64]float64{0: 1, 1: 0, 3: 0, 4: 0, 6: 2} {
		if got := b.Distance(0, v); got != want {
			t.Errorf("%g: got the distance %g, want %g", v, got, want)
		}
	}
}
