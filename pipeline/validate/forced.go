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

// identicalBatches replays the whole run with the recorded step times and the
// recorded pick-ups (by step where step times are missing) and returns the share
// of known recorded batches that the simulator's scheduler reproduces: same step
// id, same requests, same computed and new tokens. It separates a wrong scheduler
// from wrong step times. Null when the run cannot be forced.
func identicalBatches(run *trace.Run, dep *deploy.Deployment, steps *rows.Steps, async bool) *float64 {
	f, err := workload.Force(run, dep, async)
	if err != nil {
		return nil
	}
	c := sim.DefaultConfig(dep, f.Timeline)
	c.Async = f.Async
	seen := &batchLog{ids: f.Requests, at: map[int64][]trace.Member{}}
	if _, err := sim.Run(c, f.Requests, seen); err != nil {
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
