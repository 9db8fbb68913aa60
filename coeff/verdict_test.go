package coeff_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	. "github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// TestVerdicts: the worst verdict for a purpose over all runs, what is accepted, and the order of verdicts.
func TestVerdicts(t *testing.T) {
	s := &Set{Purposes: []PurposeVerdict{{PurposeSteps, ScopeAll, VerdictPass}, {PurposeSteps, "r1", VerdictFail}, {PurposeReplay, ScopeAll, VerdictInsufficient}, {PurposeWaits, ScopeAll, VerdictNotApplicable}}}
	for purpose, want := range map[string]string{PurposeSteps: VerdictPass, PurposeReplay: VerdictInsufficient, PurposeWaits: VerdictNotApplicable, PurposeTransfer: "", PurposeAll: VerdictInsufficient} {
		if got := s.VerdictFor(purpose); got != want {
			t.Errorf("%s: got %q, want %q", purpose, got, want)
		}
	}
	order := []string{"", VerdictNotApplicable, VerdictPass, VerdictInsufficient, VerdictFail}
	for i, a := range order {
		for j, b := range order {
			if got, want := WorseVerdict(a, b), order[max(i, j)]; got != want {
				t.Errorf("%q and %q: got %q", a, b, got)
			}
		}
	}
	for _, c := range []struct {
		accept Accept
		want   string // one letter for each verdict of order: y or n
	}{{Accept{}, "yyynn"}, {Accept{Asked: true}, "ynynn"}, {Accept{Insufficient: true}, "yyyyn"}, {Accept{Any: true, Asked: true}, "yyyyy"}} {
		got := ""
		for _, verdict := range order {
			if c.accept.Takes(verdict) {
				got += "y"
			} else {
				got += "n"
			}
		}
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.accept, got, c.want)
		}
	}
	at, over := 0.25, 0.2501
	var j Judgement
	j.AtMost("a", "r1", &at, 0.25, "")
	if j.Verdict != "" || !*j.Gates[0].Pass || j.Failed() != nil {
		t.Errorf("at the limit: got %+v", j)
	}
	j.AtMost("b", "r2", nil, 0.5, "no data")
	if j.Verdict != VerdictInsufficient || j.Gates[1].Pass != nil {
		t.Errorf("without a value: got %+v", j)
	}
	j.AtMost("c", "r3", &over, 0.25, "")
	if want := []string{"r2: b: no data", "r3: c: got 0.2501, want at most 0.25"}; j.Verdict != VerdictFail || !reflect.DeepEqual(j.Failed(), want) ||
		!reflect.DeepEqual(j.Gates[2].Op, "<=") || j.Gates[2].Threshold != 0.25 || j.Gates[2].Scope != "r3" {
		t.Errorf("above the limit: got %+v, %q", j, j.Failed())
	}
}

// TestSetFigures: a prediction is the sum of the terms and at least 1 us; an interval is that of the unpenalised estimate.
func TestSetFigures(t *testing.T) {
	s := &Set{Beta: []Coefficient{{Value: 2}, {Value: 0.5}}, Alpha: []AlphaModel{{Target: Admission}, {Target: Overhead}}}
	if got := s.Predict([]float64{10, 4}); got != 22 {
		t.Errorf("got %g us", got)
	}
	if got := s.Predict([]float64{0.1, 0}); got != 1 {
		t.Errorf("got %g us, want the least", got)
	}
	if got := s.AlphaTargets(); !reflect.DeepEqual(got, []string{Admission, Overhead}) || (&Set{}).AlphaTargets() == nil {
		t.Errorf("got %q", got)
	}
	both := Coefficient{CI95: &[2]float64{1, 2}, EstimateCI95: &[2]float64{0, 3}}
	prior := Coefficient{CI95: &[2]float64{1, 2}}
	if *both.Interval() != [2]float64{0, 3} || *prior.Interval() != [2]float64{1, 2} || (&Coefficient{}).Interval() != nil {
		t.Error("got another interval")
	}
}

// TestCheckRefuses: every rule of loading with a set that breaks it alone.
func TestCheckRefuses(t *testing.T) {
	if err := sample().Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(s *Set)
		want   string // "": it is accepted
	}{
		"version":             {func(s *Set) { s.SchemaVersion = "0" }, `schema_version: got "0", want "1"`},
		"identified":          {func(s *Set) { s.Beta[2].Identified = "maybe" }, `beta_coefficients[2].identified: got "maybe"`},
		"rows":                {func(s *Set) { s.Covariance = s.Covariance[1:] }, "covariance: got 15 rows, want 16"},
		"columns":             {func(s *Set) { s.Covariance[3] = s.Covariance[3][1:] }, "covariance[3]: got 15 columns, want 16"},
		"no covariance":       {func(s *Set) { s.Covariance = nil }, ""},
		"factor 0":            {func(s *Set) { s.HardwareFactors = map[string]float64{"A": 0} }, "factor of A: got 0, want a finite number above 0"},
		"factor infinite":     {func(s *Set) { s.PromptFactors = map[string]float64{"A": math.Inf(1)} }, "factor of A: got +Inf"},
		"factor":              {func(s *Set) { s.DeploymentFactors = map[string]float64{"A": 0.001} }, ""},
		"target":              {func(s *Set) { s.Alpha[0].Target = "a" }, "alpha.a: got an unknown target"},
		"replayed wait":       {func(s *Set) { s.Alpha[0].Replay = true }, "alpha.admission.replay: got true for a target that contains a wait"},
		"order":               {func(s *Set) { s.Alpha[0], s.Alpha[1] = s.Alpha[1], s.Alpha[0] }, `alpha: got "admission" after "overhead"`},
		"twice":               {func(s *Set) { s.Alpha[1] = s.Alpha[0] }, `alpha: got "admission" after "admission"`},
		"values":              {func(s *Set) { s.Alpha[0].Deployments = map[string][]float64{"x": {1}} }, "alpha.admission.deployments.x: got 1 values, want"},
		"alpha's covariance":  {func(s *Set) { s.Alpha[0].Covariance = [][]float64{{1}} }, "alpha.admission.covariance: got 1 rows"},
		"gamma 0":             {func(s *Set) { s.Gamma = 0 }, ""},
		"gamma 1":             {func(s *Set) { s.Gamma = 1 }, ""},
		"gamma below":         {func(s *Set) { s.Gamma = -0.01 }, "gamma: got -0.01, want 0 to 1"},
		"gamma above":         {func(s *Set) { s.Gamma = 1.01 }, "gamma: got 1.01"},
		"NaN":                 {func(s *Set) { s.Beta[1].Value = math.NaN() }, "got NaN, want a finite number"},
		"NaN in a list":       {func(s *Set) { s.Covariance[2][3] = math.NaN() }, "covariance[2][3]: got NaN, want a finite number"},
		"NaN by a name":       {func(s *Set) { s.TrainedOn.HoldOutRMSE = map[string]float64{"a": 1, "b": math.NaN()} }, "trained_on.hold_out_rmse.b: got NaN, want a finite number"},
		"infinite lambda":     {func(s *Set) { s.TrainedOn.Lambda = math.Inf(1) }, "lambda: got +Inf"},
		"a model's width":     {func(s *Set) { s.Configs[0].Deployment.Model.HeadDim = 0 }, "model head_dim: got 0, want > 0"},
		"a model's KV bytes":  {func(s *Set) { s.Configs[0].Deployment.Model.BytesPerKV = 0 }, "model bytes_per_kv: got 0, want > 0"},
		"width of a flat set": {func(s *Set) { s.Configs[0].Deployment.Model.HeadDim, s.SpecVersion = 0, features.V10 }, ""},
	} {
		s := sample()
		c.change(s)
		err := s.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestVersions: the version that lists the features, and whether step times are fitted in components of them.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version, base Version
		inComponents  bool
	}{{"1.3", "1.3", false}, {"1.3+principal-components", "1.3", true}, {"", "", false}} {
		if c.version.Base() != c.base || c.version.InComponents() != c.inComponents {
			t.Errorf("%q: got the base %q, in components %v", c.version, c.version.Base(), c.version.InComponents())
		}
	}
}
