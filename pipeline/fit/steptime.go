package fit

import (
	"context"

	"github.com/blis-train/blis-train/pipeline/ridge"
	"github.com/blis-train/blis-train/trace"
)

// StepTime is the step-time model of runs, without delays and other models.
type StepTime struct {
	Options    OptionsOptions
	Model      *Solved
	Selections Selections
	Runs       []*Run // that were used
	Warnings   []trace.Finding
}

// FitStepTime fits the step time alone.
func FitStepTime(ctx context.Context, sources []OptionsSource, o OptionsOptions) (*StepTime, error) {
	f, err := newFitter(ctx, sources, o, nil)
	if err != nil {
		return nil, err
	}
	s, m, err := f.selectBeta()
	if err != nil {
		return nil, err
	}
	f.gamma = ridge.ChooseVariant(m.Scores())
	if err := s.SolveAt(m, f.gamma, f.o.RefitAll); err != nil {
		return nil, err
	}
	return &StepTime{Options: f.o, Model: s, Selections: m, Runs: f.used, Warnings: f.out.Warnings}, nil
}
