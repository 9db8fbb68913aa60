package ridge

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestT7ExactIntervalsArePlainRows: with lower = upper everywhere the censored
// fit is the plain fit under constant cell weights.
func TestT7ExactIntervalsArePlainRows(t *testing.T) {
	s := small(21)
	s.o.Prior = make([]float64, s.d.P)
	w := CensoredWeights(s.d, s.o)
	for _, lambda := range []float64{1e-6, 1e-3, 1} {
		plain, err := FitRows(s.d, w, nil, lambda, s.o)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FitCensored(s.d, Bounds{s.d.Y, s.d.Y}, w, nil, lambda, s.o)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "beta", got.Fit.Beta, plain.Beta, 1e-9)
		if got.Passes != 1 {
			t.Errorf("passes: got %d, want 1", got.Passes)
		}
	}
}

// intervalsOf hides a delay of about 1 ms inside waits of up to 50 ms.
func intervalsOf(seed uint64, n int) (*Data, Bounds, Options) {
	rng := rand.New(rand.NewPCG(seed, 1))
	d := &Data{P: 3}
	var b Bounds
	for i := range n {
		x := []float64{1, rng.Float64(), 0}
		delay := 800 + 500*x[1] + 30*rng.NormFloat64()
		wait := 50000 * rng.Float64()
		step := 50000.
		d.X, d.Y = append(d.X, x...), append(d.Y, 0)
		d.Config, d.Regime, d.Time = append(d.Config, int32(i%2)), append(d.Regime, int32(i%3)), append(d.Time, int64(i))
		lo, hi := math.Max(0, delay+wait-step), delay+wait
		if i%20 == 0 {
			lo, hi = delay, delay
		}
		b.Lo, b.Hi = append(b.Lo, lo), append(b.Hi, hi)
	}
	o := DefaultOptions(3)
	o.EpsUs = 1000
	return d, b, o
}

// TestT7RecoversADelayHiddenInIntervals where the upper end alone is off by 25x.
func TestT7RecoversADelayHiddenInIntervals(t *testing.T) {
	d, b, o := intervalsOf(22, 4000)
	w := CensoredWeights(d, o)
	fit, err := FitCensored(d, b, w, nil, 1e-6, o)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "delay", fit.Fit.Beta[:2], []float64{800, 500}, .03)
	if e := EvaluateCensored(d, b, w, Predict(d, fit.Fit.Beta)); e.Inside < .95 || e.Rows != 4000 || e.Exact != 200 {
		t.Errorf("got %+v, want at least 95 %% of the intervals to hold the prediction", e)
	}
}

// TestT7MatchesPlainPasses compares with the slow rule: refit to clip(x.beta)
// until it no longer moves.
func TestT7MatchesPlainPasses(t *testing.T) {
	d, b, o := intervalsOf(23, 300)
	w := CensoredWeights(d, o)
	lambda := 1e-3
	view := *d
	view.Y = append([]float64(nil), b.Lo...)
	var slow Fit
	for range 20000 {
		var err error
		if slow, err = FitRows(&view, w, nil, lambda, o); err != nil {
			t.Fatal(err)
		}
		moved := 0.0
		for i := range view.Y {
			y := b.clip(i, Dot(d.Row(i), slow.Beta))
			moved = math.Max(moved, math.Abs(y-view.Y[i]))
			view.Y[i] = y
		}
		if moved < 1e-7 {
			break
		}
	}
	fast, err := FitCensored(d, b, w, nil, lambda, o)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "predictions", Predict(d, fast.Fit.Beta), Predict(d, slow.Beta), 1e-4)
	if !fast.Fit.Cert.OK() || fast.Passes > 50 {
		t.Errorf("certificate %+v after %d passes", fast.Fit.Cert, fast.Passes)
	}
}

func TestT7SelectionScoresIntervals(t *testing.T) {
	d, b, o := intervalsOf(24, 1200)
	sel, err := SelectCensored(d, b, o)
	if err != nil {
		t.Fatal(err)
	}
	w := CensoredWeights(d, o)
	folds, _, err := Folds(d, o, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := sel[0].Grid[4]
	for j, f := range folds {
		fit, err := FitCensored(d, b, w, f.Train, p.Lambda, o)
		if err != nil {
			t.Fatal(err)
		}
		pred := Predict(d, fit.Fit.Beta)
		near(t, "score", p.FoldScores[j:j+1], []float64{b.Score(d, w, f.Test, 0, func(i int32) float64 { return pred[i] })}, 1e-9)
	}
	if len(p.Loco) != 2 || sel[0].Objective != Within {
		t.Errorf("got %d left-out scores chosen by %s, want 2 by within", len(p.Loco), sel[0].Objective)
	}
	b.Lo[3] = b.Hi[3] + 1
	if _, err := SelectCensored(d, b, o); err == nil {
		t.Error("an empty interval was accepted")
	}
}
