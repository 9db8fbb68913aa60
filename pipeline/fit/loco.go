package fit

// This file cross-validates over configurations: each is predicted by a fit of the others (leave one
// configuration out, "loco").

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
)

// locoBeta cross-validates the step time over configurations. Each configuration is predicted by a
// fit of the others, with the lambda that the nested selection chose without it and with the
// reweighting passes (spec#reweighting), and scored on all its training rows. Hardware factors are
// cross-validated in the same way; the published fit has them if they lower the median error.
func (f *fitter) locoBeta(s *Solved, m Selections, out *result.Model) error {
	if len(s.Pool.Configs) < 2 {
		ApplyDeploymentFactors(s, f.namesOf(s, (*deploy.Deployment).Label), out)
		return nil
	}
	frozen := f.frozenLoco(s)
	hw := f.namesOf(s, hardwareName)
	var withFactors []result.Loco
	for c, key := range s.Pool.Configs {
		if s.Pool.saturatedConfig(key) { // has rows near preemptions only, which are not typical
			continue
		}
		beta, err := f.leaveOut(s, int32(c))
		if err != nil {
			return err
		}
		pred := ridge.Predict(s.Train, beta)
		factor := factorOfDevice(deviceFactors(s.Train, pred, hw, int32(c)), hw[c])
		plain := locoEntry(key, trainErrors(s, pred, int32(c)))
		scaled := locoEntry(key, trainErrors(s, Scaled(pred, factor), int32(c)))
		if frozen != nil {
			plain.MAPEFrozen10 = result.OrNull(frozen[c])
			scaled.MAPEFrozen10 = result.OrNull(frozen[c])
		}
		out.Loco = append(out.Loco, plain)
		withFactors = append(withFactors, scaled)
		f.progress.Report("leave-one-configuration-out", int64(c+1), int64(len(s.Pool.Configs)), "fits")
	}
	// After the loop, because its fits start from the common coefficients without factors.
	ApplyDeploymentFactors(s, f.namesOf(s, (*deploy.Deployment).Label), out)
	out.LocoMedian, out.LocoWorst = locoMAPEs(out.Loco)
	median, worst := locoMAPEs(withFactors)
	devicesHelp := median != nil && out.LocoMedian != nil && *median < *out.LocoMedian
	if s.Frozen == nil && devicesHelp {
		out.LocoPlain = &result.LocoSummary{Median: out.LocoMedian, Worst: out.LocoWorst}
		out.Loco = withFactors
		out.LocoMedian = median
		out.LocoWorst = worst
		out.HardwareFactors = deviceFactors(s.Train, ridge.Predict(s.Train, s.Fit.Beta), hw, -1)
	}
	return nil
}

// leaveOut fits the model without configuration c, reweighted like the published fit, and returns its
// coefficients. Rows keep their weights, so that the published fit and this one minimise the same loss
// on the rows they share.
func (f *fitter) leaveOut(s *Solved, c int32) ([]float64, error) {
	rest := rowsWhere(s.Train.Config, func(k int32) bool { return k != c })
	sub := s.Train.Subset(rest)
	if s.Frozen != nil {
		fit, err := sub.FitFrozen(s.Opt)
		return fit.Beta, err
	}
	w := make([]float64, len(rest))
	for k, i := range rest {
		w[k] = s.Weights[i]
	}
	fit, _, err := ridge.FitPublished(sub, w, s.Sel.LambdaWithout(c), s.Opt)
	return fit.Beta, err
}

// rowsWhere returns the positions whose label keep accepts.
func rowsWhere(labels []int32, keep func(int32) bool) []int32 {
	var out []int32
	for i, c := range labels {
		if keep(c) {
			out = append(out, int32(i))
		}
	}
	return out
}

// frozenLoco returns the cross-validated MAPE of every configuration of s under the frozen
// recipe on 1.0 features of the same cadence rows, NaN for a configuration without one; nil when no
// run has such rows. It shows what version 1.1 gains over 1.0, the first specification.
func (f *fitter) frozenLoco(s *Solved) []float64 {
	if f.o.Spec == features.V10 {
		return nil
	}
	var tables []*rows.Table
	for _, p := range f.used {
		if p.Frozen != nil && p.Frozen.Kept > 0 {
			tables = append(tables, p.Frozen)
		}
	}
	if len(tables) == 0 {
		return nil
	}
	rows.Clean(tables, rows.Frozen)
	p := Pooled(tables, nil)
	out := make([]float64, len(s.Pool.Configs))
	terms := featureTerms(features.BetaFeatures(features.V10), len(p.Configs), PriorZero)
	opt := ridgeOptions(terms, EpsBetaUs, f.o)
	for c, key := range s.Pool.Configs {
		out[c] = math.NaN()
		k := int32(slices.Index(p.Configs, key))
		if k < 0 || len(p.Configs) < 2 {
			continue
		}
		train := p.TrainData()
		sub := train.Subset(rowsWhere(train.Config, func(x int32) bool { return x != k }))
		fit, err := sub.FitFrozen(opt)
		if err != nil {
			continue // too few rows of the others: no comparison for this configuration
		}
		scored := stat.Rows{Y: train.Y, Pred: ridge.Predict(train, fit.Beta)}
		out[c] = scored.Errors(func(i int) bool { return train.Config[i] == k }).MAPE
	}
	return out
}

// trainErrors returns the errors of predictions on the training rows of configuration c, also those of
// the best constant step time.
func trainErrors(s *Solved, pred []float64, c int32) stat.Errors {
	scored := stat.Rows{Y: s.Train.Y, Pred: pred, Steps: s.Train.Steps}
	in := func(i int) bool { return s.Train.Config[i] == c }
	level := scored.BestConstant(in)
	for _, steps := range s.Train.Steps {
		scored.Const = append(scored.Const, level*steps)
	}
	return scored.Errors(in)
}

// locoEntry returns the entry of the document for a configuration that a fit of the others predicts.
func locoEntry(key string, e stat.Errors) result.Loco {
	return result.Loco{
		Config:    key,
		Label:     key,
		Rows:      e.Rows,
		MAPE:      result.OrNull(e.MAPE),
		Bias:      result.OrNull(e.Bias),
		MAPEConst: result.OrNull(e.MAPEConst),
	}
}

// locoMAPEs returns the median and the largest MAPE of the configurations held out.
func locoMAPEs(list []result.Loco) (median, worst *float64) {
	var v []float64
	for i := range list {
		if list[i].MAPE != nil {
			v = append(v, *list[i].MAPE)
		}
	}
	if len(v) == 0 {
		return nil, nil
	}
	return result.OrNull(stat.Median(v)), result.OrNull(slices.Max(v))
}
