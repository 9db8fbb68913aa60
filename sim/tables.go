package sim

import "github.com/blis-train/blis-train/kernels"

// tables is the step time as the sum of a GPU's measured kernels and the corrections that no table knows. It is linear in the
// corrections. It is not safe for concurrent use; make one per run.
type tables struct {
	price *kernels.Pricer
	theta [kernels.NumStep]float64
	x     [kernels.NumStep]float64
}

// NewTables makes the model of a bound step with corrections.
func NewTables(s *kernels.Step, theta [kernels.NumStep]float64) *tables {
	return &tables{price: s.NewPricer(), theta: theta}
}

// StepUs is the predicted cadence of the step.
func (t *tables) StepUs(b *Batch) (float64, error) {
	in := KernelBatch(b)
	t.price.Features(&in, &t.theta, &t.x)
	sum := 0.0
	for i, x := range t.x {
		sum += float64(t.theta[i] * x)
	}
	return sum, nil
}

// KernelBatch is a step as kernels see it.
func KernelBatch(b *Batch) kernels.Batch {
	out := kernels.Batch{Tokens: float64(b.Tokens()), Sequences: float64(b.PrefillReqs + b.DecodeReqs), Decodes: float64(b.DecodeReqs),
		DecodeContext: float64(b.DecodeContext - b.DecodeReqs), Prefills: float64(b.PrefillReqs), PrefillTokens: float64(b.PrefillTokens),
		PrefillPairs: float64(b.CausalWork)}
	if b.Among != nil {
		out.Run, out.All, out.Imbalance = b.Among.Padded, b.Among.Tokens, b.Among.Imbalance
	}
	return out
}

// Features is the vector of the last StepUs.
func (t *tables) Features() []float64 { return t.x[:] }
