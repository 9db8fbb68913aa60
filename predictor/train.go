package predictor

// This file trains a predictor and chooses its options by held-out rows.

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/blis-train/blis-train/coeff/forest"
	"github.com/blis-train/blis-train/internal/par"
)

// Weights of the stratified sample's rows.
const (
	weightsNatural = "natural" // seen / kept of the bucket: the mix of the traffic
	weightsFlat    = "flat"    // 1: the mix of the buckets
	weightsSqrt    = "sqrt"    // the square root of the first
)

// The predicted latencies, as in the documents.
const (
	targetTTFT = "ttft_ms"
	targetTPOT = "tpot_ms"
	targetE2E  = "e2e_ms"
)

// targetsOf returns the latencies that are predicted with an option --target.
func targetsOf(target string) []string {
	if target == TargetE2E {
		return []string{targetE2E}
	}
	return []string{targetTTFT, targetTPOT}
}

const (
	trainShare      = 0.8 // of each run, by time
	leastPart       = 30  // rows that training and test need
	calibratedLevel = 0.9 // the quantile that is calibrated
)

// forestLevels are the quantiles of the quantile forests.
var forestLevels = []float64{0.5, 0.9, 0.99}

// runRows are one run's rows.
type runRows struct {
	ID, Config string
	Rows       []Row
}

// testStartNs returns the decision time of the first row held out.
func (r *runRows) testStartNs() int64 {
	if len(r.Rows) == 0 {
		return math.MaxInt64
	}
	return r.Rows[min(len(r.Rows)-1, int(trainShare*float64(len(r.Rows))))].DecisionNs
}

// hidden is an interval of a run that may not be used to fit coefficients, because its rows are
// held out.
type hidden struct {
	Run            string
	StartNs, EndNs int64
}

// hiddenTails returns the hidden interval of each run, from its first test row on.
func hiddenTails(runs []*runRows) (out []hidden) {
	for _, r := range runs {
		out = append(out, hidden{Run: r.ID, StartNs: r.testStartNs(), EndNs: math.MaxInt64})
	}
	return out
}

// estimates are physics estimates of a run's rows in ms, by target and row.
type estimates map[string][]float64

// estimator is a function that returns estimates for every row of the runs, with coefficients that
// were fitted without the hidden intervals; nil hides nothing.
type estimator func(ctx context.Context, hide []hidden) ([]estimates, error)

// TrainOptions decide a training.
type TrainOptions struct {
	Weights string // natural, flat or sqrt
	Seed    uint64
	Workers int // 0: every core
	// BucketRows is the limit of rows of a bucket that trees are grown on: a number, none, or auto.
	// auto takes the one of 500, 2000 and none that is best on later training rows, by target.
	BucketRows string
	// PhysicsReason is why there are no coefficients.
	PhysicsReason string

	features string
	targets  []string
	bins     int
	physics  estimator // nil: none
	isRefit  bool      // physics refits its coefficients without the hidden stretches
}

// DefaultTrainOptions returns options for training without physics, with rows weighted as in the
// traffic.
func DefaultTrainOptions() TrainOptions {
	return TrainOptions{
		Weights:       weightsNatural,
		Seed:          1,
		BucketRows:    "auto",
		PhysicsReason: "no coefficients were given",
		features:      featuresFull,
		targets:       targetsOf(TargetToken),
		bins:          MaxBins,
	}
}

// Check returns an error for the first option out of bounds.
func (o *TrainOptions) Check() error {
	if o.Weights != weightsNatural && o.Weights != weightsFlat && o.Weights != weightsSqrt {
		return fmt.Errorf("--weights: got %q, want %s, %s or %s", o.Weights, weightsNatural, weightsFlat, weightsSqrt)
	}
	if o.BucketRows != "auto" && o.BucketRows != "none" {
		if n, err := strconv.Atoi(o.BucketRows); err != nil || n < 1 {
			return fmt.Errorf("--bucket-rows: got %q, want a number from 1 up, none or auto", o.BucketRows)
		}
	}
	return nil
}

// boost returns the settings for growing trees.
func (o *TrainOptions) boost() boostOptions {
	opt := defaultBoost()
	opt.Seed = o.Seed
	opt.Bins = o.bins
	return opt
}

// train returns the models for predictor.json and their scores on the last fifth of each run.
// Forests are grown on the rows before; the conformal factors of the file come from the rows held
// out.
func train(ctx context.Context, runs []*runRows, o TrainOptions) ([]forest.Target, *Scores, error) {
	// Physics estimates, with coefficients that did not see the rows held out.
	var physics []estimates
	why := o.PhysicsReason
	if o.physics != nil {
		var hide []hidden
		if o.isRefit {
			hide = hiddenTails(runs)
		}
		var err error
		physics, err = o.physics(ctx, hide)
		if ctx.Err() != nil {
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
		a := gatherRows(runs, o.targets[i], o.features)
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

// train returns the forests of one target and adds their scores to doc; nil if there are too few
// rows. why is the reason if there is no physics.
func (a *rowSet) train(ctx context.Context, target string, o *TrainOptions, hasPhysics bool, why string,
	doc *Scores) (*forest.Target, error) {
	early, test, dropped := a.byTime() // the rows before and after the border in each run
	if len(early) < leastPart || len(test) < leastPart {
		doc.HoldOut = []HoldOut{{
			Scope:   scopeAll,
			Target:  target,
			Train:   len(early),
			Test:    len(test),
			Dropped: dropped,
			Reason: fmt.Sprintf("%d training and %d test rows, want %d of each",
				len(early), len(test), leastPart),
		}}
		return nil, nil
	}
	table := a.table
	most, err := o.rowsPerBucket(table, early)
	if err != nil {
		return nil, err
	}
	rows, weights := stratified(table, early, most, o.Weights, o.Seed)
	opt := o.boost()
	names := []string{nameTrees, nameGated}
	judging := &judged{
		models: map[string]model{},
		upper:  map[string]func(int) float64{},
		reason: map[string]string{},
		early:  early,
	}
	if hasPhysics {
		names = append(names, nameResidual, namePhysics)
	} else {
		judging.reason[namePhysics] = why
		judging.reason[nameResidual] = why
	}
	out := &forest.Target{
		Name:      target,
		Unit:      "ms",
		Columns:   columnsFor(table, early),
		Quantiles: []forest.LevelForest{},
		Factors:   []forest.LevelFactors{},
	}
	// Every model is grown on the training rows; its conformal factors come from the rows held out.
	head, tail := splitTail(table, early, trainShare)
	for _, name := range names {
		m, err := newModel(name, table, rows, weights, opt)
		if err != nil {
			return nil, err
		}
		judging.models[name] = m
		if g, ok := m.(*gated); !ok || g.Idle != g.Queued { // else it is the model trees
			if f := conformal(table, m, test, calibratedLevel); !math.IsNaN(f.Factors[0]) {
				f.Model = name
				out.Factors = append(out.Factors, f)
			}
		}
		if len(head) < leastPart || len(tail) < leastPart {
			continue
		}
		// The factors of the file come from the test rows, so their coverage is measured with a
		// model and factors made from the training rows alone.
		part, partWeights := stratified(table, head, most, o.Weights, o.Seed)
		before, err := newModel(name, table, part, partWeights, opt)
		if err != nil {
			return nil, err
		}
		f := conformal(table, before, tail, calibratedLevel)
		judging.upper[name] = func(i int) float64 { return calibrated(&f, table, before, i) }
	}
	// The forests of the file: for the mean, without and with waiting requests if those differ, for the
	// factor on physics, and for each quantile.
	out.Trees = &judging.models[nameTrees].(*boosted).Forest
	if g := judging.models[nameGated].(*gated); g.Idle != g.Queued {
		out.Idle = &g.Idle.Forest
		out.Queued = &g.Queued.Forest
	}
	if m := judging.models[nameResidual]; m != nil {
		out.Residual = &m.(*boosted).Forest
	}
	for _, level := range forestLevels {
		opt.Quantile = level
		q, err := newTrees(table, rows, weights, opt)
		if err != nil {
			return nil, err
		}
		out.Quantiles = append(out.Quantiles, forest.LevelForest{Level: level, Forest: q.Forest})
	}
	a.scoreTarget(doc, target, judging, test, o.Seed)
	doc.HoldOut[0].Dropped = dropped // the first scope is all rows
	for i := range doc.HoldOut {
		h := &doc.HoldOut[i]
		h.Bucket = most
		h.Grown = len(a.inScope(h.Scope, rows))
	}
	return out, ctx.Err()
}

// columnsFor returns the columns with their range in the training rows.
func columnsFor(t *trainingColumns, train []int) []forest.Column {
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
