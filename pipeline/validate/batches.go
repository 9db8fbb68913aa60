package validate

// This file compares the batches that the simulator's scheduler forms with the recorded ones.

import (
	"hash/maphash"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim"
	"github.com/blis-train/blis-train/sim/workload"
	"github.com/blis-train/blis-train/trace"
)

// identicalBatches replays the whole run with the recorded step times and the recorded pick-ups (by step
// where step times are missing), and returns the share of known recorded batches that the simulator's
// scheduler reproduces: same step id, same requests, same computed and new tokens (spec#forced-replay).
// It separates a wrong scheduler from wrong step times. Nil when the run cannot be forced (forced is nil);
// an error when its snapshots cannot be read.
func identicalBatches(forced *workload.Forced, dep *deploy.Deployment, steps *rows.Steps, async bool) (*float64, error) {
	if forced == nil {
		return nil, nil
	}
	forced.Under(async)
	c := sim.DefaultConfig(dep, forced.Timeline)
	c.Async = forced.Async
	simulated := &batchLog{requests: forced.Requests, sums: make([]uint64, 0, steps.Len())}
	keepNone := func(int, *sim.RequestResult) bool { return true } // the batches are compared, no times
	if _, err := sim.Stream(c, forced.Requests, simulated, keepNone); err != nil {
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
			sum += memberHash(m.CoreID, m.Computed, m.Prompt, m.New)
		}
		if st.ID >= 1 && st.ID <= int64(len(simulated.sums)) && simulated.sums[st.ID-1] == sum {
			same++
		}
	})
	return result.Share(same, known), err
}

// batchLog observes a replay and stores one number for each simulated step: the sum of its members'
// hashes, which does not depend on their order and takes 8 bytes.
type batchLog struct {
	requests []sim.Request
	sums     []uint64 // by step id - 1
}

// Step adds the members that were scheduled.
func (l *batchLog) Step(v *sim.StepView) {
	sum := uint64(0)
	for _, m := range v.Members {
		sum += memberHash(l.requests[m.Request].ID, m.Computed, m.Prompt, m.New)
	}
	for int64(len(l.sums)) < v.StepID {
		l.sums = append(l.sums, 0)
	}
	l.sums[v.StepID-1] = sum
}

// Event does nothing.
func (l *batchLog) Event(*sim.Event) {}

var hashSeed = maphash.MakeSeed()

// memberHash returns a hash of one member of a batch; 0 for a member that got no tokens, so that it
// does not count.
func memberHash(id string, computed, prompt, scheduled int64) uint64 {
	if scheduled == 0 {
		return 0
	}
	return maphash.Comparable(hashSeed, struct {
		id     string
		counts [3]int64
	}{id, [3]int64{computed, prompt, scheduled}})
}
