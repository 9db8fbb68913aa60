package result

// This file has what the coefficients of a model's folds say about the model.

import (
	"math"
	"slices"
)

// stampResolutionUs is the unit of a recording's stamps, 1 ns: a smaller delay is none.
const stampResolutionUs = 1e-3

// stepTimeModel is the name of the model of step times. Every other model of a fit is of a delay.
const stepTimeModel = "beta"

// constantTerm is the term of a delay whose feature is 1 for every request.
const constantTerm = "base_bias"

// RepeatedFolds returns the number of folds whose coefficients equal those of an earlier one.
func (m *Model) RepeatedFolds() int {
	n := 0
	for b, fingerprint := range m.FoldFingerprints {
		if slices.Contains(m.FoldFingerprints[:b], fingerprint) {
			n++
		}
	}
	return n
}

// RepeatedFold returns the indices of two folds with equal coefficients.
func (m *Model) RepeatedFold() (a, b int, found bool) {
	for b, fingerprint := range m.FoldFingerprints {
		if a := slices.Index(m.FoldFingerprints[:b], fingerprint); a >= 0 {
			return a, b, true
		}
	}
	return 0, 0, false
}

// IsConstantDelay reports whether the model is a delay that every fold finds to be the same for all requests: 0, or
// a constant. Folds of different rows may then have equal coefficients, because any constant within all intervals
// of an overhead fits them equally well. It is false where the coefficients of the folds are not known.
func (m *Model) IsConstantDelay() bool {
	if m.Name == stepTimeModel || len(m.Coefficients) == 0 {
		return false
	}
	for i := range m.Coefficients {
		c := &m.Coefficients[i]
		if c.Name == constantTerm {
			continue
		}
		if c.FoldSpread == nil || c.Range == nil {
			return false
		}
		if math.Max(math.Abs(c.FoldSpread[0]), math.Abs(c.FoldSpread[1]))*c.Range[1] > stampResolutionUs {
			return false
		}
	}
	return true
}
