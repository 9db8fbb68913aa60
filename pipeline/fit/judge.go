package fit

import (
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/score"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// driftBlocks is how many blocks of each run's hold-out the drift is read from.
const driftBlocks = 5

// samples are the rows of the model's runs with predictions of them, in order of
// runs, and the same by configuration.
func (s *solved) samples(part score.Part, pred []float64) (all []*score.Sample, groups [][]*score.Sample) {
	groups = make([][]*score.Sample, len(s.pool.configs))
	from := 0
	for _, t := range s.pool.tables {
		c := s.data.Config[from]
		one := &score.Sample{Table: t, Pred: pred[from : from+t.Kept], Beta: s.betaIn(c), Part: part}
		all, groups[c] = append(all, one), append(groups[c], one)
		from += t.Kept
	}
	return all, groups
}

// judge fills the errors of a step-time model.
func (s *solved) judge(out *result.Model, floor bool, workers int) *score.Steps {
	all, groups := s.samples(score.HoldOut, s.pred)
	held := score.NewSteps(groups, floor, workers)
	for _, one := range all {
		out.Cells = append(out.Cells, held.Cells(one, true)...)
	}
	_, groups = s.samples(score.Training, s.pred)
	out.Holdout, out.Train = held.Errors(), score.NewSteps(groups, false, workers).Errors()
	return held
}

// drift is the signed hold-out error of each run by equal blocks in time.
func (s *solved) drift() []result.DriftBlock {
	var out []result.DriftBlock
	p := s.pool
	for t := range p.tables {
		var mine []int32
		for _, i := range p.hold {
			if p.data.Run[i] == int32(t) {
				mine = append(mine, i)
			}
		}
		n := len(mine)
		for b := 0; b < driftBlocks && n >= 4*driftBlocks; b++ {
			var diff, sum float64
			part := mine[b*n/driftBlocks : (b+1)*n/driftBlocks]
			for _, i := range part {
				diff += s.pred[i] - s.data.Y[i]
				sum += s.data.Y[i]
			}
			out = append(out, result.DriftBlock{Run: p.runs[t], Block: b + 1, Bias: diff / sum, Rows: len(part)})
		}
	}
	return out
}

// quantileLevels are the probabilities of the stored residual ratios.
var quantileLevels = []float64{0, .01, .025, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .975, .99, 1}

// ratios are quantiles of y/prediction on the hold-out per regime.
func (s *solved) ratios() []result.RegimeQuantiles {
	byRegime := map[int32][]float64{}
	for _, i := range s.pool.hold {
		if s.pred[i] > 0 {
			r := s.data.Regime[i]
			byRegime[r] = append(byRegime[r], s.data.Y[i]/s.pred[i])
		}
	}
	var out []result.RegimeQuantiles
	for r := int32(0); r <= int32(rows.Mixed); r++ {
		v := byRegime[r]
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		q := result.RegimeQuantiles{RegimeQuantiles: coeff.RegimeQuantiles{Regime: rows.Regime(r).String()}, Rows: len(v)}
		for _, level := range quantileLevels {
			q.Quantiles = append(q.Quantiles, [2]float64{level, stat.Quantile(v, level)})
		}
		out = append(out, q)
	}
	return out
}
