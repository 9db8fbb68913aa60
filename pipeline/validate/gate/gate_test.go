package gate

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

func num(v float64) *float64 { return &v }

// estimate is a figure with its interval.
func estimate(v, half float64) *result.Estimate {
	return &result.Estimate{Value: v, Lo: num(v - half), Hi: num(v + half)}
}

// evidence is what gates are decided from.
type evidence struct {
	v   *result.Validation
	fit *result.Fit
	set *coeff.Set
}

// addLoop adds a closed loop whose capacity is off.
func (e *evidence) addLoop(off float64) {
	loop := e.v.Runs[0]
	metrics := *loop.Metrics
	metrics.Capacity = &result.Capacity{Clients: 8, Err: estimate(off, 0.01)}
	loop.Phase = "closed"
	loop.Load = deploy.LoadClosed
	loop.Metrics = &metrics
	e.v.Runs = append(e.v.Runs, loop)
}

// goodEvidence is a validation of two configurations, a and b, in which every gate has a value and
// passes. b is served by the frozen recipe too, so that it has queue waits.
func goodEvidence() evidence {
	metric := func() *result.Metric {
		return &result.Metric{KSD: 0.3, BeyondD: num(0.08), ChanceBeyondD: num(0.06), PairedErr: estimate(0.01, 0.01),
			NReal: 400, RealMs: result.SampleStats{P50: 100, Mean: 100}}
	}
	config := func(scope string) result.ConfigErrors {
		return result.ConfigErrors{
			Scope: scope, Config: scope, Seen: true, Runs: []string{"r"}, TargetOverFloor: num(3), BoundHits: num(0),
			Steps: &result.Errors{Rows: 900, MAPE: num(0.05), MAPEConst: num(0.3), MAPEFloor: num(0.04), Skill: num(0.9), Bias: num(0.01),
				MAPEInterval: &[2]float64{0.04, 0.06}, BiasInterval: &[2]float64{0, 0.02}, FarErrorRatio: num(1)},
			Alpha: &result.AlphaErrors{
				Overhead:  &result.IntervalErrors{Rows: 200, InsideShare: num(0.97), MAEUs: num(1000)},
				Admission: &result.TargetErrors{Rows: 200, Windows: 20, MAPEWindow10s: num(0.1), ConstWindow: num(0.3), MaxErrorRatio: num(2)},
				Egress:    &result.TargetErrors{Rows: 200, WAPE: num(0.2), MAEUs: num(500)},
				Queue: &result.TargetErrors{Rows: 200, MAPE: num(0.1), MAPEConst: num(0.3), MaxErrorRatio: num(2),
					Regimes: []result.RegimeErrors{{Regime: "idle", Rows: 150, MAPE: num(0.3), MAPEFloor: num(0.25)}},
					Long:    &result.RegimeErrors{Regime: "long", Rows: 50, MAPE: num(0.2)}},
			},
		}
	}
	v := &result.Validation{
		Configs: []result.ConfigErrors{config("a"), config("b")},
		Steps:   &result.Errors{Rows: 1800, Bias: num(-0.02), BiasInterval: &[2]float64{-0.03, -0.01}},
		Runs: []result.ValidationRun{{
			ID: "r", Phase: "open", Load: deploy.LoadOpen, Split: result.Split{Kind: result.SplitHoldout},
			Requests: 400, Metrics: &result.Metrics{TTFT: metric(), ITL: metric(), E2E: metric()},
		}},
	}
	leftOut := func() []result.Loco {
		return []result.Loco{
			{Config: "a", Rows: 900, MAPE: num(0.1), Bias: num(-0.09), InsideShare: num(0.9), MAPEWindow10s: num(0.2), Windows: 20},
			{Config: "b", Rows: 900, MAPE: num(0.1), Bias: num(-0.09), InsideShare: num(0.9), MAPEWindow10s: num(0.2), Windows: 20},
		}
	}
	fit := &result.Fit{
		Beta: result.Model{Name: "beta", Loco: leftOut(), Certificate: &result.Certificate{OK: true}, FoldFingerprints: []string{"1", "2"}},
		Alpha: []result.Model{
			{Name: "overhead", Loco: leftOut()},
			{Name: "admission", Loco: leftOut()},
			{Name: "queue", Loco: leftOut()},
		},
	}
	set := &coeff.Set{}
	for _, name := range append(slices.Clone(mustBePositive), mayBeZero) {
		set.Beta = append(set.Beta, coeff.Coefficient{Name: name, Value: 1, Identified: coeff.Within})
	}
	return evidence{v, fit, set}
}

// setMAPE gives a configuration a MAPE and a narrow interval.
func (e evidence) setMAPE(config int, v float64) {
	steps := e.v.Configs[config].Steps
	steps.MAPE = &v
	steps.MAPEInterval = &[2]float64{v - 0.005, v + 0.005}
}

// addLevels adds load levels that the fit, which learned from such, never saw.
func (e evidence) addLevels(relErr float64) {
	metric := func() *result.Metric { return &result.Metric{MedianRelErrPaired: &relErr, ChanceMedian: num(0.02)} }
	e.fit.Requests = &result.RequestLevel{}
	e.v.Runs = append(e.v.Runs, result.ValidationRun{
		ID: "levels", Source: result.SourcePoints, Split: result.Split{Kind: result.SplitLevels}, Requests: 8,
		Metrics: &result.Metrics{TTFT: metric(), ITL: metric()},
	})
}

// decide fills the gates and the verdicts, for all purposes.
func (e evidence) decide(t *testing.T, overrides map[string]float64) *result.Validation {
	t.Helper()
	r, err := NewRules(overrides)
	if err != nil {
		t.Fatal(err)
	}
	e.v.Gates = nil
	r.Decide(e.v, e.fit, e.set, coeff.PurposeAll)
	return e.v
}

func failedGates(v *result.Validation) []string {
	var out []string
	for _, g := range v.Gates {
		if g.Pass != nil && !*g.Pass {
			out = append(out, g.Name+" "+g.Scope)
		}
	}
	return out
}

func TestEverythingGoodPasses(t *testing.T) {
	v := goodEvidence().decide(t, nil)
	if v.Verdict != coeff.VerdictPass || !v.Pass || len(v.Missing) != 0 {
		t.Errorf("got %s, failed %v, missing %v", v.Verdict, failedGates(v), v.Missing)
	}
}

// TestEveryGateHasAValue: the good evidence of this test has a value for every gate of the table, and
// every gate is explained.
func TestEveryGateHasAValue(t *testing.T) {
	e := goodEvidence()
	e.addLevels(0.05)
	e.addLoop(0.01)
	v := e.decide(t, nil)
	for _, want := range All() {
		onlyWhenViolated := JudgesStreams(want.Name)
		if !onlyWhenViolated && !slices.ContainsFunc(v.Gates, func(g result.Gate) bool { return g.Name == want.Name && g.Value != nil }) {
			t.Errorf("%s: no gate of that name has a value: add the figure it compares to goodEvidence", want.Name)
		}
		if want.What == "" || want.Means == "" || want.Do == "" || want.Reason == "" || want.Compares == "" || len(want.Purposes) == 0 {
			t.Errorf("%s: an empty field: %+v", want.Name, want.Words)
		}
	}
}

// TestEachGateCanFail: one bad figure fails the gate it belongs to, and those named with it. Every gate
// of the table needs a case.
func TestEachGateCanFail(t *testing.T) {
	cases := map[string]struct {
		spoil func(evidence)
		fails []string // gate and scope, sorted
	}{
		"beta_mape": {
			func(e evidence) { e.setMAPE(1, 0.16) },
			[]string{"beta_mape b"},
		},
		"worst_configuration": {
			func(e evidence) { e.setMAPE(1, 0.31) },
			[]string{"beta_beats_constant b", "beta_mape b", "worst_configuration all"},
		},
		"beta_beats_constant": {
			func(e evidence) { e.v.Configs[1].Steps.MAPEConst = num(0.05) },
			[]string{"beta_beats_constant b"},
		},
		"beta_max_error": {
			func(e evidence) { e.v.Configs[0].Steps.FarErrorRatio = num(3) },
			[]string{"beta_max_error a"},
		},
		"beta_signs": {
			func(e evidence) { e.set.Beta[0].Value = -1 },
			[]string{"beta_signs all"},
		},
		"beta_skill": {
			func(e evidence) { e.v.Configs[0].Steps.Skill = num(0.5) },
			[]string{"beta_skill a"},
		},
		"bound_hits": {
			func(e evidence) { e.v.Configs[0].BoundHits = num(0.011) },
			[]string{"bound_hits a"},
		},
		"target_floor": {
			func(e evidence) { e.v.Configs[0].TargetOverFloor = num(0.9) },
			[]string{"target_floor a"},
		},
		"bias": {
			func(e evidence) { e.v.Steps.Bias, e.v.Steps.BiasInterval = num(-0.06), &[2]float64{-0.07, -0.05} },
			[]string{"bias all"},
		},
		"beta_mape_loco": {
			func(e evidence) { e.fit.Beta.Loco[0].MAPE = num(0.3) },
			[]string{"beta_mape_loco a"},
		},
		"bias_loco": {
			func(e evidence) { e.fit.Beta.Loco[0].Bias = num(-0.12) },
			[]string{"bias_loco a"},
		},
		"certificate": {
			func(e evidence) { e.fit.Beta.Certificate.OK = false },
			[]string{"certificate all"},
		},
		"folds_distinct": {
			func(e evidence) { e.fit.Beta.FoldFingerprints = []string{"1", "1"} },
			[]string{"folds_distinct all"},
		},
		"overhead_of_ttft": {
			func(e evidence) { e.v.Configs[0].Alpha.Overhead.MAEUs = num(2000) },
			[]string{"overhead_of_ttft a"},
		},
		"overhead_inside_loco": {
			func(e evidence) { e.fit.Alpha[0].Loco[1].InsideShare = num(0.8) },
			[]string{"overhead_inside_loco b"},
		},
		"long_delays_mape": {
			func(e evidence) { e.v.Configs[0].Alpha.Queue.Long.MAPE = num(0.26) },
			[]string{"long_delays_mape a"},
		},
		"instant_delays_mape": {
			func(e evidence) { e.v.Configs[1].Alpha.Queue.Regimes[0].MAPE = num(0.51) },
			[]string{"instant_delays_mape b"},
		},
		"admission_window_mape": {
			func(e evidence) { e.v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.26) },
			[]string{"admission_window_mape a"},
		},
		"admission_window_mape_loco": {
			func(e evidence) { e.fit.Alpha[1].Loco[0].MAPEWindow10s = num(0.5) },
			[]string{"admission_window_mape_loco a"},
		},
		"admission_max_error": {
			func(e evidence) { e.v.Configs[0].Alpha.Admission.MaxErrorRatio = num(5) },
			[]string{"admission_max_error a"},
		},
		"admission_beats_constant": {
			func(e evidence) { e.v.Configs[0].Alpha.Admission.ConstWindow = num(0.1) },
			[]string{"admission_beats_constant a"},
		},
		"egress_of_e2e": {
			func(e evidence) { e.v.Configs[0].Alpha.Egress.MAEUs = num(1000) },
			[]string{"egress_of_e2e a"},
		},
		"queue_mape": {
			func(e evidence) { e.v.Configs[0].Alpha.Queue.MAPE = num(0.26) },
			[]string{"queue_mape a"},
		},
		"queue_mape_loco": {
			func(e evidence) { e.fit.Alpha[2].Loco[1].MAPE = num(0.41) },
			[]string{"queue_mape_loco b"},
		},
		"queue_max_error": {
			func(e evidence) { e.v.Configs[1].Alpha.Queue.MaxErrorRatio = num(6) },
			[]string{"queue_max_error b"},
		},
		"queue_beats_constant": {
			func(e evidence) { e.v.Configs[1].Alpha.Queue.MAPEConst = num(0.1) },
			[]string{"queue_beats_constant b"},
		},
		"contradictions_steps": {
			violate(coeff.PurposeSteps), []string{"contradictions_steps a", "contradictions_steps b"},
		},
		"contradictions_replay": {
			violate(coeff.PurposeReplay), []string{"contradictions_replay a", "contradictions_replay b"},
		},
		"contradictions_waits": {
			violate(coeff.PurposeWaits), []string{"contradictions_waits a", "contradictions_waits b"},
		},
		"contradictions_transfer": {
			violate(coeff.PurposeTransfer), []string{"contradictions_transfer a", "contradictions_transfer b"},
		},
		"ks_ttft":         {func(e evidence) { e.v.Runs[0].Metrics.TTFT.BeyondD = num(0.16) }, []string{"ks_ttft r/open"}},
		"paired_err_ttft": {func(e evidence) { e.v.Runs[0].Metrics.TTFT.PairedErr = estimate(-0.09, 0.02) }, []string{"paired_err_ttft r/open"}},
		"ks_itl":          {func(e evidence) { e.v.Runs[0].Metrics.ITL.BeyondD = num(0.16) }, []string{"ks_itl r/open"}},
		"paired_err_itl":  {func(e evidence) { e.v.Runs[0].Metrics.ITL.PairedErr = estimate(-0.09, 0.02) }, []string{"paired_err_itl r/open"}},
		"ks_e2e":          {func(e evidence) { e.v.Runs[0].Metrics.E2E.BeyondD = num(0.16) }, []string{"ks_e2e r/open"}},
		"paired_err_e2e":  {func(e evidence) { e.v.Runs[0].Metrics.E2E.PairedErr = estimate(-0.09, 0.02) }, []string{"paired_err_e2e r/open"}},
		"capacity": {func(e evidence) {
			e.addLoop(-0.09)
		}, []string{"capacity r/closed"}},
		"median_rel_err_ttft": {func(e evidence) { e.addLevels(0.3) }, []string{"median_rel_err_itl levels", "median_rel_err_ttft levels"}},
		"median_rel_err_itl":  {func(e evidence) { e.addLevels(0.2) }, []string{"median_rel_err_itl levels", "median_rel_err_ttft levels"}},
	}
	for _, g := range All() {
		c, known := cases[g.Name]
		if !known {
			t.Errorf("%s: no case makes it fail", g.Name)
			continue
		}
		e := goodEvidence()
		c.spoil(e)
		v := e.decide(t, nil)
		got := failedGates(v)
		slices.Sort(got)
		if !slices.Equal(got, c.fails) || v.Verdict != coeff.VerdictFail {
			t.Errorf("%s: want %v to fail, got %v (%s)", g.Name, c.fails, got, v.Verdict)
		}
	}
}

// TestRepeatedFoldsCountForTheirModel: folds that repeat each other fail the purposes that use their model, and a delay
// that is a constant in all of them fails none.
func TestRepeatedFoldsCountForTheirModel(t *testing.T) {
	const replay, waits = coeff.PurposeReplay, coeff.PurposeWaits
	term := func(name string, largest float64) result.Coefficient {
		c := result.Coefficient{}
		c.Name, c.FoldSpread, c.Range = name, &[2]float64{0, largest}, &[2]float64{0, 0.05}
		return c
	}
	constant := []result.Coefficient{term("base_bias", 8360.5), term("admission_compute", 0.02)} // 1 ns of the longest prompt
	varying := []result.Coefficient{term("base_bias", 8360.5), term("admission_compute", 0.03)}
	for _, c := range []struct {
		model  string
		terms  []result.Coefficient
		fails  []string // purposes
		remark string
	}{
		{"beta", constant, []string{coeff.PurposeSteps, replay}, "1 of beta"},
		{"overhead", constant, nil, ""},
		{"overhead", varying, []string{replay}, "1 of overhead"},
		{"overhead", nil, []string{replay}, "1 of overhead"},
		{"egress", varying, []string{replay}, "1 of egress"},
		{"admission", varying, []string{waits}, "1 of admission"},
		{"queue", constant, nil, ""},
	} {
		e := goodEvidence()
		model := &e.fit.Beta
		if c.model != "beta" {
			e.fit.Alpha = append(e.fit.Alpha, result.Model{Name: c.model, Replay: c.model == "overhead" || c.model == "egress"})
			model = &e.fit.Alpha[len(e.fit.Alpha)-1]
		}
		model.Name, model.Coefficients, model.FoldFingerprints = c.model, c.terms, []string{"1", "2", "1"}
		e.decide(t, nil)
		var failed []string
		for _, purpose := range []string{coeff.PurposeSteps, replay, waits} {
			if slices.Contains(e.v.VerdictFor(purpose, ScopeAll).Failed, "folds_distinct of all") {
				failed = append(failed, purpose)
			}
		}
		g := gatesNamed(e.v, "folds_distinct")[0]
		if !slices.Equal(failed, c.fails) || g.Note != c.remark {
			t.Errorf("%s with %d terms: %v fail, %q, want %v, %q", c.model, len(c.terms), failed, g.Note, c.fails, c.remark)
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
		{0.16, 0.17, coeff.VerdictInsufficient, "about 803 would decide"},
		{0.10, 0.30, coeff.VerdictInsufficient, "chance alone reaches 0.3 with 400 requests, want below 0.15: about 2500 would decide"},
		{0.20, 0.20, coeff.VerdictInsufficient, "about 1112 would decide"},
	} {
		e := goodEvidence()
		v := e.v
		v.Runs[0].Metrics.TTFT.BeyondD, v.Runs[0].Metrics.TTFT.ChanceBeyondD = num(c.value), num(c.chance)
		whole := v.Runs[0]
		whole.Split.Kind, whole.Metrics = result.SplitInSample, &result.Metrics{TTFT: &result.Metric{BeyondD: num(0.9), ChanceBeyondD: num(0)}}
		v.Runs = append(v.Runs, whole)
		e.decide(t, nil)
		if v.Verdict != c.want {
			t.Errorf("%+v: got %s, missing %v", c, v.Verdict, v.Missing)
		}
		for _, g := range v.Gates {
			if g.Name == "ks_ttft" && (g.Scope != "r/open" || !strings.Contains(g.Note, c.note) || *g.Value != c.value || *g.Chance != c.chance) {
				t.Errorf("%+v: got %+v", c, g)
			}
		}
	}
	e := goodEvidence()
	v := e.v
	v.Runs[0].Metrics.ITL.ChanceBeyondD = nil
	e.decide(t, nil)
	if v.Verdict != coeff.VerdictInsufficient || !strings.Contains(v.Missing[0], noteNoChance) {
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
		change func(evidence)
		want   [4]string // steps, replay, waits, transfer over everything
		b      [4]string // of configuration b
	}{
		{"good", func(evidence) {}, [4]string{pass, pass, pass, pass}, [4]string{pass, pass, pass, pass}},
		{"waits", func(e evidence) { e.v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.9) },
			[4]string{pass, pass, fail, pass}, [4]string{pass, pass, pass, pass}},
		{"steps of b", func(e evidence) { e.v.Configs[1].Steps.Skill = num(0.1) },
			[4]string{fail, fail, pass, pass}, [4]string{fail, fail, pass, pass}},
		{"replay", func(e evidence) { e.v.Runs[0].Metrics.ITL.BeyondD = num(0.4) },
			[4]string{pass, fail, pass, pass}, [4]string{pass, fail, pass, pass}},
		{"a delay of a", func(e evidence) { e.v.Configs[0].Alpha.Egress.MAEUs = num(5000) },
			[4]string{pass, fail, pass, pass}, [4]string{pass, pass, pass, pass}},
		{"certificate", func(e evidence) { e.fit.Beta.Certificate.OK = false },
			[4]string{fail, fail, pass, pass}, [4]string{fail, fail, pass, pass}},
		{"one configuration", func(e evidence) {
			e.fit.Beta.Loco = nil
			for i := range e.fit.Alpha {
				e.fit.Alpha[i].Loco = nil
			}
		},
			[4]string{pass, pass, pass, none}, [4]string{pass, pass, pass, none}},
		{"a saturated run alone", func(e evidence) { e.v.Runs[0].Saturated = true },
			[4]string{pass, few, pass, pass}, [4]string{pass, none, pass, pass}},
	} {
		e := goodEvidence()
		v := e.v
		c.change(e)
		e.decide(t, nil)
		for i, purpose := range coeff.Purposes {
			if got := of(v, purpose, ScopeAll); got != c.want[i] {
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
		e := goodEvidence()
		v := e.v
		v.Configs[0].Alpha.Admission.MAPEWindow10s = num(0.9)
		if v.Options.StepsOnly = c.stepsOnly; c.stepsOnly {
			v.Runs[0].Metrics = nil
		}
		r, _ := NewRules(nil)
		r.Decide(v, e.fit, e.set, c.asked)
		if v.For != c.want || v.Verdict != c.verdict || v.Pass != (c.verdict == coeff.VerdictPass) {
			t.Errorf("%q: got %s for %s, want %s for %s", c.asked, v.Verdict, v.For, c.verdict, c.want)
		}
	}
}

// TestContradictedReplayDecides: where nothing was replayed, replay decides if streams contradict each other in what a replay
// alone needs, or lost it. What harms steps too is left to the verdict on steps.
func TestContradictedReplayDecides(t *testing.T) {
	replay, both := []string{coeff.PurposeReplay, coeff.PurposeWaits}, []string{coeff.PurposeSteps, coeff.PurposeReplay}
	for _, c := range []struct {
		id        result.Identity
		stepsOnly bool
		want      string
		verdict   string
	}{
		{result.Identity{Status: result.IdentityHolds, Harms: replay}, false, coeff.PurposeSteps, coeff.VerdictPass},
		{result.Identity{Status: result.IdentityViolated, Effect: result.IdentityNamed, Harms: replay}, false, coeff.PurposeSteps, coeff.VerdictPass},
		{result.Identity{Status: result.IdentityViolated, Effect: result.IdentityFails, Harms: replay}, false, coeff.PurposeReplay, coeff.VerdictFail},
		{result.Identity{Status: result.IdentityViolated, Effect: result.IdentityUndecided, Harms: replay}, false, coeff.PurposeReplay, coeff.VerdictInsufficient},
		{result.Identity{Status: result.IdentityViolated, Effect: result.IdentityFails, Harms: both}, false, coeff.PurposeSteps, coeff.VerdictFail},
		{result.Identity{Status: result.IdentityViolated, Effect: result.IdentityFails, Harms: replay}, true, coeff.PurposeSteps, coeff.VerdictPass},
	} {
		e := goodEvidence()
		e.v.Options.StepsOnly = c.stepsOnly
		for i := range e.v.Runs {
			e.v.Runs[i].Metrics = nil
		}
		e.v.Runs[0].Identities = []result.Identity{c.id}
		r, _ := NewRules(nil)
		r.Decide(e.v, e.fit, e.set, "")
		if e.v.For != c.want || e.v.Verdict != c.verdict {
			t.Errorf("%+v, steps only %t: got %s for %s, want %s for %s", c.id, c.stepsOnly, e.v.Verdict, e.v.For, c.verdict, c.want)
		}
	}
}

// TestSaturatedPhasesDoNotGate whatever their figures; a closed loop, replayed as
// one, does.
func TestSaturatedPhasesDoNotGate(t *testing.T) {
	e := goodEvidence()
	v := e.v
	bad := &result.Metrics{TTFT: &result.Metric{BeyondD: num(0.9), ChanceBeyondD: num(0.1)}}
	v.Runs = append(v.Runs,
		result.ValidationRun{ID: "s", Phase: "open", Load: deploy.LoadOpen, Saturated: true, Requests: 400, Metrics: bad})
	e.decide(t, nil)
	if v.Verdict != coeff.VerdictPass {
		t.Errorf("got %s: %v %v", v.Verdict, failedGates(v), v.Missing)
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
	e.decide(t, nil)
	if v.Verdict != coeff.VerdictFail {
		t.Errorf("a bad closed loop: got %s", v.Verdict)
	}
	v.Runs = v.Runs[1:2]
	if e.decide(t, nil).Verdict != coeff.VerdictInsufficient {
		t.Error("without any open unsaturated phase the verdict is insufficient")
	}
}

// TestUnseenConfigurationUsesTheWiderGate.
func TestUnseenConfigurationUsesTheWiderGate(t *testing.T) {
	e := goodEvidence()
	v := e.v
	v.Configs[1].TestRun, v.Configs[1].Seen, v.Configs[1].Steps.MAPEConst = true, false, num(1)
	e.setMAPE(1, 0.2)
	e.decide(t, nil)
	if got := failedGates(v); len(got) > 0 {
		t.Errorf("20 %% on an unseen configuration: got %v", got)
	}
}

func TestThresholdsAreOptions(t *testing.T) {
	e := goodEvidence()
	v := e.v
	e.decide(t, map[string]float64{BetaMAPE: 0.04})
	if got := failedGates(v); !slices.Equal(got, []string{BetaMAPE + " a", BetaMAPE + " b"}) {
		t.Errorf("got %v", got)
	}
	r, _ := NewRules(map[string]float64{BetaMAPE: 0.4})
	if got := r.named("worst_configuration").Threshold; math.Abs(got-0.8) > 1e-12 {
		t.Errorf("worst_configuration follows beta_mape: got %v, want 0.8", got)
	}
	if _, err := NewRules(map[string]float64{"beta_mapp": 1}); trace.CodeOf(err) != badGate {
		t.Errorf("unknown gate: got %v", err)
	}
	if _, err := NewRules(map[string]float64{Bias: math.NaN()}); trace.CodeOf(err) != badGate {
		t.Errorf("NaN: got %v", err)
	}
}

// TestSampledJourneysCannotBeReplayed: half of the load is missing, so no gate on requests has a result.
func TestSampledJourneysCannotBeReplayed(t *testing.T) {
	e := goodEvidence()
	v := e.v
	v.Runs[0].JourneySampleRate = num(0.5)
	e.decide(t, nil)
	want := 0
	for _, g := range All() {
		if g.ofReplay != nil && g.ofReplay.applies(&v.Runs[0]) {
			want++
		}
	}
	if v.Verdict != coeff.VerdictInsufficient || len(v.Missing) != want || !strings.Contains(v.Missing[0], "sampled at 0.5") {
		t.Errorf("got %s, %v, want a note of each of %d gates", v.Verdict, v.Missing, want)
	}
}

// violate makes an identity between the streams of the first run violated, to the harm of a purpose.
func violate(purpose string) func(evidence) {
	return func(e evidence) {
		e.v.Runs[0].Identities = violated(purpose, result.IdentityFails)
		e.v.Runs = append(e.v.Runs, result.ValidationRun{ID: "other", Config: "other", Split: result.Split{Kind: result.SplitInSample}})
	}
}

func violated(purpose, effect string) []result.Identity {
	return []result.Identity{{
		Name:     "running_requests",
		Status:   result.IdentityViolated,
		Effect:   effect,
		Harms:    []string{purpose},
		Sentence: "more journeys run than requests are running",
	}}
}

// TestLossIsInsufficient: an identity that leaves a purpose undecided takes the pass from it and nothing
// from the others, one that only names takes nothing, and neither turns a failure into anything else.
func TestLossIsInsufficient(t *testing.T) {
	verdicts := func(e evidence) []string {
		v := e.decide(t, nil)
		var out []string
		for _, purpose := range coeff.Purposes {
			out = append(out, v.VerdictFor(purpose, ScopeAll).Verdict)
		}
		return out
	}
	good := verdicts(goodEvidence())
	for k, purpose := range coeff.Purposes {
		e := goodEvidence()
		violate(purpose)(e)
		e.v.Runs[0].Identities = violated(purpose, result.IdentityUndecided)
		want := slices.Clone(good)
		want[k] = coeff.VerdictInsufficient
		if purpose == coeff.PurposeSteps {
			want[slices.Index(coeff.Purposes, coeff.PurposeReplay)] = coeff.VerdictInsufficient
		}
		if got := verdicts(e); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", purpose, got, want)
		}
		e.v.Runs[0].Identities = violated(purpose, result.IdentityNamed)
		if got := verdicts(e); !slices.Equal(got, good) {
			t.Errorf("%s, named: got %v, want %v", purpose, got, good)
		}
	}
}

// TestBiasOfEachConfiguration: one configuration of two that is wrong in every step fails by its name,
// whatever the pooled figure is.
func TestBiasOfEachConfiguration(t *testing.T) {
	e := goodEvidence()
	e.v.Configs[1].Steps.Bias = num(0.12)
	e.v.Configs[1].Steps.BiasInterval = &[2]float64{0.115, 0.125}
	e.decide(t, nil)
	if got := failedGates(e.v); !slices.Equal(got, []string{"bias b"}) {
		t.Errorf("got %v", got)
	}
	e.v.Configs = e.v.Configs[:1]
	e.decide(t, nil)
	if n := len(gatesNamed(e.v, Bias)); n != 1 {
		t.Errorf("one configuration: %d gates of the bias, want 1", n)
	}
}

func gatesNamed(v *result.Validation, name string) []result.Gate {
	var out []result.Gate
	for _, g := range v.Gates {
		if g.Name == name {
			out = append(out, g)
		}
	}
	return out
}

// TestFewRowsDecideNothing: figures of fewer than 20 rows neither pass nor fail, whatever they are.
func TestFewRowsDecideNothing(t *testing.T) {
	for _, good := range []bool{true, false} {
		e := goodEvidence()
		e.v.Configs = e.v.Configs[:1]
		steps := e.v.Configs[0].Steps
		steps.Rows = 10
		steps.MAPEInterval, steps.BiasInterval = nil, nil
		e.fit.Beta.Rows = result.RowCounts{Kept: 50, Holdout: 10}
		e.fit.Beta.FoldFingerprints = []string{"1", "2", "1"}
		if !good {
			steps.MAPE, steps.Bias, steps.MaxErrorRatio = num(0.9), num(-0.9), num(9)
		}
		e.decide(t, nil)
		if e.v.Verdict != coeff.VerdictInsufficient {
			t.Errorf("good %v: got %s, failed %v", good, e.v.Verdict, failedGates(e.v))
		}
		for _, name := range []string{BetaMAPE, Bias, BetaMaxError, BetaSkill, "beta_beats_constant", "bound_hits", TargetFloor,
			"worst_configuration", "folds_distinct"} {
			g := gatesNamed(e.v, name)[0]
			if g.Pass != nil || !strings.HasPrefix(g.Note, InsufficientData) || g.Value == nil {
				t.Errorf("good %v: %s: got %+v", good, name, g.Gate)
			}
		}
	}
}

// TestEstimatesAreJudgedWithTheirInterval: it fails wholly outside, passes inside, and needs more values
// between.
func TestEstimatesAreJudgedWithTheirInterval(t *testing.T) {
	for _, c := range []struct {
		value, half float64
		want, note  string
	}{
		{0.01, 0.02, coeff.VerdictPass, ""},
		{-0.049, 0.04, coeff.VerdictPass, ""},
		{-0.10, 0.04, coeff.VerdictFail, ""},
		{0.052, 0.001, coeff.VerdictFail, ""},
		{0.06, 0.02, coeff.VerdictInsufficient, "between +4.0 and +8.0 %, want within 5 %, with 400 compared: about "},
		{0.03, 0.09, coeff.VerdictInsufficient, "would decide"},
		{0.03, 0.5, coeff.VerdictInsufficient, "more than 20000 requests would be needed, which is not within reach"},
	} {
		e := goodEvidence()
		e.v.Runs[0].Metrics.TTFT.PairedErr = estimate(c.value, c.half)
		e.decide(t, nil)
		if g := gatesNamed(e.v, "paired_err_ttft")[0]; e.v.Verdict != c.want || !strings.Contains(g.Note, c.note) {
			t.Errorf("%v: got %s, %q", c, e.v.Verdict, g.Note)
		}
	}
	e := goodEvidence()
	e.v.Runs[0].Requests = 12
	e.v.Runs[0].Metrics.TTFT.PairedErr = &result.Estimate{Value: 0.3}
	if e.decide(t, nil).Verdict != coeff.VerdictInsufficient {
		t.Errorf("twelve requests: got %s", e.v.Verdict)
	}
}

// One or two windows of ten seconds decide nothing, nor do a few delays.
func TestFewDelaysDecideNothing(t *testing.T) {
	e := goodEvidence()
	alpha := e.v.Configs[0].Alpha
	alpha.Admission.Windows = 19
	alpha.Queue.Long.Rows = 19
	alpha.Queue.Regimes = nil
	e.fit.Alpha[1].Loco[0].Windows = 2
	v := e.decide(t, nil)
	undecided := map[string]bool{}
	for _, g := range v.Gates {
		if g.Pass == nil && strings.HasPrefix(g.Note, InsufficientData) {
			undecided[g.Name+" "+g.Scope] = true
		}
	}
	for _, want := range []string{"admission_window_mape a", "admission_max_error a", "admission_beats_constant a",
		"admission_window_mape_loco a", "long_delays_mape a", "instant_delays_mape a"} {
		if !undecided[want] {
			t.Errorf("%s is decided", want)
		}
	}
	if len(undecided) != 6 || v.Verdict != coeff.VerdictInsufficient {
		t.Errorf("got %v, verdict %s", undecided, v.Verdict)
	}
}

// TestAnswersOfOneToken: a fit from requests with one output token each knows the overhead and the first step by their sum
// alone, so that a wrong overhead is left open; a fit from steps fails, and so does one with longer answers. The gates of
// ITL say why they have no value.
func TestAnswersOfOneToken(t *testing.T) {
	yes, no := new(true), new(false)
	for _, c := range []struct {
		name                   string
		fromRequests, oneToken bool
		maeUs                  float64
		pass                   *bool
		note                   string
	}{
		{"one token", true, true, 2000, nil, noteOneTimeOfBoth}, {"one token, a right overhead", true, true, 1000, yes, ""},
		{"longer answers", true, false, 2000, no, ""}, {"from steps", false, true, 2000, no, ""},
	} {
		e := goodEvidence()
		e.v.Configs = e.v.Configs[:1]
		e.v.Configs[0].Alpha.Overhead.MAEUs = num(c.maeUs)
		if c.fromRequests {
			e.fit.Requests = &result.RequestLevel{}
		}
		if c.oneToken {
			e.v.Runs[0].Metrics.ITL = nil
		}
		for _, g := range e.decide(t, nil).Gates {
			switch {
			case g.Name == overheadOfTTFT && (!reflect.DeepEqual(g.Pass, c.pass) || g.Note != c.note || g.Value == nil || !g.Required):
				t.Errorf("%s: got %+v, want the result %v and the note %q", c.name, g, c.pass, c.note)
			case g.Name == "ks_itl" && c.oneToken && (g.Pass != nil || g.Note != noteOneToken):
				t.Errorf("%s: got %+v, want the note %q", c.name, g, noteOneToken)
			}
		}
	}
}
