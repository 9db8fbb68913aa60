// Package planted makes recordings whose truth is known: the simulator runs with planted coefficients and is read back
// as tables.
package planted

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/trace"
)

// StartNs is the stamp of simulated time 0.
const StartNs = int64(1000e9)

// Load returns n Poisson requests with lognormal lengths.
func Load(n int, rps float64, seed uint64) []sim.Request {
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

// recording is an observer that turns what the simulator shows into tables.
type recording struct{ run *trace.Run }

// Step keeps a step and its members.
func (r *recording) Step(s *sim.StepView) {
	ns := StartNs + s.StartUs*1000
	r.run.Steps = append(r.run.Steps, trace.Step{
		ID: s.StepID, TsStartNs: ns, TsEndNs: ns + 100e3, DurationUs: 100, WallNs: ns + 100e3 + 5e17,
		RunningDepth: int32(s.Running), WaitingDepth: int32(s.Waiting), NumPrefillReqs: int32(s.LabelledPrefillReqs), NumDecodeReqs: int32(s.LabelledDecodeReqs),
		ScheduledTokens: int32(s.Tokens()), PrefillTokens: int32(s.LabelledPrefillTokens), DecodeTokens: int32(s.LabelledDecodeTokens),
		NumFinished: int32(s.Finished), NumPreempted: int32(s.Preempted), BlocksTotal: s.TotalBlocks, BlocksFree: s.FreeBlocks,
		KVUsage: 1 - float64(s.FreeBlocks)/float64(s.TotalBlocks), NumSnapshots: int32(int64(len(s.Members))),
	})
	for _, m := range s.Members {
		r.run.Snapshots = append(r.run.Snapshots, trace.Snapshot{
			StepID: s.StepID, CoreID: fmt.Sprintf("c%05d", m.Request), PromptTokens: m.Prompt, ComputedTokens: m.Computed,
			OutputTokens: m.OutputTokens, ScheduledTokens: m.New, Preemptions: m.Preemptions, BlocksAllocated: m.Blocks,
			EffectivePromptLen: trace.Some(m.Prompt),
		})
	}
}

// Event does nothing.
func (r *recording) Event(*sim.Event) {}

// Record simulates the load with the coefficients, and returns it as a recording named "planted" of an engine that schedules
// synchronously. change may change the engine; nil: nothing.
func Record(t testing.TB, set *coeff.Set, dep *deploy.Deployment, reqs []sim.Request, change func(*sim.Config)) *trace.Run {
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
	rec := &recording{run: &trace.Run{ID: "planted"}}
	res, err := sim.Run(c, reqs, rec)
	if err != nil {
		t.Fatal(err)
	}
	ns := func(us trace.Opt[int64]) trace.Opt[int64] {
		return trace.Opt[int64]{V: StartNs + us.V*1000, OK: us.OK}
	}
	for i := range res.Requests {
		q := &res.Requests[i]
		rec.run.Requests = append(rec.run.Requests, trace.Request{
			CoreID: trace.Some(q.ID), APIID: trace.Some("a" + q.ID), Source: trace.SourceFork, Link: "parent",
			ArrivedNs: trace.Some(StartNs + q.ArrivalUs*1000), QueuedNs: ns(q.QueuedUs), ScheduledNs: ns(q.ScheduledUs),
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
