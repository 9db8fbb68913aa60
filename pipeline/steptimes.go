package pipeline

// This file predicts step times of a deployment, for exports.

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// StepTimes predicts the step times of one deployment with a coefficient set, us. It must not be
// used by several goroutines at once.
type StepTimes struct {
	set   *coeff.Set // with the deployment's factors applied
	space *features.Space
	x     []float64 // features of the batch that StepUs was last called with
}

// NewStepTimes returns the step times of a deployment under a set.
func NewStepTimes(set *coeff.Set, d *deploy.Deployment) (*StepTimes, error) {
	space, err := features.New(set.SpecVersion, d)
	if err != nil {
		return nil, err
	}
	return &StepTimes{set: features.On(set, d), space: space, x: make([]float64, len(set.Beta))}, nil
}

// StepUs returns the predicted time of a step that runs the batch, us.
func (p *StepTimes) StepUs(batch []trace.Chunk) (float64, error) {
	if _, err := p.space.Beta(new(p.space.Sum(batch)), p.x); err != nil {
		return 0, err
	}
	return p.set.Predict(p.x), nil
}

// Features returns the features of the batch that StepUs was last called with.
func (p *StepTimes) Features() []float64 { return p.x }
