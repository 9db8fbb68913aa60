package predictor

// This file lists why requests are no rows.

import (
	"github.com/blis-train/blis-train/trace"
)

// reason is the code of why a request is not a row; docs/predictor.md explains each.
type reason string

// codeTwoClocks is the warning that arrivals were moved to the engine's clock.
const codeTwoClocks trace.Code = "decision_two_clocks"

// codeJudgedOnTraining is the warning that a predictor is scored on recordings that it was trained
// on.
const codeJudgedOnTraining trace.Code = "judged_on_training"

// codeOtherColumns is the warning that rows have columns which no router can provide.
const codeOtherColumns trace.Code = "other_columns"
