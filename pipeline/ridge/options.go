package ridge

// This file has the options of a fit.

import (
	"cmp"
	"math"

	"github.com/blis-train/blis-train/internal/par"
)

// Objective is the score that chooses lambda.
type Objective string

// The objectives. Auto is Within for one or two configurations, else Cross.
const (
	Auto    Objective = ""
	Within  Objective = "within"  // mean score of blocks of time held out; one-standard-error rule unless SmallestWithin
	Cross   Objective = "cross"   // mean score of held-out configurations
	Minimax Objective = "minimax" // worst score of held-out configurations
)

// Options are the choices of a fit that do not come from its rows.
type Options struct {
	Penalty []float64 // d_j > 0, one per column
	// Precision replaces Penalty if it is set: the inverse covariance of the coefficients
	// about Prior, symmetric and positive definite, row-major. The penalty is then
	// lambda (beta-prior)' Precision (beta-prior), so that correlations determine a
	// column without data from the others. Interval fits ignore it.
	Precision []float64
	Posterior bool   // Precision is that of a real prior: the answer is the posterior mean
	Free      []bool // terms without sign constraint; nil: none
	// Upper are the largest values of the coefficients with a sign constraint; 0 removes a
	// term, +Inf does not limit it. nil: no limits. Interval fits ignore it.
	Upper []float64
	Prior []float64 // prior coefficients; nil: 0
	EpsUs float64   // floor of the weights' denominator per step, us, > 0
	// Proportional takes the variance of a target to be proportional to its size, and not to its
	// square. lambda is chosen with equal weights inside a cell, and FitPublished gives the mean of
	// robustMean. Queueing delays need it, because they differ by orders of magnitude at the same
	// features: weights that contain the target give nearly all weight to the shortest of them, and
	// everything is predicted as 0.
	Proportional bool
	Lambdas      []float64 // penalty grid, ascending, > 0
	MinCellRows  int       // a regime with fewer rows joins the largest of its configuration
	Folds        int       // forward folds; blocks are one more
	// EachBlock scores lambda on every block in turn, after training on all others, in
	// place of the forward folds. Interval fits and the frozen recipe ignore it.
	EachBlock   bool
	EmbargoRows int // training rows of a run dropped before a validation block
	Objective   Objective
	// SmallestWithin selects the lambda of the smallest Within score, instead of the
	// largest lambda within one standard error of it.
	SmallestWithin bool
	// SpreadUs is the spread of the target about x.beta that interval fits expect,
	// us; 0: none, an interval pulls from outside only.
	SpreadUs float64
	// Anchor are coefficients known up to a factor: interval fits take the multiple
	// of them that meets their rows best as their prior, in place of Prior; nil: Prior.
	Anchor []float64
	// AnchorTight pulls that multiple toward 1, us^2 (see Bounds.Multiple); 0: no pull.
	AnchorTight float64
	Draws       int     // of the block bootstrap of intervals
	Level       float64 // coverage of intervals; 0: 0.95
	Seed        uint64
	SkipNested  bool // leave Selection.Nested nil: no fits with two held-out configurations
	Workers     int  // goroutines; 0: all processors. Never changes a result
}

// DefaultLambdas returns the grid 1e-6, 3e-6, ..., 0.3, 1.
func DefaultLambdas() []float64 {
	return []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1}
}

// DefaultOptions returns the options for p columns, all signed, penalty 1, no prior.
func DefaultOptions(p int) Options {
	o := Options{
		Penalty:     make([]float64, p),
		EpsUs:       50,
		Lambdas:     DefaultLambdas(),
		MinCellRows: 20,
		Folds:       5,
		Draws:       500,
		Seed:        1,
	}
	for j := range o.Penalty {
		o.Penalty[j] = 1
	}
	return o
}

// IsFree reports whether term j has no sign constraint.
func (o *Options) IsFree(j int) bool { return o.Free != nil && o.Free[j] }

// PriorOf returns the prior coefficient of term j, 0 without one.
func (o *Options) PriorOf(j int) float64 {
	if o.Prior == nil {
		return 0
	}
	return o.Prior[j]
}

// UpperOf returns the largest value of the coefficient of term j, +Inf without a limit.
func (o *Options) UpperOf(j int) float64 {
	if o.Upper == nil || o.IsFree(j) {
		return math.Inf(1)
	}
	return o.Upper[j]
}

// level returns the coverage of intervals.
func (o *Options) level() float64 { return cmp.Or(o.Level, level) }

// Threads returns how many goroutines to use.
func (o *Options) Threads() int { return par.Workers(o.Workers) }
