package sim

// This file has the latency models that BLIS (the simulator inference-sim) reads from bare lists of
// coefficients.

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// linear3 is the step time of the three-parameter queueing models: alpha + beta * tokens computed +
// gamma * KV tokens read. KV tokens read are the context of every sequence, its new tokens
// included.
type linear3 struct {
	AlphaUs, BetaUs, GammaUs float64    // us, us/token, us/token
	x                        [3]float64 // features of the last step, in the order of the coefficients
}

// NewLinear3 returns the model of three coefficients, in the order of the fields.
func NewLinear3(beta []float64) (*linear3, error) {
	if err := checkThree("linear3", beta); err != nil {
		return nil, err
	}
	return &linear3{AlphaUs: beta[0], BetaUs: beta[1], GammaUs: beta[2]}, nil
}

// StepUs returns the predicted time of the step, us.
func (m *linear3) StepUs(b *Batch) (float64, error) {
	m.x = [3]float64{1, float64(b.Tokens()), float64(b.KVRead)}
	return m.AlphaUs + m.BetaUs*m.x[1] + m.GammaUs*m.x[2], nil
}

// Features returns the features of the last StepUs.
func (m *linear3) Features() []float64 { return m.x[:] }

// checkThree returns an error unless v is three finite non-negative numbers. what names them in the
// error.
func checkThree(what string, v []float64) error {
	if len(v) != 3 {
		return trace.Errorf(coeff.BadFile, "%s coefficients: got %d values, want 3", what, len(v))
	}
	for i, us := range v {
		if !(us >= 0) || math.IsInf(us, 0) {
			return trace.Errorf(coeff.BadFile, "%s coefficient %d: got %g us, want finite and >= 0", what, i, us)
		}
	}
	return nil
}

// trainedPhysics is the trained-physics model of BLIS: 3 alpha coefficients (delays) and 7 to 11
// beta coefficients (step time). Step times are truncated to whole us, as BLIS does.
type trainedPhysics struct {
	Alpha []float64 // us, what Parts describes
	Beta  []float64 // in the order and the units of features.TrainedPhysicsBeta
	basis *features.TrainedPhysics
	x     []float64 // the last step's values of all basis functions
	terms []float64 // memory for Features: x as far as there are coefficients
}

// NewTrainedPhysics returns the model for a deployment.
func NewTrainedPhysics(alpha, beta []float64, d *deploy.Deployment) (*trainedPhysics, error) {
	if err := features.CheckBetas(beta); err != nil {
		return nil, err
	}
	if err := checkThree("alpha", alpha); err != nil {
		return nil, err
	}
	b, err := features.NewTrainedPhysics(d)
	if err != nil {
		return nil, err
	}
	return &trainedPhysics{Alpha: alpha, Beta: beta, basis: b, x: make([]float64, len(features.TrainedPhysicsBeta())),
		terms: make([]float64, len(beta))}, nil
}

// StepUs returns the predicted time of the step in whole us, at least 1. It fills m.x, for Features.
func (m *trainedPhysics) StepUs(b *Batch) (float64, error) {
	s := b.BasisStep()
	return math.Max(1, math.Trunc(m.basis.StepUs(&s, m.Beta, m.x))), nil
}

// Features returns the features of the last StepUs, in the order of the beta coefficients.
func (m *trainedPhysics) Features() []float64 {
	return features.Terms(m.x, m.terms)
}

// Parts returns the model and its alpha coefficients as delays, truncated to whole us: a0 before
// the queue, a1 after the last token, a2 on the first token and every gap.
func (m *trainedPhysics) Parts() Parts {
	return Parts{Step: m, Overhead: Const(math.Trunc(m.Alpha[0])), Egress: Const(math.Trunc(m.Alpha[1])),
		TokenUs: math.Trunc(m.Alpha[2])}
}

// Blackbox is BLIS's blackbox model. A step takes b0 + b1 * prefill tokens + b2 * decode tokens.
// The delay before the queue is a0 + a1 * prompt tokens, and after the engine a2 for each output
// token.
type Blackbox struct {
	Alpha, Beta []float64  // a0, a1, a2 and b0, b1, b2: us and us/token
	x           [3]float64 // features of the last step: 1, prefill tokens, decode tokens
}

// NewBlackbox returns the model of three alpha and three beta coefficients.
func NewBlackbox(alpha, beta []float64) (*Blackbox, error) {
	if err := checkThree("alpha", alpha); err != nil {
		return nil, err
	}
	if len(beta) != len(features.BlackboxBeta) {
		return nil, trace.Errorf(coeff.BadFile, "blackbox beta coefficients: got %d values, want %d", len(beta),
			len(features.BlackboxBeta))
	}
	return &Blackbox{Alpha: alpha, Beta: beta}, nil
}

// StepUs returns the predicted time of the step, us.
func (m *Blackbox) StepUs(b *Batch) (float64, error) {
	s := features.Step{PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens)}
	features.Blackbox(&s, m.x[:])
	return m.Beta[0]*m.x[0] + m.Beta[1]*m.x[1] + m.Beta[2]*m.x[2], nil
}

// Features returns the features of the last StepUs.
func (m *Blackbox) Features() []float64 { return m.x[:] }

// Parts returns the model and its alpha coefficients as delays.
func (m *Blackbox) Parts() Parts {
	return Parts{Step: m, Overhead: &perPrompt{us: m.Alpha[0], perTokenUs: m.Alpha[1]}, Egress: Const(0),
		TokenUs: m.Alpha[2]}
}

// perPrompt is a delay of a0 + a1 * prompt tokens.
type perPrompt struct {
	us, perTokenUs float64
	x              [2]float64
}

// DelayUs returns the delay of a request with q's prompt, us.
func (p *perPrompt) DelayUs(q *Queue) (float64, error) {
	p.x = [2]float64{1, float64(q.PromptTokens)}
	return p.us + p.perTokenUs*p.x[1], nil
}

// Features returns the features of the last DelayUs.
func (p *perPrompt) Features() []float64 { return p.x[:] }
