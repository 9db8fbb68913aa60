package sim

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/trace"
)

// linear3 is the iteration of the three-parameter queueing models: alpha + beta
// * tokens computed + gamma * KV tokens read, the context of every sequence
// including its new tokens.
type linear3 struct {
	AlphaUs, BetaUs, GammaUs float64 // us, us/token, us/token
	x                        [3]float64
}

// NewLinear3 checks the three numbers, in the order of the fields.
func NewLinear3(beta []float64) (*linear3, error) {
	if err := checkThree("linear3", beta); err != nil {
		return nil, err
	}
	return &linear3{AlphaUs: beta[0], BetaUs: beta[1], GammaUs: beta[2]}, nil
}

// StepUs is the dot product.
func (m *linear3) StepUs(b *Batch) (float64, error) {
	m.x = [3]float64{1, float64(b.Tokens()), float64(b.KVRead)}
	return m.AlphaUs + m.BetaUs*m.x[1] + m.GammaUs*m.x[2], nil
}

// Features is the vector of the last StepUs.
func (m *linear3) Features() []float64 { return m.x[:] }

func checkThree(what string, v []float64) error {
	if len(v) != 3 {
		return trace.Errorf(coeff.BadFile, "%s coefficients: got %d values, want 3", what, len(v)).WithHint("see --" + what + "-coeffs")
	}
	for i, us := range v {
		if !(us >= 0) || math.IsInf(us, 0) {
			return trace.Errorf(coeff.BadFile, "%s coefficient %d: got %g us, want finite and >= 0", what, i, us)
		}
	}
	return nil
}

// trainedPhysics is the model of today's BLIS: 3 alpha and 7 to 11 beta, the
// step time cut to whole us.
type trainedPhysics struct {
	Alpha []float64
	Beta  []float64
	basis *features.TrainedPhysics
	x     []float64
	terms []float64
}

// NewTrainedPhysics makes the model for a deployment.
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

// StepUs is the predicted step time, truncated as BLIS does.
func (m *trainedPhysics) StepUs(b *Batch) (float64, error) {
	s := b.BasisStep()
	return math.Max(1, math.Trunc(m.basis.StepUs(&s, m.Beta, m.x))), nil
}

// Features is the vector of the last StepUs as its betas see it.
func (m *trainedPhysics) Features() []float64 {
	return features.Terms(m.x, m.terms)
}

// Parts are the model and its alphas: a0 before the queue, a1 at completion, a2
// on the first token and every gap, all cut to whole us.
func (m *trainedPhysics) Parts() Parts {
	return Parts{Step: m, Overhead: Const(math.Trunc(m.Alpha[0])), Egress: Const(math.Trunc(m.Alpha[1])), TokenUs: math.Trunc(m.Alpha[2])}
}

// Blackbox is b0 + b1 * prefill tokens + b2 * decode tokens, with a0 + a1*M for a
// prompt of M tokens before the queue and a2 per output token after the engine.
type Blackbox struct {
	Alpha, Beta []float64
	x           [3]float64
}

// NewBlackbox checks three alpha and three beta values.
func NewBlackbox(alpha, beta []float64) (*Blackbox, error) {
	if err := checkThree("alpha", alpha); err != nil {
		return nil, err
	}
	if len(beta) != len(features.BlackboxBeta) {
		return nil, trace.Errorf(coeff.BadFile, "blackbox beta coefficients: got %d values, want %d", len(beta), len(features.BlackboxBeta))
	}
	return &Blackbox{Alpha: alpha, Beta: beta}, nil
}

// StepUs is the dot product.
func (m *Blackbox) StepUs(b *Batch) (float64, error) {
	s := features.Step{PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens)}
	features.Blackbox(&s, m.x[:])
	return m.Beta[0]*m.x[0] + m.Beta[1]*m.x[1] + m.Beta[2]*m.x[2], nil
}

// Features is the vector of the last StepUs.
func (m *Blackbox) Features() []float64 { return m.x[:] }

// Parts are the model and its alphas.
func (m *Blackbox) Parts() Parts {
	return Parts{Step: m, Overhead: &perPrompt{us: m.Alpha[0], perTokenUs: m.Alpha[1]}, Egress: Const(0), TokenUs: m.Alpha[2]}
}

// perPrompt is a delay of a0 + a1 * prompt tokens.
type perPrompt struct {
	us, perTokenUs float64
	x              [2]float64
}

// DelayUs is the delay of a prompt.
func (p *perPrompt) DelayUs(q *Queue) (float64, error) {
	p.x = [2]float64{1, float64(q.PromptTokens)}
	return p.us + p.perTokenUs*p.x[1], nil
}

// Features is the vector of the last DelayUs.
func (p *perPrompt) Features() []float64 { return p.x[:] }
