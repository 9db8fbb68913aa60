package estimate

import "github.com/blis-train/blis-train/trace"

// Codes this package emits.
const (
	codeLambdaEdge       trace.Code = "lambda_at_edge"
	codeFoldsRepeat      trace.Code = "folds_not_distinct"
	codeTooFewRows       trace.Code = "too_few_rows"
	codeNoInterval       trace.Code = "interval_not_converged"
	codeCertificateFails trace.Code = "certificate_failed"
	codeFrozenOverfit    trace.Code = "effective_df_high"
)

// Codes describes them for people.
var Codes = []trace.CodeEntry{
	{Code: codeLambdaEdge, Kind: "warning", Meaning: "the chosen lambda is an end of its grid",
		Action: "usually harmless: the data need almost no, or almost only, penalty"},
	{Code: codeFoldsRepeat, Kind: "finding", Meaning: "two folds have the same coefficients, so cross-validation proves nothing",
		Action: "add rows; the gate folds_distinct fails"},
	{Code: codeTooFewRows, Kind: "finding", Meaning: "a configuration has fewer rows than blocks and takes no part in the folds",
		Action: "record longer"},
	{Code: codeNoInterval, Kind: "error", Meaning: "the interval-censored fit did not reach its certificate",
		Action: "look for contradicting exact rows"},
	{Code: codeCertificateFails, Kind: "error", Meaning: "the solution does not satisfy its optimality conditions",
		Action: "report this with the fit's inputs"},
	{Code: codeFrozenOverfit, Kind: "warning",
		Meaning: "frozen recipe: more than one effective degree of freedom per ten configurations",
		Action:  "add configurations, or use --recipe relative"},
}
