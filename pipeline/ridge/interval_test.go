package ridge_test

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/pipeline/ridge"
)

// TestExactIntervalsArePlainRows: with lower = upper everywhere the censored
// fit is the plain fit under constant cell weights.
func TestExactIntervalsArePlainRows(t *testing.T) {
	s := ridge.ThreeConfigs(21)
	s.O.Prior = make([]float64, s.D.P)
	w := ridge.CensoredWeights(s.D, s.O)
	for _, lambda := range []float64{1e-6, 1e-3, 1} {
		plain, err := ridge.FitRows(s.D, w, nil, lambda, s.O)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.D.FitCensored(ridge.Bounds{s.D.Y, s.D.Y}, w, nil, lambda, s.O)
		if err != nil {
			t.Fatal(err)
		}
		ridge.Near(t, "beta", got.Fit.Beta, plain.Beta, 1e-9)
		if got.Passes != 1 {
			t.Errorf("passes: got %d, want 1", got.Passes)
		}
	}
}

// intervalsOf hides a delay of about 1 ms inside waits of up to 50 ms.
func intervalsOf(seed uint64, n int) (*ridge.Data, ridge.Bounds, ridge.Options) {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := &ridge.Data{P: 3}
	var b ridge.Bounds
	for i := range n {
		x := []float64{1, rng.Float64(), 0}
		delay := 800 + 500*x[1] + 30*rng.NormFloat64()
		wait := 50000 * rng.Float64()
		step := 50000.
		d.X, d.Y = append(d.X, x...), append(d.Y, 0)
		d.Config = append(d.Config, int32(i%2))
		d.Regime = append(d.Regime, int32(i%3))
		d.Time = append(d.Time, int64(i))
		lo := math.Max(0, delay+wait-step)
		hi := delay + wait
		if i%20 == 0 {
			lo, hi = delay, delay
		}
		b.Lo, b.Hi = append(b.Lo, lo), append(b.Hi, hi)
	}
	o := ridge.DefaultOptions(3)
	o.EpsUs = 1000
	return d, b, o
}

// TestRecoversADelayHiddenInIntervals where the upper end alone is off by 25x.
func TestRecoversADelayHiddenInIntervals(t *testing.T) {
	d, b, o := intervalsOf(22, 4000)
	w := ridge.CensoredWeights(d, o)
	fit, err := d.FitCensored(b, w, nil, 1e-6, o)
	if err != nil {
		t.Fatal(err)
	}
	ridge.Near(t, "delay", fit.Fit.Beta[:2], []float64{800, 500}, .03)
	if e := b.Evaluate(d, w, ridge.Predict(d, fit.Fit.Beta)); e.Inside < .95 || e.Rows != 4000 || e.Exact != 200 {
		t.Errorf("got %+v, want at least 95 %% of the intervals to hold the prediction", e)
	}
}

// TestMatchesPlainPasses compares with the slow rule: refit to clip(x.beta)
// until it no longer moves.
func TestMatchesPlainPasses(t *testing.T) {
	d, b, o := intervalsOf(23, 300)
	w := ridge.CensoredWeights(d, o)
	lambda := 1e-3
	view := *d
	view.Y = append([]float64(nil), b.Lo...)
	var slow ridge.Fit
	for range 20000 {
		var err error
		if slow, err = ridge.FitRows(&view, w, nil, lambda, o); err != nil {
			t.Fatal(err)
		}
		moved := 0.0
		for i := range view.Y {
			v := ridge.Dot(d.Row(i), slow.Beta)
			y := v - b.Pull(i, v, 0).Slope
			moved = math.Max(moved, math.Abs(y-view.Y[i]))
			view.Y[i] = y
		}
		if moved < 1e-7 {
			break
		}
	}
	fast, err := d.FitCensored(b, w, nil, lambda, o)
	if err != nil {
		t.Fatal(err)
	}
	ridge.Near(t, "predictions", ridge.Predict(d, fast.Fit.Beta), ridge.Predict(d, slow.Beta), 1e-4)
	if !fast.Fit.Cert.OK() || fast.Passes > 50 {
		t.Errorf("certificate %+v after %d passes", fast.Fit.Cert, fast.Passes)
	}
}

func TestSelectionScoresIntervals(t *testing.T) {
	d, b, o := intervalsOf(24, 1200)
	sel, err := d.SelectIntervals(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	w := ridge.CensoredWeights(d, o)
	folds, _, err := ridge.Folds(d, o)
	if err != nil {
		t.Fatal(err)
	}
	p := sel[0].Grid[4]
	for j, f := range folds {
		fit, err := d.FitCensored(b, w, f.Train, p.Lambda, o)
		if err != nil {
			t.Fatal(err)
		}
		pred := ridge.Predict(d, fit.Fit.Beta)
		ridge.Near(t, "score", p.FoldScores[j:j+1], []float64{b.Score(d, w, f.Test, 0, func(i int32) float64 { return pred[i] })}, 1e-9)
	}
	if len(p.Loco) != 2 || sel[0].Objective != ridge.Within {
		t.Errorf("got %d left-out scores chosen by %s, want 2 by within", len(p.Loco), sel[0].Objective)
	}
}

// TestIntervalChoicesInParts: the nested choices made afterwards, and those of a variant without columns of
// its own, are what each is when made at once and alone.
func TestIntervalChoicesInParts(t *testing.T) {
	d, b, o := intervalsOf(25, 300)
	for i := range d.Config {
		d.Config[i] = int32(i % 3)
	}
	d.Variants = []ridge.Variant{{Gamma: 0.1}, {Gamma: 0.3}}
	o.SpreadUs = 30
	quick := o
	quick.SkipNested = true
	sels, err := d.SelectIntervals(t.Context(), b, quick)
	if err != nil {
		t.Fatal(err)
	}
	for v, sel := range sels {
		whole, err := d.With(v).SelectIntervals(t.Context(), b, o)
		if err != nil {
			t.Fatal(err)
		}
		nested, err := d.With(v).NestIntervals(t.Context(), sel, b, o)
		if err != nil {
			t.Fatal(err)
		}
		if sel.Nested != nil || len(nested.Nested) != 3 || nested.Gamma != d.Variants[v].Gamma {
			t.Errorf("gamma %g: %d and %d nested choices, want 0 and 3", nested.Gamma, len(sel.Nested), len(nested.Nested))
		}
		if got := whole[0]; !reflect.DeepEqual(got.Grid, nested.Grid) || !reflect.DeepEqual(got.Nested, nested.Nested) {
			t.Errorf("gamma %g: got %+v, want %+v", nested.Gamma, nested, got)
		}
	}
}
