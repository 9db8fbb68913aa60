package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/pipeline/rows"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/stat"
	"github.com/blis-train/blis-train/trace"
)

// Constants of the weights (01 V-2), us per step.
const (
	epsBetaUs      = 50
	epsAlphaUs     = 1000
	epsAdmissionUs = 1e6
)

// rooflinePrior is the coefficient of a time-like term at the hardware's peak (01 G-2), us/s.
const rooflinePrior = 1e6

// Guidance of 01 V-11: rows per configuration.
const (
	guidanceBeta  = 200
	guidanceAlpha = 100
)

// featureTerms are the terms of a physics model over the given number of configurations.
func featureTerms(fs []features.Feature, configs int, prior string) []term {
	out := make([]term, len(fs))
	for j := range fs {
		f := &fs[j]
		out[j] = term{name: f.Name, unit: f.CoefficientUnit(), penalty: f.PenaltyIn(configs), free: f.Free, prompt: f.Prompt, isTime: f.IsTime()}
		if prior == PriorRoofline && f.IsTime() {
			out[j].prior = rooflinePrior
		}
	}
	return out
}

// alphaTerms are the terms of a delay over the given number of configurations.
// Their seconds are nominal: a delay is host work, so neither a prior at the
// hardware's peak nor a utilisation has a meaning.
func alphaTerms(fs []features.Feature, configs int) []term {
	out := featureTerms(fs, configs, PriorZero)
	for j := range out {
		out[j].isTime = false
	}
	return out
}

// modelSelections scores the grid of one model for every gamma.
type modelSelections struct {
	rel    []cv.Selection // relative recipe
	frozen []cv.FrozenFit // frozen recipe
}

// score is the model's part in the choice of gamma (01 V-8).
func (m modelSelections) scores() []cv.Selection {
	if m.rel != nil {
		return m.rel
	}
	out := make([]cv.Selection, len(m.frozen))
	for g, f := range m.frozen {
		out[g] = cv.Selection{Score: f.Grid[f.Index].Score}
	}
	return out
}

// fitBeta selects and solves the step-time model.
func (f *fitter) selectBeta() (*solved, modelSelections, error) {
	tables := tablesOf(f.used, func(p *prepared) *rows.Table { return p.beta })
	f.warn(rows.Clean(tables, rows.Recipe(f.o.Recipe))...)
	p := newPool(tables, f.gammas)
	if len(p.train) == 0 {
		return nil, modelSelections{}, trace.Errorf(NoRows, "beta: no training row is left of %d runs", len(f.used))
	}
	p.embargo(1)
	f.beta = p
	s := &solved{pool: p, terms: featureTerms(features.BetaFeatures(f.o.Spec), len(p.configs), f.o.Prior)}
	s.opt = ridgeOptions(s.terms, epsBetaUs, f.o)
	sel, err := f.selectModel(s, "beta")
	return s, sel, err
}

// selectModel scores the grid of a plain (not interval) target.
func (f *fitter) selectModel(s *solved, name string) (m modelSelections, err error) {
	train := s.pool.trainData()
	if f.o.Recipe == Relative {
		m.rel, err = cv.Select(train, s.opt)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		return m, nil
	}
	for g := range f.gammas {
		fit, err := cv.Frozen(train.With(g), s.opt)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		m.frozen = append(m.frozen, fit)
	}
	return m, nil
}

// solveChosen solves a plain target at the chosen gamma.
func (f *fitter) solveChosen(s *solved, m modelSelections) error {
	if m.rel != nil {
		s.findings = append(s.findings, s.pool.words(m.rel[f.gamma].Findings)...)
		return s.solveRelative(f.gamma, &m.rel[f.gamma], f.o.RefitAll)
	}
	if err := s.solveFrozen(f.gamma); err != nil {
		return err
	}
	s.findings = append(s.findings, s.pool.words(s.frozen.Findings)...)
	if s.frozen.Overfitted {
		s.findings = append(s.findings, trace.Findingf(FrozenOverfit, "effective degrees of freedom %.2f over %d configurations", s.frozen.DF, len(s.pool.configs)))
	}
	return nil
}

// betaModel turns the solved beta into its part of fit.json.
func (f *fitter) betaModel(s *solved, m modelSelections) (*result.Model, error) {
	out, err := f.model(s, m, "beta", f.o.BetaTarget)
	if err != nil {
		return nil, err
	}
	out.PipelineLag = map[string]result.RunLag{}
	for _, p := range f.prepared {
		out.TargetAudit = append(out.TargetAudit, p.audit)
		out.LagEvidence = append(out.LagEvidence, p.evidence...)
		if p.reason == "" {
			out.PipelineLag[p.src.ID] = p.lag
		}
	}
	if err := f.locoBeta(s, m, out); err != nil {
		return nil, err
	}
	held := s.judge(out, true, f.o.Workers)
	if out.Holdout != nil && s.sel != nil {
		out.Holdout.RelErr = num(f.relErr(s))
	}
	out.StressSets, out.Drift, out.ResidualQuant = held.StressCells(), s.drift(), s.ratios()
	out.Figures = held.Figures(s.names())
	f.floorFindings(s, out)
	f.driftFindings(out)
	f.orderFinding(out)
	return out, nil
}

// floorFindings names runs whose target is no step time (01 T-4).
func (f *fitter) floorFindings(s *solved, out *result.Model) {
	for _, table := range s.pool.tables {
		if found := tableBelowFloor(table, f.o.BetaTarget); found != nil {
			out.Warnings = append(out.Warnings, *found)
		}
	}
}

// tableBelowFloor is the finding of one run, nil when its target may be a step time.
func tableBelowFloor(t *rows.Table, target string) *trace.Finding {
	y, floor := stat.Median(perStep(t, t.Y)), stat.Median(perStep(t, t.FloorUs))
	if !(y < floor) {
		return nil
	}
	found := trace.Findingf(TargetBelowFloor, "%s: the median %s is %.0f us, below the %.0f us that reading the weights once takes at peak bandwidth: it cannot be the step time", t.Run, target, y, floor)
	return &found
}

func perStep(t *rows.Table, v []float64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = v[i] / t.Steps[i]
	}
	return out
}

// orderFinding is the warning of 01 B-17.
func (f *fitter) orderFinding(out *result.Model) {
	value := map[string]float64{}
	for _, c := range out.Coefficients {
		value[c.Name] = c.Value
	}
	if w, c := value["decode_weight_load"], value["prefill_linear_compute"]; w > c && c > 0 {
		out.Warnings = append(out.Warnings, trace.Findingf(DecodeLinearOrder,
			"decode_weight_load %.3g us/s exceeds prefill_linear_compute %.3g us/s: the predicted time can fall as tokens are added", w, c))
	}
}
