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
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: codeWarmUp, Kind: "drop", Meaning: "The row belongs to the warmup phase, or without one to the first 10 recorded steps of the " +
		"engine run.", Action: "Nothing to do; a phase called warmup in run.yaml decides what counts."},
	{Code: Saturated, Kind: "drop", Meaning: "The row lies in a run or segment that is saturated: two or more of the five checks hit.",
		Action: "Record at a lower rate, or keep saturated runs with --keep-saturated if you know why."},
	{Code: codeNoInterval, Kind: "drop",
		Meaning: "No time between two steps starts here: the step is the last of its run, the next recorded one is more than 20 steps " +
			"away, or nothing ran in a step between them.",
		Action: "Nothing to do for idle servers; with sampled steps, record with a higher --step-tracing-sample-rate."},
	{Code: UnknownBatch, Kind: "drop", Meaning: "The batch of a step of the interval is not known.",
		Action: "Record journeys at rate 1.0 and snapshots with --step-tracing-rich-subsample-rate 1.0."},
	{Code: codeNoTarget, Kind: "drop",
		Meaning: "The target is not measured: a stamp is missing or later than the next one, no step was recorded before the request was " +
			"queued, another sample of the request (n > 1) finished later, the span is of unmodified vLLM, or the step scheduled nothing.",
		Action: "Nothing to do for requests that ended early; otherwise look at the losses in extract.json, and check that all stamps come " +
			"from one machine and one boot."},
	{Code: codeOutlier, Kind: "drop",
		Meaning: "The time is more than 10 times the median of the previous 101 rows of its kind, with or without prompts, or more than 5 " +
			"times the median of its cell.",
		Action: "Nothing to do for single rows; many of them mean a disturbed machine."},
	{Code: codeRowsThinned, Kind: "warning",
		Meaning: "A part of the rows was learned from or judged, evenly chosen: the recordings hold more steps than --max-rows.",
		Action: "Nothing: intervals shrink with configurations, not with rows. --max-rows N takes more, 0 all, at about 250 bytes of " +
			"memory each."},
	{Code: BadOption, Kind: trace.KindUsage, Meaning: "An option is out of its range.", Action: "Use the values the message names."},
	{Code: codeBadStepIDs, Kind: "error", Meaning: "A run holds two summaries of one step, or step ids too far apart for one engine run.",
		Action: "Several engines or restarts share the recording: extract again with --split-engines; otherwise look for damage."},
	{Code: codeChunkedNoSnapshots, Kind: "error", Meaning: "Spec 1.0 needs snapshots when chunked prefill is on, and the run has none.",
		Action: "Record with --step-tracing-rich-subsample-rate, or use --spec 1.1."},
	{Code: codeNotRecorded, Kind: "warning",
		Meaning: "Steps, journeys, snapshots or KV events that features read were not recorded, or only sampled; the message says what " +
			"stands for them.",
		Action: "Record every step and journey at rate 1.0, and snapshots or KV events where the message names them."},
	{Code: OverheadUnknown, Kind: "warning", Meaning: "The overhead is not identified: no interval bounds it from below, or none is narrow.",
		Action: "Record journeys and steps at rate 1.0 on a server that idles now and then, or give --overhead-us."},
	{Code: codeManyOutliers, Kind: "error", Meaning: "More than 20 % of a cell, and more than one row, was dropped as outliers.",
		Action: "The cell mixes two kinds of steps or the run was disturbed; look at its rows before trusting the fit."},
	{Code: codeRegimeAbsent, Kind: "finding", Meaning: "The run holds too few steps of a kind a simulator will meet.",
		Action: "Add load of that kind before using the coefficients there."},
	{Code: MachineDrift, Kind: "finding",
		Meaning: "The machine changed speed while it was measured: medians of measured/predicted over blocks of time leave 0.9 to 1.1.",
		Action: "Look at the drift curve; if it swings, repeat the recording on a quiet machine; if it is flat, the model is biased " +
			"on this run."},
	{Code: codeNoStepTimes, Kind: "error",
		Meaning: "The log of an unmodified engine does not tell how long its steps took: passes are sampled or speculative, the elapsed " +
			"time is that of another batch, or stamps in whole seconds cover too little busy time.",
		Action: "Save the log with precise stamps (docker logs --timestamps, kubectl logs --timestamps), every pass (DYN_FPM_MODE=full), and " +
			"without speculative decoding."},
	{Code: codeFilledIn, Kind: "warning",
		Meaning: "Something that the log of an unmodified engine does not tell was worked out from other figures; the message says what and " +
			"from which.",
		Action: "Nothing, or what the message names: precise stamps, and the results of the clients that sent the load."},
	{Code: ContextsMerged, Kind: "warning", Meaning: "Nobody tells how long the contexts of the decodes were: one mean stands for all, " +
		"so the KV-read and decode-attention terms are merged with the per-decode term and only a prior splits them.",
		Action: "Put the client's result beside the log (vllm bench serve --save-result --save-detailed), or record Dynamo's forward-pass " +
			"trace."},
}
