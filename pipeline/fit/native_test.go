package fit

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/result"
)

// TestNative: what of fit.json becomes part of the coefficient file.
func TestNative(t *testing.T) {
	f := testkit.PhysicsFit()
	f.Beta.Rows.Kept, f.Beta.Rows.Holdout = 100, 30
	f.Beta.Lambda, f.Beta.GammaEMA = testkit.Ptr(0.25), nil
	f.Beta.Holdout = &result.Errors{RMSEUs: testkit.Ptr(77)}
	f.Beta.ResidualQuant = []result.RegimeQuantiles{{Regime: "decode", Quantiles: [][2]float64{{0.5, 1.1}}}}
	f.Beta.HardwareFactors = []result.HardwareFactor{{Hardware: "H100", Factor: 1.25}}
	f.TrainingDate = "2026-02-03"
	f.Beta.Rows.ByRegime = nil
	for i := range f.Configs {
		f.Beta.Rows.ByRegime = append(f.Beta.Rows.ByRegime, result.RegimeRows{Config: f.Configs[i].Key, Regime: "decode", Rows: 10 + i}, result.RegimeRows{Config: f.Configs[i].Key, Regime: "mixed", Rows: 7})
	}
	set, err := Native(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]float64{
		"first term":    {set.Beta[0].Value, f.Beta.Coefficients[0].Value},
		"samples":       {float64(set.TrainedOn.Samples), 70},
		"lambda":        {set.TrainedOn.Lambda, 0.25},
		"gamma":         {set.Gamma, 0.3},
		"trained gamma": {set.TrainedOn.Gamma, 0.3},
		"RMSE":          {set.TrainedOn.HoldOutRMSE[f.Beta.Target], 77},
		"residuals":     {set.Residuals["decode"][0][1], 1.1},
		"hardware":      {set.HardwareFactors["H100"], 1.25},
		"terms":         {float64(len(set.Beta)), 16},
		"configs":       {float64(len(set.Configs)), float64(len(f.Configs))},
		"alphas":        {float64(len(set.Alpha)), float64(len(f.Alpha))},
	} {
		if v[0] != v[1] {
			t.Errorf("%s: got %g, want %g", name, v[0], v[1])
		}
	}
	samples := int64(0)
	for i := range set.Configs {
		samples += set.Configs[i].Samples
		if i > 0 && set.Configs[i].Key < set.Configs[i-1].Key {
			t.Error("configurations are sorted by key")
		}
	}
	want := int64(0)
	for i := range f.Configs {
		want += int64(17 + i)
	}
	if samples != want || set.TrainedOn.Date != "2026-02-03" || len(set.TrainedOn.Models) == 0 || len(set.TrainedOn.TPs) == 0 {
		t.Errorf("got %d samples, %+v", samples, set.TrainedOn)
	}
	for i := range set.Alpha {
		if a := set.Alpha[i]; a.Replay != (a.Target == coeff.Overhead || a.Target == coeff.Egress) || i > 0 && a.Target <= set.Alpha[i-1].Target {
			t.Errorf("got %+v", a)
		}
	}
	f.Options.RefitAll = true
	f.Beta.GammaEMA = testkit.Ptr(0.7)
	if set, err = Native(f, nil); err != nil || set.TrainedOn.Samples != 100 || set.Gamma != 0.7 || !set.Refit {
		t.Errorf("refitted: got %+v and %v", set.TrainedOn, err)
	}
	f.Beta.Coefficients[0].Value = math.NaN()
	if _, err := Native(f, nil); err == nil || !strings.HasPrefix(err.Error(), "fit.json: ") {
		t.Errorf("got %v", err)
	}
}

// TestEvidence: an option that does not apply to a kind of evidence is refused with the kinds that it goes with.
func TestEvidence(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		name string
		want string // "": it applies
		hint bool
	}{
		{FromSteps, "seed", "", false}, {FromSteps, "lag", "", false}, {FromSteps, "search", "search: goes with a fit from requests or points only", false},
		{FromSteps, "holdout", "holdout: goes with a fit from requests only", true}, {FromRequests, "lag", "lag: goes with a fit from steps or Gram files only", false}, {FromRequests, "holdout", "", false},
		{FromPoints, "holdout", "holdout: goes with a fit from requests only", false}, {FromPoints, "split", "split: goes with a fit from steps or requests or Gram files only", false},
		{FromGrams, "from", "from: goes with a fit from steps or requests or points only", false},
	} {
		err := c.kind.Refusal(c.name)
		misuse, _ := err.(*option.Misuse)
		if c.want == "" && err != nil || c.want != "" && (misuse == nil || misuse.Msg != c.want || (misuse.Hint != "") != c.hint) {
			t.Errorf("%s from %s: got %v, want %q", c.name, c.kind.Name, err, c.want)
		}
	}
	if (Steps{}).Kind().Name != "steps" || (Grams{}).Kind().Name != "Gram files" {
		t.Error("got another kind")
	}
}

// TestRecordedCommand: the defaults record what can change a result, and options of their own.
func TestRecordedCommand(t *testing.T) {
	o := DefaultOptions()
	got, err := o.Command()
	if err != nil || !strings.HasPrefix(got, "fit ") || !strings.Contains(got, " --seed 1") || !strings.Contains(got, " --split 0.8") || strings.Contains(got, "--workers") || strings.Contains(got, "--lag") || strings.Contains(got, "--max-rows") {
		t.Errorf("got %q and %v", got, err)
	}
	two := 2
	o.Lag, o.MaxRows, o.RefitAll, o.Without, o.Workers = &two, 5000, true, []string{"r1", "r2"}, 7
	if got, err = o.Command(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" --lag 2", " --max-rows 5000", " --refit-all", " --without r1 --without r2"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	var again Options
	if err := option.Parse(got, "fit", again.Flags()); err != nil || *again.Lag != 2 || again.MaxRows != 5000 || !again.RefitAll || !reflect.DeepEqual(again.Without, o.Without) || again.Split != o.Split {
		t.Errorf("read back: got %+v and %v", again, err)
	}
	o.Split = 1.5
	if _, err := o.Command(); err == nil {
		t.Error("a split of 1.5 was recorded")
	}
	var lag *int
	v := &lagValue{&lag}
	for text, want := range map[string]string{"0": "0", "2": "2", "-1": "-1"} {
		if err := v.Set(text); err != nil || v.String() != want || (len(v.Values()) == 1) != (want != "-1") {
			t.Errorf("--lag %s: got %s and %v", text, v.String(), err)
		}
	}
	if v.Set("-2") == nil || v.Set("x") == nil || (&lagValue{}).String() != "-1" {
		t.Error("a lag of -2 or x was accepted")
	}
	open := Options{}
	if !open.PriorOpen() {
		t.Error("options that set nothing leave the prior open")
	}
	for _, o := range []Options{{Prior: PriorZero}, {Spec: features.V11}, {Recipe: Frozen}, {BetaTarget: "duration"}} {
		if o.PriorOpen() {
			t.Errorf("%+v leaves the prior open", o)
		}
	}
	if o := (Options{Recipe: Relative, BetaTarget: coeff.Cadence}); !o.PriorOpen() {
		t.Error("the defaults leave the prior open")
	}
}

// TestIntervals: an interval is widened to include another, and lost with it.
func TestIntervals(t *testing.T) {
	c := coeff.Coefficient{CI95: &[2]float64{2, 3}, EstimateCI95: &[2]float64{1, 4}, Estimate: testkit.Ptr(2)}
	widenInterval(&c, ridge.Interval{Lo: 1.5, Hi: 3.5})
	if *c.CI95 != [2]float64{1.5, 3.5} || *c.EstimateCI95 != [2]float64{1, 4} || c.Estimate == nil {
		t.Errorf("got %+v", c)
	}
	widenInterval(&c, ridge.Interval{Method: ridge.FromNothing})
	if c.CI95 != nil || c.EstimateCI95 != nil || c.Estimate != nil {
		t.Errorf("got %+v", c)
	}
	gammas := []float64{0.1, features.DefaultGamma, 0.9}
	model := func(most float64) *result.Model {
		return &result.Model{Coefficients: []result.Coefficient{{Coefficient: coeff.Coefficient{Range: &[2]float64{0, most}}}}}
	}
	for _, w := range []struct {
		chosen     int
		within     []int
		term       int
		most       float64
		identified bool
		warnings   int
	}{{1, []int{0, 1}, 0, 5, false, 1}, {1, []int{1}, 0, 5, true, 0}, {2, []int{1, 2}, 0, 5, true, 0}, {1, []int{0, 1}, -1, 5, false, 0}, {1, []int{0, 1}, 0, 0, false, 0}} {
		out := model(w.most)
		noteGamma(gammas, w.chosen, w.within, w.term, out)
		if *out.GammaIdentified != w.identified || len(out.Warnings) != w.warnings {
			t.Errorf("%+v: got %t and %v", w, *out.GammaIdentified, out.Warnings)
		}
	}
}
