package gates

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func num(v float64) *float64 { return &v }

// good is a validation of two configurations in which every gate passes.
func good() (*result.Validation, *result.Fit) {
	metric := func() *result.Metric { return &result.Metric{KSD: 0.08, MedianRelErrPaired: num(0.05)} }
	config := func(scope string) result.ConfigErrors {
		return result.ConfigErrors{
			Scope: scope, Seen: true, TargetOverFloor: num(3), BoundHits: num(0),
			Steps: &result.Errors{Rows: 900, MAPE: num(0.05), MAPEConst: num(0.3), MAPEFloor: num(0.04), Skill: num(0.9), Bias: num(0.01),
				MaxErrorRatio: num(1)},
			Alpha: &result.AlphaErrors{
				Overhead:  &result.IntervalErrors{Rows: 200, InsideShare: num(0.97)},
				Admission: &result.TargetErrors{Rows: 200, MAPEWindow10s: num(0.1), ConstWindow: num(0.3), MaxErrorRatio: num(2)},
				Egress:    &result.TargetErrors{Rows: 200, WAPE: num(0.2)},
			},
		}
	}
	v := &result.Validation{
		Configs: []result.ConfigErrors{config("a"), config("b")},
		Steps:   &result.Errors{Rows: 1800, Bias: num(-0.02)},
		Runs: []result.ValidationRun{{
			ID: "r", Phase: "open", Load: deploy.LoadOpen, Split: result.Split{Kind: result.SplitHoldout},
			Requests: 400, Sufficient: true, Metrics: &result.Metrics{TTFT: metric(), ITL: metric(), E2E: metric()},
		}},
	}
	loco := []result.Loco{{Config: "a", MAPE: num(0.1), InsideShare: num(0.9), MAPEWindow10s: num(0.2)},
		{Config: "b", MAPE: num(0.1), InsideShare: num(0.9), MAPEWindow10s: num(0.2)}}
	fit := &result.Fit{
		Beta:  result.Model{Name: "beta", Loco: loco, Certificate: &result.Certificate{OK: true}, FoldFingerprints: []string{"1", "2"}},
		Alpha: []result.Model{{Name: "overhead", Loco: loco}, {Name: "admission", Loco: loco}},
	}
	return v, fit
}

func judged(t *testing.T, v *result.Validation, fit *result.Fit, overrides map[string]float64) *result.Validation {
	t.Helper()
	r, err := NewRules(overrides)
	if err != nil {
		t.Fatal(err)
	}
	judge(v, fit, signCheck{checked: 3}, r)
	return v
}

func failed(v *result.Validation) []string {
	var out []string
	for _, g := range v.Gates {
		if g.Pass != nil && !*g.Pass {
			out = append(out, g.Name+" "+g.Scope)
		}
	}
	return out
}

func TestEverythingGoodPasses(t *testing.T) {
	v, fit := good()
	judged(t, v, fit, nil)
	if v.Verdict != result.VerdictPass || !v.Pass || len(v.Missing) != 0 {
		t.Errorf("got %s, failed %v, missing %v", v.Verdict, failed(v), v.Missing)
	}
}

// TestEachGateCanFail: one figure out of bounds fails exactly its gates.
func TestEachGateCanFail(t *testing.T) {
	cases := []struct {
		break_ func(*result.Validation, *result.Fit)
		want   []string
	}{
		{func(v *result.Validation, _ *result.Fit) { v.Configs[1].Steps.MAPE = num(0.16) }, []string{gateBetaMAPE + " b"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[1].Steps.MAPE = num(0.31) },
			[]string{gateBetaBeatsConstant + " b", gateBetaMAPE + " b", gateWorstConfiguration + " all"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Steps.MaxErrorRatio = num(3) }, []string{gateBetaMaxError + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Steps.Skill = num(0.5) }, []string{gateBetaSkill + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].BoundHits = num(0.011) }, []string{gateBoundHits + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].TargetOverFloor = num(0.9) }, []string{gateTargetFloor + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Steps.Bias = num(-0.031) }, []string{gateBias + " all"}},
		{func(_ *result.Validation, f *result.Fit) { f.Beta.Loco[0].MAPE = num(0.3) }, []string{gateBetaMAPELoco + " a"}},
		{func(_ *result.Validation, f *result.Fit) { f.Beta.Certificate.OK = false }, []string{gateCertificate + " all"}},
		{func(_ *result.Validation, f *result.Fit) { f.Beta.FoldFingerprints = []string{"1", "1"} }, []string{gateFoldsDistinct + " all"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Overhead.InsideShare = num(0.8) }, []string{gateOverheadInside + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.26) },
			[]string{gateAdmissionWindow + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Egress.WAPE = num(0.31) }, []string{gateEgressWAPE + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Runs[0].Metrics.ITL.KSD = 0.15 }, []string{gateKSITL + " r/open"}},
		{func(v *result.Validation, _ *result.Fit) { v.Runs[0].Metrics.E2E.MedianRelErrPaired = num(0.2) }, []string{gateMedianE2E + " r/open"}},
	}
	for _, c := range cases {
		v, fit := good()
		c.break_(v, fit)
		judged(t, v, fit, nil)
		got := failed(v)
		slices.Sort(got)
		if !slices.Equal(got, c.want) || v.Verdict != result.VerdictFail {
			t.Errorf("want %v to fail, got %v (%s)", c.want, got, v.Verdict)
		}
	}
}

// TestInsufficientIsNotAPass, and the in-sample comparison does not make up for it.
func TestInsufficientIsNotAPass(t *testing.T) {
	v, fit := good()
	v.Runs[0].Sufficient, v.Runs[0].Requests = false, 80
	v.Runs = append(v.Runs, v.Runs[0])
	v.Runs[1].Split.Kind, v.Runs[1].Sufficient, v.Runs[1].Requests = result.SplitInSample, true, 400
	judged(t, v, fit, nil)
	if v.Verdict != result.VerdictInsufficient || v.Pass || len(v.Missing) != 6 {
		t.Errorf("got %s, missing %v", v.Verdict, v.Missing)
	}
	v, fit = good()
	bad := v.Runs[0]
	bad.Split.Kind, bad.Metrics = result.SplitInSample, &result.Metrics{TTFT: &result.Metric{KSD: 0.4, MedianRelErrPaired: num(0.05)}}
	v.Runs = append(v.Runs, bad)
	if judged(t, v, fit, nil).Verdict != result.VerdictFail {
		t.Error("a bad in-sample comparison must fail")
	}
}

// TestClosedLoopAndSaturatedPhasesDoNotGate whatever their figures.
func TestClosedLoopAndSaturatedPhasesDoNotGate(t *testing.T) {
	v, fit := good()
	bad := &result.Metrics{TTFT: &result.Metric{KSD: 0.9}}
	v.Runs = append(v.Runs,
		result.ValidationRun{ID: "r", Phase: "closed", Load: deploy.LoadClosed, Requests: 400, Sufficient: true, Metrics: bad},
		result.ValidationRun{ID: "s", Phase: "open", Load: deploy.LoadOpen, Saturated: true, Requests: 400, Sufficient: true, Metrics: bad})
	judged(t, v, fit, nil)
	if v.Verdict != result.VerdictPass {
		t.Errorf("got %s: %v %v", v.Verdict, failed(v), v.Missing)
	}
	notes := map[string]bool{}
	for _, g := range v.Gates {
		if g.Pass == nil {
			notes[g.Note] = true
		}
	}
	if !notes[noteClosedLoop] || !notes[noteSaturated] {
		t.Errorf("notes: got %v", notes)
	}
	v.Runs = v.Runs[1:]
	v.Gates = nil
	if judged(t, v, fit, nil).Verdict != result.VerdictInsufficient {
		t.Error("without any open unsaturated phase the verdict is insufficient")
	}
}

// TestOneConfigurationIsNotAPass: leave-one-out is not applicable.
func TestOneConfigurationIsNotAPass(t *testing.T) {
	v, fit := good()
	fit.Beta.Loco = nil
	judged(t, v, fit, nil)
	if v.Verdict != result.VerdictInsufficient || !strings.Contains(strings.Join(v.Missing, "\n"), noteOneConfig) {
		t.Errorf("got %s, missing %v", v.Verdict, v.Missing)
	}
}

// TestUnseenConfigurationUsesTheWiderGate.
func TestUnseenConfigurationUsesTheWiderGate(t *testing.T) {
	v, fit := good()
	v.Configs[1].TestRun, v.Configs[1].Seen, v.Configs[1].Steps.MAPE = true, false, num(0.2)
	judged(t, v, fit, nil)
	if got := failed(v); len(got) != 0 {
		t.Errorf("20 %% on an unseen configuration: got %v", got)
	}
}

func TestThresholdsAreOptions(t *testing.T) {
	v, fit := good()
	judged(t, v, fit, map[string]float64{gateBetaMAPE: 0.04})
	if got := failed(v); !slices.Equal(got, []string{gateBetaMAPE + " a", gateBetaMAPE + " b"}) {
		t.Errorf("got %v", got)
	}
	r, _ := NewRules(map[string]float64{gateBetaMAPE: 0.4})
	if got := r.byName[gateWorstConfiguration].Limit; math.Abs(got-0.8) > 1e-12 {
		t.Errorf("worst_configuration follows beta_mape: got %v, want 0.8", got)
	}
	var coded *trace.Error
	if _, err := NewRules(map[string]float64{"beta_mapp": 1}); !errors.As(err, &coded) || coded.Code != codeUnknownGate {
		t.Errorf("unknown gate: got %v", err)
	}
	if _, err := NewRules(map[string]float64{gateBias: math.NaN()}); !errors.As(err, &coded) || coded.Code != codeBadThreshold {
		t.Errorf("NaN: got %v", err)
	}
}

// TestSampledJourneysCannotBeReplayed: half of the load is missing.
func TestSampledJourneysCannotBeReplayed(t *testing.T) {
	v, fit := good()
	v.Runs[0].JourneySampleRate = num(0.5)
	judged(t, v, fit, nil)
	if v.Verdict != result.VerdictInsufficient || len(v.Missing) != 6 || !strings.Contains(v.Missing[0], "sampled at 0.5") {
		t.Errorf("got %s, %v", v.Verdict, v.Missing)
	}
}
