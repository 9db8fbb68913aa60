package race

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/predictor/decision"
	"github.com/blis-train/blis-train/predictor/model"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// race is a race under way.
type race struct {
	ctx       context.Context
	o         Options
	runs      []*Run
	estimates map[string][]Estimates // by split and fold
	reasons   map[string]string      // why there are none
	given     []Estimates            // with the coefficients as given
}

// Fit runs the race over all rows and, where they suffice, over each
// configuration's. The caller adds header and options.
func Fit(ctx context.Context, runs []*Run, o Options) (*result.PredictorScores, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	r := &race{ctx: ctx, o: o, runs: runs, estimates: map[string][]Estimates{}, reasons: map[string]string{}}
	if err := r.estimate(); err != nil {
		return nil, err
	}
	doc := emptyScores()
	for _, name := range o.Models {
		doc.Models = append(doc.Models, result.PredictorModel{Name: name, Doc: model.Docs[name]})
	}
	var tasks []*task
	for _, scope := range r.scopes() {
		for _, target := range Targets {
			a := r.gather(scope, target)
			for _, name := range o.Splits {
				tasks = append(tasks, &task{race: r, all: a, scope: scope, target: target, name: name})
			}
		}
	}
	err := par.Try(ctx, o.Workers, len(tasks), func(i int) error { return tasks[i].run() }, func(int) {})
	if err != nil {
		return nil, err
	}
	for _, t := range tasks {
		t.addTo(doc)
	}
	doc.Sentences = sentences(doc)
	return doc, ctx.Err()
}

func emptyScores() *result.PredictorScores {
	return &result.PredictorScores{Models: []result.PredictorModel{}, Splits: []result.PredictorSplit{}, Cells: []result.PredictorCell{},
		Contrasts: []result.PredictorContrast{}, Calibration: []result.PredictorCalibration{}, Strata: []result.PredictorStratum{},
		Emulation: []result.PredictorPitfall{}, Sentences: []string{}, Figures: &result.PredictorFigures{Stages: []result.PredictorStage{}}}
}

// scopes are all rows, and every configuration with enough of them.
func (r *race) scopes() []string {
	rows := map[string]int{}
	var configs []string
	for _, run := range r.runs {
		if _, seen := rows[run.Config]; !seen {
			configs = append(configs, run.Config)
		}
		rows[run.Config] += len(run.Rows)
	}
	out := []string{ScopeAll}
	if len(configs) < 2 {
		return out
	}
	for _, c := range configs {
		if rows[c] >= leastPerScope {
			out = append(out, c)
		}
	}
	return out
}

// gather lays the rows of a scope and target out.
func (r *race) gather(scope, target string) *all {
	a := &all{runs: r.runs}
	tpot := target == Targets[1]
	var rows []*decision.Row
	var run []int32
	for k, x := range r.runs {
		if scope != ScopeAll && x.Config != scope {
			continue
		}
		for i := range x.Rows {
			row := &x.Rows[i]
			if tpot && !(row.TPOTMs.OK && row.TPOTMs.V > 0) || !tpot && !(row.TTFTMs > 0) {
				continue
			}
			a.samples = append(a.samples, sample{k, i, row})
			rows, run = append(rows, row), append(run, int32(k))
		}
	}
	a.table = model.NewTable(tpot, r.o.Features, rows, run)
	return a
}

// estimate asks physics about every row, for every fold without what it tests.
func (r *race) estimate() error {
	if !slices.ContainsFunc(r.o.Models, model.UsesPhysics) {
		return nil
	}
	pooled := r.gather(ScopeAll, Targets[0])
	if r.o.Physics != nil {
		var err error
		if r.given, err = r.o.Physics(r.ctx, nil); err != nil {
			return err
		}
	}
	for _, name := range r.o.Splits {
		s := pooled.newSplit(name, r.o.Seed)
		folds := s.folds
		if s.reason != "" {
			folds = []fold{{}} // a scope may form what the whole cannot
		}
		for _, f := range folds {
			key := name + "/" + f.name
			switch {
			case r.o.Physics == nil:
				r.reasons[key] = r.o.PhysicsReason
			case !r.o.IsRefit || name == random || f.hidden == nil:
				r.estimates[key] = r.given
			default:
				e, err := r.o.Physics(r.ctx, f.hidden)
				if r.ctx.Err() != nil {
					return r.ctx.Err()
				}
				if err != nil {
					r.reasons[key] = "coefficients cannot be fitted without the test rows: " + err.Error()
				}
				r.estimates[key] = e
			}
		}
	}
	return nil
}

// task is one split of one scope and target.
type task struct {
	*race
	all                 *all
	scope, target, name string
	split               split
	outcome             *outcome
	cells               []result.PredictorCell
	contrasts           []result.PredictorContrast
	strata              []result.PredictorStratum
	stages              []result.PredictorStage
	coverage            []result.PredictorCalibration
	habits              []result.PredictorPitfall
}

func (t *task) run() error {
	t.split = t.all.newSplit(t.name, t.o.Seed)
	t.calibrate()
	if t.split.reason != "" {
		for _, m := range t.o.Models {
			t.cells = append(t.cells, result.PredictorCell{Model: m, Reason: "not formable: " + t.split.reason,
				Decisions: []result.PredictorDecision{}})
		}
		return nil
	}
	if err := t.compete(); err != nil {
		return err
	}
	for i, m := range t.o.Models {
		c := t.outcome.cell(t.all.table, m, t.o.Seed, t.o.Draws)
		if t.target == Targets[0] && c.Reason == "" {
			c.Decisions = t.outcome.decisions(m)
		}
		t.cells = append(t.cells, c)
		for _, other := range t.o.Models[i+1:] {
			t.contrasts = append(t.contrasts, t.outcome.contrast(m, other, t.o.Seed, t.o.Draws))
		}
	}
	if t.name == Time {
		t.stratify()
	}
	if err := t.emulate(); err != nil {
		return err
	}
	return t.ctx.Err()
}

// compete trains every model on every fold and predicts its test rows.
func (t *task) compete() error {
	a := t.all
	o := &outcome{pred: map[string][]float64{}, reason: map[string]string{}}
	t.outcome = o
	for k := range t.split.folds {
		f := &t.split.folds[k]
		tab, why := t.tableOf(f)
		rows, w := t.sampled(f.train)
		constant, err := model.New(model.Constant, tab, f.train, nil, model.Options{})
		if err != nil {
			return err
		}
		most := 0.0
		for _, i := range f.train {
			most = math.Max(most, tab.Y[i])
		}
		floors := nearestOf(tab, f.test)
		for n, i := range f.test {
			o.rows, o.y = append(o.rows, i), append(o.y, tab.Y[i])
			o.consts, o.floor, o.most = append(o.consts, constant.Predict(tab, i)), append(o.floor, floors[n]), append(o.most, most)
		}
		trained := map[string]model.Model{}
		for _, name := range t.o.Models {
			if why != "" && model.UsesPhysics(name) {
				o.reason[name] = why
				continue
			}
			m, err := model.New(name, tab, rows, w, model.Options{Seed: t.o.Seed, Bins: t.o.Bins})
			if err != nil {
				o.reason[name] = err.Error()
				continue
			}
			trained[name] = m
			for _, i := range f.test {
				o.pred[name] = append(o.pred[name], m.Predict(tab, i))
			}
		}
		if t.name == loadUp {
			t.drawStages(tab, trained, f)
		}
	}
	for name := range o.reason {
		delete(o.pred, name) // a fold is missing
	}
	o.setBlocks(a, t.split.folds)
	return nil
}

// tableOf is the table with the physics estimates of a fold, or why there are none.
func (t *task) tableOf(f *fold) (*model.Table, string) {
	key := t.name + "/" + f.name
	tab := *t.all.table
	e := t.estimates[key]
	if e == nil {
		return &tab, t.reasons[key]
	}
	tab.Physics = t.physicsOf(e)
	return &tab, ""
}

// physicsOf are the estimates of the task's rows.
func (t *task) physicsOf(e []Estimates) []float64 {
	out := make([]float64, len(t.all.samples))
	for i, s := range t.all.samples {
		v := e[s.run].TTFT
		if t.target == Targets[1] {
			v = e[s.run].TPOT
		}
		out[i] = math.NaN()
		if v != nil && v[s.at] > 0 {
			out[i] = v[s.at]
		}
	}
	return out
}

// sampled draws the stratified sample of the training rows and their weights.
func (t *task) sampled(train []int) (rows []int, w []float64) {
	return stratified(t.all.table, train, t.o.Weights, t.o.Recency == newest, t.o.Seed)
}

// stratified keeps at most decision.BucketRows rows of each bucket, in the order
// they came, with their weights.
func stratified(t *model.Table, train []int, weights string, isNewest bool, seed uint64) (rows []int, w []float64) {
	r := decision.NewReservoir[int](decision.Buckets, decision.BucketRows, seed, isNewest)
	for _, i := range train {
		r.Add(t.Bucket[i], i)
	}
	weight := map[int]float64{}
	r.Each(func(_ int, i int, seen float64) {
		rows = append(rows, i)
		switch weights {
		case flat:
			seen = 1
		case sqrt:
			seen = math.Sqrt(seen)
		}
		weight[i] = seen
	})
	slices.Sort(rows)
	for _, i := range rows {
		w = append(w, weight[i])
	}
	return rows, w
}

// nearestOf is the median target of the ten nearest other test rows, columns
// standardised: what no model of these columns can be expected to beat by much.
func nearestOf(t *model.Table, rows []int) []float64 {
	points := make([]float64, len(rows)*len(t.X))
	level := make([]float64, len(rows))
	for c := range t.X {
		mean, scale := model.Moments(t.X[c], rows)
		for k, i := range rows {
			points[k*len(t.X)+c] = model.Standardised(t.X[c][i], mean, scale)
		}
	}
	for k, i := range rows {
		level[k] = t.Y[i]
	}
	n := stat.NewNeighbours(points, len(t.X), level)
	out := make([]float64, len(rows))
	for k := range out {
		out[k] = n.Median(k)
	}
	return out
}

// addTo puts the task's figures into the document.
func (t *task) addTo(doc *result.PredictorScores) {
	s := result.PredictorSplit{Scope: t.scope, Target: t.target, Name: t.name, Question: questions[t.name], Reason: t.split.reason,
		Dropped: t.split.dropped, Groups: t.split.groups, Digest: t.all.digestOf(&t.split)}
	for _, f := range t.split.folds {
		s.Train, s.Test = s.Train+len(f.train), s.Test+len(f.test)
	}
	if o := t.outcome; o != nil {
		above := 0.0
		for i, y := range o.y {
			if y > o.most[i] {
				above++
			}
		}
		s.AboveMax = result.OrNull(above / float64(len(o.y)))
		s.BlockRows = len(o.y) / max(1, o.blocks())
	}
	if len(t.split.folds) == 1 {
		s.Unused = len(t.all.samples) - s.Train - s.Test - s.Dropped
	}
	if s.Groups == nil {
		s.Groups = []string{}
	}
	doc.Splits = append(doc.Splits, s)
	for _, c := range t.cells {
		c.Scope, c.Target, c.Split = t.scope, t.target, t.name
		doc.Cells = append(doc.Cells, c)
	}
	for _, c := range t.contrasts {
		c.Scope, c.Target, c.Split = t.scope, t.target, t.name
		doc.Contrasts = append(doc.Contrasts, c)
	}
	doc.Strata = append(doc.Strata, t.strata...)
	doc.Calibration, doc.Emulation = append(doc.Calibration, t.coverage...), append(doc.Emulation, t.habits...)
	doc.Figures.Stages = append(doc.Figures.Stages, t.stages...)
}

// leastStratum is how many test rows of a kind have a figure of their own.
const leastStratum = 20

// stratify is the error of every model by queue, KV use and prefix.
func (t *task) stratify() {
	var kinds [len5][4][2][]int
	a, o := t.all, t.outcome
	for k, i := range o.rows {
		r := a.samples[i].row
		kv := min(3, max(0, int(4*r.KVCachePercentage)))
		prefix := 0
		if r.PrefixCacheScore >= 0.5 {
			prefix = 1
		}
		q := decision.QueueBucket(r.NumRequestWaiting)
		kinds[q][kv][prefix] = append(kinds[q][kv][prefix], k)
	}
	for q := range kinds {
		for kv := range kinds[q] {
			for prefix, rows := range kinds[q][kv] {
				if len(rows) < leastStratum {
					continue
				}
				s := result.PredictorStratum{Scope: t.scope, Target: t.target, Queue: decision.QueueNames[q],
					KV:     fmt.Sprintf("%d-%d %%", 25*kv, 25*kv+25),
					Prefix: []string{"< 0.5", ">= 0.5"}[prefix], Rows: len(rows), MAPE: map[string]*float64{}}
				for _, m := range t.o.Models {
					if o.pred[m] == nil {
						s.MAPE[m] = nil
						continue
					}
					apes := o.apes(o.pred[m])
					var mine []float64
					for _, k := range rows {
						mine = append(mine, apes[k])
					}
					s.MAPE[m] = result.OrNull(stat.Mean(mine))
				}
				t.strata = append(t.strata, s)
			}
		}
	}
}

const len5 = 5 // queue buckets

// drawStages are medians of measured and predicted by load stage.
func (t *task) drawStages(tab *model.Table, trained map[string]model.Model, f *fold) {
	isTest := map[int]bool{}
	for _, i := range f.test {
		isTest[i] = true
	}
	for _, st := range t.all.stages() {
		var y []float64
		for _, i := range st.rows {
			y = append(y, tab.Y[i])
		}
		s := result.PredictorStage{Scope: t.scope, Target: t.target, Split: t.name, Stage: st.name, RatePerS: st.rate, Rows: len(st.rows),
			IsTest: isTest[st.rows[0]], MeasuredMs: stat.Median(y), Predicted: map[string]float64{}}
		for name, m := range trained {
			var p []float64
			for _, i := range st.rows {
				p = append(p, m.Predict(tab, i))
			}
			if v := stat.Median(p); !math.IsNaN(v) {
				s.Predicted[name] = v
			}
		}
		t.stages = append(t.stages, s)
	}
}
