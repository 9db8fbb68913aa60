package features

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/trace"
)

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// handSet is a set of version 1.1 whose coefficients have their slots as values.
func handSet() *coeff.Set {
	s := &coeff.Set{SpecVersion: V11, FeatureSet: SetOf(V11), Beta: NewCoefficients(BetaFeatures(V11))}
	for i := range s.Beta {
		s.Beta[i].Value = float64(i + 1)
	}
	s.Alpha = []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: NewCoefficients(AlphaFeatures(V11))}, {Target: coeff.Admission, Coefficients: NewCoefficients(AlphaFeatures(V11))}}
	for i := range s.Alpha[0].Coefficients {
		s.Alpha[0].Coefficients[i].Value = 10 * float64(i+1)
	}
	return s
}

// TestPredictionsByHand: a sum of coefficients times features, at least 1 us a step, with a warning beyond 1.5 times what was trained.
func TestPredictionsByHand(t *testing.T) {
	s := handSet()
	n := len(s.Beta)
	s.Beta[1].Range = &[2]float64{0, 4}
	p := BetaPredictor(s)
	x := make([]float64, n)
	x[0], x[1], x[n-1] = 2, 6, 0.5
	want := 2 + 2*6 + 0.5*float64(n)
	if got, err := p.Predict(x, 0); err != nil || !near(got, want) || len(p.Warnings()) != 0 {
		t.Errorf("got %g, %v, %v, want %g", got, err, p.Warnings(), want)
	}
	if got, err := p.Predict(make([]float64, n), 0); err != nil || got != coeff.MinStepUs {
		t.Errorf("nothing: got %g, %v", got, err)
	}
	if got, err := p.PredictRow(make([]float64, n), 3, 0); err != nil || got != 3*coeff.MinStepUs {
		t.Errorf("three steps: got %g, %v", got, err)
	}
	x[1] = 6.01
	if _, err := p.PredictRow(x, 2, 0); err != nil || len(p.Warnings()) != 0 {
		t.Errorf("two steps: got %v, %v", err, p.Warnings())
	}
	if _, err := p.Predict(x, 1<<2); err != nil {
		t.Fatal(err)
	}
	names := Names(BetaFeatures(V11))
	w := p.Warnings()
	unit := BetaFeatures(V11)[1].Unit()
	if len(w) != 2 || w[0].Message != names[1]+" exceeds 1.5 x its training maximum "+quantity(4, unit) || !strings.HasPrefix(w[1].Message, names[2]) {
		t.Errorf("got %v", w)
	}
	if quantity(4, "1") != "4" || quantity(0.00123456, "s") != "0.001235 s" {
		t.Errorf("got %q, %q", quantity(4, "1"), quantity(0.00123456, "s"))
	}
	if _, err := p.Predict(x[1:], 0); trace.CodeOf(err) != WrongFeatureSet {
		t.Errorf("too few: got %v", err)
	}
	for _, v := range []float64{math.NaN(), math.Inf(1)} {
		x[0] = v
		if _, err := p.Predict(x, 0); trace.CodeOf(err) != BadInput {
			t.Errorf("%g: got %v", v, err)
		}
	}
	// A cost that was not learned warns at any value; one of measured kernels may be 0.
	i := slices.IndexFunc(BetaFeatures(V11), func(f Feature) bool { return f.IsTime() })
	s = handSet()
	s.Beta[i].Value = 0
	if got := NotLearned(s); !slices.Equal(got, []int{i + 1}) {
		t.Errorf("got slots %v, want %d", got, i+1)
	}
	p = BetaPredictor(s)
	x = make([]float64, n)
	x[i] = 1e-9
	if _, err := p.Predict(x, 0); err != nil || len(p.Warnings()) != 1 || p.Warnings()[0].Message != names[i]+" is part of a prediction, but the training data did not teach its cost" {
		t.Errorf("got %v, %v", err, p.Warnings())
	}
	s.Beta[i].Evidence = "kernels"
	if got := NotLearned(s); len(got) != 0 {
		t.Errorf("measured kernels: got slots %v", got)
	}
	s.Beta[i].Evidence, s.Beta[i].Value, s.Beta[i].Identified = "", 5, coeff.PriorOnly
	if got := NotLearned(s); !slices.Equal(got, []int{i + 1}) {
		t.Errorf("of the prior alone: got slots %v", got)
	}
	// Delays: at least 0, and none that contains a wait.
	s = handSet()
	d, err := DelayPredictor(s, coeff.Overhead)
	if err != nil {
		t.Fatal(err)
	}
	a := make([]float64, len(AlphaFeatures(V11)))
	a[0], a[1] = 1, 0.5
	if got, err := d.Predict(a, 0); err != nil || !near(got, 10+10) {
		t.Errorf("got %g, %v", got, err)
	}
	a[0] = -99
	if got, err := d.Predict(a, 0); err != nil || got != 0 {
		t.Errorf("below 0: got %g, %v", got, err)
	}
	if _, err := DelayPredictor(s, coeff.Admission); err == nil || !strings.Contains(err.Error(), "contains a wait that a replay produces itself") {
		t.Errorf("got %v", err)
	}
	if _, err := AlphaPredictor(s, coeff.Admission); err != nil {
		t.Errorf("got %v", err)
	}
	if _, err := AlphaPredictor(s, "x"); err == nil || !strings.Contains(err.Error(), `alpha target "x": got none in the coefficient set`) {
		t.Errorf("got %v", err)
	}
}

// TestSetsAreChecked: a set of another version, or with other terms, is refused; the flat form of 1.0 gets names and units.
func TestSetsAreChecked(t *testing.T) {
	if err := CheckSet(handSet()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(s *coeff.Set){
		"spec_version: got":                    func(s *coeff.Set) { s.SpecVersion = "9" },
		"beta_coefficients: got":               func(s *coeff.Set) { s.Beta, s.FeatureSet = s.Beta[1:], coeff.FeatureSet{} },
		"beta_coefficients[1].name: got \"x\"": func(s *coeff.Set) { s.Beta[1].Name, s.FeatureSet = "x", coeff.FeatureSet{} },
		"beta_coefficients[0].unit: got \"x\"": func(s *coeff.Set) { s.Beta[0].Unit = "x" },
		"alpha.admission.coefficients: got":    func(s *coeff.Set) { s.Alpha[1].Coefficients, s.FeatureSet = nil, coeff.FeatureSet{} },
		"alpha.overhead.coefficients[0].unit":  func(s *coeff.Set) { s.Alpha[0].Coefficients[0].Unit = "x" },
	} {
		s := handSet()
		if change(s); CheckSet(s) == nil || !strings.Contains(CheckSet(s).Error(), want) {
			t.Errorf("got %v, want %q", CheckSet(s), want)
		}
	}
	flat := &coeff.Set{SpecVersion: V10, FeatureSet: SetOf(V10), Beta: make([]coeff.Coefficient, len(BetaFeatures(V10)))}
	if err := checkTerms(V10, "beta_coefficients", flat.Beta, BetaFeatures(V10)); err != nil || !reflect.DeepEqual(names(flat.Beta), Names(BetaFeatures(V10))) || flat.Beta[0].Unit != BetaFeatures(V10)[0].CoefficientUnit() {
		t.Errorf("got %v, %+v", err, flat.Beta)
	}
	for v, want := range map[Version]bool{V10: true, V13: true, V11 + Components: true, V10 + Components: false, "1.4": false, "1.4" + Components: false} {
		if err := CheckVersion(v); (err == nil) != want {
			t.Errorf("%s: got %v", v, err)
		}
	}
	if beta, alpha := Of(V12); len(beta) != len(BetaFeatures(V12)) || len(alpha) != len(AlphaFeatures(V12)) || BetaFeatures("x") != nil || AlphaFeatures("x") != nil {
		t.Error("got other features")
	}
}

// TestFactorsByHand: the factors of a deployment on values, estimates, intervals and covariance, and the delays of its own.
func TestFactorsByHand(t *testing.T) {
	d := testkit.Llama8B()
	s := handSet()
	prompt := slices.IndexFunc(BetaFeatures(V11), func(f Feature) bool { return f.Prompt })
	other := slices.IndexFunc(BetaFeatures(V11), func(f Feature) bool { return !f.Prompt })
	n := len(s.Beta)
	for i := range n {
		s.Covariance = append(s.Covariance, slices.Repeat([]float64{1}, n))
		s.Beta[i].CI95, s.Beta[i].Estimate, s.Beta[i].EstimateCI95 = &[2]float64{1, 3}, new(5.0), &[2]float64{4, 6}
	}
	if On(s, d) != s {
		t.Error("no factor: got another set")
	}
	s.HardwareFactors = map[string]float64{d.Hardware.Name: 7}
	if got := On(s, d); got.Beta[other].Value != 7*float64(other+1) || got.HardwareFactors != nil {
		t.Errorf("the device's: got %+v", got.Beta[other])
	}
	s.DeploymentFactors = map[string]float64{d.Label(): 2}
	s.PromptFactors = map[string]float64{d.Config(): 3}
	got := On(s, d)
	for i, by := range map[int]float64{other: 2, prompt: 6} {
		c := got.Beta[i]
		if !near(c.Value, by*float64(i+1)) || *c.CI95 != [2]float64{by, 3 * by} || *c.Estimate != 5*by || *c.EstimateCI95 != [2]float64{4 * by, 6 * by} {
			t.Errorf("slot %d: got %+v, want a factor of %g", i+1, c, by)
		}
	}
	if !near(got.Covariance[other][prompt], 12) || !near(got.Covariance[prompt][prompt], 36) || got.DeploymentFactors != nil || got.PromptFactors != nil || s.Beta[other].Value != float64(other+1) || s.Covariance[0][0] != 1 {
		t.Errorf("got %+v", got)
	}
	s = handSet()
	s.Alpha[0].Covariance = [][]float64{{1}}
	s.Alpha[0].Coefficients[1].CI95 = &[2]float64{1, 2}
	s.Alpha[0].Deployments = map[string][]float64{d.Label(): {77, 88}}
	own := On(s, d)
	if m := own.Alpha[0]; m.Coefficients[0].Value != 77 || m.Coefficients[1].Value != 88 || m.Coefficients[1].CI95 != nil || m.Covariance != nil || m.Deployments != nil || m.Coefficients[2].Value != 30 {
		t.Errorf("got %+v", m)
	}
	if s.Alpha[0].Coefficients[0].Value != 10 {
		t.Error("the set itself was changed")
	}
	s.Alpha[0].Deployments = map[string][]float64{"another": {77, 88}}
	if m := On(s, d).Alpha[0]; m.Coefficients[0].Value != 10 || m.Covariance == nil || m.Deployments != nil {
		t.Errorf("of another deployment: got %+v", m)
	}
}

// TestTermsByHand: rooflines of terms, penalties by the number of configurations, and the work of prompts of which the sums are known.
func TestTermsByHand(t *testing.T) {
	for _, c := range []struct {
		name, unit string
		ok         bool
	}{{"prefill_attention", "us/s", true}, {"prefill_attention", "us", false}, {"fixed_step_overhead", "us/s", false}, {"expert_load", "us/s", false}} {
		if times, ok := RooflineTimes(c.name, c.unit, 2.5e6); ok != c.ok || times != 2.5 {
			t.Errorf("%s %s: got %g, %v", c.name, c.unit, times, ok)
		}
	}
	for times, want := range map[float64]bool{0.8: true, 0.79: false, 10: true, 10.1: false} {
		if IsPlausible(times) != want {
			t.Errorf("%g times the roofline: got %v", times, !want)
		}
	}
	f := &Feature{Penalty: 2, PenaltyOne: 3}
	if f.PenaltyIn(1) != 3 || f.PenaltyIn(2) != 2 || f.Unit() != "1" || f.CoefficientUnit() != "us" {
		t.Errorf("got %g and %g, %s, %s", f.PenaltyIn(1), f.PenaltyIn(2), f.Unit(), f.CoefficientUnit())
	}
	f.Kind = Time
	if f.Unit() != "s" || f.CoefficientUnit() != "us/s" {
		t.Errorf("got %s, %s", f.Unit(), f.CoefficientUnit())
	}
	// Two prompts of 10 and 30 tokens: 55 + 465 pairs; their squared variation is 0.25.
	if got := CausalFromTotals(40, 2, 0.25); !near(got, 55+465) || CausalFromTotals(0, 0, 1) != 0 {
		t.Errorf("got %g pairs", got)
	}
	totals := &trace.StepTotals{Prefill: 3, Decode: 5, PrefillReqs: 7, DecodeReqs: 11, Sampled: 13, CausalWork: 17, DecodeContext: 19, PrefillContext: 23}
	if got, want := FromTotals(totals), (StepInput{PrefillTokens: 3, DecodeTokens: 5, ScheduledTokens: 8, NumPrefillReqs: 7, NumDecodeReqs: 11, NumSampledSeqs: 13, PrefillCausalWork: 17, DecodeContextTokens: 19, KVReadTokens: 45, PrefillContext: 23}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	x := make([]float64, 3)
	if Blackbox(&Step{PrefillTokens: 7, DecodeTokens: 9}, x); !slices.Equal(x, []float64{1, 7, 9}) {
		t.Errorf("got %v", x)
	}
	d := testkit.Llama8B()
	old, err := New(V10, d)
	if err != nil {
		t.Fatal(err)
	}
	if old.Roofline(&StepInput{ScheduledTokens: 9, NumSampledSeqs: 1}) != (Roofline{}) {
		t.Error("spec 1.0 has a roofline")
	}
	if !slices.Equal(Gammas(), []float64{0.1, 0.3, 0.5}) || DefaultGamma != 0.3 || DefaultVersion(d) != V11 || !Layered(V13) || Layered(V12) {
		t.Error("got other defaults")
	}
	if want := math.Ceil(5 / Gammas()[0]); MemorySteps != want { // the slowest average has five time constants behind it
		t.Errorf("a preemption is remembered for %d steps, want %g", MemorySteps, want)
	}
	if separates, shows := Experiments(); len(separates) < 10 || shows["overhead/base_bias"] == "" {
		t.Error("got no experiments")
	}
}

// TestTrainedPhysicsIsRefused: deployments that BLIS's formulas cannot represent.
func TestTrainedPhysicsIsRefused(t *testing.T) {
	for want, change := range map[string]func(d *deploy.Deployment){
		"": func(*deploy.Deployment) {}, "peaks: got 0 TFLOP/s": func(d *deploy.Deployment) { d.Hardware.TFlopsPeak = 0 }, "peaks: got +Inf": func(d *deploy.Deployment) { d.Hardware.TFlopsPeak = math.Inf(1) }, "and 0 TB/s": func(d *deploy.Deployment) { d.Hardware.BwPeakTBs = 0 },
		"got 0 layers": func(d *deploy.Deployment) { d.Model.NumLayers = 0 }, "32 layers, 0 heads": func(d *deploy.Deployment) { d.Model.NumHeads = 0 }, "hidden size 0": func(d *deploy.Deployment) { d.Model.HiddenSize = 0 }, "0 KV heads": func(d *deploy.Deployment) { d.Model.NumKVHeads = 0 },
		"multiples of tensor_parallel_size 3": func(d *deploy.Deployment) { d.TP = 3 }, "multiples of tensor_parallel_size 16": func(d *deploy.Deployment) { d.TP = 16 },
	} {
		d := testkit.Llama8B()
		change(d)
		err := checkTrainedPhysics(d, &d.Model)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestShareOfAllExperts: no token uses no expert, and every other number of tokens all of them, where each token uses all.
func TestShareOfAllExperts(t *testing.T) {
	kind := experts{lnIdle: math.Log1p(-1)}
	for tokens, want := range map[float64]float64{0: 0, 1: 1, 2.5: 1, 1000: 1} {
		if got := kind.share(tokens); got != want {
			t.Errorf("%g tokens: got a share of %g, want %g", tokens, got, want)
		}
	}
}
