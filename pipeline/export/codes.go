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
	PoorProjection  trace.Code = "poor_projection"
	BadLedger       trace.Code = "bad_ledger"
	NotReplayable   trace.Code = "not_replayable"
	inputChanged    trace.Code = "input_changed"
	notComparable   trace.Code = "not_comparable"
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
	{Code: PoorProjection, Kind: "error", Meaning: "The consumer's terms, line or formula cannot follow the step-time model: too far off " +
		"in the mean, for one kind of batch, or in simulation (spec#projection). A projection needs lengths and seats above 0.",
		Action: "Give the lengths of your own traffic, use a consumer that reads the native file, or accept it with --force poor_projection."},
	{Code: BadLedger, Kind: "error", Meaning: "The ledger holds no entry at all, or a line of it is none or of another schema version.",
		Action: "Check the path (fit, validate and run append with --ledger FILE), or look at the line, which a crashed job may have cut; the " +
			"other lines are read."},
	{Code: inputChanged, Kind: "finding", Meaning: "A file that the coefficients were made from is there, with other bytes than were read.",
		Action: "Restore the recording, or fit again from what is there now."},
	{Code: NotReplayable, Kind: "finding", Meaning: "The file has no overhead target that a replay may add.",
		Action: "Give --overhead-us in replays, or fit runs with API spans."},
	{Code: notComparable, Kind: "error", Meaning: "Two coefficient files of different spec versions or targets were compared, or a limit of " +
		"the comparison is out of its range.",
		Action: "Refit one of them, for their terms mean different things; or correct the option the message names."},
}
