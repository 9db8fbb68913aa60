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
	LagUncertain  trace.Code = "lag_uncertain"
	ModelSkipped  trace.Code = "model_skipped"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: CodeNoRows, Kind: "error", Meaning: "no training row is left of a run, or of all of them, after joins and cleaning",
		Action: "look at rows.dropped in fit.json: the largest reason says what is missing from the dump"},
	{Code: CodeFewRows, Kind: "warning",
		Meaning: "fewer rows or configurations than the fit needs: below the guidance of 200 beta or 100 alpha rows per configuration, " +
			"too few for the folds, folds with the same coefficients, or more than one effective degree of freedom per ten configurations",
		Action: "record longer, or add configurations; the gate folds_distinct fails where folds repeat each other"},
	{Code: NotConverged, Kind: "error", Meaning: "the solution does not satisfy its optimality conditions",
		Action: "look for contradicting exact rows of the overhead; otherwise report this with the fit's inputs"},
	{Code: NotIdentified, Kind: "finding",
		Meaning: "these data do not tell a coefficient: the term is zero or prior-only, constant inside every configuration, or always moves " +
			"together with others of which only the sum is known",
		Action: "add the experiment the message names, or runs that vary the term; predictions that use it warn"},
	{Code: AtLimit, Kind: "warning",
		Meaning: "the chosen lambda is an end of its grid, more than 0.1 % of the rows hit a feature's upper bound and were dropped, or " +
			"penalty, signs or reweighting moved a coefficient out of the 95 % interval of its estimate",
		Action: "usually harmless for lambda; check the inputs of a bounded feature (above 1 % the gate bound_hits fails); " +
			"read an interval as what the rows say and the value as what predicts best"},
	{Code: Implausible, Kind: "finding",
		Meaning: "measured times or fitted coefficients contradict the hardware's figures or the prior: a median target below " +
			"reading the weights once, more than the hardware's peak, a predicted time that falls as tokens are added, or " +
			"steps more than " +
			"3 standard errors from the prior",
		Action: "check hardware, tensor_parallel_size and dtype in run.yaml and the key beta-target (step.duration_us is scheduler CPU " +
			"time); if they are right, record more prefill, or fit with --prior zero"},
	{Code: LagUncertain, Kind: "warning",
		Meaning: "the schedule-to-execution lag could not be measured and follows async_scheduling, or the measured one contradicts it",
		Action:  "record prompts above 64 tokens in the last fifth of the run; check run.yaml against the server's command line"},
	{Code: ModelSkipped, Kind: "warning",
		Meaning: "another parameterisation, the comparison with spec 1.0, or what needs rows in a fit from Gram files was left out",
		Action:  "the message says why; 1.0 needs snapshots for chunked prefill: --step-tracing-rich-subsample-rate"},
}
