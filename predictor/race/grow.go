package race

import (
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
)

// GrowTargets grows what predictor.json holds: forests on the training rows of split
// time, conformal factors from its test rows, so that the printed scores of that
// split are those of the very forests in the file.
func GrowTargets(ctx context.Context, runs []*Run, o Options) ([]forest.Target, error) {
	r := &race{ctx: ctx, o: o, runs: runs, estimates: map[string][]Estimates{}, reasons: map[string]string{}}
	r.o.Splits = []string{Time}
	if err := r.estimate(); err != nil {
		return nil, err
	}
	var out []forest.Target
	for _, target := range Targets {
		a := r.gather(ScopeAll, target)
		t := &task{race: r, all: a, scope: ScopeAll, target: target, name: Time}
		t.split = a.newSplit(Time, o.Seed)
		if t.split.reason != "" {
			if target == Targets[0] {
				return nil, fmt.Errorf("no predictor can be trained: %s", t.split.reason)
			}
			continue // requests of one token have no TPOT
		}
		x, err := t.grown()
		if err != nil {
			return nil, err
		}
		out = append(out, *x)
	}
	return out, ctx.Err()
}

// grown makes one target of the file.
func (t *task) grown() (*forest.Target, error) {
	f := &t.split.folds[0]
	tab, why := t.tableOf(f)
	rows, w := t.sampled(f.train)
	opt := model.Options{Seed: t.o.Seed, Bins: t.o.Bins}
	out := &forest.Target{Name: t.target, Unit: "ms", Columns: columnsFor(tab, f.train), Quantiles: []forest.LevelForest{},
		Factors: []forest.LevelFactors{}}
	factors := func(name string, m model.Model) {
		c := model.Conformal(tab, m, f.test, level)
		if !math.IsNaN(c.Of[0]) {
			out.Factors = append(out.Factors, forest.LevelFactors{Model: name, Level: level, Factors: c.Of})
		}
	}
	m, err := model.New(model.Trees, tab, rows, w, opt)
	if err != nil {
		return nil, err
	}
	trees := m.(*model.Boosted)
	out.Trees = &trees.Forest
	factors(model.Trees, m)
	if m, err = model.New(model.TreesGated, tab, rows, w, opt); err != nil {
		return nil, err
	}
	if g := m.(*model.Gated); g.Both == nil {
		out.Idle, out.Queued = &g.Idle.Forest, &g.Queued.Forest
		factors(model.TreesGated, m)
	}
	q, err := model.NewQuantiles(tab, rows, w, levels, opt)
	if err != nil {
		return nil, err
	}
	for k, level := range q.Levels {
		out.Quantiles = append(out.Quantiles, forest.LevelForest{Level: level, Forest: q.Of[k].Forest})
	}
	if why == "" && t.estimates[Time+"/"] != nil {
		if m, err = model.New(model.PhysicsTrees, tab, rows, w, opt); err != nil {
			return nil, err
		}
		out.Residual = &m.(*model.Boosted).Forest
		factors(model.PhysicsTrees, m)
		if m, err = model.New(model.Physics, tab, rows, w, opt); err != nil {
			return nil, err
		}
		factors(model.Physics, m)
	}
	return out, t.ctx.Err()
}

// columnsFor describes the columns and what training saw of them.
func columnsFor(t *model.Table, train []int) []forest.Column {
	var out []forest.Column
	for c, f := range t.Features {
		lo, hi := math.Inf(1), math.Inf(-1)
		for _, i := range train {
			if v := t.X[c][i]; !math.IsNaN(v) {
				lo, hi = math.Min(lo, v), math.Max(hi, v)
			}
		}
		if lo > hi {
			lo, hi = 0, 0 // never known
		}
		out = append(out, forest.Column{Name: f.Name, Unit: f.Unit, Definition: f.Definition, IsCategory: f.Category, Min: lo, Max: hi})
	}
	return out
}

// JudgeFile judges finished targets on rows they never saw: all rows of the runs.
func JudgeFile(ctx context.Context, runs []*Run, targets []forest.Target, o Options) (*result.PredictorScores, error) {
	r := &race{ctx: ctx, o: o, runs: runs}
	var given []Estimates
	if o.Physics != nil {
		var err error
		if given, err = o.Physics(ctx, nil); err != nil {
			return nil, err
		}
	}
	doc := emptyScores()
	for _, name := range evaluated {
		doc.Models = append(doc.Models, result.PredictorModel{Name: name, Doc: model.Docs[name]})
	}
	for k := range targets {
		target := &targets[k]
		for _, scope := range r.scopes() {
			a := r.gather(scope, target.Name)
			t := &task{race: r, all: a, scope: scope, target: target.Name, name: Unseen}
			if err := t.judge(doc, target, given); err != nil {
				return nil, err
			}
		}
	}
	doc.Sentences = sentences(doc)
	return doc, ctx.Err()
}

// Unseen is the split of JudgeFile: everything is test.
const Unseen = "unseen"

// evaluated are the models that a file can hold.
var evaluated = []string{model.Trees, model.TreesGated, model.Physics, model.PhysicsTrees}

// judge scores one target of a file on a scope.
func (t *task) judge(doc *result.PredictorScores, target *forest.Target, given []Estimates) error {
	if len(t.all.table.X) != len(target.Columns) {
		return fmt.Errorf("%s: got rows of %d columns, want the predictor's %d: make rows with the options it states", target.Name,
			len(t.all.table.X), len(target.Columns))
	}
	if given != nil {
		t.all.table.Physics = t.physicsOf(given)
	}
	models, err := model.FromTarget(target)
	if err != nil {
		return err
	}
	f := fold{}
	for i := range t.all.samples {
		f.test = append(f.test, i)
	}
	t.split = split{name: Unseen, folds: []fold{f}}
	if len(f.test) < leastPart {
		t.split = split{name: Unseen, reason: fmt.Sprintf("%d rows, want %d", len(f.test), leastPart)}
	}
	o := &outcome{pred: map[string][]float64{}, reason: map[string]string{}}
	if t.split.reason == "" {
		t.outcome = o
		t.predictAll(o, models, given != nil, f.test)
	}
	for i, name := range evaluated {
		if t.split.reason != "" {
			t.cells = append(t.cells, result.PredictorCell{Model: name, Reason: "not formable: " + t.split.reason,
				Decisions: []result.PredictorDecision{}})
			continue
		}
		c := o.cell(t.all.table, name, t.o.Seed, t.o.Draws)
		if t.target == Targets[0] && c.Reason == "" {
			c.Decisions = o.decisions(name)
		}
		t.cells = append(t.cells, c)
		for _, other := range evaluated[i+1:] {
			t.contrasts = append(t.contrasts, o.contrast(name, other, t.o.Seed, t.o.Draws))
		}
	}
	t.addTo(doc)
	for _, fs := range target.Factors {
		if m := models[fs.Model]; m != nil && t.split.reason == "" && (given != nil || !model.UsesPhysics(fs.Model)) {
			doc.Calibration = append(doc.Calibration, t.covered(fs, m, f.test))
		}
	}
	return nil
}

// predictAll asks every model of the file about every row.
func (t *task) predictAll(o *outcome, models map[string]model.Model, hasPhysics bool, test []int) {
	tab := t.all.table
	floors := nearestOf(tab, test)
	constant := smallestMAPE(tab, test)
	for k, i := range test {
		o.rows, o.y, o.floor = append(o.rows, i), append(o.y, tab.Y[i]), append(o.floor, floors[k])
		o.consts, o.most = append(o.consts, constant), append(o.most, math.Inf(1))
	}
	for _, name := range evaluated {
		m := models[name]
		switch {
		case m == nil:
			o.reason[name] = "the predictor file holds none"
			continue
		case model.UsesPhysics(name) && !hasPhysics:
			o.reason[name] = t.o.PhysicsReason
			continue
		}
		for _, i := range test {
			o.pred[name] = append(o.pred[name], m.Predict(tab, i))
		}
	}
	o.setBlocks(t.all, []fold{{test: test}})
}

// smallestMAPE is the constant with the smallest MAPE on the rows themselves: a
// floor that no honest constant reaches.
func smallestMAPE(t *model.Table, rows []int) float64 {
	r := constRows(t, rows)
	return r.BestConstant(nil) / 1000
}

// covered is the coverage of a file's calibrated quantile.
func (t *task) covered(fs forest.LevelFactors, m model.Model, test []int) result.PredictorCalibration {
	tab := t.all.table
	factors := model.Factors{Level: fs.Level, Of: fs.Factors}
	var y, before, after []float64
	for _, i := range test {
		y, before, after = append(y, tab.Y[i]), append(before, m.Predict(tab, i)), append(after, factors.Apply(tab, m, i))
	}
	raw, _ := model.Coverage(y, before)
	share, band := model.Coverage(y, after)
	return result.PredictorCalibration{Scope: t.scope, Target: t.target, Split: Unseen, Model: fs.Model, Quantile: fs.Level, Rows: len(test),
		Before: result.OrNull(raw), After: result.OrNull(share), Band: &band,
		Pinball: result.OrNull(model.Pinball(y, after, fs.Level) / model.Pinball(y, before, fs.Level)), Curve: []result.PredictorLevel{},
		Blocks: []result.PredictorDriftBlock{}}
}
