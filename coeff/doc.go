// Package coeff holds the noun Set: named coefficients with unit, spec
// version, provenance and uncertainty (the artifact of design 01 section 13),
// with a strict Load, an exact Save and the one Predict that teacher-forced
// validation and the simulator both call. coeff imports pipeline/features for
// names and versions.
package coeff
