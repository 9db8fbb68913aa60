package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
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
		all = append(all, one)
		groups[c] = append(groups[c], one)
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
		plain := leftOut(key, trainErrors(s, pred, int32(c)))
		scaled := leftOut(key, trainErrors(s, Scaled(pred, factor), int32(c)))
		if frozen != nil {
			plain.MAPEFrozen10, scaled.MAPEFrozen10 = result.OrNull(frozen[c]), result.OrNull(frozen[c])
		}
		out.Loco = append(out.Loco, plain)
		pooled = append(pooled, scaled)
		f.progress.Report("leave-one-configuration-out", int64(c+1), int64(len(s.Pool.Configs)), "fits")
	}
	mape := func(l result.Loco) *float64 { return l.MAPE }
	Deployments(s, f.namesOf(s, (*deploy.Deployment).Label), out)
	out.LocoMedian, out.LocoWorst = spread(out.Loco, mape)
	if median, worst := spread(pooled, mape); s.Frozen == nil && median != nil && out.LocoMedian != nil && *median < *out.LocoMedian {
		out.LocoPlain = &result.LocoSummary{Median: out.LocoMedian, Worst: out.LocoWorst}
		out.Loco = pooled
		out.LocoMedian = median
		out.LocoWorst = worst
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

// maxExperiments bounds the list of experiments.
const maxExperiments = 12

// Identify says, from the recordings alone, which step-time terms can be told
// apart, how well, which kinds of steps are missing, and which one further
// experiment would shrink which interval most. Runs that cannot be fitted leave
// an empty answer with the reason.
func Identify(ctx context.Context, sources []Source, o Options) (*result.Identify, error) {
	o.BetaOnly = true
	o.Models = []string{}
	o.AlphaTargets = nil
	out := &result.Identify{Terms: []result.IdentifyTerm{}, NullDirections: []string{}, MissingRegimes: []string{},
		Experiments: []result.Experiment{}, Warnings: []trace.Finding{}}
	st, err := FitStepTime(ctx, sources, o)
	if err == nil {
		fillTerms(st, out)
	}
	if e := (*trace.Error)(nil); errors.As(err, &e) && e.Code == CodeNoRows {
		out.Warnings = append(out.Warnings, trace.Finding{Code: CodeNoRows, Message: e.Msg})
		return out, nil
	}
	return out, err
}

func fillTerms(st *StepTime, out *result.Identify) {
	s := st.Model
	tags := ridge.Identify(s.Train.WithinVariation(s.Weights))
	conf := Confidence(s, tags)
	diag := DiagnoseRows(s, st.Options.Workers)
	for j, t := range s.Terms {
		it := result.IdentifyTerm{Name: t.Name, Identified: tags[j], VIF: result.OrNull(diag.VIF[j])}
		if s.Fit.DFTerm != nil {
			it.DF = result.OrNull(s.Fit.DFTerm[j])
		}
		if conf != nil {
			it.HalfWidth = relativeHalfWidth(conf.Terms[j])
		}
		out.Terms = append(out.Terms, it)
	}
	if err := diag.Err; err != nil {
		out.Warnings = append(out.Warnings, trace.Finding{Code: CodeNoRows, Message: err.Error()})
	}
	for _, g := range diag.Null {
		out.NullDirections = append(out.NullDirections, NullSentence(s.Terms, g, len(s.Pool.Configs)))
	}
	out.MissingRegimes = missing(stat.Map(st.Runs, func(p *Run) kinds { return kindsOf(p.Coverage) }))
	out.Experiments = experiments(st, out.Terms)
	out.Warnings = append(append(out.Warnings, st.Warnings...), s.Findings...)
}

// relativeHalfWidth is half of a 95 % interval over its centre, before signs;
// nil where there is no interval or nothing to compare it with.
func relativeHalfWidth(t ridge.Interval) *float64 {
	if t.Method == ridge.FromNothing || !(t.Center > 0) {
		return nil
	}
	return result.OrNull((math.Max(t.Hi, t.Center) - t.Center) / t.Center)
}

// experiments ranks candidates by D-optimality: the information their rows add
// to that of the training rows, both with relative weights. Each names the term
// whose interval it shrinks most; a term that is no candidate's best is listed
// with its own best candidate.
func experiments(st *StepTime, terms []result.IdentifyTerm) []result.Experiment {
	s, list := st.Model, candidates(st)
	grams := stat.Map(list, func(c candidate) *ridge.Gram { return ridge.OfRows(c.data, c.data.Unbalanced(s.Opt), nil, 1) })
	if len(grams) == 0 {
		return []result.Experiment{}
	}
	ranked := ridge.OfRows(s.Train, s.Train.Unbalanced(s.Opt), nil, st.Options.Workers).Propose(grams)
	named := make([]bool, len(terms))
	out := []result.Experiment{}
	add := func(p ridge.Proposal, j int) {
		if j < 0 || len(out) == maxExperiments {
			return
		}
		named[j] = true
		e := result.Experiment{Description: list[p.Index].what, Term: terms[j].Name, HalfWidth: terms[j].HalfWidth, GainLogDet: p.LogDet}
		if e.HalfWidth != nil {
			e.After = result.OrNull(*e.HalfWidth * p.Shrink[j])
		}
		out = append(out, e)
	}
	for _, p := range ranked {
		if best := mostShrunk(p.Shrink); best >= 0 && !named[best] {
			add(p, best)
		}
	}
	for j := range terms {
		if !named[j] {
			if p := bestFor(ranked, j); p != nil {
				add(*p, j)
			}
		}
	}
	return out
}

// worthwhile is the share of a standard error an experiment must take off.
const worthwhile = 0.9

// mostShrunk is the term whose standard error falls most; -1 when none does.
func mostShrunk(shrink []float64) int {
	best := -1
	for j, v := range shrink {
		if v < worthwhile && (best < 0 || v < shrink[best]) {
			best = j
		}
	}
	return best
}

// bestFor is the proposal that shrinks one term most; nil when none does.
func bestFor(ranked []ridge.Proposal, j int) *ridge.Proposal {
	var best *ridge.Proposal
	for k := range ranked {
		if p := &ranked[k]; p.Shrink[j] < worthwhile && (best == nil || p.Shrink[j] < best.Shrink[j]) {
			best = p
		}
	}
	return best
}

// kinds counts the steps a simulator will meet.
type kinds struct {
	heavy, decodeSmall, decodeLarge, longContext, fullCache int
	batch, context                                          int // largest seen: lower end of the last bin with steps
}

// enough is how many steps of a kind make it present.
const enough = 20

// Where small ends and large begins.
const (
	largeBatch  = 32
	longContext = 4096
	fullUsage   = 0.9
)

func kindsOf(c rows.Coverage) kinds {
	k := kinds{heavy: c.Heavy}
	for i, n := range c.DecodeBatch.Counts {
		lo := c.DecodeBatch.Edges[i]
		if n > 0 {
			k.batch = int(lo)
		}
		if lo >= largeBatch {
			k.decodeLarge += n
		} else if lo < 4 {
			k.decodeSmall += n
		}
	}
	for i, n := range c.Context.Counts {
		lo := c.Context.Edges[i]
		if n > 0 {
			k.context = int(lo)
		}
		if lo >= longContext {
			k.longContext += n
		}
	}
	for i, n := range c.KVUsage.Counts {
		if c.KVUsage.Edges[i] >= fullUsage {
			k.fullCache += n
		}
	}
	return k
}

// missing names the kinds that no run holds enough of.
func missing(all []kinds) []string {
	var sum kinds
	for _, k := range all {
		sum.heavy += k.heavy
		sum.decodeSmall += k.decodeSmall
		sum.decodeLarge += k.decodeLarge
		sum.longContext += k.longContext
		sum.fullCache += k.fullCache
		sum.batch = max(sum.batch, k.batch)
		sum.context = max(sum.context, k.context)
	}
	out := []string{}
	for _, r := range []struct {
		n    int
		what string
	}{
		{sum.heavy, "steps with more than 64 prefill tokens: the prefill cost is not identifiable"},
		{sum.decodeSmall, "decode batches below 4 requests"},
		{sum.decodeLarge, fmt.Sprintf("decode batches of %d requests and more (largest seen: about %d)", largeBatch, sum.batch)},
		{sum.longContext, fmt.Sprintf("contexts of %d tokens and more (longest seen: about %d)", longContext, sum.context)},
		{sum.fullCache, fmt.Sprintf("KV usage above %g", fullUsage)},
	} {
		if r.n < enough {
			out = append(out, fmt.Sprintf("%d %s", r.n, r.what))
		}
	}
	return out
}

// Sizes of a synthetic experiment.
const (
	experimentSteps = 400
	shortContext    = 256  // tokens
	fewDecodes      = 8    // requests
	longestContext  = 8192 // tokens; less where the model or the cache ends earlier
)

// load is a list of batches, one per step, repeated to experimentSteps.
type load struct {
	what    string
	batches [][]trace.Chunk
}

// candidates are experiments around the configuration with most rows: loads on
// it, and the same varied load on a changed deployment.
func candidates(st *StepTime) []candidate {
	s := st.Model
	key := s.Pool.Configs[largestConfig(s)]
	k := slices.IndexFunc(st.Runs, func(p *Run) bool { return p.Config == key })
	base := st.Runs[k].Src.Deployment
	var out []candidate
	add := func(d deploy.Deployment, what string, l load) {
		space, err := features.New(st.Options.Spec, &d)
		if err != nil {
			return // not a deployment this version describes
		}
		var steps []features.StepInput
		for i := range experimentSteps {
			steps = append(steps, space.Sum(l.batches[i%len(l.batches)]))
			steps[i].RunningDepth = float64(len(l.batches[i%len(l.batches)]))
		}
		if data := rowsOf(s, space, steps); len(data.Y) > 0 {
			out = append(out, candidate{what, data})
		}
	}
	loads := loadsOf(&base)
	for _, l := range loads {
		add(base, l.what+" on "+base.Label(), l)
	}
	for _, v := range variants(base) {
		add(v.dep, "a run on "+v.what+" (batches, contexts and prompts varied)", everything(loadsOf(&v.dep)))
	}
	return out
}

func everything(loads []load) load {
	var all load
	for _, l := range loads {
		all.batches = append(all.batches, l.batches...)
	}
	return all
}

// loadsOf are the loads a deployment can be given.
func loadsOf(d *deploy.Deployment) []load {
	e := &d.Engine
	top := min(d.LongestSequence().Or(longestContext), longestContext)
	batches := load{what: fmt.Sprintf("decode batches from 1 to %d at short contexts", e.MaxNumSeqs)}
	contexts := load{what: fmt.Sprintf("decodes at contexts from 64 to %d tokens", top)}
	prompts := load{what: "single prompts of very different length"}
	mixed := load{what: "prompts beside decodes"}
	for n := int64(1); n <= e.MaxNumSeqs; n *= 2 {
		batches.batches = append(batches.batches, decodes(n, shortContext))
	}
	for c := int64(64); c < top; c *= 2 {
		contexts.batches = append(contexts.batches, decodes(min(fewDecodes, e.MaxNumSeqs), c))
	}
	for n := int64(32); n <= e.MaxNumBatchedTokens && n < top; n *= 2 {
		prompts.batches = append(prompts.batches, []trace.Chunk{{Prompt: n, New: n}})
		if beside := min(fewDecodes, e.MaxNumSeqs-1); beside > 0 && n+beside <= e.MaxNumBatchedTokens {
			mixed.batches = append(mixed.batches, append(decodes(beside, shortContext), trace.Chunk{Prompt: n, New: n}))
		}
	}
	return slices.DeleteFunc([]load{batches, contexts, prompts, mixed}, func(l load) bool { return len(l.batches) == 0 })
}

// decodes are n requests with c tokens in KV, each adding one.
func decodes(n, c int64) []trace.Chunk {
	out := make([]trace.Chunk, n)
	for i := range out {
		out[i] = trace.Chunk{Computed: c, Prompt: c, New: 1}
	}
	return out
}

// variant is a deployment that differs from the base in one respect.
type variant struct {
	what string
	dep  deploy.Deployment
}

func variants(base deploy.Deployment) []variant {
	var out []variant
	add := func(what string, change func(*deploy.Deployment)) {
		d := base
		change(&d)
		out = append(out, variant{what, d})
	}
	for _, tp := range []int64{base.TP * 2, base.TP / 2} {
		if tp >= 1 && base.Model.NumKVHeads%tp == 0 {
			add(fmt.Sprintf("tensor_parallel_size %d", tp), func(d *deploy.Deployment) { d.TP = tp })
		}
	}
	m := base.Model
	devices := func() []variant {
		for _, h := range deploy.Datasheets() {
			if h.Name != base.Hardware.Name && (h.Name == "H100-SXM-80GB" || h.Name == "A100-SXM-80GB") {
				add("another device ("+h.Name+")", func(d *deploy.Deployment) { d.Hardware = h })
			}
		}
		return out
	}
	if m.Layered != nil {
		half := *m.Layered
		half.Layers = half.Layers[:max(1, m.NumLayers/2)]
		add(fmt.Sprintf("the model's first %d layers", len(half.Layers)), func(d *deploy.Deployment) { d.Model.Layered = &half })
		return devices()
	}
	add(fmt.Sprintf("a model of half the depth (%d layers)", m.NumLayers/2), func(d *deploy.Deployment) {
		d.Model.NumLayers = m.NumLayers / 2
		d.Model.NumMoELayers = m.NumMoELayers / 2
	})
	add(fmt.Sprintf("a model of half the width (hidden size %d)", m.HiddenSize/2), func(d *deploy.Deployment) {
		d.Model.HiddenSize = m.HiddenSize / 2
		d.Model.IntermediateSize = m.IntermediateSize / 2
		d.Model.NumHeads = m.NumHeads / 2
		d.Model.NumKVHeads = max(1, m.NumKVHeads/2)
	})
	if m.NumKVHeads < m.NumHeads {
		add(fmt.Sprintf("a model with as many KV heads as heads (%d)", m.NumHeads),
			func(d *deploy.Deployment) { d.Model.NumKVHeads = m.NumHeads })
	} else {
		add("a model with an eighth of the KV heads", func(d *deploy.Deployment) { d.Model.NumKVHeads = max(1, m.NumHeads/8) })
	}
	if m.NumExperts < 2 {
		add("a mixture-of-experts model (8 experts, 2 of them per token)", func(d *deploy.Deployment) {
			d.Model.NumExperts = 8
			d.Model.TopK = 2
			d.Model.MoEIntermediateSize = m.IntermediateSize
			d.Model.NumMoELayers = m.NumLayers
		})
	}
	return devices()
}

// largestConfig is the configuration with most training rows: the one experiments vary.
func largestConfig(s *Solved) int32 {
	counts := make([]int, len(s.Pool.Configs))
	for _, c := range s.Train.Config {
		counts[c]++
	}
	return int32(slices.Index(counts, slices.Max(counts)))
}

// candidate is one experiment as synthetic rows.
type candidate struct {
	what string
	data *ridge.Data
}

// rowsOf are an experiment's steps as rows of the model, their targets predicted
// by the fit. Steps the features refuse or bound are left out.
func rowsOf(s *Solved, space *features.Space, steps []features.StepInput) *ridge.Data {
	d := &ridge.Data{P: len(s.Terms)}
	x := make([]float64, d.P)
	for i := range steps {
		if hits, err := space.Beta(&steps[i], x); err != nil || hits != 0 {
			continue
		}
		d.X = append(d.X, x...)
		d.Y = append(d.Y, math.Max(ridge.Dot(x, s.Fit.Beta), 1))
	}
	d.Config = make([]int32, len(d.Y))
	d.Regime = make([]int32, len(d.Y))
	return d
}
