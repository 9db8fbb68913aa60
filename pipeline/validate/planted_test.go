package validate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/repo"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// This file makes recordings whose truth is known: the simulator runs with planted coefficients and is
// read back as tables.

// plantedNs is the stamp of simulated time 0.
const plantedNs = int64(1000e9)

// plantedDeployment is that of a recording of the repository, without its phases.
func plantedDeployment(t *testing.T) *deploy.Deployment {
	t.Helper()
	dep, err := deploy.LoadRun(filepath.Join(repo.Root(t), "testdata/traces/real/gqa-low"))
	if err != nil {
		t.Fatal(err)
	}
	dep.Phases = nil
	return dep
}

// setTerm gives a term a value that the data identify.
func setTerm(set *coeff.Set, name string, v float64) {
	for i := range set.Beta {
		if set.Beta[i].Name == name {
			set.Beta[i].Value = v
			set.Beta[i].Identified = coeff.Within
			return
		}
	}
	panic("no term " + name)
}

// termOf is the value of a term.
func termOf(set *coeff.Set, name string) float64 {
	for _, c := range set.Beta {
		if c.Name == name {
			return c.Value
		}
	}
	panic("no term " + name)
}

// copyOf is a set whose coefficients may be changed.
func copyOf(s *coeff.Set) *coeff.Set {
	c := *s
	c.Beta = append([]coeff.Coefficient{}, s.Beta...)
	return &c
}

// plantedLoad is n Poisson requests with lognormal lengths.
func plantedLoad(n int, rps float64, seed uint64) []sim.Request {
	rng := rand.New(rand.NewPCG(seed, 1))
	at := 0.0
	reqs := make([]sim.Request, n)
	for i := range reqs {
		out := 2 + int64(20*math.Exp(0.6*rng.NormFloat64()))
		reqs[i] = sim.Request{
			ID: fmt.Sprintf("c%05d", i), ArrivalUs: int64(at), OutputTokens: out, MaxTokens: out,
			PromptTokens: 8 + int64(120*math.Exp(0.8*rng.NormFloat64())),
		}
		at += rng.ExpFloat64() / rps * 1e6
	}
	return reqs
}

// plantedRecording turns what the simulator shows into tables.
type plantedRecording struct{ run *trace.Run }

// Step keeps a step and its members.
func (r *plantedRecording) Step(s *sim.StepView) {
	ns := plantedNs + s.StartUs*1000
	r.run.Steps = append(r.run.Steps, trace.Step{
		ID: s.StepID, TsStartNs: ns, TsEndNs: ns + 100e3, DurationUs: 100, WallNs: ns + 100e3 + 5e17,
		RunningDepth: s.Running, WaitingDepth: s.Waiting, NumPrefillReqs: s.LabelledPrefillReqs, NumDecodeReqs: s.LabelledDecodeReqs,
		ScheduledTokens: s.Tokens(), PrefillTokens: s.LabelledPrefillTokens, DecodeTokens: s.LabelledDecodeTokens,
		NumFinished: s.Finished, NumPreempted: s.Preempted, BlocksTotal: s.TotalBlocks, BlocksFree: s.FreeBlocks,
		KVUsage: 1 - float64(s.FreeBlocks)/float64(s.TotalBlocks), NumSnapshots: int64(len(s.Members)),
	})
	for _, m := range s.Members {
		r.run.Snapshots = append(r.run.Snapshots, trace.Snapshot{
			StepID: s.StepID, CoreID: fmt.Sprintf("c%05d", m.Request), PromptTokens: m.Prompt, ComputedTokens: m.Computed,
			OutputTokens: m.OutputTokens, ScheduledTokens: m.New, Preemptions: m.Preemptions, BlocksAllocated: m.Blocks,
			EffectivePromptLen: trace.Some(m.Prompt),
		})
	}
}

// Event is not needed.
func (r *plantedRecording) Event(*sim.Event) {}

// recordPlanted simulates the load and returns it as a recording named "planted".
func recordPlanted(t *testing.T, set *coeff.Set, dep *deploy.Deployment, reqs []sim.Request, change func(*sim.Config)) *trace.Run {
	t.Helper()
	model, err := sim.NewPhysics(set, dep)
	if err != nil {
		t.Fatal(err)
	}
	c := sim.DefaultConfig(dep, model)
	c.Async = false
	c.Overhead = sim.Const(2000)
	c.Egress = sim.Const(2000)
	if change != nil {
		change(&c)
	}
	rec := &plantedRecording{run: &trace.Run{ID: "planted"}}
	res, err := sim.Run(c, reqs, rec)
	if err != nil {
		t.Fatal(err)
	}
	ns := func(us trace.Opt[int64]) trace.Opt[int64] {
		return trace.Opt[int64]{V: plantedNs + us.V*1000, OK: us.OK}
	}
	for i := range res.Requests {
		q := &res.Requests[i]
		rec.run.Requests = append(rec.run.Requests, trace.Request{
			CoreID: trace.Some(q.ID), APIID: trace.Some("a" + q.ID), Source: trace.SourceFork, Link: "parent",
			ArrivedNs: trace.Some(plantedNs + q.ArrivalUs*1000), QueuedNs: ns(q.QueuedUs), ScheduledNs: ns(q.ScheduledUs),
			FirstTokenNs: ns(q.FirstTokenUs), FinishedNs: ns(q.FinishedUs), DepartedNs: ns(q.DepartedUs),
			QueuedStep: trace.Some(q.QueuedStep), ScheduledStep: trace.Some(q.ScheduledStep), FirstTokenStep: trace.Some(q.FirstStep),
			FinishedStep: trace.Some(q.FinishedStep),
			PromptTokens: trace.Some(q.PromptTokens), CachedTokens: trace.Some(int64(0)), OutputTokens: trace.Some(q.OutputTokens),
			MaxTokens:   trace.Some(q.OutputTokens),
			Preemptions: trace.Some(int64(q.Preemptions)), FinishStatus: trace.Some(trace.FinishLength), Success: trace.Some(true),
		})
	}
	return rec.run
}

// hasCode reports a finding of the code.
func hasCode(findings []trace.Finding, code trace.Code) bool {
	return slices.ContainsFunc(findings, func(f trace.Finding) bool { return f.Code == code })
}
