package ridge

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
)

// Select scores the lambda grid for every variant of d (one when it has none).
// The score of a fit on rows it has not seen is the mean over configurations of
// sum w(y - x.beta)^2/sum w y^2.
func Select(d *Data, o Options) ([]Selection, error) {
	cells, found, err := Cut(d, o)
	if err != nil {
		return nil, err
	}
	out := make([]Selection, len(cells))
	for v, c := range cells {
		if out[v], err = SelectCells(c, o); err != nil {
			return nil, err
		}
		out[v].Findings = append(slices.Clone(found), out[v].Findings...)
	}
	return out, nil
}

// SelectCells is Select on Gram matrices alone.
func SelectCells(c *Cells, o Options) (Selection, error) {
	if err := o.Check(c.P); err != nil {
		return Selection{}, err
	}
	if o.EpsUs != c.EpsUs || o.Folds != c.Folds {
		return Selection{}, fmt.Errorf("ridge: cells were cut with eps_us=%v folds=%d, want %v and %d", c.EpsUs, c.Folds, o.EpsUs, o.Folds)
	}
	t := newTrials(c.Configs(), &o)
	t.solveGrams(c)
	return t.selection(c.Gamma), nil
}

// gramTrial is a trial as Gram matrices: what it trains on, and the configurations
// it is scored on (nil entries are not scored).
type gramTrial struct {
	train *Gram
	test  []*Gram
}

// gramTrials are those of t.list, in its order.
func (t *trials) gramTrials(c *Cells) []gramTrial {
	factor := c.Balance(t.o.MinCellRows)
	perConfig := func(keep func(CellKey) bool) []*Gram {
		out := make([]*Gram, len(t.configs))
		for k, label := range t.configs {
			out[k] = c.Sum(factor, func(key CellKey) bool { return key.Config == label && keep(key) })
		}
		return out
	}
	totals := perConfig(func(CellKey) bool { return true })
	out := make([]gramTrial, len(t.list))
	for i, s := range t.list {
		if j := int32(s.fold); j >= 0 {
			out[i].train = c.Sum(factor, func(k CellKey) bool { return k.From <= j })
			out[i].test = perConfig(func(k CellKey) bool { return k.Block == j+1 })
			continue
		}
		out[i].train, out[i].test = New(c.P), make([]*Gram, len(totals))
		for k, g := range totals {
			if s.leavesOut(k) {
				out[i].test[k] = g
			} else {
				out[i].train.Add(g)
			}
		}
	}
	return out
}

// solveGrams solves every trial at every lambda.
func (t *trials) solveGrams(c *Cells) {
	grams := t.gramTrials(c)
	paths := make([]*Path, t.o.Threads())
	par.Each(t.o.Threads(), len(grams), func(worker, i int) {
		if paths[worker] == nil {
			paths[worker] = NewPath(c.P, t.o)
		}
		p, g := paths[worker], grams[i]
		p.Start(g.train)
		for _, lambda := range t.o.Lambdas {
			beta := p.Beta(lambda)
			scores := make([]float64, len(g.test))
			for k, test := range g.test {
				scores[k] = math.NaN()
				if test != nil {
					scores[k] = test.Score(beta)
				}
			}
			t.list[i].add(beta, scores)
		}
	})
}
