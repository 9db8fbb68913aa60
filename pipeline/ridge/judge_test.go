package ridge

import (
	"math"
	"slices"
	"testing"
)

// TestV10Tags on columns that vary inside, between and nowhere.
func TestV10Tags(t *testing.T) {
	s := small(33)
	tags := Identify(WithinVariation(s.d, Weights(s.d, s.o)))
	for j, want := range map[int]Identification{
		colWork: IdentifiedWithin, colShape: BetweenConfigs, colConstant: BetweenConfigs, colNever: PriorOnly, colRare: IdentifiedWithin,
	} {
		if tags[j] != want {
			t.Errorf("term %d: got %s, want %s", j+1, tags[j], want)
		}
	}
	one := plant(33, plantOptions{configs: 1, rows: 300, noise: .05})
	if tag := Identify(WithinVariation(one.d, Weights(one.d, one.o)))[colConstant]; tag != PriorOnly {
		t.Errorf("constant with one configuration: got %s, want %s", tag, PriorOnly)
	}
}

// TestNullDirectionsAreNamed: a copied column and a constant pair cannot be told
// apart, their sum can; the other terms are not accused.
func TestNullDirectionsAreNamed(t *testing.T) {
	one := plant(34, plantOptions{configs: 1, rows: 400})
	for i := range one.d.Len() {
		one.d.Row(i)[colNever] = 2 * one.d.Row(i)[colRead]
	}
	w := Weights(one.d, one.o)
	g := GramOf(one.d, w, nil, 1)
	fit, err := Solve(g, 1e-10, one.o)
	if err != nil {
		t.Fatal(err)
	}
	d := Diagnose(g, fit)
	if len(d.Null) != 2 || !slices.Equal(d.Null[0].Terms, []int{colRead, colNever}) || !slices.Equal(d.Null[1].Terms, []int{colShape, colConstant}) {
		t.Fatalf("null groups: got %+v, want {%d %d} and {%d %d}", d.Null, colRead, colNever, colShape, colConstant)
	}
	if !math.IsInf(d.VIF[colRead], 1) && d.VIF[colRead] < 1e9 || d.VIF[colBatch] > 1e6 || d.Condition < 1e9 {
		t.Errorf("VIF of the copied column %g, of another %g, condition %g", d.VIF[colRead], d.VIF[colBatch], d.Condition)
	}
	sum := d.Null[1].SumUs
	near(t, "known sum", []float64{sum}, []float64{one.beta[colShape] + one.beta[colConstant]}, 1e-3)
	conf := ConfidenceRows(one.d, fit, Identify(WithinVariation(one.d, w)), one.o, ConfidenceOptions{Draws: 50, Level: .95, Seed: 1})
	for _, j := range []int{colRead, colNever, colShape, colConstant} {
		if conf.Terms[j].Method != FromNothing {
			t.Errorf("term %d cannot be known, got [%g, %g]", j+1, conf.Terms[j].Lo, conf.Terms[j].Hi)
		}
	}
}

// TestIntervalsHoldTheTruth in most of 12 data sets: the short form of the
// coverage evaluation.
func TestIntervalsHoldTheTruth(t *testing.T) {
	hits, all := 0, 0
	for seed := range uint64(12) {
		s := plant(100+seed, plantOptions{configs: 3, rows: 400, noise: .05, memory: .4})
		conf, tags := intervals(t, s)
		for j, term := range conf.Terms {
			if tags[j] == IdentifiedWithin && term.Method == FromBlocks {
				all++
				if term.Lo <= s.beta[j] && s.beta[j] <= term.Hi {
					hits++
				}
				if v := conf.Covariance[j*numColumns+j]; math.Abs(math.Sqrt(v)-term.SE) > 1e-9*term.SE {
					t.Errorf("term %d: standard error %g, covariance says %g", j+1, term.SE, math.Sqrt(v))
				}
			}
		}
	}
	if all < 90 || float64(hits) < .88*float64(all) || hits == all {
		t.Errorf("%d of %d intervals hold the truth, want about 95 %%", hits, all)
	}
}

// TestT7IntervalsNeedConflict: intervals that every prediction satisfies give no
// confidence interval, conflicting ones do.
func TestT7IntervalsNeedConflict(t *testing.T) {
	d, b, o := intervalsOf(25, 2000)
	w := CensoredWeights(d, o)
	tags := []Identification{IdentifiedWithin, IdentifiedWithin, PriorOnly}
	interval := func() Confidence {
		fit, err := FitCensored(d, b, w, nil, 1e-6, o)
		if err != nil {
			t.Fatal(err)
		}
		return ConfidenceBlocks(CensoredBlocks(d, w, fit, o), tags, o, ConfidenceOptions{Draws: 100, Level: .95, Seed: 1})
	}
	if c := interval(); c.Terms[0].Method != FromBlocks || c.Terms[0].Hi-c.Terms[0].Lo > 200 || c.Terms[0].Lo > 820 || c.Terms[0].Hi < 780 {
		t.Errorf("got %+v, want a short interval around 800", c.Terms[0])
	}
	for i := range b.Lo {
		b.Lo[i], b.Hi[i] = 0, 1e6
	}
	if c := interval(); c.Terms[0].Method != FromNothing {
		t.Errorf("got %+v, want none: every row is satisfied", c.Terms[0])
	}
}

// TestProposeFindsTheMissingExperiment: the candidate that separates two
// collinear terms wins and shrinks exactly their intervals.
func TestProposeFindsTheMissingExperiment(t *testing.T) {
	gram := func(rows ...[]float64) *Gram {
		d := &Data{P: 3}
		for _, r := range rows {
			d.X, d.Y = append(d.X, r...), append(d.Y, 1)
		}
		w := make([]float64, d.Len())
		for i := range w {
			w[i] = 1
		}
		return GramOf(d, w, nil, 1)
	}
	base := gram([]float64{1, 1, 0}, []float64{2, 2, 0}, []float64{1, 1, 1}, []float64{2, 2, 1})
	same, apart := gram([]float64{1.5, 1.5, 1}, []float64{3, 3, 0}), gram([]float64{1, 0, 0}, []float64{2, 1, 0})
	got := Propose(base, []*Gram{same, apart})
	if got[0].Index != 1 || got[0].LogDet <= got[1].LogDet {
		t.Fatalf("ranking: got %+v, want candidate 1 first", got)
	}
	if s := got[0].Shrink; s[0] > .01 || s[1] > .01 || s[2] < .5 || s[2] > 1 {
		t.Errorf("shrink: got %v, want near 0 for the first two terms", s)
	}
	if s := got[1].Shrink; s[0] < .9 {
		t.Errorf("more of the same: got %v, want no news on the first term", s)
	}
}
