package validate

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func num(v float64) *float64 { return &v }

// good is a validation of two configurations in which every gate passes.
func good() (*result.Validation, *result.Fit) {
	metric := func() *result.Metric {
		return &result.Metric{KSD: 0.08, ChanceKSD: num(0.06), MedianRelErrPaired: num(0.05), ChanceMedian: num(0.02),
			NReal: 400, RealMs: result.SampleStats{P50: 100, Mean: 100}}
	}
	config := func(scope string) result.ConfigErrors {
		return result.ConfigErrors{
			Scope: scope, Seen: true, Runs: []string{"r"}, TargetOverFloor: num(3), BoundHits: num(0),
			Steps: &result.Errors{Rows: 900, MAPE: num(0.05), MAPEConst: num(0.3), MAPEFloor: num(0.04), Skill: num(0.9), Bias: num(0.01),
				MaxErrorRatio: num(1)},
			Alpha: &result.AlphaErrors{
				Overhead:  &result.IntervalErrors{Rows: 200, InsideShare: num(0.97), MAEUs: num(1000)},
				Admission: &result.TargetErrors{Rows: 200, MAPEWindow10s: num(0.1), ConstWindow: num(0.3), MaxErrorRatio: num(2)},
				Egress:    &result.TargetErrors{Rows: 200, WAPE: num(0.2), MAEUs: num(500)},
			},
		}
	}
	v := &result.Validation{
		Configs: []result.ConfigErrors{config("a"), config("b")},
		Steps:   &result.Errors{Rows: 1800, Bias: num(-0.02)},
		Runs: []result.ValidationRun{{
			ID: "r", Phase: "open", Load: deploy.LoadOpen, Split: result.Split{Kind: result.SplitHoldout},
			Requests: 400, Metrics: &result.Metrics{TTFT: metric(), ITL: metric(), E2E: metric()},
		}},
	}
	loco := []result.Loco{{Config: "a", MAPE: num(0.1), Bias: num(-0.09), InsideShare: num(0.9), MAPEWindow10s: num(0.2)},
		{Config: "b", MAPE: num(0.1), Bias: num(-0.09), InsideShare: num(0.9), MAPEWindow10s: num(0.2)}}
	fit := &result.Fit{
		Beta:  result.Model{Name: "beta", Loco: loco, Certificate: &result.Certificate{OK: true}, FoldFingerprints: []string{"1", "2"}},
		Alpha: []result.Model{{Name: "overhead", Loco: loco}, {Name: "admission", Loco: loco}},
	}
	return v, fit
}

func judged(t *testing.T, v *result.Validation, fit *result.Fit, overrides map[string]float64) *result.Validation {
	t.Helper()
	r, err := newRules(overrides)
	if err != nil {
		t.Fatal(err)
	}
	judge(v, fit, signCheck{checked: 3}, r)
	setVerdicts(v, coeff.PurposeAll)
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
	if v.Verdict != coeff.VerdictPass || !v.Pass || len(v.Missing) != 0 {
		t.Errorf("got %s, failed %v, missing %v", v.Verdict, failed(v), v.Missing)
	}
}

// TestEveryGateIsComputed: no gate of gates.yaml is without code that gives it its value.
func TestEveryGateIsComputed(t *testing.T) {
	v, fit := good()
	v.Configs[0].Alpha.Queue = &result.TargetErrors{Rows: 200, MAPE: num(0.1), MAPEConst: num(0.3), MaxErrorRatio: num(2)}
	fit.Alpha = append(fit.Alpha, result.Model{Name: "queue", Loco: fit.Alpha[0].Loco})
	judged(t, v, fit, nil)
	for _, want := range Defaults() {
		if !slices.ContainsFunc(v.Gates, func(g result.Gate) bool { return g.Name == want.Name && g.Value != nil }) {
			t.Errorf("%s: no gate of that name has a value: compute it in gates.go, from a figure that good() of this test holds", want.Name)
		}
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
		{func(_ *result.Validation, f *result.Fit) { f.Beta.Loco[0].Bias = num(-0.12) }, []string{gateBiasLoco + " a"}},
		{func(_ *result.Validation, f *result.Fit) { f.Beta.Certificate.OK = false }, []string{gateCertificate + " all"}},
		{func(_ *result.Validation, f *result.Fit) { f.Beta.FoldFingerprints = []string{"1", "1"} }, []string{gateFoldsDistinct + " all"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Overhead.MAEUs = num(2000) },
			[]string{gateOverheadOfTTFT + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.26) },
			[]string{gateAdmissionWindow + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Egress.MAEUs = num(1000) },
			[]string{gateEgressOfE2E + " a"}},
		{func(v *result.Validation, _ *result.Fit) { v.Runs[0].Metrics.ITL.KSD = 0.15 }, []string{gateKSITL + " r/open"}},
		{func(v *result.Validation, _ *result.Fit) { v.Runs[0].Metrics.E2E.MedianRelErrPaired = num(0.2) }, []string{gateMedianE2E + " r/open"}},
	}
	for _, c := range cases {
		v, fit := good()
		c.break_(v, fit)
		judged(t, v, fit, nil)
		got := failed(v)
		slices.Sort(got)
		if !slices.Equal(got, c.want) || v.Verdict != coeff.VerdictFail {
			t.Errorf("want %v to fail, got %v (%s)", c.want, got, v.Verdict)
		}
	}
}

// TestChanceDecidesWithTheThreshold: over both is a fail, under both a pass, and between
// them nothing, with the number of requests that would decide; what is in-sample has no gate.
func TestChanceDecidesWithTheThreshold(t *testing.T) {
	for _, c := range []struct {
		value, chance float64
		want, note    string
	}{
		{0.14, 0.10, coeff.VerdictPass, ""},
		{0.20, 0.10, coeff.VerdictFail, ""},
		{0.20, 0.17, coeff.VerdictFail, ""},
		{0.16, 0.17, coeff.VerdictInsufficient, "about 514 would decide"},
		{0.10, 0.30, coeff.VerdictInsufficient, "chance alone reaches 0.3 with 400 requests, want below 0.15: about 1600 would decide"},
		{0.20, 0.20, coeff.VerdictInsufficient, "about 712 would decide"},
	} {
		v, fit := good()
		v.Runs[0].Metrics.TTFT.KSD, v.Runs[0].Metrics.TTFT.ChanceKSD = c.value, num(c.chance)
		whole := v.Runs[0]
		whole.Split.Kind, whole.Metrics = result.SplitInSample, &result.Metrics{TTFT: &result.Metric{KSD: 0.9, ChanceKSD: num(0)}}
		v.Runs = append(v.Runs, whole)
		if judged(t, v, fit, nil); v.Verdict != c.want {
			t.Errorf("%+v: got %s, missing %v", c, v.Verdict, v.Missing)
		}
		for _, g := range v.Gates {
			if g.Name == gateKSTTFT && (g.Scope != "r/open" || !strings.Contains(g.Note, c.note) || *g.Value != c.value || *g.Chance != c.chance) {
				t.Errorf("%+v: got %+v", c, g)
			}
		}
	}
	v, fit := good()
	v.Runs[0].Metrics.ITL.ChanceMedian = nil
	if judged(t, v, fit, nil); v.Verdict != coeff.VerdictInsufficient || !strings.Contains(v.Missing[0], noteNoChance) {
		t.Errorf("without noise: got %s, missing %v", v.Verdict, v.Missing)
	}
}

// TestPurposes: a figure that is bad for one purpose fails that one, and those that
// build on it, in its own configuration.
func TestPurposes(t *testing.T) {
	of := func(v *result.Validation, purpose, scope string) string {
		for _, p := range v.Purposes {
			if p.Purpose == purpose && p.Scope == scope {
				return p.Verdict
			}
		}
		return "none"
	}
	const pass, fail, none, few = coeff.VerdictPass, coeff.VerdictFail, coeff.VerdictNotApplicable, coeff.VerdictInsufficient
	for _, c := range []struct {
		name   string
		change func(*result.Validation, *result.Fit)
		want   [4]string // steps, replay, waits, transfer over everything
		b      [4]string // of configuration b
	}{
		{"good", func(*result.Validation, *result.Fit) {}, [4]string{pass, pass, pass, pass}, [4]string{pass, pass, pass, pass}},
		{"waits", func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.9) },
			[4]string{pass, pass, fail, pass}, [4]string{pass, pass, pass, pass}},
		{"steps of b", func(v *result.Validation, _ *result.Fit) { v.Configs[1].Steps.Skill = num(0.1) },
			[4]string{fail, fail, pass, pass}, [4]string{fail, fail, pass, pass}},
		{"replay", func(v *result.Validation, _ *result.Fit) { v.Runs[0].Metrics.ITL.KSD = 0.4 },
			[4]string{pass, fail, pass, pass}, [4]string{pass, fail, pass, pass}},
		{"a delay of a", func(v *result.Validation, _ *result.Fit) { v.Configs[0].Alpha.Egress.MAEUs = num(5000) },
			[4]string{pass, fail, pass, pass}, [4]string{pass, pass, pass, pass}},
		{"certificate", func(_ *result.Validation, f *result.Fit) { f.Beta.Certificate.OK = false },
			[4]string{fail, fail, pass, pass}, [4]string{fail, fail, pass, pass}},
		{"one configuration", func(_ *result.Validation, f *result.Fit) {
			f.Beta.Loco = nil
			f.Alpha[0].Loco = nil
			f.Alpha[1].Loco = nil
		},
			[4]string{pass, pass, pass, none}, [4]string{pass, pass, pass, none}},
		{"a saturated run alone", func(v *result.Validation, _ *result.Fit) { v.Runs[0].Saturated = true },
			[4]string{pass, few, pass, pass}, [4]string{pass, none, pass, pass}},
	} {
		v, fit := good()
		c.change(v, fit)
		judged(t, v, fit, nil)
		for i, purpose := range coeff.Purposes {
			if got := of(v, purpose, scopeAll); got != c.want[i] {
				t.Errorf("%s: %s: got %s, want %s", c.name, purpose, got, c.want[i])
			}
			if got := of(v, purpose, "b"); got != c.b[i] {
				t.Errorf("%s: %s of b: got %s, want %s", c.name, purpose, got, c.b[i])
			}
		}
	}
}

// TestWhatDecides: the purpose asked for; without one replay, or steps where nothing
// was replayed.
func TestWhatDecides(t *testing.T) {
	for _, c := range []struct {
		asked, want string
		stepsOnly   bool
		verdict     string
	}{
		{"", coeff.PurposeReplay, false, coeff.VerdictPass},
		{"", coeff.PurposeSteps, true, coeff.VerdictPass},
		{coeff.PurposeReplay, coeff.PurposeReplay, true, coeff.VerdictNotApplicable},
		{coeff.PurposeWaits, coeff.PurposeWaits, false, coeff.VerdictFail},
		{coeff.PurposeAll, coeff.PurposeAll, false, coeff.VerdictFail},
	} {
		v, fit := good()
		v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.9)
		if v.Options.StepsOnly = c.stepsOnly; c.stepsOnly {
			v.Runs[0].Metrics = nil
		}
		r, _ := newRules(nil)
		judge(v, fit, signCheck{checked: 3}, r)
		if setVerdicts(v, c.asked); v.For != c.want || v.Verdict != c.verdict || v.Pass != (c.verdict == coeff.VerdictPass) {
			t.Errorf("%q: got %s for %s, want %s for %s", c.asked, v.Verdict, v.For, c.verdict, c.want)
		}
	}
}

// TestSaturatedPhasesDoNotGate whatever their figures; a closed loop, replayed as
// one, does.
func TestSaturatedPhasesDoNotGate(t *testing.T) {
	v, fit := good()
	bad := &result.Metrics{TTFT: &result.Metric{KSD: 0.9, ChanceKSD: num(0.1)}}
	v.Runs = append(v.Runs,
		result.ValidationRun{ID: "s", Phase: "open", Load: deploy.LoadOpen, Saturated: true, Requests: 400, Metrics: bad})
	judged(t, v, fit, nil)
	if v.Verdict != coeff.VerdictPass {
		t.Errorf("got %s: %v %v", v.Verdict, failed(v), v.Missing)
	}
	notes := map[string]bool{}
	for _, g := range v.Gates {
		if g.Pass == nil {
			notes[g.Note] = true
		}
	}
	if !notes[noteSaturated] {
		t.Errorf("notes: got %v", notes)
	}
	v.Runs = append(v.Runs, v.Runs[0])
	v.Runs[2].Phase = "closed"
	v.Runs[2].Load = deploy.LoadClosed
	v.Runs[2].Metrics = bad
	v.Gates = nil
	if judged(t, v, fit, nil); v.Verdict != coeff.VerdictFail {
		t.Errorf("a bad closed loop: got %s", v.Verdict)
	}
	v.Runs = v.Runs[1:2]
	v.Gates = nil
	if judged(t, v, fit, nil).Verdict != coeff.VerdictInsufficient {
		t.Error("without any open unsaturated phase the verdict is insufficient")
	}
}

// TestUnseenConfigurationUsesTheWiderGate.
func TestUnseenConfigurationUsesTheWiderGate(t *testing.T) {
	v, fit := good()
	v.Configs[1].TestRun, v.Configs[1].Seen, v.Configs[1].Steps.MAPE, v.Configs[1].Steps.MAPEConst = true, false, num(0.2), num(1)
	judged(t, v, fit, nil)
	if got := failed(v); len(got) > 0 {
		t.Errorf("20 %% on an unseen configuration: got %v", got)
	}
}

func TestThresholdsAreOptions(t *testing.T) {
	v, fit := good()
	judged(t, v, fit, map[string]float64{gateBetaMAPE: 0.04})
	if got := failed(v); !slices.Equal(got, []string{gateBetaMAPE + " a", gateBetaMAPE + " b"}) {
		t.Errorf("got %v", got)
	}
	r, _ := newRules(map[string]float64{gateBetaMAPE: 0.4})
	if got := r.of(gateWorstConfiguration).Limit; math.Abs(got-0.8) > 1e-12 {
		t.Errorf("worst_configuration follows beta_mape: got %v, want 0.8", got)
	}
	if _, err := newRules(map[string]float64{"beta_mapp": 1}); trace.CodeOf(err) != badGate {
		t.Errorf("unknown gate: got %v", err)
	}
	if _, err := newRules(map[string]float64{gateBias: math.NaN()}); trace.CodeOf(err) != badGate {
		t.Errorf("NaN: got %v", err)
	}
}

// TestSampledJourneysCannotBeReplayed: half of the load is missing.
func TestSampledJourneysCannotBeReplayed(t *testing.T) {
	v, fit := good()
	v.Runs[0].JourneySampleRate = num(0.5)
	judged(t, v, fit, nil)
	if v.Verdict != coeff.VerdictInsufficient || len(v.Missing) != len(replayRules) || !strings.Contains(v.Missing[0], "sampled at 0.5") {
		t.Errorf("got %s, %v", v.Verdict, v.Missing)
	}
}
