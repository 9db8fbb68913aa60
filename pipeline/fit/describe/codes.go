package describe

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	CodeTargetBelowFloor  trace.Code = "target_below_floor"
	codeConstantInConfigs trace.Code = "constant_within_configurations"
	codeNotLearned        trace.Code = "not_learned"
	codeUnidentifiable    trace.Code = "not_told_apart"
	codeUtilisationAbove1 trace.Code = "utilisation_above_one"
	codeMachineDrift      trace.Code = "machine_drift"
	codeBoundHits         trace.Code = "bound_hits"
	codeDecodeLinearOrder trace.Code = "weight_load_above_compute"
	CodeFewRows           trace.Code = "few_rows"
	codeEstimateOutside   trace.Code = "estimate_outside_interval"
	CodeTermsMerged       trace.Code = "terms_merged"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: CodeTermsMerged, Kind: "finding",
		Meaning: "all recordings are logs that do not tell how long the contexts of decodes were: the terms that read them are known together " +
			"with the per-decode term only",
		Action: "put the clients' results beside the logs, or add a forward-pass trace or a run of the tracing fork"},
	{Code: CodeTargetBelowFloor, Kind: "finding",
		Meaning: "the median target is shorter than reading the weights once takes: it is not a step time",
		Action:  "use --beta-target cadence; step.duration_us is scheduler CPU time"},
	{Code: codeConstantInConfigs, Kind: "finding",
		Meaning: "the feature does not vary inside any configuration, so its coefficient comes from differences between them or " +
			"from the prior", Action: "add runs that vary it, or treat the value as unknown"},
	{Code: codeNotLearned, Kind: "warning", Meaning: "a time-like term is zero or prior-only: these data say nothing about its cost",
		Action: "record load that exercises it; predictions that use it warn"},
	{Code: codeUnidentifiable, Kind: "finding", Meaning: "several terms always move together in these data; only their sum is known",
		Action: "add the experiment the sentence names"},
	{Code: codeUtilisationAbove1, Kind: "warning", Meaning: "a coefficient implies more than the hardware's peak",
		Action: "check the datasheet values in run.yaml and the target"},
	{Code: codeMachineDrift, Kind: "finding",
		Meaning: "the machine changed speed while it was measured: block medians of measured/predicted leave 0.9 to 1.1",
		Action:  "compare the drift-corrected replay; repeat the recording on a quiet machine"},
	{Code: codeBoundHits, Kind: "warning", Meaning: "more than 0.1 % of the rows hit a feature's upper bound and were dropped",
		Action: "check the inputs of that feature; above 1 % the gate bound_hits fails"},
	{Code: codeDecodeLinearOrder, Kind: "warning",
		Meaning: "the weight-load coefficient exceeds the linear-compute one, so the predicted time can fall as tokens are added",
		Action:  "record more prefill so that the two can be told apart"},
	{Code: CodeFewRows, Kind: "warning", Meaning: "fewer rows than the guidance of 200 beta or 100 alpha rows per configuration",
		Action: "record longer"},
	{Code: codeEstimateOutside, Kind: "warning",
		Meaning: "a published coefficient lies outside the 95 % interval of its estimate without penalty: " +
			"penalty, signs or reweighting moved the value by more than chance",
		Action: "read the interval as what the rows say and the value as what predicts best; add data that pins the term"},
}
