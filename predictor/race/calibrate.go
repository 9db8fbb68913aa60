package race

import (
	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
)

// level is the quantile that is calibrated and exported.
const level = 0.9

// levels are the quantiles of the quantile forests.
var levels = []float64{0.5, 0.9, 0.99}

// treesQ90 is the raw 0.9-quantile forest, what an online predictor serves as P90.
const treesQ90 = "trees-q90"

// curveLevels are the levels of a reliability curve.
var curveLevels = []float64{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99}

// calibrate is the coverage of P90 on the splits that ask about the future. The
// model sees the first 80 % of the training rows of each run, the rest sets the
// factors, the test rows judge.
func (t *task) calibrate() {
	if t.name != Time && t.name != loadUp {
		return
	}
	names := append([]string{}, t.o.Models...)
	names = append(names, treesQ90)
	for _, name := range names {
		c := result.PredictorCalibration{Scope: t.scope, Target: t.target, Split: t.name, Model: name, Quantile: level,
			Reason: t.split.reason, Curve: []result.PredictorLevel{}, Blocks: []result.PredictorDriftBlock{}}
		if c.Reason == "" {
			t.calibration(&c)
		} else {
			c.Reason = "not formable: " + c.Reason
		}
		t.coverage = append(t.coverage, c)
	}
}

// calibration fills one model's coverage.
func (t *task) calibration(c *result.PredictorCalibration) {
	f := &t.split.folds[0]
	tab, why := t.tableOf(f)
	if why != "" && model.UsesPhysics(c.Model) {
		c.Reason = why
		return
	}
	head, tail := model.SplitTail(tab, f.train, trainShare)
	if len(head) < leastPart || len(tail) < leastPart {
		c.Reason = "too few training rows to hold some back"
		return
	}
	rows, w := t.sampled(head)
	name, opt := c.Model, model.Options{Seed: t.o.Seed, Bins: t.o.Bins}
	if name == treesQ90 {
		name, opt.Quantile = model.Trees, level
	}
	m, err := model.New(name, tab, rows, w, opt)
	if err != nil {
		c.Reason = err.Error()
		return
	}
	t.fill(c, tab, m, tail, f.test)
}

// driftBlocks is how many stretches of the test rows show their coverage.
const driftBlocks = 5

// fill measures a model whose factors the held rows set on the test rows.
func (t *task) fill(c *result.PredictorCalibration, tab *model.Table, m model.Model, held, test []int) {
	y, before := make([]float64, len(test)), make([]float64, len(test))
	for k, i := range test {
		y[k], before[k] = tab.Y[i], m.Predict(tab, i)
	}
	ratios := model.RatiosOf(tab, m, held)
	at := func(q float64) []float64 {
		factors := ratios.At(q)
		out := make([]float64, len(test))
		for k, i := range test {
			out[k] = factors.Apply(tab, m, i)
		}
		return out
	}
	after := at(level)
	raw, _ := model.Coverage(y, before)
	share, band := model.Coverage(y, after)
	c.Rows, c.Held, c.Before, c.After, c.Band = len(test), len(held), result.OrNull(raw), result.OrNull(share), &band
	c.Pinball = result.OrNull(model.Pinball(y, after, level) / model.Pinball(y, before, level))
	follow := ratios.Adaptive(tab, m, test, level, func(i int) int64 { return t.all.samples[i].row.DecisionNs }, t.all.departed)
	moved, _ := model.Coverage(y, follow)
	c.Adaptive = result.OrNull(moved)
	for b := range driftBlocks {
		from, to := b*len(test)/driftBlocks, (b+1)*len(test)/driftBlocks
		x, _ := model.Coverage(y[from:to], after[from:to])
		z, _ := model.Coverage(y[from:to], follow[from:to])
		if result.OrNull(x) != nil && result.OrNull(z) != nil {
			c.Blocks = append(c.Blocks, result.PredictorDriftBlock{Rows: to - from, After: x, Adaptive: z})
		}
	}
	for _, q := range curveLevels {
		got, _ := model.Coverage(y, at(q))
		if result.OrNull(got) != nil {
			c.Curve = append(c.Curve, result.PredictorLevel{Level: q, Coverage: got})
		}
	}
}

// departed is when a row's outcome was known; its first token at the earliest.
func (a *all) departed(i int) int64 {
	r := a.samples[i].row
	if r.DepartedNs.OK {
		return r.DepartedNs.V
	}
	return r.DecisionNs + int64(r.TTFTMs*1e6)
}
