package fit

// This file solves a linear model on a pool by either recipe: it chooses lambda by cross-validation and
// fits the training rows with it.

import (
	"fmt"
	"slices"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/report"
	"github.com/blis-train/blis-train/result"
	"github.com/blis-train/blis-train/trace"
)

// Solved is a fitted linear model on a pool, from which a result.Model is made.
type Solved struct {
	Terms    []Term
	Pool     *Pool
	Opt      ridge.Options
	Variant  int                // position of the chosen gamma in Pool.Gammas
	Sel      *ridge.Selection   // scores at that gamma; nil for the frozen recipe and for fixed coefficients
	Frozen   *ridge.FrozenFit   // Frozen recipe; nil: relative
	Fit      ridge.Fit          // what is published
	Polish   *ridge.Polish      // the reweighting passes; nil: none
	Censored *ridge.CensoredFit // interval targets (the overhead); nil: others
	Weights  []float64          // of the training rows (spec#weights)
	Data     *ridge.Data        // all rows at the chosen gamma
	Train    *ridge.Data        // training rows at the chosen gamma
	Pred     []float64          // us, of every row of Data
	on       [][]float64        // coefficients by configuration, with factors (ScaleBy); nil: Fit.Beta for all
	Findings []trace.Finding
	forms    []form // in which the step time was fitted (spec#forms); nil: one
	form     int    // the chosen one
}

// Names returns the names of the terms, in order.
func (s *Solved) Names() []string {
	names := make([]string, len(s.Terms))
	for j := range s.Terms {
		names[j] = s.Terms[j].Name
	}
	return names
}

// Selections are the cross-validation scores of one model for every gamma, by the recipe it is fitted
// with; the other one is nil.
type Selections struct {
	Rel    []ridge.Selection // relative recipe
	Frozen []ridge.FrozenFit // Frozen recipe
}

// scores returns the scores by which gamma is chosen (spec#gamma-choice). The frozen recipe has one
// score for each gamma.
func (m Selections) scores(gammas []float64) []ridge.Selection {
	if m.Rel != nil {
		return m.Rel
	}
	out := make([]ridge.Selection, len(m.Frozen))
	for g, f := range m.Frozen {
		score := f.Grid[f.Index].Score
		out[g] = ridge.Selection{
			Gamma: gammas[g],
			Grid:  []ridge.Point{{Within: score, FoldScores: []float64{score}}},
		}
	}
	return out
}

// Choose returns the scores of the grid, for every gamma, of a target whose value is known (not within
// an interval). name is that of the model, for errors.
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

// formName returns the name of the chosen form; empty if there is only one.
func (s *Solved) formName() string {
	if s.forms == nil {
		return ""
	}
	return s.forms[s.form].name
}

// chooseForm returns the scores of the grid for every gamma in the chosen form of the step time,
// after it has scored every form (spec#forms). usual is the position of the default gamma.
func (s *Solved) chooseForm(usual int) ([]ridge.Selection, error) {
	cells, found, err := s.Pool.TrainData().Cut(s.Opt)
	if err != nil {
		return nil, fmt.Errorf("beta: %w", err)
	}
	s.forms, s.form, err = chooseForm(cells, s.Terms, usual, &s.Opt)
	if err != nil {
		return nil, fmt.Errorf("beta: %w", err)
	}
	sels := s.forms[s.form].sels
	for v := range sels {
		sels[v].Findings = append(slices.Clone(found), sels[v].Findings...)
	}
	return sels, nil
}

// SolveAt solves the model at one gamma, given by its position in the list, by the recipe that made
// the selections m: relative or frozen. With refitAll the relative recipe uses the hold-out too.
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
		s.Findings = append(s.Findings, trace.Finding{
			Code:    CodeFewRows,
			Message: report.FewDegreesOfFreedom(s.Frozen.DF, len(s.Pool.Configs)),
		})
	}
	return nil
}

// SolveRelative fits the training rows (all rows with refitAll) at one gamma, the variant, with the
// lambda that sel chose, and reweights them toward the absolute relative error. It sets the fields that
// describe the answer, with Pred for all rows.
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

// solveFrozen fits the training rows by ridge.Data.FitFrozen, a recipe of earlier coefficients that is
// kept unchanged, and sets Frozen, Fit, and Pred for all rows.
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

// GridPoints returns the scores of all lambdas and gammas, as fit.json has them.
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

// FrozenGrid returns the grid of the frozen recipe, whose score is an RMSE in us.
func FrozenGrid(fits []ridge.FrozenFit, gammas []float64) []result.GridPoint {
	var out []result.GridPoint
	for g, f := range fits {
		for _, p := range f.Grid {
			out = append(out, result.GridPoint{Lambda: p.Lambda, GammaEMA: gammas[g], Within: result.OrNull(p.Mean)})
		}
	}
	return out
}

// codeOf maps the codes of package ridge to codes of documents.
var codeOf = map[string]trace.Code{
	ridge.TooFewRows: CodeFewRows, ridge.LambdaAtEdge: AtLimit,
	ridge.IntervalNotConverged: NotConverged, ridge.CertificateFailed: NotConverged,
}

// Words returns findings of package ridge, which have labels, as findings with the names of runs
// and configurations.
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
