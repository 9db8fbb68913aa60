package predictor

import (
	"github.com/blis-train/blis-train/trace"
)

// reason is why a request is no row; docs/predictor.md explains each.
type reason string

// codeTwoClocks: arrivals were moved to the engine's clock.
const codeTwoClocks trace.Code = "decision_two_clocks"

// codeJudgedOnTraining: a predictor is judged on what it was trained on.
const codeJudgedOnTraining trace.Code = "judged_on_training"

// codeOtherColumns: there are columns which no router can feed.
const codeOtherColumns trace.Code = "other_columns"
