package fit

import "github.com/blis-train/blis-train/trace"

// Codes of a fit.
const (
	CodeNoRows    trace.Code = "no_rows"
	CodeFewRows   trace.Code = "few_rows"
	NotConverged  trace.Code = "not_converged"
	NotIdentified trace.Code = "not_identified"
	AtLimit       trace.Code = "at_limit"
	Implausible   trace.Code = "implausible_value"
	absorbs       trace.Code = "absorbs_something_else"
	LagUncertain  trace.Code = "lag_uncertain"
	ModelSkipped  trace.Code = "model_skipped"
)
