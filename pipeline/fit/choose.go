package fit

import (
	"fmt"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// Selections scores the grid of one model for every gamma.
type Selections struct {
	Rel    []ridge.Selection // relative recipe
	Frozen []ridge.FrozenFit // Frozen recipe
}

// Scores are the model's part in the choice of gamma (spec#selection).
func (m Selections) Scores() []ridge.Selection {
	if m.Rel != nil {
		return m.Rel
	}
	out := make([]ridge.Selection, len(m.Frozen))
	for g, f := range m.Frozen {
		out[g] = ridge.Selection{Score: f.Grid[f.Index].Score}
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
		fit, err := ridge.Frozen(train.With(g), s.Opt)
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
		s.Findings = append(s.Findings, trace.Findingf(OptionsFewRows, "effective degrees of freedom %.2f over %d configurations",
			s.Frozen.DF, len(s.Pool.Configs)))
	}
	return nil
}
