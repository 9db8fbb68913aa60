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
