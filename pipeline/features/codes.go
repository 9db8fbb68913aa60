package features

import "github.com/blis-train/blis-train/trace"

// Codes of rejected inputs (spec#input-checks, spec#finite) and versions (spec#spec-version).
const (
	UnknownSpecVersion trace.Code = "unknown_spec_version"
	BadInput           trace.Code = "bad_input"
	FeatureOutOfRange  trace.Code = "feature_out_of_range"
	WrongFeatureSet    trace.Code = "wrong_feature_set"
	noSuchTarget       trace.Code = "no_such_target"
)
