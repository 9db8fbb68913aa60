package fit

import (
	"context"
	"fmt"
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/cells"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/score"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// alphaFit is one alpha target on its way.
type alphaFit struct {
	target string
	s      *solved
	sel    modelSelections
	bounds ridge.Bounds // training rows; overhead only
	passes int
	counts result.RowCounts
	on     []result.DeploymentCoefficients // overhead of several deployments
}

type alphaFits []*alphaFit

func (a alphaFits) byTarget(target string) *alphaFit {
	for _, f := range a {
		if f.target == target && f.s != nil {
			return f
		}
	}
	return nil
}

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
	tables := tablesOf(f.used, func(p *prepared) *rows.Table { return p.alpha[target] })
	f.warn(rows.Clean(tables, rows.Recipe(f.o.Recipe))...)
	a.counts = countRows(tables)
	p := newPool(tables, f.gammas)
	if len(p.train) < ridge.DefaultOptions(1).Folds+1 {
		f.warn(trace.Findingf(FewRows, "alpha %s: %d training rows: not fitted", target, len(p.train)))
		return a, nil
	}
	p.embargo(alphaPerStep(p, f.used))
	a.s = &solved{pool: p, terms: alphaTerms(features.AlphaFeatures(f.o.Spec), len(p.configs))}
	a.s.opt = ridgeOptions(a.s.terms, epsOf(target), f.o)
	if target != rows.Overhead {
		var err error
		a.sel, err = f.selectModel(a.s, target)
		return a, err
	}
	train := p.trainData()
	a.bounds = p.bounds(p.train)
	overheadOptions(&a.s.opt, features.AlphaFeatures(f.o.Spec), train, a.bounds)
	quick := a.s.opt
	quick.SkipNested = true // solveOverhead asks for it at the chosen gamma
	sels, err := cv.SelectIntervals(train, a.bounds, quick)
	if err != nil {
		return nil, err
	}
	a.sel.rel = sels
	return a, nil
}

// epsOf is the floor of the weights' denominator. Relative weights pull a target
// that contains a uniform phase (the rest of the running step) to its shortest
// rows: an admission of U(0, T) comes out 80 to 95 % too short. Its rows up to
// one second therefore weigh the same (docs/decisions/0008).
func epsOf(target string) float64 {
	if target == rows.Admission {
		return epsAdmissionUs
	}
	return epsAlphaUs
}

// alphaPerStep is the mean number of alpha rows per recorded step: the embargo
// counts steps, alpha rows are requests.
func alphaPerStep(p *pool, used []*prepared) float64 {
	var steps int
	for _, u := range used {
		steps += u.quality.Recorded
	}
	return float64(len(p.train)) / math.Max(1, float64(steps))
}

// bounds are the intervals of the given rows.
func (p *pool) bounds(list []int32) ridge.Bounds {
	var b ridge.Bounds
	for _, i := range list {
		t, k := p.rowOf(i)
		b.Lo = append(b.Lo, t.Lo[k])
		b.Hi = append(b.Hi, t.Hi[k])
	}
	return b
}

// alphaModel solves one target and makes its part of fit.json.
func (f *fitter) alphaModel(a *alphaFit) (*result.Model, error) {
	if a.s == nil {
		return nil, nil
	}
	var err error
	if a.target == rows.Overhead {
		err = f.solveOverhead(a)
	} else {
		err = f.solveChosen(a.s, a.sel)
	}
	if err != nil {
		return nil, err
	}
	out, err := f.model(a.s, a.sel, a.target, a.target)
	if err != nil {
		return nil, err
	}
	out.Replay = coeff.Replayable(a.target)
	out.Rows = a.counts
	out.Rows.Holdout = len(a.s.pool.hold)
	if a.target == rows.Overhead {
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
	s.variant, s.sel = f.gamma, &a.sel.rel[f.gamma]
	s.findings = append(s.findings, s.pool.words(s.sel.Findings)...)
	s.data = s.pool.data.With(f.gamma)
	list := s.pool.train
	if f.o.RefitAll {
		list = allRows(s.data.Len())
	}
	s.train = s.data.Subset(list)
	a.bounds = s.pool.bounds(list)
	s.weights = cells.CensoredWeights(s.train, s.opt)
	fit, err := ridge.FitCensored(s.train, a.bounds, s.weights, nil, s.sel.Lambda, s.opt)
	if err != nil {
		return err
	}
	s.fit, s.censored, a.passes = fit.Fit, &fit, fit.Passes
	s.pred = clipped(gram.Predict(s.data, s.fit.Beta))
	return f.overheadOn(a)
}

// nestOverhead repeats the selection at the chosen gamma with its nested
// leave-one-out, which costs a fit for every pair of configurations.
func (f *fitter) nestOverhead(a *alphaFit) error {
	s := a.s
	if len(s.pool.configs) < 3 {
		return nil
	}
	o, v := s.opt, s.pool.data.Variants[f.gamma]
	o.EmbargoRows = v.EmbargoRows
	sels, err := cv.SelectIntervals(s.pool.data.With(f.gamma).Subset(s.pool.train), a.bounds, o)
	if err != nil {
		return err
	}
	sels[0].Gamma = v.Gamma
	a.sel.rel[f.gamma] = sels[0]
	return nil
}

// clipped is max(0, prediction): alphas are delays (01 G-8).
func clipped(pred []float64) []float64 {
	for i, v := range pred {
		pred[i] = math.Max(0, v)
	}
	return pred
}

func allRows(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i)
	}
	return out
}

// judgeOverhead reports how the hold-out meets its intervals, whole and per run.
func (f *fitter) judgeOverhead(a *alphaFit, out *result.Model) {
	out.DeploymentCoefficients = a.on
	all, groups := a.s.samples(score.HoldOut, a.s.pred)
	held := score.NewDelays(groups)
	out.Interval = held.Intervals(nil)
	if out.Interval == nil {
		out.Interval = &result.IntervalErrors{}
	}
	out.Interval.Passes = a.passes
	for t, one := range all {
		if e := held.Intervals(func(s *score.Sample) bool { return s == one }); e != nil {
			out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{Run: a.s.pool.runs[t], Config: one.Table.Config, Interval: e})
		}
	}
	_, groups = a.s.samples(score.Whole, a.s.pred)
	if score.NewDelays(groups).Intervals(nil).InformativeRows == 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(OverheadUnknown, "no interval has a lower end above 0 or an upper end below 3 ms"))
	}
}

// judgeAlpha reports the errors of a plain alpha target.
func (f *fitter) judgeAlpha(a *alphaFit, out *result.Model) {
	all, groups := a.s.samples(score.HoldOut, clipped(a.s.pred))
	held := score.NewDelays(groups)
	out.TargetErrors = held.Errors(nil)
	for t, one := range all {
		if e := held.Errors(func(s *score.Sample) bool { return s == one }); e != nil {
			out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{Run: a.s.pool.runs[t], Config: one.Table.Config, Errors: e})
		}
	}
}
