package report

import (
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// judgedBy is a validation whose purposes have these verdicts for the scope c.
func judgedBy(verdicts ...string) *result.Validation {
	v := &result.Validation{For: coeff.PurposeReplay}
	for i, verdict := range verdicts {
		if verdict != "" {
			p := result.PurposeVerdict{}
			p.Purpose, p.Scope, p.Verdict = coeff.Purposes[i], "c", verdict
			v.Purposes = append(v.Purposes, p)
		}
	}
	return v
}

// TestUsesByHand: purposes by their verdicts.
func TestUsesByHand(t *testing.T) {
	const pass, fail, few = coeff.VerdictPass, coeff.VerdictFail, coeff.VerdictInsufficient
	p := coeff.Purposes
	for want, v := range map[string]*result.Validation{
		"usable for " + p[0] + ", " + p[2] + "; not " + p[1] + "; too few data for " + p[3]: judgedBy(pass, fail, pass, few),
		"not usable for " + p[0] + ", " + p[1] + "; too few data for " + p[2]:               judgedBy(fail, fail, few),
		"too few data for " + p[0]:      judgedBy(few),
		"no purpose could be validated": judgedBy(),
	} {
		if got := usesText(v, "c"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if classOf(coeff.VerdictNotApplicable) != "none" || classOf(fail) != fail {
		t.Error("got another class")
	}
}

// TestUsedByHand: how many of the recorded steps and requests were used, of a configuration and of a test run.
func TestUsedByHand(t *testing.T) {
	in := Input{
		Fit: &result.Fit{Runs: []result.FitRun{{ID: "a", Config: "k", Steps: result.StepQuality{Recorded: 3000}}, {ID: "b", Config: "k", Steps: result.StepQuality{Recorded: 500}}, {ID: "x", Config: "other", Steps: result.StepQuality{Recorded: 7}}, {ID: "test", Config: "k2", Steps: result.StepQuality{Recorded: 40}}}},
		Validation: &result.Validation{Runs: []result.ValidationRun{
			{ID: "a", Phase: "1", Config: "k", Replayed: 100, Rebuilt: 10, Requests: 80, Metrics: &result.Metrics{}},
			{ID: "a", Phase: "1", Config: "k", Replayed: 100, Requests: 60, Metrics: &result.Metrics{}}, // the same phase, not gated
			{ID: "b", Phase: "1", Config: "k", Replayed: 30, Requests: 25},
			{ID: "a", Phase: "levels", Config: "k", Replayed: 999, Source: result.SourcePoints},
			{ID: "test", Config: "k", Replayed: 20, Requests: 15, Metrics: &result.Metrics{}},
		}},
	}
	in.Fit.Beta.Rows.ByRun = []result.RunRows{{Run: "a", Kept: 2000}, {Run: "b", Kept: 400}, {Run: "x", Kept: 6}}
	c := &result.ConfigErrors{Scope: "c", Config: "k", Runs: []string{"a", "b"}}
	if got := usedText(in, c); got != "; used 2,400 of 3,500 recorded steps, 95 of 140 requests" {
		t.Errorf("got %q", got)
	}
	in.Extract = &result.Extract{Runs: []result.ExtractRun{{ID: "a", Requests: result.ExtractRequests{Engine: 200, APIOnly: 30, Stock: 4}}, {ID: "b", Requests: result.ExtractRequests{Engine: 5}}, {ID: "x", Requests: result.ExtractRequests{Engine: 1000}}}}
	if got := usedText(in, c); got != "; used 2,400 of 3,500 recorded steps, 95 of 239 requests" {
		t.Errorf("got %q", got)
	}
	test := &result.ConfigErrors{Scope: "test", Config: "k", TestRun: true, Runs: []string{"test"}, Steps: &result.Errors{Rows: 33}}
	if got := usedText(in, test); got != "; used 33 of 40 recorded steps, 15 of 20 requests" {
		t.Errorf("got %q", got)
	}
	in.Validation.Options.StepsOnly = true
	if got := usedText(in, c); got != "; used 2,400 of 3,500 recorded steps" {
		t.Errorf("got %q", got)
	}
	in.Fit = nil
	if got := usedText(in, c); got != "" {
		t.Errorf("got %q", got)
	}
	in.Fit = &result.Fit{Requests: &result.RequestLevel{}, Runs: []result.FitRun{{ID: "a", Config: "k", Steps: result.StepQuality{Recorded: 9}}}}
	if got := usedText(in, c); got != "" {
		t.Errorf("a fit of requests: got %q", got)
	}
}

// TestRegionsAndErrorsByHand: how far recordings reach, and which error is to be expected.
func TestRegionsAndErrorsByHand(t *testing.T) {
	rate := 12.34
	for want, c := range map[string]*result.Covered{
		"": nil, "up to 1 running request": {Running: 1}, "up to 8 running requests (12/s), prompts of 4,096 tokens": {Running: 8, RequestsPerS: &rate, PromptTokens: 4096},
		"up to 8 running requests, outputs of 5 tokens":                  {Running: 8, OutputTokens: 5},
		"up to 8 running requests, prompts of 1 and outputs of 5 tokens": {Running: 8, PromptTokens: 1, OutputTokens: 5},
	} {
		if got := coveredText(c); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	f := &result.Fit{Configs: []result.FitConfig{{Key: "k", Label: "label", Covered: &result.Covered{Running: 3}}}}
	if regionText(nil, &result.ConfigErrors{}) != "" || regionText(f, &result.ConfigErrors{Config: "other"}) != "never fitted" || regionText(f, &result.ConfigErrors{Config: "k"}) != "up to 3 running requests" {
		t.Error("got another region")
	}
	v := &result.Validation{}
	add := func(id, kind string, ttft, e2e float64) {
		v.Runs = append(v.Runs, result.ValidationRun{ID: id, Split: result.Split{Kind: kind}, Metrics: &result.Metrics{TTFT: &result.Metric{MedianRelErrPaired: &ttft}, E2E: &result.Metric{MedianRelErrPaired: &e2e}, ITL: &result.Metric{}}})
	}
	add("a", result.SplitHoldout, 0.1, 0.02)
	add("a", result.SplitCrossFitted, 0.05, 0.03)
	add("a", result.SplitInSample, 0.9, 0.9)
	add("x", result.SplitHoldout, 0.9, 0.9)
	in := Input{Validation: v, Fit: f}
	mape := 0.08
	c := &result.ConfigErrors{Config: "k", Runs: []string{"a"}, Steps: &result.Errors{MAPE: &mape}}
	if got, want := expectedError(in, c), "steps "+Pct(0.08)+", TTFT "+Pct(0.1)+", E2E "+Pct(0.03); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	f.Beta.Target = coeff.Duration
	if got := expectedError(in, c); !strings.HasPrefix(got, "step.duration_us (the scheduler's time, not the step's) ") {
		t.Errorf("got %q", got)
	}
	if got := expectedError(in, &result.ConfigErrors{Runs: []string{"none"}}); got != "" {
		t.Errorf("got %q", got)
	}
	// Without a validation: the hold-out of the fit, each row as heavy as the others.
	low, high := 0.1, 0.4
	f.Beta.Target = coeff.Cadence
	f.Beta.Cells = []result.Cell{{Config: "k", Errors: result.Errors{Rows: 3, MAPE: &low}}, {Config: "k", Errors: result.Errors{Rows: 1, MAPE: &high}}, {Config: "k", Bucket: "b", Errors: result.Errors{Rows: 100, MAPE: &high}}, {Config: "z", Errors: result.Errors{Rows: 100, MAPE: &high}}}
	if got := Lines(Input{Fit: f}); len(got) != 1 || got[0] != (UseLine{Scope: "label", Class: "none", Uses: "not validated yet", Region: "up to 3 running requests", Error: "steps " + Pct(0.175) + " (held-out steps)"}) {
		t.Errorf("got %+v", got)
	}
	if Lines(Input{}) != nil {
		t.Error("nothing: got lines")
	}
}

// TestCachedTokensByHand: how many prompt tokens came from the cache, and how that is known.
func TestCachedTokensByHand(t *testing.T) {
	of := func(change func(c *result.CachedTokens)) *result.Extract {
		c := result.CachedTokens{Requests: 10, PromptTokens: 200, HitTokens: 50, Exact: 7}
		change(&c)
		return &result.Extract{Runs: []result.ExtractRun{{CachedTokens: []result.CachedTokens{c}}}}
	}
	for want, e := range map[string]*result.Extract{
		"": {},
		"what the prefix cache gave 10 prompts is not known: keep /metrics before and after each load, or log the iterations": of(func(c *result.CachedTokens) { c.Unpaired = 10 }),
		"25 % of prompt tokens came from the prefix cache (the server's usage reports it for 9 of 10 requests)":               of(func(c *result.CachedTokens) { c.Usage, c.Chains = 9, 1 }),
		"25 % of prompt tokens came from the prefix cache (from the log's iterations; exact for 7 of 10 requests)":            of(func(c *result.CachedTokens) { c.Chains = 1; c.CounterTokens = trace.Some[int64](1) }),
		"at least 25 % of prompt tokens came from the prefix cache (from the server's counters, for all prompts together; exact for 7 of 10 requests)": of(func(c *result.CachedTokens) {
			c.CounterTokens = trace.Some[int64](1)
			c.Unpaired = 3
		}),
		"25 % of prompt tokens came from the prefix cache (from the log's hit rates, for all prompts together; exact for 7 of 10 requests)": of(func(c *result.CachedTokens) {}),
	} {
		if got := CachedTokens(e); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	engine := of(func(c *result.CachedTokens) {})
	engine.Runs[0].Requests.Engine = 1
	if got := CachedTokens(engine); got != "" {
		t.Errorf("spans of the engine: got %q", got)
	}
}

// TestHeadlinesByHand: the verdict on the decisive purpose as counts of configurations.
func TestHeadlinesByHand(t *testing.T) {
	of := func(overall string, verdicts ...string) *result.Validation {
		v := &result.Validation{For: "x", Verdict: overall}
		for i, verdict := range verdicts {
			scope := string(rune('a' + i))
			v.Configs = append(v.Configs, result.ConfigErrors{Scope: scope})
			p := result.PurposeVerdict{}
			p.Purpose, p.Scope, p.Verdict = "x", scope, verdict
			v.Purposes = append(v.Purposes, p)
		}
		return v
	}
	const pass, fail, few, none = coeff.VerdictPass, coeff.VerdictFail, coeff.VerdictInsufficient, coeff.VerdictNotApplicable
	for want, v := range map[string]*result.Validation{
		"For their use: no configuration was compared.":                                    of(pass),
		"For their use: 1 configuration passes.":                                           of(pass, pass),
		"For their use: 2 configurations pass, but their errors taken together do not.":    of(fail, pass, pass),
		"For their use: 2 of 3 configurations pass, 1 fails.":                              of(fail, pass, pass, fail),
		"For their use: no configuration passes, 1 fails, 2 lack data.":                    of(fail, few, fail, few),
		"For their use: 1 of 3 configurations pass, 1 lacks data, 1 has nothing to judge.": of(few, pass, few, none),
	} {
		if got := headline(v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for verdict, want := range map[string][2]string{pass: {"pass", "PASS"}, fail: {"fail", "FAIL"}, none: {"insufficient", "NOT APPLICABLE"}, few: {"insufficient", "INSUFFICIENT DATA"}} {
		if h := headOf(Input{Validation: of(verdict, pass)}); h.Class != want[0] || h.Badge != want[1] {
			t.Errorf("%s: got %s, %s", verdict, h.Class, h.Badge)
		}
	}
	if h := headOf(Input{}); h.Badge != "NOT VALIDATED" || h.Class != "none" {
		t.Errorf("got %+v", h)
	}
}

// TestWordsOfAFitByHand: the recipes and forms that were compared, and what is stated of gamma, folds and the optimum.
func TestWordsOfAFitByHand(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	blocks := recipeBlocks(&result.Fit{Recipes: []result.RecipeScore{
		{Spec: "1.3", Prior: "zero", RelErr: v(0.08), HeldOut: "blocks"}, {Spec: "1.3", Prior: "library", RelErr: v(0.07), Uncalibrated: v(0.2), HeldOut: "blocks", Chosen: true},
	}})
	want := []string{
		"spec 1.3 without a prior: " + Pct(0.08) + " relative error on blocks held out", "spec 1.3 with the library's prior: " + Pct(0.07) + " relative error on blocks held out, chosen",
		"uncalibrated, the library alone: " + Pct(0.2) + " on the same steps, which it never saw",
	}
	if len(blocks) != 2 || !slices.Equal(blocks[1].List, want) || recipeBlocks(&result.Fit{}) != nil {
		t.Errorf("got %+v", blocks)
	}
	if got := formsText([]result.Candidate{{Name: "a", Score: v(0.01)}, {Name: "b"}, {Name: "c", Score: v(0.0064), Chosen: true}}); got != "a "+Pct(0.1)+", c "+Pct(0.08)+" (chosen)" {
		t.Errorf("got %q", got)
	}
	no, yes := false, true
	if gammaText(result.Model{GammaEMA: v(0.2), GammaIdentified: &no}) != "0.2, the default: not identified" || strings.Contains(gammaText(result.Model{GammaEMA: v(0.2), GammaIdentified: &yes}), "default") {
		t.Error("got another gamma")
	}
	if certificateText(nil) != Unknown || !strings.HasPrefix(certificateText(&result.Certificate{OK: true}), "holds (") || !strings.HasPrefix(certificateText(&result.Certificate{}), "BROKEN (") {
		t.Error("got another certificate")
	}
	for _, c := range []struct {
		low, high float64
		want      string
	}{{1, 30, coeff.Within}, {1, 30.1, "loosely known"}, {0, 1, "loosely known"}, {-1, 1, "loosely known"}, {-30, -1, coeff.Within}, {-30.1, -1, "loosely known"}, {-1, 0, "loosely known"}} {
		one := &result.Coefficient{}
		one.Identified = coeff.Within
		one.CI95 = &[2]float64{c.low, c.high}
		if got := identification(one); got != c.want {
			t.Errorf("%g to %g: got %s, want %s", c.low, c.high, got, c.want)
		}
	}
	one := result.Coefficient{NotLearned: true}
	one.Identified = "other"
	if cell := identifiedCell(one); cell.Text != "other" || cell.Class != "nb na" || cell.Sub != "not learned" {
		t.Errorf("got %+v", cell)
	}
	for want, s := range map[string]result.Split{
		"all, cross-fitted": {Kind: result.SplitCrossFitted}, "hold-out, last " + percentThreshold(0.2): {Kind: result.SplitHoldout, Test: 0.2}, "in-sample": {Kind: result.SplitInSample},
		"unseen run": {Kind: result.SplitTestRun}, "load levels, held out": {Kind: result.SplitLevels}, "any": {Kind: "any"},
	} {
		if got := splitWords(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for want, d := range map[string]result.Diagnosis{"s": {Scope: "s"}, "mixed steps": {Scope: "s", Regime: "mixed"}, "bias": {Scope: "s", Term: "bias"}, "bias in mixed steps": {Term: "bias", Regime: "mixed"}} {
		if got := diagnosedTerm(d); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestIdentityTablesByHand: violated identities by their effect, and how often each held.
func TestIdentityTablesByHand(t *testing.T) {
	id := func(name, status, effect string, checked, violated int) result.Identity {
		return result.Identity{Name: name, Status: status, Effect: effect, Checked: checked, Violated: violated, Harms: []string{"steps", "replay"}, Sentence: name + "!"}
	}
	i := &result.Inspect{Runs: []result.InspectRun{
		{ID: "a", Unfit: true, Reason: "why", Points: 3, Identities: []result.Identity{id("x", result.IdentityHolds, "", 10, 0), id("y", result.IdentityViolated, result.IdentityNamed, 20, 4)}},
		{ID: "b", Saturated: true, Requests: result.InspectRequests{Total: 9}, Points: 1, Identities: []result.Identity{id("x", result.IdentityViolated, result.IdentityFails, 11, 5), id("y", result.IdentityViolated, result.IdentityUndecided, 21, 6), id("z", result.IdentityNotChecked, "", 0, 0)}},
		{ID: "c"},
	}}
	texts := func(r Row) (out []string) {
		for _, c := range r.Cells {
			out = append(out, c.Text)
		}
		return out
	}
	v := violatedTable(i)
	for k, want := range [][]string{{"b", "x", "steps, replay", result.IdentityFails, "5", "11", "x!"}, {"b", "y", "steps, replay", result.IdentityUndecided, "6", "21", "y!"}, {"a", "y", "steps, replay", result.IdentityNamed, "4", "20", "y!"}} {
		if got := texts(v.Rows[k]); !slices.Equal(got, want) || (v.Rows[k].Cells[3].Class == "ko nb") != (k == 0) {
			t.Errorf("row %d: got %q, want %q", k, got, want)
		}
	}
	all := identitiesTable(i)
	for k, want := range [][]string{{"x", "", "", "1", "1", "0", "21"}, {"y", "", "", "0", "2", "0", "41"}, {"z", "", "", "0", "0", "1", "0"}} {
		if got := texts(all.Rows[k]); !slices.Equal(got, want) {
			t.Errorf("row %d: got %q, want %q", k, got, want)
		}
	}
	runs := inspectTable(i)
	for k, want := range [][2]string{{"unfit", "3 load levels"}, {"saturated", "9"}, {"fit", "0"}} {
		if got := texts(runs.Rows[k]); got[1] != want[0] || got[3] != want[1] {
			t.Errorf("row %d: got %q, want %q", k, got, want)
		}
	}
	if got := unfitBlocks(i); len(got) != 2 || !slices.Equal(got[1].List, []string{"a: why"}) || unfitBlocks(&result.Inspect{}) != nil {
		t.Errorf("got %+v", got)
	}
}

// TestDriftFiguresByHand: a run is red beyond 10 %, the runs that drift most are shown, and blocks without rows are gaps.
func TestDriftFiguresByHand(t *testing.T) {
	run := func(id string, starts []float64, factors ...float64) result.ValidationRun {
		r := result.ValidationRun{ID: id}
		for k, f := range factors {
			r.Drift = append(r.Drift, result.DriftPoint{StartS: starts[k], Factor: f})
		}
		return r
	}
	starts := []float64{0, 10, 20, 50, 60}
	isRed := func(factor float64) bool {
		return slices.ContainsFunc(driftPanel(run("a", starts, 1, factor)).Marks, func(m mark) bool { return m.stroke == bad })
	}
	for factor, want := range map[float64]bool{0.9: false, 1.1: false, 0.899: true, 1.101: true} {
		if isRed(factor) != want {
			t.Errorf("%g: got red %v", factor, !want)
		}
	}
	if got := idleSplits(starts, 1.5); !slices.Equal(got, []int{3}) {
		t.Errorf("got breaks at %v", got)
	}
	if got := idleSplits([]float64{0, 10, 25}, 1.2); !slices.Equal(got, nil) && len(got) != 0 {
		t.Errorf("got breaks at %v", got)
	}
	if got := blockLengthS(run("a", starts, 1, 1, 1, 1, 1).Drift); got != 10 {
		t.Errorf("got blocks of %g s", got)
	}
	if got := blockLengthS(run("a", starts, 1).Drift); got != 20 {
		t.Errorf("one block: got %g s", got)
	}
	v := &result.Validation{}
	for i := range 26 {
		v.Runs = append(v.Runs, run(string(rune('a'+i)), starts, 1, 1+0.01*float64(i)))
	}
	v.Runs = append(v.Runs, v.Runs[1]) // another entry of a run
	fig := driftFigure(Input{Validation: v})
	if len(fig.Panels) != 24 || !strings.HasSuffix(fig.Panels[0].Desc, " of "+string(rune('a'+25))+" over time") || fig.More == "" {
		t.Errorf("got %d panels, %q, the first of %q", len(fig.Panels), fig.More, fig.Panels[0].Desc)
	}
	v.Runs = v.Runs[:24]
	v.Runs[0].Drift = v.Runs[0].Drift[:1]
	if fig := driftFigure(Input{Validation: v}); len(fig.Panels) != 24 || fig.More != "" || !strings.HasSuffix(fig.Panels[0].Desc, " of a over time") {
		t.Errorf("got %d panels, %q", len(fig.Panels), fig.More)
	}
	h := result.Histogram{Edges: []float64{0, 2, 4}, Unit: "tokens", Counts: []int{1, 0, 3}}
	if binText(h, 0) != "0 to 2 tokens" || binText(h, 1) != "2 to 4 tokens" || binText(h, 2) != "from 4 tokens" || unitText("") != "share" || unitText("1") != "share" {
		t.Errorf("got %q, %q, %q", binText(h, 0), binText(h, 1), binText(h, 2))
	}
	for _, c := range []struct {
		counts []int
		want   int
	}{{[]int{1, 0, 3}, 3}, {[]int{1, 0, 0}, 2}, {[]int{0, 0, 0}, 1}} {
		if got := usedBins([]result.Histogram{{Counts: c.counts}}); got != c.want {
			t.Errorf("%v: got %d bins, want %d", c.counts, got, c.want)
		}
	}
}

// TestNextByHand: what to do where data are missing or contradict themselves.
func TestNextByHand(t *testing.T) {
	gates := make([]result.Gate, 3)
	for i, note := range []string{gate.InsufficientData + ": 5 of 20", gate.InsufficientData + ": " + gate.NotWithinReach, gate.InsufficientData} {
		gates[i].Name = string(rune('g' + i))
		gates[i].Note = note
		gates[i].Required = i < 2
	}
	short, out := shortOfData(gates)
	v := &result.Validation{Gates: gates, Diagnoses: []result.Diagnosis{{Cause: result.CauseStreams, Scope: "a"}, {Cause: result.CauseStreams, Scope: "b"}}}
	next := strings.Join(Next(Input{Validation: v}), "\n")
	if short < 1 || out != 1 || !strings.Contains(next, "Correct run.yaml or the recording of a, b first") {
		t.Errorf("got %d and %d, %q", short, out, next)
	}
	if !strings.Contains(next, "Record longer: 1 gate has no verdict because there are too few requests or steps") && short == 1 {
		t.Errorf("got %q", next)
	}
	levels := strings.Join(Next(Input{Validation: v, Fit: &result.Fit{Requests: &result.RequestLevel{Levels: make([]result.LevelHoldout, 1)}}}), "\n")
	if !strings.Contains(levels, "Measure more load levels: ") || !strings.Contains(levels, "too few levels") {
		t.Errorf("got %q", levels)
	}
}
