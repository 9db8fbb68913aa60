package predictor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/par"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/trace"
)

// Weights of the stratified sample's rows.
const (
	natural = "natural" // seen / kept of the bucket: the mix of the traffic
	flat    = "flat"    // 1: the mix of the buckets
	sqrt    = "sqrt"    // the square root of the first
)

// Names of what is predicted.
const (
	targetTTFT = "ttft_ms"
	targetTPOT = "tpot_ms"
	targetE2E  = "e2e_ms"
)

// targetsOf are the names of what rows of a target predict.
func targetsOf(target string) []string {
	if target == TargetE2E {
		return []string{targetE2E}
	}
	return []string{targetTTFT, targetTPOT}
}

const (
	trainShare = 0.8 // of each run, by time
	leastPart  = 30  // rows that training and test need
	level      = 0.9 // the quantile that is calibrated
)

// levels are the quantiles of the quantile forests.
var levels = []float64{0.5, 0.9, 0.99}

// runRows are one run's rows.
type runRows struct {
	ID, Config string
	Rows       []Row
}

// border is the decision time of the first row held out.
func (r *runRows) border() int64 {
	if len(r.Rows) == 0 {
		return math.MaxInt64
	}
	return r.Rows[min(len(r.Rows)-1, int(trainShare*float64(len(r.Rows))))].DecisionNs
}

// hidden is a stretch of a run that coefficients may not have seen.
type hidden struct {
	Run            string
	StartNs, EndNs int64
}

// hiddenTails are the stretches held out.
func hiddenTails(runs []*runRows) (out []hidden) {
	return stat.Map(runs, func(r *runRows) hidden { return hidden{r.ID, r.border(), math.MaxInt64} })
}

// estimates are physics estimates of a run's rows in ms, by target and row.
type estimates map[string][]float64

// estimator estimates every row of the runs with coefficients that did not see what
// is hidden; nil hides nothing.
type estimator func(ctx context.Context, hide []hidden) ([]estimates, error)

// TrainOptions decide a training.
type TrainOptions struct {
	Weights string // natural, flat or sqrt
	Seed    uint64
	Workers int
	// BucketRows is the most rows of a bucket that trees are grown on: a number, none, or auto: whichever of 500, 2000 and none
	// does best on later training rows, for each target.
	BucketRows string
	// PhysicsReason says why there are no coefficients.
	PhysicsReason string

	features string
	targets  []string
	bins     int
	physics  estimator // nil: none
	isRefit  bool      // physics obeys what is hidden
}

// DefaultTrainOptions are everything but physics.
func DefaultTrainOptions() TrainOptions {
	return TrainOptions{Weights: natural, Seed: 1, BucketRows: "auto", bins: MaxBins, PhysicsReason: "no coefficients were given",
		features: featuresFull, targets: targetsOf(TargetToken)}
}

// Check names the first option out of bounds.
func (o *TrainOptions) Check() error {
	if o.Weights != natural && o.Weights != flat && o.Weights != sqrt {
		return fmt.Errorf("--weights: got %q, want %s, %s or %s", o.Weights, natural, flat, sqrt)
	}
	if n, err := strconv.Atoi(o.BucketRows); o.BucketRows != "auto" && o.BucketRows != "none" && (err != nil || n < 1) {
		return fmt.Errorf("--bucket-rows: got %q, want a number from 1 up, none or auto", o.BucketRows)
	}
	return nil
}

// boost are the settings of trees.
func (o *TrainOptions) boost() boostOptions {
	opt := defaultBoost()
	opt.Seed, opt.Bins = o.Seed, o.bins
	return opt
}

// sample is a row and where it comes from.
type sample struct {
	run, at int // run, and place in its Rows
	row     *Row
}

// rowSet are the rows that have a target, in the order of runs and time.
type rowSet struct {
	runs    []*runRows
	samples []sample
	table   *columns
}

// gather lays the rows of a target out.
func gather(runs []*runRows, target, features string) *rowSet {
	a := &rowSet{runs: runs}
	var rows []*Row
	var run []int32
	for k, x := range runs {
		for i := range x.Rows {
			if row := &x.Rows[i]; targetOf(row, target) > 0 {
				a.samples = append(a.samples, sample{k, i, row})
				rows = append(rows, row)
				run = append(run, int32(k))
			}
		}
	}
	a.table = newColumns(target, features, rows, run)
	return a
}

// targetOf is what happened to a row's request, ms; 0 when it is unknown.
func targetOf(r *Row, target string) float64 {
	switch target {
	case targetTTFT:
		return r.TTFTMs
	case targetTPOT:
		return r.TPOTMs.Or(0)
	}
	return r.E2EMs.Or(0)
}

// setPhysics puts the estimates of a target into the table.
func (a *rowSet) setPhysics(e []estimates, target string) {
	for i, s := range a.samples {
		a.table.Physics[i] = math.NaN()
		if v := e[s.run][target]; v != nil && v[s.at] > 0 {
			a.table.Physics[i] = v[s.at]
		}
	}
}

// byTime takes the first rows of each run for training, without those whose request
// was alive when the test began (spec#predictor-splits).
func (a *rowSet) byTime() (train, test []int, dropped int) {
	for i, x := range a.samples {
		border := a.runs[x.run].border()
		switch {
		case x.row.DecisionNs >= border:
			test = append(test, i)
		case !x.row.DepartedNs.OK || x.row.DepartedNs.V >= border:
			dropped++
		default:
			train = append(train, i)
		}
	}
	return train, test, dropped
}

// stratified keeps at most so many rows of each bucket (0: all), in the order
// they came, with their weights.
func stratified(t *columns, train []int, most int, weights string, seed uint64) (rows []int, w []float64) {
	r := newReservoir[int](buckets, cmp.Or(most, max(1, len(train))), seed)
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
	return rows, stat.Map(rows, func(i int) float64 { return weight[i] })
}

// rowsPerBucket is the most rows of a bucket to grow trees on. auto grows trees of each limit on the rows before the last two
// fifths and the last fifth of the training time, and takes the one with the least mean error on the fifths that follow.
func (o *TrainOptions) rowsPerBucket(tab *columns, early []int) (int, error) {
	if o.BucketRows != "auto" {
		n, _ := strconv.Atoi(o.BucketRows) // none: 0
		return n, nil
	}
	best, least := bucketRows, math.Inf(1)
	before := -1
	for _, most := range []int{bucketRows, 2000, 0} {
		sum := 0.0
		n := 0.0
		grown := 0
		for _, share := range []float64{0.6, 0.8} {
			head, rest := splitTail(tab, early, share)
			next, _ := splitTail(tab, rest, 0.2/(1-share))
			rows, w := stratified(tab, head, most, o.Weights, o.Seed)
			if grown += len(rows); len(head) < leastPart || len(next) < leastPart {
				return best, nil
			}
			m, err := newTrees(tab, rows, w, o.boost())
			if err != nil {
				return 0, err
			}
			for _, i := range next {
				sum = sum + math.Abs(m.Predict(tab, i)/tab.Y[i]-1)
				n += 1
			}
		}
		if grown == before { // the limit binds nowhere
			break
		}
		if before = grown; sum/n < least {
			best, least = most, sum/n
		}
	}
	return best, nil
}

// nearestOf is the median target of the ten nearest other test rows, columns
// standardised: what no model of these columns can be expected to beat by much.
func nearestOf(t *columns, rows []int) []float64 {
	points := make([]float64, len(rows)*len(t.X))
	for c := range t.X {
		mean, scale := moments(t.X[c], rows)
		for k, i := range rows {
			points[k*len(t.X)+c] = standardised(t.X[c][i], mean, scale)
		}
	}
	n := stat.NewNeighbours(points, len(t.X), stat.Map(rows, func(i int) float64 { return t.Y[i] }))
	out := make([]float64, len(rows))
	for k := range out {
		out[k] = n.Median(k)
	}
	return out
}

// train grows what predictor.json holds and scores it on the last fifth of each run:
// forests on the rows before, conformal factors of the file from the rows held out.
func train(ctx context.Context, runs []*runRows, o TrainOptions) ([]forest.Target, *Scores, error) {
	var physics []estimates
	why := o.PhysicsReason
	if o.physics != nil {
		var hide []hidden
		if o.isRefit {
			hide = hiddenTails(runs)
		}
		var err error
		if physics, err = o.physics(ctx, hide); ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if err != nil {
			physics = nil
			why = "coefficients cannot be fitted without the test rows: " + err.Error()
		}
	}
	targets := make([]*forest.Target, len(o.targets))
	parts := make([]Scores, len(o.targets))
	err := par.Try(ctx, o.Workers, len(o.targets), func(i int) (err error) {
		a := gather(runs, o.targets[i], o.features)
		if physics != nil {
			a.setPhysics(physics, o.targets[i])
		}
		targets[i], err = a.train(ctx, o.targets[i], &o, physics != nil, why, &parts[i])
		return err
	}, func(int) {})
	if err != nil {
		return nil, nil, err
	}
	doc := newScores()
	var out []forest.Target
	for i, t := range targets {
		doc.HoldOut = append(doc.HoldOut, parts[i].HoldOut...)
		doc.Models = append(doc.Models, parts[i].Models...)
		if t != nil {
			out = append(out, *t)
		}
	}
	if targets[0] == nil {
		return nil, nil, fmt.Errorf("no predictor can be trained: %s", doc.HoldOut[0].Reason)
	}
	return out, doc, nil
}

// train grows the forests of one target; nil when there are too few rows.
func (a *rowSet) train(ctx context.Context, target string, o *TrainOptions, hasPhysics bool, why string,
	doc *Scores) (*forest.Target, error) {
	early, test, dropped := a.byTime()
	if len(early) < leastPart || len(test) < leastPart {
		doc.HoldOut = []HoldOut{{Scope: scopeAll, Target: target, Train: len(early), Test: len(test), Dropped: dropped,
			Reason: fmt.Sprintf("%d training and %d test rows, want %d of each", len(early), len(test), leastPart)}}
		return nil, nil
	}
	tab := a.table
	most, err := o.rowsPerBucket(tab, early)
	if err != nil {
		return nil, err
	}
	rows, w := stratified(tab, early, most, o.Weights, o.Seed)
	opt := o.boost()
	names := []string{nameTrees, nameGated}
	j := &judged{models: map[string]model{}, upper: map[string]func(int) float64{}, reason: map[string]string{}, early: early}
	if hasPhysics {
		names = append(names, nameResidual, namePhysics)
	} else {
		j.reason[namePhysics], j.reason[nameResidual] = why, why
	}
	out := &forest.Target{Name: target, Unit: "ms", Columns: columnsFor(tab, early), Quantiles: []forest.LevelForest{},
		Factors: []forest.LevelFactors{}}
	head, tail := splitTail(tab, early, trainShare)
	for _, name := range names {
		m, err := newModel(name, tab, rows, w, opt)
		if err != nil {
			return nil, err
		}
		j.models[name] = m
		if g, ok := m.(*gated); !ok || g.Idle != g.Queued {
			if f := conformal(tab, m, test, level); !math.IsNaN(f.Factors[0]) {
				f.Model = name
				out.Factors = append(out.Factors, f)
			}
		}
		if len(head) < leastPart || len(tail) < leastPart {
			continue
		}
		// P90 is judged on factors that the test rows did not set.
		part, weights := stratified(tab, head, most, o.Weights, o.Seed)
		before, err := newModel(name, tab, part, weights, opt)
		if err != nil {
			return nil, err
		}
		f := conformal(tab, before, tail, level)
		j.upper[name] = func(i int) float64 { return calibrated(&f, tab, before, i) }
	}
	out.Trees = &j.models[nameTrees].(*boosted).Forest
	if g := j.models[nameGated].(*gated); g.Idle != g.Queued {
		out.Idle = &g.Idle.Forest
		out.Queued = &g.Queued.Forest
	}
	if m := j.models[nameResidual]; m != nil {
		out.Residual = &m.(*boosted).Forest
	}
	for _, opt.Quantile = range levels {
		q, err := newTrees(tab, rows, w, opt)
		if err != nil {
			return nil, err
		}
		out.Quantiles = append(out.Quantiles, forest.LevelForest{Level: opt.Quantile, Forest: q.Forest})
	}
	a.judge(doc, target, j, test, o.Seed)
	doc.HoldOut[0].Dropped = dropped
	for i := range doc.HoldOut {
		doc.HoldOut[i].Bucket, doc.HoldOut[i].Grown = most, len(a.inScope(doc.HoldOut[i].Scope, rows))
	}
	return out, ctx.Err()
}

// columnsFor describes the columns and what training saw of them.
func columnsFor(t *columns, train []int) []forest.Column {
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
		f.Min, f.Max = lo, hi
		out = append(out, f.Column)
	}
	return out
}

// Names of the models.
const (
	nameTrees    = "trees"
	nameGated    = "trees-gated"
	namePhysics  = "physics"
	nameResidual = "physics+trees"
)

// modelDocs says of each model what it is.
var modelDocs = map[string]string{
	nameTrees:    "200 boosted trees of depth 6 on log(ms)",
	nameGated:    "two such forests, for rows where nobody and where somebody waits, from 200 rows on each side",
	namePhysics:  "a rollout of the scheduler with the coefficient file's step times; nothing is fitted here",
	nameResidual: "50 trees of depth 3 on log(ms / physics): all, half or none of them, by the last fifth of the training rows",
}

// usesPhysics reports whether a model needs estimates in Table.Physics.
func usesPhysics(name string) bool { return name == namePhysics || name == nameResidual }

// leastGated is how many rows each side of the queue needs for a forest of its own.
const leastGated = 200

// model predicts ms from a row of a table.
type model interface {
	Predict(t *columns, i int) float64
}

// newModel fits the named model on some rows of a table with weights (nil: equal).
func newModel(name string, t *columns, rows []int, w []float64, o boostOptions) (model, error) {
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

type constant struct {
	byRun map[int32]float64
	all   float64
}

// newConstant is the lower median of each run, and of all.
func newConstant(t *columns, rows []int) *constant {
	median := func(v []float64) float64 { return stat.WeightedMedian(v, slices.Repeat([]float64{1}, len(v))) }
	values := map[int32][]float64{}
	var all []float64
	for _, i := range rows {
		values[t.Run[i]], all = append(values[t.Run[i]], t.Y[i]), append(all, t.Y[i])
	}
	c := &constant{byRun: map[int32]float64{}, all: median(all)}
	for run, v := range values {
		c.byRun[run] = median(v)
	}
	return c
}

func (c *constant) Predict(t *columns, i int) float64 {
	if v, ok := c.byRun[t.Run[i]]; ok {
		return v
	}
	return c.all
}

// physics is what is in the table already.
type physics struct{}

func (physics) Predict(t *columns, i int) float64 { return t.Physics[i] }

// boosted is a forest of log(ms), or of log(ms / physics).
type boosted struct {
	Forest     forest.Forest
	IsResidual bool
	eval       *forest.Evaluator
}

// newTrees grows trees of log(ms).
func newTrees(t *columns, rows []int, w []float64, o boostOptions) (*boosted, error) {
	return boostLogs(t, rows, w, o, false)
}

// residualShares are how much of the residual trees may be used.
var residualShares = []float64{0, 0.5, 1}

// newResidual grows 50 trees of depth 3 on what physics leaves, and uses as much of
// them as trees grown on the first 80 % of the rows helped on the rest: what is only
// noise, or drifts away, is left to physics.
func newResidual(t *columns, rows []int, w []float64, o boostOptions) (*boosted, error) {
	o.Trees, o.Depth = 50, 3
	weight := map[int]float64{}
	var known []int
	for k, i := range rows {
		if t.Physics[i] > 0 {
			known = append(known, i)
			weight[i] = 1
			if w != nil {
				weight[i] = w[k]
			}
		}
	}
	weights := func(rows []int) []float64 { return stat.Map(rows, func(i int) float64 { return weight[i] }) }
	if len(known) == 0 {
		return nil, fmt.Errorf("model %s: no training row has a physics estimate", nameResidual)
	}
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
	return loaded(scaled(&b.Forest, share), len(t.X), true)
}

// bestShare is the share of the trees with the smallest weighted MAPE on rows.
func (b *boosted) bestShare(t *columns, rows []int, w []float64) float64 {
	best, least := 0.0, math.Inf(1)
	x := make([]float64, len(t.X))
	for _, share := range residualShares {
		sum := 0.0
		for k, i := range rows {
			t.Row(i, x)
			sum += w[k] * math.Abs(t.Physics[i]*math.Exp(share*b.eval.Margin(x))/t.Y[i]-1)
		}
		if sum < least {
			best, least = share, sum
		}
	}
	return best
}

// scaled is a forest whose sum is a share of the given one's; no trees for none.
func scaled(f *forest.Forest, share float64) *forest.Forest {
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

// boostLogs grows trees of log(ms), or of log(ms / physics).
func boostLogs(t *columns, rows []int, w []float64, o boostOptions, isResidual bool) (*boosted, error) {
	m, err := newMatrix(t.pick(rows), o.Bins)
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
	return loaded(f, len(t.X), isResidual)
}

// loaded makes a finished forest a model.
func loaded(f *forest.Forest, columns int, isResidual bool) (*boosted, error) {
	e, err := f.Compile(columns)
	if err != nil {
		return nil, err
	}
	return &boosted{Forest: *f, IsResidual: isResidual, eval: e}, nil
}

// Predict implements Model.
func (b *boosted) Predict(t *columns, i int) float64 {
	x := make([]float64, len(t.X))
	t.Row(i, x)
	ms := math.Exp(b.eval.Margin(x))
	if b.IsResidual {
		ms *= t.Physics[i]
	}
	return ms
}

// gated are two forests by the queue: of rows where nobody waits, and where somebody does. They are one where a side has too few rows.
type gated struct{ Idle, Queued *boosted }

func newGated(t *columns, rows []int, w []float64, o boostOptions) (*gated, error) {
	var side [2][]int
	var weights [2][]float64
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
	if min(len(side[0]), len(side[1])) < leastGated {
		both, err := newTrees(t, rows, w, o)
		return &gated{both, both}, err
	}
	idle, err := newTrees(t, side[0], weights[0], o)
	if err != nil {
		return nil, err
	}
	queued, err := newTrees(t, side[1], weights[1], o)
	return &gated{idle, queued}, err
}

// Predict implements Model.
func (g *gated) Predict(t *columns, i int) float64 {
	if t.IsQueued(i) {
		return g.Queued.Predict(t, i)
	}
	return g.Idle.Predict(t, i)
}

// modelsOf are the models that a predictor file holds, by name.
func modelsOf(t *forest.Target) (map[string]model, error) {
	held := map[*forest.Forest]*boosted{}
	for _, f := range []*forest.Forest{t.Trees, t.Idle, t.Queued, t.Residual} {
		if f == nil {
			continue
		}
		var err error
		if held[f], err = loaded(f, len(t.Columns), f == t.Residual); err != nil {
			return nil, err
		}
	}
	trees := held[t.Trees]
	out := map[string]model{nameTrees: trees, namePhysics: physics{}, nameGated: &gated{trees, trees}}
	if t.Idle != nil && t.Queued != nil {
		out[nameGated] = &gated{held[t.Idle], held[t.Queued]}
	}
	if t.Residual != nil {
		out[nameResidual] = held[t.Residual]
	}
	return out, nil
}

// reason is why a request is no row. docs/predictor.md says what to do about each.
type reason string

// Reasons in the order they are tried.
const (
	noArrival          reason = "no_arrival"
	noEngineStamps     reason = "no_engine_stamps"
	noPromptLength     reason = "no_prompt_length"
	aborted            reason = "request_aborted"
	failed             reason = "request_failed"
	noFirstToken       reason = "no_first_token"
	noDeparture        reason = "no_departure"
	negativeLatency    reason = "negative_latency"
	warmUp             reason = "request_in_warm_up"
	saturated          reason = "request_while_saturated"
	incompleteJourneys reason = "incomplete_journeys"
	noState            reason = "no_state_before"
	staleState         reason = "stale_state"
	noKVState          reason = "no_kv_state"
	noPace             reason = "no_pace_yet"
	noBlockHashes      reason = "no_block_hashes"
	noCachedTokens     reason = "no_cached_tokens"
)

// codeTwoClocks says that arrivals were moved to the engine's clock.
const codeTwoClocks trace.Code = "decision_two_clocks"

// codeJudgedOnTraining says that a predictor is judged on what it was trained on.
const codeJudgedOnTraining trace.Code = "judged_on_training"

// codeOtherColumns says that there are columns which no router can feed.
const codeOtherColumns trace.Code = "other_columns"
