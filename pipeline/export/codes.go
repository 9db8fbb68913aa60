package export

import "github.com/blis-train/blis-train/trace"

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
	poorLinearisation  trace.Code = "poor_linearisation"
	notValidated       trace.Code = "not_validated"
	failedGates        trace.Code = "failed_gates"
	noCoefficientModel trace.Code = "no_coefficient_model"
	duplicateEntry     trace.Code = "duplicate_entry"
	NotReproducible    trace.Code = "not_reproducible"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: unknownFormat, Kind: "error", Meaning: "The export format is not one of native, blis-defaults, blis-registry, wva, inferno.", Action: "Pick one of the five with --format."},
	{Code: noSuchModel, Kind: "error", Meaning: "The fit does not hold the parameterisation this format needs.", Action: "Run fit again with the model named in the message (trained-physics for the BLIS formats)."},
	{Code: badModelTerms, Kind: "error", Meaning: "The terms of a fitted model are not the ones its format expects, in that order.", Action: "Refit with this version of blis-train."},
	{Code: negativeValue, Kind: "error", Meaning: "A coefficient is negative; BLIS stops at start-up on negative values.", Action: "Refit (the trained-physics fit is constrained to be non-negative), or write it anyway with --force."},
	{Code: nonFiniteValue, Kind: "error", Meaning: "A coefficient is NaN or infinite; BLIS stops at start-up on it.", Action: "Refit; a non-finite coefficient is a bug of the fit."},
	{Code: unlearnedValue, Kind: "error", Meaning: "The data did not teach a coefficient (0 at its bound, or prior only); the consumer would take it for a measured cost.", Action: "Add runs that exercise the term, or accept what the message says it does with --force."},
	{Code: noAlphaConstant, Kind: "error", Meaning: "The fit has no overhead (or egress) target, so BLIS's alpha would be a guess.", Action: "Extract runs with API spans, or write 0 with --force."},
	{Code: waitingAlpha, Kind: "error", Meaning: "An alpha target that contains a wait was offered as a delay; a simulator would wait twice.", Action: "Use the overhead and egress targets."},
	{Code: noConfiguration, Kind: "error", Meaning: "No configuration of the fit matches the request.", Action: "Use one of the labels the message lists with --config."},
	{Code: assumedLengths, Kind: "warning", Meaning: "Mean prompt and output lengths are unknown and were assumed for the linearisation.", Action: "State them with --prompt-tokens and --output-tokens."},
	{Code: poorLinearisation, Kind: "warning", Meaning: "The consumer's straight line misses the physics model by more than 10 % somewhere on its grid.", Action: "Give the lengths of your own traffic, or use a consumer that reads the native file."},
	{Code: notValidated, Kind: "warning", Meaning: "The coefficients were exported without a validation.", Action: "Run validate and export with --validation validation.json."},
	{Code: failedGates, Kind: "warning", Meaning: "The coefficients were exported although gates failed.", Action: "Read the report before anybody relies on the file."},
	{Code: noCoefficientModel, Kind: "error", Meaning: "A step time cannot be predicted for this configuration.", Action: "The message names what the deployment lacks."},
	{Code: badLedgerLine, Kind: "warning", Meaning: "A line of the ledger is not an entry, or of another schema version.", Action: "Look at the line; a crashed job may have cut it. The other lines are read."},
	{Code: BadLedger, Kind: "error", Meaning: "The ledger holds no entry at all.", Action: "Check the path; fit, validate and run append with --ledger FILE."},
	{Code: outsideEngine, Kind: "finding", Meaning: "The deployment runs another vLLM minor version than the coefficients were trained on.", Action: "Refit on the new version, or validate the file against a run of it."},
	{Code: outsideKnob, Kind: "finding", Meaning: "An engine switch has a value that no training configuration had.", Action: "Validate the file against a run with that value."},
	{Code: outsideRange, Kind: "finding", Meaning: "The largest batches of the deployment push a feature beyond 1.5 times its training maximum.", Action: "Add runs that reach that regime; predictions there extrapolate."},
	{Code: outsideWidths, Kind: "finding", Meaning: "The deployment runs a trained model in another precision.", Action: "Refit on that precision; weight and KV bytes change every memory term."},
	{Code: NotReplayable, Kind: "finding", Meaning: "The file has no overhead target that a replay may add.", Action: "Give --overhead-us in replays, or fit runs with API spans."},
	{Code: notLearnedTerm, Kind: "finding", Meaning: "The deployment uses a term that the training data did not teach.", Action: "Add runs that exercise it, for example longer prompts."},
	{Code: notComparable, Kind: "error", Meaning: "Two coefficient files of different spec versions or targets were compared.", Action: "Refit one of them; their terms mean different things."},
	{Code: badDiffOption, Kind: "error", Meaning: "An option of diff is out of its range.", Action: "Correct the value the message names."},
	{Code: NotReproducible, Kind: "error", Meaning: "A coefficient file does not say, or the data do not hold, what a refit needs.", Action: "Give the folder the runs came from, and the blis-train version the file names."},
	{Code: duplicateEntry, Kind: "error", Meaning: "Two configurations of the fit would be one entry for the reader, which keeps the last.", Action: "Choose one with --config LABEL."},
}
