package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/internal/stat"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/result"
	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// Constants of the weights (spec#weights), us per step.
const (
	EpsBetaUs      = 50
	EpsAlphaUs     = 1000
	EpsAdmissionUs = 1e6
)

// RooflinePrior is the coefficient of a time-like term at the hardware's peak (spec#peaks), us/s.
const RooflinePrior = 1e6

// FeatureTerms are the terms of a physics model over the given number of configurations.
func FeatureTerms(fs []features.Feature, configs int, prior string) []Term {
	out := make([]Term, len(fs))
	for j := range fs {
		f := &fs[j]
		out[j] = Term{Name: f.Name, Unit: f.CoefficientUnit(), penalty: f.PenaltyIn(configs), free: f.Free, Prompt: f.Prompt, IsTime: f.IsTime()}
		if prior == PriorRoofline && f.IsTime() {
			out[j].prior = RooflinePrior
		}
	}
	return out
}

// AlphaTerms are the terms of a delay over the given number of configurations.
// Their seconds are nominal: a delay is host work, so neither a prior at the
// hardware's peak nor a utilisation has a meaning.
func AlphaTerms(fs []features.Feature, configs int) []Term {
	out := FeatureTerms(fs, configs, PriorZero)
	for j := range out {
		out[j].IsTime = false
	}
	return out
}

// BasisTerms are the non-negative terms of a basis. The constant of a fit over
// several configurations is penalised like the bias.
func BasisTerms(name string, configs int) []Term {
	list, constant := features.BlackboxBeta, 0
	switch name {
	case TrainedPhysics:
		list, constant = features.TrainedPhysicsBeta(), features.PerStep
	case Linear3:
		list = linear3Terms
	}
	out := stat.Map(list, func(t features.Term) Term {
		return Term{Name: t.Name, Unit: t.Unit, penalty: 1, PerUs: t.Unit == "dimensionless"}
	})
	if configs > 1 && name == TrainedPhysics {
		out[constant].penalty = 100
	}
	out[constant].Constant = name == Linear3
	return out
}

// NominalTerm is the time-like term whose second is nominal, not the hardware's.
const NominalTerm = "fixed_step_overhead"

// Term is one column of a linear model, for ridge and for people.
type Term struct {
	Name, Unit string
	penalty    float64
	free       bool
	IsTime     bool    // value in seconds: 1e6/coefficient is a utilisation
	PerUs      bool    // value in us at peak: 1/coefficient is a utilisation
	Prompt     bool    // mostly work on prompt tokens
	Constant   bool    // 1 in every row: one configuration's level shows it, its variation cannot
	prior      float64 // prior coefficient
}

// RidgeOptions are the options of a model over the given terms.
func RidgeOptions(terms []Term, epsUs float64, o Options) ridge.Options {
	ro := ridge.DefaultOptions(len(terms))
	ro.EpsUs = epsUs
	ro.Free = make([]bool, len(terms))
	ro.Prior = make([]float64, len(terms))
	for j, t := range terms {
		ro.Penalty[j], ro.Free[j], ro.Prior[j] = t.penalty, t.free, t.prior
	}
	ro.Objective = ridge.Objective(o.Objective)
	ro.Workers, ro.Draws, ro.Seed = o.Workers, o.Bootstraps, uint64(o.Seed)
	return ro
}

// Solved is a fitted linear model on a pool: what every result.Model is made from.
type Solved struct {
	Terms    []Term
	Pool     *Pool
	Opt      ridge.Options
	Variant  int
	Sel      *ridge.Selection // nil for the frozen recipe and for fixed coefficients
	Frozen   *ridge.FrozenFit // Frozen recipe
	Fit      ridge.Fit        // what is published
	Polish   *ridge.Polish
	Censored *ridge.CensoredFit // interval targets
	Weights  []float64          // of the training rows (spec#weights)
	Data     *ridge.Data        // all rows, chosen variant
	Train    *ridge.Data        // training rows, chosen variant
	Pred     []float64          // of every row of data
	on       [][]float64        // coefficients by configuration; nil: those of fit everywhere
	Findings []trace.Finding
}

// SolveRelative fits the chosen variant at the selection's lambda and polishes.
func (s *Solved) SolveRelative(variant int, sel *ridge.Selection, refitAll bool) error {
	s.Variant, s.Sel = variant, sel
	s.Data = s.Pool.Data.With(variant)
	s.Train = s.Data
	if !refitAll {
		s.Train = s.Data.Subset(s.Pool.Train)
	}
	s.Weights = ridge.Weights(s.Train, s.Opt)
	var err error
	if s.Fit, s.Polish, err = ridge.FitPublished(s.Train, s.Weights, sel.Lambda, s.Opt); err != nil {
		return err
	}
	s.Pred = ridge.Predict(s.Data, s.Fit.Beta)
	return nil
}

// solveFrozen is the frozen recipe on the training rows.
func (s *Solved) solveFrozen(variant int) error {
	s.Variant = variant
	s.Data = s.Pool.Data.With(variant)
	s.Train = s.Data.Subset(s.Pool.Train)
	f, err := s.Train.FitFrozen(s.Opt)
	if err != nil {
		return err
	}
	s.Frozen = &f
	s.Fit = ridge.Fit{Lambda: f.Lambda, Beta: f.Beta, DF: f.DF}
	s.Weights = s.Train.Factor
	s.Pred = ridge.Predict(s.Data, f.Beta)
	return nil
}

// GridPoints is the selection's grid for every gamma.
func GridPoints(sels []ridge.Selection) []result.GridPoint {
	var out []result.GridPoint
	for _, s := range sels {
		for _, p := range s.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: s.Gamma, Within: result.OrNull(p.Within),
				Cross: result.OrNull(p.Cross), SE: result.OrNull(p.SE)})
		}
	}
	return out
}

// FrozenGrid is the same for the frozen recipe: its score is RMSE in us.
func FrozenGrid(fits []ridge.FrozenFit, gammas []float64) []result.GridPoint {
	var out []result.GridPoint
	for g, f := range fits {
		for _, p := range f.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: gammas[g], Within: result.OrNull(p.Mean)})
		}
	}
	return out
}

// Names of the terms, in order.
func (s *Solved) Names() []string {
	return stat.Map(s.Terms, func(t Term) string { return t.Name })
}

// codeOf maps ridge's codes to ours.
var codeOf = map[string]trace.Code{
	ridge.TooFewRows: CodeFewRows, ridge.LambdaAtEdge: AtLimit, ridge.FoldsNotDistinct: CodeFewRows,
	ridge.IntervalNotConverged: NotConverged, ridge.CertificateFailed: NotConverged,
}

// Words turns ridge's findings into ours, with names for labels.
func (p *Pool) Words(found []ridge.Finding) []trace.Finding {
	var out []trace.Finding
	for _, f := range found {
		msg := f.Message
		switch {
		case f.Run >= 0 && int(f.Run) < len(p.Runs):
			msg = "run " + p.Runs[f.Run] + ": " + msg
		case f.Config >= 0 && int(f.Config) < len(p.Configs):
			msg = "configuration " + p.Configs[f.Config] + ": " + msg
		}
		out = append(out, trace.Finding{Code: codeOf[f.Code], Message: msg})
	}
	return out
}

// Selections scores the grid of one model for every gamma.
type Selections struct {
	Rel    []ridge.Selection // relative recipe
	Frozen []ridge.FrozenFit // Frozen recipe
}

// scores are what gamma is chosen by (spec#gamma-choice); the frozen recipe has one score a gamma.
func (m Selections) scores(gammas []float64) []ridge.Selection {
	if m.Rel != nil {
		return m.Rel
	}
	out := make([]ridge.Selection, len(m.Frozen))
	for g, f := range m.Frozen {
		score := f.Grid[f.Index].Score
		out[g] = ridge.Selection{Gamma: gammas[g], Grid: []ridge.Point{{Within: score, FoldScores: []float64{score}}}}
	}
	return out
}

// Choose scores the grid of a plain (not interval) target.
func (s *Solved) Choose(recipe, name string) (m Selections, err error) {
	train := s.Pool.TrainData()
	if recipe == Relative {
		m.Rel, err = ridge.Select(train, s.Opt)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		return m, nil
	}
	for g := range s.Pool.Gammas {
		fit, err := train.With(g).FitFrozen(s.Opt)
		if err != nil {
			return m, fmt.Errorf("%s: %w", name, err)
		}
		m.Frozen = append(m.Frozen, fit)
	}
	return m, nil
}

// SolveAt solves a plain target at a gamma.
func (s *Solved) SolveAt(m Selections, gamma int, refitAll bool) error {
	if m.Rel != nil {
		s.Findings = append(s.Findings, s.Pool.Words(m.Rel[gamma].Findings)...)
		return s.SolveRelative(gamma, &m.Rel[gamma], refitAll)
	}
	if err := s.solveFrozen(gamma); err != nil {
		return err
	}
	s.Findings = append(s.Findings, s.Pool.Words(s.Frozen.Findings)...)
	if s.Frozen.Overfitted {
		s.Findings = append(s.Findings, trace.Findingf(CodeFewRows, "effective degrees of freedom %.2f over %d configurations",
			s.Frozen.DF, len(s.Pool.Configs)))
	}
	return nil
}

// linear3Terms are those of the three-parameter queueing models' iteration:
//
//	step_us = alpha + beta * tokens computed + gamma * KV tokens read
//
// A sequence with c tokens in KV of which n are new this step computes n and
// reads c + n.
var linear3Terms = []features.Term{
	{Name: "alpha", Unit: "us/step", Doc: "constant"},
	{Name: "beta", Unit: "us/token", Doc: "tokens computed in the step, prefill and decode"},
	{Name: "gamma", Unit: "us/token", Doc: "KV tokens read: the context of every sequence, its new tokens included"},
}
