package library

import (
	"github.com/blis-train/blis-train/coeff"
	"github.com/blis-train/blis-train/pipeline/features"
)

// slot numbers of the terms the correction adds to.
const (
	slotSequences = 6
	slotBias      = 16
	slotBase      = 4   // of the overhead
	seqsUnit      = 256 // sequences per unit of slot 6
)

// setOf is a set of bare coefficients: those of the step time, then those of
// the overhead.
func setOf(values []float64) *coeff.Set {
	s := &coeff.Set{SchemaVersion: coeff.SchemaVersion, SpecVersion: features.V12, FeatureSet: features.SetOf(features.V12),
		Recipe:     "relative",
		BetaTarget: coeff.Cadence, Gamma: features.DefaultGamma, Beta: features.NewCoefficients(features.BetaFeatures(features.V12)),
		Alpha: []coeff.AlphaModel{{Target: coeff.Overhead, Replay: true, Coefficients: features.NewCoefficients(
			features.AlphaFeatures(features.V12))}},
	}
	for i := range s.Beta {
		s.Beta[i].Value = values[i]
	}
	for i := range s.Alpha[0].Coefficients {
		s.Alpha[0].Coefficients[i].Value = values[betaSlots+i]
	}
	return s
}
