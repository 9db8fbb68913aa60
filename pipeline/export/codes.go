package export

import (
	"github.com/blis-train/blis-train/trace"
)

// Codes of refusals and remarks.
const (
	unknownFormat      trace.Code = "unknown_export_format"
	noSuchModel        trace.Code = "no_such_model"
	badModelTerms      trace.Code = "bad_model_terms"
	negativeValue      trace.Code = "negative_value"
	nonFiniteValue     trace.Code = "non_finite_value"
	unlearnedValue     trace.Code = "unlearned_value"
	noAlphaConstant    trace.Code = "no_alpha_constant"
	waitingAlpha       trace.Code = "waiting_alpha"
	noConfiguration    trace.Code = "no_configuration"
	assumedLengths     trace.Code = "assumed_lengths"
	beyondTraining     trace.Code = "lengths_beyond_training"
	PoorLinearisation  trace.Code = "poor_linearisation"
	notValidated       trace.Code = "not_validated"
	failedGates        trace.Code = "failed_gates"
	noCoefficientModel trace.Code = "no_coefficient_model"
	poorProjection     trace.Code = "poor_projection"
	notInCatalog       trace.Code = "not_in_catalog"
	duplicateEntry     trace.Code = "duplicate_entry"
	NotReproducible    trace.Code = "not_reproducible"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: unknownFormat, Kind: "error", Meaning: "The export format is none that this input has.",
		Action: "Pick one that the message lists with --format."},
	{Code: noSuchModel, Kind: "error", Meaning: "The fit does not hold the parameterisation this format needs.",
		Action: "Run fit again with the model named in the message (trained-physics for the BLIS formats)."},
	{Code: badModelTerms, Kind: "error", Meaning: "The terms of a fitted model are not the ones its format expects, in that order.",
		Action: "Refit with this version of blis-train."},
	{Code: negativeValue, Kind: "error", Meaning: "A coefficient is negative; BLIS stops at start-up on negative values.",
		Action: "Refit (the trained-physics fit is constrained to be non-negative), or write it anyway with --force negative_value."},
	{Code: nonFiniteValue, Kind: "error", Meaning: "A coefficient is NaN or infinite; BLIS stops at start-up on it.",
		Action: "Refit; a non-finite coefficient is a bug of the fit."},
	{Code: unlearnedValue, Kind: "error", Meaning: "The data did not teach a coefficient (0 at its bound, or prior only); the consumer " +
		"would take it for a measured cost.",
		Action: "Add runs that exercise the term, or accept what the message says it does with --force unlearned_value."},
	{Code: noAlphaConstant, Kind: "error", Meaning: "The fit has no overhead (or egress) target, so BLIS's alpha would be a guess.",
		Action: "Extract runs with API spans, or write 0 with --force no_alpha_constant."},
	{Code: waitingAlpha, Kind: "error", Meaning: "An alpha target that contains a wait was offered as a delay; a simulator would wait twice.",
		Action: "Use the overhead and egress targets."},
	{Code: noConfiguration, Kind: "error", Meaning: "No configuration of the fit matches the request.",
		Action: "Use one of the labels the message lists with --config."},
	{Code: assumedLengths, Kind: "warning", Meaning: "Mean prompt and output lengths are unknown and were assumed for the linearisation.",
		Action: "State them with --prompt-tokens and --output-tokens."},
	{Code: beyondTraining, Kind: "error", Meaning: "The mean prompt or output of the traffic is longer than any that the configuration was " +
		"trained on; the line would extrapolate and its reader cannot see it.",
		Action: "Give lengths within the training's, train on longer requests, or accept it with --force lengths_beyond_training."},
	{Code: PoorLinearisation, Kind: "warning", Meaning: "The consumer's straight line misses the physics model by more than 10 % " +
		"somewhere on its grid, or its formula the simulated TTFT by more than 15 % or ITL by more than 10 %.",
		Action: "Give the lengths of your own traffic, use a consumer that reads the native file, or accept it with --force poor_linearisation."},
	{Code: notInCatalog, Kind: "error", Meaning: "The reader's catalog has no such accelerator; its validator refuses a scope that names one.",
		Action: "Export configurations of parts it knows with --config, or accept it with --force not_in_catalog."},
	{Code: poorProjection, Kind: "error", Meaning: "The consumer's terms cannot follow the step-time model of a configuration: too far off " +
		"in the mean, in the time that a kind of batch takes together, or in simulated E2E (spec#projection).",
		Action: "Use a consumer that reads the native file, or accept it with --force poor_projection."},
	{Code: notValidated, Kind: "warning", Meaning: "The coefficients were exported without a validation.",
		Action: "Run validate and export with --validation validation.json."},
	{Code: failedGates, Kind: "warning", Meaning: "The coefficients were exported although gates failed.",
		Action: "Read the report before anybody relies on the file."},
	{Code: noCoefficientModel, Kind: "error", Meaning: "A step time cannot be predicted for this configuration.",
		Action: "The message names what the deployment lacks."},
	{Code: NotReproducible, Kind: "error", Meaning: "A coefficient file does not say, or the data do not hold, what a refit needs.",
		Action: "Give the folder the runs came from, and the blis-train version the file names."},
	{Code: duplicateEntry, Kind: "error", Meaning: "Two configurations of the fit would be one entry for the reader, which keeps the last.",
		Action: "Choose one with --config LABEL."},
}
