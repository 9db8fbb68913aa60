package validate

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// fewestLevels decide.
const fewestLevels = 5

// Relative errors of the means of a level, beyond what coefficients explain: those that a fit from
// levels takes for known (spec#level-holdout).
const levelTPOTSD, levelTTFTSD = 0.02, 0.04

// unfinished is how many times the measured time stands for a level that the simulated server does
// not finish.
const unfinished = 100

// levels compares load levels with what coefficients say that never saw them (spec#level-holdout).
func (t *judgedRun) levels(levels []result.LevelHoldout, seed int64) result.ValidationRun {
	v := t.entry()
	v.Source, v.Load, v.Requests, v.Replayed = sourcePoints, "levels", len(levels), len(levels)
	v.Split = result.Split{Kind: result.SplitLevels, Test: 1}
	v.Metrics = &result.Metrics{}
	q := chance{}
	for _, k := range []struct {
		name string
		of   func(*result.LevelHoldout) (real, simulated *float64)
		to   **result.Metric
		sd   float64
	}{{"ttft", levelTTFT, &v.Metrics.TTFT, levelTTFTSD}, {"itl", levelTPOT, &v.Metrics.ITL, levelTPOTSD}} {
		var real, simulated []float64
		for i := range levels {
			a, b := k.of(&levels[i])
			if a == nil || *a <= 0 {
				continue
			}
			guess := unfinished * *a
			if b != nil && *b > 0 {
				guess = *b
			}
			real, simulated = append(real, *a), append(simulated, guess)
		}
		if *k.to = Compare(real, simulated, true); len(real) < fewestLevels {
			continue
		}
		noise := make([]float64, len(simulated))
		for draw := range chanceReplays {
			rng := rand.New(rand.NewPCG(uint64(seed)+uint64(draw), chanceStream))
			for i, x := range simulated {
				noise[i] = x * (1 + float64(k.sd*rng.NormFloat64()))
			}
			q.raise(k.name, difference{stat.Distance(simulated, noise), medianPairedError(simulated, noise)})
		}
	}
	q.fill(v.Metrics)
	return v
}

func levelTTFT(l *result.LevelHoldout) (real, simulated *float64) { return l.TTFTMs, l.PredictedTTFTMs }
func levelTPOT(l *result.LevelHoldout) (real, simulated *float64) {
	return &l.TPOTMs, l.PredictedTPOTMs
}

// worstLevels names the levels that are farthest off.
func worstLevels(levels []result.LevelHoldout) string {
	worst := func(of func(*result.LevelHoldout) (real, simulated *float64)) string {
		name, most := "none was predicted", 0.0
		for i := range levels {
			if a, b := of(&levels[i]); a != nil && b != nil && *a > 0 && math.Abs(*b / *a - 1) > math.Abs(most) {
				most = *b / *a - 1
				name = fmt.Sprintf("%s, %+.0f %%", levels[i].Name, 100*most)
			}
		}
		return name
	}
	return fmt.Sprintf("no cause can be found without recorded steps; worst TTFT: %s; worst TPOT: %s", worst(levelTTFT),
		worst(levelTPOT))
}
