package fit

// This file fits the delays outside the steps, the alpha targets: overhead (from the API server to the
// engine's queue), admission (to the first scheduling), queue (in the engine's queue), and egress (from
// the engine to the client). Each is a linear model with its own penalty; the overhead is known only
// within intervals (overhead.go).

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// alphaFit is the fit of one alpha target (a delay outside the steps) in progress. s is nil for a
// target with too few rows.
type alphaFit struct {
	target string // coeff.Overhead, Admission, Queue or Egress
	s      *Solved
	sel    Selections       // scores of every lambda, by gamma
	bounds ridge.Bounds     // training rows; overhead only
	passes int              // of the interval fit that solved it; overhead only
	counts result.RowCounts // rows read, kept and dropped
	// findings are those of the target that are not yet in the document. Targets are fitted at the
	// same time, and the document has their findings in the order of the targets.
	findings []trace.Finding

	byDeployment []result.DeploymentCoefficients // empty with one deployment
}

// alphaFits has the fit of each alpha target, in the order of the options.
type alphaFits []*alphaFit

// selectAlpha makes the rows of one target and scores its penalties at every gamma. The overhead is
// known only within intervals and has a selection of its own (spec#interval-fit).
func (f *fitter) selectAlpha(ctx context.Context, target string) (*alphaFit, error) {
	a := &alphaFit{target: target}
	tables := tablesOf(f.used, func(p *Run) *rows.Table { return p.Alpha[target] })
	a.findings = rows.Clean(tables, rows.Recipe(f.o.Recipe))
	a.counts = RowCounts(tables)
	p := Pooled(tables, f.gammas)
	if len(p.Train) < ridge.DefaultOptions(1).Folds+1 {
		a.warn(CodeFewRows, report.DelayNotFitted(target, len(p.Train)))
		return a, nil
	}
	a.s = &Solved{Pool: p, Terms: alphaTerms(features.AlphaFeatures(f.o.Spec), len(p.Configs))}
	a.s.Opt = ridgeOptions(a.s.Terms, epsOf(target), f.o)
	a.s.Opt.EmbargoRows = embargo(alphaPerStep(p, f.used))
	if target != coeff.Overhead {
		if target != coeff.Egress { // admission and queue contain a queueing delay
			waitOptions(&a.s.Opt)
		}
		var err error
		a.sel, err = a.s.Choose(f.o.Recipe, target)
		return a, err
	}
	train := p.TrainData()
	a.bounds = p.Bounds(p.Train)
	overheadOptions(&a.s.Opt, features.AlphaFeatures(f.o.Spec), train, a.bounds)
	quick := a.s.Opt
	quick.SkipNested = true // nestOverhead adds them at the chosen gamma
	sels, err := train.SelectIntervals(ctx, a.bounds, quick)
	if a.warnNotConverged(err) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	a.sel.Rel = sels
	return a, nil
}

// warn adds a finding about the target.
func (a *alphaFit) warn(code trace.Code, message string) {
	a.findings = append(a.findings, trace.Finding{Code: code, Message: message})
}

// warnNotConverged reports whether err means that the solver found no certified answer for the target.
// If so, it warns and marks the target as not fitted: the step times do not depend on it, and the fit
// goes on with them.
func (a *alphaFit) warnNotConverged(err error) bool {
	e, ok := notConverged(err)
	if !ok {
		return false
	}
	a.s = nil
	a.warn(NotConverged, report.DelayNotConverged(a.target, e.Msg))
	return true
}

// notConverged returns the error of a fit that found no certified answer.
func notConverged(err error) (*ridge.Error, bool) {
	e, ok := errors.AsType[*ridge.Error](err)
	return e, ok && codeOf[e.Code] == NotConverged
}

// epsOf returns the floor of the denominator of relative weights, us (spec#delay-weights).
func epsOf(target string) float64 {
	if target == coeff.Queue {
		return EpsQueueUs
	}
	return EpsAlphaUs
}

// waitLambdas is the penalty grid of the targets that contain a queueing delay. With larger penalties
// the terms of the queue, which few rows need, shrink to nothing: on the demo's delays a lambda of 0.1
// predicts a fifth too little and 1 less than half (docs/decisions/0008).
var waitLambdas = []float64{1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3}

// waitOptions sets the options of ridge that differ for targets that contain a queueing delay
// (spec#delay-weights). Other code recognises these targets by Proportional.
func waitOptions(o *ridge.Options) {
	o.Proportional = true
	o.Lambdas = waitLambdas
	o.SmallestWithin = true
}

// alphaPerStep returns the mean number of alpha rows per recorded step. Rows of delays are requests,
// whereas the embargo between folds is stated in steps.
func alphaPerStep(p *Pool, used []*Run) float64 {
	steps := 0
	for _, u := range used {
		steps += u.Quality.Recorded
	}
	return float64(len(p.Train)) / math.Max(1, float64(steps))
}

// alphaModel fits one target of delays outside the steps and returns its part of fit.json; nil for a
// target with too few rows, or without a certified answer.
func (f *fitter) alphaModel(ctx context.Context, a *alphaFit) (*result.Model, error) {
	if a.s == nil {
		return nil, nil
	}
	var err error
	if a.target == coeff.Overhead {
		err = f.solveOverhead(ctx, a)
	} else {
		err = a.s.SolveAt(a.sel, f.gamma, f.o.RefitAll)
		// The frozen recipe ignores Proportional, and its one answer is kept unchanged.
		if err == nil && a.s.Opt.Proportional && a.s.Frozen == nil {
			err = f.fitWaitsByDeployment(a)
		}
	}
	if a.warnNotConverged(err) {
		return nil, nil
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

// judgeAlpha adds to out the hold-out errors of an alpha target, as a whole and by run, its
// coefficients by deployment and, for a target with a queueing delay, the mean delays. It is for
// targets of which every row has the measured delay; judgeOverhead is for the overhead, which is
// known only within an interval.
func (f *fitter) judgeAlpha(a *alphaFit, out *result.Model) {
	all, groups := a.s.Samples(rows.HoldOut, clipped(a.s.Pred))
	held := rows.JudgeDelays(groups)
	out.TargetErrors = held.Errors(nil)
	out.DeploymentCoefficients = a.byDeployment
	if a.s.Opt.Proportional && a.s.Frozen == nil {
		out.MeanDelays = a.meanDelays()
	}
	for t, ofRun := range all {
		if e := held.Errors(func(s *rows.Sample) bool { return s == ofRun }); e != nil {
			out.AlphaRuns = append(out.AlphaRuns, result.AlphaRun{
				Run:    a.s.Pool.Runs[t],
				Config: ofRun.Table.Config,
				Errors: e,
			})
		}
	}
}

// meanDelays returns the mean delay over the training rows of each regime (idle: the request found no
// other waiting; waiting), measured and predicted. The intervals are widened to include the published
// mean, as those of coefficients are.
func (a *alphaFit) meanDelays() []result.MeanDelay {
	s := a.s
	var out []result.MeanDelay
	var rowsOfMean [][]int32 // the rows behind each element of out
	for _, regime := range []rows.Regime{rows.Idle, rows.Waiting} {
		list := rowsWhere(s.Train.Regime, func(r int32) bool { return rows.Regime(r) == regime })
		if len(list) == 0 {
			continue
		}
		m := result.MeanDelay{Regime: regime.String(), Rows: len(list)}
		for _, i := range list {
			m.MeasuredUs += s.Train.Y[i] / float64(len(list))
			m.PredictedUs += math.Max(0, ridge.Dot(s.Train.Row(int(i)), s.Fit.Beta)) / float64(len(list))
		}
		out = append(out, m)
		rowsOfMean = append(rowsOfMean, list)
	}
	for k, interval := range s.Train.MeanIntervals(s.Fit, rowsOfMean, s.Opt) {
		lo, hi := interval.Holding(out[k].PredictedUs)
		hasEnds := !math.IsInf(lo, 0) && !math.IsInf(hi, 0) // infinite with too few blocks; JSON cannot hold that
		if interval.Method != ridge.FromNothing && hasEnds {
			out[k].CI95 = &[2]float64{math.Max(0, lo), hi}
		}
	}
	return out
}

// locoAlpha cross-validates an alpha target over configurations: each is predicted by a fit of the
// others.
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
		delays := rows.JudgeDelays(groups[c : c+1]) // of configuration c alone
		if a.target == coeff.Overhead {
			e := delays.Intervals(nil)
			l.Rows, l.InsideShare = e.Rows, e.InsideShare
		} else {
			e := delays.Errors(nil)
			l.Rows = e.Rows
			l.MAPE = e.MAPE
			l.MAPEWindow10s = e.MAPEWindow10s
			l.Windows = e.Windows
			l.Bias = e.Bias
		}
		out.Loco = append(out.Loco, l)
	}
	out.LocoMedian, out.LocoWorst = locoMAPEs(out.Loco)
	return nil
}

// alphaWithout fits an alpha target without configuration c and returns its coefficients.
func (f *fitter) alphaWithout(a *alphaFit, c int32) ([]float64, error) {
	if a.target != coeff.Overhead {
		return f.leaveOut(a.s, c)
	}
	rest := rowsWhere(a.s.Train.Config, func(k int32) bool { return k != c })
	fit, err := a.s.Train.FitCensored(a.bounds, a.s.Weights, rest, a.s.Sel.LambdaWithout(c), a.s.Opt)
	return fit.Fit.Beta, err
}

// clipped returns the predictions with negative ones set to 0, in place, because a delay cannot be
// negative.
func clipped(pred []float64) []float64 {
	for i, v := range pred {
		pred[i] = math.Max(0, v)
	}
	return pred
}

// fitWaitsByDeployment fits every deployment of a pooled fit again on its own rows. The penalty pulls to a multiple
// of the common coefficients, the one at which the deployment's delays have the right sum
// (spec#delay-weights). A queue drains at the pace of the steps, which differs between deployments,
// and no feature of the queue's length has a time scale.
func (f *fitter) fitWaitsByDeployment(a *alphaFit) error {
	s := a.s
	names := f.namesOf(s, (*deploy.Deployment).Label)
	labels := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(labels) < 2 {
		return nil
	}
	for _, label := range labels {
		own, err := a.fitWaitsOf(label, names)
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		a.byDeployment = append(a.byDeployment, *own)
		for i, c := range s.Data.Config {
			if names[c] == label {
				s.Pred[i] = ridge.Dot(s.Data.Row(i), own.Values)
			}
		}
	}
	return nil
}

// fitWaitsOf returns the coefficients of a queueing delay fitted to the training rows of one deployment:
// the common ones if the rows are too few for folds. names are the deployments of the configurations.
func (a *alphaFit) fitWaitsOf(label string, names []string) (*result.DeploymentCoefficients, error) {
	s := a.s
	mine := rowsWhere(s.Train.Config, func(c int32) bool { return names[c] == label })
	out := &result.DeploymentCoefficients{Deployment: label, Values: s.Fit.Beta, Rows: len(mine)}
	if len(mine) < s.Opt.Folds+1 {
		return out, nil
	}
	d := s.Train.Subset(mine)
	var measured, predicted float64
	for i, pred := range ridge.Predict(d, s.Fit.Beta) {
		measured += d.Y[i]
		predicted += pred
	}
	// The prior is the common fit, scaled to the deployment's sum of delays.
	o := s.Opt
	o.Objective = ridge.Within
	if predicted > 0 {
		o.Prior = make([]float64, d.P)
		for j, v := range s.Fit.Beta {
			o.Prior[j] = v * measured / predicted
		}
	}
	sels, err := ridge.Select(d, o)
	if err != nil {
		return nil, err
	}
	fit, _, err := ridge.FitPublished(d, ridge.Weights(d, o), sels[0].Lambda, o)
	if err != nil {
		return nil, err
	}
	out.Lambda = result.OrNull(fit.Lambda)
	out.Values = fit.Beta
	return out, nil
}
