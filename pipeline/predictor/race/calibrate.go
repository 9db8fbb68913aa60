package race

import (
	"github.com/blis-train/blis-train/pipeline/predictor/model"
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
			Reason: t.split.reason, Curve: []result.PredictorLevel{}}
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
	fill(c, tab, m, tail, f.test)
}

// fill measures a model whose factors the held rows set on the test rows.
func fill(c *result.PredictorCalibration, tab *model.Table, m model.Model, held, test []int) {
	y, before := make([]float64, len(test)), make([]float64, len(test))
	for k, i := range test {
		y[k], before[k] = tab.Y[i], m.Predict(tab, i)
	}
	at := func(level float64) ([]float64, int) {
		factors := model.Conformal(tab, m, held, level)
		out := make([]float64, len(test))
		for k, i := range test {
			out[k] = factors.Apply(tab, m, i)
		}
		return out, factors.Held
	}
	after, n := at(level)
	raw, _ := model.Coverage(y, before)
	share, band := model.Coverage(y, after)
	c.Rows, c.Held, c.Before, c.After, c.Band = len(test), n, result.OrNull(raw), result.OrNull(share), &band
	c.Pinball = result.OrNull(model.Pinball(y, after, level) / model.Pinball(y, before, level))
	for _, level := range curveLevels {
		pred, _ := at(level)
		got, _ := model.Coverage(y, pred)
		if result.OrNull(got) != nil {
			c.Curve = append(c.Curve, result.PredictorLevel{Level: level, Coverage: got})
		}
	}
}
