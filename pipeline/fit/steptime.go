package fit

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/reconstruct/logged"
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
		out.Warnings = append(out.Warnings, trace.Findingf(logged.ContextsMerged, "decode_attention and kv_cache_read are merged with the "+
			"per-decode term: no run tells the contexts of its decodes, and the prior alone splits them"))
		for i := range out.Coefficients {
			if c := &out.Coefficients[i]; c.Name == "decode_attention" || c.Name == "kv_cache_read" {
				c.Identified = coeff.PriorOnly
			}
		}
	}
	return out, nil
}

// isMeasured reports whether a machine ran what a run recorded: nothing drifts in a composed one.
func (f *fitter) isMeasured(run string) bool {
	return !slices.ContainsFunc(f.prepared, func(p *Run) bool { return p.Src.ID == run && p.Src.Deployment.IsComposed() })
}

// contextsMerged reports that every run knows only the mean context of all decodes.
func (f *fitter) contextsMerged() bool {
	for _, p := range f.prepared {
		if p.Reason == "" && p.Contexts != trace.ContextsMean {
			return false
		}
	}
	return len(f.prepared) > 0
}

// preemptionTerm is the step-time term that gamma belongs to.
const preemptionTerm = "preemption_overhead"

// describeGamma notes whether the rows determine gamma, and widens the interval of the preemption
// term to hold those of every gamma that is as good (spec#gamma-choice).
func (f *fitter) describeGamma(s *Solved, m Selections, out *result.Model) error {
	j := slices.IndexFunc(s.Terms, func(t Term) bool { return t.Name == preemptionTerm })
	if noteGamma(f.gammas, f.gamma, f.within, j, out); m.Rel == nil || j < 0 {
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

// noteGamma notes whether the rows determine gamma: the usual one is better than the others by more than
// a standard error, or worse than the best. j is the preemption term, -1: none.
func noteGamma(gammas []float64, chosen int, within []int, j int, out *result.Model) {
	told := gammas[chosen] != features.DefaultGamma || len(within) == 1
	out.GammaIdentified = &told
	if told || j < 0 || !(out.Coefficients[j].Range[1] > 0) {
		return
	}
	var also []string
	for _, v := range within {
		also = append(also, fmt.Sprint(gammas[v]))
	}
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
