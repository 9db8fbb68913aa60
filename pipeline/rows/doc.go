// Package rows turns the tables of one engine run into rows of a feature vector and a measured time,
// which coefficients are fitted to and predictions are compared with. Start at [Rebuild].
//
//	steps, err := rows.Rebuild(run, dep, features.V11)                      // what ran in each step
//	beta, err  := steps.Beta(space, rows.Options{Lag: 1, Gamma: 0.3})       // step times
//	alpha, err := steps.Alpha(space, rows.Options{Target: coeff.Overhead})  // delays around the engine
//	rows.Clean(tables, rows.Relative)                                       // outliers, pooled
//
// Batches are reconstructed once, while rows are made for several lags, smoothing factors and targets.
//
// # What ran in each step
//
// [Rebuild] gives every step id from the first to the last recorded one a [Tag]: rich (a complete set
// of snapshots), journey (reconstructed from the requests' events by package reconstruct,
// exact), summary (batch totals alone, approximate) or unknown, with a reason. source.go chooses
// the best of those that exist for a step, in this order. Steps that were not recorded are
// reconstructed too, because rows of sampled runs need the steps in between. For engines that record no
// steps, package reconstruct/logged makes steps from their logs before.
//
// # Rows
//
// A row of [Steps.Beta]: the time from the start of recorded step i to the start of the next recorded
// step j is the sum of the step times of the steps i-lag .. j-1-lag. Adjacent steps give rows of one
// step; sampled runs give rows of up to twenty steps where every one of them is known. A row of
// [Steps.Alpha] joins a request to the last recorded step before its stamp; the overhead target is an
// interval.
//
// Every candidate row is kept or dropped for exactly one reason, and read = kept + dropped is checked.
// Hold-out, phase, regime, weight and physical floor are columns of the [Table], so that fitting needs
// nothing else.
//
// # Errors of predictions
//
// [JudgeSteps] and [JudgeDelays] compare predictions with rows. fit.json and validation.json both
// contain the errors that they return, so an error of one name is computed in the same way in both.
// Their input is [Sample] values: the rows of one run, the predictions for them, and which of the rows are compared.
// Samples of one configuration make a group. A group shares two references for the errors: the best
// constant (over the rows trained on) and the noise floor (from the nearest rows of the group). A run
// that the coefficients were not trained on is a group of its own.
//
// Stamps are int64 ns, times float64 us. Nothing here depends on the order of a map, on the clock or on
// the number of workers.
package rows

import (
	"github.com/blis-train/blis-train/trace"
)

// Reasons for which a candidate row is dropped. The codes of package features
// (feature_out_of_range, bad_input, inconsistent_*) are reasons too.
const (
	codeWarmUp      trace.Code = "warm_up"
	Saturated       trace.Code = "saturated"
	NoInterval      trace.Code = "no_interval"
	UnknownBatch    trace.Code = "unknown_batch"
	codeEncoder     trace.Code = "encoder_pass"
	codeNoTarget    trace.Code = "no_target"
	codeOutlier     trace.Code = "outlier"
	codeRowsThinned trace.Code = "rows_thinned"
)

// Errors, warnings and findings.
const (
	BadOption              trace.Code = "bad_option"
	codeBadStepIDs         trace.Code = "bad_step_ids"
	codeChunkedNoSnapshots trace.Code = "chunked_without_snapshots"
	codeNotRecorded        trace.Code = "not_recorded"
	OverheadUnknown        trace.Code = "overhead_not_identified"
	codeManyOutliers       trace.Code = "many_outliers"
	codeRegimeAbsent       trace.Code = "regime_absent"
	MachineDrift           trace.Code = "machine_drift"
	codeWindowSums         trace.Code = "window_sums_approximate"
)
