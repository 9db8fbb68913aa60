package cluster

import (
	"math"
	"slices"
)

// Seed is the published estimate of a predictive budget, kept as it was: waiting
// requests times a constant, and one prefill.
type Seed struct {
	blind
	Variant      string             // a or b
	Headroom     float64            // multiplies every budget
	StepUs       float64            // "average step time": really the time per queued request
	Beta0, Beta1 float64            // us, us per uncached prompt token
	BudgetUs     map[string]float64 // by class
	// AdmitUnmatched lets in any request whose prefix no instance has: the public
	// implementation does.
	AdmitUnmatched bool
}

// EstimateUs is the smallest estimate over instances.
func (s *Seed) EstimateUs(r *Request, v *View) float64 {
	best := math.Inf(1)
	for i := range v.Snapshots {
		uncached := max(0, r.PromptTokens-v.Match[i]*v.BlockSize)
		best = math.Min(best, float64(float64(v.Snapshots[i].QueueDepth)*s.StepUs)+s.Beta0+float64(s.Beta1*float64(uncached)))
	}
	return best
}

// Decide compares the estimate with the class's budget.
func (s *Seed) Decide(r *Request, v *View, _ int) (Decision, error) {
	critical := r.Priority >= criticalPriority
	if s.Variant == "b" && critical {
		return admit(), nil
	}
	d := admit()
	d.PredictedUs = s.EstimateUs(r, v)
	d.BoundUs, d.P90Us = d.PredictedUs, d.PredictedUs
	limit, ok := s.BudgetUs[r.ClassName]
	limit = float64(limit * s.Headroom)
	switch {
	case !ok, d.PredictedUs <= limit, critical:
	case s.AdmitUnmatched && slices.Max(v.Match) <= 0:
	case s.Variant == "a" && r.Priority >= 0 && d.PredictedUs <= 2*limit:
	default:
		d.Admit, d.Reason = false, reasonPredicted
	}
	return d, nil
}
