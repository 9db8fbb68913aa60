package predictor

// This file has the models that are compared: a constant, the physics, trees, and trees on the
// physics' errors.

import (
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/stat"
)

// modelDocs describes the models for the report.
var modelDocs = map[string]string{
	nameTrees:   "200 boosted trees of depth 6 on log(ms)",
	nameGated:   "two such forests, for rows without and with waiting requests, from 200 rows on each side",
	namePhysics: "a rollout of the scheduler with the coefficient file's step times; nothing is fitted here",
	nameResidual: "50 trees of depth 3 on log(ms / physics): all, half or none of them, by the last fifth of the " +
		"training rows",
}

// usesPhysics reports whether the model needs estimates in trainingColumns.Physics.
func usesPhysics(name string) bool { return name == namePhysics || name == nameResidual }

// leastGated is the number of rows without and with waiting requests that each of the two forests
// of the gated model needs.
const leastGated = 200

// model predicts a latency in ms from row i of t.
type model interface {
	Predict(t *trainingColumns, i int) float64
}

// newModel returns the named model fitted to some rows of t with weights (nil: equal).
func newModel(name string, t *trainingColumns, rows []int, w []float64, o boostOptions) (model, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("model %s: got no training rows", name)
	}
	switch name {
	case nameTrees:
		return newTrees(t, rows, w, o)
	case nameGated:
		return newGated(t, rows, w, o)
	case nameResidual:
		return newResidual(t, rows, w, o)
	}
	return physics{}, nil
}

// constant predicts the median of the training rows, of the row's run or of all.
type constant struct {
	byRun map[int32]float64
	all   float64
}

// newConstant returns the lower median of the latency in each run, and in all.
func newConstant(t *trainingColumns, rows []int) *constant {
	median := func(v []float64) float64 {
		return stat.WeightedMedian(v, slices.Repeat([]float64{1}, len(v)))
	}
	values := map[int32][]float64{}
	var all []float64
	for _, i := range rows {
		values[t.Run[i]] = append(values[t.Run[i]], t.Y[i])
		all = append(all, t.Y[i])
	}
	c := &constant{byRun: map[int32]float64{}, all: median(all)}
	for run, v := range values {
		c.byRun[run] = median(v)
	}
	return c
}

// Predict returns the constant of the row's run, ms.
func (c *constant) Predict(t *trainingColumns, i int) float64 {
	if v, ok := c.byRun[t.Run[i]]; ok {
		return v
	}
	return c.all
}

// physics predicts with the estimates in trainingColumns.Physics.
type physics struct{}

// Predict returns the estimate of the row, ms.
func (physics) Predict(t *trainingColumns, i int) float64 { return t.Physics[i] }

// boosted is a forest of log(ms), or of log(ms / physics).
type boosted struct {
	Forest     forest.Forest
	IsResidual bool
	eval       *forest.Evaluator
}

// newTrees returns trees grown for log(ms).
func newTrees(t *trainingColumns, rows []int, w []float64, o boostOptions) (*boosted, error) {
	return boostLogs(t, rows, w, o, false)
}

// residualShares are the factors of the residual trees that newResidual tries.
var residualShares = []float64{0, 0.5, 1}

// newResidual returns 50 trees of depth 3 grown for log(measured / physics), scaled by one of
// residualShares: the one with which trees grown on the first 80 % of the rows have the smallest
// error on the rest. Residuals that are noise or drift then do not make the physics worse.
func newResidual(t *trainingColumns, rows []int, w []float64, o boostOptions) (*boosted, error) {
	o.Trees = 50
	o.Depth = 3
	weight := map[int]float64{} // by row
	var known []int             // rows with a physics estimate
	for k, i := range rows {
		if t.Physics[i] > 0 {
			known = append(known, i)
			weight[i] = 1
			if w != nil {
				weight[i] = w[k]
			}
		}
	}
	weights := func(rows []int) []float64 {
		out := make([]float64, len(rows))
		for k, i := range rows {
			out[k] = weight[i]
		}
		return out
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("model %s: no training row has a physics estimate", nameResidual)
	}
	// Which share of the trees to keep, by trees grown on the earlier rows and judged on the later.
	share := 1.0
	if head, tail := splitTail(t, known, 0.8); len(head) > 0 && len(tail) > 0 {
		trial, err := boostLogs(t, head, weights(head), o, true)
		if err != nil {
			return nil, err
		}
		share = trial.bestShare(t, tail, weights(tail))
	}
	b, err := boostLogs(t, known, weights(known), o, true)
	if err != nil {
		return nil, err
	}
	return loadBoosted(scaleForest(&b.Forest, share), len(t.X), true)
}

// bestShare returns the factor in residualShares on the trees with the smallest weighted MAPE on
// rows.
func (b *boosted) bestShare(t *trainingColumns, rows []int, w []float64) float64 {
	best, least := 0.0, math.Inf(1)
	x := make([]float64, len(t.X))
	for _, share := range residualShares {
		sum := 0.0
		for k, i := range rows {
			t.Row(i, x)
			sum += w[k] * math.Abs(t.Physics[i]*math.Exp(share*b.eval.Margin(x))/t.Y[i]-1)
		}
		if sum < least {
			best = share
			least = sum
		}
	}
	return best
}

// scaleForest returns a forest whose prediction is share times that of f. With share 0 it has no
// trees.
func scaleForest(f *forest.Forest, share float64) *forest.Forest {
	out := &forest.Forest{Base: share * f.Base, Trees: []forest.Tree{}}
	if share == 0 {
		return out
	}
	for _, t := range f.Trees {
		c := slices.Clone(t)
		for i := range c {
			if c[i].Feature == forest.Leaf {
				c[i].Value *= float32(share)
			}
		}
		out.Trees = append(out.Trees, c)
	}
	return out
}

// boostLogs returns trees grown for log(ms), or for log(ms / physics) if isResidual is set.
func boostLogs(t *trainingColumns, rows []int, w []float64, o boostOptions, isResidual bool) (*boosted, error) {
	m, err := newMatrix(t.pickColumns(rows), o.Bins)
	if err != nil {
		return nil, err
	}
	y := make([]float64, len(rows))
	for k, i := range rows {
		y[k] = math.Log(t.Y[i])
		if isResidual {
			y[k] -= math.Log(t.Physics[i])
		}
	}
	f, err := growForest(m, y, w, o)
	if err != nil {
		return nil, err
	}
	return loadBoosted(f, len(t.X), isResidual)
}

// loadBoosted returns a finished forest as a model.
func loadBoosted(f *forest.Forest, columns int, isResidual bool) (*boosted, error) {
	e, err := f.Compile(columns)
	if err != nil {
		return nil, err
	}
	return &boosted{Forest: *f, IsResidual: isResidual, eval: e}, nil
}

// Predict returns the forest's prediction in ms.
func (b *boosted) Predict(t *trainingColumns, i int) float64 {
	x := make([]float64, len(t.X))
	t.Row(i, x)
	ms := math.Exp(b.eval.Margin(x))
	if b.IsResidual {
		ms *= t.Physics[i]
	}
	return ms
}

// gated has two forests: one for rows with an empty waiting queue, one for the others. Both are the
// same forest where one side has fewer than leastGated rows.
type gated struct{ Idle, Queued *boosted }

// newGated grows the two forests.
func newGated(t *trainingColumns, rows []int, w []float64, o boostOptions) (*gated, error) {
	var side [2][]int        // rows without and with waiting requests
	var weights [2][]float64 // of these
	for k, i := range rows {
		s := 0
		if t.IsQueued(i) {
			s = 1
		}
		side[s] = append(side[s], i)
		if w != nil {
			weights[s] = append(weights[s], w[k])
		}
	}
	// Too few rows on one side: one forest for both.
	if min(len(side[0]), len(side[1])) < leastGated {
		both, err := newTrees(t, rows, w, o)
		return &gated{Idle: both, Queued: both}, err
	}
	idle, err := newTrees(t, side[0], weights[0], o)
	if err != nil {
		return nil, err
	}
	queued, err := newTrees(t, side[1], weights[1], o)
	return &gated{Idle: idle, Queued: queued}, err
}

// Predict returns the prediction of the forest for the row's queue, ms.
func (g *gated) Predict(t *trainingColumns, i int) float64 {
	if t.IsQueued(i) {
		return g.Queued.Predict(t, i)
	}
	return g.Idle.Predict(t, i)
}

// modelsOf returns the models that a predictor file has for a target, by name.
func modelsOf(t *forest.Target) (map[string]model, error) {
	held := map[*forest.Forest]*boosted{}
	for _, f := range []*forest.Forest{t.Trees, t.Idle, t.Queued, t.Residual} {
		if f == nil {
			continue
		}
		var err error
		if held[f], err = loadBoosted(f, len(t.Columns), f == t.Residual); err != nil {
			return nil, err
		}
	}
	trees := held[t.Trees]
	out := map[string]model{
		nameTrees:   trees,
		namePhysics: physics{},
		nameGated:   &gated{Idle: trees, Queued: trees}, // a file without the two forests had too few rows for them
	}
	if t.Idle != nil && t.Queued != nil {
		out[nameGated] = &gated{Idle: held[t.Idle], Queued: held[t.Queued]}
	}
	if t.Residual != nil {
		out[nameResidual] = held[t.Residual]
	}
	return out, nil
}

// Names of the models.
const (
	nameTrees    = "trees"
	nameGated    = "trees-gated"
	namePhysics  = "physics"
	nameResidual = "physics+trees"
)
