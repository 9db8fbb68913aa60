package coeff

import (
	"math"

	"github.com/blis-train/blis-train/trace"
)

// Least predictions for use (spec#prediction-use), us.
const (
	MinStepUs  = 1
	MinDelayUs = 0
)

// WaitAsDelay refuses a target that contains a wait, where a delay is asked for. Code: no_such_target.
func WaitAsDelay(target string) *trace.Error {
	return trace.Errorf(NoSuchTarget, "alpha target %q contains a wait that a replay produces itself, want overhead or egress", target).
		WithHint("fit the overhead target, or give --overhead-us")
}

// AlphaTargets lists the set's alpha targets, sorted.
func (s *Set) AlphaTargets() []string {
	targets := make([]string, len(s.Alpha))
	for i := range s.Alpha {
		targets[i] = s.Alpha[i].Target
	}
	return targets
}

// RoundUs rounds half up to the simulator's integer clock (spec#prediction-use).
func RoundUs(us float64) trace.Micros { return trace.Micros(math.Floor(us + 0.5)) }

// Predict returns one step's time in us without bookkeeping, at least 1. x has
// one value per beta slot.
func (s *Set) Predict(x []float64) float64 {
	sum := 0.0
	for i := range s.Beta {
		sum += float64(s.Beta[i].Value * x[i])
	}
	return max(MinStepUs, sum)
}
