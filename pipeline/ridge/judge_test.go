package ridge_test

import (
	"math"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/ridge"
)

// TestTags on columns that vary inside, between and nowhere.
func TestTags(t *testing.T) {
	s := ridge.ThreeConfigs(33)
	tags := ridge.Identify(s.D.WithinVariation(ridge.Weights(s.D, s.O)))
	for j, want := range map[int]string{
		ridge.ColWork: coeff.Within, ridge.ColShape: coeff.BetweenConfigs, ridge.ColConstant: coeff.BetweenConfigs,
		ridge.ColNever: coeff.PriorOnly, ridge.ColRare: coeff.Within,
	} {
		if tags[j] != want {
			t.Errorf("term %d: got %s, want %s", j+1, tags[j], want)
		}
	}
	one := ridge.Plant(33, ridge.Shape{Configs: 1, Rows: 300, Noise: .05})
	if tag := ridge.Identify(one.D.WithinVariation(ridge.Weights(one.D, one.O)))[ridge.ColConstant]; tag != coeff.PriorOnly {
		t.Errorf("constant with one configuration: got %s, want %s", tag, coeff.PriorOnly)
	}
}

// TestShareThatIdentifies: a millionth of a term's squares has to vary inside a configuration, in one of them at least.
func TestShareThatIdentifies(t *testing.T) {
	none := math.NaN() // a column of zeros
	for name, c := range map[string]struct {
		shares [][]float64
		want   []string
	}{
		"one configuration":  {[][]float64{{1e-6, 0.99e-6, 0, none}}, []string{coeff.Within, coeff.PriorOnly, coeff.PriorOnly, coeff.PriorOnly}},
		"two configurations": {[][]float64{{1e-6, 0.99e-6, 0, none}, {0, 0, none, none}}, []string{coeff.Within, coeff.BetweenConfigs, coeff.BetweenConfigs, coeff.PriorOnly}},
		"in the second":      {[][]float64{{0, none}, {1e-6, 1e-6}}, []string{coeff.Within, coeff.Within}},
	} {
		if got := ridge.Identify(c.shares); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// TestNullDirectionsAreNamed: a copied column and a constant pair cannot be told
// apart, their sum can; the other terms are not accused.
func TestNullDirectionsAreNamed(t *testing.T) {
	one := ridge.Plant(34, ridge.Shape{Configs: 1, Rows: 400})
	for i := range one.D.Len() {
		one.D.Row(i)[ridge.ColNever] = 2 * one.D.Row(i)[ridge.ColRead]
	}
	w := ridge.Weights(one.D, one.O)
	g := ridge.OfRows(one.D, w, nil, 1)
	fit, err := ridge.Solve(g, 1e-10, one.O)
	if err != nil {
		t.Fatal(err)
	}
	d := g.Diagnose(fit)
	if len(d.Null) != 2 || !slices.Equal(d.Null[0].Terms, []int{ridge.ColRead, ridge.ColNever}) ||
		!slices.Equal(d.Null[1].Terms, []int{ridge.ColShape, ridge.ColConstant}) {
		t.Fatalf("null groups: got %+v, want {%d %d} and {%d %d}", d.Null, ridge.ColRead, ridge.ColNever, ridge.ColShape,
			ridge.ColConstant)
	}
	if !math.IsInf(d.VIF[ridge.ColRead], 1) && d.VIF[ridge.ColRead] < 1e9 || d.VIF[ridge.ColBatch] > 1e6 || d.Condition < 1e9 {
		t.Errorf("VIF of the copied column %g, of another %g, condition %g", d.VIF[ridge.ColRead], d.VIF[ridge.ColBatch], d.Condition)
	}
	sum := d.Null[1].SumUs
	ridge.Near(t, "known sum", []float64{sum}, []float64{one.Beta[ridge.ColShape] + one.Beta[ridge.ColConstant]}, 1e-3)
	conf := one.D.Confidence(fit, ridge.Identify(one.D.WithinVariation(w)), one.O)
	for _, j := range []int{ridge.ColRead, ridge.ColNever, ridge.ColShape, ridge.ColConstant} {
		if conf.Terms[j].Method != ridge.FromNothing {
			t.Errorf("term %d cannot be known, got [%g, %g]", j+1, conf.Terms[j].Lo, conf.Terms[j].Hi)
		}
	}
}

// TestIntervalsNeedConflict: intervals that every prediction satisfies give no
// interval, conflicting ones do.
func TestIntervalsNeedConflict(t *testing.T) {
	d, b, o := intervalsOf(25, 2000)
	o.Draws = 100
	w := ridge.CensoredWeights(d, o)
	tags := []string{coeff.Within, coeff.Within, coeff.PriorOnly}
	interval := func() ridge.Confidence {
		fit, err := d.FitCensored(b, w, nil, 1e-6, o)
		if err != nil {
			t.Fatal(err)
		}
		return ridge.Blocks(fit.Blocks(d, w, o), tags, o)
	}
	if c := interval(); c.Terms[0].Method != ridge.FromBlocks || c.Terms[0].Hi-c.Terms[0].Lo > 200 || c.Terms[0].Lo > 820 ||
		c.Terms[0].Hi < 780 {
		t.Errorf("got %+v, want a short interval around 800", c.Terms[0])
	}
	for i := range b.Lo {
		b.Lo[i], b.Hi[i] = 0, 1e6
	}
	if c := interval(); c.Terms[0].Method != ridge.FromNothing {
		t.Errorf("got %+v, want none: every row is satisfied", c.Terms[0])
	}
}

// TestProposeFindsTheMissingExperiment: the candidate that separates two
// collinear terms wins and shrinks exactly their intervals.
func TestProposeFindsTheMissingExperiment(t *testing.T) {
	gramOf := func(rows ...[]float64) *ridge.Gram {
		d := &ridge.Data{P: 3}
		for _, r := range rows {
			d.X, d.Y = append(d.X, r...), append(d.Y, 1)
		}
		w := make([]float64, d.Len())
		for i := range w {
			w[i] = 1
		}
		return ridge.OfRows(d, w, nil, 1)
	}
	base := gramOf([]float64{1, 1, 0}, []float64{2, 2, 0}, []float64{1, 1, 1}, []float64{2, 2, 1})
	same := gramOf([]float64{1.5, 1.5, 1}, []float64{3, 3, 0})
	apart := gramOf([]float64{1, 0, 0}, []float64{2, 1, 0})
	got := base.Propose([]*ridge.Gram{same, apart})
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
