package validate

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// lagCandidate joins the steps of a scope at the other lags and says how much of the
// error the best of them removes; nil where no other lag is better, and for
// targets without one.
func (j *job) lagCandidate(s *scope) *candidate {
	if j.set.BetaTarget != rows.Cadence {
		return nil
	}
	const lags = 3
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

// lagLosses are the sums of the relative errors of a run's judged rows at lags 0, 1, 2.
func (j *job) lagLosses(t *judgedRun) (loss [3]float64, ok bool) {
	for i := range j.sources {
		if j.all[i] != t {
			continue
		}
		run, dep, err := j.sources[i].Load()
		if err != nil {
			return loss, false
		}
		sp, err := features.New(t.set.SpecVersion, dep)
		if err != nil {
			return loss, false
		}
		steps, err := rows.Rebuild(run, dep, t.set.SpecVersion)
		if err != nil {
			return loss, false
		}
		for lag := range loss {
			o := rows.BetaOptions{Target: t.set.BetaTarget, Lag: lag, Gamma: t.set.Gamma, Split: j.o.Split, Saturated: t.spans()}
			b, err := steps.Beta(sp, o)
			if err != nil {
				return loss, false
			}
			x := b.Reader()
			for k := range b.Kept {
				if t.training && !b.HoldOut[k] {
					continue
				}
				loss[lag] += math.Abs(b.Y[k]-t.set.Predict(x.Row(k))) / math.Max(b.Y[k], leastUs)
			}
		}
		return loss, true
	}
	return loss, false
}
