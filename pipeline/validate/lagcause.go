package validate

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/sim/workload"
)

// lagCandidate joins the steps of a scope at the other lags and says how much of the
// error the best of them removes; nil where no other lag is better, and for
// targets without one.
func (j *job) lagCandidate(s *scope) *candidate {
	if j.set.BetaTarget != rows.Cadence {
		return nil
	}
	var loss [lags]float64
	used := -1
	for _, t := range s.runs {
		if used >= 0 && t.lag.lag != used {
			return nil // the runs of the scope do not share one
		}
		used = t.lag.lag
		of, ok := j.lagLosses(t)
		if !ok {
			return nil
		}
		for lag := range loss {
			loss[lag] += of[lag]
		}
	}
	best := 0
	for lag := range loss {
		if loss[lag] < loss[best] {
			best = lag
		}
	}
	if used < 0 || used >= lags || best == used {
		return nil
	}
	c := &candidate{cause: result.CauseLag, figure: "pred_vs_measured", share: 1 - loss[best]/loss[used], evidence: float64(best)}
	c.premise, c.change = "steps are joined to the wrong batches", fmt.Sprintf("a lag of %d in place of %d", best, used)
	return c
}

// lagLosses are the sums of the relative errors of a run's judged rows at each lag.
func (j *job) lagLosses(t *judgedRun) (loss [lags]float64, ok bool) {
	steps, _, err := j.rebuilt(t)
	if err != nil {
		return loss, false
	}
	sp, err := features.New(t.set.SpecVersion, t.dep)
	if err != nil {
		return loss, false
	}
	err = t.atLags(steps, sp, j.o, func(lag int, b *rows.Table) bool {
		x := b.Reader()
		for k := range b.Kept {
			if !t.training || b.HoldOut[k] {
				loss[lag] += math.Abs(b.Y[k]-t.set.Predict(x.Row(k))) / math.Max(b.Y[k], leastUs)
			}
		}
		return true
	})
	return loss, err == nil
}

// rebuilt loads the run again with its batches.
func (j *job) rebuilt(t *judgedRun) (*rows.Steps, *workload.Forced, error) {
	run, dep, err := j.sources[slices.Index(j.all, t)].Load()
	if err != nil {
		return nil, nil, err
	}
	forced, _ := workload.ForceLater(run, dep) // nil for a run that cannot be forced
	steps, err := rows.RebuildLean(run, dep, t.set.SpecVersion)
	return steps, forced, err
}

// lagOfBatches is the lag at which a replay forms the recorded batches, where the one
// used does not and the other way of scheduling does, with the share it reproduces.
func (j *job) lagOfBatches(t *judgedRun) (lag int, share float64, ok bool) {
	steps, forced, err := j.rebuilt(t)
	if err != nil {
		return 0, 0, false
	}
	async := t.lag.lag == 0
	same, err := identicalBatches(forced, t.dep, steps, async)
	if err != nil || same == nil || *same < sameBatches {
		return 0, 0, false
	}
	if async {
		lag = 1
	}
	return lag, *same, true
}
