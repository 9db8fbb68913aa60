package fit

import (
	"slices"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// DriftBlocks is how many blocks of each run's hold-out the drift is read from.
const DriftBlocks = 5

// Samples are the rows of the model's runs with predictions of them, in order of
// runs, and the same by configuration.
func (s *Solved) Samples(part rows.Judged, pred []float64) (all []*rows.Sample, groups [][]*rows.Sample) {
	groups = make([][]*rows.Sample, len(s.Pool.Configs))
	from := 0
	for _, t := range s.Pool.Tables {
		c := s.Data.Config[from]
		one := &rows.Sample{Table: t, Pred: pred[from : from+t.Kept], Beta: s.betaIn(c), Part: part}
		all, groups[c] = append(all, one), append(groups[c], one)
		from += t.Kept
	}
	return all, groups
}

// Judge fills the errors of a step-time model.
func (s *Solved) Judge(out *result.Model, floor bool, workers int) *rows.StepErrors {
	all, groups := s.Samples(rows.HoldOut, s.Pred)
	held := rows.JudgeSteps(groups, floor, workers)
	for _, one := range all {
		out.Cells = append(out.Cells, held.Cells(one, true)...)
	}
	_, groups = s.Samples(rows.Training, s.Pred)
	out.Holdout, out.Train = held.Errors(), rows.JudgeSteps(groups, false, workers).Errors()
	return held
}

// Drift is the signed hold-out error of each run by equal blocks in time.
func (s *Solved) Drift() []result.DriftBlock {
	var out []result.DriftBlock
	p := s.Pool
	for t := range p.Tables {
		mine := stat.Filter(p.Hold, func(i int32) bool { return p.Data.Run[i] == int32(t) })
		n := len(mine)
		for b := 0; b < DriftBlocks && n >= 4*DriftBlocks; b++ {
			var diff, sum float64
			part := mine[b*n/DriftBlocks : (b+1)*n/DriftBlocks]
			for _, i := range part {
				diff += s.Pred[i] - s.Data.Y[i]
				sum += s.Data.Y[i]
			}
			out = append(out, result.DriftBlock{Run: p.Runs[t], Block: b + 1, Bias: diff / sum, Rows: len(part)})
		}
	}
	return out
}

// quantileLevels are the probabilities of the stored residual ratios.
var quantileLevels = []float64{0, .01, .025, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .975, .99, 1}

// Ratios are quantiles of y/prediction on the hold-out, outliers apart, per regime.
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
	for r := int32(0); r <= int32(rows.Mixed); r++ {
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

// ScaleBy multiplies the coefficients of every configuration by its factors and
// predicts again.
func (s *Solved) ScaleBy(factors []result.DeploymentFactor) {
	s.on = make([][]float64, len(s.Pool.Configs))
	for c, key := range s.Pool.Configs {
		s.on[c] = make([]float64, len(s.Terms))
		own := result.DeploymentFactor{Factor: 1, Prompt: 1}
		if k := slices.IndexFunc(factors, func(f result.DeploymentFactor) bool { return f.Config == key }); k >= 0 {
			own = factors[k]
		}
		for j, t := range s.Terms {
			factor := own.Factor
			if t.Prompt {
				factor *= own.Prompt
			}
			s.on[c][j] = s.Fit.Beta[j] * factor
		}
	}
	for i := range s.Pred {
		s.Pred[i] = ridge.Dot(s.Data.Row(i), s.betaIn(s.Data.Config[i]))
	}
}

// betaIn are the coefficients as they hold in a configuration.
func (s *Solved) betaIn(c int32) []float64 {
	if s.on == nil {
		return s.Fit.Beta
	}
	return s.on[c]
}
