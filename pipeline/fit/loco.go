package fit

import (
	"slices"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/ridge/gram"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/pipeline/score"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
)

// locoBeta predicts every configuration from the others: lambda chosen by the
// nested selection (the outer configuration never seen), then the polish of
// V-9; scored on all training rows of the configuration left out. Hardware
// factors are tried the same way, learned without the outer configuration, and
// kept for the published fit when they lower the median error.
func (f *fitter) locoBeta(s *solved, m modelSelections, out *result.Model) error {
	if len(s.pool.configs) < 2 {
		f.deploymentFactors(s, out)
		return nil
	}
	frozen, err := f.frozenLoco(s)
	if err != nil {
		return err
	}
	hw := f.namesOf(s, hardwareName)
	var pooled []result.Loco
	for c, key := range s.pool.configs {
		beta, err := f.leaveOut(s, m, int32(c))
		if err != nil {
			return err
		}
		pred := gram.Predict(s.train, beta)
		factor := factorOf(learnFactors(s.train, pred, hw, int32(c)), hw[c])
		plain, scaled := leftOut(key, s.trainErrors(pred, int32(c))), leftOut(key, s.trainErrors(scaled(pred, factor), int32(c)))
		if frozen != nil {
			plain.MAPEFrozen10, scaled.MAPEFrozen10 = num(frozen[c]), num(frozen[c])
		}
		out.Loco, pooled = append(out.Loco, plain), append(pooled, scaled)
		f.progress.Report("leave-one-configuration-out", int64(c+1), int64(len(s.pool.configs)), "fits")
	}
	mape := func(l result.Loco) *float64 { return l.MAPE }
	f.deploymentFactors(s, out)
	out.LocoMedian, out.LocoWorst = spread(out.Loco, mape)
	if median, worst := spread(pooled, mape); s.frozen == nil && median != nil && out.LocoMedian != nil && *median < *out.LocoMedian {
		out.LocoPlain = &result.LocoSummary{Median: out.LocoMedian, Worst: out.LocoWorst}
		out.Loco, out.LocoMedian, out.LocoWorst = pooled, median, worst
		out.HardwareFactors = learnFactors(s.train, gram.Predict(s.train, s.fit.Beta), hw, -1)
	}
	return nil
}

// leaveOut is the polished fit without one configuration.
func (f *fitter) leaveOut(s *solved, m modelSelections, c int32) ([]float64, error) {
	rest := rowsWhere(s.train.Config, func(k int32) bool { return k != c })
	sub := s.train.Subset(rest)
	if s.frozen != nil {
		fit, err := cv.Frozen(sub, s.opt)
		return fit.Beta, err
	}
	lambda := s.sel.Lambda
	for _, n := range s.sel.Nested {
		if n.Config == c {
			lambda = n.Lambda
		}
	}
	w := make([]float64, len(rest))
	for k, i := range rest {
		w[k] = s.weights[i]
	}
	ls, err := ridge.FitRows(sub, w, nil, lambda, s.opt)
	if err != nil {
		return nil, err
	}
	p, err := ridge.Reweight(sub, w, ls, s.opt)
	if err != nil {
		return nil, err
	}
	return p.Best().Beta, nil
}

func rowsWhere(labels []int32, keep func(int32) bool) []int32 {
	var out []int32
	for i, c := range labels {
		if keep(c) {
			out = append(out, int32(i))
		}
	}
	return out
}

// frozenLoco is the frozen recipe on 1.0 features of the same cadence rows, one
// MAPE per configuration of s left out; nil when the 1.0 rows cannot be had.
func (f *fitter) frozenLoco(s *solved) ([]float64, error) {
	if f.o.Spec == features.V10 {
		return nil, nil
	}
	var tables []*rows.Table
	for _, p := range f.used {
		if p.frozen != nil && p.frozen.Kept > 0 {
			tables = append(tables, p.frozen)
		}
	}
	if len(tables) == 0 {
		return nil, nil
	}
	rows.Clean(tables, rows.Frozen)
	p := newPool(tables, nil)
	out := make([]float64, len(s.pool.configs))
	terms := featureTerms(features.BetaFeatures(features.V10), len(p.configs), PriorZero)
	opt := ridgeOptions(terms, epsBetaUs, f.o)
	for c, key := range s.pool.configs {
		out[c] = nan
		k := int32(slices.Index(p.configs, key))
		if k < 0 || len(p.configs) < 2 {
			continue
		}
		train := p.trainData()
		sub := train.Subset(rowsWhere(train.Config, func(x int32) bool { return x != k }))
		fit, err := cv.Frozen(sub, opt)
		if err != nil {
			continue // too few rows left: no comparison for this configuration
		}
		scored := stat.Rows{Y: train.Y, Pred: gram.Predict(train, fit.Beta)}
		out[c] = scored.Errors(func(i int) bool { return train.Config[i] == k }).MAPE
	}
	return out, nil
}

// locoAlpha is leave-one-configuration-out of an alpha target.
func (f *fitter) locoAlpha(a *alphaFit, out *result.Model) error {
	s := a.s
	if len(s.pool.configs) < 2 {
		return nil
	}
	for c, key := range s.pool.configs {
		beta, err := f.alphaWithout(a, int32(c))
		if err != nil {
			return err
		}
		_, groups := s.samples(score.Whole, clipped(gram.Predict(s.data, beta)))
		l, delays := result.Loco{Config: key, Label: key}, score.NewDelays(groups[c:c+1])
		if a.target == rows.Overhead {
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
	if a.target != rows.Overhead {
		return f.leaveOut(a.s, a.sel, c)
	}
	lambda := a.s.sel.Lambda
	for _, n := range a.s.sel.Nested {
		if n.Config == c {
			lambda = n.Lambda
		}
	}
	rest := rowsWhere(a.s.train.Config, func(k int32) bool { return k != c })
	fit, err := ridge.FitCensored(a.s.train, a.bounds, a.s.weights, rest, lambda, a.s.opt)
	return fit.Fit.Beta, err
}

// trainErrors are those of predictions of the training rows of configuration c.
func (s *solved) trainErrors(pred []float64, c int32) stat.Errors {
	scored := stat.Rows{Y: s.train.Y, Pred: pred, Steps: s.train.Steps}
	in := func(i int) bool { return s.train.Config[i] == c }
	level := scored.BestConstant(in)
	for _, steps := range s.train.Steps {
		scored.Const = append(scored.Const, level*steps)
	}
	return scored.Errors(in)
}

// leftOut is the error of a configuration under the fit without it.
func leftOut(key string, e stat.Errors) result.Loco {
	return result.Loco{Config: key, Label: key, Rows: e.Rows, MAPE: num(e.MAPE), Bias: num(e.Bias), MAPEConst: num(e.MAPEConst)}
}

// spread is the median and the worst of what pick finds.
func spread(list []result.Loco, pick func(result.Loco) *float64) (median, worst *float64) {
	var v []float64
	for _, l := range list {
		if x := pick(l); x != nil {
			v = append(v, *x)
		}
	}
	if len(v) == 0 {
		return nil, nil
	}
	return num(stat.Median(v)), num(slices.Max(v))
}
