package validate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// TestRunsThatCannotBeValidated: each stage returns the error, with the stage and the run where a run has it.
func TestRunsThatCannotBeValidated(t *testing.T) {
	ctx := context.Background()
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(12, 3, 41), nil)
	run.ID = "a"
	good := sourceOf(run, dep, true)
	torn := good
	torn.Load = func() (*trace.Run, *deploy.Deployment, error) { return nil, nil, errors.New("torn") }
	dir := t.TempDir()
	o := DefaultOptions()
	fit := &result.Fit{Options: result.FitOptions{Split: o.Split}}
	otherSplit := &result.Fit{Options: result.FitOptions{Split: 0.95}}
	unknownVersion := copyOf(set)
	unknownVersion.SpecVersion = "9.9"
	fewer := copyOf(set)
	fewer.Beta = fewer.Beta[:3]
	badAlpha := copyOf(set)
	badAlpha.Alpha = append([]coeff.AlphaModel{}, set.Alpha...)
	badAlpha.Alpha[0].Target = "no such target"
	badOption := o
	badOption.Split = 2
	badThreshold := o
	badThreshold.Thresholds = map[string]float64{"no_such_gate": 1}
	stage := map[string]func(set *coeff.Set, fit *result.Fit, src Source, o Options) error{
		"run": func(set *coeff.Set, fit *result.Fit, src Source, o Options) error {
			_, err := Run(ctx, set, fit, []Source{src}, o)
			return err
		},
		"steps": func(set *coeff.Set, fit *result.Fit, src Source, o Options) error {
			return StoreSteps(ctx, set, fit, src, o, dir)
		},
		"limits": func(set *coeff.Set, fit *result.Fit, src Source, o Options) error {
			_, err := OutlierLimits(ctx, set, fit, []Source{src}, o)
			return err
		},
		"replay": func(set *coeff.Set, fit *result.Fit, src Source, o Options) error {
			return StoreReplay(ctx, set, fit, src, o, nil, dir)
		},
	}
	missing := good
	missing.Steps = filepath.Join(dir, "missing")
	for name, do := range stage {
		for _, c := range []struct {
			what string
			set  *coeff.Set
			fit  *result.Fit
			src  Source
			o    Options
			want string
		}{
			{"split", set, fit, good, badOption, "split"}, {"threshold", set, fit, good, badThreshold, "no_such_gate"}, {"split of the fit", set, otherSplit, good, o, "split"},
			{"load", set, fit, torn, o, " of run a: torn"}, {"version", unknownVersion, fit, good, o, "9.9"}, {"no steps", set, fit, missing, o, "missing"}, {"target", badAlpha, fit, good, o, "no such target"},
		} {
			if c.what == "no steps" && name == "steps" {
				continue
			}
			if err := do(c.set, c.fit, c.src, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: got %v, want %q", name, c.what, err, c.want)
			}
		}
	}
	if _, err := Run(ctx, set, fit, nil, o); err == nil || !strings.Contains(err.Error(), "got no run, want at least one") {
		t.Errorf("no run: got %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Run(cancelled, set, fit, []Source{good}, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	// What StoreSteps wrote is damaged, or the run is gone before it is replayed.
	if err := StoreSteps(ctx, set, fit, good, o, dir); err != nil {
		t.Fatal(err)
	}
	stored := torn
	stored.Steps = dir
	if err := stage["run"](set, fit, stored, o); err == nil || !strings.Contains(err.Error(), "validate replay of run a: torn") {
		t.Errorf("gone before the replay: got %v", err)
	}
	noReplay := stored
	noReplay.Replay = filepath.Join(dir, "none")
	if err := stage["run"](set, fit, noReplay, o); err == nil || !strings.Contains(err.Error(), "validate replay of run a: ") {
		t.Errorf("no stored replay: got %v", err)
	}
	stepsOnly := o
	stepsOnly.StepsOnly = true
	if v, err := Run(ctx, set, fit, []Source{stored}, stepsOnly); err != nil || len(v.Runs) != 1 || v.Runs[0].ID != "a" {
		t.Errorf("steps alone: got %+v, %v", v, err)
	}
	table := filepath.Join(dir, storedTables)
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(table, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stage["limits"](set, fit, stored, o); err == nil || !strings.Contains(err.Error(), "validate limits of run a: ") {
		t.Errorf("half a table: got %v", err)
	}
	if err := StoreSteps(ctx, set, fit, good, o, filepath.Join(table, "in a file")); err == nil {
		t.Error("steps are stored in a file")
	}
	if err := StoreReplay(ctx, set, fit, good, o, nil, filepath.Join(table, "in a file")); err == nil {
		t.Error("a replay is stored in a file")
	}
	j := &job{o: &o, sources: []Source{torn}, runs: []*judgedRun{{id: "a"}}}
	if lag, share, ok := j.lagOfBatches(j.runs[0]); ok || lag != 0 || share != 0 {
		t.Errorf("a run that is gone: got a lag of %d, %g", lag, share)
	}
	if steps, forced, err := j.rebuild(j.runs[0]); err == nil || steps != nil || forced != nil {
		t.Errorf("got %v, %v, %v", steps, forced, err)
	}
	p, err := features.AlphaPredictor(set, "no such target")
	if err == nil {
		t.Errorf("got %v", p)
	}
}

// TestOtherBatchesAreBlamed: on the scheduler's settings, or on the lag where the other way of scheduling forms the recorded ones.
func TestOtherBatchesAreBlamed(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Tracing.JourneySampleRate = trace.Some(1.0)
	dep.Engine.AsyncScheduling = trace.Some(true)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(60, 40, 43), nil)
	run.ID = "a"
	o := DefaultOptions()
	j := &job{o: &o, set: set, sources: []Source{sourceOf(run, dep, true)}}
	judged := newJudgedRun(run, dep, set, &o, &j.sources[0])
	stopped, stop := context.WithCancel(context.Background())
	stop()
	if err := newJudgedRun(run, dep, set, &o, &j.sources[0]).addSteps(stopped, run, &o, &j.sources[0]); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v, want %v", err, context.Canceled)
	}
	if err := judged.addSteps(context.Background(), run, &o, &j.sources[0]); err != nil {
		t.Fatal(err)
	}
	j.runs = []*judgedRun{judged}
	steps, forced, err := j.rebuild(judged)
	if err != nil || forced == nil {
		t.Fatal(forced, err)
	}
	shares := map[bool]float64{}
	for _, async := range []bool{false, true} {
		same, err := identicalBatches(forced, dep, steps, async)
		if err != nil || same == nil {
			t.Fatal(same, err)
		}
		shares[async] = *same
	}
	const isAsync = false // as the recording was made
	if shares[isAsync] < reproducedShare || shares[!isAsync] >= reproducedShare {
		t.Fatalf("got shares %v with async scheduling %v: the test needs a run that only one way reproduces", shares, isAsync)
	}
	lagOf := map[bool]int{false: 0, true: 1}
	quarter := 0.25
	judged.Identical = &quarter
	judged.Lag = lagOf[!isAsync]
	judged.IsAsync = !isAsync
	var d result.Diagnosis
	j.blameScheduling(&d, judged)
	if d.Cause != result.CauseLag || *d.Evidence != shares[isAsync] || !strings.Contains(d.Sentence, "not 25 %") {
		t.Errorf("a wrong lag: got %+v", d)
	}
	if lag, share, ok := j.lagOfBatches(judged); !ok || lag != lagOf[isAsync] || share != shares[isAsync] {
		t.Errorf("got a lag of %d, %g, %v, want %d", lag, share, ok, lagOf[isAsync])
	}
	judged.Lag = lagOf[isAsync]
	judged.IsAsync = isAsync
	d = result.Diagnosis{}
	j.blameScheduling(&d, judged)
	if d.Cause != result.CauseScheduler || *d.Evidence != 0.25 || !strings.Contains(d.Sentence, "the simulator forms 25 % of the recorded batches as they were: compare max_num_seqs") {
		t.Errorf("other settings: got %+v", d)
	}
	if _, _, ok := j.lagOfBatches(judged); ok {
		t.Error("the other way forms the recorded batches too")
	}
}

// TestContentOfJourneys: a request with a journey has its prefix, one of which nothing is known the estimate, and either is counted.
func TestContentOfJourneys(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Engine.PrefixCaching = true
	dep.Client.SharedPrefixTokens = trace.Opt[int64]{}
	row := func(tokens int64) *trace.ObservedRequest {
		return &trace.ObservedRequest{PromptTokens: trace.Some(tokens)}
	}
	requests := []Request{{ID: "a", Prompt: 100, ArrivalNs: 1, Row: row(100)}, {ID: "b", Prompt: 100, ArrivalNs: 2, Row: row(100)}}
	requests[0].Row.PrefixGroup, requests[0].Row.PrefixTokens = trace.Some("g"), trace.Some[int64](40)
	got := ContentOf(&trace.Run{ID: "r"}, dep, requests, Sharing{})
	var r [2]sim.Request
	for i := range r {
		r[i].PromptTokens = 100
		got.Content(&requests[i], &r[i])
	}
	if r[0].Group != sharedGroup+1 || r[0].GroupTokens != 40 || got.IsUnstated(&requests[0]) || !got.IsUnstated(&requests[1]) || r[1].Group != 0 {
		t.Errorf("got %+v and %+v", r[0], r[1])
	}
	stated := int64(30)
	got = ContentOf(&trace.Run{ID: "r"}, dep, requests, Sharing{PrefixTokens: &stated})
	got.Content(&requests[1], &r[1])
	if r[1].Group != sharedGroup || r[1].GroupTokens != 30 || got.IsUnstated(&requests[1]) {
		t.Errorf("stated: got %+v", r[1])
	}
	requests[1].Row.CachedTokens = trace.Some[int64](150)
	r[1] = sim.Request{PromptTokens: 100}
	got = ContentOf(&trace.Run{ID: "r"}, dep, requests, Sharing{})
	if got.Content(&requests[1], &r[1]); r[1].CachedTokens != trace.Some[int64](100) || got.IsUnstated(&requests[1]) {
		t.Errorf("counted: got %+v", r[1])
	}
	// Of journeys without a sign of what was cached one finding remains: not the one of requests that were left out.
	traced := &trace.Run{ID: "r", Requests: []trace.Request{{CoreID: trace.Some("a"), ArrivedNs: trace.Some[int64](1), PromptTokens: trace.Some[int64](100), OutputTokens: trace.Some[int64](5)}, {CoreID: trace.Some("c"), ArrivedNs: trace.Some[int64](2)}}}
	if got = ContentOf(traced, dep, requests[:1], Sharing{}); len(got.Findings) != 1 || got.Findings[0].Code != ReplayAssumes ||
		got.Findings[0].Message != "run r: prefix caching is on and no snapshot, KV event or client file states what was shared" {
		t.Errorf("journeys: got %v", got.Findings)
	}
	dep.Engine.PrefixCaching = false
	if got = ContentOf(&trace.Run{}, dep, requests, Sharing{}); got.Content != nil || got.IsUnstated(&requests[1]) {
		t.Errorf("no caching: got %+v", got)
	}
	of := Request{ID: "x", ArrivalNs: 5_000_700, Prompt: 9, Output: 4, MaxTokens: 7, Excluded: "aborted", EndNs: trace.Some[int64](9_000_000)}
	p := &replayedPhase{originNs: 3_000_000}
	asked := false
	q := p.simRequest(of, func(*Request, *sim.Request) { asked = true })
	if q.ID != "x" || q.ArrivalUs != 2001 || q.PromptTokens != 9 || q.OutputTokens != 7 || q.MaxTokens != 7 || q.AbortAtUs != trace.Some[int64](6000) || q.AbortKind != sim.OutcomeAborted || !asked {
		t.Errorf("got %+v", q)
	}
	of.Excluded, of.Output = "", 0
	if q = p.simRequest(of, nil); q.OutputTokens != 1 || q.MaxTokens != 7 || q.AbortAtUs.OK {
		t.Errorf("got %+v", q)
	}
}
