package validate

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/validate/gate"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

func validateValidate(t *testing.T, set *coeff.Set, sources []Source, o Options) *result.Validation {
	t.Helper()
	v, err := Run(context.Background(), set, nil, sources, o)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func gatesOf(v *result.Validation, name string) []result.Gate {
	var out []result.Gate
	for _, g := range v.Gates {
		if g.Name == name {
			out = append(out, g)
		}
	}
	return out
}

// TestPlantedCoefficientsReplayExactly: with the coefficients that made the
// recording, steps and replay agree, in every metric.
func TestPlantedCoefficientsReplayExactly(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(250, 2, 1), nil)
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	if len(v.Runs) != 1 || v.Runs[0].Split.Kind != result.SplitTestRun || v.Runs[0].Requests != 250 {
		t.Fatalf("got %+v", v.Runs)
	}
	r := v.Runs[0]
	if r.Steps == nil || *r.Steps.MAPE > 1e-4 || *r.Steps.MAPEConst < 0.05 {
		t.Errorf("steps: got MAPE %v, constant %v, want near 0 and a constant that is not", *r.Steps.MAPE, *r.Steps.MAPEConst)
	}
	for name, m := range map[string]*result.Metric{"ttft": r.Metrics.TTFT, "itl": r.Metrics.ITL, "e2e": r.Metrics.E2E} {
		if m == nil || m.KSD > 0.01 || *m.MedianRelErrPaired > 0.002 {
			t.Errorf("%s: got %+v", name, m)
		}
	}
	if gap := r.Metrics.ITLGap; gap == nil || gap.KSD > 0.01 || gap.NReal < 3000 {
		t.Errorf("token gaps: got %+v", gap)
	}
	for _, g := range v.Gates {
		if g.Pass != nil && !*g.Pass {
			t.Errorf("gate %s of %s: %v %s %v", g.Name, g.Scope, *g.Value, g.Op, g.Threshold)
		}
	}
	if *r.Replay.KnownBatchesShare < 0.99 || *r.Replay.IdenticalBatchesShare < 0.99 {
		t.Errorf("replay: known %v, identical %v", *r.Replay.KnownBatchesShare, *r.Replay.IdenticalBatchesShare)
	}
	if len(r.Drift) < 5 || math.Abs(r.Drift[0].Factor-1) > 1e-3 {
		t.Errorf("drift: got %v", r.Drift)
	}
}

// TestIdenticalBatchesSeesAWrongOne: one snapshot that is off by a token.
func TestIdenticalBatchesSeesAWrongOne(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(60, 2, 16), nil)
	s := &run.Snapshots[len(run.Snapshots)/2]
	if s.ComputedTokens <= s.PromptTokens {
		t.Fatalf("snapshot %+v is no decode; pick another", s)
	}
	s.ComputedTokens++
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	share := *v.Runs[0].Replay.IdenticalBatchesShare
	if n := float64(len(run.Steps)); share >= 1 || share < 1-3/n {
		t.Errorf("got %v of %v steps, want one wrong", share, n)
	}
}

// TestBrokenPrefillFailsAndIsNamed: prefill x 0.3 fails gates, and the diagnosis
// names the regime and the term.
func TestBrokenPrefillFailsAndIsNamed(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(200, 2, 2), nil)
	broken := copyOf(set)
	setTerm(broken, "prefill_linear_compute", 0.3*termOf(set, "prefill_linear_compute"))
	v := validateValidate(t, broken, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	if v.Verdict != coeff.VerdictFail {
		t.Fatalf("verdict: got %s", v.Verdict)
	}
	if len(v.Diagnoses) == 0 {
		t.Fatal("no diagnosis")
	}
	for _, d := range v.Diagnoses {
		if d.Cause != result.CauseModelError || d.Term != "prefill_linear_compute" || (d.Regime != "prefill" && d.Regime != "mixed") {
			t.Errorf("%s: got %s, %s, %s: %s", d.Scope, d.Cause, d.Term, d.Regime, d.Sentence)
		}
		if !strings.Contains(d.Sentence, "too short") || !strings.Contains(d.Sentence, "times 3.") {
			t.Errorf("sentence: %s", d.Sentence)
		}
	}
}

// TestDriftingMachineIsToldFromAWrongModel: the plain replay fails, the
// drift-corrected one does not, and the diagnosis says so.
func TestDriftingMachineIsToldFromAWrongModel(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(400, 1.8, 3), func(c *sim.Config) {
		c.Drift = []sim.DriftPoint{{FromUs: 0, Factor: 1}, {FromUs: 60e6, Factor: 1.5}, {FromUs: 140e6, Factor: 1.1}}
	})
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	r := v.Runs[0]
	if r.Metrics.ITL.KSD < 0.15 || r.MetricsDrift == nil || r.MetricsDrift.ITL.KSD > 0.08 {
		t.Errorf("ITL: plain %v, corrected %+v", r.Metrics.ITL.KSD, r.MetricsDrift)
	}
	if !slices.ContainsFunc(r.Findings, func(f trace.Finding) bool { return f.Code == "machine_drift" }) {
		t.Errorf("no machine_drift finding: %v", r.Findings)
	}
	for _, d := range v.Diagnoses {
		if d.Cause != result.CauseMachineDrift {
			t.Errorf("%s: got %s: %s", d.Scope, d.Cause, d.Sentence)
		}
	}
}

// TestComposedRunsHaveNoMachine: what no machine ran is never said to have drifted.
func TestComposedRunsHaveNoMachine(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Provenance = "step times composed from kernels; not a serving run"
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(200, 1.8, 3), func(c *sim.Config) {
		c.Drift = []sim.DriftPoint{{FromUs: 0, Factor: 1}, {FromUs: 60e6, Factor: 1.6}}
	})
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	if len(v.Diagnoses) == 0 {
		t.Error("no diagnosis of a run that is 1.6 times slower in its second half")
	}
	for _, d := range v.Diagnoses {
		if d.Cause == result.CauseMachineDrift {
			t.Errorf("%s: got %s: %s", d.Scope, d.Cause, d.Sentence)
		}
	}
	if hasCode(v.Runs[0].Findings, "machine_drift") {
		t.Errorf("got %v", v.Runs[0].Findings)
	}
}

// TestTrainingRunsAreJudgedOnTheirHoldout: what is in-sample is there and decides nothing.
func TestTrainingRunsAreJudgedOnTheirHoldout(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(400, 2, 4), nil)
	v := validateValidate(t, set, []Source{sourceOf(run, dep, true)}, DefaultOptions())
	if len(v.Runs) != 2 || v.Runs[0].Split.Kind != result.SplitHoldout || v.Runs[1].Split.Kind != result.SplitInSample {
		t.Fatalf("got %d runs", len(v.Runs))
	}
	h, s := v.Runs[0], v.Runs[1]
	if h.Requests+h.Excluded["before_split"] != 400 || h.Requests < 50 || h.Requests > 110 || h.Metrics.TTFT.ChanceBeyondD == nil {
		t.Errorf("hold-out: %d requests, excluded %v, %+v", h.Requests, h.Excluded, h.Metrics.TTFT)
	}
	if s.Requests != 400 || s.Judged() || s.Metrics.TTFT.ChanceBeyondD != nil {
		t.Errorf("in-sample: %d requests, %+v", s.Requests, s.Metrics.TTFT)
	}
	if v.For != coeff.PurposeReplay || v.Verdict != coeff.VerdictPass { // steps without noise: chance moves nothing
		t.Errorf("verdict: got %s for %s, want a pass for replay; missing %v", v.Verdict, v.For, v.Missing)
	}
	for _, g := range v.Gates {
		if gate.JudgesReplay(g.Name) && strings.Contains(g.Scope, "in-sample") {
			t.Errorf("got a gate %s of %s", g.Name, g.Scope)
		}
	}
}

// TestAbortedRequestsLoadTheSimulatorAndAreNotCompared.
func TestAbortedRequestsLoadTheSimulatorAndAreNotCompared(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	reqs := plantedLoad(300, 2, 5)
	run := recordPlanted(t, set, dep, reqs, nil)
	for i := 10; i < 40; i++ {
		r := &run.Requests[i]
		r.Success, r.FinishStatus, r.AbortReason = trace.Some(false), trace.Some(trace.FinishAborted), trace.Some("client_disconnect")
		r.DepartedNs = trace.Opt[int64]{}
		r.AbortedNs = r.FinishedNs
	}
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	r := v.Runs[0]
	if r.Requests != 270 || r.Replayed != 300 || r.Excluded["aborted"] != 30 {
		t.Errorf("got %d compared, %d replayed, excluded %v", r.Requests, r.Replayed, r.Excluded)
	}
	if r.Metrics.E2E.KSD > 0.02 {
		t.Errorf("E2E: got D %v: the aborted requests must load the replay until their end", r.Metrics.E2E.KSD)
	}
}

// TestClosedLoopIsReplayedAsOne: eight clients that wait for their answers, simulated
// from planted coefficients; whether run.yaml says so or calls the load open.
func TestClosedLoopIsReplayedAsOne(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	load := plantedLoad(300, 2, 6)
	for i := range load {
		load[i].Loop = 1
		load[i].Queued = i >= 8
		load[i].ArrivalUs = int64(min(i, 8)) * 1000
		if load[i].Queued {
			load[i].ArrivalUs = 0
		}
	}
	run := recordPlanted(t, set, dep, load, nil)
	broken := copyOf(set)
	setTerm(broken, "decode_weight_load", 3*termOf(set, "decode_weight_load"))
	for _, stated := range []string{deploy.LoadClosed, deploy.LoadOpen} {
		phased := *dep
		phased.Phases = []deploy.Phase{{Name: "one", StartNs: plantedNs, EndNs: run.Steps[len(run.Steps)-1].TsStartNs + 1, Load: stated}}
		r := validateValidate(t, set, []Source{sourceOf(run, &phased, false)}, DefaultOptions()).Runs[0]
		for name, m := range map[string]*result.Metric{"TTFT": r.Metrics.TTFT, "ITL": r.Metrics.ITL, "E2E": r.Metrics.E2E} {
			if r.Load != deploy.LoadClosed || m.KSD > 0.03 {
				t.Errorf("stated %s: %s: got D %.3f as %s load, want at most 0.03 as closed", stated, name, m.KSD, r.Load)
			}
		}
		// Of a training run the last fifth of the loop's time is held out: requests that were sent in it, with their throughput.
		holdOut := false
		for _, r := range validateValidate(t, set, []Source{sourceOf(run, &phased, true)}, DefaultOptions()).Runs {
			if r.Split.Kind != result.SplitHoldout {
				continue
			}
			holdOut = true
			first, _ := run.Requests[0].ArrivalNs()
			last, _ := run.Requests[len(run.Requests)-1].ArrivalNs()
			sent := 0
			for i := range run.Requests {
				if at, _ := run.Requests[i].ArrivalNs(); float64(at-first) >= 0.8*float64(last-first) {
					sent++
				}
			}
			if c := r.Metrics.Capacity; r.Load != deploy.LoadClosed || math.Abs(float64(r.Requests-sent)) > 8 || c == nil || c.Clients != 8 ||
				!(math.Abs(c.Err.Value) < 0.01) {
				t.Errorf("stated %s: hold-out of %d requests as %s load, want %d, capacity %+v", stated, r.Requests, r.Load, sent, c)
			}
		}
		if !holdOut {
			t.Errorf("stated %s: no hold-out", stated)
		}
		v := validateValidate(t, broken, []Source{sourceOf(run, &phased, false)}, DefaultOptions())
		for _, g := range gatesOf(v, "ks_itl") {
			if g.Pass == nil || *g.Pass {
				t.Errorf("a term three times too large: %s of %s got %v, want a failure", g.Name, g.Scope, g.Pass)
			}
		}
	}
}

// TestWorkersDoNotChangeTheBytes.
func TestWorkersDoNotChangeTheBytes(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	a := recordPlanted(t, set, dep, plantedLoad(120, 2, 7), nil)
	b := recordPlanted(t, set, dep, plantedLoad(120, 2, 8), nil)
	b.ID = "second"
	set.Residuals = map[string][][2]float64{"decode": {{0, 0.9}, {0.5, 1}, {1, 1.2}}}
	var docs [][]byte
	for _, workers := range []int{1, 8} {
		o := DefaultOptions()
		o.Workers = workers
		doc, err := result.Marshal(validateValidate(t, set, []Source{sourceOf(a, dep, true), sourceOf(b, dep, false)}, o))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, doc)
	}
	if !bytes.Equal(docs[0], docs[1]) {
		t.Error("validation.json differs between 1 and 8 workers")
	}
}

// TestStepsOnlyMakesNoReplay and asks for none.
func TestStepsOnlyMakesNoReplay(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(200, 2, 9), nil)
	o := DefaultOptions()
	o.StepsOnly = true
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, o)
	if len(v.Runs) != 1 || v.Runs[0].Metrics != nil || v.Runs[0].Steps == nil || len(gatesOf(v, "ks_ttft")) != 0 {
		t.Errorf("got %+v", v.Runs)
	}
}

// TestReplayWithoutOverheadIsRefused: an alpha that contains a wait is no delay.
func TestReplayWithoutOverheadIsRefused(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(50, 2, 10), nil)
	set.Alpha = set.Alpha[:1]
	_, err := Run(context.Background(), set, nil, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	if err == nil || !strings.Contains(err.Error(), string(NoReplay)) {
		t.Errorf("got %v", err)
	}
	o := DefaultOptions()
	constant := 2000.0
	o.OverheadUs = &constant
	if v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, o); v.Runs[0].Metrics.TTFT.KSD > 0.03 {
		t.Errorf("--overhead-us 2000: got D %v", v.Runs[0].Metrics.TTFT.KSD)
	}
}

// TestAHoldoutTheFitHasSeenIsRefused, and a refit has none.
func TestAHoldoutTheFitHasSeenIsRefused(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(100, 2, 17), nil)
	fit := &result.Fit{Options: result.FitOptions{Split: 0.8}}
	o := DefaultOptions()
	o.Split = 0.5
	_, err := Run(context.Background(), set, fit, []Source{sourceOf(run, dep, true)}, o)
	if err == nil || !strings.Contains(err.Error(), "want at least the fit's 0.8") {
		t.Errorf("got %v", err)
	}
	fit.Options.RefitAll = true
	v, err := Run(context.Background(), set, fit, []Source{sourceOf(run, dep, true)}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Runs) != 1 || v.Runs[0].Split.Kind != result.SplitInSample || !hasCode(v.Warnings, notHeldOut) ||
		v.Verdict == coeff.VerdictPass {
		t.Errorf("refit: got %d entries, %v, verdict %s", len(v.Runs), v.Warnings, v.Verdict)
	}
}

// TestClientTimingsAreReplayedAndNeverGate.
func TestClientTimingsAreReplayedAndNeverGate(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	full := recordPlanted(t, set, dep, plantedLoad(200, 2, 14), nil)
	run := &trace.Run{ID: "planted"}
	for i := range full.Requests {
		r := &full.Requests[i]
		run.Observed = append(run.Observed, trace.ObservedRequest{ID: r.CoreID.V, Source: "client", SendNs: r.ArrivedNs,
			FirstChunkNs: r.FirstTokenNs,
			LastChunkNs:  r.DepartedNs, PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, Success: trace.Some(true)})
	}
	o := DefaultOptions()
	zero := 2000.0
	o.OverheadUs, o.EgressUs = &zero, &zero
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, o)
	r := v.Runs[0]
	if r.Source != result.SourceClient || r.Requests != 200 || r.Metrics.TTFT.KSD > 0.02 || r.Metrics.E2E.KSD > 0.02 {
		t.Errorf("got %s, %d requests, %+v", r.Source, r.Requests, r.Metrics)
	}
	for _, g := range gatesOf(v, "ks_ttft") {
		if g.Pass != nil {
			t.Errorf("gate %s was judged", g.Scope)
		}
	}
}

// TestNoisyReplayUsesTheArtifactsResiduals: residual quantiles of the artifact widen the replay.
func TestNoisyReplayUsesTheArtifactsResiduals(t *testing.T) {
	dep := plantedDeployment(t)
	set := testkit.PlantedOn(dep)
	noise := &sim.Noise{Decode: []sim.Quantile{{Q: 0, Ratio: 0.5}, {Q: 1, Ratio: 1.5}},
		Mixed: []sim.Quantile{{Q: 0, Ratio: 0.5}, {Q: 1, Ratio: 1.5}}, Prefill: []sim.Quantile{{Q: 0, Ratio: 0.5}, {Q: 1, Ratio: 1.5}}}
	run := recordPlanted(t, set, dep, plantedLoad(300, 2, 15), func(c *sim.Config) { c.Noise = noise })
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	r := v.Runs[0]
	if r.MetricsNoise != nil {
		t.Error("the artifact has no residuals: metrics_noise must be null")
	}
	if r.MetricsDrift == nil || r.MetricsDrift.ITL.KSD > 0.08 || r.MetricsDrift.ITL.KSD >= r.Metrics.ITL.KSD {
		t.Errorf("ITL: plain %v, with the run's residuals %+v", r.Metrics.ITL.KSD, r.MetricsDrift)
	}
	if r.MetricsDrift.ITL.MedianRelErrPaired != nil || r.MetricsDrift.ITL.NSim != 5*r.MetricsDrift.ITL.NReal {
		t.Errorf("replications: got %d simulated of %d", r.MetricsDrift.ITL.NSim, r.MetricsDrift.ITL.NReal)
	}
}

func sourceOf(run *trace.Run, dep *deploy.Deployment, training bool) Source {
	return Source{ID: run.ID, Training: training, Load: func() (*trace.Run, *deploy.Deployment, error) { return run, dep, nil }}
}

// TestSampledJourneysAreJudged: half of the journeys and every step tell the whole load; the
// recorded half is compared. Where steps are missing nothing is.
func TestSampledJourneysAreJudged(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Tracing.JourneySampleRate = trace.Some(0.5)
	set := testkit.PlantedOn(dep)
	run := recordPlanted(t, set, dep, plantedLoad(200, 2, 30), nil)
	var half []trace.Request
	for i := 0; i < len(run.Requests); i += 2 {
		half = append(half, run.Requests[i])
	}
	run.Requests, run.Snapshots = half, nil
	v := validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	r := v.Runs[0]
	if r.Requests != 100 || r.Rebuilt != 100 || r.Replayed != 200 || r.Excluded[excludedUnrecorded] != 100 {
		t.Fatalf("got %d compared, %d rebuilt, %d replayed, excluded %v", r.Requests, r.Rebuilt, r.Replayed, r.Excluded)
	}
	for name, m := range map[string]*result.Metric{"ttft": r.Metrics.TTFT, "itl": r.Metrics.ITL, "e2e": r.Metrics.E2E} {
		if m.KSD > 0.05 {
			t.Errorf("%s: got D %v", name, m.KSD)
		}
	}
	for _, g := range gatesOf(v, "ks_itl") {
		if g.Pass == nil || !*g.Pass || !strings.Contains(g.Note, "rebuilt") {
			t.Errorf("%s of %s: got %v, note %q", g.Name, g.Scope, g.Pass, g.Note)
		}
	}
	run.Steps = slices.Delete(run.Steps, 100, 101)
	v = validateValidate(t, set, []Source{sourceOf(run, dep, false)}, DefaultOptions())
	if g := gatesOf(v, "ks_itl")[0]; g.Pass != nil || v.Runs[0].Rebuilt != 0 || !hasCode(v.Runs[0].Findings, NoReplay) {
		t.Errorf("with a step missing: got %v, %d rebuilt, %v", g.Pass, v.Runs[0].Rebuilt, v.Runs[0].Findings)
	}
}

// TestBrokenOnPurpose breaks one thing at a time in a recording whose truth is known: the
// right purpose fails, and the diagnosis names the cause or says unknown, never another.
// TestEvalBrokenOnPurpose does the same to twenty composed runs.
func TestBrokenOnPurpose(t *testing.T) {
	dep := plantedDeployment(t)
	dep.Engine.KVBlocksGPU = trace.Some(int64(110))
	truth := testkit.PlantedOn(dep)
	const term = "decode_weight_load"
	for _, c := range []struct {
		what, purpose, cause, mentions string
		isNamed                        bool   // and not unknown
		streams                        string // in the sentence of a contradiction; empty: none is named
		set                            func(*coeff.Set)
		dep                            func(*deploy.Deployment)
		record                         func(*trace.Run)
	}{
		{what: "nothing", purpose: ""},
		{what: "a term x3", purpose: coeff.PurposeSteps, cause: result.CauseModelError, mentions: term,
			set: func(s *coeff.Set) { setTerm(s, term, 3*termOf(s, term)) }},
		{what: "a device 1.15 times as slow", purpose: coeff.PurposeSteps, cause: result.CauseSpeed, isNamed: true,
			mentions: "all steps are 15 % longer than the coefficients say: one factor of 1.15 removes 100 %",
			set: func(s *coeff.Set) {
				s.Configs = []coeff.Config{{Deployment: *dep}} // hardware that the fit saw
				for i := range s.Beta {
					s.Beta[i].Value /= 1.15
				}
			}},
		{what: "lag", purpose: coeff.PurposeSteps, cause: result.CauseLag, mentions: "a lag of 0",
			set: func(s *coeff.Set) { s.PipelineLag = map[string]coeff.RunLag{"planted": {Lag: 1, Measured: true}} }},
		{what: "KV blocks x0.5", purpose: coeff.PurposeReplay, cause: result.CauseScheduler, mentions: "KV blocks",
			streams: "kv_blocks_total",
			dep:     func(d *deploy.Deployment) { d.Engine.KVBlocksGPU.V /= 2 }},
		{what: "device", purpose: coeff.PurposeSteps, cause: result.CauseHardware, mentions: "hardware",
			streams: "L40S-48GB",
			dep:     func(d *deploy.Deployment) { d.Hardware, _ = deploy.Datasheet("L40S") }},
		{what: "targets shuffled", purpose: coeff.PurposeSteps, streams: "shorter than reading their weights", record: shuffleSteps},
	} {
		set, d := copyOf(truth), *dep
		run := recordPlanted(t, truth, dep, plantedLoad(200, 4, 9), nil)
		if c.set != nil {
			c.set(set)
		}
		if c.dep != nil {
			c.dep(&d)
		}
		if c.record != nil {
			c.record(run)
		}
		v := validateValidate(t, set, []Source{sourceOf(run, &d, true)}, DefaultOptions())
		steps := v.VerdictFor(coeff.PurposeSteps, coeff.ScopeAll).Verdict
		replay := v.VerdictFor(coeff.PurposeReplay, coeff.ScopeAll).Verdict
		if c.purpose == "" {
			if steps != coeff.VerdictPass || replay != coeff.VerdictPass || len(v.Diagnoses) > 0 {
				t.Errorf("%s: got steps %s, replay %s, %v", c.what, steps, replay, v.Diagnoses)
			}
			continue
		}
		if replay != coeff.VerdictFail || (steps == coeff.VerdictFail) != (c.purpose == coeff.PurposeSteps) || len(v.Diagnoses) == 0 {
			t.Errorf("%s: got steps %s, replay %s, %d diagnoses, want %s to fail", c.what, steps, replay, len(v.Diagnoses), c.purpose)
		}
		isCause := func(x result.Diagnosis) bool { return x.Cause == c.cause }
		if c.isNamed && !slices.ContainsFunc(v.Diagnoses, isCause) {
			t.Errorf("%s: no %s in %+v", c.what, c.cause, v.Diagnoses)
		}
		for _, x := range v.Diagnoses {
			isContradiction := x.Cause == result.CauseStreams && c.streams != "" && strings.Contains(x.Sentence, c.streams)
			if x.Cause != result.CauseUnknown && !isContradiction && (x.Cause != c.cause || !strings.Contains(x.Sentence+" "+x.Term, c.mentions)) {
				t.Errorf("%s: %s: got %s: %s", c.what, x.Scope, x.Cause, x.Sentence)
			}
			t.Logf("%s: %s: %s: %s", c.what, x.Scope, x.Cause, x.Sentence)
		}
	}
}

// shuffleSteps deals the intervals between steps out at random.
func shuffleSteps(r *trace.Run) {
	var gaps []int64
	for i := 1; i < len(r.Steps); i++ {
		gaps = append(gaps, r.Steps[i].TsStartNs-r.Steps[i-1].TsStartNs)
	}
	rand.New(rand.NewPCG(7, 7)).Shuffle(len(gaps), func(a, b int) { gaps[a], gaps[b] = gaps[b], gaps[a] })
	old := slices.Clone(r.Steps)
	for i := 1; i < len(r.Steps); i++ {
		r.Steps[i].TsStartNs = r.Steps[i-1].TsStartNs + gaps[i-1]
		r.Steps[i].TsEndNs = r.Steps[i].TsStartNs + old[i].TsEndNs - old[i].TsStartNs
	}
}
