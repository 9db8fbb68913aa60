package validate

// This file judges coefficients that were fitted from load levels, the means of a benchmark at several
// rates, by levels that the fit has not seen (spec#level-holdout).

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/blis-train/blis-train/result"
)

const (
	fewestLevels = 5 // with fewer held-out levels the comparison decides nothing
	// unfinishedFactor times the measured time is taken for a level that the simulated server does not
	// finish.
	unfinishedFactor = 100
	// Relative standard deviations of the means of a level, beyond what coefficients explain: those that a
	// fit from levels assumes (spec#level-holdout).
	levelTPOTSD = 0.02
	levelTTFTSD = 0.04
)

// compareLevels returns the comparison of load levels with the predictions of coefficients from
// whose fit they were held out (spec#level-holdout).
func (t *judgedRun) compareLevels(levels []result.LevelHoldout, seed int64) result.ValidationRun {
	v := t.entryWithoutReplay()
	v.Source = result.SourcePoints
	v.Load = "levels"
	v.Requests = len(levels)
	v.Replayed = len(levels)
	v.Split = result.Split{Kind: result.SplitLevels, Test: 1}
	v.Metrics = &result.Metrics{
		TTFT: compareLevelMetric(levels, levelTTFT, levelTTFTSD, seed),
		ITL:  compareLevelMetric(levels, levelTPOT, levelTPOTSD, seed),
	}
	return v
}

// levelValue is a measured and a predicted mean of a level, ms; nil: unknown.
type levelValue func(*result.LevelHoldout) (measured, predicted *float64)

// levelTTFT returns the measured and the predicted mean TTFT of a level, ms.
func levelTTFT(l *result.LevelHoldout) (measured, predicted *float64) {
	return l.TTFTMs, l.PredictedTTFTMs
}

// levelTPOT returns the measured and the predicted mean TPOT of a level, ms.
func levelTPOT(l *result.LevelHoldout) (measured, predicted *float64) {
	return &l.TPOTMs, l.PredictedTPOTMs
}

// compareLevelMetric returns the comparison of one metric over the levels. The value that chance
// reaches (ChanceMedian) is the largest of chanceReplays median errors that a perfect prediction would
// show, given that measured means scatter by sd. It is absent for fewer than fewestLevels levels.
func compareLevelMetric(levels []result.LevelHoldout, value levelValue, sd float64, seed int64) *result.Metric {
	var real, simulated []float64
	for i := range levels {
		measured, predicted := value(&levels[i])
		if measured == nil || *measured <= 0 {
			continue
		}
		ms := unfinishedFactor * *measured
		if predicted != nil && *predicted > 0 {
			ms = *predicted
		}
		real = append(real, *measured)
		simulated = append(simulated, ms)
	}
	compared := Compare(real, simulated, true)
	if len(real) < fewestLevels {
		return compared
	}
	noisy := make([]float64, len(simulated))
	chance := 0.0
	for k := range chanceReplays {
		rng := rand.New(rand.NewPCG(uint64(seed)+uint64(k), chanceStream))
		for i, ms := range simulated {
			noisy[i] = ms * (1 + sd*rng.NormFloat64())
		}
		chance = max(chance, medianPairedError(simulated, noisy))
	}
	compared.ChanceMedian = &chance
	return compared
}

// worstLevels returns the diagnosis of a run of levels: those with the largest errors.
func worstLevels(levels []result.LevelHoldout) string {
	return fmt.Sprintf("without recorded steps no cause can be told apart; worst TTFT: %s; worst TPOT: %s",
		worstLevel(levels, levelTTFT), worstLevel(levels, levelTPOT))
}

// worstLevel returns a sentence about the level with the largest error.
func worstLevel(levels []result.LevelHoldout, value levelValue) string {
	worst, largest := "none was predicted", 0.0
	for i := range levels {
		measured, predicted := value(&levels[i])
		if measured == nil || predicted == nil || *measured <= 0 {
			continue
		}
		relative := *predicted / *measured - 1
		if math.Abs(relative) > math.Abs(largest) {
			largest = relative
			worst = fmt.Sprintf("%s, %+.0f %%", levels[i].Name, 100*relative)
		}
	}
	return worst
}
