package fit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// componentShare is the share of the columns' variance that a fit in components keeps.
const componentShare = 0.999

// selectBeta scores the grid of the step-time model and chooses gamma.
func (f *fitter) selectBeta() (*Solved, Selections, error) {
	tables := tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta })
	f.warn(rows.Clean(tables, rows.Recipe(f.o.Recipe))...)
	p := Pooled(tables, f.gammas)
	if len(p.Train) == 0 {
		return nil, Selections{}, trace.Errorf(CodeNoRows, "beta: no training row is left of %d runs", len(f.used))
	}
	f.beta = p
	s := &Solved{Pool: p, Terms: FeatureTerms(features.BetaFeatures(f.o.Spec), len(p.Configs), f.o.Prior)}
	s.Opt = RidgeOptions(s.Terms, EpsBetaUs, f.o)
	s.Opt.EmbargoRows = embargo(1 / float64(f.leastStride()))
	if f.o.FromSets() {
		if err := f.setPrior(s); err != nil {
			return nil, Selections{}, err
		}
	}
	if f.o.Spec.InComponents() {
		train := p.TrainData()
		if _, err := s.Opt.Components(ridge.OfRows(train, ridge.Weights(train, s.Opt), nil, f.o.Workers), componentShare); err != nil {
			return nil, Selections{}, err
		}
	}
	sel, err := s.Choose(f.o.Recipe, "beta")
	if err == nil {
		f.gamma, f.within = ridge.ChooseVariant(sel.scores(f.gammas), features.DefaultGamma)
	}
	return s, sel, err
}

// leastStride is that of the runs that kept most of their rows.
func (f *fitter) leastStride() int {
	least := math.MaxInt
	for _, p := range f.used {
		least = min(least, max(1, p.Src.Stride))
	}
	return least
}

// isMeasured reports whether a machine ran what a run recorded: nothing drifts in a composed one.
func (f *fitter) isMeasured(run string) bool {
	return !slices.ContainsFunc(f.prepared, func(p *Run) bool { return p.Src.ID == run && p.Src.Deployment.IsComposed() })
}

// betaModel turns the solved beta into its part of fit.json.
func (f *fitter) betaModel(s *Solved, m Selections) (*result.Model, error) {
	out := Model(s, m, &f.o, "beta", f.o.BetaTarget)
	f.provenance(s, out)
	if err := f.describeGamma(s, m, out); err != nil {
		return nil, err
	}
	out.PipelineLag = map[string]result.RunLag{}
	for _, p := range f.prepared {
		out.TargetAudit = append(out.TargetAudit, p.Audit)
		out.LagEvidence = append(out.LagEvidence, p.Evidence...)
		if p.Reason == "" {
			out.PipelineLag[p.Src.ID] = p.Lag
		}
	}
	if err := f.locoBeta(s, m, out); err != nil {
		return nil, err
	}
	held := s.Judge(out, true, f.o.Workers)
	if out.Holdout != nil && s.Sel != nil {
		out.Holdout.RelErr = result.OrNull(RelErr(s, f.o.Workers))
	}
	out.StressSets, out.Drift, out.ResidualQuant = held.StressCells(), s.Drift(), s.Ratios()
	out.Figures = held.Figures(s.Names())
	FloorFindings(s, f.o.BetaTarget, out)
	DriftFindings(out, f.isMeasured)
	OrderFinding(out)
	if f.contextsMerged() {
		out.Warnings = append(out.Warnings, trace.Findingf(rows.ContextsMerged, "decode_attention and kv_cache_read are merged with the "+
			"per-decode term: no run tells the contexts of its decodes, and the prior alone splits them"))
		for i := range out.Coefficients {
			if c := &out.Coefficients[i]; c.Name == "decode_attention" || c.Name == "kv_cache_read" {
				c.Identified = coeff.PriorOnly
			}
		}
	}
	return out, nil
}

// preemptionTerm is the step-time term that gamma belongs to.
const preemptionTerm = "preemption_overhead"

// describeGamma says whether the rows tell gamma, and lets the interval of the preemption
// term hold those of every gamma that is as good (spec#gamma-choice).
func (f *fitter) describeGamma(s *Solved, m Selections, out *result.Model) error {
	j := slices.IndexFunc(s.Terms, func(t Term) bool { return t.Name == preemptionTerm })
	if sayGamma(f.gammas, f.gamma, f.within, j, out); m.Rel == nil || j < 0 {
		return nil
	}
	for _, v := range f.within {
		if c := &out.Coefficients[j]; v != f.gamma && c.CI95 != nil {
			other := *s
			if err := other.SolveRelative(v, &m.Rel[v], f.o.RefitAll); err != nil {
				return err
			}
			unite(&c.Coefficient, Confidence(&other, slices.Repeat([]string{c.Identified}, len(s.Terms))).Terms[j])
		}
	}
	return nil
}

// sayGamma notes whether the rows tell gamma: the usual one is better than the others by more than
// a standard error, or worse than the best. j is the preemption term, -1: none.
func sayGamma(gammas []float64, chosen int, within []int, j int, out *result.Model) {
	told := gammas[chosen] != features.DefaultGamma || len(within) == 1
	out.GammaIdentified = &told
	if told || j < 0 || !(out.Coefficients[j].Range[1] > 0) {
		return
	}
	also := stat.Map(within, func(v int) string { return fmt.Sprint(gammas[v]) })
	out.Warnings = append(out.Warnings, trace.Findingf(NotIdentified, "gamma of the preemption average: the scores of %s lie within one "+
		"standard error, the default %g is kept, and the interval of %s holds those of all of them",
		strings.Join(also, ", "), gammas[chosen], preemptionTerm))
}

// unite widens the interval of a coefficient to hold another; one that is not known leaves none.
func unite(c *coeff.Coefficient, t ridge.Interval) {
	if t.Method == ridge.FromNothing {
		c.CI95 = nil
		c.Estimate = nil
		c.EstimateCI95 = nil
		return
	}
	for _, ci := range []*[2]float64{c.CI95, c.EstimateCI95} {
		if ci != nil {
			ci[0], ci[1] = math.Min(ci[0], t.Lo), math.Max(ci[1], t.Hi)
		}
	}
}

// contextsMerged says that in every run one mean context stands for all decodes.
func (f *fitter) contextsMerged() bool {
	for _, p := range f.prepared {
		if p.Reason == "" && p.Contexts != trace.ContextsMean {
			return false
		}
	}
	return len(f.prepared) > 0
}

// StepTime is the step-time model of runs, without delays and other models.
type StepTime struct {
	Options    Options
	Model      *Solved
	Selections Selections
	Runs       []*Run // that were used
	Warnings   []trace.Finding
}

// FitStepTime fits the step time alone.
func FitStepTime(ctx context.Context, sources []Source, o Options) (*StepTime, error) {
	f, err := newFitter(ctx, sources, o, nil)
	if err != nil {
		return nil, err
	}
	s, m, err := f.selectBeta()
	if err != nil {
		return nil, err
	}
	if err := s.SolveAt(m, f.gamma, f.o.RefitAll); err != nil {
		return nil, err
	}
	return &StepTime{Options: f.o, Model: s, Selections: m, Runs: f.used, Warnings: f.out.Warnings}, nil
}

// Iteration is one run's steps as queueing models have them: step us = alpha +
// beta * tokens computed + gamma * KV tokens read.
type Iteration struct {
	Model *result.Model // coefficients alpha, beta, gamma with intervals and errors
	// FloorUs are the hardware's limits of the three: the weights once over the
	// bandwidth, a token's linear layers at their peak, a token's KV over the bandwidth.
	FloorUs  [3]float64
	Reason   string // why the run takes no part; empty when it does
	Findings []trace.Finding
	Lengths  [2]*float64 // mean prompt and output tokens
	// Of every row that Model has an opinion on: when it began (monotonic), and its time.
	TimeNs     []int64
	Us, PredUs []float64
}

// FitIteration fits one run's steps. A saturated run, or one without step rows,
// has a Reason and no Model.
func FitIteration(src Source, o Options) (*Iteration, error) {
	o.Models = []string{Linear3}
	o, err := o.Resolve()
	if err != nil {
		return nil, err
	}
	p, steps, space, err := Load(src, o)
	if err != nil {
		return nil, err
	}
	it := &Iteration{FloorUs: floorsOf(space), Reason: p.Reason}
	it.Lengths[0], it.Lengths[1] = p.Lengths.means()
	if it.Reason == "" {
		vec, err := Vectorizer(Linear3, space)
		if err != nil {
			return nil, err
		}
		opt := rows.Options{Target: o.BetaTarget, Lag: p.Lag.Lag, Gamma: features.DefaultGamma, Split: o.Split, Saturated: p.Spans}
		table, err := steps.BetaBasis(space, *vec, opt)
		if err != nil {
			return nil, err
		}
		f := &fitter{o: o, gammas: []float64{features.DefaultGamma}, used: []*Run{p}, out: &result.Fit{Options: o.Record()}}
		if it.Model, err = f.otherModel([]*rows.Table{table}, Linear3); err != nil {
			it.Reason = fmt.Sprintf("no step times: %v", err)
		} else {
			it.predict(table)
		}
	}
	it.Findings = p.Findings
	return it, nil
}

// predict fills the rows' times with the fitted coefficients.
func (it *Iteration) predict(t *rows.Table) {
	for i := range t.Kept {
		us := 0.0
		for j, x := range t.Row(i) {
			us += x * it.Model.Coefficients[j].Value
		}
		if us > 0 {
			it.TimeNs = append(it.TimeNs, t.TimeNs[i])
			it.Us = append(it.Us, t.Y[i])
			it.PredUs = append(it.PredUs, us)
		}
	}
}

// floorsOf are the three limits, in us.
func floorsOf(space *features.Space) [3]float64 {
	token := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1})
	one := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, NumSampledSeqs: 1})
	read := space.Roofline(&features.StepInput{ScheduledTokens: 1, DecodeTokens: 1, NumDecodeReqs: 1, KVReadTokens: 1})
	return [3]float64{one.WeightS * 1e6, token.LinearS * 1e6, (read.KVS - token.KVS) * 1e6}
}

// MaxLags are the lags that are tried, from 0 (spec#lag).
const MaxLags = 3

// Rules (spec#lag): a lag is measured from at least this many hold-out intervals,
// when the best error is at most this share of the second.
const (
	lagMinIntervals = 20
	lagMaxRatio     = 0.8
)

// chooseLag measures the schedule-to-execution lag of one run, or assumes it.
func (p *Run) chooseLag(steps *rows.Steps, space *features.Space, o Options) error {
	assumed := rows.AssumedLag(&p.Src.Deployment)
	p.Lag = result.RunLag{Lag: assumed}
	if o.BetaTarget != coeff.Cadence || steps.Quality.Recorded == 0 {
		p.Lag.Lag = 0
		return nil
	}
	e, err := steps.LagEvidence(space, rows.Options{Target: coeff.Cadence, Gamma: features.DefaultGamma})
	if err != nil {
		return err
	}
	errs := make([]float64, MaxLags)
	for lag := range errs {
		train, test, err := e.At(lag)
		if err != nil {
			return err
		}
		errs[lag] = lagError(train, test, space, o)
	}
	best, second := twoSmallest(errs)
	measured := e.N() >= lagMinIntervals && second >= 0 && errs[best] <= lagMaxRatio*errs[second]
	verdict := "not_measurable"
	if measured {
		verdict = "measured"
		p.Lag = result.RunLag{Lag: best, Measured: true}
	}
	for lag := range errs {
		p.Evidence = append(p.Evidence, result.LagEvidence{Run: p.Src.ID, Lag: lag, HoldoutMAPEPrefill: result.OrNull(errs[lag]),
			N: e.N(), Verdict: verdict})
	}
	switch {
	case o.Lag != nil:
		p.Lag = result.RunLag{Lag: *o.Lag, Measured: measured && best == *o.Lag}
	case !measured:
		p.Findings = append(p.Findings, trace.Findingf(LagUncertain,
			"%s: %d hold-out intervals with prefill cannot tell the lag; %d assumed from async_scheduling", p.Src.ID, e.N(), assumed))
	case best != assumed:
		p.Findings = append(p.Findings, trace.Findingf(LagUncertain,
			"%s: the measured lag is %d, run.yaml implies %d; the measured lag is used", p.Src.ID, best, assumed))
	}
	return nil
}

// lagError fits the relative recipe on the training rows and scores the common
// hold-out intervals; NaN where there are too few rows.
func lagError(train, test *rows.Table, space *features.Space, o Options) float64 {
	if train.Kept < lagMinIntervals || test.Kept == 0 {
		return math.NaN()
	}
	rows.Clean([]*rows.Table{train}, rows.Relative)
	train.HoldOut = make([]bool, train.Kept)
	pool := Pooled([]*rows.Table{train}, nil)
	opt := RidgeOptions(FeatureTerms(space.BetaFeatures(), 1, PriorZero), EpsBetaUs, o)
	opt.Workers = 1
	opt.Objective = ridge.Within
	sel, err := ridge.Select(pool.Data, opt)
	if err != nil {
		return math.NaN()
	}
	w := ridge.Weights(pool.Data, opt)
	fit, _, err := ridge.FitPublished(pool.Data, w, sel[0].Lambda, opt)
	if err != nil {
		return math.NaN()
	}
	pred := make([]float64, test.Kept)
	for i := range pred {
		pred[i] = ridge.Dot(test.Row(i), fit.Beta)
	}
	scored := stat.Rows{Y: test.Y, Pred: pred}
	return scored.Errors(nil).MAPE
}

// twoSmallest are the positions of the smallest and second smallest number; -1
// where there is none.
func twoSmallest(v []float64) (best, second int) {
	best, second = -1, -1
	for i, x := range v {
		switch {
		case x != x:
		case best < 0 || x < v[best]:
			best, second = i, best
		case second < 0 || x < v[second]:
			second = i
		}
	}
	return best, second
}

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
	s.Fit = fit.Fit
	s.Censored = &fit
	a.passes = fit.Passes
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
		l := result.Loco{Config: key, Label: key}
		delays := rows.JudgeDelays(groups[c : c+1])
		if a.target == coeff.Overhead {
			e := delays.Intervals(nil)
			l.Rows, l.InsideShare = e.Rows, e.InsideShare
		} else {
			e := delays.Errors(nil)
			l.Rows = e.Rows
			l.MAPE = e.MAPE
			l.MAPEWindow10s = e.MAPEWindow10s
			l.Bias = e.Bias
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
	d := s.Train.Subset(mine)
	b := a.bounds.Subset(mine)
	o := s.Opt
	o.Anchor = common
	o.AnchorTight = 2 * o.SpreadUs * o.SpreadUs / (overheadApart * overheadApart) / float64(len(mine))
	o.Objective = ridge.Within
	sels, err := d.SelectIntervals(b, o)
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
