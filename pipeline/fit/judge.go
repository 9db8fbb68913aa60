package fit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/trace"
)

// DriftBlocks is how many blocks of each run's hold-out the drift is read from.
const DriftBlocks = 5

// Samples are the rows of the model's runs with predictions of them, in order of
// runs, and the same by configuration.
func (s *Solved) Samples(part rows.Judged, pred []float64) (all []*rows.Sample, groups [][]*rows.Sample) {
	groups = make([][]*rows.Sample, len(s.Pool.Configs))
	from := 0
	for _, t := range s.Pool.Tables {
		c := s.Data.Config[from]
		one := &rows.Sample{Table: t, Pred: pred[from : from+t.Kept], Beta: s.betaIn(c), Part: part}
		all, groups[c] = append(all, one), append(groups[c], one)
		from += t.Kept
	}
	return all, groups
}

// Judge fills the errors of a step-time model.
func (s *Solved) Judge(out *result.Model, floor bool, workers int) *rows.StepErrors {
	all, groups := s.Samples(rows.HoldOut, s.Pred)
	held := rows.JudgeSteps(groups, floor, workers)
	for _, one := range all {
		out.Cells = append(out.Cells, held.Cells(one, true)...)
	}
	_, groups = s.Samples(rows.Training, s.Pred)
	out.Holdout, out.Train = held.Errors(), rows.JudgeSteps(groups, false, workers).Errors()
	return held
}

// Drift is the signed hold-out error of each run by equal blocks in time.
func (s *Solved) Drift() []result.DriftBlock {
	var out []result.DriftBlock
	p := s.Pool
	for t := range p.Tables {
		mine := stat.Filter(p.Hold, func(i int32) bool { return p.Data.Run[i] == int32(t) })
		n := len(mine)
		for b := 0; b < DriftBlocks && n >= 4*DriftBlocks; b++ {
			var diff, sum float64
			part := mine[b*n/DriftBlocks : (b+1)*n/DriftBlocks]
			for _, i := range part {
				diff += s.Pred[i] - s.Data.Y[i]
				sum += s.Data.Y[i]
			}
			out = append(out, result.DriftBlock{Run: p.Runs[t], Block: b + 1, Bias: diff / sum, Rows: len(part)})
		}
	}
	return out
}

// quantileLevels are the probabilities of the stored residual ratios.
var quantileLevels = []float64{0, .01, .025, .05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .975, .99, 1}

// Ratios are quantiles of y/prediction on the hold-out, outliers apart, per regime.
func (s *Solved) Ratios() []result.RegimeQuantiles {
	byRegime := map[int32][]float64{}
	all, _ := s.Samples(rows.HoldOut, s.Pred)
	for _, one := range all {
		for i, pred := range one.Pred {
			if one.Judges(i) && pred > 0 && !one.Table.IsOutlier(i) {
				r := int32(one.Table.Regime[i])
				byRegime[r] = append(byRegime[r], one.Table.Y[i]/pred)
			}
		}
	}
	var out []result.RegimeQuantiles
	for r := int32(0); r <= int32(rows.Mixed); r++ {
		v := byRegime[r]
		if len(v) == 0 {
			continue
		}
		slices.Sort(v)
		q := result.RegimeQuantiles{Regime: rows.Regime(r).String(), Rows: len(v)}
		for _, level := range quantileLevels {
			q.Quantiles = append(q.Quantiles, [2]float64{level, stat.Quantile(v, level)})
		}
		out = append(out, q)
	}
	return out
}

// ScaleBy multiplies the coefficients of every configuration by its factors and
// predicts again.
func (s *Solved) ScaleBy(factors []result.DeploymentFactor) {
	s.on = make([][]float64, len(s.Pool.Configs))
	for c, key := range s.Pool.Configs {
		s.on[c] = make([]float64, len(s.Terms))
		own := result.DeploymentFactor{Factor: 1, Prompt: 1}
		if k := slices.IndexFunc(factors, func(f result.DeploymentFactor) bool { return f.Config == key }); k >= 0 {
			own = factors[k]
		}
		for j, t := range s.Terms {
			factor := own.Factor
			if t.Prompt {
				factor *= own.Prompt
			}
			s.on[c][j] = s.Fit.Beta[j] * factor
		}
	}
	for i := range s.Pred {
		s.Pred[i] = ridge.Dot(s.Data.Row(i), s.betaIn(s.Data.Config[i]))
	}
}

// betaIn are the coefficients as they hold in a configuration.
func (s *Solved) betaIn(c int32) []float64 {
	if s.on == nil {
		return s.Fit.Beta
	}
	return s.on[c]
}

// burst is how many gaps between arrivals make a rate: fewer say more about chance
// than about load.
const burst = 50

// coveredBy is the largest load and the longest requests of a recording, outside the
// saturated spans left out of the fit (spec#covered-region). Journeys sampled below 1
// hide arrivals, so that no rate is told.
func coveredBy(run *trace.Run, left []rows.Span, sampled bool) *result.Covered {
	c := &result.Covered{}
	inside := func(ns int64) bool {
		return slices.ContainsFunc(left, func(s rows.Span) bool { return s.StartNs <= ns && ns < s.EndNs })
	}
	for i := range run.Steps {
		if s := &run.Steps[i]; !inside(s.TsStartNs) {
			c.Running = max(c.Running, s.RunningDepth)
		}
	}
	var arrivals []int64
	take := func(at trace.Opt[int64], success trace.Opt[bool], prompt, output trace.Opt[int64]) {
		if !at.OK || inside(at.V) {
			return
		}
		arrivals = append(arrivals, at.V)
		if success.Or(false) {
			c.PromptTokens, c.OutputTokens = max(c.PromptTokens, prompt.Or(0)), max(c.OutputTokens, output.Or(0))
		}
	}
	for i := range run.Requests {
		r := &run.Requests[i]
		at := r.ArrivedNs
		if !at.OK {
			at = r.QueuedNs
		}
		take(at, r.Success, r.PromptTokens, r.OutputTokens)
	}
	if len(run.Requests) == 0 { // an engine that tells of no request: what its clients sent
		for i := range run.Observed {
			r := &run.Observed[i]
			take(r.SendNs, r.Success, r.PromptTokens, r.OutputTokens)
		}
	}
	for i := range run.Observed { // of an unmodified engine, its clients tell
		if r := &run.Observed[i]; run.Aggregate != nil && run.Aggregate.OffsetNs.OK {
			take(r.SendNs, r.Success, r.PromptTokens, r.OutputTokens)
		}
	}
	slices.Sort(arrivals)
	if !sampled {
		c.RequestsPerS = busiest(arrivals)
	}
	return c
}

// busiest is the rate in requests/s over the `burst` gaps between arrivals, given in
// ns and ascending, that took the least time; nil with fewer.
func busiest(arrivals []int64) *float64 {
	best := int64(0)
	for i := burst; i < len(arrivals); i++ {
		if took := arrivals[i] - arrivals[i-burst]; took > 0 && (best == 0 || took < best) {
			best = took
		}
	}
	if best == 0 {
		return nil
	}
	return result.OrNull(burst / (float64(best) / 1e9))
}

// Cover is the union of two regions; either may be nil.
func Cover(a, b *result.Covered) *result.Covered {
	if a == nil || b == nil {
		return orOther(a, b)
	}
	out := &result.Covered{Running: max(a.Running, b.Running), PromptTokens: max(a.PromptTokens, b.PromptTokens),
		OutputTokens: max(a.OutputTokens, b.OutputTokens), RequestsPerS: orOther(a.RequestsPerS, b.RequestsPerS)}
	if x, y := a.RequestsPerS, b.RequestsPerS; x != nil && y != nil {
		out.RequestsPerS = result.OrNull(max(*x, *y))
	}
	return out
}

func orOther[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// locoBeta predicts every configuration from the others: lambda chosen by the
// nested selection (the outer configuration never seen), then the polish
// (spec#reweighting); scored on all training rows of the configuration left out. Hardware
// factors are tried the same way, learned without the outer configuration, and
// kept for the published fit when they lower the median error.
func (f *fitter) locoBeta(s *Solved, m Selections, out *result.Model) error {
	if len(s.Pool.Configs) < 2 {
		Deployments(s, f.namesOf(s, (*deploy.Deployment).Label), out)
		return nil
	}
	frozen := f.frozenLoco(s)
	hw := f.namesOf(s, hardwareName)
	var pooled []result.Loco
	for c, key := range s.Pool.Configs {
		if s.Pool.saturatedConfig(key) {
			continue
		}
		beta, err := f.leaveOut(s, int32(c))
		if err != nil {
			return err
		}
		pred := ridge.Predict(s.Train, beta)
		factor := OfDevice(Devices(s.Train, pred, hw, int32(c)), hw[c])
		plain, scaled := leftOut(key, trainErrors(s, pred, int32(c))), leftOut(key, trainErrors(s, Scaled(pred, factor), int32(c)))
		if frozen != nil {
			plain.MAPEFrozen10, scaled.MAPEFrozen10 = result.OrNull(frozen[c]), result.OrNull(frozen[c])
		}
		out.Loco, pooled = append(out.Loco, plain), append(pooled, scaled)
		f.progress.Report("leave-one-configuration-out", int64(c+1), int64(len(s.Pool.Configs)), "fits")
	}
	mape := func(l result.Loco) *float64 { return l.MAPE }
	Deployments(s, f.namesOf(s, (*deploy.Deployment).Label), out)
	out.LocoMedian, out.LocoWorst = spread(out.Loco, mape)
	if median, worst := spread(pooled, mape); s.Frozen == nil && median != nil && out.LocoMedian != nil && *median < *out.LocoMedian {
		out.LocoPlain = &result.LocoSummary{Median: out.LocoMedian, Worst: out.LocoWorst}
		out.Loco, out.LocoMedian, out.LocoWorst = pooled, median, worst
		out.HardwareFactors = Devices(s.Train, ridge.Predict(s.Train, s.Fit.Beta), hw, -1)
	}
	return nil
}

// leaveOut is the polished fit without one configuration.
func (f *fitter) leaveOut(s *Solved, c int32) ([]float64, error) {
	rest := rowsWhere(s.Train.Config, func(k int32) bool { return k != c })
	sub := s.Train.Subset(rest)
	if s.Frozen != nil {
		fit, err := sub.FitFrozen(s.Opt)
		return fit.Beta, err
	}
	w := stat.Map(rest, func(i int32) float64 { return s.Weights[i] })
	fit, _, err := ridge.FitPublished(sub, w, s.Sel.LambdaWithout(c), s.Opt)
	return fit.Beta, err
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
func (f *fitter) frozenLoco(s *Solved) []float64 {
	if f.o.Spec == features.V10 {
		return nil
	}
	tables := stat.Map(stat.Filter(f.used, func(p *Run) bool { return p.Frozen != nil && p.Frozen.Kept > 0 }), func(p *Run) *rows.Table {
		return p.Frozen
	})
	if len(tables) == 0 {
		return nil
	}
	rows.Clean(tables, rows.Frozen)
	p := Pooled(tables, nil)
	out := make([]float64, len(s.Pool.Configs))
	terms := FeatureTerms(features.BetaFeatures(features.V10), len(p.Configs), PriorZero)
	opt := RidgeOptions(terms, EpsBetaUs, f.o)
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
			continue // too few rows left: no comparison for this configuration
		}
		scored := stat.Rows{Y: train.Y, Pred: ridge.Predict(train, fit.Beta)}
		out[c] = scored.Errors(func(i int) bool { return train.Config[i] == k }).MAPE
	}
	return out
}

// trainErrors are those of predictions of the training rows of configuration c.
func trainErrors(s *Solved, pred []float64, c int32) stat.Errors {
	scored := stat.Rows{Y: s.Train.Y, Pred: pred, Steps: s.Train.Steps}
	in := func(i int) bool { return s.Train.Config[i] == c }
	level := scored.BestConstant(in)
	for _, steps := range s.Train.Steps {
		scored.Const = append(scored.Const, level*steps)
	}
	return scored.Errors(in)
}

// leftOut is the error of a configuration under the fit without it.
func leftOut(key string, e stat.Errors) result.Loco {
	return result.Loco{Config: key, Label: key, Rows: e.Rows, MAPE: result.OrNull(e.MAPE), Bias: result.OrNull(e.Bias),
		MAPEConst: result.OrNull(e.MAPEConst)}
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
	return result.OrNull(stat.Median(v)), result.OrNull(slices.Max(v))
}

func hardwareName(d *deploy.Deployment) string { return d.Hardware.Name }
