package predictor

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/blis-train/blis-train/internal/stat"
)

// The race: every model on identical rows, six ways to part them into training and
// test. What docs/predictor.md says of the models was measured with it.

const (
	nameConstant = "constant"
	nameLinear   = "linear"
	treesQ90     = "trees-q90" // the raw 0.9-quantile forest, what an online predictor serves as P90
)

var racers = []string{nameConstant, nameLinear, nameTrees, nameGated, namePhysics, nameResidual}

// newRacer is newModel with the two that only the race knows.
func newRacer(name string, t *columns, rows []int, w []float64, o growOptions) (model, error) {
	switch name {
	case nameConstant:
		return newConstant(t, rows, w), nil
	case nameLinear:
		return newLinear(t, rows, w)
	}
	return newModel(name, t, rows, w, o)
}

// raced is one target on one split.
type raced struct {
	split   split
	rows    *rowSet
	outcome *outcome
}

// race trains every model on every fold of a split and predicts its test rows.
func race(t *testing.T, runs []*runRows, target, name string, o TrainOptions, physics estimator) *raced {
	t.Helper()
	a := gather(runs, target, o.features)
	out := &raced{split: a.newSplit(name, o.Seed), rows: a, outcome: &outcome{pred: map[string][]float64{}, reason: map[string]string{}}}
	x := out.outcome
	for k := range out.split.folds {
		f := &out.split.folds[k]
		hide := f.hidden
		if name == random {
			hide = nil
		}
		all, err := physics(context.Background(), hide)
		if err != nil {
			t.Fatal(err)
		}
		a.setPhysics(all, target)
		rows, w := stratified(a.table, f.train, o.Weights, o.Seed)
		most := 0.0
		for _, i := range f.train {
			most = math.Max(most, a.table.Y[i])
		}
		constant, floors := newConstant(a.table, f.train, nil), nearestOf(a.table, f.test)
		for n, i := range f.test {
			x.rows, x.y, x.most = append(x.rows, i), append(x.y, a.table.Y[i]), append(x.most, most)
			x.consts, x.floor = append(x.consts, constant.Predict(a.table, i)), append(x.floor, floors[n])
		}
		for _, m := range racers {
			grown, err := newRacer(m, a.table, rows, w, growOptions{Seed: o.Seed, Bins: o.bins})
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range f.test {
				x.pred[m] = append(x.pred[m], grown.Predict(a.table, i))
			}
		}
	}
	if a.setBlocks(x); len(out.split.folds) > 1 { // what varies is the configuration: a block each
		x.blocks = len(out.split.folds)
		at := 0
		for k, f := range out.split.folds {
			for range f.test {
				x.block[at] = k
				at++
			}
		}
	}
	return out
}

// mape is the error of a model.
func (r *raced) mape(name string) float64 { return stat.Mean(r.outcome.apes(r.outcome.pred[name])) }

// beats is the paired difference of two models' MAPE; shown where its interval leaves 0 out.
func (r *raced) beats(a, b string, seed uint64) (difference float64, shown bool) {
	d, e := r.outcome.apes(r.outcome.pred[a]), r.outcome.apes(r.outcome.pred[b])
	for i := range d {
		d[i] -= e[i]
	}
	lo, hi, ok := r.outcome.interval(d, seed)
	return stat.Mean(d), ok && (lo > 0 || hi < 0)
}

// coverage is the share of test rows within the P90 of a model whose factors the last
// fifth of the training rows set: before, after, and with a level that follows outcomes.
func (r *raced) coverage(t *testing.T, name string, o TrainOptions) (before, after, adaptive float64) {
	t.Helper()
	f, tab := &r.split.folds[0], r.rows.table
	head, tail := splitTail(tab, f.train, trainShare)
	rows, w := stratified(tab, head, o.Weights, o.Seed)
	opt := growOptions{Seed: o.Seed, Bins: o.bins}
	if name == treesQ90 {
		name, opt.Quantile = nameTrees, level
	}
	m, err := newRacer(name, tab, rows, w, opt)
	if err != nil {
		t.Fatal(err)
	}
	held := ratiosOf(tab, m, tail)
	bounds := held.At(level)
	var y, raw, within []float64
	for _, i := range f.test {
		y, raw, within = append(y, tab.Y[i]), append(raw, m.Predict(tab, i)), append(within, calibrated(&bounds, tab, m, i))
	}
	known := func(i int) int64 {
		if d := r.rows.samples[i].row.DepartedNs; d.OK {
			return d.V
		}
		return r.rows.samples[i].row.DecisionNs + int64(r.rows.samples[i].row.TTFTMs*1e6)
	}
	follow := held.Adaptive(tab, m, f.test, level, func(i int) int64 { return r.rows.samples[i].row.DecisionNs }, known)
	before, _ = coverageOf(y, raw)
	after, _ = coverageOf(y, within)
	adaptive, _ = coverageOf(y, follow)
	return before, after, adaptive
}

// text is a split's line for the log.
func (r *raced) text() string {
	if r.split.reason != "" {
		return "not formable: " + r.split.reason
	}
	line := fmt.Sprintf("%d rows:", len(r.outcome.y))
	for _, m := range racers {
		line += fmt.Sprintf(" %s %.1f %%", m, 100*r.mape(m))
	}
	return line
}
