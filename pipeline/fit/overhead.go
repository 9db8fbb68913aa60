package fit

// This file fits the overhead, the time that the API server takes before a request is queued. It is
// known only within intervals, because vLLM stamps QUEUED between two steps only: a request that came
// during a step may have waited for its end (spec#overhead, spec#interval-fit).

import (
	"context"
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Constants of the overhead's fit (docs/decisions/0012).
const (
	// overheadSpreadUs is the largest scale of the logistic scatter of overheads about their prediction: a
	// tenth of the ybar of interval fits, a standard deviation of 0.18 ms.
	overheadSpreadUs = 100
	// overheadApart is how far the overheads of deployments are expected to lie
	// apart, as a share of the common prediction.
	overheadApart = 0.5
)

// spreads are the scales to choose from, us. The recordings of a simulator hardly scatter.
var spreads = []float64{3, 10, 30, overheadSpreadUs}

// overheadOptions sets what the fit of the overhead has in addition to spec#interval-fit: the most
// likely scatter about its prediction, a penalty toward the best constant overhead, and the choice
// of lambda by the smallest score within folds (docs/decisions/0012). fs are the features of the
// model, b the intervals of the training rows.
func overheadOptions(o *ridge.Options, fs []features.Feature, train *ridge.Data, b ridge.Bounds) {
	o.SmallestWithin = true
	// A constant is known up to a factor: 1 for the constant feature, 0 for all others.
	o.Anchor = make([]float64, len(fs))
	for j, f := range fs {
		if f.Kind == features.Constant {
			o.Anchor[j] = 1
		}
	}
	o.SpreadUs = b.Spread(ridge.CensoredWeights(train, *o), ridge.Predict(train, o.Anchor), train.AllRows(), spreads)
}

// solveOverhead returns the interval-censored fit at the chosen gamma and lambda.
func (f *fitter) solveOverhead(ctx context.Context, a *alphaFit) error {
	s := a.s
	if err := f.nestOverhead(ctx, a); err != nil {
		return err
	}
	s.Findings = append(s.Findings, s.Pool.Words(a.sel.Rel[f.gamma].Findings)...)
	list := s.Pool.Train
	if f.o.RefitAll {
		list = s.Pool.Data.AllRows()
	}
	return f.solveIntervals(ctx, a, f.gamma, list)
}

// solveIntervals fits the given rows of the pool at a gamma and its lambda, as a whole and by
// deployment. It sets the fields of a and of a.s that Solved.SolveRelative sets for other targets.
func (f *fitter) solveIntervals(ctx context.Context, a *alphaFit, gamma int, list []int32) error {
	s := a.s
	s.Variant = gamma
	s.Sel = &a.sel.Rel[gamma]
	s.Data = s.Pool.Data.With(gamma)
	s.Train = s.Data.Subset(list)
	a.bounds = s.Pool.Bounds(list)
	s.Weights = ridge.CensoredWeights(s.Train, s.Opt)
	fit, err := s.Train.FitCensored(a.bounds, s.Weights, nil, s.Sel.Lambda, s.Opt)
	if err != nil {
		return err
	}
	s.Fit = fit.Fit
	s.Censored = &fit
	a.passes = fit.Passes
	s.Pred = clipped(ridge.Predict(s.Data, s.Fit.Beta))
	return f.fitOverheadByDeployment(ctx, a)
}

// nestOverhead adds to the selection at the chosen gamma the fits with two configurations held out at a
// time, which selectAlpha skipped because they are one for every pair of configurations.
func (f *fitter) nestOverhead(ctx context.Context, a *alphaFit) error {
	s := a.s
	if len(s.Pool.Configs) < 3 {
		return nil
	}
	sel := &a.sel.Rel[f.gamma]
	nested, err := s.Pool.Data.With(f.gamma).Subset(s.Pool.Train).NestIntervals(ctx, *sel, a.bounds, s.Opt)
	if err != nil {
		return err
	}
	*sel = nested
	return nil
}

// judgeOverhead sets how well predictions of the hold-out lie in their intervals, as a whole and by
// run.
func (f *fitter) judgeOverhead(a *alphaFit, out *result.Model) {
	out.DeploymentCoefficients = a.byDeployment
	all, groups := a.s.Samples(rows.HoldOut, a.s.Pred)
	held := rows.JudgeDelays(groups)
	out.Interval = held.Intervals(nil)
	if out.Interval == nil {
		out.Interval = &result.IntervalErrors{}
	}
	out.Interval.Passes = a.passes
	for t, one := range all {
		if e := held.Intervals(func(s *rows.Sample) bool { return s == one }); e != nil {
			out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{Run: a.s.Pool.Runs[t], Config: one.Table.Config, Interval: e})
		}
	}
	_, groups = a.s.Samples(rows.Whole, a.s.Pred)
	if rows.JudgeDelays(groups).Intervals(nil).InformativeRows == 0 {
		out.Warnings = append(out.Warnings, trace.Finding{Code: rows.OverheadUnknown, Message: report.NoInformativeOverhead()})
	}
}

// fitOverheadByDeployment fits every deployment of a pooled fit again on its own rows. The penalty pulls to the
// best multiple of the common coefficients (partial pooling). What an API server does before the
// engine gets a request hardly depends on the engine, so features of the step do not predict it from
// one model to another.
func (f *fitter) fitOverheadByDeployment(ctx context.Context, a *alphaFit) error {
	s := a.s
	names := f.namesOf(s, (*deploy.Deployment).Label)
	labels := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(labels) < 2 {
		return nil
	}
	common := slices.Clone(s.Fit.Beta)
	for _, label := range labels {
		own, err := a.fitOverheadOf(ctx, label, names, common)
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		a.byDeployment = append(a.byDeployment, *own)
		for i, c := range s.Data.Config {
			if names[c] == label {
				s.Pred[i] = max(0, ridge.Dot(s.Data.Row(i), own.Values))
			}
		}
	}
	return nil
}

// fitOverheadOf returns the coefficients of a fit to the training rows of one deployment. If they are
// too few for the folds, they are the common ones.
func (a *alphaFit) fitOverheadOf(
	ctx context.Context, label string, names []string, common []float64,
) (*result.DeploymentCoefficients, error) {
	s := a.s
	mine := rowsWhere(s.Train.Config, func(c int32) bool { return names[c] == label })
	out := &result.DeploymentCoefficients{Deployment: label, Values: common, Rows: len(mine)}
	if len(mine) < s.Opt.Folds+1 {
		return out, nil
	}
	d := s.Train.Subset(mine)
	b := a.bounds.Subset(mine)
	o := s.Opt
	o.Anchor = common
	// The loss is 4 s^2 times a mean negative log likelihood, s the spread. The multiple m has a
	// normal prior around 1 in the same unit: 4 s^2 (m - 1)^2/(2 overheadApart^2) over the number of
	// rows.
	o.AnchorTight = 2 * o.SpreadUs * o.SpreadUs / (overheadApart * overheadApart) / float64(len(mine))
	o.Objective = ridge.Within
	sels, err := d.SelectIntervals(ctx, b, o)
	if err != nil {
		return nil, err
	}
	fit, err := d.FitCensored(b, ridge.CensoredWeights(d, o), nil, sels[0].Lambda, o)
	if err != nil {
		return nil, err
	}
	out.Lambda = result.OrNull(fit.Fit.Lambda)
	out.Values = fit.Fit.Beta
	return out, nil
}
