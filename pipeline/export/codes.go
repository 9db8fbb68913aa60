package export

import "github.com/blis-train/blis-train/trace"

// Codes of refusals and remarks.
const (
	UnknownFormat   trace.Code = "unknown_export_format"
	NothingToExport trace.Code = "nothing_to_export"
	unlearnedValue  trace.Code = "unlearned_value"
	impossibleValue trace.Code = "impossible_value"
	BeyondTraining  trace.Code = "lengths_beyond_training"
	BadEntry        trace.Code = "bad_entry"
	AssumedValue    trace.Code = "assumed_value"
	notValidated    trace.Code = "not_validated"
	NotReproducible trace.Code = "not_reproducible"
)

// Codes describes every code of this package.
var Codes = []trace.CodeEntry{
	{Code: UnknownFormat, Kind: "error", Meaning: "The format is none that can be made of this input, or its reader does not take it.",
		Action: "Pick one that the message lists with --format, or the reader's version that it names."},
	{Code: NothingToExport, Kind: "error", Meaning: "The input lacks what the format needs: the configuration or server asked for, its " +
		"parameters, targets, a step-time model, or a delay that a replay may add.",
		Action: "The message names what is missing and what there is."},
	{Code: unlearnedValue, Kind: "error", Meaning: "The data did not teach a coefficient (0 at its bound, prior only, or no such target); " +
		"the consumer would take it for a measured cost.",
		Action: "Add runs that exercise the term, or accept what the message says it does with --force unlearned_value."},
	{Code: impossibleValue, Kind: "error", Meaning: "A coefficient is negative, NaN or infinite; BLIS stops at start-up on it.",
		Action: "Refit; write it anyway with --force impossible_value."},
	{Code: BeyondTraining, Kind: "error", Meaning: "The mean prompt or output of the traffic is longer than any that the configuration was " +
		"trained on; the line would extrapolate and its reader cannot see it.",
		Action: "Give lengths within the training's, train on longer requests, or accept it with --force lengths_beyond_training."},
	{Code: BadEntry, Kind: "error", Meaning: "The reader would refuse an entry, since its catalog has no such part, or keep only the last " +
		"of two that it cannot tell apart.",
		Action: "Choose other configurations with --config LABEL, or accept it with --force bad_entry."},
	{Code: AssumedValue, Kind: "warning", Meaning: "A length, noise or drift is not known, so an assumption or the reader's default stands " +
		"in its place.",
		Action: "State lengths with --prompt-tokens and --output-tokens; queue fit --track measures noise and drift."},
	{Code: notValidated, Kind: "warning", Meaning: "The coefficients were exported without a validation, or although gates failed.",
		Action: "Run validate and export with --validation validation.json; read the report before anybody relies on the file."},
	{Code: NotReproducible, Kind: "error", Meaning: "A coefficient file does not say, or the data do not hold, what a refit needs.",
		Action: "Give the folder the runs came from, and the blis-train version the file names."},
}
