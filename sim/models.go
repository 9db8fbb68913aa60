package sim

import (
	"math"

	"github.com/blis-train/blis-train/deploy"
	"github.com/blis-train/blis-train/pipeline/features"
	"github.com/blis-train/blis-train/pipeline/features/basis"
	"github.com/blis-train/blis-train/trace"
)

// Roofline is the analytic model: nothing is fitted. With the 1.1 features at
// peak rate (s):
//
//	max(linear compute, weights) + max(prefill attention, its KV reads) +
//	max(decode attention, its KV reads) + collectives + 10 us per layer
type Roofline struct {
	space *features.Space
	in    features.StepInput
	x     []float64
	f     [7]int
}

// NewRoofline makes the model for a deployment.
func NewRoofline(d *deploy.Deployment) (*Roofline, error) {
	sp, err := features.New(features.V11, d)
	if err != nil {
		return nil, err
	}
	r := &Roofline{space: sp, x: make([]float64, len(sp.BetaFeatures()))}
	names := []string{"prefill_linear_compute", "decode_weight_load", "prefill_attention", "decode_attention", "kv_cache_read", "tp_communication", "fixed_step_overhead"}
	for i, name := range names {
		r.f[i] = slotOf(sp, name)
	}
	return r, nil
}

func slotOf(sp *features.Space, name string) int {
	for i, f := range sp.BetaFeatures() {
		if f.Name == name {
			return i
		}
	}
	panic("sim: no feature " + name)
}

// StepUs is the roofline time.
func (r *Roofline) StepUs(b *Batch) (float64, error) {
	FillStepInput(features.V11, b, &r.in)
	if _, err := r.space.Beta(&r.in, r.x); err != nil {
		return 0, err
	}
	x := func(i int) float64 { return r.x[r.f[i]] }
	decodeShare := 0.0
	if b.KVRead > 0 {
		decodeShare = float64(b.DecodeContext) / float64(b.KVRead)
	}
	s := x(0) + x(1) + math.Max(x(2), x(4)*(1-decodeShare)) + math.Max(x(3), x(4)*decodeShare) + x(5) + x(6)
	return s * 1e6, nil
}

// BasisStep is the batch as the other models' bases see it.
func (b *Batch) BasisStep() basis.Step {
	return basis.Step{PrefillTokens: float64(b.PromptTokens), DecodeTokens: float64(b.Tokens() - b.PromptTokens),
		Requests: float64(b.PrefillReqs + b.DecodeReqs), PrefillAttn: float64(b.PromptAttnTwice) / 2, DecodeContext: float64(b.PastPrompt)}
}

// TrainedPhysics is the model of today's BLIS: 3 alpha and 7 to 11 beta, the
// step time cut to whole us.
type TrainedPhysics struct {
	Alpha []float64
	Beta  []float64
	basis *basis.TrainedPhysics
	x     []float64
}

// NewTrainedPhysics makes the model for a deployment.
func NewTrainedPhysics(alpha, beta []float64, d *deploy.Deployment) (*TrainedPhysics, error) {
	if err := basis.CheckBetas(beta); err != nil {
		return nil, err
	}
	if err := checkAlphas(alpha); err != nil {
		return nil, err
	}
	b, err := basis.NewTrainedPhysics(d)
	if err != nil {
		return nil, err
	}
	return &TrainedPhysics{Alpha: alpha, Beta: beta, basis: b, x: make([]float64, len(basis.TrainedPhysicsBeta))}, nil
}

func checkAlphas(alpha []float64) error {
	if len(alpha) != 3 {
		return trace.Errorf(basis.CodeBadCoefficients, "alpha coefficients: got %d values, want 3", len(alpha))
	}
	for i, a := range alpha {
		if math.IsNaN(a) || math.IsInf(a, 0) || a < 0 {
			return trace.Errorf(basis.CodeBadCoefficients, "alpha coefficient %d: got %g us, want finite and >= 0", i, a)
		}
	}
	return nil
}

// StepUs is the predicted step time, truncated as BLIS does.
func (m *TrainedPhysics) StepUs(b *Batch) (float64, error) {
	s := b.BasisStep()
	return math.Max(1, math.Trunc(m.basis.StepUs(&s, m.Beta, m.x))), nil
}

// Apply sets the model and its alphas in a configuration: a0 before the queue,
// a1 at completion, a2 on the first token and every gap.
func (m *TrainedPhysics) Apply(c *Config) {
	c.Latency, c.Overhead, c.Egress, c.TokenUs = m, Const(math.Trunc(m.Alpha[0])), Const(math.Trunc(m.Alpha[1])), math.Trunc(m.Alpha[2])
}

// Blackbox is b0 + b1 * prefill tokens + b2 * decode tokens, with a0 + a1*M
// before the queue and a2 per output token after the engine.
type Blackbox struct {
	Alpha, Beta []float64
	x           [3]float64
}

// NewBlackbox checks three alpha and three beta values.
func NewBlackbox(alpha, beta []float64) (*Blackbox, error) {
	if err := checkAlphas(alpha); err != nil {
		return nil, err
	}
	if len(beta) != len(basis.BlackboxBeta) {
		return nil, trace.Errorf(basis.CodeBadCoefficients, "blackbox beta coefficients: got %d values, want %d", len(beta), len(basis.BlackboxBeta))
	}
	return &Blackbox{Alpha: alpha, Beta: beta}, nil
}

// StepUs is the dot product.
func (m *Blackbox) StepUs(b *Batch) (float64, error) {
	s := basis.Step{PrefillTokens: float64(b.PrefillTokens), DecodeTokens: float64(b.DecodeTokens)}
	basis.Blackbox(&s, m.x[:])
	return m.Beta[0]*m.x[0] + m.Beta[1]*m.x[1] + m.Beta[2]*m.x[2], nil
}

// DelayUs is a0 + a1 * prompt tokens.
func (m *Blackbox) DelayUs(q *Queue) (float64, error) {
	return m.Alpha[0] + m.Alpha[1]*float64(q.PromptTokens), nil
}

// Apply sets the model and its alphas in a configuration.
func (m *Blackbox) Apply(c *Config) { c.Latency, c.Overhead, c.TokenUs = m, m, m.Alpha[2] }
