package fit

// This file computes the errors of a solved model: on the hold-out by run and regime, over time, and
// as quantiles of measured/predicted.

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// Samples returns the rows of the model with predictions of them: one Sample for each run in order, and
// the same ones grouped by configuration. part selects the rows that count; pred has one prediction for
// each row of the pool, us.
func (s *Solved) Samples(part rows.Judged, pred []float64) (all []*rows.Sample, groups [][]*rows.Sample) {
	groups = make([][]*rows.Sample, len(s.Pool.Configs))
	from := 0
	for _, t := range s.Pool.Tables {
		c := s.Data.Config[from]
		one := &rows.Sample{Table: t, Pred: pred[from : from+t.Kept], Beta: s.betaIn(c), Part: part}
		all = append(all, one)
		groups[c] = append(groups[c], one)
		from += t.Kept
	}
	return all, groups
}

// Judge sets the errors of a step-time model in out: on the hold-out by run and regime, and on
// hold-out and training rows as a whole. floor asks also for the error of the nearest measured
// neighbours. It returns the errors by row.
func (s *Solved) Judge(out *result.Model, floor bool, workers int) *rows.StepErrors {
	var held *rows.StepErrors
	par.Each(workers, 2, func(_, i int) {
		if i == 1 {
			_, training := s.Samples(rows.Training, s.Pred)
			out.Train = rows.JudgeSteps(training, false, workers).Errors()
			return
		}
		all, groups := s.Samples(rows.HoldOut, s.Pred)
		held = rows.JudgeSteps(groups, floor, workers)
		for _, one := range all {
			out.Cells = append(out.Cells, held.Cells(one, true)...)
		}
		out.Holdout = held.Errors()
	})
	return held
}

// RelErr returns the square root of the weighted mean squared relative error of the hold-out; NaN
// without a hold-out.
func RelErr(s *Solved, workers int) float64 {
	if len(s.Pool.Hold) == 0 {
		return math.NaN()
	}
	hold := s.Data.Subset(s.Pool.Hold)
	return math.Sqrt(ridge.OfRows(hold, ridge.Weights(hold, s.Opt), nil, workers).Score(s.Fit.Beta))
}

// driftBlocks is the number of blocks in time into which Drift divides the hold-out of each run.
const driftBlocks = 5

// Drift returns the signed error of each run in consecutive blocks of its hold-out with equal
// numbers of rows. Omitted are runs with fewer than four rows a block, and blocks that took no time.
func (s *Solved) Drift() []result.DriftBlock {
	var out []result.DriftBlock
	p := s.Pool
	for t := range p.Tables {
		var mine []int32
		for _, i := range p.Hold {
			if p.Data.Run[i] == int32(t) {
				mine = append(mine, i)
			}
		}
		n := len(mine)
		for b := 0; b < driftBlocks && n >= 4*driftBlocks; b++ {
			var diff, sum float64
			part := mine[b*n/driftBlocks : (b+1)*n/driftBlocks]
			for _, i := range part {
				diff += s.Pred[i] - s.Data.Y[i]
				sum += s.Data.Y[i]
			}
			if sum == 0 { // stamps that are rounded to more than the steps take
				continue
			}
			out = append(out, result.DriftBlock{Run: p.Runs[t], Block: b + 1, Bias: diff / sum, Rows: len(part)})
		}
	}
	return out
}

// quantileLevels are the probabilities of the stored residual ratios.
var quantileLevels = []float64{0, .01, .025, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .975, .99, 1}

// Ratios returns quantiles of measured/predicted step time on the hold-out by regime, without
// outliers. Coefficient files have them, and simulators draw the noise of steps from them.
func (s *Solved) Ratios() []result.RegimeQuantiles {
	byRegime := map[int32][]float64{}
	all, _ := s.Samples(rows.HoldOut, s.Pred)
	for _, one := range all {
		for i, pred := range one.Pred {
			if one.Judges(i) && pred > 0 && !one.Table.IsOutlier(i) {
				r := int32(one.Table.Regime[i])
				byRegime[r] = append(byRegime[r], one.Table.Y[i]/pred)
			}
		}
	}
	var out []result.RegimeQuantiles
	for r := int32(rows.Decode); r <= int32(rows.Mixed); r++ {
		v := byRegime[r]
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		q := result.RegimeQuantiles{Regime: rows.Regime(r).String(), Rows: len(v)}
		for _, level := range quantileLevels {
			q.Quantiles = append(q.Quantiles, [2]float64{level, stat.Quantile(v, level)})
		}
		out = append(out, q)
	}
	return out
}
