package rows

import "github.com/blis-train/blis-train/trace"

// Reasons for which a candidate row is dropped. The codes of package features
// (feature_out_of_range, bad_input, inconsistent_*) are reasons too.
const (
	codeWarmUp         trace.Code = "warm_up"
	codeSaturatedSpan  trace.Code = "saturated"
	codeNoSuccessor    trace.Code = "no_successor"
	codeGapTooLong     trace.Code = "gap_too_long"
	codeIdleGap        trace.Code = "idle_gap"
	UnknownBatch       trace.Code = "unknown_batch"
	codeNegativeTarget trace.Code = "negative_target"
	codeCadenceSpike   trace.Code = "cadence_spike"
	codeOutlier        trace.Code = "outlier"
	codeNoPriorStep    trace.Code = "no_prior_step"
	codeMissingStamp   trace.Code = "missing_stamp"
	codeNotLastSample  trace.Code = "not_last_sample"
	codeStockRow       trace.Code = "stock_row"
	codeEmptyStep      trace.Code = "empty_step"
	codeThinned        trace.Code = "thinned"
)

// Reasons for which a step's batch is unknown (details of unknown_batch) or a
// step or run cannot be sourced.
const (
	codeNoRequests         trace.Code = "no_requests"
	codePreemptedRequest   trace.Code = "preempted_request"
	codeInconsistentLife   trace.Code = "inconsistent_request"
	codePrefillUnknown     trace.Code = "prefill_unknown"
	codeCachedUnknown      trace.Code = "cached_tokens_unknown"
	codeUnconfirmed        trace.Code = "unconfirmed_batch"
	codeContradiction      trace.Code = "batch_contradiction"
	codeChunkedNoRequests  trace.Code = "chunked_without_requests"
	codeRecomputeNoRequest trace.Code = "recompute_without_requests"
	codeChunkedNoSnapshots trace.Code = "chunked_without_snapshots"
)

// Findings on results.
const (
	codeNoEMA            trace.Code = "no_ema"
	codeEMASampled       trace.Code = "ema_sampled"
	codePrefixUnknown    trace.Code = "prefix_unknown"
	codeNoKVEvents       trace.Code = "no_kv_events"
	codeNoPromptLengths  trace.Code = "no_prompt_lengths"
	codeApproximateSteps trace.Code = "approximate_steps"
	codeLagApproximate   trace.Code = "lag_approximate"
	codeNotIdentified    trace.Code = "not_identified"
	codeBelowFloor       trace.Code = "target_below_floor"
	codeManyOutliers     trace.Code = "many_outliers"
	codeRegimeAbsent     trace.Code = "regime_absent"
	codeJourneysPartial  trace.Code = "journeys_partial"
	codeRowsThinned      trace.Code = "rows_thinned"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: codeWarmUp, Kind: "drop", Meaning: "The row belongs to the warmup phase, or without one to the first 10 recorded steps of the " +
		"engine run.", Action: "Nothing to do; a phase called warmup in run.yaml decides what counts."},
	{Code: codeSaturatedSpan, Kind: "drop", Meaning: "The row lies in a run or segment that inspection called saturated.",
		Action: "Fit on load below saturation, or ask for saturated rows explicitly."},
	{Code: codeNoSuccessor, Kind: "drop", Meaning: "No later step of the engine run is recorded, so the step has no interval.",
		Action: "Nothing to do for the last step of a run."},
	{Code: codeGapTooLong, Kind: "drop", Meaning: "The next recorded step is more than 20 steps away.",
		Action: "Record with a higher --step-tracing-sample-rate."},
	{Code: codeIdleGap, Kind: "drop", Meaning: "A step of the interval had nothing to run, so the interval contains idle time.",
		Action: "Nothing to do; the first interval after an idle period measures nothing."},
	{Code: UnknownBatch, Kind: "drop", Meaning: "The batch of a step of the interval is not known.",
		Action: "Record journeys at rate 1.0 and snapshots with --step-tracing-rich-subsample-rate 1.0."},
	{Code: codeNegativeTarget, Kind: "drop", Meaning: "The later stamp of the target precedes the earlier one.",
		Action: "Check that all stamps come from one machine and one boot."},
	{Code: codeCadenceSpike, Kind: "drop",
		Meaning: "The time per step is more than 10 times the median of the previous 101 rows of its kind, with or without prompts.",
		Action:  "Nothing to do for single steps; many of them mean a disturbed machine."},
	{Code: codeOutlier, Kind: "drop", Meaning: "The target is more than 5 times the median of its cell.",
		Action: "Look at the run around the row; above 20 % of a cell it is an error."},
	{Code: codeNoPriorStep, Kind: "drop", Meaning: "No step of the engine run was recorded before the request was queued, so there is no " +
		"queue state to join.", Action: "Record with a higher --step-tracing-sample-rate."},
	{Code: codeMissingStamp, Kind: "drop", Meaning: "The request lacks a stamp the target needs.",
		Action: "Nothing to do for requests that ended early; otherwise look at the losses in extract.json."},
	{Code: codeNotLastSample, Kind: "drop", Meaning: "Another sample of the same API request (n > 1) finished later, so DEPARTED - FINISHED " +
		"would contain its decoding.", Action: "Nothing to do."},
	{Code: codeStockRow, Kind: "drop", Meaning: "A span of unmodified vLLM has no stamps for this target.",
		Action: "Trace with journeys to fit this target."},
	{Code: codeEmptyStep, Kind: "drop", Meaning: "The step scheduled nothing, so its duration is no training row.", Action: "Nothing to do."},
	{Code: codeThinned, Kind: "drop", Meaning: "The recordings hold more steps than --max-rows, and the row is not among those chosen evenly.",
		Action: "Nothing to do: see rows_thinned."},

	{Code: codeNoRequests, Kind: "tag", Meaning: "The step has neither snapshots nor requests in the journeys that account for it.",
		Action: "Record journeys at rate 1.0 or snapshots."},
	{Code: codePreemptedRequest, Kind: "tag", Meaning: "A preempted request may have run in the step; what it recomputed is not recorded.",
		Action: "Snapshots on every step make such steps known."},
	{Code: codeInconsistentLife, Kind: "tag",
		Meaning: "A request in the step has events that do not fit one token per step (lost events, or " +
			"an abort).", Action: "Look at the request's journey events; raise OTEL_SPAN_EVENT_COUNT_LIMIT if events were lost."},
	{Code: codePrefillUnknown, Kind: "tag", Meaning: "A request's prompt cannot be cut into chunks that end in its FIRST_TOKEN step.",
		Action: "Check max_num_batched_tokens and long_prefill_token_threshold in run.yaml."},
	{Code: codeCachedUnknown, Kind: "tag",
		Meaning: "Prefix caching is on and the number of cached prompt tokens of a request in the step is " +
			"not recorded.", Action: "Record snapshots (--step-tracing-rich-subsample-rate)."},
	{Code: codeUnconfirmed, Kind: "tag", Meaning: "Not every request is in the journeys and no BATCH_SUMMARY confirms the rebuilt batch.",
		Action: "Record journeys at rate 1.0, or every step."},
	{Code: codeContradiction, Kind: "tag", Meaning: "The rebuilt batch contradicts the step's BATCH_SUMMARY.",
		Action: "Look for lost core spans; the share is a quality figure of the run."},
	{Code: codeChunkedNoRequests, Kind: "tag", Meaning: "Only batch totals are known and chunked prefill is on, so prefill work cannot be " +
		"computed.", Action: "Record journeys or snapshots."},
	{Code: codeRecomputeNoRequest, Kind: "tag", Meaning: "Only batch totals are known and decode tokens differ from decode requests: a " +
		"preempted request was recomputed.", Action: "Record journeys or snapshots."},
	{Code: codeChunkedNoSnapshots, Kind: "error", Meaning: "Spec 1.0 needs snapshots when chunked prefill is on, and the run has none.",
		Action: "Record with --step-tracing-rich-subsample-rate, or use --spec 1.1."},

	{Code: codeBadOption, Kind: trace.KindUsage, Meaning: "An option of the row stage is out of its range.",
		Action: "Use the values the message names."},
	{Code: codeStepRange, Kind: "error", Meaning: "The step ids of a run span a range no engine run can have.",
		Action: "Look for damaged or mixed recordings; several engines in one file need --split-engines."},

	{Code: codeDuplicateStep, Kind: "error", Meaning: "A run holds two summaries with one step id.",
		Action: "Several engines or restarts share the recording: extract again with --split-engines."},

	{Code: codeRowsThinned, Kind: "warning",
		Meaning: "A part of the rows was learned from or judged, evenly chosen: the recordings hold more steps than --max-rows.",
		Action: "Nothing: intervals shrink with configurations, not with rows. --max-rows N takes more, 0 all, at about 250 bytes of " +
			"memory each."},
	{Code: codeNoEMA, Kind: "warning", Meaning: "No step summaries, so the preemption average is 0.", Action: "Enable step tracing."},
	{Code: codeEMASampled, Kind: "warning", Meaning: "Steps are sampled, so the preemption average sees only recorded steps.",
		Action: "Record every step where preemption matters."},
	{Code: codePrefixUnknown, Kind: "warning", Meaning: "Prefix caching is on but requests without snapshots have no known hits; 0 is used.",
		Action: "Record snapshots (--step-tracing-rich-subsample-rate)."},
	{Code: codeNoKVEvents, Kind: "warning", Meaning: "CPU offloading is on but there are no KV events, so transfers count as 0.",
		Action: "Record KV events and name the file in run.yaml."},
	{Code: codeNoPromptLengths, Kind: "warning", Meaning: "Prefill work is approximated from batch totals without any prompt length; equal " +
		"prompts are assumed.", Action: "Record snapshots on some steps."},
	{Code: codeApproximateSteps, Kind: "finding", Meaning: "Features of some steps come from batch totals and are approximate.",
		Action: "Record journeys or snapshots."},
	{Code: codeLagApproximate, Kind: "tag",
		Meaning: "Steps are sampled below 0.5, so a pure-decode row uses the features of step i in place " +
			"of step i-lag.", Action: "Record every step."},
	{Code: codeNotIdentified, Kind: "finding", Meaning: "The overhead is only bounded from above: no step stamps precede the pick-up.",
		Action: "Enable step tracing and journeys."},
	{Code: codeBelowFloor, Kind: "error", Meaning: "The median of the beta target lies below the time to read the weights once: the target " +
		"cannot be the step time.", Action: "Use --beta-target cadence; check hardware figures in run.yaml."},
	{Code: codeManyOutliers, Kind: "error", Meaning: "More than 20 % of a cell, and more than one row, was dropped as outliers.",
		Action: "The cell mixes two kinds of steps or the run was disturbed; look at its rows before trusting the fit."},
	{Code: codeRegimeAbsent, Kind: "finding", Meaning: "The run holds too few steps of a kind a simulator will meet.",
		Action: "Add load of that kind before using the coefficients there."},
	{Code: codeJourneysPartial, Kind: "finding", Meaning: "Not every request has a journey, so rebuilt batches count only where a summary " +
		"confirms them.", Action: "Record with --journey-tracing-sample-rate 1.0."},
}
