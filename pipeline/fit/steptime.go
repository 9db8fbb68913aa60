package fit

// This file fits the step time (beta): it chooses penalty, form and gamma, and describes the solution.

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/reconstruct/logged"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// componentShare is the share of the columns' variance that a fit in principal components keeps.
const componentShare = 0.999

// selected is the step time before it is solved, with the scores of its grids.
type selected struct {
	model      *Solved
	selections Selections
}

// selectBeta makes the pool of step-time rows, scores the grid of lambda at every gamma and sets
// f.gamma. The model that it returns is not solved yet. A second call returns what the first did.
func (f *fitter) selectBeta() (*Solved, Selections, error) {
	if f.selected == nil {
		model, selections, err := f.scoreGrids()
		if few, ok := errors.AsType[*ridge.Error](err); ok && few.Code == ridge.TooFewRows {
			err = f.nothingLeft()
		}
		if err != nil {
			return nil, Selections{}, err
		}
		f.selected = &selected{model: model, selections: selections}
	}
	return f.selected.model, f.selected.selections, nil
}

// scoreGrids does the work of selectBeta.
func (f *fitter) scoreGrids() (*Solved, Selections, error) {
	tables := tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta })
	f.warn(rows.Clean(tables, rows.Recipe(f.o.Recipe))...)
	p := Pooled(tables, f.gammas)
	if len(p.Train) == 0 {
		return nil, Selections{}, f.nothingLeft()
	}
	f.beta = p
	s := &Solved{Pool: p, Terms: featureTerms(features.BetaFeatures(f.o.Spec), len(p.Configs), f.o.Prior)}
	s.Opt = ridgeOptions(s.Terms, EpsBetaUs, f.o)
	// With a stride only every so many-th row is fitted, so that fewer rows cover the memory of the
	// preemption average. The smallest stride is safe for every run.
	s.Opt.EmbargoRows = embargo(1 / float64(f.leastStride()))
	f.o.setSelection(&s.Opt)
	if f.o.FromSets() {
		if err := f.setPrior(s); err != nil {
			return nil, Selections{}, err
		}
	}
	if f.o.Spec.InComponents() {
		train := p.TrainData()
		gram := ridge.OfRows(train, ridge.Weights(train, s.Opt), nil, f.o.Workers)
		if _, err := s.Opt.Components(gram, componentShare); err != nil {
			return nil, Selections{}, err
		}
	}
	var sel Selections
	var err error
	if f.o.hasForms() {
		sel.Rel, err = s.chooseForm(slices.Index(f.gammas, features.DefaultGamma))
	} else {
		sel, err = s.Choose(f.o.Recipe, "beta")
	}
	if err == nil {
		f.gamma, f.within = ridge.ChooseVariant(sel.scores(f.gammas), features.DefaultGamma)
	}
	return s, sel, err
}

// leastStride returns the smallest stride of the runs.
func (f *fitter) leastStride() int {
	least := math.MaxInt
	for _, p := range f.used {
		least = min(least, max(1, p.Src.Stride))
	}
	return least
}

// betaModel returns the beta part of fit.json, the solved step time.
func (f *fitter) betaModel(s *Solved, m Selections) (*result.Model, error) {
	out := Model(s, m, &f.o, "beta", f.o.BetaTarget)
	if s.forms != nil {
		out.Candidates = describeForms(s.forms, s.form, f.gamma)
		out.Warnings = append(out.Warnings, limitFindings(s.Terms, s.Opt.Upper, s.Fit.Beta)...)
	}
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
	// locoBeta applies the factors of deployments, so the predictions are judged after it.
	if err := f.locoBeta(s, m, out); err != nil {
		return nil, err
	}
	held := s.Judge(out, true, f.o.Workers)
	if out.Holdout != nil && s.Sel != nil {
		out.Holdout.RelErr = result.OrNull(RelErr(s, f.o.Workers))
	}
	out.StressSets = held.StressCells()
	out.Drift = s.Drift()
	out.ResidualQuant = s.Ratios()
	out.Figures = held.Figures(s.Names())
	floorFindings(s, f.o.BetaTarget, out)
	drift, err := f.driftOfForms(s, out)
	if err != nil {
		return nil, err
	}
	driftFindings(out, drift, f.isMeasured)
	orderFinding(out)
	// A mean context serves for the sums of contexts, but it does not vary as they do: the terms of contexts
	// are not determined, whatever their intervals are.
	if f.contextsMerged() {
		out.Warnings = append(out.Warnings, trace.Finding{Code: logged.ContextsMerged, Message: report.ContextsMerged()})
		for i := range out.Coefficients {
			if c := &out.Coefficients[i]; c.Name == "decode_attention" || c.Name == "kv_cache_read" {
				c.Identified = coeff.PriorOnly
			}
		}
	}
	return out, nil
}

// driftOfForms returns the bias of each block of the hold-out that no form of the model avoids: the
// smallest over all forms, with and without factors of deployments. A bias that another form does not
// have is an error of the published form and does not show that the machine changed its speed. The
// other forms are solved only if the published model has a large bias.
func (f *fitter) driftOfForms(s *Solved, out *result.Model) ([]result.DriftBlock, error) {
	drift := slices.Clone(out.Drift)
	isLarge := func(d result.DriftBlock) bool { return math.Abs(d.Bias) > mostDriftBias }
	if !slices.ContainsFunc(drift, isLarge) {
		return drift, nil
	}
	keepSmallest := func(other []result.DriftBlock) {
		for k, d := range other {
			if math.Abs(d.Bias) < math.Abs(drift[k].Bias) {
				drift[k].Bias = d.Bias
			}
		}
	}
	for i := range s.forms {
		other := *s
		other.Opt.Upper = s.forms[i].upper
		if err := other.SolveRelative(f.gamma, &s.forms[i].sels[f.gamma], f.o.RefitAll); err != nil {
			return nil, err
		}
		keepSmallest(other.Drift())
		ApplyDeploymentFactors(&other, f.namesOf(s, (*deploy.Deployment).Label), &result.Model{})
		keepSmallest(other.Drift())
	}
	return drift, nil
}

// isMeasured reports whether a machine ran what a run recorded. A composed run has no machine whose
// speed could drift.
func (f *fitter) isMeasured(run string) bool {
	for _, p := range f.prepared {
		if p.Src.ID == run && p.Src.Deployment.IsComposed() {
			return false
		}
	}
	return true
}

// contextsMerged reports whether all runs have only the mean context of all decodes (the tokens of a
// request in the KV cache): logs with neither clients' records nor a fine enough KV usage.
func (f *fitter) contextsMerged() bool {
	for _, p := range f.prepared {
		if p.Reason == "" && p.Contexts != trace.ContextsMean {
			return false
		}
	}
	return len(f.prepared) > 0
}

// preemptionTerm is the step-time term that gamma belongs to.
const preemptionTerm = features.PreemptionOverhead

// describeGamma notes whether the rows determine gamma. It widens the interval of the
// preemption term to include the intervals at every other gamma within one standard
// error of the best score (spec#gamma-choice).
func (f *fitter) describeGamma(s *Solved, m Selections, out *result.Model) error {
	j := slices.IndexFunc(s.Terms, func(t Term) bool { return t.Name == preemptionTerm })
	noteGamma(f.gammas, f.gamma, f.within, j, out)
	if m.Rel == nil || j < 0 {
		return nil
	}
	for _, v := range f.within {
		c := &out.Coefficients[j]
		if v == f.gamma || c.CI95 == nil {
			continue
		}
		other := *s
		if err := other.SolveRelative(v, &m.Rel[v], f.o.RefitAll); err != nil {
			return err
		}
		tags := slices.Repeat([]string{c.Identified}, len(s.Terms))
		widenInterval(&c.Coefficient, Confidence(&other, tags).Terms[j])
	}
	return nil
}

// noteGamma sets whether the rows determine gamma, and warns if they do not. They do if they chose
// one other than the default, or if the default is better than all others by more than a standard
// error. j is the preemption term, or -1.
func noteGamma(gammas []float64, chosen int, within []int, j int, out *result.Model) {
	isIdentified := gammas[chosen] != features.DefaultGamma || len(within) == 1
	out.GammaIdentified = &isIdentified
	if isIdentified || j < 0 || !(out.Coefficients[j].Range[1] > 0) {
		return
	}
	var alike []float64
	for _, v := range within {
		alike = append(alike, gammas[v])
	}
	out.Warnings = append(out.Warnings,
		trace.Finding{Code: NotIdentified, Message: report.GammaUndetermined(alike, gammas[chosen], preemptionTerm)})
}

// widenInterval widens the interval of a coefficient to include another. If the other
// one is unknown, the coefficient loses its own.
func widenInterval(c *coeff.Coefficient, t ridge.Interval) {
	if t.Method == ridge.FromNothing {
		c.CI95 = nil
		c.Estimate = nil
		c.EstimateCI95 = nil
		return
	}
	for _, ci := range []*[2]float64{c.CI95, c.EstimateCI95} {
		if ci != nil {
			ci[0] = math.Min(ci[0], t.Lo)
			ci[1] = math.Max(ci[1], t.Hi)
		}
	}
}

// StepTime is the step-time model of runs, without delays and other models.
type StepTime struct {
	Options    Options
	Model      *Solved
	Selections Selections
	Runs       []*Run // that were used
	Warnings   []trace.Finding
}

// FitStepTime returns a fit of the step time alone.
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
