package validate

import (
	"context"
	"errors"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/internal/testkit"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// TestLoadThatClientsSaw: answers sent beside unknown requests are not checked, and failed ones count as failures.
func TestLoadThatClientsSaw(t *testing.T) {
	run := &trace.Run{ID: "r"}
	for i := range int64(40) {
		o := trace.ObservedRequest{ID: "c", SendNs: some(1e9 * i), SendWallNs: some(1e18 + 1e9*i), TTFTUs: some(100e3), E2EUs: some(900e3), PromptTokens: some[int64](7), OutputTokens: some[int64](5), Success: some(true)}
		o.LoadOnly = some(i%4 == 0)
		o.Success.V = i%4 != 1
		run.Observed = append(run.Observed, o)
	}
	v := OfClients(run, &deploy.Deployment{})
	if len(v.Phases) != 1 || v.Phases[0].Requests != 30 {
		t.Fatalf("got %+v, want 30 of 40 requests", v.Phases)
	}
	for _, c := range v.Run.Checks {
		if c.Name == stat.CheckFailureShare && (c.Value == nil || !near(*c.Value, 1./3)) {
			t.Errorf("got a share of failures of %v, want 10 of 30", c.Value)
		}
	}
	if len(run.Requests) != 0 {
		t.Error("the run itself was changed")
	}
}

// TestLagsOfAScope: with equal errors at every lag the smallest one is best. Runs at different lags, and runs that cannot be
// read, have no candidate.
func TestLagsOfAScope(t *testing.T) {
	run := &trace.Run{ID: "decodes"}
	for id := range int64(30) {
		run.Steps = append(run.Steps, trace.Step{ID: id, TsStartNs: id * 10e6, TsEndNs: id*10e6 + 1e6, DurationUs: 120, RunningDepth: 1, NumDecodeReqs: 1, DecodeTokens: 1,
			ScheduledTokens: 1, BlocksTotal: 100, BlocksFree: 50, KVUsage: 0.5})
		run.Snapshots = append(run.Snapshots, trace.Snapshot{StepID: id, CoreID: "r", Phase: "DECODE", PromptTokens: 5, ComputedTokens: 6, ScheduledTokens: 1})
	}
	dep := testkit.Llama8B()
	for name, c := range map[string]struct {
		lags   []int
		target string
		err    error
		want   string // the change; "": no candidate
	}{
		"at 0":          {[]int{0, 0}, coeff.Cadence, nil, ""},
		"at 1":          {[]int{1, 1}, coeff.Cadence, nil, "a lag of 0 in place of 1"},
		"at 2, one run": {[]int{2}, coeff.Cadence, nil, "a lag of 0 in place of 2"},
		"at 0 and 1":    {[]int{0, 1}, coeff.Cadence, nil, ""},
		"at 1 and 2":    {[]int{1, 2}, coeff.Cadence, nil, ""},
		"at 1 and 0":    {[]int{1, 0}, coeff.Cadence, nil, ""},
		"at an odd one": {[]int{lags}, coeff.Cadence, nil, ""},
		"no run":        {nil, coeff.Cadence, nil, ""},
		"not read":      {[]int{1}, coeff.Cadence, errors.New("no file"), ""},
		"without a lag": {[]int{1}, coeff.Duration, nil, ""},
	} {
		s, set := handScope(dep)
		set.BetaTarget = c.target
		s.runs = nil
		j := &job{set: set, o: &Options{Split: 0.8}}
		for _, lag := range c.lags {
			r := &judgedRun{id: "r", set: set}
			r.Deployment = dep
			r.Lag = lag
			r.Saturation = &rows.LoadVerdicts{}
			s.runs = append(s.runs, r)
			j.runs = append(j.runs, r)
			j.sources = append(j.sources, Source{Load: func() (*trace.Run, *deploy.Deployment, error) { return run, dep, c.err }})
		}
		got := j.lagCandidate(s)
		if (got == nil) != (c.want == "") || got != nil && (got.change != c.want || got.cause != result.CauseLag || got.share != 0 || got.evidence != 0) {
			t.Errorf("%s: got %+v, want %q", name, got, c.want)
		}
	}
}

// TestLevelsAreNotReplayed: one load level suffices for a comparison of levels, which reads no run; step errors alone need neither.
func TestLevelsAreNotReplayed(t *testing.T) {
	s, set := handScope(testkit.Llama8B())
	s.runs[0].Saturation = &rows.LoadVerdicts{}
	s.runs[0].drift = &drift{}
	failed := errors.New("read")
	for name, c := range map[string]struct {
		levels    int
		stepsOnly bool
		load      string // of the entry; "": the run is read
	}{"one level": {1, false, "levels"}, "two": {2, false, "levels"}, "steps alone": {1, true, deploy.LoadOpen}, "none": {0, false, ""}} {
		j := &job{set: set, o: &Options{StepsOnly: c.stepsOnly}, runs: s.runs, replays: make([]*runReplay, 1), entries: make([][]result.ValidationRun, 1)}
		j.sources = []Source{{Levels: make([]result.LevelHoldout, c.levels), Load: func() (*trace.Run, *deploy.Deployment, error) { return nil, nil, failed }}}
		err := j.replay(context.Background(), 0)
		if c.load == "" {
			if !errors.Is(err, failed) {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if e := j.entries[0]; c.stepsOnly {
			j.o.Unreplayed = "no overhead"
			if err := j.replay(context.Background(), 0); err != nil || e[0].Undecided != "" || j.entries[0][0].Undecided != "no overhead" {
				t.Errorf("%s: got %+v, %v", name, j.entries[0], err)
			}
		}
		if e := j.entries[0]; err != nil || len(e) != 1 || e[0].Load != c.load || c.load == "levels" && (e[0].Requests != c.levels || e[0].Metrics == nil) {
			t.Errorf("%s: got %+v, %v", name, e, err)
		}
	}
}
