package export

import (
	"math"
	"reflect"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
)

// TestDiff: each kind of difference of two sets. The standard errors of the intervals 10 +- 1.96 and 10.5 +- 1.96 are 1 each,
// so that of the difference is the root of 2, and 0.5 of it is not significant; 5 of it is.
func TestDiff(t *testing.T) {
	ci := func(mid, se float64) *[2]float64 {
		return &[2]float64{mid - 1.959963984540054*se, mid + 1.959963984540054*se}
	}
	a := &coeff.Set{SpecVersion: features.V11, BetaTarget: coeff.Cadence, Recipe: "relative", Gamma: 0.1, TrainedOn: coeff.TrainedOn{Lambda: 1, Date: "d", Samples: 5},
		Beta: []coeff.Coefficient{{Name: "near", Value: 10, CI95: ci(10, 1)}, {Name: "far", Unit: "us", Value: 10, CI95: ci(10, 1)}, {Name: "same", Value: 3}, {Name: "prior", Value: 3, Identified: coeff.PriorOnly},
			{Name: "bare", Value: 0}},
		Alpha:           []coeff.AlphaModel{{Target: coeff.Admission}, {Target: coeff.Overhead, Coefficients: []coeff.Coefficient{{Name: "o", Value: 1, CI95: ci(1, 3)}}}},
		HardwareFactors: map[string]float64{"A": 1.5, "B": 1}, PromptFactors: map[string]float64{"A": 2}}
	b := &coeff.Set{SpecVersion: features.V11, BetaTarget: coeff.Cadence, Recipe: "absolute", Gamma: 0.2, TrainedOn: coeff.TrainedOn{Lambda: 2, Date: "e", Samples: 7},
		Beta:  []coeff.Coefficient{{Name: "near", Value: 10.5, CI95: ci(10.5, 1)}, {Name: "far", Unit: "us", Value: 15, CI95: ci(15, 1)}, {Name: "same", Value: 3}, {Name: "prior", Value: 4}, {Name: "bare", Value: 2}},
		Alpha: []coeff.AlphaModel{{Target: coeff.Egress}, {Target: coeff.Overhead, Coefficients: []coeff.Coefficient{{Name: "o", Value: 5, CI95: ci(5, 4)}}}}, DeploymentFactors: map[string]float64{"C": 3}}
	d, err := Diff(a, b, nil, DefaultDiffOptions())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"recipe: relative -> absolute", "lambda: 1 -> 2", "gamma: 0.1 -> 0.2", "training_date: d -> e", "n_samples: 5 -> 7", "alpha target admission is gone", "alpha target egress is new"}; !reflect.DeepEqual(d.Settings, want) {
		t.Errorf("got %q, want %q", d.Settings, want)
	}
	type term struct {
		model, name      string
		delta, ratio, se float64 // NaN: none
		significant      string
		note             string
	}
	nan := math.NaN()
	want := []term{
		{"beta", "near", 0.5, 1.05, math.Sqrt2, "no", ""}, {"beta", "far", 5, 1.5, math.Sqrt2, "yes", ""}, {"beta", "same", 0, 1, nan, "no", ""}, {"beta", "prior", 1, 4.0 / 3, nan, "no", "not identified"},
		{"beta", "bare", 2, nan, nan, "", "no interval"}, {"factor", "A", -0.5, 1 / 1.5, nan, "", "no interval"}, {"factor", "A, prompt work", -1, 0.5, nan, "", "no interval"}, {"factor", "B", 0, 1, nan, "no", ""},
		{"factor", "C", 2, 3, nan, "", "no interval"}, {coeff.Overhead, "o", 4, 5, 5, "no", ""},
	}
	if len(d.Terms) != len(want) {
		t.Fatalf("got %d terms, want %d", len(d.Terms), len(want))
	}
	or := func(v *float64) float64 {
		if v == nil {
			return nan
		}
		return *v
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 || math.IsNaN(a) && math.IsNaN(b) }
	for i, w := range want {
		g := d.Terms[i]
		significant := ""
		if g.Significant != nil {
			significant = "no"
			if *g.Significant {
				significant = "yes"
			}
		}
		if g.Model != w.model || g.Name != w.name || !near(g.Delta, w.delta) || !near(or(g.Ratio), w.ratio) || !near(or(g.SE), w.se) || significant != w.significant || g.Note != w.note {
			t.Errorf("got %+v (%s), want %+v", g, significant, w)
		}
	}
	// The p-values of 0.5/1.414 and 5/1.414 deviations of a normal distribution, from tables.
	if !(math.Abs(*d.Terms[0].P-0.72367) < 1e-5) || !(math.Abs(*d.Terms[1].P-0.00040695) < 1e-8) {
		t.Errorf("got p %g and %g", *d.Terms[0].P, *d.Terms[1].P)
	}
	drawn, err := Diff(a, b, nil, DiffOptions{Level: 0.05, Tolerance: 0.01, Bootstrap: map[string][]result.Coefficient{"beta": {{Coefficient: coeff.Coefficient{Name: "near", CI95: ci(0, 3)}}}}})
	if err != nil || drawn.Significance != fromBootstrap || !near(or(drawn.Terms[0].SE), 3*math.Sqrt2) || drawn.Terms[1].SE != nil || d.Significance != fromStored {
		t.Errorf("got %+v and %v", drawn, err)
	}
	other := *b
	other.SpecVersion = features.V12
	if _, err := Diff(a, &other, nil, DefaultDiffOptions()); err == nil {
		t.Error("sets of two versions were compared")
	}
	other = *b
	other.BetaTarget = "busy"
	if _, err := Diff(a, &other, nil, DefaultDiffOptions()); err == nil {
		t.Error("sets of two targets were compared")
	}
	for _, o := range []DiffOptions{{Level: 0, Tolerance: 1}, {Level: 1, Tolerance: 1}, {Level: 0.5, Tolerance: 0}, {Level: 0.5, Tolerance: math.Inf(1)}} {
		if o.Check() == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	// Holm's step-down at 5 % over three p-values: 0.01 of 0.0167 passes, 0.025 of 0.025 too, 0.051 of 0.05 does not.
	terms := []TermDiff{{P: testkit.Ptr(0.051)}, {P: testkit.Ptr(0.01)}, {}, {P: testkit.Ptr(0.025)}}
	holm(terms, 0.05)
	if *terms[0].Significant || !*terms[1].Significant || terms[2].Significant != nil || !*terms[3].Significant {
		t.Errorf("got %+v", terms)
	}
	terms = []TermDiff{{P: testkit.Ptr(0.02)}, {P: testkit.Ptr(0.021)}, {P: testkit.Ptr(0.022)}}
	holm(terms, 0.05)
	if *terms[0].Significant || *terms[2].Significant {
		t.Error("after one that stays no other is rejected")
	}
}

// TestSinceFigures: verdicts, gates and terms that changed, in this order; gates that turned come first, then the largest moves.
func TestSinceFigures(t *testing.T) {
	p := testkit.Ptr
	yes, no := true, false
	gate := func(name string, v *float64, pass *bool) coeff.Gate {
		return coeff.Gate{Name: name, Scope: "all", Value: v, Pass: pass}
	}
	old := &Old{Name: "old.json", Purposes: []coeff.PurposeVerdict{{Purpose: "steps", Scope: "all", Verdict: "pass"}, {Purpose: "replay", Scope: "all", Verdict: "pass"}},
		Gates: []coeff.Gate{gate("small", p(1), &yes), gate("moved", p(1), &yes), gate("turned", p(1), &yes), gate("unknown", nil, nil), gate("more", p(1), &yes), gate("found", nil, nil)}}
	v := &result.Validation{}
	for _, p := range []coeff.PurposeVerdict{{Purpose: "steps", Scope: "all", Verdict: "fail"}, {Purpose: "replay", Scope: "all", Verdict: "pass"}, {Purpose: "steps", Scope: "r2", Verdict: "pass"}} {
		v.Purposes = append(v.Purposes, result.PurposeVerdict{PurposeVerdict: p})
	}
	for _, g := range []coeff.Gate{gate("small", p(1.0099), &yes), gate("moved", p(1.02), &yes), gate("turned", p(1.001), &no), gate("unknown", nil, nil), gate("more", p(0.5), &yes), gate("found", p(2), &yes), gate("new", p(2), &yes)} {
		v.Gates = append(v.Gates, result.Gate{Gate: g})
	}
	got := Since(old, v, nil)
	type row struct{ kind, name, was, is string }
	var rows []row
	for _, r := range got.Rows {
		rows = append(rows, row{r.Kind, r.Name, r.Was, r.Is})
	}
	want := []row{{result.ChangeVerdict, "steps", "pass", "fail"}, {result.ChangeGate, "found", "not judged", "pass"}, {result.ChangeGate, "turned", "pass", "fail"}, {result.ChangeGate, "more", "pass", "pass"},
		{result.ChangeGate, "moved", "pass", "pass"}}
	if !reflect.DeepEqual(rows, want) || got.Same != 2 || !reflect.DeepEqual(got.Notes, []string{"r2 is new", "no coefficients to compare with"}) || got.Against != "old.json" {
		t.Errorf("got %+v, %d the same, %q\nwant %+v", rows, got.Same, got.Notes, want)
	}
	set := func(values ...float64) *coeff.Set {
		s := &coeff.Set{SpecVersion: features.V11}
		for _, v := range values {
			s.Beta = append(s.Beta, coeff.Coefficient{Name: "b", Value: v})
		}
		return s
	}
	terms := Since(OldSet("c", set(1, 1, 1)), &result.Validation{}, set(1, 1.0099, 1.011))
	if len(terms.Rows) != 1 || *terms.Rows[0].New != 1.011 || terms.Same != 2 || !reflect.DeepEqual(terms.Notes, []string{"no verdicts by purpose before"}) {
		t.Errorf("got %+v", terms)
	}
	for _, c := range []struct {
		a, b *float64
		want float64
	}{{p(2), p(3), 0.5}, {p(-2), p(-1), 0.5}, {p(0), p(0), 0}, {p(0), p(1), math.Inf(1)}, {nil, p(1), math.Inf(1)}} {
		if got := relative(c.a, c.b); got != c.want {
			t.Errorf("got %g, want %g", got, c.want)
		}
	}
}

// TestTrends: the first, last, best and slope of each figure over the entries that have it.
func TestTrends(t *testing.T) {
	p := testkit.Ptr
	got := Trends([]Entry{{Headline: headline{BetaMAPE: p(0.3), BetaSkill: p(0.2)}}, {}, {Headline: headline{BetaMAPE: p(0.1)}}, {Headline: headline{BetaMAPE: p(0.2), BetaSkill: p(0.1)}}})
	if len(got) != 2 {
		t.Fatalf("got %+v", got)
	}
	for i, want := range []Trend{{Figure: "beta_mape", N: 3, First: 0.3, Last: 0.2, Best: 0.1, Slope: -0.05, Values: []float64{0.3, 0.1, 0.2}},
		{Figure: "beta_skill", N: 2, First: 0.2, Last: 0.1, Best: 0.2, Slope: -0.1, Values: []float64{0.2, 0.1}}} {
		g := got[i]
		if math.Abs(g.Slope-want.Slope) > 1e-12 {
			t.Errorf("%s: got the slope %g, want %g", want.Figure, g.Slope, want.Slope)
		}
		g.Slope = want.Slope
		if !reflect.DeepEqual(g, want) {
			t.Errorf("got %+v, want %+v", g, want)
		}
	}
	if slope([]float64{7}) != 0 || math.Abs(slope([]float64{1, 3, 5, 7})-2) > 1e-12 {
		t.Error("got another slope")
	}
}
