package fit

import "github.com/blis-train/blis-train/trace"

// Codes this stage emits.
const (
	BadOption         trace.Code = "bad_option"
	NoRows            trace.Code = "no_rows"
	SaturatedRun      trace.Code = "saturated_run"
	LagAssumed        trace.Code = "lag_assumed"
	LagContradicts    trace.Code = "lag_contradicts_config"
	TargetBelowFloor  trace.Code = "target_below_floor"
	ConstantInConfigs trace.Code = "constant_within_configurations"
	NotLearned        trace.Code = "not_learned"
	Unidentifiable    trace.Code = "not_told_apart"
	UtilisationAbove1 trace.Code = "utilisation_above_one"
	MachineDrift      trace.Code = "machine_drift"
	BoundHits         trace.Code = "bound_hits"
	DecodeLinearOrder trace.Code = "weight_load_above_compute"
	FewRows           trace.Code = "few_rows"
	LambdaEdge        trace.Code = "lambda_at_edge"
	FoldsRepeat       trace.Code = "folds_not_distinct"
	TooFewRows        trace.Code = "too_few_rows"
	NoInterval        trace.Code = "interval_not_converged"
	CertificateFails  trace.Code = "certificate_failed"
	FrozenOverfit     trace.Code = "effective_df_high"
	OverheadUnknown   trace.Code = "overhead_not_identified"
	ModelSkipped      trace.Code = "model_skipped"
	NoSpec10          trace.Code = "frozen_comparison_unavailable"
	GramRefused       trace.Code = "gram_refused"
	RunLeftOut        trace.Code = "run_left_out"
	EstimateOutside   trace.Code = "estimate_outside_interval"
	GramOnly          trace.Code = "fitted_from_grams"
)

// Codes describes them for `explain` and docs/codes.md.
var Codes = []trace.CodeEntry{
	{Code: BadOption, Kind: "error", Meaning: "an option of the fit is out of range", Action: "see blis-train fit --help"},
	{Code: NoRows, Kind: "error", Meaning: "no training row is left after joins and cleaning", Action: "look at rows.dropped in fit.json: the largest reason says what is missing from the dump"},
	{Code: SaturatedRun, Kind: "finding", Meaning: "two or more of the five saturation checks hit; the run is left out of the fit", Action: "record at lower load, or keep it with --keep-saturated if you know why"},
	{Code: LagAssumed, Kind: "warning", Meaning: "the run holds too little prefill to measure the schedule-to-execution lag, so it follows async_scheduling", Action: "record prompts above 64 tokens in the last fifth of the run"},
	{Code: LagContradicts, Kind: "warning", Meaning: "the measured lag differs from what async_scheduling in run.yaml implies", Action: "check run.yaml against the server's command line; the measured lag is used"},
	{Code: TargetBelowFloor, Kind: "finding", Meaning: "the median target is shorter than reading the weights once takes: it is not a step time", Action: "use --beta-target cadence; step.duration_us is scheduler CPU time"},
	{Code: ConstantInConfigs, Kind: "finding", Meaning: "the feature does not vary inside any configuration, so its coefficient comes from differences between them or from the prior", Action: "add runs that vary it, or treat the value as unknown"},
	{Code: NotLearned, Kind: "warning", Meaning: "a time-like term is zero or prior-only: these data say nothing about its cost", Action: "record load that exercises it; predictions that use it warn"},
	{Code: Unidentifiable, Kind: "finding", Meaning: "several terms always move together in these data; only their sum is known", Action: "add the experiment the sentence names"},
	{Code: UtilisationAbove1, Kind: "warning", Meaning: "a coefficient implies more than the hardware's peak", Action: "check the datasheet values in run.yaml and the target"},
	{Code: MachineDrift, Kind: "finding", Meaning: "the machine changed speed while it was measured: block medians of measured/predicted leave 0.9 to 1.1", Action: "compare the drift-corrected replay; repeat the recording on a quiet machine"},
	{Code: BoundHits, Kind: "warning", Meaning: "more than 0.1 % of the rows hit a feature's upper bound and were dropped", Action: "check the inputs of that feature; above 1 % the gate bound_hits fails"},
	{Code: DecodeLinearOrder, Kind: "warning", Meaning: "the weight-load coefficient exceeds the linear-compute one, so the predicted time can fall as tokens are added", Action: "record more prefill so that the two can be told apart"},
	{Code: FewRows, Kind: "warning", Meaning: "fewer rows than the guidance of 200 beta or 100 alpha rows per configuration", Action: "record longer"},
	{Code: LambdaEdge, Kind: "warning", Meaning: "the chosen lambda is an end of its grid", Action: "usually harmless: the data need almost no, or almost only, penalty"},
	{Code: FoldsRepeat, Kind: "finding", Meaning: "two folds have the same coefficients, so cross-validation proves nothing", Action: "add rows; the gate folds_distinct fails"},
	{Code: TooFewRows, Kind: "finding", Meaning: "a configuration has fewer rows than blocks and takes no part in the folds", Action: "record longer"},
	{Code: NoInterval, Kind: "error", Meaning: "the interval-censored fit did not reach its certificate", Action: "look for contradicting exact rows"},
	{Code: CertificateFails, Kind: "error", Meaning: "the solution does not satisfy its optimality conditions", Action: "report this with the fit's inputs"},
	{Code: FrozenOverfit, Kind: "warning", Meaning: "frozen recipe: more than one effective degree of freedom per ten configurations", Action: "add configurations, or use --recipe relative"},
	{Code: OverheadUnknown, Kind: "warning", Meaning: "no overhead interval is informative, so the overhead is not identified", Action: "record journeys and steps at rate 1.0 on a server that idles now and then, or give --overhead-us"},
	{Code: ModelSkipped, Kind: "warning", Meaning: "another parameterisation could not be fitted on these rows", Action: "the message says why"},
	{Code: NoSpec10, Kind: "warning", Meaning: "the 1.0 comparison could not be made for a run", Action: "1.0 needs snapshots for chunked prefill: --step-tracing-rich-subsample-rate"},
	{Code: GramRefused, Kind: "error", Meaning: "the Gram files do not belong together: another feature-set version, recipe or grid", Action: "save them again with this version"},
	{Code: RunLeftOut, Kind: "finding", Meaning: "a run gave no rows and takes no part in the fit", Action: "the message says why"},
	{Code: EstimateOutside, Kind: "warning", Meaning: "a published coefficient lies outside its 95 % interval: intervals are built around the unpenalised fit, and penalty, signs or reweighting moved the value by more than chance", Action: "read the interval as what the rows say and the value as what predicts best; add data that pins the term"},
	{Code: GramOnly, Kind: "finding", Meaning: "the fit was made from Gram matrices: no reweighting, no interval targets (alpha), no error that needs rows", Action: "fit the tables themselves where the traces are at hand"},
}
