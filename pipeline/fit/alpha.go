package fit

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// windowNs is the window of the admission error (01 Q-1).
const windowNs = 10_000_000_000

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
	tables := tablesOf(f.used, func(p *prepared) []*rows.Table { return p.alpha[target] })
	for g := range f.gammas {
		found := rows.Clean(tables[g], rows.Recipe(f.o.Recipe))
		if g == 0 {
			f.warn(found...)
		}
	}
	a.counts = countRows(tables[0])
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
	sels, err := ridge.SelectCensored(train, a.bounds, quick)
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
		t := p.tables[p.table[i]]
		b.Lo = append(b.Lo, t.Lo[p.row[i]])
		b.Hi = append(b.Hi, t.Hi[p.row[i]])
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
	s.weights = ridge.CensoredWeights(s.train, s.opt)
	fit, err := ridge.FitCensored(s.train, a.bounds, s.weights, nil, s.sel.Lambda, s.opt)
	if err != nil {
		return err
	}
	s.fit, s.censored, a.passes = fit.Fit, &fit, fit.Passes
	s.pred = clipped(ridge.Predict(s.data, s.fit.Beta))
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
	sels, err := ridge.SelectCensored(s.pool.data.With(f.gamma).Subset(s.pool.train), a.bounds, o)
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

// judgeOverhead reports T-7's figures on the hold-out, whole and per run.
func (f *fitter) judgeOverhead(a *alphaFit, out *result.Model) {
	out.DeploymentCoefficients = a.on
	out.Interval = a.interval(a.s.pred, a.s.pool.hold)
	out.Interval.Passes = a.passes
	all := a.interval(a.s.pred, allRows(a.s.data.Len()))
	out.Interval.InformativeRows, out.Interval.ExactRows, out.Interval.Rows = all.InformativeRows, all.ExactRows, all.Rows
	for t := range a.s.pool.tables {
		var mine, held []int32
		for i, k := range a.s.pool.table {
			if int(k) == t {
				mine = append(mine, int32(i))
			}
		}
		for _, i := range a.s.pool.hold {
			if int(a.s.pool.table[i]) == t {
				held = append(held, i)
			}
		}
		whole := a.interval(a.s.pred, mine)
		if h := a.interval(a.s.pred, held); len(held) > 0 {
			whole.InsideShare, whole.ExactWAPE, whole.WeightedDistance = h.InsideShare, h.ExactWAPE, h.WeightedDistance
		}
		out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{Run: a.s.pool.runs[t], Config: a.s.pool.tables[t].Config, Interval: whole})
	}
	if all.InformativeRows == 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(OverheadUnknown, "no interval has a lower end above 0 or an upper end below 3 ms"))
	}
}

// interval is T-7's report of predictions on the given rows.
func (a *alphaFit) interval(pred []float64, list []int32) *result.IntervalErrors {
	sub := a.s.data.Subset(list)
	p := make([]float64, len(list))
	for k, i := range list {
		p[k] = pred[i]
	}
	w := ridge.CensoredWeights(sub, a.s.opt)
	e := ridge.EvaluateCensored(sub, a.s.pool.bounds(list), w, p, nil)
	return &result.IntervalErrors{
		Rows: e.Rows, ExactRows: e.Exact, InformativeRows: e.Informative, InsideShare: num(e.Inside),
		MedianWidthUs: num(e.MedianWidth), WeightedDistance: num(e.Distance), ExactWAPE: num(e.ExactWAPE), MedianPredUs: num(stat.Median(p)),
	}
}

// judgeAlpha reports the errors of a plain alpha target.
func (f *fitter) judgeAlpha(a *alphaFit, out *result.Model) {
	a.s.pred = clipped(a.s.pred)
	train := a.s.pool.isTrain()
	constant := ridge.Constant(a.s.data, func(i int) bool { return train[i] })
	out.TargetErrors = a.errors(a.s.pool.hold, a.s.pred, constant)
	for t := range a.s.pool.tables {
		var held []int32
		for _, i := range a.s.pool.hold {
			if int(a.s.pool.table[i]) == t {
				held = append(held, i)
			}
		}
		if e := a.errors(held, a.s.pred, constant); e != nil {
			out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{Run: a.s.pool.runs[t], Config: a.s.pool.tables[t].Config, Errors: e})
		}
	}
}

// errors of the given rows; nil without any.
func (a *alphaFit) errors(list []int32, pred, constant []float64) *result.TargetErrors {
	if len(list) == 0 {
		return nil
	}
	in := make([]bool, a.s.data.Len())
	for _, i := range list {
		in[i] = true
	}
	keep := func(i int) bool { return in[i] }
	e := ridge.Evaluate(a.s.data.Y, pred, keep)
	c := ridge.Evaluate(a.s.data.Y, constant, keep)
	out := &result.TargetErrors{Rows: e.Rows, MAPE: num(e.MAPE), WAPE: num(e.WAPE), Bias: num(e.Bias), MAPEConst: num(c.MAPE), MaxErrorRatio: num(e.MaxAbs / e.MedianY)}
	at := make([]float64, len(list))
	for k, i := range list {
		at[k] = pred[i]
	}
	out.MedianPredUs = num(stat.Median(at))
	wy, wp, wc := a.windows(list, pred, constant)
	out.Windows = len(wy)
	if len(wy) > 0 {
		out.MAPEWindow10s = num(ridge.Evaluate(wy, wp, nil).MAPE)
		out.ConstWindow = num(ridge.Evaluate(wy, wc, nil).MAPE)
	}
	return out
}

// windows are the means of target, prediction and constant in 10-second windows
// of each run (01 Q-1).
func (a *alphaFit) windows(list []int32, pred, constant []float64) (y, p, c []float64) {
	type key struct {
		run    int32
		window int64
	}
	sums := map[key]*[4]float64{}
	var order []key
	for _, i := range list {
		k := key{a.s.pool.table[i], a.s.data.Time[i] / windowNs}
		if sums[k] == nil {
			sums[k] = &[4]float64{}
			order = append(order, k)
		}
		s := sums[k]
		s[0]++
		s[1] += a.s.data.Y[i]
		s[2] += pred[i]
		s[3] += constant[i]
	}
	slices.SortFunc(order, func(a, b key) int {
		if a.run != b.run {
			return int(a.run - b.run)
		}
		return int(a.window - b.window)
	})
	for _, k := range order {
		s := sums[k]
		y, p, c = append(y, s[1]/s[0]), append(p, s[2]/s[0]), append(c, s[3]/s[0])
	}
	return y, p, c
}
