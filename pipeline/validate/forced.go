package validate

import (
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// identicalBatches replays the whole run with the recorded step times and the
// recorded pick-ups (by step where step times are missing) and returns the share
// of known recorded batches that the simulator's scheduler reproduces: same step
// id, same requests, same computed and new tokens. It separates a wrong scheduler
// from wrong step times. Nil when the run cannot be forced (f is nil); an error when
// its snapshots cannot be read.
func identicalBatches(f *workload.Forced, dep *deploy.Deployment, steps *rows.Steps, async bool) (*float64, error) {
	if f == nil {
		return nil, nil
	}
	f.Under(async)
	c := sim.DefaultConfig(dep, f.Timeline)
	c.Async = f.Async
	seen := &batchLog{ids: idSums(f.Requests)}
	if _, err := sim.Run(c, f.Requests, seen); err != nil {
		return nil, nil
	}
	known, same := 0, 0
	err := steps.Each(func(st *rows.Step, members []trace.Member) {
		if members == nil || st.Recorded < 0 {
			return
		}
		known++
		sum := uint64(0)
		for _, m := range members {
			sum += memberSum(stringSum(m.CoreID), m.Computed, m.Prompt, m.New)
		}
		if st.ID >= 1 && st.ID <= int64(len(seen.sums)) && seen.sums[st.ID-1] == sum {
			same++
		}
	})
	return result.Share(same, known), err
}

// batchLog keeps one number per simulated step: the sum of its members' hashes,
// which does not depend on their order and costs 8 bytes a step.
type batchLog struct {
	ids  []uint64
	sums []uint64
}

// Step adds the members that were scheduled.
func (l *batchLog) Step(v *sim.StepView) {
	sum := uint64(0)
	for _, m := range v.Members {
		sum += memberSum(l.ids[m.Request], m.Computed, m.Prompt, m.New)
	}
	for int64(len(l.sums)) < v.StepID {
		l.sums = append(l.sums, 0)
	}
	l.sums[v.StepID-1] = sum
}

// Event is not needed.
func (l *batchLog) Event(*sim.Event) {}

func idSums(reqs []sim.Request) []uint64 {
	out := make([]uint64, len(reqs))
	for i := range reqs {
		out[i] = stringSum(reqs[i].ID)
	}
	return out
}

// memberSum is 0 for a member that did nothing, so that it does not count.
func memberSum(id uint64, computed, prompt, scheduled int64) uint64 {
	if scheduled == 0 {
		return 0
	}
	h := id
	for _, v := range [...]int64{computed, prompt, scheduled} {
		h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// stringSum is FNV-1a.
func stringSum(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
