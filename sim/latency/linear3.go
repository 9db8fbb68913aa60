package latency

import (
	"math"

	"github.com/blis-train/blis-train/pipeline/features/basis"
	"github.com/blis-train/blis-train/trace"
)

// Linear3 is the iteration of the three-parameter queueing models: alpha + beta
// * tokens computed + gamma * KV tokens read, the context of every sequence
// including its new tokens.
type Linear3 struct {
	AlphaUs, BetaUs, GammaUs float64 // us, us/token, us/token
}

// NewLinear3 checks the three numbers, in the order of the fields.
func NewLinear3(beta []float64) (*Linear3, error) {
	if len(beta) != 3 {
		return nil, trace.Errorf(basis.CodeBadCoefficients, "linear3 coefficients: got %d values, want 3", len(beta))
	}
	for _, v := range beta {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, trace.Errorf(basis.CodeBadCoefficients, "linear3 coefficients: got %g us, want finite and >= 0", v)
		}
	}
	return &Linear3{beta[0], beta[1], beta[2]}, nil
}

// StepUs is the dot product.
func (m *Linear3) StepUs(b *Batch) (float64, error) {
	return m.AlphaUs + m.BetaUs*float64(b.Tokens()) + m.GammaUs*float64(b.KVRead), nil
}
