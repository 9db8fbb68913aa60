package coeff

import "github.com/blis-train/blis-train/trace"

// Codes of coefficient files and predictions.
const (
	BadFile               trace.Code = "bad_coefficient_file"
	OutsideTraining       trace.Code = "outside_training"
	ImpossibleCoefficient trace.Code = "impossible_coefficient"
	NotInLibrary          trace.Code = "not_in_library"
	DocumentChanged       trace.Code = "document_changed" // or a coefficient file
)
