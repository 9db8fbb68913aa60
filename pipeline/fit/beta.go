package fit

import (
	"math"
	"slices"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// componentShare is the share of the columns' variance that a fit in components keeps.
const componentShare = 0.999

// selectBeta scores the grid of the step-time model.
func (f *fitter) selectBeta() (*Solved, Selections, error) {
	tables := tablesOf(f.used, func(p *Run) *rows.Table { return p.Beta })
	f.warn(rows.Clean(tables, rows.Recipe(f.o.Recipe))...)
	p := Pooled(tables, f.gammas)
	if len(p.Train) == 0 {
		return nil, Selections{}, trace.Errorf(CodeNoRows, "beta: no training row is left of %d runs", len(f.used))
	}
	p.Embargo(1 / float64(f.leastStride()))
	f.beta = p
	s := &Solved{Pool: p, Terms: FeatureTerms(features.BetaFeatures(f.o.Spec), len(p.Configs), f.o.Prior)}
	s.Opt = RidgeOptions(s.Terms, EpsBetaUs, f.o)
	if f.o.FromSets() {
		if err := f.setPrior(s); err != nil {
			return nil, Selections{}, err
		}
	}
	if f.o.Spec.Has(features.Components) {
		train := p.TrainData()
		if _, err := s.Opt.Components(ridge.OfRows(train, ridge.Weights(train, s.Opt), nil, f.o.Workers), componentShare); err != nil {
			return nil, Selections{}, err
		}
	}
	sel, err := s.Choose(f.o.Recipe, "beta")
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

// contextsMerged says that in every run one mean context stands for all decodes.
func (f *fitter) contextsMerged() bool {
	for _, p := range f.prepared {
		if p.Reason == "" && p.Contexts != trace.ContextsMean {
			return false
		}
	}
	return len(f.prepared) > 0
}
