package validate

import (
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/result"
)

// fewestLevels tell by their errors what chance alone reaches.
const fewestLevels = 5

// unfinished is how many times the measured time stands for a level that the simulated server does
// not finish.
const unfinished = 100

// levels compares load levels with what coefficients say that never saw them (spec#level-holdout).
func (t *judgedRun) levels(levels []result.LevelHoldout, seed int64) result.ValidationRun {
	v := t.entry(nil)
	v.Source, v.Load, v.Requests, v.Replayed = sourcePoints, "levels", len(levels), len(levels)
	v.Split = result.Split{Kind: result.SplitLevels, Test: 1}
	v.Metrics = &result.Metrics{}
	q := chance{}
	for name, of := range map[string]func(*result.LevelHoldout) (real, simulated *float64){"ttft": levelTTFT, "itl": levelTPOT} {
		var real, simulated []float64
		r := &stepNoise{}
		for i := range levels {
			a, b := of(&levels[i])
			if a == nil || *a <= 0 {
				continue
			}
			guess := unfinished * *a
			if b != nil && *b > 0 {
				guess = *b
				r.ratio = append(r.ratio, *a/guess)
			}
			real, simulated = append(real, *a), append(simulated, guess)
		}
		m := Compare(real, simulated, true)
		if name == "ttft" {
			v.Metrics.TTFT = m
		} else {
			v.Metrics.ITL = m
		}
		if len(r.ratio) >= fewestLevels {
			q.drawn(name, r, seed, simulated, 1/stat.Median(r.ratio))
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
	return fmt.Sprintf("no steps were recorded, so that no cause can be told; farthest off by TTFT: %s; by TPOT: %s", worst(levelTTFT),
		worst(levelTPOT))
}
