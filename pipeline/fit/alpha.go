package fit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

type alphaFits []*alphaFit

// selectAlphas scores the grid of every alpha target; a target without rows is
// kept without a solution.
func (f *fitter) selectAlphas(ctx context.Context) (alphaFits, error) {
	var out alphaFits
	for k, target := range f.o.AlphaTargets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		a, err := f.selectAlpha(target)
		if err != nil {
			return nil, fmt.Errorf("alpha %s: %w", target, err)
		}
		out = append(out, a)
		f.progress.Report("alpha grids", int64(k+1), int64(len(f.o.AlphaTargets)), "targets")
	}
	return out, nil
}

func (f *fitter) selectAlpha(target string) (*alphaFit, error) {
	a := &alphaFit{target: target}
	tables := tablesOf(f.used, func(p *Run) *rows.Table { return p.Alpha[target] })
	f.warn(rows.Clean(tables, rows.Recipe(f.o.Recipe))...)
	a.counts = RowCounts(tables)
	p := Pooled(tables, f.gammas)
	if len(p.Train) < ridge.DefaultOptions(1).Folds+1 {
		f.warn(trace.Findingf(CodeFewRows, "alpha %s: %d training rows: not fitted", target, len(p.Train)))
		return a, nil
	}
	a.s = &Solved{Pool: p, Terms: AlphaTerms(features.AlphaFeatures(f.o.Spec), len(p.Configs))}
	a.s.Opt = RidgeOptions(a.s.Terms, epsOf(target), f.o)
	a.s.Opt.EmbargoRows = embargo(alphaPerStep(p, f.used))
	if target != coeff.Overhead {
		var err error
		a.sel, err = a.s.Choose(f.o.Recipe, target)
		return a, err
	}
	train := p.TrainData()
	a.bounds = p.Bounds(p.Train)
	overheadOptions(&a.s.Opt, features.AlphaFeatures(f.o.Spec), train, a.bounds)
	quick := a.s.Opt
	quick.SkipNested = true // solveOverhead asks for it at the chosen gamma
	sels, err := train.SelectIntervals(a.bounds, quick)
	if err != nil {
		return nil, err
	}
	a.sel.Rel = sels
	return a, nil
}

// epsOf is the floor of the weights' denominator. Relative weights pull a target
// that contains a uniform phase (the rest of the running step) to its shortest
// rows: an admission of U(0, T) comes out 80 to 95 % too short. Its rows up to
// one second therefore weigh the same (docs/decisions/0008).
func epsOf(target string) float64 {
	if target == coeff.Admission {
		return EpsAdmissionUs
	}
	return EpsAlphaUs
}

// alphaPerStep is the mean number of alpha rows per recorded step: the embargo
// counts steps, alpha rows are requests.
func alphaPerStep(p *Pool, used []*Run) float64 {
	steps := stat.Sum(used, func(u *Run) int { return u.Quality.Recorded })
	return float64(len(p.Train)) / math.Max(1, float64(steps))
}

// alphaModel solves one target and makes its part of fit.json.
func (f *fitter) alphaModel(a *alphaFit) (*result.Model, error) {
	if a.s == nil {
		return nil, nil
	}
	var err error
	if a.target == coeff.Overhead {
		err = f.solveOverhead(a)
	} else {
		err = a.s.SolveAt(a.sel, f.gamma, f.o.RefitAll)
	}
	if err != nil {
		return nil, err
	}
	out := Model(a.s, a.sel, &f.o, a.target, a.target)
	out.Replay = coeff.Replayable(a.target)
	out.Rows = a.counts
	out.Rows.Holdout = len(a.s.Pool.Hold)
	if a.target == coeff.Overhead {
		f.judgeOverhead(a, out)
	} else {
		f.judgeAlpha(a, out)
	}
	return out, f.locoAlpha(a, out)
}

// solveOverhead is the interval-censored fit at the chosen gamma and lambda.
func (f *fitter) solveOverhead(a *alphaFit) error {
	s := a.s
	if err := f.nestOverhead(a); err != nil {
		return err
	}
	s.Variant, s.Sel = f.gamma, &a.sel.Rel[f.gamma]
	s.Findings = append(s.Findings, s.Pool.Words(s.Sel.Findings)...)
	s.Data = s.Pool.Data.With(f.gamma)
	list := s.Pool.Train
	if f.o.RefitAll {
		list = s.Data.AllRows()
	}
	s.Train = s.Data.Subset(list)
	a.bounds = s.Pool.Bounds(list)
	s.Weights = ridge.CensoredWeights(s.Train, s.Opt)
	fit, err := s.Train.FitCensored(a.bounds, s.Weights, nil, s.Sel.Lambda, s.Opt)
	if err != nil {
		return err
	}
	s.Fit, s.Censored, a.passes = fit.Fit, &fit, fit.Passes
	s.Pred = clipped(ridge.Predict(s.Data, s.Fit.Beta))
	return f.overheadOn(a)
}

// nestOverhead repeats the selection at the chosen gamma with its nested
// leave-one-out, which costs a fit for every pair of configurations.
func (f *fitter) nestOverhead(a *alphaFit) error {
	s := a.s
	if len(s.Pool.Configs) < 3 {
		return nil
	}
	sels, err := s.Pool.Data.With(f.gamma).Subset(s.Pool.Train).SelectIntervals(a.bounds, s.Opt)
	if err != nil {
		return err
	}
	sels[0].Gamma = s.Pool.Data.Variants[f.gamma].Gamma
	a.sel.Rel[f.gamma] = sels[0]
	return nil
}

// judgeOverhead reports how the hold-out meets its intervals, whole and per run.
func (f *fitter) judgeOverhead(a *alphaFit, out *result.Model) {
	out.DeploymentCoefficients = a.on
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
		out.Warnings = append(out.Warnings, trace.Findingf(rows.OverheadUnknown,
			"no interval has a lower end above 0 or an upper end below 3 ms"))
	}
}

// judgeAlpha reports the errors of a plain alpha target.
func (f *fitter) judgeAlpha(a *alphaFit, out *result.Model) {
	all, groups := a.s.Samples(rows.HoldOut, clipped(a.s.Pred))
	held := rows.JudgeDelays(groups)
	out.TargetErrors = held.Errors(nil)
	for t, one := range all {
		if e := held.Errors(func(s *rows.Sample) bool { return s == one }); e != nil {
			out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{Run: a.s.Pool.Runs[t], Config: one.Table.Config, Errors: e})
		}
	}
}

// locoAlpha is leave-one-configuration-out of an alpha target.
func (f *fitter) locoAlpha(a *alphaFit, out *result.Model) error {
	s := a.s
	if len(s.Pool.Configs) < 2 {
		return nil
	}
	for c, key := range s.Pool.Configs {
		beta, err := f.alphaWithout(a, int32(c))
		if err != nil {
			return err
		}
		_, groups := s.Samples(rows.Whole, clipped(ridge.Predict(s.Data, beta)))
		l, delays := result.Loco{Config: key, Label: key}, rows.JudgeDelays(groups[c:c+1])
		if a.target == coeff.Overhead {
			e := delays.Intervals(nil)
			l.Rows, l.InsideShare = e.Rows, e.InsideShare
		} else {
			e := delays.Errors(nil)
			l.Rows, l.MAPE, l.MAPEWindow10s, l.Bias = e.Rows, e.MAPE, e.MAPEWindow10s, e.Bias
		}
		out.Loco = append(out.Loco, l)
	}
	out.LocoMedian, out.LocoWorst = spread(out.Loco, func(l result.Loco) *float64 { return l.MAPE })
	return nil
}

func (f *fitter) alphaWithout(a *alphaFit, c int32) ([]float64, error) {
	if a.target != coeff.Overhead {
		return f.leaveOut(a.s, c)
	}
	rest := rowsWhere(a.s.Train.Config, func(k int32) bool { return k != c })
	fit, err := a.s.Train.FitCensored(a.bounds, a.s.Weights, rest, a.s.Sel.LambdaWithout(c), a.s.Opt)
	return fit.Fit.Beta, err
}

// Constants of the overhead's fit (docs/decisions/0012).
const (
	// overheadSpreadUs is the largest scale of the logistic scatter of overheads
	// about their prediction: a tenth of the ybar of interval fits, a standard deviation of 0.18 ms.
	overheadSpreadUs = 100
	// overheadApart is how far the overheads of deployments are expected to lie
	// apart, as a share of the common prediction.
	overheadApart = 0.5
)

// spreads are the scales to choose from: a simulator's own recordings hardly scatter.
var spreads = []float64{3, 10, 30, overheadSpreadUs}

// overheadOptions are what the overhead's interval fit has beyond spec#interval-fit: soft
// ends of the likeliest spread, a penalty toward the best constant overhead
// instead of none, and the smallest fold score (docs/decisions/0012).
func overheadOptions(o *ridge.Options, fs []features.Feature, train *ridge.Data, b ridge.Bounds) {
	o.SmallestWithin = true
	o.Anchor = make([]float64, len(fs))
	for j, f := range fs {
		if f.Kind == features.Constant {
			o.Anchor[j] = 1
		}
	}
	o.SpreadUs = b.Spread(ridge.CensoredWeights(train, *o), ridge.Predict(train, o.Anchor), train.AllRows(), spreads)
}

// overheadOn fits every deployment of a pooled fit once more on its own rows,
// penalised toward the multiple of the common coefficients that meets its
// intervals best (partial pooling): what an API server does before the engine
// sees a request hardly depends on the engine, so the features of the step
// cannot carry one common cost from model to model.
func (f *fitter) overheadOn(a *alphaFit) error {
	s := a.s
	names := f.namesOf(s, (*deploy.Deployment).Label)
	labels := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(labels) < 2 {
		return nil
	}
	common := slices.Clone(s.Fit.Beta)
	for _, label := range labels {
		own, err := a.deployment(label, names, common)
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		a.on = append(a.on, *own)
		for i, c := range s.Data.Config {
			if names[c] == label {
				s.Pred[i] = max(0, ridge.Dot(s.Data.Row(i), own.Values))
			}
		}
	}
	return nil
}

// deployment is the fit of one deployment's training rows; one with too few for
// the folds keeps the common coefficients.
func (a *alphaFit) deployment(label string, names []string, common []float64) (*result.DeploymentCoefficients, error) {
	s := a.s
	mine := rowsWhere(s.Train.Config, func(c int32) bool { return names[c] == label })
	out := &result.DeploymentCoefficients{Deployment: label, Values: common, Rows: len(mine)}
	if len(mine) < s.Opt.Folds+1 {
		return out, nil
	}
	d, b := s.Train.Subset(mine), a.bounds.Subset(mine)
	o := s.Opt
	o.Anchor, o.AnchorTight = common, 2*o.SpreadUs*o.SpreadUs/(overheadApart*overheadApart)/float64(len(mine))
	o.Objective = ridge.Within
	sels, err := d.SelectIntervals(b, o)
	if err != nil {
		return nil, err
	}
	fit, err := d.FitCensored(b, ridge.CensoredWeights(d, o), nil, sels[0].Lambda, o)
	if err != nil {
		return nil, err
	}
	out.Lambda, out.Values = result.OrNull(fit.Fit.Lambda), fit.Fit.Beta
	return out, nil
}
