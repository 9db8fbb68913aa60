package ridge_test

import (
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/bootstrap"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/ridge/ridgetest"
	"math"
	"slices"
	"testing"
)

// TestTags on columns that vary inside, between and nowhere.
func TestTags(t *testing.T) {
	s := ridgetest.ThreeConfigs(33)
	tags := ridge.Identify(ridge.WithinVariation(s.D, cells.Weights(s.D, s.O)))
	for j, want := range map[int]ridge.Identification{
		ridgetest.ColWork: ridge.IdentifiedWithin, ridgetest.ColShape: ridge.BetweenConfigs, ridgetest.ColConstant: ridge.BetweenConfigs,
		ridgetest.ColNever: ridge.PriorOnly, ridgetest.ColRare: ridge.IdentifiedWithin,
	} {
		if tags[j] != want {
			t.Errorf("term %d: got %s, want %s", j+1, tags[j], want)
		}
	}
	one := ridgetest.Plant(33, ridgetest.Shape{Configs: 1, Rows: 300, Noise: .05})
	if tag := ridge.Identify(ridge.WithinVariation(one.D, cells.Weights(one.D, one.O)))[ridgetest.ColConstant]; tag != ridge.PriorOnly {
		t.Errorf("constant with one configuration: got %s, want %s", tag, ridge.PriorOnly)
	}
}

// TestNullDirectionsAreNamed: a copied column and a constant pair cannot be told
// apart, their sum can; the other terms are not accused.
func TestNullDirectionsAreNamed(t *testing.T) {
	one := ridgetest.Plant(34, ridgetest.Shape{Configs: 1, Rows: 400})
	for i := range one.D.Len() {
		one.D.Row(i)[ridgetest.ColNever] = 2 * one.D.Row(i)[ridgetest.ColRead]
	}
	w := cells.Weights(one.D, one.O)
	g := gram.OfRows(one.D, w, nil, 1)
	fit, err := ridge.Solve(g, 1e-10, one.O)
	if err != nil {
		t.Fatal(err)
	}
	d := ridge.Diagnose(g, fit)
	if len(d.Null) != 2 || !slices.Equal(d.Null[0].Terms, []int{ridgetest.ColRead, ridgetest.ColNever}) ||
		!slices.Equal(d.Null[1].Terms, []int{ridgetest.ColShape, ridgetest.ColConstant}) {
		t.Fatalf("null groups: got %+v, want {%d %d} and {%d %d}", d.Null, ridgetest.ColRead, ridgetest.ColNever, ridgetest.ColShape,
			ridgetest.ColConstant)
	}
	if !math.IsInf(d.VIF[ridgetest.ColRead], 1) && d.VIF[ridgetest.ColRead] < 1e9 || d.VIF[ridgetest.ColBatch] > 1e6 || d.Condition < 1e9 {
		t.Errorf("VIF of the copied column %g, of another %g, condition %g", d.VIF[ridgetest.ColRead], d.VIF[ridgetest.ColBatch], d.Condition)
	}
	sum := d.Null[1].SumUs
	ridgetest.Near(t, "known sum", []float64{sum}, []float64{one.Beta[ridgetest.ColShape] + one.Beta[ridgetest.ColConstant]}, 1e-3)
	conf := bootstrap.Rows(one.D, fit, ridge.Identify(ridge.WithinVariation(one.D, w)), one.O,
		bootstrap.Options{Draws: 50, Level: .95, Seed: 1})
	for _, j := range []int{ridgetest.ColRead, ridgetest.ColNever, ridgetest.ColShape, ridgetest.ColConstant} {
		if conf.Terms[j].Method != bootstrap.FromNothing {
			t.Errorf("term %d cannot be known, got [%g, %g]", j+1, conf.Terms[j].Lo, conf.Terms[j].Hi)
		}
	}
}

// TestIntervalsNeedConflict: intervals that every prediction satisfies give no
// confidence interval, conflicting ones do.
func TestIntervalsNeedConflict(t *testing.T) {
	d, b, o := intervalsOf(25, 2000)
	w := cells.CensoredWeights(d, o)
	tags := []ridge.Identification{ridge.IdentifiedWithin, ridge.IdentifiedWithin, ridge.PriorOnly}
	interval := func() bootstrap.Confidence {
		fit, err := ridge.FitCensored(d, b, w, nil, 1e-6, o)
		if err != nil {
			t.Fatal(err)
		}
		return bootstrap.Blocks(bootstrap.OfIntervals(d, w, fit, o), tags, o, bootstrap.Options{Draws: 100, Level: .95, Seed: 1})
	}
	if c := interval(); c.Terms[0].Method != bootstrap.FromBlocks || c.Terms[0].Hi-c.Terms[0].Lo > 200 || c.Terms[0].Lo > 820 ||
		c.Terms[0].Hi < 780 {
		t.Errorf("got %+v, want a short interval around 800", c.Terms[0])
	}
	for i := range b.Lo {
		b.Lo[i], b.Hi[i] = 0, 1e6
	}
	if c := interval(); c.Terms[0].Method != bootstrap.FromNothing {
		t.Errorf("got %+v, want none: every row is satisfied", c.Terms[0])
	}
}

// TestProposeFindsTheMissingExperiment: the candidate that separates two
// collinear terms wins and shrinks exactly their intervals.
func TestProposeFindsTheMissingExperiment(t *testing.T) {
	gramOf := func(rows ...[]float64) *gram.Gram {
		d := &gram.Data{P: 3}
		for _, r := range rows {
			d.X, d.Y = append(d.X, r...), append(d.Y, 1)
		}
		w := make([]float64, d.Len())
		for i := range w {
			w[i] = 1
		}
		return gram.OfRows(d, w, nil, 1)
	}
	base := gramOf([]float64{1, 1, 0}, []float64{2, 2, 0}, []float64{1, 1, 1}, []float64{2, 2, 1})
	same, apart := gramOf([]float64{1.5, 1.5, 1}, []float64{3, 3, 0}), gramOf([]float64{1, 0, 0}, []float64{2, 1, 0})
	got := ridge.Propose(base, []*gram.Gram{same, apart})
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
