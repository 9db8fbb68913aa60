package pipeline

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/option"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/export"
	"github.com/blis-train/blis-train/pipeline/extract"
	"github.com/blis-train/blis-train/pipeline/extract/clients"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/fit"
	"github.com/blis-train/blis-train/pipeline/fit/requestfit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/validate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
	"github.com/blis-train/blis-train/trace/table"

	"github.com/urfave/cli/v2"
)

// runsNamed returns an extraction of runs with these ids.
func runsNamed(ids ...string) *result.Extract {
	ext := &result.Extract{}
	for _, id := range ids {
		ext.Runs = append(ext.Runs, result.ExtractRun{ID: id})
	}
	return ext
}

// isMisuse reports whether an error is one of the command line with this text.
func isMisuse(err error, text string) bool {
	var misuse *option.Misuse
	return errors.As(err, &misuse) && strings.Contains(err.Error(), text)
}

// TestRunsThatAreRejected: globs of --only and --exclude, those that match nothing, and those that leave nothing.
func TestRunsThatAreRejected(t *testing.T) {
	ext := runsNamed("a-1", "a-2", "b-1")
	for _, c := range []struct {
		f        Filter
		rejected string
		err      string
		warned   int
	}{
		{Filter{}, "", "", 0},
		{Filter{Only: []string{"a-*"}}, "b-1", "", 0},
		{Filter{Exclude: []string{"a-*"}}, "a-1 a-2", "", 0},
		{Filter{Only: []string{"a-*"}, Exclude: []string{"*-1"}}, "a-1 b-1", "", 0},
		{Filter{Only: []string{"a-*", "c"}, Exclude: []string{"d"}}, "b-1", "", 2},
		{Filter{Only: []string{"c"}}, "", "--only and --exclude leave no run; there are a-1, a-2, b-1", 0},
		{Filter{Exclude: []string{"["}}, "", `--only, --exclude: got "[", want a glob over run ids`, 0},
	} {
		var warned []trace.Finding
		got, err := c.f.Rejected(ext, func(f []trace.Finding) { warned = append(warned, f...) })
		if strings.Join(got, " ") != c.rejected || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || len(warned) != c.warned {
			t.Errorf("%+v: got %v, %v, %v", c.f, got, err, warned)
		}
		if c.warned > 0 && (warned[0].Code != extract.CodeNoRuns || warned[0].Message != `--only, --exclude: no run is named "c"; there are a-1, a-2, b-1`) {
			t.Errorf("got %v", warned)
		}
	}
	if got, err := (&Filter{Exclude: []string{"x"}}).Rejected(runsNamed(), nil); got != nil || err != nil {
		t.Errorf("no runs: got %v, %v", got, err)
	}
	ids := strings.Fields("1 2 3 4 5 6 7 8")
	if got := firstIDs(ids); got != "1, 2, 3, 4, 5, 6, 7, 8" {
		t.Errorf("eight: got %s", got)
	}
	if got := firstIDs(append(ids, "9")); got != "1, 2, 3, 4, 5, 6, 7, 8 and 1 more" {
		t.Errorf("nine: got %s", got)
	}
}

// TestOptionsOfAFit: values that are refused before anything is read, the budget in steps, and the kind of evidence.
func TestOptionsOfAFit(t *testing.T) {
	for want, change := range map[string]func(o *FitOptions){
		"": func(*FitOptions) {},
		"--search: got \"x\", want one of none, ": func(o *FitOptions) { o.Search = "x" },
		"--form: got \"x\", want physics or ":     func(o *FitOptions) { o.Form = "x" },
		"--from: got \"x\", want steps, requests": func(o *FitOptions) { o.From = "x" },
		"--budget: got \"x\"":                     func(o *FitOptions) { o.Budget = "x" },
		"--budget: got \"0s\"":                    func(o *FitOptions) { o.Budget = "0s" },
		"--from points: goes with fit and tables": func(o *FitOptions) { o.From = fit.FromPoints.Name },
	} {
		o := DefaultFitOptions()
		change(&o)
		if err := o.check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
	for budget, want := range map[string]int64{"": 0, "1s": 500_000, "2m": 60_000_000, "1ns": 1} {
		o := FitOptions{Budget: budget}
		if got, err := o.budgetSteps(); got != want || err != nil {
			t.Errorf("%s: got %d, %v, want %d", budget, got, err, want)
		}
	}
	steps, its, requests := runsNamed("a"), runsNamed("a"), runsNamed("a")
	steps.Runs[0].Tables = map[string]int64{table.Steps: 1}
	its.Runs[0].Tables = map[string]int64{table.Iterations: 1}
	requests.Runs[0].Tables = map[string]int64{table.ObservedRequests: 1}
	for _, c := range []struct {
		ext        *result.Extract
		from, want string
	}{
		{runsNamed(), "", fit.FromSteps.Name}, {steps, "", fit.FromSteps.Name}, {its, "", fit.FromSteps.Name}, {requests, "", fit.FromRequests.Name},
		{steps, fit.FromRequests.Name, fit.FromRequests.Name}, {requests, fit.FromSteps.Name, fit.FromSteps.Name},
	} {
		o := DefaultFitOptions()
		o.From = c.from
		if err := o.ResolveFor(nil); err != nil {
			t.Fatal(err)
		}
		if got, err := o.KindFor(c.ext); got.Name != c.want || err != nil {
			t.Errorf("%v from %q: got %s, %v, want %s", c.ext.Runs, c.from, got.Name, err, c.want)
		}
	}
	o := DefaultFitOptions()
	o.From, o.BetaTarget = fit.FromRequests.Name, coeff.Duration
	if _, err := o.KindFor(requests); !isMisuse(err, "go with a fit from steps only") {
		t.Errorf("durations of requests: got %v", err)
	}
	if _, err := FitPoints(context.Background(), nil, nil, o); !isMisuse(err, "fit: --from points nee") {
		t.Errorf("no folder: got %v", err)
	}
}

// TestFormatsThatAreUnknown: formats by their names and beginnings, and options that go with none.
func TestFormatsThatAreUnknown(t *testing.T) {
	if _, err := Export(context.Background(), "none", ExportOptions{}); !isMisuse(err, "export: missing -o FILE") {
		t.Errorf("no output: got %v", err)
	}
	for format, want := range map[string]string{
		"llmd": "did you mean llm-d? export --help has the reader of each",
		"Nat":  "did you mean native? export --help",
		"x":    "queue fit writes queue.json, and predictor fit predictor.json",
	} {
		o := ExportOptions{}
		o.Format = export.Format(format)
		o.Writers = []export.Writer{{Format: "llm-d"}}
		_, err := o.Resolve()
		var misuse *option.Misuse
		if !errors.As(err, &misuse) || !strings.HasPrefix(misuse.Hint, want) || !strings.HasPrefix(misuse.Msg, fmt.Sprintf("--format: got %q, of a fit want native or llm-d", format)) {
			t.Errorf("%s: got %v (%+v)", format, err, misuse)
		}
	}
}

// TestVerdictsThatForbid: verdicts of a purpose and of one configuration, and their reasons, of which three are told.
func TestVerdictsThatForbid(t *testing.T) {
	o := &ExportOptions{}
	for n, want := range map[int]string{0: "verdict for replay of all: fail", 1: "verdict for replay of all: fail (r0)", 3: "verdict for replay of all: fail (r0; r1; r2)",
		4: "verdict for replay of all: fail (r0; r1; r2; and 1 more)", 6: "verdict for replay of all: fail (r0; r1; r2; and 3 more)"} {
		var why []string
		for i := range n {
			why = append(why, fmt.Sprintf("r%d", i))
		}
		err := o.Judge("replay", "all", coeff.VerdictFail, why)
		var verdict *VerdictError
		if !errors.As(err, &verdict) || verdict.Msg != want {
			t.Errorf("%d reasons: got %v, want %s", n, err, want)
		}
	}
	for verdict, flag := range map[string]string{coeff.VerdictFail: "--ignore-verdict", coeff.VerdictInsufficient: "--allow-insufficient"} {
		want := "the report has the reasons; " + flag + " exports all the same"
		if got := trace.HintOf(o.Judge("replay", "all", verdict, nil)); got != want {
			t.Errorf("%s: got the hint %q, want %q", verdict, got, want)
		}
	}
	if err := o.Judge("replay", "all", coeff.VerdictNotApplicable, nil); err != nil {
		t.Errorf("not asked: got %v", err)
	}
	o.For = coeff.PurposeReplay
	if err := o.Judge("replay", "all", coeff.VerdictNotApplicable, nil); err == nil {
		t.Error("asked for and not applicable is taken")
	}
	if err := o.Judge("replay", "all", coeff.VerdictPass, nil); err != nil {
		t.Errorf("pass: got %v", err)
	}
	o.For = "x"
	if _, err := o.Judged(nil); !isMisuse(err, `--for: got "x", want `) {
		t.Errorf("got %v", err)
	}
	o.For = ""
	if v, err := o.Judged(nil); v != nil || err != nil {
		t.Errorf("no validation: got %v, %v", v, err)
	}
	o.For = coeff.PurposeSteps
	var verdict *VerdictError
	if _, err := o.Judged(nil); !errors.As(err, &verdict) || verdict.Msg != "verdict for steps: not validated" {
		t.Errorf("asked for without a validation: got %v", err)
	}
	o.Accept.Any = true
	if v, err := o.Judged(nil); v != nil || err != nil {
		t.Errorf("whatever the verdict: got %v, %v", v, err)
	}
	val := &result.Validation{For: coeff.PurposeReplay, Configs: []result.ConfigErrors{{Scope: "label", Config: "key"}}}
	for _, v := range []string{"replay all fail", "replay label pass", "steps all pass", "steps label fail"} {
		part := strings.Fields(v)
		val.Purposes = append(val.Purposes, result.PurposeVerdict{PurposeVerdict: coeff.PurposeVerdict{Purpose: part[0], Scope: part[1], Verdict: part[2]}})
	}
	for _, c := range []struct{ purpose, config, want string }{
		{"", "", "replay all fail"}, {"", "label", "replay label pass"}, {"", "key", "replay label pass"}, {"steps", "", "steps all pass"}, {"steps", "key", "steps label fail"},
	} {
		o := &ExportOptions{For: c.purpose}
		o.Config = c.config
		v, err := o.Judged(val)
		if got := v.Purpose + " " + v.Scope + " " + v.Verdict; got != c.want || (err == nil) != (v.Verdict == coeff.VerdictPass) {
			t.Errorf("for %q of %q: got %s, %v, want %s", c.purpose, c.config, got, err, c.want)
		}
	}
	out := &export.Output{Warnings: []trace.Finding{{Code: "other", Message: "a"}}}
	if err := o.TooFarOff(out); err != nil {
		t.Errorf("near: got %v", err)
	}
	out.Warnings = slices.Insert(out.Warnings, 0, trace.Finding{Code: export.PoorProjection, Message: "far"})
	err := o.TooFarOff(out)
	if want := "far; aic-fpm, keda-token-aware and llmd-epp represent any step; --force " + string(export.PoorProjection) + " writes it all the same"; err == nil || err.Error() != want {
		t.Errorf("far: got %v", err)
	}
	o.Force = string(export.PoorProjection)
	if err := o.TooFarOff(out); err != nil {
		t.Errorf("overruled: got %v", err)
	}
}

// TestFiguresOfAStep: the average of preemptions up to a step, and the time to the next one where both are recorded.
func TestFiguresOfAStep(t *testing.T) {
	run := &trace.Run{Steps: []trace.Step{{ID: 3, TsStartNs: 1_000_000, NumPreempted: 1, RunningDepth: 4}, {ID: 4, TsStartNs: 3_500_000, RunningDepth: 4}, {ID: 6, TsStartNs: 9_000_000, NumPreempted: 2, RunningDepth: 0},
		{ID: 7, TsStartNs: 9_250_000}}}
	for id, want := range map[int64]float64{2: 0, 3: 0.5 * 0.25, 4: 0.25 * 0.25, 5: 0.0625, 6: 1 + 0.03125, 9: 0.515625} {
		if got := emaAt(run, id, 0.5); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: got %g, want %g", id, got, want)
		}
	}
	for id, want := range map[int64]float64{3: 2500, 4: 0, 5: 0, 6: 250, 7: 0, 2: 0} {
		got := cadenceUs(run, id)
		if (got == nil) != (want == 0) || got != nil && *got != want {
			t.Errorf("step %d: got %v, want %g", id, got, want)
		}
	}
}

// TestPreemptionsOfAnExplainedStep: the average of preemptions at an explained step is that of the summaries up to it, with the
// memory that the coefficients were fitted with.
func TestPreemptionsOfAnExplainedStep(t *testing.T) {
	dep := testkit.Llama8B()
	run := &trace.Run{ID: "r", Steps: []trace.Step{{ID: 3, NumPreempted: 1, RunningDepth: 4, ScheduledTokens: 4}, {ID: 4, RunningDepth: 4, ScheduledTokens: 4}},
		Aggregate: &trace.Aggregate{First: 3, Totals: []trace.StepTotals{{Known: true, Decode: 4, DecodeReqs: 4, Sampled: 4, DecodeContext: 400}, {Known: true, Decode: 4, DecodeReqs: 4, Sampled: 4, DecodeContext: 404}}}}
	steps, err := rows.Rebuild(run, dep, features.V11)
	if err != nil {
		t.Fatal(err)
	}
	space, err := features.New(features.V11, dep)
	if err != nil {
		t.Fatal(err)
	}
	set := testkit.PlantedOn(dep)
	set.Gamma = 0.5
	for id, want := range map[int64][2]float64{3: {0.3 * 0.25, 0.5 * 0.25}, 4: {0.7 * 0.3 * 0.25, 0.5 * 0.5 * 0.25}} {
		for k, set := range []*coeff.Set{nil, set} {
			got, err := describeStep(steps, steps.At(id), space, set)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(got.Explanation.Features, func(f features.Explained) bool { return f.Name == "preemption_overhead" })
			if i < 0 || math.Abs(got.Explanation.Features[i].Value-want[k]) > 1e-12 {
				t.Errorf("step %d: got %+v, want %g", id, got.Explanation.Features, want[k])
			}
		}
	}
}

// TestTermsOfAStep: the time of a batch is the sum of its terms, each its coefficient times its feature.
func TestTermsOfAStep(t *testing.T) {
	dep := testkit.Llama8B()
	set := &coeff.Set{SpecVersion: features.V11}
	space, err := features.New(features.V11, dep)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range features.Names(space.BetaFeatures()) {
		set.Beta = append(set.Beta, coeff.Coefficient{Name: name, Value: float64(i + 1)})
	}
	p, err := NewStepTimes(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	us, err := p.StepUs([]trace.Chunk{{Computed: 100, Prompt: 100, New: 1}, {Prompt: 50, New: 50}})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, feature := range p.Features() {
		sum += float64(i+1) * feature
	}
	if !(us > 0) || math.Abs(us-sum) > 1e-9*us || len(p.Features()) != len(set.Beta) {
		t.Errorf("got %g us, terms of %g us", us, sum)
	}
}

// TestJoinedInspections: inspections of several folders: all of their runs, and a pass of all.
func TestJoinedInspections(t *testing.T) {
	of := func(id string, pass bool) *result.Inspect {
		d := &result.Inspect{Runs: []result.InspectRun{{ID: id}}, Warnings: []trace.Finding{{Message: id}}, Pass: pass}
		d.Inputs = []result.Input{{Name: id}}
		if !pass {
			d.Unfit = []string{id}
		}
		return d
	}
	if got := joinInspect(nil, of("a", true)); len(got.Runs) != 1 || !got.Pass {
		t.Errorf("got %+v", got)
	}
	for _, c := range [][3]bool{{true, true, true}, {true, false, false}, {false, true, false}, {false, false, false}} {
		got := joinInspect(of("a", c[0]), of("b", c[1]))
		if got.Pass != c[2] || len(got.Inputs) != 2 || got.Inputs[1].Name != "b" || len(got.Runs) != 2 || got.Runs[1].ID != "b" || len(got.Warnings) != 2 || got.Warnings[1].Message != "b" {
			t.Errorf("%v: got %+v", c, got)
		}
		if want := strings.Fields(map[bool]string{false: "a "}[c[0]] + map[bool]string{false: "b"}[c[1]]); !slices.Equal(got.Unfit, want) {
			t.Errorf("%v: got unfit %v, want %v", c, got.Unfit, want)
		}
	}
	inspect := func(r *result.ExtractRun) (result.InspectRun, error) {
		if r.ID == "broken" {
			return result.InspectRun{}, errors.New("broken")
		}
		return result.InspectRun{ID: r.ID, Unfit: r.ID == "b"}, nil
	}
	ext := runsNamed("a", "b", "c")
	ext.Inputs = []result.Input{{Name: "x"}}
	got, err := inspectTables(context.Background(), ext, result.Header{}, nil, inspect)
	if err != nil || got.Pass || !slices.Equal(got.Unfit, []string{"b"}) || len(got.Runs) != 3 || got.Inputs[0].Name != "x" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = inspectTables(context.Background(), runsNamed("a"), result.Header{}, nil, inspect); err != nil || !got.Pass {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err = inspectTables(context.Background(), runsNamed("a", "broken"), result.Header{}, nil, inspect); err == nil || err.Error() != "broken" {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = inspectTables(ended, ext, result.Header{}, nil, inspect); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	o := DefaultInspectOptions()
	o.Points = -1
	if _, err := Inspect(context.Background(), nil, o); !isMisuse(err, "inspect --points: got -1") {
		t.Errorf("got %v", err)
	}
}

// TestWhatDecidesNoGate: replays of runs that decide nothing, the levels of the first run, the bound of rows, and replays without
// an overhead.
func TestWhatDecidesNoGate(t *testing.T) {
	r := &result.ExtractRun{ID: "b", Tables: map[string]int64{table.Points: 3}, Deployment: testkit.Llama8B()}
	f := &result.Fit{Requests: &result.RequestLevel{}}
	if got := whyNotDecisive(r, nil) + whyNotDecisive(r, &result.Fit{}) + whyNotDecisive(r, f); got != "" {
		t.Errorf("got %q", got)
	}
	f.Runs = []result.FitRun{{ID: "a", Reason: requestfit.LevelsNotFitted}, {ID: "b", Reason: "x"}}
	if got := whyNotDecisive(r, f); got != "" {
		t.Errorf("got %q", got)
	}
	f.Runs[1].Reason = requestfit.LevelsNotFitted
	if got := whyNotDecisive(r, f); got != requestfit.LevelsNotFitted {
		t.Errorf("got %q", got)
	}
	f.Requests.Levels = []result.LevelHoldout{{Run: "a"}, {Run: "a"}}
	if got := whyNotDecisive(r, f); got != "its load levels are validated with those of a" {
		t.Errorf("got %q", got)
	}
	if len(levelsOf("a", f)) != 2 || levelsOf("b", f) != nil || levelsOf("a", nil) != nil || levelsOf("a", &result.Fit{}) != nil {
		t.Error("levels of another run")
	}
	if got := whyCapped(r, f); got != "" {
		t.Errorf("got %q", got)
	}
	r.Warnings = []trace.Finding{{Code: "other"}, {Code: clients.CodeCapped}}
	if got := whyCapped(r, f); got != string(clients.CodeCapped)+": the client waited for answers, so arrivals followed the server" {
		t.Errorf("got %q", got)
	}
	if got := whyCapped(r, nil) + whyCapped(r, &result.Fit{}); got != "" {
		t.Errorf("got %q", got)
	}
	for _, tables := range []map[string]int64{{table.Steps: 7, table.Iterations: 2, table.Requests: 3}, {table.Steps: 2, table.Iterations: 7}, {table.Requests: 7, table.Steps: 1}} {
		if got := mostRows(&result.ExtractRun{Tables: tables}); got != 7 {
			t.Errorf("%v: got %d", tables, got)
		}
	}
	tables := Tables{Extract: &result.Extract{Runs: []result.ExtractRun{*r}}, Dir: "all", At: map[string]string{"a": "other"}}
	if got := tables.runDir("a"); got != table.RunDir("other", "a") {
		t.Errorf("got %s", got)
	}
	if got := tables.runDir("b"); got != table.RunDir("all", "b") {
		t.Errorf("got %s", got)
	}
	f.Runs[1].Used = true
	f.Requests.CachedShare = &result.CachedShare{High: 0.5}
	src := tables.ValidateSources(f)[0]
	if src.ID != "b" || !src.Training || src.Cached != f.Requests.CachedShare || src.Informs != "its load levels are validated with those of a" || src.Capped == "" || len(src.Extracted) != 2 {
		t.Errorf("got %+v", src)
	}
	f.Runs[1].Used = false
	if src := tables.ValidateSources(f)[0]; src.Training || src.Cached != nil {
		t.Errorf("got %+v", src)
	}

	replays := func(f *result.Fit, ext *result.Extract) (o ValidateOptions, code trace.Code) {
		found, err := o.ResolveFor(f, ext)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			code = found[0].Code
		}
		return o, code
	}
	fitted := &result.Fit{Alpha: []result.Model{{Target: coeff.Overhead, Replay: true}}}
	fitted.Options.Split = 0.7
	if o, code := replays(fitted, runsNamed("a")); code != "" || o.StepsOnly || o.IdleDelays || o.Split != 0.7 {
		t.Errorf("an overhead: got %+v, %s", o, code)
	}
	if o, code := replays(nil, runsNamed("a")); code != "" || o.StepsOnly {
		t.Errorf("no fit: got %+v, %s", o, code)
	}
	fitted.Alpha[0].Replay = false
	if o, code := replays(fitted, runsNamed("a")); code != validate.NoReplay || !o.StepsOnly || o.IdleDelays {
		t.Errorf("no overhead: got %+v, %s", o, code)
	}
	journeys := runsNamed("a", "b")
	journeys.Runs[0].Requests.Engine, journeys.Runs[1].Requests.Engine = 30, 400
	fitted.Runs = []result.FitRun{{ID: "a"}}
	if o, _ := replays(fitted, journeys); o.For != coeff.PurposeReplay || !strings.Contains(o.Unreplayed, "to the 30 requests") || !o.StepsOnly {
		t.Errorf("no overhead of journeys: got %+v", o)
	}
	asked := ValidateOptions{Options: validate.Options{For: coeff.PurposeSteps}}
	if _, err := asked.ResolveFor(fitted, journeys); err != nil || asked.For != coeff.PurposeSteps {
		t.Errorf("asked for steps: got %+v, %v", asked, err)
	}
	fitted.Options.Recipe = fit.Frozen
	if o, _ := replays(fitted, journeys); o.For != "" || o.Unreplayed != "" || !o.StepsOnly {
		t.Errorf("a recipe without an overhead: got %+v", o)
	}
	logs := runsNamed("a")
	logs.Runs[0].Tables = map[string]int64{table.Iterations: 1}
	if o, code := replays(fitted, logs); code != validate.NoReplay || !o.StepsOnly {
		t.Errorf("a log: got %+v, %s", o, code)
	}
	logs.Runs[0].Tables[table.ObservedRequests] = 1
	if o, code := replays(fitted, logs); code != validate.ReplayAssumes || o.StepsOnly || !o.IdleDelays {
		t.Errorf("a log and clients: got %+v, %s", o, code)
	}
}

// TestPathOfAReader: errors name the path that was typed where they name its last element.
func TestPathOfAReader(t *testing.T) {
	path := filepath.Join("far", "away.csv")
	for file, want := range map[string]string{"away.csv": path, "near.csv": "near.csv"} {
		err := withPath(&trace.SyntaxError{File: file, Msg: "m"}, path)
		var at *trace.SyntaxError
		if !errors.As(err, &at) || at.File != want {
			t.Errorf("%s: got %v", file, err)
		}
	}
	if err := withPath(errors.New("x"), path); err == nil || err.Error() != "x" {
		t.Errorf("got %v", err)
	}
	var told []trace.Finding
	w := warnings{tell: func(f []trace.Finding) { told = append(told, f...) }}
	w.add([]trace.Finding{{Code: "a"}})
	if (&warnings{}).add(nil); len(told) != 1 || len(w.found) != 1 {
		t.Errorf("got %v, %v", told, w.found)
	}
	if got := joinFindings(w.found, []trace.Finding{{Code: "b"}}); len(got) != 2 || got[0].Code != "a" || got[1].Code != "b" {
		t.Errorf("got %v", got)
	}
}

// TestInputsOfARefit: inputs by content, each as often as it is there, and their order.
func TestInputsOfARefit(t *testing.T) {
	recorded := func(hashes string) (out []coeff.Input) {
		for i, h := range hashes {
			out = append(out, coeff.Input{Name: fmt.Sprintf("r%d", i), Bytes: int64(10 + i), SHA256: string(h)})
		}
		return out
	}
	found := func(hashes string) (out []result.Input) {
		for i, h := range hashes {
			out = append(out, result.Input{Name: fmt.Sprintf("f%d", i), SHA256: string(h)})
		}
		return out
	}
	for _, c := range []struct {
		want, got string
		text      []string
	}{
		{"ab", "ab", []string{}},
		{"aab", "aab", []string{}},
		{"ab", "ac", []string{"input r1 (11 bytes, sha256 b) is missing or changed", "input f1 (sha256 c) is not recorded"}},
		{"aa", "a", []string{"input r1 (11 bytes, sha256 a) is missing or changed"}},
		{"a", "aa", []string{"input f0 (sha256 a) is not recorded"}},
		{"abc", "acb", []string{"input 2: got f1, recorded r1: the order of the runs differs"}},
		{"", "", []string{}},
	} {
		if got := inputDifferences(recorded(c.want), found(c.got)); !slices.Equal(got, c.text) {
			t.Errorf("%s of %s: got %q, want %q", c.got, c.want, got, c.text)
		}
	}
	o, err := recordedOptions("fit --bootstraps 70 --lag 2 --prior zero --seed 5")
	if err != nil || o.Bootstraps != 70 || *o.Lag != 2 || o.Seed != 5 || o.Spec != features.V11 {
		t.Errorf("got %+v, %v", o, err)
	}
}

// TestPredictsForADeployment: an export's source makes its set once, and gives step times, the overhead of a prompt on an idle
// server, and errors of the set.
func TestPredictsForADeployment(t *testing.T) {
	dep := testkit.Llama8B()
	set := testkit.PlantedOn(dep)
	made := 0
	var src export.Source
	Predicts(&src, func() (*coeff.Set, error) { made++; return set, nil })
	step, err := src.Step(*dep)
	if err != nil {
		t.Fatal(err)
	}
	own, err := NewStepTimes(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	batch := []trace.Chunk{{Computed: 100, Prompt: 100, New: 1}}
	want, err := own.StepUs(batch)
	if got, errStep := step.StepUs(batch); err != nil || errStep != nil || got != want || !(got > 1) {
		t.Errorf("got %g us, %v, want %g, %v", got, errStep, want, err)
	}
	// The overhead is linear in the prompt.
	var us [3]float64
	for i := range us {
		if us[i], err = src.OverheadUs(*dep, int64(1000*(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	if base := set.AlphaModel(coeff.Overhead).Coefficients[3].Value; us[0] < base || math.Abs(us[2]-2*us[1]+us[0]) > 1e-6 {
		t.Errorf("got an overhead of %v us, want a line above %g", us, base)
	}
	if made != 1 {
		t.Errorf("the set is made %d times", made)
	}
	Predicts(&src, func() (*coeff.Set, error) { return nil, errors.New("no set") })
	_, errStep := src.Step(*dep)
	_, errOverhead := src.OverheadUs(*dep, 1)
	_, errLoads := src.Loads(*dep, nil, 1, 1, nil)
	for _, err := range []error{errStep, errOverhead, errLoads} {
		if err == nil || err.Error() != "no set" {
			t.Errorf("got %v", err)
		}
	}
}

// TestWhichPriorRunsHave: the library's if it has tables for every run that is fitted and their models are dense.
func TestWhichPriorRunsHave(t *testing.T) {
	known, unknown, experts := testkit.Llama8B(), testkit.Llama8B(), testkit.Llama8B()
	h, _ := deploy.Datasheet("H100")
	known.Hardware, experts.Hardware = h, h
	unknown.Hardware.Name = "Q1"
	experts.Model.NumExperts, experts.Model.TopK, experts.Model.NumMoELayers, experts.Model.MoEIntermediateSize = 8, 2, experts.Model.NumLayers, 1024
	for name, c := range map[string]struct {
		runs    []*deploy.Deployment
		without string
		want    bool
	}{
		"one": {[]*deploy.Deployment{known}, "", true}, "none": {nil, "", false}, "without a deployment": {[]*deploy.Deployment{nil}, "", false},
		"one and one without": {[]*deploy.Deployment{nil, known}, "", true}, "another": {[]*deploy.Deployment{known, unknown}, "", false},
		"another that is left out": {[]*deploy.Deployment{known, unknown}, "b", true}, "experts": {[]*deploy.Deployment{known, experts}, "", false}, "all left out": {[]*deploy.Deployment{known}, "a", false},
	} {
		ext := runsNamed(strings.Split("a b", " ")[:len(c.runs)]...)
		for i := range ext.Runs {
			ext.Runs[i].Deployment = c.runs[i]
		}
		if got := libraryKnows(1, ext, []string{c.without}); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
		if got := layeredVersion(ext, nil); got != "" {
			t.Errorf("%s: got version %s", name, got)
		}
		o := DefaultFitOptions()
		o.Without = []string{c.without}
		if err := o.ResolveFor(ext); err != nil || (o.Prior == fit.PriorLibrary) != c.want {
			t.Errorf("%s: got prior %s, %v", name, o.Prior, err)
		}
		o = DefaultFitOptions()
		o.SaveGram = "x"
		if err := o.ResolveFor(ext); err != nil || o.Prior != fit.PriorZero {
			t.Errorf("%s, sums saved: got prior %s, %v", name, o.Prior, err)
		}
	}
}

// TestFlagsOfTheStages: each flag sets its option, and flags of several stages are one flag of a run.
func TestFlagsOfTheStages(t *testing.T) {
	parse := func(flags []cli.Flag, args ...string) (names []string) {
		t.Helper()
		set := flag.NewFlagSet("test", flag.ContinueOnError)
		for _, f := range flags {
			names = append(names, f.Names()[0])
			if err := f.Apply(set); err != nil {
				t.Fatal(err)
			}
		}
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		return names
	}
	var e ExtractOptions
	if names := parse(e.Flags(), "--only", "a", "--only", "b", "--exclude", "c"); len(names) < 3 || !slices.Equal(e.Only, []string{"a", "b"}) || !slices.Equal(e.Exclude, []string{"c"}) {
		t.Errorf("extract: got %v and %v", names, e.Filter)
	}
	var f FitOptions
	names := parse(f.Flags(), "--save-gram", "g.json", "--dump-rows", "--only", "a", "--from", "points", "--search", "spsa", "--holdout", "x", "--form", "trained-physics", "--budget", "60s",
		"--shared-prefix-tokens", "32")
	if f.SaveGram != "g.json" || !f.DumpRows || !slices.Equal(f.Only, []string{"a"}) || f.From != "points" || f.Search != "spsa" || !slices.Equal(f.Holdout, []string{"x"}) ||
		f.Form != "trained-physics" || f.Budget != "60s" || f.Shared == nil || *f.Shared != 32 || f.Force {
		t.Errorf("fit: got %+v", f)
	}
	if parse(f.Flags(), "--force"); !f.Force {
		t.Error("fit: --force was not taken")
	}
	learning := parse(f.LearningFlags())
	for _, name := range []string{"save-gram", "dump-rows", "force", "only", "exclude"} {
		if !slices.Contains(names, name) || slices.Contains(learning, name) {
			t.Errorf("fit: --%s is not among the flags that decide no coefficient", name)
		}
	}
	var v ValidateOptions
	all := parse(v.Flags(), "--fit", "f.json", "--coefficients", "c.yaml", "--figures", "dir", "--baseline", "old", "--force")
	if v.Fit != "f.json" || v.Coefficients != "c.yaml" || v.Figures != "dir" || v.Baseline != "old" || !v.Force {
		t.Errorf("validate: got %+v", v)
	}
	for _, f := range v.Flags() {
		name := f.Names()[0]
		if text := f.(cli.DocGenerationFlag).GetDefaultText(); (name == "split" || name == "max-rows") != (text == "the fit's") {
			t.Errorf("validate: --%s has the default %q", name, text)
		}
	}
	var r RunOptions
	stages := r.Flags()
	if len(stages) != 3 {
		t.Fatalf("run: got flags of %d stages", len(stages))
	}
	if got := parse(stages[0], "--only", "a"); !slices.Equal(got, parse(e.Flags())) || len(r.Extract.Only) != 1 {
		t.Errorf("run: got flags %v of extract", got)
	}
	if got := parse(stages[1], "--budget", "9s"); !slices.Equal(got, append(learning, "save-gram", "dump-rows")) || r.Fit.Budget != "9s" {
		t.Errorf("run: got flags %v of fit", got)
	}
	want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "fit" || name == "coefficients" || name == "force" })
	if got := parse(stages[2], "--baseline", "b"); !slices.Equal(got, want) || r.Validate.Baseline != "b" {
		t.Errorf("run: got flags %v of validate, want %v", got, want)
	}
	var i InspectOptions
	if got := parse(i.Flags(), "--identify", "--points", "4", "--only", "a"); !i.Identify || i.Points != 4 || len(i.Extract.Only) != 1 || !slices.Equal(got[:2], []string{"identify", "points"}) {
		t.Errorf("inspect: got %v and %+v", got, i)
	}
	if got := option.Command("inspect", i.recordedFlags()); got != "inspect --identify --points 4" {
		t.Errorf("inspect: got the command %q", got)
	}
	var x ExportOptions
	parse(x.Flags(), "-f", "blis", "--option", "a=b", "--validation", "none", "--for", "waits", "--allow-insufficient", "--ignore-verdict", "--force", "z", "--config", "c", "--prompt-tokens", "5",
		"--output-tokens", "6")
	if x.Format != "blis" || !slices.Equal(x.Given, []string{"a=b"}) || x.Validation != "none" || x.For != "waits" || !x.Accept.Insufficient || !x.Accept.Any || x.Force != "z" || x.Config != "c" ||
		x.PromptTokens != 5 || x.OutputTokens != 6 {
		t.Errorf("export: got %+v", x)
	}
	if got := idsOf([]extract.RunDir{{ID: "a"}, {ID: "b"}}); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got ids %v", got)
	}
}
