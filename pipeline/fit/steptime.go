package fit

import (
	"context"

	"github.com/blis-train/blis-train/pipeline/fit/estimate"
	"github.com/blis-train/blis-train/pipeline/fit/options"
	"github.com/blis-train/blis-train/pipeline/fit/prepare"
	"github.com/blis-train/blis-train/pipeline/ridge/cv"
	"github.com/blis-train/blis-train/trace"
)

// StepTime is the step-time model of runs, without delays and other models.
type StepTime struct {
	Options    options.Options
	Model      *estimate.Solved
	Selections estimate.Selections
	Runs       []*prepare.Run // that were used
	Warnings   []trace.Finding
}

// FitStepTime fits the step time alone.
func FitStepTime(ctx context.Context, sources []options.Source, o options.Options) (*StepTime, error) {
	f, err := newFitter(ctx, sources, o, nil)
	if err != nil {
		return nil, err
	}
	s, m, err := f.selectBeta()
	if err != nil {
		return nil, err
	}
	f.gamma = cv.ChooseVariant(m.Scores())
	if err := s.SolveAt(m, f.gamma, f.o.RefitAll); err != nil {
		return nil, err
	}
	return &StepTime{Options: f.o, Model: s, Selections: m, Runs: f.used, Warnings: f.out.Warnings}, nil
}
