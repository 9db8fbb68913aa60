package ridge

import (
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/internal/par"
)

// SelectIntervals scores the lambda grid on interval targets, one Selection per
// variant of d: the folds, objectives and ties of Select with the score of
// intervals (spec#interval-fit).
func SelectIntervals(d *Data, b Bounds, o Options) ([]Selection, error) {
	if err := o.CheckData(d); err != nil {
		return nil, err
	}
	if err := b.Check(d.Len()); err != nil {
		return nil, err
	}
	out := make([]Selection, max(1, len(d.Variants)))
	w := CensoredWeights(d, o)
	for v := range out {
		embargo, gamma := o.EmbargoRows, 0.0
		if len(d.Variants) > 0 {
			embargo, gamma = d.Variants[v].EmbargoRows, d.Variants[v].Gamma
		}
		folds, found, err := Folds(d.With(v), o, embargo)
		if err != nil {
			return nil, err
		}
		t := newTrials(d.Configs(), &o)
		if err := t.solveIntervals(d.With(v), b, w, folds); err != nil {
			return nil, err
		}
		out[v] = t.selection(gamma)
		out[v].Findings = append(found, out[v].Findings...)
	}
	return out, nil
}

// solveIntervals solves every trial at every lambda on its rows: an interval has
// no Gram.
func (t *trials) solveIntervals(d *Data, b Bounds, w []float64, folds []Fold) error {
	return par.Try(context.Background(), t.o.Threads(), len(t.list), func(i int) error {
		s := t.list[i]
		train, test := t.intervalRows(d, s, folds)
		path := NewIntervalPath(d, b, w, train, t.o)
		for _, lambda := range t.o.Lambdas {
			beta, err := path.Beta(lambda)
			if err != nil {
				return fmt.Errorf("%d training rows: %w", len(train), err)
			}
			scores := make([]float64, len(test))
			for k, rows := range test {
				scores[k] = math.NaN()
				if rows != nil {
					scores[k] = b.Score(d, w, rows, t.o.SpreadUs, func(i int32) float64 { return Dot(d.Row(int(i)), beta) })
				}
			}
			s.add(beta, scores)
		}
		return nil
	}, nil)
}

// intervalRows are the rows a trial trains on and those it is scored on: a fold
// once over all configurations, else each configuration that is left out.
func (t *trials) intervalRows(d *Data, s *trial, folds []Fold) (train []int32, test [][]int32) {
	if s.fold >= 0 {
		return folds[s.fold].Train, [][]int32{folds[s.fold].Test}
	}
	test = make([][]int32, len(t.configs))
	for i, c := range d.Config {
		k := 0
		for t.configs[k] != c {
			k++
		}
		if s.leavesOut(k) {
			test[k] = append(test[k], int32(i))
		} else {
			train = append(train, int32(i))
		}
	}
	return train, test
}
