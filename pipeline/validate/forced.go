package validate

import (
	"slices"
	"strings"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// forcedMinShare: with fewer recorded steps than this share the engine's clock
// cannot be forced.
const forcedMinShare = 0.99

// identicalBatches replays the whole run with the recorded step times and the
// recorded pick-ups and returns the share of known recorded batches that the
// simulator's scheduler reproduces: same step id, same requests, same computed
// and new tokens. It separates a wrong scheduler from wrong step times. Null
// when steps are missing.
func identicalBatches(run *trace.Run, dep *deploy.Deployment, steps *rows.Steps, async bool) *float64 {
	n := len(run.Steps)
	if n == 0 || run.Steps[0].ID != 1 || float64(n) < forcedMinShare*float64(run.Steps[n-1].ID) {
		return nil
	}
	w, err := workload.FromRun(run, dep, workload.RunOptions{Queued: true, BaseNs: min(run.Steps[0].TsStartNs, firstQueued(run))})
	if err != nil {
		return nil
	}
	c := sim.DefaultConfig(dep, timeline(run, w, async))
	c.Async = async
	seen := &batchLog{ids: w.Requests, at: map[int64][]trace.Member{}}
	if _, err := sim.Run(c, w.Requests, seen); err != nil {
		return nil
	}
	known, same := 0, 0
	steps.Each(func(st *rows.Step, members []trace.Member) {
		if members == nil || st.Recorded < 0 {
			return
		}
		known++
		if slices.Equal(inOrder(members), seen.at[st.ID]) {
			same++
		}
	})
	return share(same, known)
}

func firstQueued(run *trace.Run) int64 {
	first := int64(1) << 62
	for i := range run.Requests {
		if q := run.Requests[i].QueuedNs; q.OK {
			first = min(first, q.V)
		}
	}
	return first
}

// timeline is when each recorded step began and when its execution ended: at the
// last token it produced, else when the next step could begin.
func timeline(run *trace.Run, w *workload.Workload, async bool) *sim.Recorded {
	n := int(run.Steps[len(run.Steps)-1].ID)
	r := &sim.Recorded{First: 1, Start: unknown(n), End: unknown(n), FallbackUs: 1}
	for i := range run.Steps {
		r.Start[run.Steps[i].ID-1] = w.Us(run.Steps[i].TsStartNs)
	}
	note := func(step, at trace.Opt[int64]) {
		if k := step.V - 1; step.OK && at.OK && k >= 0 && k < int64(n) {
			r.End[k] = max(r.End[k], w.Us(at.V))
		}
	}
	for i := range run.Requests {
		q := &run.Requests[i]
		note(q.FirstTokenStep, q.FirstTokenNs)
		if q.FinishStatus.Or("") != trace.FinishAborted {
			note(q.FinishedStep, q.FinishedNs)
		}
	}
	ahead := 1
	if async {
		ahead = 2
	}
	for k := range r.End {
		if r.End[k] == sim.Unknown && k+ahead < n && r.Start[k+ahead] != sim.Unknown {
			r.End[k] = r.Start[k+ahead] - 1
		}
	}
	return r
}

func unknown(n int) []int64 {
	s := make([]int64, n)
	for i := range s {
		s[i] = sim.Unknown
	}
	return s
}

// batchLog keeps the simulated batches by step id.
type batchLog struct {
	ids []sim.Request
	at  map[int64][]trace.Member
}

// Step keeps the scheduled members of the step.
func (l *batchLog) Step(v *sim.StepView) {
	var members []trace.Member
	for _, m := range v.Members {
		if m.New > 0 {
			members = append(members, trace.Member{CoreID: l.ids[m.Request].ID, Chunk: trace.Chunk{Computed: m.Computed, Prompt: m.Prompt, New: m.New}})
		}
	}
	l.at[v.StepID] = inOrder(members)
}

// Event is not needed.
func (l *batchLog) Event(*sim.Event) {}

// inOrder is the batch sorted by request, without members that did nothing.
func inOrder(members []trace.Member) []trace.Member {
	out := slices.DeleteFunc(slices.Clone(members), func(m trace.Member) bool { return m.New == 0 })
	slices.SortFunc(out, func(a, b trace.Member) int { return strings.Compare(a.CoreID, b.CoreID) })
	return out
}
