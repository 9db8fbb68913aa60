package rows

import "github.com/blis-train/blis-train/trace"

// Reasons for which a candidate row is dropped. The codes of package features
// (feature_out_of_range, bad_input, inconsistent_*) are reasons too.
const (
	codeWarmUp      trace.Code = "warm_up"
	Saturated       trace.Code = "saturated"
	codeNoInterval  trace.Code = "no_interval"
	UnknownBatch    trace.Code = "unknown_batch"
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
	codeNoStepTimes        trace.Code = "no_step_times"
	codeFilledIn           trace.Code = "log_filled_in"
	ContextsMerged         trace.Code = "contexts_merged"
	codeWindowSums         trace.Code = "window_sums_approximate"
)
