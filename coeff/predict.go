package coeff

import ()

// MinStepUs is the shortest step that is predicted (spec#prediction-use), us.
const MinStepUs = 1

// AlphaTargets lists the set's alpha targets, sorted.
func (s *Set) AlphaTargets() []string {
	targets := make([]string, len(s.Alpha))
	for i := range s.Alpha {
		targets[i] = s.Alpha[i].Target
	}
	return targets
}

// Predict returns one step's time in us without bookkeeping, at least 1. x has
// one value per beta slot.
func (s *Set) Predict(x []float64) float64 {
	sum := 0.0
	for i := range s.Beta {
		sum += float64(s.Beta[i].Value * x[i])
	}
	return max(MinStepUs, sum)
}
