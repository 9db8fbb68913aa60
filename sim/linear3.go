package sim

import (
	"math"

	"github.com/blis-train/blis-train/coeff"
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
	if len(beta) != 3 {
		return nil, trace.Errorf(coeff.BadFile, "linear3 coefficients: got %d values, want 3", len(beta))
	}
	for _, v := range beta {
		if !(v >= 0) || math.IsInf(v, 0) {
			return nil, trace.Errorf(coeff.BadFile, "linear3 coefficients: got %g us, want finite and >= 0", v)
		}
	}
	return &linear3{AlphaUs: beta[0], BetaUs: beta[1], GammaUs: beta[2]}, nil
}

// StepUs is the dot product.
func (m *linear3) StepUs(b *Batch) (float64, error) {
	m.x = [3]float64{1, float64(b.Tokens()), float64(b.KVRead)}
	return m.AlphaUs + float64(m.BetaUs*m.x[1]) + float64(m.GammaUs*m.x[2]), nil
}

// Features is the vector of the last StepUs.
func (m *linear3) Features() []float64 { return m.x[:] }
